"""Rows of inference memory in the words people write them, read as questions."""

import pytest

from vramcast.truth.judgement import Unexpressed
from vramcast.truth.rows import inference_words as words
from vramcast.truth.rows.inference import judge, question_of
from vramcast.truth.rows.unread import unread_words
from vramcast.units import GiB


def row(**fields):
    plain = {
        "id": "x", "engine": "vllm", "engine_version": "0.19.0", "model_id": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "NVIDIA H100 80GB HBM3 (79.19 GiB visible)", "n_gpus": 1, "tp": 1, "pp": 1, "dtype": "bfloat16", "quant": None,
        "kv_dtype": "auto", "settings": {}, "measured": {"weights_gib": 14.99}, "kinds": ["dense"], "quant_class": None,
        "usable_for": ["weights"], "source": "https://example.org", "source_kind": "repo-file",
    }  # fmt: skip
    return plain | fields


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("google/gemma-4-31B-it (NVFP4)", ["google/gemma-4-31B-it"]),
        ("unsloth/Phi-4 (microsoft/phi-4)", ["unsloth/Phi-4", "microsoft/phi-4"]),
        ("Qwen/Qwen3-8B | copy", ["Qwen/Qwen3-8B"]),
    ],
)
def test_bracketed_remarks_are_not_part_of_an_id(text: str, names: list[str]) -> None:
    assert [n for n in words.model_names(row(model_id=text)) if n in names] == names


def test_visible_memory_is_read_off_the_card_s_words() -> None:
    assert words.visible_bytes(row()) == round(79.19 * GiB)
    assert words.visible_bytes(row(gpu="not stated")) is None


def test_a_card_that_is_not_named_is_known_by_its_visible_memory_alone() -> None:
    assert words.card(row(gpu="80 GB GPU (79.15 GiB visible)")).visible_bytes == pytest.approx(79.15 * GiB, rel=1e-4)
    assert words.card(row(gpu="GPU not named")) is None


@pytest.mark.parametrize(
    ("engine", "text", "version"),
    [
        ("vllm", "0.7.2/0.7.3 (Feb 2025)", "0.7.3"),
        ("vllm", "main Apr 2024 (~0.4.1, commit 73c8d677)", "0.4.1"),
        ("vllm", "0.11.0 (image tag in the replication recipe)", "0.11.0"),
        ("vllm", "main Apr 2024 (~0.4.1, commit 73c8d677)", "0.4.1"),
        ("vllm", None, None),
        ("autoawq", "0.1.6", "4.35.0"),
    ],
)
def test_versions(engine: str, text: str | None, version: str | None) -> None:
    assert words.version(row(engine=engine, engine_version=text)) == version


def test_settings_are_taken_in_their_flags_types_and_words_that_say_nothing_dropped() -> None:
    settings = {
        "max_num_seqs": "default",
        "max_num_batched_tokens": "8192",
        "gpu_memory_utilization": "0.9",
        "enforce_eager": True,
    }
    taken = words.options(row(settings=settings), "vllm")
    assert taken.pop("gpu_total_bytes") == round(79.19 * GiB)
    assert taken == {"max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.9, "enforce_eager": True}


def test_measured_figures_never_become_part_of_the_question() -> None:
    settings = {"gpu_free_at_init_gib": 78.68, "free_after_weights_gib": 11.06, "available_gib": 16.25}
    assert question_of(row(settings=settings))[0] == question_of(row())[0]


def test_a_row_is_judged_by_its_own_engine() -> None:
    judged = judge(row(settings={"max_num_batched_tokens": 8192, "max_num_seqs": 1024}))
    assert [pair.measure for pair in judged.pairs] == ["weights"]
    assert judged.pairs[0].predicted == pytest.approx(14.99 * GiB, rel=0.001)


def test_an_unknown_model_is_a_named_reason() -> None:
    with pytest.raises(Unexpressed, match="nobody/nothing-7x"):
        judge(row(model_id="nobody/nothing-7x"))


def test_plain_transformers_takes_few_bits_by_bitsandbytes() -> None:
    asked = question_of(row(engine="transformers", engine_version=None, quant="int4"))[0]
    assert asked.quant == "fp4"
    assert question_of(row(quant="int4"))[0].quant == "w4a16"


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({}, {"max_lora_rank": 32, "expandable_segments": True}),
        ({"kinds": ["vlm"]}, {"max_lora_rank": 64, "expandable_segments": True, "max_num_batched_tokens": 16_384}),
        (
            {"engine_version": "0.11.2"},
            {"max_lora_rank": 32, "expandable_segments": True, "flashinfer_sampler": True, "attention_backend": "flashinfer"},
        ),
    ],
)
def test_unsloth_sets_what_its_rows_leave_out(fields, taken) -> None:
    settings = {"enable_lora": "yes (unsloth fast_inference)", "max_model_len": 16_384}
    found = words.options(row(**({"engine_version": "0.9.2"} | fields), settings=settings), "vllm")
    assert found == taken | {"enable_lora": True, "gpu_total_bytes": round(79.19 * GiB)}


def test_types_of_gguf_files_and_the_sampler_are_read() -> None:
    assert question_of(row(quant="gguf Q8_0"))[0].quant == "q8_0"
    asked = question_of(row(settings={"max_model_len": 8192, "flashinfer_sampler": True}))[0]
    assert asked.options["flashinfer_sampler"] is True


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"limit_mm_per_prompt": "image 0, video 0"}, {"language_model_only": True}),
        ({"limit_mm_per_prompt": "image 0, audio 0"}, {}),
        ({"limit_mm_per_prompt": "image 4, video 0"}, {}),
        ({"mode": "LLM()"}, {"entry": "offline"}),
        ({"mode": "vllm bench latency"}, {"entry": "offline"}),
        ({"runner": "pooling"}, {"runner": "pooling"}),
    ],
)
def test_towers_that_take_nothing_and_the_class_that_was_started(settings, taken) -> None:
    found = words.options(row(settings=settings), "vllm")
    assert found == taken | {"gpu_total_bytes": round(79.19 * GiB)}


def test_no_images_beside_videos_is_not_read() -> None:
    assert unread_words("vllm", {"limit_mm_per_prompt": "image 0, audio 0"})
    assert not unread_words("vllm", {"limit_mm_per_prompt": "image 0, video 0", "mode": "LLM()", "runner": "pooling"})


def test_rows_of_lmdeploy_are_asked() -> None:
    asked, _ = question_of(row(engine="lmdeploy", engine_version="0.7.2", settings={"cache_max_entry_count": 0.6}))
    assert (asked.engine, asked.engine_version, asked.options["cache_max_entry_count"]) == ("lmdeploy", "0.7.2", 0.6)
    assert not unread_words("lmdeploy", {"cache_max_entry_count": 0.6, "max_batch_size": 8})
