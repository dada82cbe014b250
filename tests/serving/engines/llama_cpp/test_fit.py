"""What llama.cpp and Ollama leave on the host by themselves, and what llama.cpp cannot load at all."""

import msgspec
import pytest

import vramcast
from vramcast.errors import UnmodelledError
from vramcast.hardware.cards import find_accelerator
from vramcast.hardware.runtime import context_bytes
from vramcast.serving.engines.base import Answer, answer_of
from vramcast.serving.engines.llama_cpp.fit import TARGET_MIB, _most
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


def free(
    gpu: str, free_mib: int, model: str, quant: str, *, gpus: int = 1, context: int | None = None, **options: object
) -> Answer:
    """Asked of a card that has so much free, as a log of ``--fit`` tells."""
    card = find_accelerator(gpu)
    card = msgspec.structs.replace(card, visible_bytes=free_mib * MiB + int(context_bytes(card)))
    question = Serving(model=model, engine="llama_cpp", quant=quant, gpu=gpu, gpus=gpus, context=context, options=options)
    return answer_of(question, card=card)


HERMES = "NousResearch/Hermes-3-Llama-3.1-8B"


def test_as_many_layers_as_the_log_of_a_2060() -> None:
    """5141 MiB free, 15 of 33 layers: 4089 MiB; 16 would be 4334."""
    found = free("RTX 2060", 5141, HERMES, "Q4_0", context=32_768, n_parallel=1)
    assert found.resolved.options["n_gpu_layers"] == 15
    assert found.ranks[0].allocated_bytes / MiB == pytest.approx(4089, rel=0.002)
    assert found.left is not None
    assert found.left.told == "starts; llama.cpp puts 15 of 33 layers on the card, the CPU computes the rest"


def test_a_context_that_nobody_gave_shrinks_first() -> None:
    """15137 MiB free: the log says that 262,144 tokens become 81,920."""
    found = free("RTX 4080", 15137, "Qwen/Qwen3-VL-4B-Instruct", "Q4_0")
    assert found.left is None
    assert found.resolved.context == pytest.approx(81_920, rel=0.03)
    assert found.resolved.context % 256 == 0
    assert any(note.name == "context" and note.because.startswith("--fit") for note in found.resolved.assumed)


@pytest.mark.parametrize("said", [{"fit": False}, {"n_gpu_layers": 33}, {"n_gpu_layers": -1}, {"tensor_split": [1.0, 1.0]}])
def test_what_was_placed_stays(said: dict[str, object]) -> None:
    found = free("RTX 2060", 2500, HERMES, "Q4_0", context=32_768, gpus=1 + ("tensor_split" in said), **said)
    assert found.left is None
    assert found.resolved.options["n_gpu_layers"] == 33
    assert found.start_error


def test_a_build_before_it_was_on_loads_all() -> None:
    question = Serving(model=HERMES, engine="llama_cpp", engine_version="b7000", quant="Q4_0", gpu="RTX 2060", context=65_536)
    assert answer_of(question).left is None
    newer = msgspec.structs.replace(question, engine_version="b7700")
    assert answer_of(newer).left is not None


def test_layers_that_one_card_cannot_hold_go_to_the_others() -> None:
    """Layers are counted evenly, their bytes are not; GPUs are filled from the last one on."""
    model, quant = "google/gemma-3-12b-it", "Q4_K_M"
    even = [rank.allocated_bytes for rank in free("RTX 3060", 12_000, model, quant, gpus=3, context=8192).ranks]
    assert max(even) == even[-1]  # the output lies on the last
    found = free("RTX 3060", max(even) // MiB + TARGET_MIB - 60, model, quant, gpus=3, context=8192)
    assert found.left is None
    assert sum(found.resolved.options["tensor_split"]) == 49
    assert found.ranks[0].allocated_bytes < min(even)
    assert any(note.name == "tensor_split" for note in found.resolved.assumed)


@pytest.mark.parametrize("edge", [0, 7, 31, 40])
def test_the_most_layers_are_those_that_fit_with_their_graphs(edge: int) -> None:
    asked: list[int] = []

    def holds(count: int, *, graphs: bool) -> bool:
        asked.extend([count] if graphs else [])
        return count <= edge + (0 if graphs else 2)

    assert _most(holds, guess=40, most=40) == edge
    assert len(asked) <= 5 and max(asked) <= edge + 2
