"""Measured speed beside its forecast: rows as they are asked, budgets on samples of the corpus, and rows that cannot be asked."""

from pathlib import Path
from statistics import median

import pytest

from vramcast.models.operations import Split
from vramcast.models.reading import read_model
from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows import judge, read_rows
from vramcast.truth.rows.own import restore_row
from vramcast.truth.rows.speed import _split, deployment_of_row
from vramcast.truth.rows.speed_recipes import generated, mixes_chunks, recipe
from vramcast.truth.rows.speed_words import quant

FOLDER = Path(__file__).parents[2] / "truth" / "speed"


def _rows(name: str, step: int, **subject: str):
    rows = [row for row in read_rows(FOLDER / f"{name}.jsonl") if all(row["subject"].get(k) == v for k, v in subject.items())]
    return rows[::step]


def _errors(rows, measure: str) -> list[float]:
    found = []
    for row in rows:
        try:
            judged = judge(row)
        except Unexpressed:
            continue
        found += [abs(p.predicted / p.measured - 1) for p in judged.pairs if p.measure == measure]
    return found


def test_a_row_of_llama_bench_becomes_tokens_per_second() -> None:
    row = {
        "id": "bench", "engine": "llama.cpp (llama-bench)", "version": "b3000", "model_id": "meta-llama/Meta-Llama-3-8B",
        "settings": {"precision": "Q4_K_M", "batch_size": 1, "tokens": 512}, "gpu": "RTX 4090", "n_gpus": 1,
        "measured": {"decode_tokens_per_s": 127.0, "prefill_tokens_per_s": 6500.0}, "source": "own",
    }  # fmt: skip
    judged = judge(row)
    assert [pair.measure for pair in judged.pairs] == ["tokens_per_s", "prefill_tokens_per_s"]
    assert judged.pairs[0].predicted == pytest.approx(127, rel=0.15)


@pytest.mark.parametrize(
    ("settings", "split"),
    [
        ({"tp_size": 8, "attention_dp_size": 1, "moe_tp_size": 8, "moe_ep_size": 1}, Split(tp=8, moe_tp=8)),
        ({"tp_size": 4, "attention_dp_size": 1, "moe_tp_size": 1, "moe_ep_size": 4}, Split(tp=4, moe_ep=4)),
        ({"tp_size": 64, "attention_dp_size": 1, "moe_tp_size": 8, "moe_ep_size": 8}, Split(tp=8, moe_ep=8)),
        ({"tp_size": 4, "attention_dp_size": 4, "moe_tp_size": 1, "moe_ep_size": 16}, Split(tp=1, attention_dp=4, moe_ep=4)),
        ({"parallelism": "TP8"}, Split(tp=8, moe_tp=8)),
    ],
)
def test_layouts_are_read_as_they_were_run(settings, split: Split) -> None:
    assert _split(settings, 8) == split


def _disaggregated(row: dict, *, workers: bool) -> bool:
    settings = row["settings"]
    return settings["mode"] == "disagg" and ("decode_num_workers" in settings) == workers


def test_pools_are_laid_out_as_the_row_says() -> None:
    rows = (restore_row(r) for r in read_rows(FOLDER / "serving_latency.jsonl") if _disaggregated(r, workers=True))
    row = next(r for r in rows if r["settings"]["concurrency"] <= 8)
    pairs = {pair.measure: pair for pair in judge(row).pairs}
    assert set(pairs) == {"ttft", "tpot"}
    assert pairs["tpot"].predicted == pytest.approx(pairs["tpot"].measured, rel=0.4)


def test_what_cannot_be_asked_says_why() -> None:
    row = restore_row(next(r for r in read_rows(FOLDER / "serving_latency.jsonl") if _disaggregated(r, workers=False)))
    with pytest.raises(Unexpressed, match="how many workers each has"):
        judge(row)
    for change, said in (
        ({"engine": "abacus"}, "no rules say how fast abacus is"),
        ({"gpu": "RTX 9999 Ti Super"}, "card RTX 9999"),
        ({"model_id": "nobody/nothing-7b"}, "model nobody"),
    ):
        with pytest.raises(Unexpressed, match=said):
            judge({**row, "settings": {**row["settings"], "mode": "agg", "tp_size": 1}, **change})


@pytest.mark.parametrize(
    ("name", "measure", "step", "subject", "budget"),
    [
        ("inference_speed", "tokens_per_s", 6, {"engine": "llama.cpp (llama-bench)"}, 0.08),
        ("serving_latency", "tpot", 12, {"model_id": "meta-llama/Llama-3.1-70B", "engine": "vllm"}, 0.12),
        ("serving_latency", "tpot", 12, {"model_id": "meta-llama/Llama-3.1-8B-Instruct"}, 0.2),
        ("serving_latency", "tpot", 40, {}, 0.20),
    ],
)
def test_errors_stay_within_their_budgets(name: str, measure: str, step: int, subject, budget: float) -> None:
    errors = _errors(_rows(name, step, **subject), measure)
    assert len(errors) > 5
    assert median(errors) < budget


def _silicon(engine: str, version: str, lengths: tuple[int, int] = (2048, 256)) -> dict:
    settings = {"isl": lengths[0], "osl": lengths[1], "batch_size": 16, "concurrency": 16, "tp_size": 1, "precision": "bf16"}
    return {
        "id": "own", "engine": engine, "version": version, "model_id": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "H100-SXM-80GB",
        "n_gpus": 1, "settings": settings, "measured": {"ttft_ms": 200.0, "tpot_ms": 10.0}, "source": "silicon_sample.csv",
    }  # fmt: skip


def test_a_generated_command_of_tensorrt_llm_sets_its_limits() -> None:
    """max_num_tokens is a prompt, a token of each sequence and 1,500 more; one sequence less than max_batch_size runs."""
    found = recipe(_silicon("trtllm", "1.0.0rc3"), "tensorrt_llm")
    assert (found["chunk_tokens"], found["max_seqs"]) == (2048 + 16 + 1500, 15)
    assert deployment_of_row(_silicon("trtllm", "1.0.0rc3")).max_seqs == 15
    assert not generated(_silicon("trtllm", "1.1.0"))
    assert not generated(_silicon("trtllm", "1.0.0rc3", (1024, 8192)))


def test_a_generated_command_of_sglang_mixes_prompts_and_decodes() -> None:
    """--enable-mixed-chunk and max_prefill_tokens, since the generator writes SGLang's commands."""
    newer, older = _silicon("sglang", "0.5.6.post2"), _silicon("sglang", "0.5.1.post1")
    assert mixes_chunks(newer)
    assert not mixes_chunks(older)
    assert deployment_of_row(newer).engine.mixes
    assert not deployment_of_row(older).engine.mixes
    assert recipe(newer, "sglang")["chunk_tokens"] == 3548
    assert "chunk_tokens" not in recipe(older, "sglang")


def test_one_client_sends_many_requests_so_that_lengths_are_the_rows() -> None:
    """TTFT of one user whose prompts vary from nothing to twice the mean is that of the mean prompt, but for attention."""
    alone = {**_silicon("sglang", "0.5.9"), "source": "own"}
    alone["settings"] = {**alone["settings"], "concurrency": 1, "num_requests": 10}
    even, uneven = ({**alone, "settings": {**alone["settings"], "spread": spread}} for spread in (0.0, 1.0))
    assert judge(uneven).pairs[0].predicted == pytest.approx(judge(even).pairs[0].predicted, rel=0.08)


@pytest.mark.parametrize("load", [{"concurrency": 16}, {"request_rate": 20.0}])
def test_rows_of_a_first_token_alone_are_of_their_load(load: dict) -> None:
    """Not of one prompt in an empty server."""
    asked = {**_silicon("vllm", "0.9.2", (2048, 64)), "source": "own", "measured": {"ttft_ms": 200.0}}
    asked["settings"] = {"isl": 2048, "osl": 64, "tp_size": 1, "precision": "bf16", "num_requests": 40, **load}
    (pair,) = judge(asked).pairs
    lone = {**asked, "settings": {**asked["settings"], "concurrency": 1}}
    assert pair.measure == "ttft"
    assert pair.predicted > 1.5 * judge(lone).pairs[0].predicted


@pytest.mark.parametrize(("told", "taken"), [("UD-Q4_K_XL", "Q4_K_M"), ("UD-Q8_K_XL", "Q8_0"), ("Q6_K", "Q6_K")])
def test_types_of_unsloth_are_the_mix_of_their_bits(told: str, taken: str) -> None:
    assert quant({"settings": {"precision": told}}, read_model("meta-llama/Llama-3.1-8B", offline=True)) == taken


def test_prompts_sent_before_are_cached_where_the_cache_held_them() -> None:
    """A sweep's later levels send the prompts of its first; a card whose cache holds no whole level computes them again."""
    rows = {r["id"]: r for r in read_rows(FOLDER / "community_speed.jsonl")}
    for name, held in (("iog-phi-4-1xpcie-16qps", True), ("iog-meta-llama-3-8b-instruct-1x4090-4qps", False)):
        row = restore_row(rows[name])
        fresh = judge({**row, "settings": {**row["settings"], "repeated": False}}).pairs[0].predicted
        assert (judge(row).pairs[0].predicted < 0.95 * fresh) == held


def test_a_rate_is_an_open_loop() -> None:
    """Eight times the requests a second make every token later."""
    row = restore_row(next(r for r in read_rows(FOLDER / "community_speed.jsonl") if r["id"] == "iog-phi-4-1xpcie-16qps"))
    slow, fast = ({p.measure: p.predicted for p in judge({**row, "settings": {**row["settings"], "request_rate": r}}).pairs}
                  for r in (2.0, 16.0))  # fmt: skip
    assert fast["tpot"] > slow["tpot"]
    assert fast["ttft"] > slow["ttft"]


def test_clients_that_send_one_prompt_find_it_in_the_cache() -> None:
    """The same prompt again and again is computed once, also where the cache would not hold as many different ones."""
    row = restore_row(next(r for r in read_rows(FOLDER / "community_speed.jsonl") if r["id"] == "4x3090-gemma4-12b-awq-tp1-c8"))
    alike = judge(row).pairs[0].predicted
    assert row["settings"].pop("prompts") == 1
    assert alike < 0.2 * judge(row).pairs[0].predicted


def test_a_closed_loop_that_tells_only_its_time_per_token_is_scored_by_it() -> None:
    """A table of a request's later tokens says nothing of its first."""
    row = next(r for r in read_rows(FOLDER / "community_speed.jsonl") if r["id"] == "infx1061-mi300x-gptoss120b-c64")
    assert [p.measure for p in judge(restore_row(row)).pairs] == ["tpot"]


def test_a_closed_loop_that_tells_only_its_throughput_is_scored_by_it() -> None:
    """Output tokens a second of clients, without a time: their requests are run as those with times are."""
    row = restore_row(next(r for r in read_rows(FOLDER / "community_speed.jsonl") if r["id"] == "rtx4090-qwen3-8b-8k-c4"))
    (pair,) = judge(row).pairs
    assert pair.measure == "tokens_per_s"
    assert pair.predicted == pytest.approx(pair.measured, rel=0.3)
    row["measured"]["tpot_ms"] = 30.0
    assert [p.measure for p in judge(row).pairs] == ["tpot", "tokens_per_s"]


def test_a_row_may_tell_the_scheduler_s_limits() -> None:
    """A step of few tokens makes a queue of long prompts wait; one sequence at a time makes every client wait."""
    row = restore_row(next(r for r in read_rows(FOLDER / "community_speed.jsonl") if r["id"] == "rtx4090-qwen3-8b-8k-c4"))
    free = judge(row).pairs[0].predicted
    assert judge({**row, "settings": {**row["settings"], "max_num_seqs": 1}}).pairs[0].predicted < 0.8 * free
    made = deployment_of_row({**row, "settings": {**row["settings"], "max_num_batched_tokens": 512}})
    assert made.chunk_tokens == 512


def test_prompts_that_an_earlier_run_sent_are_cached() -> None:
    """A longer run of one seed begins with the shorter run's prompts; one of other lengths shares their texts."""
    row = next(r for r in read_rows(FOLDER / "community_speed.jsonl") if r["id"] == "cookbook-DeepSeek-R1-0528-B200-500x504-c100")
    row = restore_row(row)
    warm = {p.measure: p.predicted for p in judge(row).pairs}
    assert row["settings"].pop("sent_before") == 80
    cold = {p.measure: p.predicted for p in judge(row).pairs}
    assert warm["ttft"] < 0.98 * cold["ttft"]
    row["settings"]["prefix"] = 300
    assert judge(row).pairs[0].predicted < cold["ttft"]


@pytest.mark.parametrize(
    ("stored", "kind"), [("UD-Q2_K_XL", "Q2_K"), ("UD-Q4_K_XL", "Q4_K_M"), ("Q6_K_XL", "Q6_K"), ("q4_0", "Q4_0")]
)
def test_a_mix_of_unsloths_own_is_the_usual_one_of_its_bits(stored: str, kind: str) -> None:
    assert quant({"settings": {"precision": stored}}, read_model("Qwen/Qwen3-8B")) == kind
