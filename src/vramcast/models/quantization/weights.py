"""Bytes of a model's weights on one rank, by part, under a scheme."""

import msgspec

from vramcast.ledger import Term
from vramcast.models.inventory import PARTS, Block, Model, Tensor, Tower, part_of
from vramcast.models.quantization.plan import Format
from vramcast.models.quantization.scheme import Scheme, stored_bytes
from vramcast.models.sharding import Layout, cut, share
from vramcast.units import count


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a model one rank holds: layers of its pipeline stage and its share under tensor and expert parallelism."""

    layout: Layout
    layers: range | None = None
    first: bool = True
    last: bool = True
    stored: bool = False


def weight_bytes(model: Model, scheme: Scheme, *, stored: bool = False, tp: int = 1, ep: int = 1) -> int:
    """Bytes of all weights on the fullest rank; ``stored``: those of the checkpoint (MTP layers, a tied head stored twice)."""
    if stored and scheme.is_exact and tp == ep == 1:
        return sum(one.bytes for one in model.stored)
    return _term(model, scheme, Slice(layout=cut(tp, ep=ep), stored=stored)).bytes


def weights_term(
    model: Model, scheme: Scheme, *, tp: int = 1, ep: int = 1, layers: range | None = None, first: bool = True, last: bool = True
) -> Term:
    """The weights of one rank as a term with a part per kind of tensor.

    ``layers``: the pipeline stage's layers (all when None); ``first`` and ``last`` say whether it holds the embeddings and
    towers, and the final norm and head. A tied head on a last stage without the embeddings is a copy of its own.
    """
    layout = cut(tp, ep=ep)
    return _term(model, scheme, Slice(layout=layout, layers=layers, first=first, last=last))


class _Sum:
    """Elements and bytes of one part, by format."""

    __slots__ = ("bytes", "formats")

    def __init__(self) -> None:
        self.bytes = 0
        self.formats: dict[str, int] = {}

    def add(self, form: Format, tensor: Tensor, times: int, held: Slice) -> None:
        elements = share(tensor, held.layout)
        self.bytes += stored_bytes(form, tensor, elements) * times
        self.formats[form.name] = self.formats.get(form.name, 0) + elements * times


def _term(model: Model, scheme: Scheme, held: Slice) -> Term:
    sums = {part: _Sum() for part in PARTS}
    _outer(model, scheme, held, sums)
    for block in model.blocks:
        _block(scheme, block, held, sums, indices=_on_stage(block, held.layers))
    for tower in model.towers:
        if held.first and (held.stored or not tower.stored_only):
            _tower(scheme, tower, held, sums["towers"])
    parts = [Term(name=name, bytes=s.bytes, why=_why(s), source=_SOURCE) for name, s in sums.items() if s.bytes]
    return Term.total(
        "weights", parts, why=f"{model.id or model.family} stored as {scheme.name}, share of one rank", source=_SOURCE
    )


_SOURCE = "tensor shapes of the model times the storage rule of its scheme"


def _outer(model: Model, scheme: Scheme, held: Slice, sums: dict[str, _Sum]) -> None:
    for tensor in model.tensors:
        part = part_of(tensor)
        if held.first if part == "embedding" else held.last:
            sums[part].add(scheme.format_of(tensor), tensor, 1, held)
    if model.tied and ((held.last and not held.first) or (held.stored and model.head_stored)):
        head = next(t for t in model.tensors if t.role == "embedding")
        sums["head"].add(scheme.format_of(head), head, 1, held)


def _block(scheme: Scheme, block: Block, held: Slice, sums: dict[str, _Sum], *, indices: tuple[int, ...]) -> None:
    for tensor in block.tensors if indices else ():
        for form, times in scheme.formats(tensor, prefix=block.name, indices=indices).items():
            sums[part_of(tensor)].add(form, tensor, times, held)


def _tower(scheme: Scheme, tower: Tower, held: Slice, into: _Sum) -> None:
    side = tower.kind != "mtp"
    for tensor in tower.tensors:
        into.add(scheme.format_of(tensor, tower=side), tensor, 1, held)
    for block in tower.blocks:
        for tensor in block.tensors:
            for form, times in scheme.formats(tensor, prefix=block.name, indices=block.indices, tower=side).items():
                into.add(form, tensor, times, held)


def _on_stage(block: Block, layers: range | None) -> tuple[int, ...]:
    return block.indices if layers is None else tuple(i for i in block.indices if i in layers)


def _why(total: _Sum) -> str:
    return " + ".join(f"{count(n)} elements as {name}" for name, n in total.formats.items())
