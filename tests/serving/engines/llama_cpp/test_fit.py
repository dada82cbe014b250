"""What Ollama leaves on the host by itself, and what llama.cpp cannot load at all."""

import pytest

import vramcast
from vramcast.errors import UnmodelledError
from vramcast.serving.engines.base import answer_of
from vramcast.serving.engines.llama_cpp.fit import TARGET_MIB
from vramcast.units import MiB
from vramcast.workload import Serving

QWEN, GPT_OSS = "Qwen/Qwen3-32B", "openai/gpt-oss-120b"


def ask(model: str, *, gpu: str = "RTX 3090", **options: object):
    question = Serving(model=model, engine="ollama", quant="Q4_K_M", gpu=gpu, context=32_768, options=options)
    return answer_of(question)


def test_ollama_puts_as_many_layers_on_the_card_as_leave_a_gibibyte() -> None:
    answer = ask(QWEN)
    layers = answer.resolved.options["n_gpu_layers"]
    assert answer.left is not None
    assert answer.left.told == f"starts; Ollama puts {layers} of 65 layers on the card, the CPU computes the rest"
    card = answer.resolved.card
    assert card is not None
    assert card.visible_bytes - answer.ranks[0].needed_bytes >= TARGET_MIB * MiB
    one_more = ask(QWEN, n_gpu_layers=layers + 1)
    assert card.visible_bytes - one_more.ranks[0].needed_bytes < TARGET_MIB * MiB


def test_what_is_short_is_what_a_larger_card_would_have_to_have_more() -> None:
    left, whole = ask(QWEN).left, ask(QWEN, gpu="A100-80G")
    assert left is not None
    assert whole.left is None
    assert left.whole_bytes == pytest.approx(whole.ranks[0].needed_bytes, rel=0.01)  # another card's context apart


def test_layers_that_were_asked_for_are_left_as_they_are() -> None:
    answer = ask(QWEN, n_gpu_layers=65)
    assert answer.left is None
    assert "cudaMalloc failed" in answer.start_error


def test_a_mixture_keeps_all_layers_and_leaves_experts_on_the_host() -> None:
    answer = ask(GPT_OSS, gpu="RTX 4090")
    assert answer.left is not None
    assert "keeps the experts of" in answer.left.told
    assert answer.resolved.options["n_gpu_layers"] == 37


def test_the_verdict_and_the_advice_follow() -> None:
    answer = vramcast.serve("qwen3:32b", gpu="3090")
    assert answer.fit.verdict == "partly"
    assert answer.fit.margin_bytes is not None
    assert answer.fit.margin_bytes < 0
    assert "of 65 layers" in answer.fit.error
    assert not any("-ngl" in advice.change for advice in answer.advice)  # Ollama does that already
    first = next(advice for advice in answer.advice if advice.then_fits)
    assert first.change.startswith("--context ")
    asked = first.change.removeprefix("--context ")
    assert vramcast.serve("qwen3:32b", gpu="3090", context=asked).fit.verdict == "fits"


@pytest.mark.parametrize("engine", ["llama_cpp", "ollama"])
def test_llama_cpp_has_no_whisper(engine: str) -> None:
    with pytest.raises(UnmodelledError, match=r"has no whisper.*whisper\.cpp runs it"):
        answer_of(Serving(model="openai/whisper-large-v3", engine=engine))


def test_llama_cpp_has_no_graph_of_opt() -> None:
    with pytest.raises(UnmodelledError, match="has no opt"):
        answer_of(Serving(model="facebook/opt-1.3b", engine="llama_cpp", quant="Q4_K_M"))
