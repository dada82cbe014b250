"""Layers that attend to what an encoder read: what an engine's pool does not count is told with its size."""

import pytest

from vramcast import forecast
from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import catalogue
from vramcast.serving.engines.base import Resolved, answer_of
from vramcast.units import GiB
from vramcast.workload import Serving

H100 = catalogue()["h100-sxm5-80"]


def resolved(model: str, engine: str, **asked: object) -> Resolved:
    return answer_of(Serving(model=model, engine=engine, **asked), card=H100).resolved


def test_an_images_keys_and_values_are_bounded() -> None:
    """Llama 3.2 11B: 8 layers x 2 x 8 heads x 128 x 6,404 tokens of four tiles x 2 B."""
    (told,) = resolved("meta-llama/Llama-3.2-11B-Vision-Instruct", "vllm", engine_version="0.10.2").unmodelled
    assert told.bound_bytes == 8 * 2 * 8 * 128 * 6404 * 2
    assert "6,404 encoded tokens a request, which 8 layers attend to" in told.what


def test_an_ear_is_bounded_where_the_engine_has_no_rule_and_counted_where_it_has() -> None:
    assert resolved("openai/whisper-tiny", "vllm").unmodelled[0].bound_bytes == 4 * 2 * 384 * 1500 * 2
    with pytest.raises(UnmodelledError, match=r"whisper\.cpp runs it"):
        resolved("openai/whisper-tiny", "llama_cpp")
    assert not resolved("openai/whisper-tiny", "transformers").unmodelled


def test_a_release_that_dropped_the_class_says_so() -> None:
    def refused(version: str) -> list[str]:
        said = resolved("meta-llama/Llama-3.2-11B-Vision-Instruct", "vllm", engine_version=version).assumed
        return [a.because for a in said if a.value == "refused"]

    assert refused("0.10.2") == []
    assert refused("0.11.0") == [
        "vLLM 0.11.0 has no MllamaForConditionalGeneration: it was there up to 0.10.2, use --engine vllm==0.10.2"
    ]


@pytest.mark.parametrize(("seqs", "gib"), [(128, 35.63), (16, 4.45)])
def test_the_first_engine_encodes_an_image_a_sequence(seqs: int, gib: float) -> None:
    """vLLM 0.7.0 printed 36.63 GiB with 128 sequences on an H100 (vllm-project/vllm#12126)."""
    options = {"engine_core": "V0", "max_num_seqs": seqs, "enforce_eager": True}
    asked = Serving(
        model="meta-llama/Llama-3.2-11B-Vision", engine="vllm", engine_version="0.7.0", gpu="H100 SXM5 80GB", options=options
    )
    encoder = next(instant for instant in forecast(asked).ranks[0].instants if instant.name == "encoder")
    terms = {term.name: term for term in encoder.terms}
    assert terms["activations"].bytes / GiB == pytest.approx(gib, abs=0.02)
    assert {part.name for part in terms["activations"].terms} == {"encoder_states", "pixels"}
