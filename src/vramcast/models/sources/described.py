"""A config and the headers of its files, together as a Model; what they disagree about is said, never settled silently."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vramcast.errors import ConfigError, UnmodelledError, VramcastError
from vramcast.ledger import Assumption
from vramcast.models.config import Config
from vramcast.models.families import kind_of, read_config
from vramcast.models.families.gguf import read_metadata
from vramcast.models.families.registry import MODULES
from vramcast.models.inventory import Model, Stored
from vramcast.models.quantization.exact import module_of, strangers
from vramcast.models.quantization.methods import checkpoint_config, compact_config
from vramcast.models.quantization.scheme import walk
from vramcast.models.sources.gguf import Header
from vramcast.models.sources.strict import check_sizes
from vramcast.units import gib

_SHOWN = 3
_LONGEST_AXIS = 2**40


def from_config(
    raw: dict[str, Any], *, name: str, where: str, quantization: Mapping[str, Any] | None = None, stored: tuple[Stored, ...] = ()
) -> Model:
    """The model of a parsed config.json; ``quantization`` stands beside it in older exports, ``stored`` are its files' tensors.

    Raises ConfigError when a field holds what no model can have, UnmodelledError for a family that neither this program
    nor, with the [torch] extra, transformers knows.
    """
    check_sizes(raw, where)
    model = _guarded(lambda: _by_family(raw, where, stored), where)
    if not model.layers:
        raise ConfigError(f"{where} describes a model without a layer: is this the config.json of a complete model?")
    scheme = checkpoint_config(raw) or (compact_config(quantization) if quantization else None)
    model = msgspec.structs.replace(model, id=model.id or name, quantization=scheme, loaded_from=where)
    if stored:
        return with_stored(model, stored)
    return model if scheme or names_a_type(raw) or model.dtype != "float32" else untyped(model)


UNTYPED = "the type of the weights: the config names none; 4 bytes each as transformers takes it, 16-bit files would be half"


def names_a_type(raw: Mapping[str, Any]) -> bool:
    """Whether a config, or one nested in it, says what type its weights have."""
    inner = (value for value in raw.values() if isinstance(value, Mapping))
    return any(part.get(name) for part in (raw, *inner) for name in ("dtype", "torch_dtype"))


def untyped(model: Model) -> Model:
    """The model with what was taken for the type that its config does not name, listed and named as not known."""
    taken = Assumption("dtype", model.dtype, "the config names no type, and no file of weights was read")
    return msgspec.structs.replace(model, assumed=(*model.assumed, taken), unmodelled=(*model.unmodelled, UNTYPED))


OLDER_SCHEMES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files beside a config.json that name a scheme: Model Optimizer's, AutoGPTQ's and AutoAWQ's before config.json held it."""


def older_scheme(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The quantization_config that one of ``OLDER_SCHEMES`` says in older words."""
    inner = raw.get("quantization")
    if not isinstance(inner, Mapping) and any(name in raw for name in ("bits", "w_bit")):
        return compact_config({"quant_method": "awq" if "w_bit" in raw else "gptq", **raw})
    return compact_config({"quant_method": "modelopt", **(inner if isinstance(inner, Mapping) else raw)})


def from_gguf(header: Header, *, name: str, where: str) -> Model:
    """The model of a GGUF header, with the exact type and size of every tensor."""
    stored = {s.name: s for s in header.tensors}
    embedding = stored.get("token_embd.weight")
    check_sizes(header.metadata, where)
    model = _guarded(
        lambda: read_metadata(
            header.metadata,
            tied="output.weight" not in stored,
            vocab=embedding.shape[0] if embedding and embedding.shape else None,
        ),
        where,
    )
    return msgspec.structs.replace(model, id=name, stored=header.tensors, loaded_from=where)


def with_stored(model: Model, stored: tuple[Stored, ...]) -> Model:
    """The model with its files' tensors; those that have no place in the inventory are listed as unmodelled."""
    known = {module_of(name): tensor for name, tensor in model.all_tensors()}
    extra = strangers(stored, known)
    doubled = [s for s in extra if model.tied and module_of(s.name) == "lm_head"]
    extra = [s for s in extra if s not in doubled]
    present = {module_of(s.name) for s in stored}
    absent = [module for module in known if module not in present]
    notes = [*model.unmodelled]
    if extra:
        size = sum(s.bytes for s in extra)
        notes.append(f"{len(extra)} stored tensors ({gib(size)}) that the family does not know: {_some([s.name for s in extra])}")
    if absent:
        notes.append(f"{len(absent)} tensors of the family that the files do not hold: {_some(absent)}")
    return msgspec.structs.replace(model, stored=stored, unmodelled=tuple(notes), head_stored=model.head_stored or bool(doubled))


def _by_family(raw: dict[str, Any], where: str, stored: tuple[Stored, ...]) -> Model:
    try:
        return read_config(raw, path=where)
    except UnmodelledError as refused:
        if not stored:
            return _by_transformers(raw, where, refused)
        from vramcast.models.sources.from_headers import from_headers

        return from_headers(raw, stored, where, refused)


def _by_transformers(raw: dict[str, Any], where: str, refused: UnmodelledError) -> Model:
    """What transformers makes of a class that has no family here; a known family's own refusal stands."""
    if kind_of(Config(raw, where)) in MODULES:
        raise refused
    from vramcast.models.sources.transformers_meta import read_meta

    return read_meta(raw, path=where, refused=refused)


def _guarded(read: Callable[[], Model], where: str) -> Model:
    """The model, with what only a nonsensical field can cause (a division by zero, a shape of text) said as such."""
    try:
        model = read()
    except VramcastError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{where}: a field holds a value that no model can have ({type(error).__name__}: {error})") from error
    _check_shapes(model, where)
    return model


def _check_shapes(model: Model, where: str) -> None:
    """Whatever a family took from a config, a tensor's lengths are positive whole numbers."""
    for tensor, _, _ in walk(model):
        if not all(type(n) is int and 0 < n < _LONGEST_AXIS for n in tensor.shape) or not 0 < tensor.copies < _LONGEST_AXIS:
            shape = [*tensor.shape, *([f"{tensor.copies} copies"] if tensor.copies != 1 else [])]
            raise ConfigError(f"{where}: {tensor.name} would have the shape {str(shape)[:80]}, which no tensor can have")


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
