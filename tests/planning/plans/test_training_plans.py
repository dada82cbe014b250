"""Training plans: exact against the single forecast, ordered, and honest where nothing does the job."""

import random

import pytest

import vramcast
from vramcast.asking.plan_training import task_of
from vramcast.errors import QuestionError
from vramcast.models.reading import read_model
from vramcast.planning.plans.training import _candidates
from vramcast.planning.plans.training_layouts import structures
from vramcast.speed.training.step import training_speed
from vramcast.training.forecast import forecast_training

LLAMA = "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (LLAMA, {"gpu": "H100x16", "seq": 8192, "batch": 64}),
        ("Qwen/Qwen3-30B-A3B", {"gpu": "H200x32", "seq": 4096, "batch": 128, "framework": "megatron"}),
        (LLAMA, {"gpu": "A100-80Gx8", "method": "lora", "seq": 2048, "batch": 32}),
    ],
)  # fmt: skip
def test_candidates_are_the_single_forecast(name: str, words: dict) -> None:
    """Bytes are equal, seconds agree to 1e-9."""
    draw, model, asked = random.Random(5), read_model(name), 0
    task, _ = task_of(name, words)
    possible = sorted(structures(task, model), key=lambda s: s.words)
    for structure in draw.sample(possible, min(12, len(possible))):
        try:
            _, found, _ = _candidates(task, structure, model, set())
        except QuestionError:
            continue
        for one in draw.sample(found, min(2, len(found))):
            card = structure.offer.card
            answer = forecast_training(one.question, model=model, card=card)
            assert one.margin_bytes == card.visible_bytes - max(r.device_bytes for r in answer.ranks)
            assert one.step_s == pytest.approx(training_speed(answer, model, card).step_s, rel=1e-9)
            own = one.question
            assert own.micro_batch * own.accumulate * own.parallel.dp == task.batch
            asked += 1
    assert asked > 5


def test_a_deadline_a_budget_and_the_fewest_cards() -> None:
    words = {"gpu": "H100x32@2", "seq": 4096, "batch": 256, "tokens": "10B", "framework": "torchtitan"}
    free = vramcast.plan("train", LLAMA, **words)
    best = free.ranked[0]
    assert free.meets and best.fit.verdict == "fits" and best.gpus == 32 and 0.2 < best.mfu < 0.6
    assert best.usd == pytest.approx(best.days * 24 * best.gpus * 2)
    assert free.fewest[0].gpus < 32
    late = vramcast.plan("train", LLAMA, deadline="1h", **words)
    assert not late.meets and late.ranked[0].days == pytest.approx(best.days)
    bounded = vramcast.plan("train", LLAMA, deadline=f"{best.days * 1.5:.2f}d", **words)
    assert bounded.meets and all(one.days <= best.days * 1.51 for one in bounded.ranked)
    cheap = vramcast.plan("train", LLAMA, by="cost", **words)
    assert cheap.ranked[0].usd <= best.usd * 1.001
    usd, days = zip(*((one.usd, one.days) for one in free.front), strict=True)
    assert list(usd) == sorted(usd) and list(days) == sorted(days, reverse=True)


def test_nothing_holds_it() -> None:
    plan = vramcast.plan("train", "meta-llama/Llama-3.1-70B", gpu="4090x4", seq=2048, batch=16)
    assert not plan.ranked and plan.nearest[1] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"gpu": None}, "a training plan needs cards"),
        ({"method": "dpo"}, "unknown method 'dpo'"),
        ({"batch": 0}, "--batch is 0"),
        ({"deadline": "3d"}, "needs the length of the run"),
        ({"deadline": "soon", "tokens": "1B"}, "write for example 30d"),
        ({"budget": "-1", "tokens": "1B"}, "write dollars"),
        ({"framework": "foo"}, "unknown framework 'foo'"),
        ({"epochs": 3}, "--epochs needs --samples"),
        ({"by": "luck"}, "unknown order 'luck'"),
        ({"colour": "red"}, "unknown plan word 'colour'"),
        ({"seq": "1M"}, "exceeds"),
    ],
)  # fmt: skip
def test_bad_words(words: dict, message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        vramcast.plan("train", LLAMA, **{"gpu": "H100x8", **words})


def test_another_task_is_refused() -> None:
    with pytest.raises(QuestionError, match="unknown plan 'cook'"):
        vramcast.plan("cook", LLAMA)


def test_the_cuts_of_a_model_are_powers_of_two_as_nodes_are() -> None:
    from vramcast.models.reading import read_model
    from vramcast.planning.plans.training_layouts import Task, parallel_layouts

    model = read_model("meta-llama/Llama-3.1-70B")
    task = Task(model=model.id, offers=(), frameworks=("megatron",), seq=131_072, batch=64)
    found = list(parallel_layouts(task, model, "megatron", 64))
    assert {one.tp for one in found} == {1, 2, 4, 8}
    assert {one.pp for one in found} == {1, 2, 4, 8, 16}
    assert {one.cp for one in found} == {1, 2, 4, 8}
    assert {one.vpp for one in found if one.pp > 1} == {1, 2, 4, 8}
    assert {one.ep for one in found} == {1}, "a dense model has no experts to deal out"
    mixture = read_model("deepseek-ai/DeepSeek-V3")
    assert {one.ep for one in parallel_layouts(task, mixture, "megatron", 64)} == {1, 4, 8, 16, 32, 64}


def test_a_trainer_is_asked_with_every_way_of_sharding() -> None:
    from vramcast.asking.plan_training import task_of
    from vramcast.models.reading import read_model
    from vramcast.planning.plans.training_layouts import structures

    task, _ = task_of("Qwen/Qwen2.5-0.5B", {"gpu": "4090x2", "method": "lora"})
    found = {(one.question.fsdp, one.question.zero) for one in structures(task, read_model(task.model))}
    assert found == {(None, None), (2, None), (None, 1), (None, 2), (None, 3)}


def test_one_card_shares_with_nobody() -> None:
    plan = vramcast.plan("train", "Qwen/Qwen2.5-0.5B", gpu="4090", method="lora", tokens="10M")
    alone = [one for one in (*plan.ranked, *plan.front) if one.gpus == 1]
    assert alone and not any(one.question.fsdp or one.question.zero for one in alone)
    assert alone[0].words.startswith("hf_trainer") and "zero" not in alone[0].words
