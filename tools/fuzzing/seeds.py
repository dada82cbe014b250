"""Valid files of every kind, made by script: what the project writes itself, its tests' own samples, and a few trees."""

import ast
import json
import pickle
import struct
import sys
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/models/sources"), str(ROOT / "tests/profiling")]

import small_checkpoint as small  # noqa: E402 (from the tests' own folder)
import trace_events as traces  # noqa: E402


@cache
def texts_of(*files: str) -> tuple[str, ...]:
    """The longer text constants of modules of the tests: logs, listings and configurations as people paste them."""
    found = []
    for name in files:
        for path in sorted(ROOT.glob(name)):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return tuple(text for text in found if len(text) >= 60 and not text.startswith("http"))


@cache
def samples() -> tuple[str, ...]:
    """Artefacts that start engines: the samples of the tests."""
    folder = ROOT / "tests/reading/serving/samples"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "expected.toml"]
    return tuple(path.read_text(encoding="utf-8") for path in files)


def configs() -> list[dict[str, Any]]:
    """A small config.json of every family that one of a few sets of keys completes."""
    from vramcast.errors import VramcastError
    from vramcast.models.families import model_types
    from vramcast.models.sources.described import from_config

    rope = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}}
    counts = {"num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2}
    experts = counts | {"moe_intermediate_size": 64, "n_shared_experts": 1, "first_k_dense_replace": 1}
    latent = {"kv_lora_rank": 32, "q_lora_rank": 48, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
    windows = {"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"]}
    linear = {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 2}
    tower = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 56,
        "patch_size": 14,
    }
    parts = {"vision_config": tower, "text_config": small.CONFIG}
    extras = ({}, rope, experts, experts | latent, windows, linear, linear | experts, parts)
    found = []
    for kind in sorted(model_types()):
        for extra in extras:
            raw = small.CONFIG | extra | {"model_type": kind}
            try:
                from_config(raw, name="seed", where="config.json")
            except VramcastError:
                continue
            found.append(raw)
    return found


def schemes() -> list[dict[str, Any]]:
    """A quantization_config of each method."""
    group = {
        "weights": {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group", "symmetric": True},
        "targets": ["Linear"],
    }
    return [
        {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic", "ignored_layers": ["lm_head"]},
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "desc_act": True,
            "dynamic": {"-:mlp.*": {}, "+:.*q_proj": {"bits": 8}},
        },
        {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "modules_to_not_convert": ["visual", "lm_head"]},
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": group},
            "ignore": ["re:.*gate"],
        },
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
            "exclude_modules": ["lm_head", "*.mixer*"],
        },
        {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}}, "exclude": ["lm_head"]},
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}}}},
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}},
        {"quant_method": "aqlm", "num_codebooks": 1, "nbits_per_codebook": 16, "in_group_size": 8, "out_group_size": 1},
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": {"lm_head": {"bits": 16}}},
    ]


def gguf_values() -> dict[str, Any]:
    """Metadata of a small GGUF file, as a tree."""
    numbers = {"block_count": 2, "context_length": 2048, "embedding_length": 64, "feed_forward_length": 128, "vocab_size": 96}
    heads = {"attention.head_count": 4, "attention.head_count_kv": 2, "rope.freq_base": 10000.0, "expert_count": 0}
    return {
        "general.architecture": "llama",
        "general.file_type": 15,
        "tokenizer.ggml.tokens": [f"t{n}" for n in range(96)],
        **{f"llama.{key}": value for key, value in {**numbers, **heads}.items()},
    }


def gguf_of(values: dict[str, Any]) -> bytes:
    """A GGUF file with these values; what has no type of the format is written as text."""
    return small.gguf_bytes([small.pair(str(key), *_typed(value)) for key, value in values.items()])


def _typed(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, bytes([value])
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return (4, struct.pack("<I", value)) if 0 <= value < 2**32 else (11, struct.pack("<q", value))
    if isinstance(value, float):
        return 12, struct.pack("<d", value)
    if isinstance(value, list) and value and not isinstance(value[0], list):
        kind, _ = _typed(value[0])
        return 9, struct.pack("<IQ", kind, len(value)) + b"".join(_typed(one)[1] for one in value)
    data = str(value).encode("utf-8", "replace")
    return 8, struct.pack("<Q", len(data)) + data


def snapshot() -> dict[str, Any]:
    """A small memory recording: one segment, two blocks, a few events."""
    frames = [{"name": "forward", "filename": "model.py", "line": 12}]
    blocks = [
        {"size": 1024, "requested_size": 1000, "state": "active_allocated", "address": 0, "frames": frames},
        {"size": 2096128, "requested_size": 0, "state": "inactive", "address": 1024, "frames": []},
    ]
    segment = {
        "address": 0,
        "total_size": 2097152,
        "allocated_size": 1024,
        "active_size": 1024,
        "requested_size": 1000,
        "stream": 0,
        "segment_type": "small",
        "blocks": blocks,
        "device": 0,
        "is_expandable": False,
    }
    actions = [("segment_alloc", 0, 2097152), ("alloc", 0, 1024), ("free_requested", 0, 1024), ("free_completed", 0, 1024)]
    events = [{"action": a, "addr": at, "size": size, "stream": 0, "frames": frames} for a, at, size in [*actions, actions[1]]]
    return {"segments": [segment], "device_traces": [events], "allocator_settings": {"expandable_segments": False}}


def pickled(tree: Any) -> bytes:
    """The tree as torch writes it."""
    return pickle.dumps(tree, protocol=4)


def trace() -> dict[str, Any]:
    """A step of a profiler trace: launches, kernels, a copy, a collective."""
    return traces.document(
        [
            traces.annotation("ProfilerStep#1", 0, 1000),
            traces.call(5, 3, 1),
            traces.kernel(traces.GEMM, 20, 300, correlation=1),
            traces.call(30, 3, 2),
            traces.kernel(traces.ADD, 330, 40, correlation=2),
            traces.copy("Memcpy HtoD", 400, 50, size=4096),
            traces.kernel(traces.REDUCE, 460, 200, stream=9),
            traces.annotation("ProfilerStep#2", 1000, 900),
            traces.kernel(traces.GEMM, 1200, 300, correlation=3),
        ]
    )


@cache
def rows() -> tuple[dict[str, Any], ...]:
    """Measured rows of every form: the project's own corpus."""
    found = []
    for name in ("inference_memory", "training_speed", "training_oom", "llama_cpp_load_logs", "speed/community_speed"):
        lines = (ROOT / "truth" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        found += [json.loads(line) for line in lines[:: max(1, len(lines) // 40)]]
    return tuple(found)


@cache
def emitted() -> tuple[str, ...]:
    """Training files of every kind that the project writes."""
    import vramcast
    from vramcast.asking.training import training_question
    from vramcast.writing.training.files import emitted as written
    from vramcast.writing.training.files import framework_for

    model = vramcast.read_model("meta-llama/Llama-3.1-8B")
    found = []
    for kind in ("torchtitan", "megatron", "llama_factory", "axolotl", "accelerate", "deepspeed"):
        words = {"framework": framework_for(kind), "micro_batch": 1, "seq": 4096, **_sharded(kind)}
        found.append(written(kind, training_question("meta-llama/Llama-3.1-8B", gpu="H100x8", **words).question, model))
    return tuple(found)


def _sharded(kind: str) -> dict[str, Any]:
    return {"zero": 3} if kind == "deepspeed" else {"fsdp": 2} if kind == "accelerate" else {}
