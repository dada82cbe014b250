"""A class of transformers built on the meta device from a config whose numbers remember where they came from."""

import json
import math
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import symbols
import torch
import transformers
from symbols import Expression, Real, Whole
from torch.overrides import TorchFunctionMode
from transformers import CONFIG_MAPPING, PretrainedConfig
from transformers.initialization import no_init_weights

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")
_MAKERS = {"empty", "zeros", "ones", "rand", "randn", "full", "tensor", "FloatTensor"}
# Fields that no shape hangs on and that differ from one checkpoint to the next.
IRRELEVANT = (
    "token_id", "dropout", "_drop", "layerdrop", "initializer", "init_std", "_eps", "epsilon", "theta", "_loss", "coef", "clip_",
    "_weight", "rope_parameters", "rope_scaling", "dtype", "transformers_version", "architectures", "return_dict", "output_",
    "use_cache", "name_or_path", "tokenizer_class", "problem_type", "is_encoder_decoder", "chunk_size_feed", "use_return",
    "mask_time", "mask_feature", "apply_spec_augment", "model_type", "_implementation", "label", "init_range", "init_scale",
    "init_factor",
)  # fmt: skip
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "attention_heads")
_PROJECTIONS = {
    **dict.fromkeys(("q_proj", "query", "q", "q_lin", "linear_q", "query_proj", "Wq"), "q"),
    **dict.fromkeys(("k_proj", "key", "k", "k_lin", "linear_k", "key_proj", "Wk"), "k"),
    **dict.fromkeys(("qkv", "qkv_proj", "query_key_value", "c_attn", "in_proj", "Wqkv"), "qkv"),
}
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_heads", "n_kv_heads")
_WIDTHS = ("head_dim", "attention_head_size", "d_head", "d_kv", "key_value_proj_dim", "head_size", "d_key", "dim_head")


@dataclass(frozen=True)
class Trace:
    """What one build shows: each parameter's dimensions as expressions and as numbers, conditions met, resolved fields.

    ``heads``: for each module that attends, the expressions of its query heads, KV heads and head width. ``texts``: the path of a
    nested config and the prefix of the module built from it.
    """

    how: dict[str, tuple[Expression, ...]]
    shapes: dict[str, tuple[int, ...]]
    frozen: frozenset[str]
    conditions: list[tuple[str, Expression, Expression, bool]]
    fields: dict[str, Any]
    heads: dict[str, tuple[Expression, Expression, Expression]]
    parts: dict[str, list[str]]
    sizes: tuple[Expression, Expression, Expression]
    tied: bool
    counts: dict[str, int]
    saved: tuple[dict[str, Any], ...]


class _Shapes(TorchFunctionMode):
    """Notes the expressions of the sizes that tensors are made with; what keeps its shape keeps its expressions."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[Expression, ...]] = {}
        self._kept: list[torch.Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, torch.Tensor) or out.untyped_storage()._cdata in self._known:
            return out
        name = getattr(func, "__name__", "")
        if name in _MAKERS:
            self._note(out, (kwargs or {}).get("size") or args)
        else:
            like = next((a for a in args if isinstance(a, torch.Tensor) and a.shape == out.shape), None)
            if like is not None and self.of(like) is not None:
                self._known[out.untyped_storage()._cdata] = self.of(like) or ()
                self._kept.append(out)
        return out

    def _note(self, out: torch.Tensor, given: Any) -> None:
        size = given[0] if given and isinstance(given[0], tuple | list | torch.Size) else given
        if len(size) == out.dim():
            self._known[out.untyped_storage()._cdata] = tuple(symbols.of(each) for each in size)
            self._kept.append(out)

    def of(self, tensor: torch.Tensor) -> tuple[Expression, ...] | None:
        """The expressions of a tensor's dimensions, None where its making was not seen."""
        return self._known.get(tensor.untyped_storage()._cdata)


def relevant(name: str) -> bool:
    """Whether a shape may hang on a field of that name."""
    return not name.startswith("_") and not any(part in name for part in IRRELEVANT)


def leaves(config: PretrainedConfig, path: str = "") -> dict[str, Any]:
    """Every relevant field of a config and of those nested in it, by path."""
    found: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            found |= leaves(value, f"{path}{name}.")
        elif relevant(name):
            found[f"{path}{name}"] = value
    return found


def _marked(config: PretrainedConfig, path: str = "") -> None:
    """Put remembering numbers in the place of a config's numbers."""
    for name, value in list(vars(config).items()):
        if isinstance(value, PretrainedConfig):
            _marked(value, f"{path}{name}.")
        elif relevant(name):
            config.__dict__[name] = _remembering(value, f"{path}{name}")


def _remembering(value: Any, path: str) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return Whole(value, path)
    if isinstance(value, float) and math.isfinite(value):
        return Real(value, path)
    if isinstance(value, list | tuple) and value and len(value) < 200:
        return type(value)(_remembering(each, f"{path}.{i}") for i, each in enumerate(value))
    return value


def _watched() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models.") and ".modeling" in name:
            module.int, module.range = symbols.integer, symbols.counted  # type: ignore[attr-defined]


def _labels(self: PretrainedConfig) -> int:
    return Whole(len(self.id2label), "num_labels")


def build(cls: Any, raw: dict[str, Any], *, marked: bool = True) -> Trace:
    """The class built from that config. Raises whatever the class does when it refuses it."""
    config = CONFIG_MAPPING[raw["model_type"]].from_dict(json.loads(json.dumps(raw)))
    fields = leaves(config)
    saved = tuple(json.loads(config.to_json_string(use_diff=how)) for how in (False, True))
    labels = PretrainedConfig.num_labels
    if marked:
        _marked(config)
        _watched()
        PretrainedConfig.num_labels = property(_labels)  # type: ignore[assignment]
    symbols.noted()
    mode = _Shapes()
    try:
        with torch.device("meta"), no_init_weights(), mode, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = cls(config)
            model.tie_weights()
    finally:
        PretrainedConfig.num_labels = labels  # type: ignore[assignment]
    conditions = symbols.noted()
    named = dict(model.named_parameters())
    seen = {name: mode.of(p) for name, p in named.items()}
    return Trace(
        how={n: s if (s := seen[n]) is not None and len(s) == p.dim() else tuple(p.shape) for n, p in named.items()},
        shapes={n: tuple(p.shape) for n, p in named.items()},
        frozen=frozenset(n for n, p in named.items() if not p.requires_grad),
        conditions=conditions,
        fields=fields,
        heads=_attending(model, mode),
        parts=_parts(model, config),
        sizes=_sizes(config),
        tied=_tied(model),
        counts=_counts(named),
        saved=saved,
    )


def numbered(name: str) -> Iterator[tuple[str, int, str]]:
    """Each way of taking a name apart at a number: what stands before it, the number, what follows."""
    for found in _NUMBER.finditer(name):
        yield name[: found.start()], int(found[0]), name[found.end() + 1 :]


def _counts(names: Iterable[str]) -> dict[str, int]:
    """How many numbered modules stand under each prefix."""
    found: dict[str, int] = {}
    for prefix, number, _ in (each for name in names for each in numbered(name)):
        found[prefix] = max(found.get(prefix, 0), number + 1)
    return found


def _attending(model: torch.nn.Module, mode: _Shapes) -> dict[str, tuple[Expression, Expression, Expression]]:
    """Query heads, KV heads and head width of each module that projects queries and keys; what it does not say, by division."""
    found = {}
    for name, module in model.named_modules():
        rows = {_PROJECTIONS[n]: _rows(p, mode) for n, p in _own(module).items() if n in _PROJECTIONS and p.dim() >= 2}
        heads, kv, width = (_first(module, names) for names in (_HEADS, _KV_HEADS, _WIDTHS))
        if (heads is None and width is None) or not (rows.keys() & {"q", "k", "qkv"}):
            continue
        heads, kv, width = symbols.of(heads), symbols.of(kv), symbols.of(width)
        if width is None:
            width = ("//", rows["q"], heads) if "q" in rows else None
        elif heads is None or ("k" in rows and "q" in rows):
            heads = ("//", rows["q"], width) if "q" in rows else heads
            kv = ("//", rows["k"], width) if "k" in rows else kv
        found[name] = (heads, heads if kv is None else kv, width)
    return found


def _own(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The weights under a module's own layers (or one layer deeper), by the name of the layer that holds each."""
    return {n.partition(".")[0]: p for n, p in module.named_parameters() if n.count(".") in (1, 2) and n.endswith(".weight")}


def _rows(weight: torch.nn.Parameter, mode: _Shapes) -> Expression:
    return (mode.of(weight) or tuple(weight.shape))[0]


def _first(module: torch.nn.Module, names: tuple[str, ...]) -> Any:
    return next((v for n in names if isinstance(v := vars(module).get(n), int) and not isinstance(v, bool)), None)


def _parts(model: Any, config: PretrainedConfig) -> dict[str, list[str]]:
    """The modules built from each nested config, by its path."""
    nested = {f"{name}": value for name, value in vars(config).items() if isinstance(value, PretrainedConfig)}
    found: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        for path, each in nested.items():
            if isinstance(module, transformers.PreTrainedModel) and module.config is each:
                found.setdefault(path, []).append(f"{name}.")
    return found


def _sizes(config: PretrainedConfig) -> tuple[Expression, Expression, Expression]:
    """Width, vocabulary and longest text of the part that writes, else of the whole, else of a part; 0 where none has it."""
    try:
        text = config.get_text_config(decoder=True)
    except ValueError:
        text = config
    places = (text, config, *(value for value in vars(config).values() if isinstance(value, PretrainedConfig)))
    names = (("hidden_size", "d_model", "embed_dim"), ("vocab_size",), ("max_position_embeddings", "max_target_positions"))
    found = [next((symbols.of(v) for p in places for n in group if isinstance(v := _said(p, n), int)), 0) for group in names]
    return found[0], found[1], found[2]


def _said(config: PretrainedConfig, name: str) -> Any:
    try:
        return getattr(config, name, None)
    except (AttributeError, ValueError):
        return None


def _tied(model: Any) -> bool:
    try:
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return False
    weight = getattr(head, "weight", None)
    return weight is not None and weight is getattr(embedding, "weight", None)
