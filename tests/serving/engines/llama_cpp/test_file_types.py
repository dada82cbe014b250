"""File types become tensor types by llama-quantize's rules."""

import pytest

from vramcast.errors import QuestionError
from vramcast.models.reading import read_model
from vramcast.serving.engines import engine
from vramcast.serving.engines.llama_cpp.answer import process_of
from vramcast.serving.engines.llama_cpp.file_types import Facts, file_type, more_bits, tensor_types
from vramcast.serving.engines.llama_cpp.tensors import GgufTensor
from vramcast.workload import Serving


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("Q4_K - Medium", "Q4_K_M"), ("gguf Q4_K", "Q4_K_M"), ("q5_k_s", "Q5_K_S"), ("IQ4_XS - 4.25 bpw", "IQ4_XS"),
        ("Q2_K - Medium", "Q2_K"), ("Q4_0 (QAT)", "Q4_0"), ("IQ4_KS_R4 - 4.25 bpw", "iq4_ks_r4"), ("BF16", "BF16"),
    ],
)  # fmt: skip
def test_names_that_people_and_logs_write(written: str, meant: str) -> None:
    assert file_type(written) == meant


def test_an_unknown_type_names_the_nearest() -> None:
    with pytest.raises(QuestionError, match="unknown GGUF file type 'Q4_K_X': did you mean"):
        file_type("Q4_K_X")


def layer(index: int, row: int = 4096) -> list[GgufTensor]:
    names = ("attn_v", "attn_k", "attn_output", "ffn_down", "ffn_up", "attn_norm")
    return [GgufTensor(f"blk.{index}.{n}.weight", row, 1 if "norm" in n else 64, 1 if "norm" in n else 2, index) for n in names]


OUTER = [GgufTensor("token_embd.weight", 4096, 100, 2), GgufTensor("output.weight", 4096, 100, 2)]


def types(kind: str, *, row: int = 4096, **facts: object) -> dict[str, str]:
    tensors = [*OUTER, *(t for i in range(32) for t in layer(i, row))]
    return tensor_types(tensors, kind, Facts(layers=32, **facts))


def test_q4_k_m_gives_six_bits_to_half_of_the_values_and_downs() -> None:
    got = types("Q4_K_M")
    rich = {i for i in range(32) if more_bits(i, 32)}
    assert len(rich) == 16
    assert {i for i in range(32) if got[f"blk.{i}.ffn_down.weight"] == "q6_k"} == rich
    assert (got["output.weight"], got["token_embd.weight"], got["blk.0.attn_norm.weight"]) == ("q6_k", "q4_k", "f32")


def test_eight_experts_and_the_seventy_billion_llama_have_cases_of_their_own() -> None:
    assert types("Q4_K_M", experts=8)["blk.9.attn_v.weight"] == "q8_0"
    assert types("Q4_K_M", experts=8)["blk.9.attn_output.weight"] == "q5_k"
    assert types("Q4_K_S", seventy=True, queries_per_kv=8)["blk.20.attn_v.weight"] == "q5_k"


def test_rows_that_are_not_whole_blocks_fall_back() -> None:
    assert types("Q4_K_M", row=2080)["blk.9.attn_k.weight"] == "q5_0"
    assert types("IQ4_XS", row=2080)["blk.9.attn_k.weight"] == "iq4_nl"
    assert types("Q4_K_M", row=2090)["blk.9.attn_k.weight"] == "f16"


def test_an_importance_matrix_guards_the_first_downs_of_q4_0() -> None:
    assert types("Q4_0")["blk.0.ffn_down.weight"] == "q4_0"
    assert types("Q4_0", importance=True)["blk.0.ffn_down.weight"] == "q4_1"


@pytest.mark.parametrize(("kind", "file_gb"), [("F16", 13.79), ("MXFP4_MOE", 12.1), ("Q4_K_M", 11.6)])
def test_experts_of_an_mxfp4_checkpoint_stay_so_in_files_of_any_type(kind: str, file_gb: float) -> None:
    """gpt-oss-20b as published: F16 13.79 GB, MXFP4 12.1 GB, Q4_K_M 11.6 GB."""
    question = Serving(model="openai/gpt-oss-20b", engine="llama_cpp", quant=kind, context=4096)
    worked = process_of(engine("llama_cpp").resolve(question, read_model(question.model, offline=True), None), "llama_cpp")
    assert worked.plan.file_bytes / 1e9 == pytest.approx(file_gb, rel=0.01)
