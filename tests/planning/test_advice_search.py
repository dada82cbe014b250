"""The search behind advice finds the same edges as asking every step, with fewer questions; what it leaves out cannot fit."""

import json
import random
from collections.abc import Callable

import msgspec
import pytest

from vramcast.cli import run
from vramcast.errors import QuestionError
from vramcast.hardware.cards import least_card
from vramcast.ledger import Fit
from vramcast.models.reading import read_model
from vramcast.planning.advice import Asked, Search
from vramcast.planning.changes import Change
from vramcast.planning.serving_changes import serving_changes
from vramcast.planning.verdict import margin_of, serving_fit, sure_margin
from vramcast.serving.engines.base import answer_of
from vramcast.workload import Serving


def dial(count: int, *, widens: bool = False) -> list[Change]:
    return [Change(kind="dial", text=str(place), costs="", price=1, apply=lambda q: q, widens=widens) for place in range(count)]


def asking(margin: Callable[[int], int], sure: int, log: list[int]) -> Callable[[Change], Asked]:
    """Answers by a margin for each step; what leaves ``sure`` or more fits."""

    def ask(change: Change) -> Asked:
        place = int(change.text)
        log.append(place)
        left = margin(place)
        verdict = "fits" if left >= sure else "tight"
        return Asked(
            needed_bytes=-left, margin_bytes=left, short=left < 0, judged=lambda: Fit(verdict=verdict, margin_bytes=left)
        )

    return ask


@pytest.mark.parametrize("seed", range(40))
def test_the_edge_of_a_dial_is_that_of_asking_every_step(seed: int) -> None:
    draw = random.Random(seed)
    count, sure = draw.choice((1, 2, 3, 9, 60, 500)), draw.choice((0, 5, 400))
    margins = [draw.randrange(-5000, 200)]
    bend = draw.choice((1, 1, 3, 40))
    for place in range(1, count):
        margins.append(margins[-1] + draw.choice((0, 7, 90)) * (bend if place > count // 2 else 1))
    log: list[int] = []
    found = Search(asking(margins.__getitem__, sure, log), most=1000, sure_bytes=draw.choice((sure, 0, 3 * sure))).least(
        dial(count)
    )
    fitting = [place for place, left in enumerate(margins) if left >= sure]
    assert found is not None
    assert found.change.text == str(fitting[0] if fitting else count - 1)
    assert found.fits == bool(fitting)
    assert len(log) == len(set(log)) <= 5 + 2 * count.bit_length()


def test_a_straight_dial_takes_a_handful_of_questions() -> None:
    log: list[int] = []
    found = Search(asking(lambda place: 100 * place - 20_000, 700, log), most=100, sure_bytes=700).least(dial(400))
    assert found is not None and found.change.text == "207"
    assert len(log) <= 4


def test_steps_that_are_refused_are_passed_over() -> None:
    def ask(change: Change) -> Asked:
        if int(change.text) in (0, 7):
            raise QuestionError("cannot be")
        left = 10 * int(change.text) - 45
        return Asked(needed_bytes=0, margin_bytes=left, judged=lambda: Fit(verdict="fits" if left >= 0 else "no"))

    found = Search(ask, most=100).least(dial(8))
    assert found is not None and found.change.text == "5"


def test_no_more_is_asked_than_a_person_waits_for() -> None:
    log: list[int] = []
    search = Search(asking(lambda place: place - 50, 0, log), most=3)
    search.least(dial(100))
    assert len(log) == 3 and search.spent


def test_a_share_that_is_short_at_its_largest_is_not_asked_at_others() -> None:
    log: list[int] = []
    assert Search(asking(lambda place: -1, 0, log), most=100).least(dial(20, widens=True)).change.text == "19"
    assert log == [19]


@pytest.mark.parametrize(
    ("engine", "name"),
    [("vllm", "gpu_memory_utilization"), ("sglang", "mem_fraction_static"), ("tensorrt_llm", "free_gpu_memory_fraction")],
)
@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B-Instruct", "openai/gpt-oss-20b", "Qwen/Qwen3-30B-A3B"])
def test_what_is_left_in_the_pool_never_falls_with_the_share(engine: str, name: str, model: str) -> None:
    """The bound of ``Search._some_that_fits``, on random questions: a larger share never leaves the pool shorter."""
    draw, read = random.Random(f"{engine}{model}"), read_model(model)
    for _ in range(25):
        card = least_card(draw.choice(("RTX 4090", "L40S", "A100-40G", "H100", "L4")))
        question = Serving(
            model=model,
            gpu=card.id,
            engine=engine,
            context=draw.choice((2048, 16384, 32768)),
            concurrency=draw.choice((1, 4, 32)),
        )
        left = []
        for percent in (50, 70, 85, 90, 95):
            asked = msgspec.structs.replace(question, options={name: percent / 100})
            answer = answer_of(asked, model=read, card=card, limits=False)
            left.append(margin_of(answer, max(r.needed_bytes for r in answer.ranks), card))
        assert left == sorted(left)


def test_what_leaves_less_than_nothing_is_never_said_to_fit() -> None:
    """The bound of ``Tried.fits``: a negative margin by the engine's own rule is never the verdict ``fits``."""
    draw, met = random.Random(5), set[tuple[bool, str]]()
    for _ in range(150):
        card = least_card(draw.choice(("RTX 3060", "RTX 4090", "L40S", "H100")))
        engine, model = (
            draw.choice(("vllm", "sglang", "transformers", "llama_cpp")),
            draw.choice(("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-4B")),
        )
        question = Serving(model=model, gpu=card.id, engine=engine, quant="Q8_0" if engine == "llama_cpp" else None,
                           context=draw.choice((4096, 20000, 32768)), concurrency=draw.choice((1, 3, 9)))  # fmt: skip
        answer = answer_of(question, card=card, limits=False)
        short = margin_of(answer, max(r.needed_bytes for r in answer.ranks), card) < 0
        met.add((short, serving_fit(answer, card).verdict))
    assert (True, "fits") not in met
    assert {(False, "fits"), (True, "no")} <= met


def test_the_margin_that_is_sure() -> None:
    assert sure_margin(1000, lambda room: 1.0, most_bytes=10**12) == 0
    assert sure_margin(1000, lambda room: None, most_bytes=10**12) == 0
    edge = 7 * 2**30
    found = sure_margin(0, lambda room: 0.96 if room >= edge else 0.6, most_bytes=80 * 2**30)
    assert edge <= found <= edge + 2**20


def test_every_kind_of_change_has_words_and_a_price() -> None:
    model, card = read_model("Qwen/Qwen2.5-7B-Instruct"), least_card("RTX 4090")
    question = Serving(model=model.id, gpu=card.id, context=32768, concurrency=8)
    changes = list(serving_changes(answer_of(question, model=model, card=card).resolved, card))
    assert {"share", "seqs", "eager", "cache", "weights", "offload", "context", "sequences", "engine", "cards"} <= {
        c.kind for c in changes
    }
    assert all(change.text.startswith("-") and change.costs and change.price > 0 for change in changes)


@pytest.mark.parametrize(
    "line",
    [
        "serve google/gemma-3-12b-it --gpu 4090 --context 30720 --concurrency 4",
        "serve Qwen/Qwen3-32B --gpu 4090 --context 16k --engine sglang",
        "serve Qwen/Qwen2.5-72B-Instruct --gpu A100-80Gx2 --context 28672 --concurrency 9",
        "train Qwen/Qwen3-8B --gpu 4090 --framework trl --method full --seq 32768 --micro-batch 4",
    ],
)
def test_pairs_out_of_reach_would_not_have_been_advised(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the two savings fall short by far, asking for both together finds nothing more."""
    run([*line.split(), "--json"])
    pruned = json.loads(capsys.readouterr().out)["advice"]
    monkeypatch.setattr(Search, "out_of_reach", lambda _self, _one, _other: False)
    run([*line.split(), "--json"])
    assert json.loads(capsys.readouterr().out)["advice"] == pruned
