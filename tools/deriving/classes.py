"""Which classes are derived, the config each begins from, and what its config class fills in."""

import contextlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import symbols
import transformers
from sweep_types import PATTERNS, class_of, default_of
from symbols import Real, Whole
from tracing import relevant
from transformers import CONFIG_MAPPING, PretrainedConfig
from transformers.models.auto import modeling_auto

_DEPTH = re.compile(
    r"(^|_)(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|num_blocks|depth|(num|n)_.*layers|layers)$"
)
_TASKS = (
    "CTC", "CAUSAL_LM", "MASKED_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION", "AUDIO_CLASSIFICATION",
    "IMAGE_CLASSIFICATION", "SEMANTIC_SEGMENTATION", "OBJECT_DETECTION", "IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM",
    "PRETRAINING", "QUESTION_ANSWERING", "TEXT_TO_SPECTROGRAM", "TEXT_TO_WAVEFORM", "SPEECH_SEQ_2_SEQ", "AUDIO_XVECTOR",
    "AUDIO_FRAME_CLASSIFICATION", "DEPTH_ESTIMATION", "VISUAL_QUESTION_ANSWERING", "MASK_GENERATION", "TEXT_ENCODING",
)  # fmt: skip
# Fields by which a class is built in two ways that no row joins: a second row is derived with them.
_STABLE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True, "conv_bias": True}
TWICE: dict[str, dict[str, Any]] = {
    "layoutlmv3": {"id2label": {i: f"LABEL_{i}" for i in range(12)}},
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm"), _STABLE),
}
_WRITERS = ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "AUDIO_TEXT_TO_TEXT")


def classes(model_type: str) -> list[Any]:
    """The class a checkpoint of that type usually is, its bare body, and those of other tasks."""
    found = [class_of(model_type), *_conditional(model_type)]
    with contextlib.suppress(KeyError):
        found.append(transformers.AutoModel._model_mapping[CONFIG_MAPPING[model_type]])
    for task in _TASKS:
        said = getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES", {}).get(model_type)
        named = [said] if isinstance(said, str) else [*(said or ())]
        found += [getattr(transformers, name, None) for name in named]
    flat = [each for one in found for each in (one if isinstance(one, tuple | list) else [one])]
    return [*dict.fromkeys(each for each in flat if each is not None)]


def _conditional(model_type: str) -> list[Any]:
    """Classes of that config which no table lists and checkpoints name (Moshi's and MusicGen's whole models)."""
    ends = ("ForConditionalGeneration", "ForPreTraining", "ForSpeechToSpeech", "ForTextToSpeech")
    named = (getattr(transformers, n) for n in dir(transformers) if n.endswith(ends))
    wanted = CONFIG_MAPPING[model_type]
    return [c for c in named if getattr(c, "config_class", None) is wanted]


def writes(cls: Any, model_type: str) -> bool:
    """Whether the class generates text from what it wrote before."""
    tables = (getattr(modeling_auto, f"MODEL_FOR_{each}_MAPPING_NAMES", {}) for each in _WRITERS)
    listed = (t.get(model_type) or () for t in tables)
    return any(cls.__name__ in ((said,) if isinstance(said, str) else said) for said in listed)


_SAYING: dict[str, Any] = {}


@contextlib.contextmanager
def saying(fields: dict[str, Any]) -> Iterator[None]:
    """Within it, default configs say those fields too."""
    _SAYING.update(fields)
    try:
        yield
    finally:
        _SAYING.clear()


def said() -> frozenset[str]:
    """Which fields default configs say so."""
    return frozenset(_SAYING)


def default(model_type: str) -> dict[str, Any]:
    """The class's default config; numbers that JSON cannot write are left to the class."""
    return {**_finite(default_of(model_type)), **_SAYING, "model_type": model_type}


def _finite(raw: dict[str, Any]) -> dict[str, Any]:
    writable = {n: v for n, v in raw.items() if isinstance(v, dict) or "__float__" not in str(v)}
    kept = {n: _finite(v) if isinstance(v, dict) else v for n, v in writable.items()}
    return {n: v for n, v in kept.items() if n != "__float__"}


def beginning(model_type: str, deep: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The default config with few layers, every depth another number; fields in ``deep`` keep theirs."""
    return _shallow(default(model_type), iter(range(3, 40)), deep, "")


def _shallow(raw: dict[str, Any], depths: Any, deep: frozenset[str], path: str) -> dict[str, Any]:
    small = {}
    for name, value in raw.items():
        small[name] = value
        if isinstance(value, dict) and "config" in name:
            small[name] = _shallow(value, depths, deep, f"{path}{name}.")
        elif f"{path}{name}" not in deep and is_depth(name) and isinstance(value, int) and value > 3:
            small[name] = min(value, next(depths, value))
    changed = small.get("num_hidden_layers") != raw.get("num_hidden_layers")
    return {n: v for n, v in small.items() if not (changed and n in PATTERNS)}


def window(model_type: str) -> int:
    """The window over which every layer of the class's decoder slides; 0 where none does or layers differ (``DynamicCache``)."""
    config = CONFIG_MAPPING[model_type]().get_text_config(decoder=True)
    said = getattr(config, "sliding_window", None)
    return said if isinstance(said, int) and getattr(config, "layer_types", None) is None else 0


def is_depth(path: str) -> bool:
    """Whether a field of that name counts layers."""
    return bool(_DEPTH.search(path.rpartition(".")[2]))


def filled(config: PretrainedConfig, path: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """(what each absent field becomes, other spellings of fields), by path; {"is": expression} where one follows from others."""
    cls = type(config)
    default = cls()
    found = {f"{path}{n}": v for n, v in vars(default).items() if relevant(n) and not isinstance(v, PretrainedConfig)}
    found |= {f"{path}{name}": {"is": how} for name, how in _computed(cls, default, path).items()}
    aliases = {f"{path}{a}": f"{path}{b}" for a, b in cls.attribute_map.items()}
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            inner, others = filled(value, f"{path}{name}.")
            found |= inner | {f"{path}{name}.model_type": value.model_type}
            aliases |= others
    return found, aliases


def _computed(cls: Any, default: PretrainedConfig, path: str) -> dict[str, Any]:
    module = sys.modules[cls.__module__]
    given = {
        name: Whole(value, f"{path}{name}") if isinstance(value, int) else Real(value, f"{path}{name}")
        for name, value in vars(default).items()
        if name in inspect.signature(cls.__init__).parameters or name in getattr(cls, "__dataclass_fields__", {})
        if relevant(name) and isinstance(value, int | float) and not isinstance(value, bool)
        if getattr(cls.__dataclass_fields__.get(name), "default", None) is not None
    }
    module.int, module.range = symbols.integer, symbols.counted  # type: ignore[attr-defined]
    try:
        made = cls(**given)
    except Exception:  # a class may insist on plain numbers: then what it computes stays a constant, and the check decides
        return {}
    finally:
        del module.int, module.range  # type: ignore[attr-defined]
        symbols.noted()
    return {
        name: symbols.of(value)
        for name, value in vars(made).items()
        if isinstance(value, Whole | Real) and symbols.of(value) != f"{path}{name}"
    }
