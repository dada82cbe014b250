"""Parts of vLLM's rules one by one: captured sizes, LoRA slots, encoders, absorbed projections, cache types."""

import pytest

from vramcast.hardware.names import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.vllm.graphs import capture_sizes, graphs_term
from vramcast.serving.engines.vllm.settings import cache_types
from vramcast.serving.forecast import forecast_serving
from vramcast.serving.layout import Stage, even_split, every_stage
from vramcast.units import GiB
from vramcast.workload import Serving

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def whole_stage(name: str) -> Stage:
    return every_stage(read_model(name, offline=True), 1, even_split)[0]


def weights(name: str, **fields):
    answer = forecast_serving(Serving(model=name, context=4096, **fields), model=read_model(name, offline=True))
    return next(t for t in answer.ranks[0].instants[0].terms if t.name == "weights")


@pytest.mark.parametrize(
    ("gpu", "seqs", "count"), [("H100 SXM", 1024, 51), ("B200", 1024, 83), ("H100 SXM", 128, 35), ("RTX 4090", 2, 3)]
)
def test_captured_sizes(gpu: str, seqs: int, count: int) -> None:
    assert len(capture_sizes((0, 33), seqs, 8192, card=find_accelerator(gpu))) == count


def test_older_captures() -> None:
    assert len(capture_sizes((0, 9, 2), 256, 8192)) == 67
    assert len(capture_sizes((0, 6), 256, 8192)) == 35


def test_eager_captures_nothing() -> None:
    assert graphs_term((0, 33), whole_stage(LLAMA), 256, 2048, eager=True).bytes == 0


@pytest.mark.parametrize(
    ("model", "tp", "printed"),
    [(LLAMA, 1, 0.91), (LLAMA, 2, 0.76), (LLAMA, 4, 0.67), ("Qwen/Qwen3-8B", 1, 0.96), ("Qwen/Qwen2.5-72B-Instruct", 2, 1.61)],
)
def test_graphs_of_an_h100_follow_layers_and_heads_per_rank(model: str, tp: int, printed: float) -> None:
    term = graphs_term((0, 19), whole_stage(model), 1024, 8192, eager=False, tp=tp, card=find_accelerator("H100 SXM"))
    assert term.bytes / GiB == pytest.approx(printed, rel=0.06)


def test_partial_outputs_are_flash_attention_3s_alone() -> None:
    hopper, ada = (
        graphs_term((0, 19), whole_stage(LLAMA), 256, 8192, eager=False, card=find_accelerator(gpu)).bytes
        for gpu in ("H100 SXM", "L40S")
    )
    assert hopper - ada == 32 * 256 * 4 * 32 * 128


def test_lora_slots_are_allocated_whether_or_not_an_adapter_is_there() -> None:
    slots = weights(LLAMA, options={"enable_lora": True, "max_lora_rank": 32, "max_loras": 2}).find("lora_slots")
    assert slots.bytes == 2 * 32 * 2 * 32 * 81_920


def test_lora_slots_of_old_versions_are_in_no_budget() -> None:
    def asked(version: str, **options: bool):
        question = Serving(model=LLAMA, context=4096, gpu="A100 80GB", engine_version=version, options=options)
        return forecast_serving(question, model=read_model(LLAMA, offline=True), card=find_accelerator("A100 80GB"))

    (old,), (plain,) = asked("0.7.1", enable_lora=True).ranks, asked("0.7.1").ranks
    slots = next(t for t in old.instants[0].terms if t.name == "workspace")
    assert slots.find("lora_slots").bytes == slots.bytes == old.device_bytes - plain.device_bytes > 0
    assert asked("0.7.1", enable_lora=True).cache.pool_bytes == asked("0.7.1").cache.pool_bytes
    assert asked("0.8.5", enable_lora=True).cache.pool_bytes < asked("0.8.5").cache.pool_bytes


def test_offloaded_weights_leave_the_card() -> None:
    plain, lighter = weights(LLAMA), weights(LLAMA, options={"cpu_offload_gb": 4})
    assert plain.bytes - lighter.bytes == 4 * GiB


def test_a_draft_model_stands_beside_the_target() -> None:
    draft = weights(LLAMA, options={"speculative_model": "meta-llama/Llama-3.2-1B-Instruct", "num_speculative_tokens": 4})
    assert draft.find("draft_model").bytes / GiB == pytest.approx(2.32, abs=0.02)


def test_absorbed_projections_exist_in_0_7_alone() -> None:
    name = "deepseek-ai/DeepSeek-V2-Lite"
    found = {version: weights(name, engine_version=version).find("absorbed") for version in ("0.6.4", "0.7.3", "0.8.5")}
    assert found["0.6.4"] is None and found["0.8.5"] is None
    assert found["0.7.3"].bytes == 27 * 16 * (2048 * (512 + 64) + 512 * 2048) * 2


@pytest.mark.parametrize(
    ("name", "kv_dtype", "token"),
    [
        ("deepseek-ai/DeepSeek-V3", None, 61 * 576 * 2),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "fp8", 61 * (656 + 132)),
        (LLAMA, "fp8", 65_536),
        (LLAMA, "nvfp4", 36_864),
        (LLAMA, "int8_per_token_head", 65_536 + 32 * 8 * 2 * 4),
    ],
)
def test_cache_layouts(name: str, kv_dtype: str | None, token: int) -> None:
    question = Serving(model=name, context=4096, kv_dtype=kv_dtype)
    assert forecast_serving(question, model=read_model(name, offline=True)).cache.bytes_per_token == token


def test_latents_were_padded_to_640_before_0_8() -> None:
    model = read_model("deepseek-ai/DeepSeek-V2-Lite", offline=True)
    assert cache_types(model, None, "bfloat16", {}, (0, 7, 3)).latent_multiple == 128
    question = Serving(model=model.id, engine_version="0.7.3", context=4096)
    assert forecast_serving(question, model=model).cache.bytes_per_token == 27 * 640 * 2


def test_hybrid_blocks_hold_a_state_as_logs_print() -> None:
    """Block sizes of start-up logs: granite-4.0-h-small 528, Qwen3.6-35B-A3B with fp8 cache and two drafted tokens 2128."""
    granite = forecast_serving(
        Serving(model="x", context=4096), model=read_model("ibm-granite/granite-4.0-h-small", offline=True)
    ).cache
    qwen = Serving(model="x", context=4096, kv_dtype="fp8", options={"speculative_method": "mtp", "num_speculative_tokens": 2})
    assert granite.block_tokens == 528
    assert forecast_serving(qwen, model=read_model("Qwen/Qwen3.6-35B-A3B", offline=True)).cache.block_tokens == 2128


def test_pictures_are_kept_through_the_profile_run() -> None:
    """Gemma-3-27B on 0.19: 32 pictures of 4,096 patches, 8,192 tokens handed on; the log's peak is 3.99 GiB."""
    options = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
    question = Serving(model="x", engine_version="0.19.0", context=8192, options=options)
    model, card = read_model("google/gemma-3-27b-it", offline=True), find_accelerator("H100 SXM")
    logits = next(
        t for i in forecast_serving(question, model=model, card=card).ranks[0].instants for t in i.terms if t.name == "logits"
    )
    assert logits.find("pixels").bytes == 32 * 4096 * 588 * 2
    assert logits.find("encoder_outputs").bytes == 8192 * 5376 * 2
    assert logits.bytes / GiB == pytest.approx(3.99, rel=0.01)
