import msgspec
import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.planning.attainable import attained, with_attainable
from vramcast.profiling.breakdown import GpuTime
from vramcast.profiling.operators import CollectiveRow, ShapeRow
from vramcast.profiling.report import Report
from vramcast.speed.kernels.collectives import all_reduce
from vramcast.speed.kernels.gemm import gemm

H100 = find_accelerator("H100")
GEMM = ShapeRow(
    operator="aten::mm", kind="GEMM", shape=(1, 8192, 4096, 4096), dtype="bf16", matrix_units=True, calls=10, seconds=0.005,
    flops=2.0 * 8192 * 4096**2, bytes=1.0, kernel="nvjet",
)  # fmt: skip
ATTENTION = ShapeRow(
    operator="aten::_flash_attention_forward", kind="attention", shape=(1, 32, 4096, 4096, 128), dtype="bf16", matrix_units=True,
    calls=1, seconds=0.002, flops=1.0, bytes=1.0, kernel="flash_fwd", causal=True, kv_heads=8,
)  # fmt: skip
WHERE = GpuTime(
    span_s=1.0, busy_s=1.0, compute_s=0.0, communication_s=1.0, exposed_communication_s=1.0, copies_s=0.0, exposed_copies_s=0.0,
    idle_s=0.0, idle={},
)  # fmt: skip
REDUCE = CollectiveRow(
    name="allreduce", group="", ranks=8, dtype="BFloat16", bytes=2**26, calls=1, seconds=1.0, fastest_s=1.0, bus_bytes_per_s=1.0
)


def report(**told: object) -> Report:
    fields = {**dict.fromkeys(Report.__struct_fields__), "shapes": (), "collectives": (), "findings": (), "where": WHERE}
    return Report(**{**fields, **told})  # type: ignore[arg-type]


def held(*rows: ShapeRow | CollectiveRow) -> list[float | None]:
    """What the laws give for rows of a report; only its tables are looked at."""
    shapes = tuple(row for row in rows if isinstance(row, ShapeRow))
    collectives = tuple(row for row in rows if isinstance(row, CollectiveRow))
    got = with_attainable(report(shapes=shapes, collectives=collectives), H100)
    return [row.attainable_s for row in (*got.shapes, *got.collectives)]


def test_matmuls_attention_and_collectives_ask_their_laws() -> None:
    matmul, attention, collective = held(GEMM, ATTENTION, REDUCE)
    assert matmul == float(gemm(card=H100, m=8192, n=4096, k=4096).seconds)
    assert collective == float(all_reduce(card=H100, world=8, size_bytes=float(2**26)).seconds)
    flops = 4 * 32 * 4096 * 4096 * 128 / 2
    assert attention is not None and 0.3 < flops / attention / 989.4e12 < 0.9


@pytest.mark.parametrize(
    "row",
    [
        msgspec.structs.replace(GEMM, shape=(16, 128, 128, 128)),
        msgspec.structs.replace(GEMM, dtype="unknown"),
        msgspec.structs.replace(ATTENTION, operator="aten::_flash_attention_backward"),
        msgspec.structs.replace(REDUCE, ranks=64),
        msgspec.structs.replace(REDUCE, name="broadcast"),
    ],
)
def test_what_no_law_covers_stays_empty(row: ShapeRow | CollectiveRow) -> None:
    assert held(row) == [None]


def test_the_share_attained_is_of_covered_shapes_only() -> None:
    half = msgspec.structs.replace(GEMM, attainable_s=0.00025)
    assert attained((half, GEMM), "GEMM") == pytest.approx(0.5)
    assert attained((GEMM,), "GEMM") is None


def test_collectives_far_above_their_law_are_waiting() -> None:
    (finding,) = with_attainable(report(collectives=(REDUCE,)), H100).findings
    assert finding.limit == "stragglers" and finding.seconds > 0.99
    quick = msgspec.structs.replace(REDUCE, seconds=0.0004)
    assert with_attainable(report(collectives=(quick,)), H100).findings == ()
