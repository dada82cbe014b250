import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.speed.utilization import from_flops, from_tokens, peak_of, training_work

LLAMA = "meta-llama/Llama-2-7b-hf"
LAYERS, HIDDEN, PARAMETERS, VOCABULARY = 32, 4096, 6_738_415_616, 32_000
MET = PARAMETERS - VOCABULARY * HIDDEN  # every parameter but the input embedding


def test_the_conventions_of_a_dense_model_worked_out_by_hand() -> None:
    norms = (2 * LAYERS + 1) * HIDDEN
    work = training_work(read_model(LLAMA), seq=2048)
    full = 12 * LAYERS * HIDDEN * 2048
    assert work.model["6n"] == 6 * MET
    assert work.model["full"] == pytest.approx(6 * MET + full)
    # Half of the pairs and the diagonal; norms are no matrix products.
    assert work.model["causal"] == pytest.approx(6 * (MET - norms) + full / 2 * (2049 / 2048), rel=1e-9)


def test_three_ways_to_one_mfu() -> None:
    # 3 sequences/s x 2048 tokens on 4 A100: the run of a well-known article, whose three methods gave three answers.
    work = training_work(read_model(LLAMA), seq=2048)
    peak = peak_of(find_accelerator("A100-80G"), "bf16")
    assert from_tokens(work, 1536, peak).mfu["causal"] == pytest.approx(0.203, abs=0.0005)
    assert from_tokens(work, 3300, peak).mfu["causal"] == pytest.approx(0.436, abs=0.0005)
    assert from_flops(100e12, peak).mfu["as told"] == pytest.approx(100 / 312)


def test_recomputation_and_frozen_weights() -> None:
    model = read_model(LLAMA)
    plain, full = training_work(model, seq=4096), training_work(model, seq=4096, recomputation="full")
    head = 2 * VOCABULARY * HIDDEN
    assert full.model == plain.model and plain.recomputed == 0
    assert full.recomputed == pytest.approx(plain.model["causal"] / 3 - head, rel=1e-6)
    frozen = training_work(model, seq=4096, frozen=True)
    assert frozen.model["6n"] == 4 * MET
    assert 0.66 < frozen.model["causal"] / plain.model["causal"] < 0.70


def test_more_than_the_dense_rate_is_doubted() -> None:
    (note,) = from_flops(1500e12, peak_of(find_accelerator("H100"), "bf16")).notes
    assert "1,979 TFLOP/s" in note


def test_what_cannot_be_is_refused() -> None:
    model = read_model(LLAMA)
    with pytest.raises(QuestionError, match="at least one"):
        training_work(model, seq=0)
    with pytest.raises(QuestionError, match="unknown recomputation"):
        training_work(model, seq=1, recomputation="some")
    with pytest.raises(QuestionError, match="no dense fp8 rate is known of the A100"):
        peak_of(find_accelerator("A100"), "fp8")
