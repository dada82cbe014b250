"""Element types: one table, every spelling, every header code."""

import msgspec
import pytest

from vramcast.errors import QuestionError
from vramcast.hardware.cards import find_accelerator
from vramcast.models.quantization.plan import PLAIN
from vramcast.models.reading import read_model
from vramcast.serving.weights import loaded_dtype, scaled_bytes
from vramcast.training.recipe.parts import DTYPES, width
from vramcast.units import BY_NAME, HEADER_BITS, HEADER_FLOATS, TABLE, dtype_name, element_bytes


def test_names_spellings_and_codes_are_said_once() -> None:
    said = [name for dtype in TABLE for name in (dtype.name, *dtype.spellings)]
    assert len(said) == len(set(said))
    codes = [dtype.code for dtype in TABLE if dtype.code]
    assert len(codes) == len(set(codes)) == len(HEADER_BITS)


@pytest.mark.parametrize(
    ("text", "name", "size"),
    [
        ("bf16", "bfloat16", 2), ("torch.float16", "float16", 2), ("half", "float16", 2), ("FP32", "float32", 4),
        ("f16", "float16", 2), ("fp8", "float8", 1), ("fp8_e4m3", "float8_e4m3fn", 1), ("int8", "int8", 1),
    ],
)  # fmt: skip
def test_what_people_write_is_a_torch_name(text: str, name: str, size: int) -> None:
    assert dtype_name(text) == name
    assert element_bytes(text) == size


@pytest.mark.parametrize("text", ["bf17", "int64", "nf4", "float4_e2m1"])
def test_activations_have_no_other_type(text: str) -> None:
    with pytest.raises(QuestionError, match=f"unknown dtype '{text}'"):
        element_bytes(text)


def test_every_reader_of_the_table_agrees() -> None:
    assert all(PLAIN[name].bits == BY_NAME[name].bits for name in PLAIN)
    assert all(width(name) == BY_NAME[name].bits / 8 for name in DTYPES)
    assert {HEADER_BITS[code] for code in HEADER_FLOATS} == {64, 32, 16}
    assert HEADER_BITS["F4"] == 4
    assert HEADER_FLOATS["BF16"] == "bfloat16"


def test_float32_checkpoints_are_loaded_in_16_bits_unless_asked() -> None:
    base = read_model("openai-community/gpt2", offline=True)
    wide, half = (msgspec.structs.replace(base, dtype=dtype) for dtype in ("float32", "float16"))
    assert loaded_dtype(wide, None, None) == loaded_dtype(wide, "auto", None) == "bfloat16"
    assert loaded_dtype(wide, "float32", None) == "float32"
    assert loaded_dtype(half, None, None) == "float16"
    assert loaded_dtype(wide, None, find_accelerator("T4")) == "float16", "no bfloat16 arithmetic on that card"


def test_cache_types_with_scales_take_their_share() -> None:
    assert scaled_bytes("nvfp4") == 0.5 + 1 / 16
    assert scaled_bytes("mxfp8") == 1 + 1 / 32
