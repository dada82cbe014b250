"""The table of classes holds together, and each fact that an engine or a publisher decides is asserted from what decides it."""

import importlib
from pathlib import Path

import msgspec
import pytest

from vramcast.models import reading
from vramcast.models.classes import ROWS, ModelClass, aliased, known_classes, model_class, model_classes
from vramcast.models.families import read_config
from vramcast.models.inventory import Model, Tower
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import parse_version
from vramcast.serving.engines.vllm.settings import second_runner

# Fields that transformers answers need no source of their own; these are the others.
BY_HAND = (
    *("repeats_kv", "converts_experts", "tuned_norms", "image_tokens", "pooled_patches", "replicated_towers", "parsed_apart"),
    *(
        "sglang_cuts_towers",
        "sglang_blind",
        "float_state",
        "second_runner",
        "embedding_slots",
        "window_pool",
        "nvfp4_attention",
        "gguf_rows",
        "gguf_mix",
        "image_tiles",
    ),
)


def test_rows_stand_in_order_and_once() -> None:
    names = [msgspec.json.decode(line)["name"] for line in ROWS.read_bytes().splitlines()]
    assert names == sorted(set(names))


@pytest.mark.parametrize("row", model_classes(), ids=lambda row: row.name)
def test_a_row_points_at_what_exists(row: ModelClass) -> None:
    if row.reader:
        assert hasattr(importlib.import_module(f"vramcast.models.families.{row.reader}"), "read")
    if row.reads_as:
        assert model_class(row.reads_as).name == row.reads_as
        assert row.layer is None, "its facts are those of the class it is read as"
    assert not set(row.aliases) & {other.name for other in model_classes()}


@pytest.mark.parametrize("row", model_classes(), ids=lambda row: row.name)
def test_every_fact_read_by_hand_has_its_source(row: ModelClass) -> None:
    for group in (row.whole, row.served):
        plain = type(group)()
        stated = {f for f in BY_HAND if hasattr(group, f) and getattr(group, f) != getattr(plain, f)}
        assert stated <= row.sources.keys()
    assert row.layer is None or row.asked or row.sources.get("layer")


def test_another_name_and_a_wrappers_decoder_have_the_facts_of_their_class() -> None:
    assert model_class("RefinedWeb") is model_class("falcon")
    assert model_class("qwen3_vl_moe_text") is model_class("qwen3_moe")
    assert model_class("nobody").layer is None
    assert {"RefinedWeb", "falcon", "qwen3_vl_moe_text"} <= set(known_classes())
    assert set(aliased().values()) <= {row.name for row in model_classes()}


DECODERS = {
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "llama4_text",
    "Qwen/Qwen3-VL-2B-Instruct": "qwen3",
    "Qwen/Qwen3-VL-235B-A22B-Instruct": "qwen3_moe",
    "moonshotai/Kimi-K2.5": "deepseek_v3",
    "zai-org/GLM-4.5V": "glm4_moe",
    "google/gemma-3-12b-it": "gemma3_text",
    "google/gemma-3n-E2B-it": "gemma3n_text",
    "google/gemma-4-26B-A4B": "gemma4_text",
    "OpenGVLab/InternVL2-2B": "internlm2",
    "llava-hf/llava-1.5-7b-hf": "llama",
    "Qwen/Qwen2.5-7B": "qwen2",
}


@pytest.mark.parametrize(("wrapper", "text"), DECODERS.items())
def test_a_wrapper_names_its_decoder(wrapper: str, text: str) -> None:
    model = reading.load(wrapper)
    assert model is not None
    assert model.text_class == text


def test_a_class_without_a_row_in_its_family_file_is_a_plain_llama() -> None:
    given = {"model_type": "Yi", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
             "vocab_size": 128, "rms_norm_eps": 1e-5}  # fmt: skip
    same = read_config({**given, "model_type": "llama"})
    assert read_config(given).blocks == same.blocks


@pytest.mark.parametrize("row", [r for r in model_classes() if r.served.second_runner], ids=lambda row: row.name)
def test_vllm_takes_the_second_runner_by_name_from_that_release_on(row: ModelClass) -> None:
    """Both sides of the border, for a model of routed experts: dense ones follow all at once with 0.25."""
    model = msgspec.structs.replace(read_model("Qwen/Qwen3-30B-A3B", offline=True), family=row.name)
    since = parse_version(row.served.second_runner, "vllm")
    assert second_runner(since, model, quantized=False)
    assert not second_runner((since[0], since[1] - 1), model, quantized=False)


# max_pixels or longest_edge of the published preprocessor_config.json.
LARGEST_PIXELS = dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"), 12_845_056) | dict.fromkeys(
    ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), 16_777_216
)


@pytest.mark.parametrize("family", LARGEST_PIXELS)
def test_the_largest_image_is_its_pixels_over_the_pixels_of_a_token(family: str) -> None:
    tower = next(t for m in _catalogued(family) for t in m.towers if "merge" in t.facts)
    assert LARGEST_PIXELS[family] == model_class(family).served.image_tokens * _side(tower) ** 2


def _side(tower: Tower) -> int:
    return round(tower.facts["patch_size"] * tower.facts["merge"])


def _catalogued(family: str) -> list[Model]:
    return [m for m in map(reading.load, reading.known_ids()) if m and m.family == family]


def _attention_kept(scheme: dict[str, object]) -> bool | None:
    """Whether a ModelOpt NVFP4 list leaves attention in 16 bits; None where there is no list, or the formats are mixed."""
    kept = scheme.get("ignore") or scheme.get("exclude_modules")
    mixed = len(scheme.get("config_groups") or ()) > 1 or scheme.get("quant_algo") == "MIXED_PRECISION"  # type: ignore[arg-type]
    return None if mixed or not kept else any(word in str(kept) for word in ("attn", "mixer"))


def test_nvidias_own_lists_say_whose_attention_is_in_four_bits() -> None:
    """Attention stands in the ignore list of catalogued NVFP4 checkpoints, or the class's row says that it is quantised."""
    models = [reading.load(name) for name in reading.known_ids() if name.startswith("nvidia/") and "NVFP4" in name]
    seen = {m.family: _attention_kept(m.quantization) for m in models if m and m.quantization}
    seen = {family: kept for family, kept in seen.items() if kept is not None}
    assert len(seen) >= 6
    assert {family: not model_class(family).served.nvfp4_attention for family in seen} == seen


def test_sglang_keeps_window_pools_for_the_classes_its_source_lists() -> None:
    """SWA_SINK_ARCHS and the hybrid lists of sglang 0.5.23: eight tenths, DeepSeek-V4 a tenth; Gemma 2 and 3 have none."""
    shares = {row.name: row.served.window_pool for row in model_classes() if row.served.window_pool}
    eight_tenths = ("gpt_oss", "llama4_text", "gemma4_text", "gemma4_unified_text", "mimo_v2_flash", "step3p7_text")
    assert shares == dict.fromkeys(eight_tenths, 0.8) | {"deepseek_v4": 0.1}


def test_the_table_is_small_enough_to_be_read_at_every_start() -> None:
    assert Path(ROWS).stat().st_size < 100_000
