"""Serving plans: exact against the single forecast, ordered, and honest where nothing does the job."""

import itertools
import random

import pytest

import vramcast
from vramcast.asking.plan import wanted_of
from vramcast.errors import MissingError, QuestionError, UnmodelledError
from vramcast.models.reading import read_model
from vramcast.planning.plans import serving
from vramcast.planning.plans.serving_table import question_of
from vramcast.planning.verdict import margin_of
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import serving_speed

QWEN, LLAMA = "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"


def _tables(model: str, **words):
    wanted, _ = wanted_of(model, words)
    settings = list(serving._settings(wanted, read_model(model)))
    return wanted, serving._tables(wanted, settings, {}, lambda done, of: None)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LLAMA, {"users": 12, "context": "16k", "prompt": 4000, "output": 300, "gpu": ["H100x8", "A100-80Gx8@2.1"]}),
        ("Qwen/Qwen3-30B-A3B", {"users": 24, "prompt": 2000, "output": 200, "gpu": "H100x8"}),
        (QWEN, {"rate": 3, "prompt": 1000, "output": 200, "gpu": "4090x2"}),
        (QWEN, {"users": 3, "prompt": 1000, "output": 200, "gpu": "4090x2", "engine": "llama_cpp"}),
        ("Qwen/Qwen2.5-32B", {"users": 8, "prompt": 1000, "output": 200, "gpu": "4090x4", "engine": "vllm", "bits": 16}),
        (LLAMA, {"users": 1, "prompt": 1000, "output": 200, "gpu": "4090x2", "engine": "llama_cpp"}),
        ("deepseek-ai/DeepSeek-V3", {"users": 8, "prompt": 1000, "output": 200, "gpu": "H200x8", "acceptance": 0.8}),
        (LLAMA, {"users": 8, "prompt": 1000, "output": 200, "gpu": "H100", "acceptance": "ngram=0.4"}),
    ],
)  # fmt: skip
def test_columns_are_the_single_forecast(model: str, words: dict) -> None:
    """Bytes are equal; times agree to 1e-9 (ranks that repeat attention apart: their requests are asked per rank)."""
    draw, asked = random.Random(4), 0
    wanted, tables = _tables(model, **words)
    for table in tables:
        setting = table.setting
        for i in draw.sample(range(len(table.gpus)), min(2, len(table.gpus))):
            copies = int(table.replicas[i])
            question = question_of(
                wanted, setting, replicas=copies, chunk=int(table.chunk[i]), seats=int(table.seats[i])
            )  # fmt: skip
            answer = answer_of(question, model=setting.weights.model, card=setting.card, limits=False)
            worst = max(rank.needed_bytes for rank in answer.ranks)
            claimed = max(rank.claimed_bytes for rank in answer.ranks)
            assert table.needed_bytes[i] == worst
            left = margin_of(answer, worst, setting.card)
            if setting.engine != "llama_cpp":
                left = min(left, setting.card.visible_bytes - claimed)
            assert table.margin_bytes[i] == left >= 0
            if setting.layout.attention_ranks == 1 and (wanted.rate or wanted.users % copies == 0):
                alone = _speed(question, answer, wanted, copies)
                assert table.ttft_s[i] == pytest.approx(alone.ttft_s, rel=1e-9)
                assert table.tpot_s[i] == pytest.approx(alone.tpot_s, rel=1e-9)
            asked += 1
    assert asked > 5


def _speed(question, answer, wanted, copies):
    """The steady state of one of ``copies`` servers."""
    from vramcast.speed.answer import load_of, step_of, with_drafting
    from vramcast.speed.closed_form import steady

    if wanted.users and copies == 1:
        speed = serving_speed(answer)
        found = steady(step_of(answer), speed.load, replicas=question.parallel.pp)
        assert (speed.ttft.seconds, speed.tpot.seconds) == pytest.approx((found.ttft_s, found.tpot_s), rel=1e-9)
    load, _ = load_of(question, wanted.users or 0)
    load, _ = with_drafting(step_of(answer), load, question.options)
    return steady(step_of(answer), load, replicas=copies * question.parallel.pp)


def test_weights_lie_on_the_host_where_cards_are_too_small() -> None:
    plan = vramcast.plan("serve", "Qwen/Qwen2.5-32B", users=1, gpu="4090x2", engine="vllm", bits=16, context=4096)
    best = plan.ranked[0]
    assert best.question.options["cpu_offload_gb"] > 0
    assert best.setting.layout.words == f"tp 2 {best.question.options['cpu_offload_gb']} GiB on the host"
    moved = best.question.options["cpu_offload_gb"] * 2**30 / (0.8 * best.setting.card.host_link_bytes_per_s)
    assert best.tpot_s > moved
    held = vramcast.plan("serve", "Qwen/Qwen2.5-32B", users=1, gpu="H100x2", engine="vllm", bits=16, context=4096)
    assert not any("cpu_offload_gb" in choice.question.options for choice in held.ranked)


def test_draft_layers_are_considered_where_their_acceptance_is_said() -> None:
    words = {"users": 4, "gpu": "H200x8", "engine": "vllm", "context": 8192}
    plan = vramcast.plan("serve", "deepseek-ai/DeepSeek-V3", acceptance=0.8, **words)
    assert plan.ranked[0].question.options["speculative_method"] == "mtp"
    plain = vramcast.plan("serve", "deepseek-ai/DeepSeek-V3", **words)
    assert not any("num_speculative_tokens" in choice.question.options for choice in plain.ranked)
    assert plan.ranked[0].tpot_s < plain.ranked[0].tpot_s
    with pytest.raises(QuestionError, match="the share of mtp is said twice"):
        vramcast.plan("serve", "deepseek-ai/DeepSeek-V3", **{**words, "acceptance": "0.9,mtp=0.1"})
    with pytest.raises(QuestionError, match="--acceptance is 2"):
        vramcast.plan("serve", QWEN, acceptance=2, gpu="H100")


def test_sglang_drafts_with_the_models_own_layers_too() -> None:
    words = {"users": 4, "gpu": "H200x8", "engine": "sglang", "context": 8192}
    best = vramcast.plan("serve", "deepseek-ai/DeepSeek-V3", acceptance=0.8, **words).ranked[0]
    assert best.question.options["num_speculative_tokens"] > 1
    assert best.tpot_s < vramcast.plan("serve", "deepseek-ai/DeepSeek-V3", **words).ranked[0].tpot_s


def test_tokens_are_looked_up_where_their_acceptance_is_said() -> None:
    words = {"users": 4, "gpu": "H100", "engine": "vllm", "bits": 16}
    best = vramcast.plan("serve", QWEN, acceptance="ngram=0.4", **words).ranked[0]
    assert best.question.options["speculative_method"] == "ngram"
    assert best.question.traffic.acceptance == 0.4
    assert "looks up" in best.setting.words
    plain = vramcast.plan("serve", QWEN, acceptance=0.8, **words).ranked[0]  # no draft layers: nothing to accept
    assert "num_speculative_tokens" not in plain.question.options
    words = {"users": 4, "gpu": "H200x8", "engine": "vllm", "acceptance": "mtp=0.8, ngram=0.4"}
    both = vramcast.plan("serve", "deepseek-ai/DeepSeek-V3", **words)
    assert both.ranked[0].question.traffic.acceptance == 0.8
    with pytest.raises(QuestionError, match="unknown way of drafting 'eagle': known: mtp, ngram"):
        vramcast.plan("serve", QWEN, acceptance="eagle=0.3", gpu="H100")


def test_one_user_keeps_one_stage_busy() -> None:
    """Tokens of all users were those of as many users as there were stages."""
    plan = vramcast.plan("serve", "Qwen/Qwen2.5-32B", users=1, gpu="4090x8", engine="vllm", bits=16, context=4096)
    for choice in plan.ranked:
        assert choice.tokens_per_s <= choice.question.output / choice.request_s * (1 + 1e-6)


def test_the_question_of_issue_12400_is_one_call() -> None:
    plan = vramcast.plan("serve", LLAMA, users=5, context="128k", prompt="8k", output=512, gpu=["H100", "A100-80G@2.10"])
    best = plan.ranked[0]
    assert plan.meets and best.fit.verdict == "fits" and best.fit.probability >= 0.95
    assert best.gpus == 4 and best.setting.card.name.startswith("H100")
    assert 0 < best.ttft_s < 5 and 0 < best.tpot_s < 0.1 and best.tokens_per_s > 100
    assert plan.longest_ttft_s > 5
    assert best.usd_per_million == pytest.approx(best.usd_per_hour / best.tokens_per_s / 3600 * 1e6)
    assert {c.setting.card.name for c in plan.ranked} == {"H100 SXM5 80GB", "A100 SXM4 80GB"}
    assert {a.value for a in plan.assumed if a.name == "price"} == {"$2.69/h for H100 SXM5 80GB"}
    costs = [c.usd_per_million for c in plan.ranked[:5]]
    assert costs == sorted(costs)


def test_nothing_on_the_front_is_beaten() -> None:
    plan = vramcast.plan("serve", QWEN, users=40, prompt=1000, output=300, gpu=["H100x4", "4090x8", "L40S@0.9"])
    points = [(c.usd_per_million, c.request_s) for c in plan.front]
    assert len(points) > 2
    assert all(a[0] <= b[0] and a[1] > b[1] for a, b in itertools.pairwise(points))


@pytest.mark.parametrize("by", ["cost", "speed", "cards"])
def test_orders(by: str) -> None:
    plan = vramcast.plan("serve", QWEN, users=16, prompt=1000, output=300, gpu="H100x4", by=by)
    best = plan.ranked[0]
    figure = {"cost": lambda c: c.usd_per_million, "speed": lambda c: c.request_s, "cards": lambda c: c.gpus}[by]
    assert all(figure(best) <= figure(other) * (1 + 1e-8) for other in (*plan.ranked, *plan.front) if other.fit.verdict == "fits")


def test_a_service_level_is_kept_or_said_to_be_out_of_reach() -> None:
    words = {"users": 64, "prompt": 2000, "output": 200, "gpu": "H100x8"}
    kept = vramcast.plan("serve", QWEN, slo_ttft="400ms", slo_tpot="12ms", **words)
    assert kept.meets and all(c.ttft_s <= 0.4 and c.tpot_s <= 0.012 for c in kept.ranked)
    missed = vramcast.plan("serve", QWEN, slo="ttft=1ms,tpot=1ms", **words)
    assert not missed.meets and missed.ranked
    fastest = min(max(c.ttft_s, c.tpot_s) for c in missed.ranked)
    assert max(missed.ranked[0].ttft_s, missed.ranked[0].tpot_s) == fastest


def test_a_rate_beyond_all_cards_says_the_most() -> None:
    plan = vramcast.plan("serve", QWEN, rate=10_000, prompt=1000, output=200, gpu="4090x2")
    assert not plan.meets and not plan.ranked[0].keeps_up and plan.ranked[0].tokens_per_s < 10_000 * 200


def test_nothing_holds_it() -> None:
    plan = vramcast.plan("serve", LLAMA, users=50, context="64k", gpu="4090x2")
    assert not plan.ranked and not plan.meets
    assert plan.nearest[1] > 0


def test_fewer_bits_are_left_out_when_asked() -> None:
    plan = vramcast.plan("serve", "Qwen/Qwen3-32B", users=4, prompt=500, output=100, gpu="H100x4", bits=16)
    assert {c.setting.weights.name for c in (*plan.ranked, *plan.front)} == {"bfloat16"}
    assert all(c.setting.kv_dtype is None for c in plan.ranked)
    wider = vramcast.plan("serve", "Qwen/Qwen3-32B", users=4, prompt=500, output=100, gpu="H100x4", bits=8)
    assert {c.setting.weights.model.id for c in wider.by_weights} == {"Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"}


def test_without_a_card_those_that_clouds_rent_are_offered() -> None:
    plan = vramcast.plan("serve", QWEN, users=2, prompt=500, output=100, engine="vllm")
    assert len(plan.wanted.offers) > 5 and all(o.usd_per_hour for o in plan.wanted.offers)
    assert len({c.setting.card.id for c in plan.ranked}) > 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"users": 0}, "--users is 0: expected at least 1"),
        ({"rate": 0}, "--rate is 0"),
        ({"rate": "nan"}, "--rate is nan"),
        ({"users": 2, "rate": 3}, "give --users or --rate"),
        ({"gpu": "H999"}, "unknown GPU 'H999'"),
        ({"gpu": "H100@0"}, "'0' is no price"),
        ({"gpu": "H100@1.2.3"}, "'1.2.3' is no price"),
        ({"engine": "transformers"}, "compares servers"),
        ({"by": "luck"}, "unknown order 'luck'"),
        ({"bits": 0}, "--bits is 0"),
        ({"most_gpus": 0}, "--most-gpus is 0"),
        ({"slo": "ttft=0s"}, "a time above 0"),
        ({"slo_ttft": "fast"}, "'fast' is no time"),
        ({"context": 100, "prompt": 200, "output": 1}, "longer than the context of 100"),
        ({"flavour": 1}, "unknown plan word 'flavour'"),
    ],
)  # fmt: skip
def test_bad_words(words: dict, message: str) -> None:
    with pytest.raises(QuestionError, match=message.replace("(", r"\(")):
        vramcast.plan("serve", QWEN, **{"gpu": "H100", **words})


def test_a_context_beyond_the_model_is_refused() -> None:
    with pytest.raises(UnmodelledError, match="beyond"):
        vramcast.plan("serve", QWEN, context="10M", gpu="H100")


def test_without_numpy_the_extra_is_named(monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingError, match=r"vramcast\[plan\]"):
        vramcast.plan("serve", QWEN, gpu="H100")


@pytest.mark.parametrize("card", ["H100x8", "any"])
def test_what_one_table_of_a_plan_found_the_others_do_not_leave_out(card: str) -> None:
    """The best of the ranked stands on the front when nothing beats it, and its weights' row is itself."""
    plan = vramcast.plan("serve", LLAMA, users=5, gpu=card)
    best = plan.ranked[0]
    assert best in plan.front
    assert next(c for c in plan.by_weights if c.setting.weights.name == best.setting.weights.name) == best
    times, costs = [c.request_s for c in plan.front], [c.usd_per_million for c in plan.front]
    assert times == sorted(times, reverse=True) and costs == sorted(costs)


@pytest.mark.parametrize(
    ("gpu", "most"), [("L4x1", 1), ("1xL4", 1), ("L4", 32), ("H100x8", 8), ("g5.xlarge", 1), ("4090,4090", 2)]
)
def test_a_number_of_cards_that_was_said_is_the_most(gpu: str, most: int) -> None:
    wanted, _ = wanted_of(QWEN, {"gpu": gpu})
    assert [offer.most for offer in wanted.offers] == [most]


def test_what_small_cards_do_not_hold_is_planned_on_larger_ones_and_on_two_nodes_and_never_on_the_host() -> None:
    plan = vramcast.plan("serve", "deepseek-ai/DeepSeek-R1", engine="vllm")
    cards = {choice.setting.card.id for choice in plan.ranked}
    assert {"b200-sxm-180", "h200-sxm-141"} <= cards
    assert not any("host" in choice.layout for choice in (*plan.ranked, *plan.fewest))
    assert all(choice.gpus <= 8 or choice.gpus % 8 == 0 for choice in plan.ranked)
    two_nodes = vramcast.plan("serve", "deepseek-ai/DeepSeek-R1", engine="vllm", gpu="H100")
    assert any(choice.gpus == 16 for choice in two_nodes.ranked)


def test_lengths_nobody_said_stay_within_the_models_positions() -> None:
    plan = vramcast.plan("serve", "openai/whisper-large-v3", gpu="L4x1", engine="vllm")
    assert plan.wanted.context <= 448
    assert (plan.wanted.prompt, plan.wanted.output) == (358, 89)


def test_tensorrt_llm_has_no_format_that_it_would_have_to_unpack() -> None:
    plan = vramcast.plan("serve", "Qwen/Qwen3-32B", gpu="A100-80Gx2")
    kept = {(choice.setting.engine, choice.setting.weights.name) for choice in (*plan.ranked, *plan.by_weights)}
    assert not any(engine == "tensorrt_llm" and ("fp8" in name or "nvfp4" in name) for engine, name in kept)


def test_a_card_on_which_no_engine_starts_is_told() -> None:
    plan = vramcast.plan("serve", "Qwen/Qwen2.5-7B-Instruct", users=2, gpu=["L4x1", "M4-Max"], engine="vllm")
    assert any("Apple" in why and "llama.cpp runs on Apple M4 Max" in why for why in plan.refused)


def test_a_card_for_llama_cpp_alone_names_it_and_its_own_type_of_cache() -> None:
    with pytest.raises(UnmodelledError, match=r"llama\.cpp runs on Apple M4 16GB: add --engine llama_cpp"):
        vramcast.plan("serve", "Qwen/Qwen3-8B", users=2, gpu="M4", engine="vllm")
    best = vramcast.plan("serve", "Qwen/Qwen3-8B", users=2, gpu="M4", engine="llama_cpp").ranked[0]
    assert best.setting.cache == best.question.kv_dtype == "q8_0"


def test_llama_cpp_is_asked_for_named_cards_that_no_server_fills() -> None:
    """Layers in host memory were offered before: 734 ms a token under vLLM where the file of four bits takes 63."""
    plan = vramcast.plan("serve", "meta-llama/Llama-3.3-70B-Instruct", gpu=["3090x2", "L4x8"], by="speed")
    asked = {(choice.setting.card.id, choice.setting.engine) for choice in plan.ranked}
    assert ("rtx-3090", "llama_cpp") in asked and ("l4", "llama_cpp") not in asked
    told = next(one for one in plan.assumed if one.name == "engine")
    assert told.value == "llama_cpp on GeForce RTX 3090"
    best = next(choice for choice in plan.ranked if choice.setting.card.id == "rtx-3090")
    assert best.setting.engine == "llama_cpp" and best.tpot_s < 0.1


def test_where_the_rate_is_out_of_reach_only_what_comes_near_is_a_choice() -> None:
    plan = vramcast.plan("serve", "meta-llama/Llama-3.1-8B-Instruct", rate=50, prompt=2000, output=400, gpu="L4x4", engine="vllm")
    assert not plan.meets
    best = max(choice.tokens_per_s for choice in (*plan.ranked, *plan.front))
    assert all(choice.tokens_per_s > best / 3 for choice in plan.front)


def test_a_model_of_states_alone_is_planned() -> None:
    """Its cache holds sequences and no tokens; arrays of both once met as a truth value."""
    plan = vramcast.plan("serve", "state-spaces/mamba-2.8b-hf", gpu="4090", engine=["vllm", "sglang"])
    assert plan.ranked and plan.ranked[0].fit.verdict == "fits"


@pytest.mark.parametrize(
    ("model", "said", "kind"),
    [
        ("BAAI/bge-m3", "makes vectors", QuestionError),
        ("google-t5/t5-3b", "has no T5WithLMHeadModel", UnmodelledError),
    ],
)
def test_what_no_engine_generates_with_has_no_plan(model: str, said: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=said):
        vramcast.plan("serve", model, gpu="4090")
