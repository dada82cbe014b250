"""Parts of vLLM's rules one by one: captured sizes, LoRA slots, encoders, absorbed projections, cache types."""

import msgspec
import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.families import read_config
from vramcast.models.reading import read_model
from vramcast.models.sharding import Stage, every_stage
from vramcast.planning.verdict import serving_fit
from vramcast.serving.engines import engine
from vramcast.serving.engines.base import answer_of
from vramcast.serving.engines.layouts import even_split
from vramcast.serving.engines.vllm.engine import Vllm, printed_peak
from vramcast.serving.engines.vllm.graphs import Capture, graphs_term
from vramcast.serving.engines.vllm.profile import encoder_term, images_of, vision_tower
from vramcast.serving.engines.vllm.settings import cache_types, pools, settings_of, subtracts_graphs
from vramcast.serving.engines.vllm.versions import non_torch_term
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

VLLM = Vllm()
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def whole_stage(name: str) -> Stage:
    return every_stage(read_model(name, offline=True), 1, even_split)[0]


def weights(name: str, **fields):
    answer = answer_of(Serving(model=name, context=4096, **fields), model=read_model(name, offline=True))
    return next(t for t in answer.ranks[0].instants[0].terms if t.name == "weights")


def captured(version: tuple[int, ...], gpu: str = "H100 SXM", *, seqs: int = 1024, tokens: int = 8192, **fields) -> Capture:
    return Capture(version=version, max_seqs=seqs, max_tokens=tokens, card=find_accelerator(gpu), **fields)


@pytest.mark.parametrize(
    ("gpu", "tp", "by_nccl"),
    [("L40S", 4, True), ("L40S", 2, False), ("L40S", 1, False), ("H100 SXM", 4, False), ("H100 PCIe", 4, True),
     ("MI300X", 4, False), ("GH200", 4, False), ("H100 SXM", 16, True)],
)  # fmt: skip
def test_captured_all_reduces_are_nccl_s_where_cards_meet_on_the_host(gpu: str, tp: int, by_nccl: bool) -> None:
    term = graphs_term(whole_stage(LLAMA), captured((0, 19), gpu, tp=tp), eager=False)
    assert (term.find("collectives") is not None) == by_nccl


def test_graphs_of_72b_on_four_l40s_are_those_of_its_start() -> None:
    term = graphs_term(whole_stage("Qwen/Qwen2.5-72B-Instruct"), captured((0, 19), "L40S", seqs=256, tp=4), eager=False)
    assert term.bytes / GiB == pytest.approx(2.62, rel=0.05)
    eager = graphs_term(whole_stage(LLAMA), captured((0, 19), "L40S", tp=4), eager=True)
    assert eager.bytes == 0


@pytest.mark.parametrize(
    ("gpu", "seqs", "count"), [("H100 SXM", 1024, 51), ("B200", 1024, 83), ("H100 SXM", 128, 35), ("RTX 4090", 2, 3)]
)
def test_captured_sizes(gpu: str, seqs: int, count: int) -> None:
    assert captured((0, 33), gpu, seqs=seqs).sizes == count


@pytest.mark.parametrize(
    ("version", "core", "seqs", "count"),
    [
        ((0, 9, 2), "V1", 64, 67),
        ((0, 5, 4), "V0", 320, 35),
        ((0, 8, 2), "V0", 320, 43),
        ((0, 7, 1), "V0", 128, 19),
        ((0, 9, 2), "V0", 1, 1),
    ],
)
def test_older_captures(version: tuple[int, ...], core: str, seqs: int, count: int) -> None:
    """Counts as start-up logs show them: every 8 to 512 in the first V1, to the number of sequences in V0, to 256 before 0.6."""
    capture = captured(version, seqs=seqs, core=core)
    assert capture.sizes == count
    assert capture.whole_sizes == 0


@pytest.mark.parametrize(("version", "core"), [((0, 5), "V0"), ((0, 8), "V0"), ((0, 9), "V1"), ((0, 10), "V1"), ((0, 33), "V1")])
def test_sizes_are_counted_as_the_list_of_them(version: tuple[int, ...], core: str) -> None:
    """The list as vLLM writes it: 1, 2, 4, every 8 below 256, then every 8, or every 16 from 0.11 on."""
    step = 16 if version >= (0, 11) and core == "V1" else 8
    ladder = [1, 2, 4, *range(8, 256, 8), *range(256, 1025, step)]
    for seqs in (1, 2, 3, 4, 5, 7, 8, 9, 31, 100, 127, 128, 200, 255, 256, 257, 300, 512, 1000):
        capture = captured(version, seqs=seqs, core=core)
        listed = [size for size in ladder if size <= capture.largest]
        decode = [size for size in listed if size <= seqs] if core == "V1" and version >= (0, 11) else []
        assert (capture.sizes, capture.whole_sizes, capture.largest_whole) == (len(listed), len(decode), max(decode, default=0))


def test_eager_captures_nothing() -> None:
    assert graphs_term(whole_stage(LLAMA), captured((0, 33)), eager=True).bytes == 0


@pytest.mark.parametrize(
    ("model", "tp", "printed"),
    [(LLAMA, 1, 0.91), (LLAMA, 2, 0.76), (LLAMA, 4, 0.67), ("Qwen/Qwen3-8B", 1, 0.96), ("Qwen/Qwen2.5-72B-Instruct", 2, 1.61)],
)
def test_graphs_of_an_h100_follow_layers_and_heads_per_rank(model: str, tp: int, printed: float) -> None:
    term = graphs_term(whole_stage(model), captured((0, 19), tp=tp), eager=False)
    assert term.bytes / GiB == pytest.approx(printed, rel=0.06)


@pytest.mark.parametrize(
    ("model", "version", "seqs", "fields", "printed"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", (0, 7, 1), 192, {"dequantizes": True}, 0.62),
        ("mistralai/Mistral-7B-Instruct-v0.3", (0, 8, 5), 224, {"dequantizes": True}, 0.70),
        ("Qwen/Qwen3-4B-Base", (0, 8, 5), 160, {}, 0.34),
    ],
)
def test_adapters_and_4_bit_slices_launch_kernels_of_their_own(model: str, version, seqs: int, fields, printed: float) -> None:
    """Graphs of the V0 engine under Unsloth on a T4 and a 24 GB card, as its logs print them."""
    capture = captured(version, "Tesla T4", seqs=seqs, core="V0", lora=True, **fields)
    assert graphs_term(whole_stage(model), capture, eager=False).bytes / GiB == pytest.approx(printed, rel=0.13)


def test_partial_outputs_are_flash_attention_3s_alone() -> None:
    hopper, ada = (
        graphs_term(whole_stage(LLAMA), captured((0, 19), gpu, seqs=256), eager=False).bytes for gpu in ("H100 SXM", "L40S")
    )
    assert hopper - ada == 32 * 256 * 4 * 32 * 128


def test_flashinfer_keeps_a_workspace_for_every_decode_size() -> None:
    """Llama-3.2-1B in fp8 with adapters on an L4, 0.11.2: the log's graphs take 1.15 GiB. Two wrappers lie in 20 MiB."""
    capture = captured((0, 11, 2), "L4", seqs=288, tokens=2048, lora=True, flashinfer=True)
    term = graphs_term(whole_stage("meta-llama/Llama-3.2-1B-Instruct"), capture, eager=False)
    assert term.find("flashinfer").bytes == 10 * capture.whole_sizes * 2**20
    assert term.bytes / GiB == pytest.approx(1.15, rel=0.2)


@pytest.mark.parametrize(
    ("model", "gpu", "version", "options", "printed"),
    [
        ("Qwen/Qwen3.5-9B", "L40S", "0.18.0", {}, 1.29),
        ("Qwen/Qwen3.6-35B-A3B", "DGX Spark", "0.20.0", {"max_cudagraph_capture_size": 1}, 0.47),
        ("Qwen/Qwen3-30B-A3B", "DGX Spark", "0.13.0", {}, 1.28),
    ],
)
def test_a_cache_in_fp8_is_flashinfers(model: str, gpu: str, version: str, options: dict[str, int], printed: float) -> None:
    """Start-up logs of November 2026's ninth look; its float workspace is in them where recurrent layers are."""
    question = Serving(model=model, context=4096, gpu=gpu, kv_dtype="fp8", engine_version=version, options=options)
    found = answer_of(question, model=read_model(model, offline=True), card=find_accelerator(gpu))
    graphs = max(t.bytes for i in found.ranks[0].instants for t in i.terms if t.name == "graphs")
    assert graphs / GiB == pytest.approx(printed, rel=0.06)


def test_drafts_leave_flashinfer_without_whole_graphs() -> None:
    drafting, plain = (captured((0, 20), "L40S", flashinfer=True, speculative=n) for n in (2, 0))
    assert (drafting.whole_sizes, plain.whole_sizes) == (0, 51)


def test_lora_slots_are_allocated_whether_or_not_an_adapter_is_there() -> None:
    slots = weights(LLAMA, options={"enable_lora": True, "max_lora_rank": 32, "max_loras": 2}).find("lora_slots")
    assert slots.bytes == 2 * 32 * 2 * 32 * 81_920


def test_lora_slots_of_old_versions_are_in_no_budget() -> None:
    def asked(version: str, **options: bool):
        options |= {"enforce_eager": True}
        question = Serving(model=LLAMA, context=4096, gpu="A100 80GB", engine_version=version, options=options)
        return answer_of(question, model=read_model(LLAMA, offline=True), card=find_accelerator("A100 80GB"))

    (old,), (plain,) = asked("0.7.1", enable_lora=True).ranks, asked("0.7.1").ranks
    slots = next(t for t in old.instants[0].terms if t.name == "workspace")
    assert slots.find("lora_slots").bytes == slots.bytes == old.device_bytes - plain.device_bytes > 0
    assert asked("0.7.1", enable_lora=True).cache.pool_bytes == asked("0.7.1").cache.pool_bytes
    assert asked("0.8.5", enable_lora=True).cache.pool_bytes < asked("0.8.5").cache.pool_bytes


def test_embeddings_have_slots_only_where_the_model_names_them() -> None:
    slots = weights("Qwen/Qwen3-4B-Base", engine_version="0.8.5", options={"enable_lora": True, "max_lora_rank": 32}).find(
        "lora_slots"
    )
    assert slots.bytes == 32 * 2 * 36 * 57_344


def test_segments_that_grow_are_not_rounded() -> None:
    """Qwen3-4B under Unsloth on 0.8.5: the log's weights with adapters of rank 32 are 7.6334 GiB."""
    options = {"enable_lora": True, "max_lora_rank": 32, "expandable_segments": True}
    grown = weights("Qwen/Qwen3-4B-Base", dtype="float16", engine_version="0.8.5", options=options)
    assert grown.find("rounding").bytes < 2**20
    assert grown.bytes / GiB == pytest.approx(7.6334, rel=0.002)


@pytest.mark.parametrize(
    ("model", "version", "sampler", "reserves"),
    [
        ("Qwen/Qwen3-8B", "0.21.0", "flashinfer", True),
        ("Qwen/Qwen3-8B", "0.22.0", "in_place", False),
        (LLAMA, "0.22.0", "flashinfer", True),
        (LLAMA, "0.25.1", "in_place", False),
        ("Qwen/Qwen3-30B-A3B", "0.25.1", "flashinfer", True),
        ("Qwen/Qwen3-30B-A3B", "0.33.0", "in_place", True),
        ("Qwen/Qwen3.5-27B", "0.27.1", "flashinfer", True),
        ("Qwen/Qwen3-Embedding-0.6B", "0.25.1", "flashinfer", True),
    ],
)
def test_the_second_runner_samples_in_place_and_at_first_reserved_no_graphs(
    model: str, version: str, sampler: str, reserves: bool
) -> None:
    resolved = VLLM.resolve(
        Serving(model=model, engine_version=version), read_model(model, offline=True), find_accelerator("L40S")
    )
    settings = settings_of(resolved)
    assert settings.sampler == sampler
    assert subtracts_graphs(settings) == reserves


# vLLM 0.31 on an A100: 1.44 GiB printed as the peak of a run whose forward takes 0.23; 35 whole graphs are held back for
@pytest.mark.parametrize(("version", "held_back"), [("0.25.1", 0), ("0.27.1", 0), ("0.31.0", 1.24)])
def test_the_printed_peak_holds_what_is_held_back_for_graphs(version: str, held_back: float) -> None:
    resolved = VLLM.resolve(
        Serving(model=LLAMA, engine_version=version), read_model(LLAMA, offline=True), find_accelerator("A100")
    )
    assert (printed_peak(resolved, 0) / GiB) == pytest.approx(held_back, abs=0.05)


def test_towers_that_are_not_profiled_are_loaded() -> None:
    question = Serving(model="Qwen/Qwen2.5-VL-7B-Instruct", context=4096)
    plain, skipped = (
        answer_of(msgspec.structs.replace(question, options=options), model=read_model(question.model, offline=True)).ranks[0]
        for options in ({}, {"skip_mm_profiling": True})
    )
    assert [instant.name for instant in plain.instants] == ["forward", "encoder", "sampling"]
    assert [instant.name for instant in skipped.instants] == ["forward", "sampling"]
    assert skipped.instants[0].terms[0] == plain.instants[0].terms[0]


def test_towers_of_transformers_are_not_cut() -> None:
    whole, cut = (weights(name, parallel=Parallel(tp=2)) for name in ("google/gemma-4-31B-it", "Qwen/Qwen2.5-VL-7B-Instruct"))
    assert whole.find("model.vision_tower.").why.startswith("575,741,232 elements x")
    assert "on all ranks" in cut.find("visual.").why


# vLLM 0.20 prints 7.75 GiB for a GPTQ-int4 Qwen2.5-Omni-7B: its voice, 3.57 GiB in 16 bits, is not loaded
def test_what_voices_the_text_is_not_loaded() -> None:
    found = weights("Qwen/Qwen2.5-Omni-7B")
    assert found.find("talker.") is None and found.find("token2wav.code2wav_dit_model.") is None
    assert found.find("thinker.audio_tower.")


def test_offloaded_weights_leave_the_card() -> None:
    plain, lighter = weights(LLAMA), weights(LLAMA, options={"cpu_offload_gb": 4})
    assert plain.bytes - lighter.bytes == 4 * GiB


def test_a_draft_model_stands_beside_the_target() -> None:
    draft = weights(LLAMA, options={"speculative_model": "meta-llama/Llama-3.2-1B-Instruct", "num_speculative_tokens": 4})
    assert draft.find("draft_model").bytes / GiB == pytest.approx(2.32, abs=0.02)


def test_deepseek_v4_keeps_two_wide_tables_and_the_streams_a_draft_reads() -> None:
    """vLLM 0.23 on two H200 NVL printed 74.08 GiB (a public probe's notes); V3.2 has the indexer's buffer alone."""
    name = "deepseek-ai/DeepSeek-V4-Flash"
    found = weights(
        name, engine_version="0.23.0", gpu="H200", gpus=2, parallel=Parallel(tp=2), options={"max_num_batched_tokens": 8192}
    )
    assert found.bytes / GiB == pytest.approx(74.08, abs=0.06)
    assert found.find("rotary_tables").bytes == 2 * 1_048_576 * 64 * 4
    assert found.find("buffers").bytes == 8192 * (512 * 4 + 4 * 4096 * 2)
    older = weights(
        "deepseek-ai/DeepSeek-V3.2-Exp", gpu="H200", gpus=8, parallel=Parallel(tp=8), options={"max_num_batched_tokens": 8192}
    )
    assert older.find("buffers").bytes == 8192 * 2048 * 4


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
    assert answer_of(question, model=read_model(name, offline=True)).cache.bytes_per_token == token


def test_latents_were_padded_to_640_before_0_8() -> None:
    model = read_model("deepseek-ai/DeepSeek-V2-Lite", offline=True)
    assert cache_types(model, None, "bfloat16", {}, (0, 7, 3)).latent_multiple == 128
    question = Serving(model=model.id, engine_version="0.7.3", context=4096)
    assert answer_of(question, model=model).cache.bytes_per_token == 27 * 640 * 2


def test_hybrid_blocks_hold_a_state_as_logs_print() -> None:
    """Block sizes of start-up logs: granite-4.0-h-small 528, Qwen3.6-35B-A3B with fp8 cache and two drafted tokens 2128."""
    granite = answer_of(Serving(model="x", context=4096), model=read_model("ibm-granite/granite-4.0-h-small", offline=True)).cache
    qwen = Serving(model="x", context=4096, kv_dtype="fp8", options={"speculative_method": "mtp", "num_speculative_tokens": 2})
    assert granite.block_tokens == 528
    assert answer_of(qwen, model=read_model("Qwen/Qwen3.6-35B-A3B", offline=True)).cache.block_tokens == 2128


def test_pictures_are_kept_through_the_profile_run() -> None:
    """Gemma-3-27B on 0.19: 32 pictures of 4,096 patches, 8,192 tokens handed on; the log's peak is 3.99 GiB."""
    options = {"max_num_batched_tokens": 8192, "max_num_seqs": 1024}
    question = Serving(model="x", engine_version="0.19.0", context=8192, options=options)
    model, card = read_model("google/gemma-3-27b-it", offline=True), find_accelerator("H100 SXM")
    logits = next(t for i in answer_of(question, model=model, card=card).ranks[0].instants for t in i.terms if t.name == "logits")
    assert logits.find("pixels").bytes == 32 * 4096 * 588 * 2
    assert logits.find("encoder_outputs").bytes == 8192 * 5376 * 2
    assert logits.bytes / GiB == pytest.approx(3.99, rel=0.01)


def test_a_dgx_spark_counts_the_growth_of_its_process_and_a_share_of_its_weights() -> None:
    """Mistral 7B in 4 bits (3.9 GiB) took 2.6 GiB more, Gemma 4 26B (15.7) 4.6, DeepSeek-V4-Flash (73) 3.6 and 8.2."""
    elsewhere = non_torch_term((0, 22), find_accelerator("H100 SXM"), tp=1, pp=1, weights=GiB).bytes
    for weights, grown in ((0, 2.3), (20 * GiB, 3.3)):
        spark = non_torch_term((0, 22), find_accelerator("GB10"), tp=1, pp=1, weights=weights).bytes
        assert spark - elsewhere == pytest.approx(grown * GiB, abs=1)


def test_a_dgx_spark_says_what_older_systems_show() -> None:
    told = [
        [a.name for a in VLLM.resolve(Serving(model="x", options=options), read_model(LLAMA, offline=True), card).assumed]
        for card in (find_accelerator("GB10"), find_accelerator("H100 SXM"))
        for options in ({}, {"gpu_total_bytes": 128_525_000_000})
    ]
    assert ["visible_memory" in names for names in told] == [True, False, False, False]


@pytest.mark.parametrize(("version", "tokens"), [("0.13.0", 65536), ("0.17.1", 16384), ("0.18.0", 100_000)])
def test_experts_take_a_step_in_chunks_until_0_18(version: str, tokens: int) -> None:
    options = {"max_num_batched_tokens": 100_000, "enforce_eager": True}
    question = Serving(model="x", engine_version=version, parallel=Parallel(tp=4), options=options)
    answer = answer_of(question, model=read_model("Qwen/Qwen3-235B-A22B", offline=True), card=find_accelerator("H200"))
    logits = next(t for i in answer.ranks[0].instants for t in i.terms if t.name == "logits")
    assert logits.find("moe_workspace").bytes == tokens * 8 * (4096 + 4096) * 2


def test_the_largest_image_of_qwen3s_towers_is_encoded_whole() -> None:
    """16,384 tokens of four patches each, whatever the step; the layers are cut over two ranks."""
    model = read_model("Qwen/Qwen3.8-27B-FP8", offline=True)
    (whole, cut) = (encoder_term(model, model.towers, 8192, 2, 2, tp=tp) for tp in (1, 2))
    assert whole.find("encoder_outputs").bytes == 16_384 * 5120 * 2
    assert cut.find("encoder_layer").bytes < whole.find("encoder_layer").bytes


def test_the_v0_engine_kept_joined_images_beside_those_it_was_given() -> None:
    """Qwen2.5-VL-7B in 4 bits under Unsloth on a T4, 0.9.2: the log's peak is 2.71 GiB."""
    options = {"engine_core": "V0", "max_num_batched_tokens": 16_384, "max_num_seqs": 1}
    question = Serving(model="x", engine_version="0.9.2", context=16_384, dtype="float16", quant="nf4-dq", options=options)
    model, card = read_model("Qwen/Qwen2.5-VL-7B-Instruct", offline=True), find_accelerator("Tesla T4")
    peak = next(t for t in answer_of(question, model=model, card=card).ranks[0].instants[0].terms if t.name == "activations")
    assert peak.find("pixels").bytes == 2 * 65_536 * 1176 * 2
    assert peak.find("dequantized").bytes == 3584 * 18_944 * 2
    assert peak.bytes / GiB == pytest.approx(2.71, rel=0.01)


@pytest.mark.parametrize(
    ("version", "caching", "blocks"),
    [
        ("0.13.0", True, 1),
        ("0.14.0", True, 2),
        ("0.14.0", False, 1),
        ("0.24.0", None, 1),
        ("0.25.0", None, 2),
        ("0.25.0", False, 1),
    ],
)
def test_states_kept_at_block_ends_take_a_second_block(version: str, caching: bool | None, blocks: int) -> None:
    """kv_cache_interface.py MambaSpec: two blocks where mamba_cache_mode is align, which prefix caching switches on."""
    name = "Qwen/Qwen3-Next-80B-A3B-Instruct"
    options = {} if caching is None else {"enable_prefix_caching": caching}
    question = Serving(model=name, engine_version=version, context=4096, options=options)
    resolved = engine("vllm").resolve(question, read_model(name, offline=True), None)
    assert settings_of(resolved).demand.state_blocks == blocks


@pytest.mark.parametrize(("gpu", "dtype"), [("T4", "float16"), ("A10", "bfloat16"), ("V100-32G", "float16")])
def test_weights_are_named_by_the_type_that_the_card_loads(gpu: str, dtype: str) -> None:
    answer = answer_of(Serving(model="meta-llama/Llama-3.1-8B-Instruct", gpu=gpu, context=512))
    weights = next(t for t in answer.ranks[0].peak.terms if t.name == "weights")
    assert f"parameters, {dtype}," in weights.why


@pytest.mark.parametrize(("version", "pooled"), [("0.33.0", False), ("0.10.1", False), ("0.8.5", True)])
def test_encoders_keep_no_keys(version: str, pooled: bool) -> None:
    """Since V1 reads them (vllm-project/vllm#21270); V0 gave them a pool as if they generated. None samples a token."""
    question = Serving(model="BAAI/bge-m3", gpu="RTX 4090", context=8192, engine_version=version)
    answer = answer_of(question, model=read_model(question.model, offline=True))
    names = {t.name: t.bytes for i in answer.ranks[0].instants for t in i.terms}
    assert bool(names.get("kv_cache")) is pooled
    assert "logits" not in names
    assert (answer.cache.pool_bytes > 0) is pooled
    assert serving_fit(answer, find_accelerator("RTX 4090")).verdict == "fits"


def second(version: str, **options):
    question = Serving(model=LLAMA, gpu="L4", engine="vllm", engine_version=version, context=4096, options=options)
    return answer_of(question, model=read_model(LLAMA, offline=True))


def test_counts_of_drawn_tokens_are_in_the_budget_since_all_that_is_used_is_read_off_the_device() -> None:
    """256 sequences of Llama's vocabulary: 4 bytes a token and a bit of the prompt's mask (vllm-project/vllm#52718)."""
    size = 256 * (128_256 + 128_256 // 32) * 4
    late, early = (second(version, enforce_eager=True, gpu_memory_utilization=0.92) for version in ("0.27.0", "0.26.0"))
    assert early.cache.pool_bytes - late.cache.pool_bytes == pytest.approx(size, abs=4 * 2**20)
    kept = [next(t for t in answer.ranks[0].instants[0].terms if t.name == "workspace") for answer in (late, early)]
    assert [term.bytes for term in kept] == [size, size]


def test_a_pooling_run_keeps_its_cache_and_draws_nothing() -> None:
    """Qwen3-Embedding and its like: keys and values are kept, no logits are made, and no decode graph is captured whole."""
    pooled, generates = second("0.33.0", runner="pooling"), second("0.33.0")
    assert "sampling" not in {instant.name for instant in pooled.ranks[0].instants}
    assert "workspace" not in {t.name for t in pooled.ranks[0].instants[0].terms}
    assert pooled.cache.pool_bytes > generates.cache.pool_bytes
    assert captured((0, 33), pools=True).whole_sizes == 0 < captured((0, 33)).whole_sizes


def test_a_name_that_says_embedding_pools_unless_told_otherwise() -> None:
    model = read_model(LLAMA, offline=True)
    named = msgspec.structs.replace(model, id="Qwen/Qwen3-Embedding-8B")
    assert pools(named, {}) and not pools(named, {"runner": "generate"})
    assert not pools(model, {}) and pools(model, {"runner": "pooling"})
    assert pools(msgspec.structs.replace(model, architecture="LlamaForSequenceClassification"), {})


def test_few_small_graphs_work_in_a_small_pool() -> None:
    """Sizes up to 4 took 0.03 GiB on a start of an AWQ model where sizes up to 512 would have 64 MiB for the pool alone."""
    few, many = (graphs_term(whole_stage(LLAMA), captured((0, 19), "L4", seqs=s), eager=False) for s in (2, 256))
    assert few.find("pool").bytes == round((64 * 4 / 512 + 1.9 * 3) * 2**20)
    assert many.find("pool").bytes == round((64 + 1.9 * 51) * 2**20)


def test_an_unknown_card_has_no_partial_outputs_of_hopper() -> None:
    capture = Capture(version=(0, 19), max_seqs=256, max_tokens=8192, card=None)
    assert graphs_term(whole_stage(LLAMA), capture, eager=False).find("partial_outputs") is None


@pytest.mark.parametrize(
    ("name", "tiles", "each", "patches"),
    [
        ("OpenGVLab/InternVL2-2B", 13, 256, 1024),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 17, 144, 576),
        ("llava-hf/llava-1.5-7b-hf", 1, 576, 576),
    ],
)
def test_the_largest_image_is_cut_into_tiles_of_the_tower_s_size(name: str, tiles: int, each: int, patches: int) -> None:
    """InternVL: max_dynamic_patch 12 and a thumbnail, 3,328 tokens; Llama 4: max_patches 16 and the whole, 2,448."""
    model = read_model(name, offline=True)
    tower = vision_tower(model.towers)
    one = images_of(model, tower, 1)
    assert (one.tokens, one.patches) == (tiles * each, tiles * patches)
    assert images_of(model, tower, 8192).tokens == 8192 // (tiles * each) * tiles * each


def test_an_internvl_of_one_size_is_not_cut() -> None:
    raw = {
        "model_type": "internvl_chat", "dynamic_image_size": False, "max_dynamic_patch": 12, "use_thumbnail": True,
        "llm_config": {"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
                       "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 100},
        "vision_config": {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
                          "image_size": 448, "patch_size": 14},
    }  # fmt: skip
    tower = vision_tower(read_config(raw).towers)
    assert tower.facts["largest_tiles"] == 1
    assert vision_tower(read_config({**raw, "dynamic_image_size": True}).towers).facts["largest_tiles"] == 13
    assert (
        vision_tower(read_config({**raw, "dynamic_image_size": True, "max_dynamic_patch": 1}).towers).facts["largest_tiles"] == 1
    )
