"""The bytes of every tensor of the file: from its header, from the counts a load log prints, or from the file type's rules.

A header is exact. Counts by type name no tensor, but a mix gives whole kinds of tensors one type, so that the counts are sums of
the sizes of kinds: the richest types go to what quantisers keep richest (embeddings, then attention, then experts' down, then the
rest).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model, by_identity
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.models.quantization.formats import GGML_TYPES, GgmlType, ggml_type
from vramcast.serving.engines.llama_cpp.file_types import BASE, Facts, file_type, tensor_types
from vramcast.serving.engines.llama_cpp.tensors import GgufTensor, tensors_of

_SEVENTY_LAYERS = 80
_MOST_WAYS = 64
_ROW_PADDING = 512
"""CUDA rounds the last row of a quantised matrix up to this many elements (MATRIX_ROW_PADDING, ggml-cuda/common.cuh)."""


class Part(msgspec.Struct, frozen=True):
    """One tensor of the file: its size there, and what a CUDA buffer takes for it beyond (padding of its last row)."""

    name: str
    layer: int | None
    bytes: int
    padding_bytes: int
    kind: str
    elements: int


@by_identity(most=64)
def file_parts(
    model: Model,
    quant: str | None,
    *,
    latent: str = "split",
    counts: tuple[tuple[str, int], ...] = (),
    file_bytes: int = 0,
) -> tuple[Part, ...]:
    """Every tensor of the file, scaled to ``file_bytes`` where only that is known. Raises as parts_of."""
    parts = parts_of(model, quant, latent=latent, counts=dict(counts), file_bytes=file_bytes)
    return tuple(scaled(parts, file_bytes) if file_bytes and not counts else parts)


def parts_of(
    model: Model, quant: str | None, *, latent: str = "split", counts: Mapping[str, int] | None = None, file_bytes: int = 0
) -> list[Part]:
    """Every tensor of the file; ``file_bytes`` settles what counts leave open. Raises UnmodelledError when types are unknown."""
    header = [s for s in model.stored if s.dtype in GGML_TYPES]
    if header and quant is None:
        shapes = ((s.name, s.shape or (1,), s.dtype) for s in header)
        return [_part(GgufTensor(n, shape[-1], _rows(shape), len(shape), _layer(n)), d) for n, shape, d in shapes]
    tensors = tensors_of(model, latent=latent)
    if not counts:
        types = _by_rule(model, tensors, quant)
        return [_part(t, types[t.name]) for t in tensors]
    mixes = [m for m in _known_mixes(model, tensors, quant) if _counted(m) == _named(counts)]
    found = [[_part(t, mix[t.name]) for t in tensors] for mix in mixes or types_from_counts(tensors, counts)]
    return min(found, key=lambda parts: abs(sum(p.bytes for p in parts) - file_bytes)) if file_bytes else found[0]


def _known_mixes(model: Model, tensors: Sequence[GgufTensor], quant: str | None) -> list[dict[str, str]]:
    """What llama-quantize would have chosen, without and with an importance matrix."""
    if quant is None:
        return []
    kind = file_type(quant)
    return [tensor_types(tensors, kind, facts_of(model, importance=i)) for i in (False, True)]


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    return {ggml_type(name).name: count for name, count in counts.items()}


def _counted(types: Mapping[str, str]) -> dict[str, int]:
    return dict(Counter(types.values()))


def scaled(parts: list[Part], file_bytes: int) -> list[Part]:
    """The same tensors at the average size that makes the file ``file_bytes``: a bound where a mix is not known.

    A mix named after a type of ik_llama.cpp gives it to the experts' up and gate; the others share what is left.
    """
    kept = sum(p.bytes for p in parts if _certain(p))
    rest = sum(p.bytes for p in parts) - kept
    share = max(0, file_bytes - kept) / max(1, rest)
    return [p if _certain(p) else msgspec.structs.replace(p, bytes=round(p.bytes * share), padding_bytes=0) for p in parts]


def _certain(part: Part) -> bool:
    experts = ("ffn_up_exps" in part.name or "ffn_gate_exps" in part.name) and part.kind not in BASE.values()
    return part.kind == "f32" or experts


def facts_of(model: Model, *, importance: bool = False) -> Facts:
    """What the mixes ask about a model."""
    layers, mix = model.layer_list(), model_class(model.family).served.gguf_mix
    mixers = [m for block in layers for m in block.mixers]
    attention = next((m for m in mixers if isinstance(m, Attention | LatentAttention)), None)
    grouped = attention.heads // attention.kv_heads if isinstance(attention, Attention) else 1
    routed = max((b.feedforward.routed for b in layers if isinstance(b.feedforward, Experts)), default=0)
    return Facts(
        queries_per_kv=grouped,
        experts=routed,
        layers=len(layers),
        seventy=mix == "llama" and len(layers) == _SEVENTY_LAYERS and grouped > 1,
        falcon=mix == "falcon",
        importance=importance,
        experts_in_mxfp4=(model.quantization or {}).get("quant_method") == "mxfp4",
    )


def types_from_counts(tensors: Sequence[GgufTensor], counts: Mapping[str, int]) -> list[dict[str, str]]:
    """The types of all tensors, when each kind of tensor has one type and the kinds add up to the counts; richest first.

    Raises UnmodelledError when no such assignment exists: a mix that varies by layer is known only by its header.
    """
    wanted = _named(counts)
    plain = {t.name for t in tensors if t.axes < 2 or "_norm" in t.name or "ffn_gate_inp" in t.name or "conv1d" in t.name}
    kinds: dict[str, list[GgufTensor]] = {}
    for tensor in tensors:
        if tensor.name not in plain:
            kinds.setdefault(_kind(tensor.name), []).append(tensor)
    order = sorted(kinds, key=_richness)
    rich = sorted((t for t in wanted if t != "f32"), key=lambda t: -GGML_TYPES[t].bits_per_weight)
    found = _assign(order, {k: len(v) for k, v in kinds.items()}, rich, wanted)
    if not found:
        raise UnmodelledError(f"no kind of tensors adds up to {dict(counts)}: this mix varies by layer; read the file's header")
    small = dict.fromkeys(plain, "f32")
    return [small | {t.name: one[k] for k, ts in kinds.items() for t in ts} for one in found]


def _assign(order: list[str], sizes: dict[str, int], types: list[str], wanted: dict[str, int]) -> list[dict[str, str]]:
    """The ways to give kinds the types, each type to kinds that add up to its count, the first kinds to the richest type."""
    if not types:
        return [] if order else [{}]
    found: list[dict[str, str]] = []
    for chosen in _subsets(order, sizes, wanted[types[0]]):
        left = [k for k in order if k not in chosen]
        found += [rest | dict.fromkeys(chosen, types[0]) for rest in _assign(left, sizes, types[1:], wanted)]
        if len(found) >= _MOST_WAYS:
            break
    return found


def _subsets(order: list[str], sizes: dict[str, int], total: int) -> "list[tuple[str, ...]]":
    found: list[tuple[str, ...]] = []

    def search(index: int, left: int, taken: tuple[str, ...]) -> None:
        if not left:
            found.append(taken)
        if left <= 0 or index == len(order) or len(found) >= _MOST_WAYS:
            return
        search(index + 1, left - sizes[order[index]], (*taken, order[index]))
        search(index + 1, left, taken)

    search(0, total, ())
    return found


def _kind(name: str) -> str:
    return name.split(".", 2)[2] if name.startswith("blk.") else name


def _richness(kind: str) -> tuple[int, str]:
    if kind.startswith(("token_embd", "output.")):
        return (0, kind)
    if "_exps" in kind:
        return (2 if "down" in kind else 3, kind)
    return (1, kind)


def _by_rule(model: Model, tensors: Sequence[GgufTensor], quant: str | None) -> dict[str, str]:
    kind = file_type(quant or _converted(model))
    return tensor_types(tensors, kind, facts_of(model))


def _converted(model: Model) -> str:
    """The file type that converting the checkpoint as it is gives: its own floats, or MXFP4 experts kept as they are."""
    if (model.quantization or {}).get("quant_method") == "mxfp4":
        return "MXFP4_MOE"
    return {"float32": "F32", "float16": "F16"}.get(model.dtype, "BF16")


def _part(tensor: GgufTensor, kind: str) -> Part:
    found = ggml_type(kind)
    size = tensor.rows * (-(-tensor.row // found.elements) * found.bytes + found.row_bytes)
    return Part(tensor.name, tensor.layer, size, _padding(tensor.row, found), found.name, tensor.elements)


def _padding(row: int, kind: GgmlType) -> int:
    short = -row % _ROW_PADDING
    return short // kind.elements * kind.bytes if kind.elements > 1 and short else 0


def _rows(shape: tuple[int, ...]) -> int:
    rows = 1
    for length in shape[:-1]:
        rows *= length
    return rows


def _layer(name: str) -> int | None:
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "blk" and len(parts) > 2 and parts[1].isdigit() else None
