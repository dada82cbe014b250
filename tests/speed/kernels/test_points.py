"""Measured kernels beside the laws, with a budget for each measure; the points are a seeded sample of the public corpus."""

from pathlib import Path

import msgspec
import pytest

from vramcast.hardware.accelerator import catalogue
from vramcast.speed.kernels.gemm import gemm
from vramcast.speed.kernels.scoring import kind_of, layers, predict
from vramcast.truth.evaluation import evaluate_rows

POINTS = [msgspec.json.decode(line) for line in Path(__file__).with_name("points.jsonl").read_bytes().splitlines()]
# Median errors allowed, of the sample: what the laws reach on it plus a fifth.
BUDGETS = {
    "gemm": 0.11,
    "decode_attention": 0.2,  # of caches that L2 still holds, which no server sees
    "decode_attention_cold": 0.06,
    "prefill_attention": 0.12,
    "moe": 0.15,
    "all_reduce": 0.08,
}


def test_the_sample_meets_its_budgets() -> None:
    found = evaluate_rows(POINTS)
    assert not found.unexpressed
    errors = {score.measure: score.median_error for score in found.scores() if score.group == "all"}
    over = {measure: errors[measure] for measure, budget in BUDGETS.items() if errors[measure] > budget}
    assert not over


def test_every_point_names_its_source_and_kind() -> None:
    assert all(point["source"] for point in POINTS)
    assert {kind_of(point) for point in POINTS} >= {
        "gemm",
        "generation_attention",
        "context_attention",
        "moe",
        "nccl",
        "custom_allreduce",
    }


def test_evaluate_scores_the_same_rows() -> None:
    report = evaluate_rows(POINTS).report()
    assert report["expressed"] == len(POINTS)
    measures = {one["measure"] for one in report["measures"]}
    assert {"gemm", "moe", "decode_attention_cold"} <= measures


def test_rows_that_no_law_covers_are_listed() -> None:
    strange = {**POINTS[0], "card": "abacus 9000"}
    assert evaluate_rows([strange]).report()["unexpressed"]


def test_a_broken_row_is_listed_not_raised() -> None:
    broken = [{**POINTS[0], "us": "fast"}, {**POINTS[0], "us": -1}, {**POINTS[0], "us": float("nan")}]
    assert len(evaluate_rows(broken).report()["unexpressed"]) == 3


def test_layers_are_found_where_their_products_are() -> None:
    four = {(16, 6144, 4096), (16, 4096, 4096), (16, 16384, 4096), (16, 4096, 8192)}
    assert list(layers(four)) == [((16, 6144, 4096), (16, 4096, 4096), (16, 16384, 4096), (16, 4096, 8192))]
    assert not list(layers(four - {(16, 4096, 8192)}))


def test_a_law_is_borrowed_where_the_card_was_not_measured() -> None:
    row = next(p for p in POINTS if p.get("card") == "h100_sxm" and kind_of(p) == "gemm")
    assert predict({**row, "card": "h200_sxm"}).borrowed
    assert not predict(row).borrowed


@pytest.mark.parametrize("missing", ["n", "card"])
def test_a_row_without_a_column_is_of_no_kind(missing: str) -> None:
    row = {k: v for k, v in next(p for p in POINTS if kind_of(p) == "gemm").items() if k != missing}
    assert evaluate_rows([row]).report()["unexpressed"]


def test_a_float_is_two_halves() -> None:
    """All-gathers of as many bytes take as long, whatever they are bytes of."""
    half = next(p for p in POINTS if p.get("op") == "all_gather" and p.get("dtype") == "half")
    single = {**half, "dtype": "float", "count": half["count"] // 2}
    assert predict(single).predicted_s == pytest.approx(predict(half).predicted_s)


def test_deepgemm_is_timed_with_its_host_in_vllm_alone() -> None:
    """vLLM's table of DeepGEMM was measured from Python, SGLang's in a graph: each has a law of its own."""
    graph = next(p for p in POINTS if p.get("kernel") == "sglang_deepgemm_gemm_nt_f8f8bf16")
    eager = {**graph, "engine": "vllm", "kernel": "vllm_deepgemm_gemm_nt_f8f8bf16"}
    assert predict(graph).backend == "deepgemm"
    assert predict(eager).backend == "vllm/deepgemm_eager"


@pytest.mark.parametrize(("n", "k", "us"), [(7168, 12288, 45.1), (8192, 16384, 67.6)])
def test_one_row_of_four_bit_weights_on_an_a100_reads_them(n: int, k: int, us: float) -> None:
    """TensorRT-LLM's weight-only product of the public corpus, one token: tiles of 64 rows would take half as long again."""
    found = gemm(card=catalogue()["a100-sxm4-80"], m=1, n=n, k=k, weight="int4_weight_only", backend="trtllm")
    assert found.seconds * 1e6 == pytest.approx(us, rel=0.25)
