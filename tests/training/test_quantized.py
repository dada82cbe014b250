"""Weights that stay quantised in training: the rows of models/quantization, tensor by tensor, or the framework's refusal."""

import re

import pytest

from vramcast.errors import QuestionError
from vramcast.models.quantization import scheme_names
from vramcast.models.quantization.formats import NAMED
from vramcast.models.reading import read_model
from vramcast.training.forecast import forecast_training
from vramcast.training.methods import HELD, REFUSED, word_of
from vramcast.training.resolve import resolved
from vramcast.training.structure import structure_under
from vramcast.workload import Adapter, Parallel, Training

MODEL = read_model("meta-llama/Llama-2-7b-hf", offline=True)
SHAPES = [(t.shape, b.count) for b in MODEL.blocks for t in b.tensors if len(t.shape) == 2]
LINEAR = sum(rows * columns * count for (rows, columns), count in SHAPES)


def weights(quant: str, **question: object) -> int:
    """Bytes of the weights of a LoRA run beside that scheme, all that is not quantised in 16 bits."""
    asked = Training(
        model=MODEL.id,
        method="lora",
        quant=quant,
        adapter=Adapter(rank=8),
        options={"unquantized": "bfloat16", "adapter_dtype": "bfloat16"},
        **question,  # type: ignore[arg-type]
    )
    worst = forecast_training(asked, model=MODEL).worst
    return next(t.bytes for t in worst.instants[-1].terms if t.name == "weights")


@pytest.mark.parametrize(
    ("quant", "row"),
    [
        ("int8", "llm.int8"), ("hqq", "hqq"), ("hqq-int8", "hqq-int8"), ("eetq", "eetq"), ("quanto-int4", "quanto-int4"),
        ("aqlm", "aqlm"), ("fp8-block", "fp8-block"), ("torchao-int8", "torchao-int8"), ("awq", "awq"), ("gptq", "gptq"),
        ("nf4", "nf4"), ("nf4-dq", "nf4-dq"),
    ],
)  # fmt: skip
def test_a_frozen_weight_takes_what_its_storage_row_says(quant: str, row: str) -> None:
    rest = (MODEL.parameters - LINEAR) * 2 + 19_988_480 * 2
    stored = sum(NAMED[row].bytes_of(shape) * count for shape, count in SHAPES)
    assert weights(quant) == pytest.approx(rest + stored, abs=1)


@pytest.mark.parametrize(
    ("quant", "message"),
    [
        ("mxfp4", r"weights in mxfp4 cannot be trained beside: its kernels have no backward"),
        ("fp8", r"weights in fp8-tensor cannot be trained beside: the fp8 kernels .* are for inference only: use fp8-block"),
        ("w4a16", r"compressed-tensors unpacks a layer at its first forward"),
        ("nvfp4", r"its quantiser in transformers does not support training"),
        ("torchao-int4", r"use torchao-int8"),
        ("hqqq", r"unknown quant 'hqqq': did you mean hqq"),
    ],
)
def test_a_scheme_that_cannot_be_trained_beside_is_refused_with_the_reason(quant: str, message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        weights(quant)


def test_a_framework_with_a_loader_of_its_own_refuses_what_it_cannot_load() -> None:
    with pytest.raises(QuestionError, match=r"torchtune has no loader for hqq: use nf4, .*or --framework hf_trainer"):
        weights("hqq", framework="torchtune")


def test_every_row_of_the_storage_table_is_held_or_refused() -> None:
    plain = {"float64", "float32", "float16", "bfloat16"}
    for name in scheme_names():
        word = word_of(name)[0]
        known = word in HELD or word in REFUSED
        assert known or NAMED.get(name) is None or NAMED[name].name in plain or name.startswith(("float8", "int", "uint", "bool"))


def test_full_sharding_gathers_codes_as_wide_as_they_are() -> None:
    """A block of LLM.int8 is one byte an element, not the half of NF4."""

    def gathered(quant: str) -> int:
        question = Training(
            model=MODEL.id, method="qlora", quant=quant, fsdp=2, gpus=2, parallel=Parallel(dp=2), adapter=Adapter(rank=8)
        )
        moments = forecast_training(question, model=MODEL).worst.instants
        sizes = {t.name: t.bytes for m in moments if m.name == "backward of the first block" for t in m.terms}
        return sizes["gathered"]

    block = sum(rows * columns for (rows, columns), _ in SHAPES)
    assert gathered("int8") - gathered("nf4") >= block * 0.5


def test_torchtune_s_scales_are_quantised_and_divided_with_their_weights() -> None:
    """torchao's NF4Tensor: an 8-bit scale for 64 elements and a float for 256 of those; FSDP2 divides all of it."""
    model = read_model("meta-llama/Llama-2-7b-hf", offline=True)

    def weights(**changes: object) -> str:
        asked = {"model": "x", "framework": "torchtune", "method": "qlora", "seq": 512} | changes
        answer = forecast_training(Training(**asked), model=model)
        return str(next(t.why for t in answer.worst.peak.terms if t.name == "weights"))

    elements = 6_476_005_376
    scales = elements // 64 + elements // (64 * 256) * 4
    alone, sharded = weights(), weights(fsdp=2, gpus=4, parallel=Parallel(dp=4))
    told = int(re.search(r"([\d,]+) B? ?of their scales", alone)[1].replace(",", ""))
    assert told == pytest.approx(scales, rel=0.01)
    assert re.search(r"of their scales.* / 4 ranks", sharded)


@pytest.mark.parametrize(("quant", "packed"), [("gptq", False), ("awq", False), ("nf4", True)])
def test_checkpoints_that_pack_the_decoder_s_layers_leave_towers_in_16_bits(quant: str, packed: bool) -> None:
    """AutoGPTQ quantises ``layers_block_name`` alone; bitsandbytes replaces every linear layer, a tower's too."""
    model = read_model("Qwen/Qwen-VL-Chat", offline=True)
    asked = Training(model=model.id, method="lora", quant=quant, adapter=Adapter(rank=8, targets=("c_attn",)))
    (rank,) = structure_under(asked, model, *resolved(asked, model)).ranks
    inside = sum(t.elements * b.count for b in model.blocks for t in b.tensors if len(t.shape) == 2)
    assert (rank.held.quantized.dense > inside) is packed
    assert packed or rank.held.quantized.dense == inside
