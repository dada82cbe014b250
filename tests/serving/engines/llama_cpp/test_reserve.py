"""Lines in place of allocations: over its whole range a line is what the allocator finds on plain numbers, to the byte."""

from random import Random

import numpy as np
import pytest

from vramcast.models.reading import read_model
from vramcast.serving.engines import engine
from vramcast.serving.engines.base import answer_of
from vramcast.serving.engines.llama_cpp import reserve
from vramcast.serving.engines.llama_cpp.affine import Span, line
from vramcast.workload import Serving

QUESTIONS = [
    Serving(model="Qwen/Qwen2.5-7B-Instruct", engine="llama_cpp", quant="Q4_K_M"),
    Serving(model="google/gemma-3-27b-it", engine="llama_cpp", quant="Q8_0", gpus=2),
    Serving(model="google/gemma-3-27b-it", engine="llama_cpp", quant="Q8_0", options={"swa_full": True, "kv_unified": False}),
    Serving(model="Qwen/Qwen3-30B-A3B", engine="llama_cpp", quant="Q4_K_M", options={"flash_attn": False, "n_gpu_layers": 20}),
    Serving(model="deepseek-ai/DeepSeek-V3", engine="ik_llama_cpp", quant="Q4_K_M", options={"mla": 2, "attn_max_batch": 512}),
    Serving(model="deepseek-ai/DeepSeek-V3", engine="llama_cpp", engine_version="b4500", quant="Q4_K_M", gpus=4),
    Serving(model="meta-llama/Llama-2-7b-hf", engine="llama_cpp", engine_version="b1680", quant="Q4_0"),
    Serving(
        model="meta-llama/Llama-2-7b-hf", engine="llama_cpp", engine_version="b2000", quant="Q4_0", options={"n_ubatch": 300}
    ),
]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: f"{q.model}-{q.engine}-{q.engine_version}-{len(q.options)}")
def test_lines_are_what_plain_numbers_give(question: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int], list[int]]] = []
    lines = reserve.Pieces.at

    def both(pieces: reserve.Pieces, n: int) -> list[int]:
        found = lines(pieces, n)
        asked.append((found, pieces.allocate(n)))
        return found

    monkeypatch.setattr(reserve.Pieces, "at", both)
    model, random = read_model(question.model), Random(7)
    rules = engine(question.engine)
    for _ in range(12):
        context = random.choice((random.randint(1, 2048), random.randint(1, 100_000)))
        asked_question = Serving(**{**{f: getattr(question, f) for f in question.__struct_fields__}, "context": context})
        rules.forecast(rules.resolve(asked_question, model, None))
    assert len(asked) >= 12
    for found, exact in asked:
        assert found == exact


def test_a_comparison_keeps_the_range_over_which_it_holds() -> None:
    span = Span(10)
    n = span.variable()
    assert 3 * n + 2 > 20
    assert span.low == 7
    assert n * 100 <= 5_000
    assert (span.low, span.high) == (7, 50)
    assert n != 40
    assert (span.low, span.high) == (7, 39)
    assert line(-(-(n * 256 + 1) // 128) * 128) == (128, 256)
    assert n // 3 == 3
    assert (span.low, span.high) == (10, 10)


def test_arrays_take_each_piece_from_its_first_number_to_its_last() -> None:
    """Three lines that meet at 10 and at 20, asked in an order in which a piece begins at a number already asked for."""
    pieces = reserve.Pieces(lambda n: [2 * n if n < 10 else 3 * n + 1 if n < 20 else 100 + n, 7 + 0 * n])
    asked = np.array([15, 10, 19, 9, 0, 20, 31, 10])
    first, second = pieces.at(asked)
    assert first.tolist() == [46, 31, 58, 18, 0, 120, 131, 31]
    assert np.broadcast_to(second, asked.shape).tolist() == [7] * 8
    assert [pieces.at(n)[0] for n in (9, 10, 19, 20)] == [18, 31, 58, 120]


def test_a_context_of_billions_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest context is searched in steps that halve what is left, however many tokens a config claims."""
    import msgspec

    from vramcast.serving.engines.llama_cpp import answer

    calls: list[int] = []
    margin = answer.margin_bytes
    monkeypatch.setattr(answer, "margin_bytes", lambda *a: calls.append(a[3]) or margin(*a))
    for name in ("google/gemma-3-27b-it", "meta-llama/Llama-3.1-8B-Instruct"):
        model = msgspec.structs.replace(read_model(name), positions=2**31 - 1)
        question = Serving(model=name, engine="llama_cpp", quant="Q4_K_M", gpu="H100", context=4096)
        longest = answer_of(question, model=model).max_context
        assert 100_000 < longest < 10_000_000
    assert len(calls) < 150
