"""Optimizers: state bytes by shape, of all that a rank trains, and what one step allocates for a moment. Their rows: rows.py."""

from collections.abc import Callable, Iterable
from math import ceil, prod

import msgspec

from vramcast.errors import unknown_name
from vramcast.training.optimizers.rows import ALIASES, ROWS, Optimizer

_BY_NAME = {row.name: row for row in ROWS}
# how PyTorch's AdamW is asked to run (transformers/trainer_optimizer.py; apex and DeepSpeed's FusedAdam)
UPDATES = {
    "adamw_torch": "foreach", "adamw_torch_fused": "fused", "adamw_torch_npu_fused": "fused", "adamw_apex_fused": "fused",
    "fusedadam": "fused", "adamw_anyprecision": "loop",
}  # fmt: skip
PAGED_FROM = 100_000  # elements; smaller states are not paged (bitsandbytes 0.50.2, optim/optimizer.py: get_state_buffer)
ENDS = ("embedding", "head")
# Bytes that one parameter's update reads and writes: gradient, weight, master and states, each as wide as it is kept (AdamW with
# fp32 states 24 to 30, 8-bit states 10 to 14, SGD 12).
_UPDATE_BYTES = {"adamw": 30.0, "adam": 30.0, "adamw_8bit": 14.0, "sgd": 12.0, "adafactor": 16.0, "lion": 20.0, "muon": 24.0}
PRECONDITIONED = 10_000  # widest side that SOAP and Shampoo keep factors for (max_precondition_dim)


class TrainedTensor(msgspec.Struct, frozen=True):
    """Equal trained tensors: their shape on this rank, how many there are, and what they are for."""

    shape: tuple[int, ...]
    copies: int
    role: str

    @property
    def elements(self) -> int:
        """Elements of one of them."""
        return prod(self.shape)

    @property
    def of_experts(self) -> bool:
        """Whether it belongs to routed experts, which fewer ranks share."""
        return self.role.startswith("expert.")


class StateBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of state: of experts, which fewer ranks share, of the rest; and of those that paging leaves on the card."""

    dense: float = 0
    experts: float = 0
    resident: float = 0


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def optimizer(name: str) -> Optimizer:
    """The row of that name or alias. Raises QuestionError with the nearest names."""
    key = _key(name)
    row = _BY_NAME.get(ALIASES.get(key, key))
    if row is None:
        raise unknown_name("optimizer", name, (*_BY_NAME, *ALIASES))
    return row


def update_of(name: str | None) -> str | None:
    """The implementation that an optimizer's name fixes: fused, foreach, loop; None where it leaves it open."""
    return UPDATES.get(_key(name)) if name else None


def update_bytes(name: str) -> float:
    """Bytes that the update of one parameter moves; an optimizer that is in no row moves as many as AdamW."""
    return _UPDATE_BYTES.get(name, _UPDATE_BYTES["adamw"])


def kept_states(parts: Iterable[TrainedTensor], row: Optimizer, *, width: float, rank: int, wide_ends: bool) -> StateBytes:
    """States of ``parts`` held in ``width`` bytes. ``wide_ends``: fp32 states of embeddings beside 8-bit ones."""
    dense = experts = resident = 0.0
    for part in parts:
        size = _size(part, row, width, rank, wide=wide_ends and row.wide_ends)
        if part.of_experts:
            experts += size
        else:
            dense += size
        if row.paged and part.elements < PAGED_FROM:
            resident += size
    return StateBytes(dense=dense, experts=experts, resident=resident)


def _size(part: TrainedTensor, row: Optimizer, width: float, rank: int, *, wide: bool) -> float:
    if wide and part.role == "embedding":
        return part.copies * part.elements * row.moments * 4
    return state_bytes(row, part.shape, width=width, rank=rank, copies=part.copies, inner=part.role not in ENDS)


def state_bytes(
    row: Optimizer, shape: tuple[int, ...], *, width: float, rank: int = 128, copies: int = 1, inner: bool = True
) -> float:
    """Bytes of state for one parameter of ``shape`` held in ``width`` bytes, ``copies`` times.

    ``inner``: a matrix of a layer; the ends keep plain AdamW states where an optimizer treats matrices apart.
    """
    elements = prod(shape)
    each = row.state_width or width
    if row.whole_below and _stays_whole(row, elements):
        return copies * elements * row.moments * (row.whole_width or width)
    special = row.shape != "elementwise" and (inner or row.shape not in MATRICES_ONLY)
    if not special or len(shape) < 2:
        return copies * _elementwise(row, elements, each, width)
    return copies * _SHAPES[row.shape](row, prod(shape[:-1]), shape[-1], each, rank)


def working_bytes(row: Optimizer, shapes: Iterable[tuple[int, ...]], *, width: float) -> float:
    """What orthogonalising the largest matrix takes for a moment: Newton-Schulz goes over one matrix after another.

    The update in the gradient's ``width``, two 16-bit iterates and two Gram matrices of the shorter side
    (torch 2.13, optim/_muon.py: _single_tensor_muon, _zeropower_via_newtonschulz).
    """
    if row.shape != "momentum":
        return 0.0
    matrices = (shape for shape in shapes if len(shape) == 2)
    return max(((width + 4) * prod(shape) + 4 * min(shape) ** 2 for shape in matrices), default=0.0)


def _stays_whole(row: Optimizer, elements: int) -> bool:
    """Small tensors keep plain states; torchao's also where a block would be left incomplete."""
    return elements < row.whole_below or (row.whole_width == 0 and elements % row.block != 0)


def _elementwise(row: Optimizer, elements: int, each: float, width: float) -> float:
    """Plain moments, and the fp32 scales of their blocks; vectors under factored or low-rank optimizers are plain too."""
    moments = row.moments if row.shape == "elementwise" else max(row.moments, row.vector_moments)
    scales = moments * 4 * ceil(elements / row.block) if row.block else 0
    compensation = width if row.kahan and width < 4 else 0
    return elements * (moments * each + compensation) + scales


def _factored(row: Optimizer, rows: int, columns: int, each: float, _rank: int) -> float:
    return rows * columns * row.moments * each + row.factors * (row.factor_width or each) * (rows + columns)


def _kronecker(row: Optimizer, rows: int, columns: int, each: float, _rank: int) -> float:
    factors = sum(side**2 for side in (rows, columns) if side <= PRECONDITIONED)
    return rows * columns * row.moments * each + row.factors * each * factors


def _low_rank(row: Optimizer, rows: int, columns: int, each: float, rank: int) -> float:
    """Moments of the projected gradient and the projector, which has the gradient's dtype."""
    rank = min(row.fixed_rank or rank, rows, columns)
    moments = _elementwise(row, rank * max(rows, columns), each, each)
    return moments + rank * min(rows, columns) * (2 if row.state_width else each)


def _momentum(_row: Optimizer, rows: int, columns: int, each: float, _rank: int) -> float:
    return rows * columns * each


def _per_row(row: Optimizer, rows: int, columns: int, each: float, _rank: int) -> float:
    return rows * columns * row.moments * each + rows * each


MATRICES_ONLY = ("low_rank", "momentum")
_SHAPES: dict[str, Callable[[Optimizer, int, int, float, int], float]] = {
    "factored": _factored,
    "kronecker": _kronecker,
    "low_rank": _low_rank,
    "momentum": _momentum,
    "per_row": _per_row,
}
