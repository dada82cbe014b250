"""Every word of an inference row is read, quiet, or listed as unread; unread ones widen the bar."""

from typing import Any

import pytest

from vramcast.truth.evaluation import evaluate_rows
from vramcast.truth.rows import gguf_words, inference, inference_words
from vramcast.truth.rows.unread import QUIET, READ, unread_words


def row(**settings: Any) -> dict[str, Any]:
    return {
        "id": "one", "engine": "sglang", "engine_version": "0.5.10", "model_id": "Qwen/Qwen3-30B-A3B", "gpu": "NVIDIA H100 80GB",
        "n_gpus": 4, "tp": 4, "pp": 1, "dtype": "bfloat16", "quant": None, "kv_dtype": "auto", "settings": settings,
        "measured": {"weights_gib": 14.5}, "kinds": ["moe"], "usable_for": ["weights"], "source": "https://github.com/a/b",
    }  # fmt: skip


def test_an_unknown_word_is_listed_and_takes_the_wide_bar() -> None:
    judged = inference.judge(row(mem_fraction_static=0.8, warp_drive="on"))
    assert judged.unread == ("warp_drive=on",)
    assert judged.keys["novel"] == "yes"
    assert evaluate_rows([row(warp_drive="on")]).report()["unread"] == [{"id": "one", "words": ["warp_drive=on"]}]


def test_read_and_quiet_words_are_not_listed() -> None:
    judged = inference.judge(row(mem_fraction_static=0.8, env="torch 2.8", ep=4, context_length=None))
    assert judged.unread == ()
    assert "novel" not in judged.keys
    assert all(not read & QUIET for read in READ.values())
    assert unread_words("ollama", {"n_ctx": 1, "note": "x"}) == ()


def test_sglang_s_ep_and_list_of_graph_sizes_are_read() -> None:
    question, _ = inference.question_of(row(ep=4, cuda_graph_bs="1,2,4,8,12"))
    assert question.parallel.ep == 4
    assert question.options["cuda_graph_max_bs"] == 12


def test_tensorrt_llm_s_free_memory_is_what_its_fraction_applies_to() -> None:
    judged = inference.judge(
        row(available_gib=16.0, free_gpu_memory_fraction=0.5)
        | {"engine": "tensorrt-llm", "engine_version": None, "measured": {"kv_cache_gib": 8.0}, "usable_for": ["kv_pool"]}
    )
    assert next(p for p in judged.pairs if p.measure == "kv_pool").predicted == pytest.approx(8 * 2**30, rel=0.001)


def test_quality_is_respected_and_rows_of_a_fit_alone_are_asked() -> None:
    only = row() | {"measured": {"fits": True}, "usable_for": ["fit"], "quality": "C"}
    judged = inference.judge(only)
    assert (judged.quality, judged.fit_called, judged.fit_actual) == ("C", "fits", "ran")
    assert evaluate_rows([only]).report()["fit"]["ran"] == 0
    assert evaluate_rows([only | {"quality": "A"}]).report()["fit"]["ran"] == 1


def test_a_dynamic_mix_named_in_brackets_is_not_taken_for_the_plain_type() -> None:
    told = {"settings": {"gguf_file_type": "Q4_K_M"}}
    assert gguf_words.quant_of(told | {"quant": "Q4_K_M (UD)"})[1] is False
    assert gguf_words.quant_of(told | {"quant": "Q4_K_M"})[1] is True


def test_vllm_s_other_names_are_read() -> None:
    asked = row(dp=2, dcp=4, swap_space_gib=4) | {"engine": "vllm"}
    options = inference_words.options(asked, "vllm")
    assert (options["data_parallel_size"], options["decode_context_parallel_size"], options["swap_space"]) == (2, 4, 4.0)


def test_a_rank_that_is_not_told_is_not_taken_for_known() -> None:
    assert unread_words("vllm", {"enable_lora": "yes"}) == ("max_lora_rank: not told",)
    assert unread_words("vllm", {"enable_lora": True, "max_lora_rank": 32}) == ()
