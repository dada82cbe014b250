"""Engine arguments as keys of a mapping that no reader of its own knows: a catalogue of models, a platform's values, a profile.

A mapping counts where it names an engine beside a model, or holds keys that only one engine's arguments have. Names may be
``max_model_len``, ``max-model-len`` or ``maxModelLen``; the model may stand in the mapping or in one that holds it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.reading.serving.bare_flags import engine_of_bare_flags
from vramcast.reading.serving.containers import card_name, card_of, environment_of
from vramcast.reading.serving.engine_yaml import OWN_KEYS, flags_of_mapping
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.named_settings import settings_of
from vramcast.reading.serving.spelling import ALIASES
from vramcast.reading.serving.words import words_of
from vramcast.untrusted import parse_yaml

_ENGINES = {
    "vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm", "tensorrt_llm": "tensorrt_llm", "tensorrt-llm": "tensorrt_llm",
    "lmdeploy": "lmdeploy", "tgi": "tgi",
}  # fmt: skip
_ENGINE_KEYS = ("engine", "backend", "inference_engine", "serving_engine", "llm_engine", "runtime", "server", "framework")
_MODEL_KEYS = (
    "model", "model_name", "model_path", "model_id", "url", "hf_model", "model_url", "model_source", "huggingface_id", "repo",
    "model_name_or_path", "hf_model_id", "model_uri", "repo_id", "target", "target_model", "base_model", "hf_repo", "model_repo",
    "source_repository", "hf_repository", "huggingface_repo",
)  # fmt: skip
_FLAG_LISTS = ("args", "extra_args", "flags", "arguments", "additional_args", "vllm_args", "engine_args", "server_args")
# Flags that the question itself has words for, beside an engine's own table.
_OF_QUESTION = frozenset(
    {"dtype", "quantization", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "enable-expert-parallel"}
)
# Names that some catalogues have for an engine's argument, by that argument.
_NAMES = {
    "tensor_parallelism": "tensor_parallel_size", "tensor_parallel": "tensor_parallel_size", "tp": "tensor_parallel_size",
    "pipeline_parallelism": "pipeline_parallel_size", "gpu_mem_util": "gpu_memory_utilization", "gpu_util":
    "gpu_memory_utilization", "gpu_memory_util": "gpu_memory_utilization", "max_context": "max_model_len", "max_context_length":
    "max_model_len", "drafter": "speculative_model", "draft_model": "speculative_model",
}  # fmt: skip
_FEWEST, _SURE, _DEEPEST, _MOST, _LONGEST, _LONGEST_TEXT = 2, 2, 12, 5_000, 400, 20_000
_FOREIGN = frozenset({"learning_rate", "per_device_train_batch_size", "micro_batch_size", "num_train_epochs", "lr"})
_LINE = re.compile(r"--?[a-z][\w-]+[ =].* --?[a-z]")  # a value that is flags, in one line
_HUB = re.compile(r"[A-Za-z0-9][\w.-]{1,60}/[\w.-]{2,90}")


def engines_of(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines whose arguments stand anywhere in a mapping; () where none does, or where it trains."""
    if not isinstance(document, dict | list) or any(_FOREIGN & {_snake(key) for key in one} for _, one, _ in walk(document)):
        return ()
    found: list[Launch] = []
    taken: list[str] = []
    named = {name for _, one, _ in walk(document) if _HUB.fullmatch(name := _model_in({_snake(k): v for k, v in one.items()}))}
    only = next(iter(named)) if len(named) == 1 else ""
    for place, mapping, above in walk(document):
        if any(place.startswith(f"{one}.") for one in taken) or len(found) >= _MOST:
            continue
        launch = _launch(mapping, above, held.at(place), only)
        if launch is not None:
            found.append(msgspec.structs.replace(launch, name=launch.name or place.rsplit(".", 1)[-1]))
            taken.append(place)
    return tuple(found)


def walk(
    value: Any, place: str = "", above: tuple[tuple[str, Mapping[str, Any]], ...] = ()
) -> Iterator[tuple[str, dict[str, Any], tuple[tuple[str, Mapping[str, Any]], ...]]]:
    """Every mapping with its place and the mappings that hold it, each with the key under which, nearest first."""
    if len(above) > _DEEPEST:
        return
    if isinstance(value, dict):
        yield place, value, above
        for key, inner in list(value.items())[:_MOST]:
            held = inner if not isinstance(inner, str) else _text_of_yaml(inner)
            yield from walk(held, f"{place}.{key}".lstrip("."), ((str(key), value), *above))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:_MOST]):
            yield from walk(inner, f"{place}[{number}]", above)


def _text_of_yaml(text: str) -> Any:
    """A value that is a whole YAML file itself (a ConfigMap's, a gallery's), parsed; other texts as they are."""
    if "\n" not in text or len(text) > _LONGEST_TEXT or not re.match(r"(?:\s*#[^\n]*\n)*\s*[\w.-]+:(?:\s|$)", text):
        return text
    try:
        found = parse_yaml(text, "a value")
    except VramcastError:
        return text
    return found if isinstance(found, dict) else text


def _launch(
    mapping: dict[str, Any], above: tuple[tuple[str, Mapping[str, Any]], ...], held: LaunchContext, only: str
) -> Launch | None:
    """The launch that a mapping holds, or None. ``only``: the one model that the whole document names, "" for none or several."""
    plain = {_snake(key): value for key, value in mapping.items()}
    listed: dict[str, Any] = {key: value for key, value in plain.items() if isinstance(value, list) and len(value) <= _LONGEST}
    listed |= {
        key: value for key, value in plain.items() if isinstance(value, str) and _LINE.match(value) and len(value) < _LONGEST
    }
    around = ".".join(key for key, _ in above[:3])
    bare = next(
        ((e, key) for key, value in listed.items() if (e := engine_of_bare_flags(words_of(value), f"{around}.{key}"))), None
    )
    if bare is not None:
        return _with_flags(bare, plain, (mapping, above), held, only)
    told = {key for key, value in plain.items() if not isinstance(value, dict)}  # a schema describes each in a mapping
    scores = {engine: len(keys & told) for engine, keys in OWN_KEYS.items() if engine in ("vllm", "sglang")}
    own = max(scores, key=lambda name: scores[name])
    section = _engine_of_section(above[0][0]) if above else ""
    said = section or next((name for one in (mapping, *(holder for _, holder in above[:2])) if (name := _engine_said(one))), "")
    typed = [word for key in _FLAG_LISTS for word in words_of(plain.get(key)) if isinstance(plain.get(key), list)]
    said_here = bool(_engine_said(mapping))
    if scores[own] < (1 if section == own else _FEWEST) and not (said_here and (typed or _model_in(plain))):
        return _by_prefix(mapping, above, held)
    engine = said or own
    model = _model_in(plain) or _model_above(above) or only
    model = only if _is_short_for(model, only) else model
    if not model and scores[own] < _SURE and section != own:
        return None
    values = {_NAMES.get(key, key): value for key, value in plain.items() if _is_argument(key, value)}
    values |= {key: value for key, value in _of_model(plain, engine).items() if key not in values}
    words = [*typed, *(word for word in flags_of_mapping(values) if not said_here or _known(engine, word))]
    flags = words_of_flags(parsed_flags(engine, words).flags)
    return Launch(engine=engine, model=model, flags=flags, where=held.where, card=_card(plain), speed=_speed(plain))


def _is_short_for(name: str, hub: str) -> bool:
    """Whether a name of the file's own is the hub's, less its maker and its marks: qwen36-27b-fp8 for Qwen/Qwen3.6-27B-FP8."""
    plain, whole = (re.sub(r"[\W_]", "", text.rsplit("/", 1)[-1]).lower() for text in (name, hub))
    return bool(plain) and "/" not in name and plain == whole


def _of_model(plain: Mapping[str, Any], engine: str) -> dict[str, Any]:
    """The engine's arguments in the model's own section: ``model: {name: org/Model, maxModelLen: 8192}``."""
    section = plain.get("model")
    inside = {_snake(key): value for key, value in section.items()} if isinstance(section, dict) else {}
    return {key: value for key, value in inside.items() if _is_argument(key, value) and _known(engine, key.replace("_", "-"))}


def _engine_of_section(key: str) -> str:
    """The engine that a section's own name tells: ``vllm:``, ``vllm_args:``, ``sglang-config:``."""
    word = _snake(key)
    return next(
        (
            name
            for mark, name in _ENGINES.items()
            if re.fullmatch(rf"{mark}(?:_?(?:args|config|engine|options|params|settings|kwargs))*", word)
        ),
        "",
    )


def _by_prefix(mapping: dict[str, Any], above: tuple[tuple[str, Mapping[str, Any]], ...], held: LaunchContext) -> Launch | None:
    """A mapping whose keys are an engine's arguments behind a prefix of its own: ``vllm_max_model_len: 8192``."""
    found = settings_of({str(key): value for key, value in mapping.items()})
    if found is None:
        return None
    engine, settings, model = found
    words = flags_of_mapping({name: mapping_value(value) for name, value in settings.items()})
    model = model or _model_in({_snake(key): value for key, value in mapping.items()}) or _model_above(above)
    return Launch(engine=engine, model=model, flags=words_of_flags(parsed_flags(engine, words).flags), where=held.where)


def mapping_value(text: str) -> object:
    """A switch written as a word, as YAML has it; other texts as they are."""
    return {"true": True, "false": False}.get(text.lower(), text)


def _with_flags(
    bare: tuple[str, str],
    plain: dict[str, Any],
    place: tuple[dict[str, Any], tuple[tuple[str, Mapping[str, Any]], ...]],
    held: LaunchContext,
    only: str,
) -> Launch | None:
    """A mapping with a list of an engine's flags: those, what stands beside them by the engine's names, and the nearest model."""
    (engine, key), (mapping, above) = bare, place
    apart = parsed_flags(engine, words_of(plain[key])).flags
    typed = next((flag.values[0] for flag in apart if flag.name == "model" and flag.values), "")
    model = typed or _model_in(plain) or _model_above(above) or only
    if not model:
        return None
    beside = {_NAMES.get(name, name): value for name, value in plain.items() if name != key and _is_argument(name, value)}
    words = [word for word in flags_of_mapping(beside) if _known(engine, word)]
    said = {flag.name for flag in apart}
    more = [flag for flag in parsed_flags(engine, words).flags if flag.name not in said]
    flags = words_of_flags([*(flag for flag in apart if flag.name != "model"), *more])
    return Launch(engine=engine, model=model, flags=flags, where=held.at(key).where, card=_card_above(mapping, above))


def _card_above(mapping: Mapping[str, Any], above: tuple[tuple[str, Mapping[str, Any]], ...]) -> str:
    for one in (mapping, *(holder for _, holder in above)):
        if card := card_of(one) or _card({_snake(key): value for key, value in one.items()}):
            return card
    return ""


def _known(engine: str, word: str) -> bool:
    """Whether a key of a mapping that names its engine is one of the engine's arguments, rather than the platform's own."""
    from vramcast.serving.engines import engine as engine_named

    name = word.lstrip("-").partition("=")[0]
    own = {option.name.replace("_", "-") for option in engine_named(engine).options}
    return (
        name in own
        or name in _OF_QUESTION
        or name in ALIASES.get(engine, {})
        or name.replace("-", "_") in OWN_KEYS.get(engine, ())
    )


def _is_argument(key: str, value: Any) -> bool:
    own = (*_MODEL_KEYS, *_ENGINE_KEYS, *_FLAG_LISTS, "env", "enabled", "features", "name", "description", "image", "resources")
    return key not in own and not isinstance(value, dict | list) and value not in (None, "") and len(str(value)) < _LONGEST


def _engine_said(mapping: Mapping[str, Any]) -> str:
    for key, value in mapping.items():
        if _snake(key) in _ENGINE_KEYS and isinstance(value, str) and value.lower() in _ENGINES:
            return _ENGINES[value.lower()]
    return ""


def _model_in(plain: Mapping[str, Any]) -> str:
    """The model that a mapping names, itself or in its section ``model``."""
    for key in _MODEL_KEYS:
        value = plain.get(key)
        if isinstance(value, dict):  # a section: model: {name: ...}
            inside = {_snake(name): inner for name, inner in value.items()}
            named = (inside.get(name) for name in (*_MODEL_KEYS[1:], "name", "path", "id"))
            return next((one for one in named if isinstance(one, str) and one), "")
        if isinstance(value, str) and value:
            return value.partition("://")[2].partition("?")[0] if value.startswith(("hf://", "pvc://", "s3://")) else value
    return ""


def _model_above(above: tuple[tuple[str, Mapping[str, Any]], ...]) -> str:
    """The model by the mappings above: what they name, else a key that is a hub's name."""
    for place, (key, holder) in enumerate(above):
        if _HUB.fullmatch(key) or (len(above) > place + 1 and above[place + 1][0] in ("models", "model_list") and "-" in key):
            return key
        if found := _model_in({_snake(name): inner for name, inner in holder.items()}):
            return found
    return ""


def _card(plain: Mapping[str, Any]) -> str:
    profile = str(plain.get("resource_profile") or "").partition(":")[0]
    if "-gpu-" in profile:
        return profile.removeprefix("nvidia-gpu-").removeprefix("amd-gpu-")
    return card_name(str(plain.get("gpu_type") or plain.get("accelerator_type") or ""))


def _speed(plain: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in environment_of(plain.get("env")) if name == "VLLM_ATTENTION_BACKEND")


def _snake(key: Any) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", str(key)).lower().lstrip("-").replace("-", "_")
