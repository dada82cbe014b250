"""Start-up logs of vLLM, replayed: from the settings of a run to the figures its log printed.

Figures are per GPU in GiB, rank 0, as public benchmark pages and threads printed them; the card's visible memory is the one
the log shows. Weights and tokens of the cache are printed with two decimals and in whole blocks.
"""

from typing import NamedTuple

import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving


class Log(NamedTuple):
    """One start-up: settings, then what it printed."""

    model: str
    version: str
    utilization: float
    seqs: int
    tp: int
    pp: int
    weights: float
    peak: float
    pool: float
    dtype: str | None = None


H100 = "H100 SXM"
# the model-weights, profile and cache lines of the vLLM version sweep on H100 (79.19 GiB visible, 8192 tokens per step)
LOGS = [
    Log("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 0.95, 1024, 1, 1, 14.99, 1.89, 58.11),
    Log("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 0.95, 1024, 1, 1, 29.98, 2.21, 42.80, "float32"),
    Log("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 0.95, 1024, 2, 1, 7.51, 1.89, 63.76),
    Log("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 0.95, 1024, 4, 1, 3.77, 1.89, 67.44),
    Log("Qwen/Qwen2.5-7B-Instruct", "0.19.0", 0.95, 1024, 1, 1, 14.25, 2.21, 58.53),
    Log("Qwen/Qwen3-8B", "0.19.0", 0.95, 1024, 1, 1, 15.27, 2.21, 57.50),
    Log("Qwen/Qwen3-14B", "0.16.0", 0.95, 1024, 1, 1, 27.52, 5.64, 41.94),
    Log("Qwen/Qwen3-14B", "0.17.0", 0.95, 1024, 1, 1, 27.52, 2.23, 45.34),
]


def answer(log: Log):
    question = Serving(
        model=log.model,
        engine="vllm",
        engine_version=log.version,
        context=8192,
        dtype=log.dtype,
        parallel=Parallel(tp=log.tp, pp=log.pp),
        options={
            "gpu_memory_utilization": log.utilization,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": log.seqs,
            "gpu_total_bytes": round(79.19 * GiB),
        },
    )
    return answer_of(question, model=read_model(log.model, offline=True), card=find_accelerator(H100))


def figure(rank, *names: str) -> float:
    return max(t.bytes for i in rank.instants for t in i.terms if t.name in names) / GiB


@pytest.mark.parametrize("log", LOGS, ids=lambda log: f"{log.model.split('/')[1]}-{log.version}-tp{log.tp}-{log.dtype or ''}")
def test_weights_peak_and_pool_of_a_log(log: Log) -> None:
    found = answer(log)
    rank = found.ranks[0]
    assert figure(rank, "weights") == pytest.approx(log.weights, abs=0.006)
    assert figure(rank, "activations", "logits") == pytest.approx(log.peak, abs=0.03)
    assert found.cache.pool_bytes / GiB == pytest.approx(log.pool, rel=0.002)
    assert found.start_error == ""


def test_pipeline_stages_differ_and_the_last_one_samples() -> None:
    log = Log("meta-llama/Llama-3.1-8B-Instruct", "0.19.0", 0.95, 1024, 1, 4, 4.26, 0, 0)
    ranks = answer(log).ranks
    assert [rank.rank for rank in ranks] == ["stage 0 of 4", "stage 1 of 4", "stage 3 of 4"]
    assert [round(figure(rank, "activations", "logits"), 2) for rank in ranks] == pytest.approx([1.05, 1.08, 2.01], abs=0.04)
    assert figure(ranks[0], "weights") == pytest.approx(4.26, abs=0.006)


def test_a_block_of_an_8b_model_is_two_mebibytes_and_a_3090_holds_1952_of_them() -> None:
    """vllm-project/vllm#10517: 23.58 x 0.9 - 17.06 - 0.35 GiB is 1952 blocks."""
    assert int((23.58 * 0.9 - 17.06 - 0.35) * GiB) // (2 * 2**20) == pytest.approx(1952, abs=2)
    assert answer(LOGS[0]).cache.bytes_per_token * 16 == 2 * 2**20
