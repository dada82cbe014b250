"""Optimizers: state bytes by shape, and what one step allocates for a moment. The rows themselves are in optimizer_rows."""

from collections.abc import Callable, Iterable
from math import ceil, prod

from vramcast.errors import unknown_name
from vramcast.training.optimizers.rows import ALIASES, ROWS, Optimizer

_BY_NAME = {row.name: row for row in ROWS}
# how PyTorch's AdamW is asked to run (transformers/trainer_optimizer.py; apex and DeepSpeed's FusedAdam)
UPDATES = {
    "adamw_torch": "foreach", "adamw_torch_fused": "fused", "adamw_torch_npu_fused": "fused", "adamw_apex_fused": "fused",
    "fusedadam": "fused", "adamw_anyprecision": "loop",
}  # fmt: skip
PRECONDITIONED = 10_000  # widest side that SOAP and Shampoo keep factors for (max_precondition_dim)


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
