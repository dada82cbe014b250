"""The models of the sweep: published widths by four layers, and every other class that trains, widened from its smallest form."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from activation_kinds import KINDS as SMALL
from activation_kinds import LORA_TARGETS, SEQUENTIAL
from activation_kinds import config_of as small_config

LAYERS = 4
WIDER = 4
"""A small config's widths and heads grow by this, its vocabulary by twice this: blocks then outgrow the allocator's roundings."""
_WIDTHS = frozenset({
    "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "n_embd", "n_head", "n_inner",
    "d_model", "num_heads", "n_heads", "d_ff", "ffn_dim", "encoder_attention_heads", "decoder_attention_heads",
    "encoder_ffn_dim", "decoder_ffn_dim", "dim", "hidden_dim", "embedding_size", "word_embed_proj_dim", "attention_heads",
    "num_kv_heads", "kv_n_heads", "ffn_hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size",
    "shared_intermediate_size", "q_lora_rank", "kv_lora_rank", "intermediate_size_mlp", "mamba_n_heads", "mamba_d_ssm",
    "mamba_num_heads", "n_mamba_heads", "lru_width", "linear_num_key_heads", "linear_num_value_heads",
    "attention_hidden_size", "num_global_key_value_heads", "hidden_size_per_layer_input",
})  # fmt: skip


def _sizes(hidden: int, inner: int, heads: int, kv: int, vocab: int, **more: Any) -> dict[str, Any]:
    shape = {"hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv}
    return {**shape, "vocab_size": vocab, "num_hidden_layers": LAYERS, "pad_token_id": None, **more}


PUBLISHED: dict[str, dict[str, Any]] = {
    "llama": _sizes(2048, 8192, 32, 8, 128256, head_dim=64, tie_word_embeddings=True),
    "mistral": _sizes(4096, 14336, 32, 8, 32000, sliding_window=1024),
    "qwen2": _sizes(3584, 18944, 28, 4, 152064),
    "qwen3": _sizes(1024, 3072, 16, 8, 151936, head_dim=128, tie_word_embeddings=True),
    "gemma2": _sizes(2304, 9216, 8, 4, 256000, head_dim=256, sliding_window=1024),
    "gemma3_text": _sizes(1152, 6912, 4, 1, 262144, head_dim=256, sliding_window=512),
    "phi3": _sizes(3072, 8192, 32, 32, 32064),
    "phi": _sizes(2560, 10240, 32, 32, 51200, partial_rotary_factor=0.4),
    "olmo2": _sizes(4096, 11008, 32, 32, 100352),
    "granite": _sizes(4096, 12800, 32, 8, 49155),
    "glm4": _sizes(4096, 13696, 32, 2, 151552, head_dim=128, partial_rotary_factor=0.5),
    "stablelm": _sizes(2560, 6912, 32, 32, 50304, partial_rotary_factor=0.25),
    "starcoder2": _sizes(3072, 12288, 24, 2, 49152),
    "cohere": _sizes(4096, 11008, 32, 8, 64000),
    "gpt_neox": _sizes(2048, 8192, 8, 8, 50304, rotary_pct=0.25, use_parallel_residual=True),
    "gpt2": {"n_embd": 1024, "n_head": 16, "n_layer": LAYERS, "vocab_size": 50257, "n_positions": 2048},
    "opt": {"hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "num_hidden_layers": LAYERS, "vocab_size": 50272},
    "mixtral": _sizes(2048, 4096, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
    "qwen3_moe": _sizes(
        2048, 6144, 32, 4, 151936, head_dim=128, moe_intermediate_size=768, num_experts=32, num_experts_per_tok=8,
    ),
    "olmoe": _sizes(2048, 1024, 16, 16, 50304, num_experts=32, num_experts_per_tok=8),
    "gpt_oss": _sizes(2880, 2880, 64, 8, 201088, head_dim=64, num_local_experts=8, num_experts_per_tok=4),
    "deepseek_v3": _sizes(
        2048, 10944, 16, 16, 102400, moe_intermediate_size=1408, n_routed_experts=16, num_experts_per_tok=6, n_shared_experts=2,
        q_lora_rank=None, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, first_k_dense_replace=1,
        n_group=1, topk_group=1,
    ),
    "deepseek_v2": _sizes(
        2048, 10944, 16, 16, 102400, moe_intermediate_size=1408, n_routed_experts=16, num_experts_per_tok=6, n_shared_experts=2,
        q_lora_rank=None, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, first_k_dense_replace=1,
    ),
    "glm4_moe": _sizes(
        4096, 10944, 96, 8, 151552, head_dim=128, moe_intermediate_size=1408, n_routed_experts=16, num_experts_per_tok=8,
        n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, partial_rotary_factor=0.5, use_qk_norm=True,
    ),
    "granitemoe": _sizes(1536, 512, 24, 8, 49155, num_local_experts=40, num_experts_per_tok=8),
    "bamba": _sizes(
        4096, 14336, 32, 8, 128000, attn_layer_indices=[1], mamba_n_heads=128, mamba_d_head=64, mamba_d_state=128,
        mamba_n_groups=1, mamba_expand=2,
    ),
    "lfm2": _sizes(
        2048, 8192, 32, 8, 65536, block_auto_adjust_ff_dim=False, layer_types=["conv", "conv", "full_attention", "conv"],
    ),
    "bert": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": LAYERS,
        "vocab_size": 30522, "max_position_embeddings": 2048, "architectures": ["BertForMaskedLM"],
    },
    "t5": {
        "d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_heads": 16, "num_layers": LAYERS, "vocab_size": 32128,
        "decoder_start_token_id": 0, "architectures": ["T5ForConditionalGeneration"],
    },
}  # fmt: skip

_TEXT = _sizes(2048, 6144, 16, 4, 64000)
_EYE = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": LAYERS}
_QWEN_EYE = {"depth": LAYERS, "num_heads": 16, "out_hidden_size": 2048, "intermediate_size": 3420}
TOWERS: dict[str, dict[str, Any]] = {
    "gemma3": {"text_config": PUBLISHED["gemma3_text"], "vision_config": _EYE | {"image_size": 896, "patch_size": 14}},
    "llava": {"text_config": {"model_type": "llama", **_TEXT}, "vision_config": {"model_type": "clip_vision_model", **_EYE}},
    "qwen2_5_vl": {"text_config": _TEXT, "vision_config": _QWEN_EYE | {"hidden_size": 1280}},
    "qwen3_vl": {
        "text_config": _TEXT | {"head_dim": 128},
        "vision_config": _QWEN_EYE | {"hidden_size": 1024, "deepstack_visual_indexes": [1, 2]},
    },
    "mistral3": {"text_config": {"model_type": "mistral", **_TEXT}, "vision_config": {"model_type": "pixtral", **_EYE}},
    "mllama": {
        "text_config": _TEXT | {"cross_attention_layers": [1], "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        "vision_config": {
            "hidden_size": 1280, "intermediate_size": 5120, "attention_heads": 16, "num_hidden_layers": LAYERS,
            "num_global_layers": 2, "intermediate_layers_indices": [1, 2], "image_size": 560, "patch_size": 14,
            "vision_output_dim": 3840,
        },
    },
    "paligemma": {"text_config": {"model_type": "gemma", **_TEXT, "head_dim": 128}, "vision_config": _EYE, "hidden_size": 2048},
}  # fmt: skip
"""Models that see, asked for text alone: their towers rest."""

TIED = frozenset({"llama", "qwen3", "gemma2", "gemma3_text", "starcoder2", "cohere", "gpt2", "opt", "bert", "t5"})
_PLAIN_SCANS = frozenset({
    "bamba", "granitemoehybrid", "falcon_h1", "nemotron_h", "zamba2", "mamba2", "mamba", "falcon_mamba", "jamba", "qwen3_next",
    "qwen3_5_text", "qwen3_5_moe_text", "recurrent_gemma", "rwkv", "minimax",
})  # fmt: skip
_SHORT = ("distilbert", "electra", "deberta-v2")  # 512 positions by their class
_CLASSES = {
    "distilbert": "DistilBertForMaskedLM", "deberta-v2": "DebertaV2ForMaskedLM", "modernbert": "ModernBertForMaskedLM",
    "mllama": "MllamaForConditionalGeneration",
}  # fmt: skip
"""What checkpoints name, where the smallest form names nothing."""
KINDS = (*PUBLISHED, *(kind for kind in SMALL if kind not in PUBLISHED), *TOWERS)


def config_of(kind: str) -> dict[str, Any]:
    """The config.json of a kind."""
    stored = {"model_type": kind, "dtype": "bfloat16"}
    if kind in _CLASSES:
        stored["architectures"] = [_CLASSES[kind]]
    if kind in PUBLISHED:
        return stored | {"tie_word_embeddings": kind in TIED, **PUBLISHED[kind]}
    if kind in TOWERS:
        return stored | TOWERS[kind]
    widened: dict[str, Any] = _widened(small_config(kind), skip=("num_heads",) if kind == "mamba2" else ())
    more = {"num_heads": 64} if kind == "mamba2" else {"max_position_embeddings": 2048} if kind in _SHORT else {}
    return stored | widened | more


def options_of(kind: str) -> dict[str, Any]:
    """What the question says beside: scans run in plain torch here, where no kernels are installed."""
    return {"scan": "torch"} if kind in _PLAIN_SCANS else {}


def targets_of(kind: str) -> tuple[str, ...]:
    """What LoRA reaches: every linear layer, where PEFT takes it."""
    return LORA_TARGETS.get(kind, ("all-linear",))


def shapes_of(kind: str) -> tuple[tuple[int, int], ...]:
    """Micro-batches and tokens that a kind is asked for."""
    if kind in SEQUENTIAL:
        return ((2, 64),)
    return ((1, 256), (1, 2048)) if kind in PUBLISHED else ((2, 1024),)


def _widened(config: dict[str, Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        factor = 2 * WIDER if name.startswith("vocab_size") else WIDER if name in _WIDTHS and name not in skip else 1
        found[name] = _widened(value) if isinstance(value, dict) else value * factor if factor > 1 else value
    return found
