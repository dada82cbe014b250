"""The kinds of layers that truth/traced/activations.jsonl holds: small widths of each class's real structure, by model_type."""

from typing import Any

WIDTHS: dict[str, Any] = {
    "hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096,
    "pad_token_id": 0,
}  # fmt: skip
_WHOLE = {k: v for k, v in WIDTHS.items() if k != "num_key_value_heads"}  # as many keys as queries
_GPT = {"n_embd": 512, "n_head": 8, "vocab_size": 4096, "n_positions": 1024}
_MOE = WIDTHS | {"moe_intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4}
_ROUTED = _MOE | {"n_routed_experts": 16, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 0}
_LATENT = WIDTHS | {
    "num_key_value_heads": 8, "q_lora_rank": 192, "kv_lora_rank": 128, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64,
        "v_head_dim": 64,
}  # fmt: skip
_MAMBA2 = {"mamba_n_heads": 16, "mamba_d_head": 64, "mamba_d_state": 64, "mamba_n_groups": 1, "mamba_expand": 2}
_SEQ2SEQ = {
    "d_model": 512, "encoder_attention_heads": 8, "decoder_attention_heads": 8, "encoder_ffn_dim": 1408,
        "decoder_ffn_dim": 1408,
    "vocab_size": 4096,
}  # fmt: skip
_T5 = {"d_model": 512, "d_kv": 64, "d_ff": 1408, "num_heads": 8, "vocab_size": 4096, "decoder_start_token_id": 0}

DENSE: dict[str, dict[str, Any]] = {
    "llama": WIDTHS,
    "mistral": WIDTHS | {"head_dim": 96, "sliding_window": 256},
    "qwen2": WIDTHS,
    "qwen3": WIDTHS | {"head_dim": 128},
    "gemma": WIDTHS | {"head_dim": 128},
    "gemma2": WIDTHS | {"head_dim": 128, "sliding_window": 256},
    "gemma3_text": WIDTHS | {"head_dim": 128, "sliding_window": 256},
    "phi3": WIDTHS,
    "olmo": WIDTHS,
    "olmo2": WIDTHS,
    "olmo3": WIDTHS,
    "granite": WIDTHS,
    "stablelm": WIDTHS,
    "starcoder2": WIDTHS,
    "glm": WIDTHS | {"head_dim": 64},
    "glm4": WIDTHS | {"head_dim": 64},
    "cohere": WIDTHS,
    "cohere2": WIDTHS,
    "smollm3": WIDTHS,
    "nemotron": WIDTHS,
    "exaone4": WIDTHS,
    "internlm3": WIDTHS,
    "helium": WIDTHS | {"head_dim": 64},
    "ministral": WIDTHS | {"head_dim": 96},
    "ministral3": WIDTHS,
    "seed_oss": WIDTHS,
    "arcee": WIDTHS,
    "apertus": WIDTHS,
    "hunyuan_v1_dense": WIDTHS | {"head_dim": 96},
    "ernie4_5": WIDTHS,
    "nanochat": WIDTHS,
    "vaultgemma": WIDTHS | {"head_dim": 64},
    "diffllama": WIDTHS,
    "jais2": WIDTHS,
    "bitnet": WIDTHS,
    "falcon": {
        "hidden_size": 512, "num_attention_heads": 8, "num_kv_heads": 4, "vocab_size": 4096, "new_decoder_architecture": True,
    },
    "cwm": WIDTHS | {"head_dim": 64},
    "gemma3n_text": WIDTHS | {"head_dim": 128, "num_kv_shared_layers": 0, "laurel_rank": 16, "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 4096, "layer_types": ["full_attention"] * 3, "activation_sparsity_pattern": [0.0] * 3},
    "gemma4_text": WIDTHS | {"head_dim": 128, "global_head_dim": 128, "num_global_key_value_heads": 4, "sliding_window": 256,
        "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 4096},
    "gpt_neox": _WHOLE,
    "gpt2": _GPT,
    "gptj": _GPT | {"rotary_dim": 32},
    "gpt_neo": {"hidden_size": 512, "num_heads": 8, "vocab_size": 4096, "attention_types": [[["local", "global"], 1],
        [["local"], 1]], "num_layers": 3},
    "gpt_bigcode": _GPT,
    "codegen": _GPT | {"rotary_dim": 32},
    "opt": _WHOLE | {"ffn_dim": 1408, "word_embed_proj_dim": 512},
    "bloom": {"hidden_size": 512, "n_head": 8, "vocab_size": 4096},
    "mpt": {"d_model": 512, "n_heads": 8, "vocab_size": 4096, "max_seq_len": 2048},
    "phi": WIDTHS,
    "persimmon": _WHOLE,
    "biogpt": _WHOLE,
    "xglm": {"d_model": 512, "ffn_dim": 1408, "attention_heads": 8, "vocab_size": 4096},
}  # fmt: skip

MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": WIDTHS | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": _MOE | {"shared_expert_intermediate_size": 512},
    "qwen3_moe": _MOE | {"head_dim": 128},
    "olmoe": WIDTHS | {"intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4},
    "flex_olmo": WIDTHS | {"intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4},
    "gpt_oss": WIDTHS | {"head_dim": 64, "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 4},
    "phimoe": WIDTHS | {"intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2},
    "granitemoe": WIDTHS | {"intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2},
    "granitemoeshared": WIDTHS | {
        "intermediate_size": 512, "num_local_experts": 8, "num_experts_per_tok": 2, "shared_intermediate_size": 256,
    },
    "dbrx": {
        "d_model": 512, "n_heads": 8, "vocab_size": 4096,
        "attn_config": {"kv_n_heads": 4, "clip_qkv": 8.0, "rope_theta": 10000.0}, "ffn_config": {"ffn_hidden_size": 512,
        "moe_num_experts": 8, "moe_top_k": 2},
    },
    "llama4_text": WIDTHS | {
        "head_dim": 64, "intermediate_size": 512, "intermediate_size_mlp": 1024, "num_local_experts": 8,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
    },
    "ernie4_5_moe": _MOE | {"moe_num_experts": 16, "moe_k": 4, "moe_layer_start_index": 0, "moe_num_shared_experts": 1},
    "hunyuan_v1_moe": _MOE | {"moe_topk": 4, "num_shared_expert": 1, "head_dim": 64},
    "glm4_moe": _ROUTED | {"head_dim": 64},
    "dots1": _ROUTED | {"num_key_value_heads": 8, "head_dim": 64},
    "minimax_m2": _MOE | {"intermediate_size": 512, "num_local_experts": 16, "head_dim": 64},
    "afmoe": _MOE | {"head_dim": 64, "num_dense_layers": 0, "num_shared_experts": 1},
    "exaone_moe": _ROUTED | {"head_dim": 64, "num_shared_experts": 1},
    "solar_open": _ROUTED | {"head_dim": 64},
    "deepseek_v2": _ROUTED | _LATENT,
    "deepseek_v3": _ROUTED | _LATENT,
    "glm4_moe_lite": _ROUTED | _LATENT,
    "mellum": _MOE | {"head_dim": 64},
    "laguna": _MOE | {"head_dim": 64},
    "cohere2_moe": _MOE | {"num_shared_experts": 1, "first_k_dense_replace": 0},
    "hy_v3": _MOE | {"head_dim": 64, "num_shared_experts": 1, "first_k_dense_replace": 0},
    "minicpm3": _LATENT,
    "youtu": _LATENT,
}  # fmt: skip

STATEFUL: dict[str, dict[str, Any]] = {
    "mamba": {"hidden_size": 512, "state_size": 16, "vocab_size": 4096, "expand": 2},
    "falcon_mamba": {"hidden_size": 512, "state_size": 16, "vocab_size": 4096, "expand": 2},
    "mamba2": {"hidden_size": 512, "num_heads": 16, "head_dim": 64, "state_size": 64, "vocab_size": 4096, "n_groups": 1},
    "jamba": WIDTHS | {"attn_layer_period": 2, "attn_layer_offset": 0, "expert_layer_period": 2, "expert_layer_offset": 0,
        "num_experts": 8, "num_experts_per_tok": 2},
    "zamba2": WIDTHS | {"num_key_value_heads": 8, "mamba_expand": 2, "mamba_d_state": 64, "n_mamba_heads": 16,
        "layers_block_type": ["hybrid", "mamba", "hybrid"], "num_mem_blocks": 1, "use_shared_attention_adapter": False},
    "bamba": WIDTHS | _MAMBA2 | {"attn_layer_indices": [0]},
    "granitemoehybrid": WIDTHS | _MAMBA2 | {
        "layer_types": ["attention", "mamba", "attention"], "num_local_experts": 8, "num_experts_per_tok": 2,
        "shared_intermediate_size": 256, "intermediate_size": 512,
    },
    "falcon_h1": WIDTHS | _MAMBA2 | {"head_dim": 64, "mamba_d_ssm": 1024},
    "nemotron_h": WIDTHS | {"head_dim": 64, "hybrid_override_pattern": "-M*", "mamba_num_heads": 16, "mamba_head_dim": 64,
        "ssm_state_size": 64, "n_groups": 1},
    "qwen3_next": _MOE | {
        "head_dim": 128, "shared_expert_intermediate_size": 256, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64, "layer_types": ["full_attention", "linear_attention",
        "full_attention"],
    },
    "qwen3_5_text": WIDTHS | {
        "head_dim": 128, "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "layer_types": ["full_attention", "linear_attention", "full_attention"],
    },
    "qwen3_5_moe_text": _MOE | {
        "head_dim": 128, "shared_expert_intermediate_size": 256, "linear_num_key_heads": 4, "linear_num_value_heads": 8,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64, "layer_types": ["full_attention", "linear_attention",
        "full_attention"],
    },
    "lfm2": WIDTHS | {"layer_types": ["full_attention", "conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "lfm2_moe": _MOE | {"layer_types": ["full_attention", "conv", "full_attention"], "num_dense_layers": 0},
    "recurrent_gemma": WIDTHS | {"lru_width": 512, "block_types": ["attention", "recurrent", "attention"], "head_dim": 64},
    "minimax": WIDTHS | {"layer_types": ["full_attention", "linear_attention", "full_attention"], "num_local_experts": 8,
        "num_experts_per_tok": 2, "head_dim": 64},
    "rwkv": {"hidden_size": 512, "attention_hidden_size": 512, "intermediate_size": 1408, "vocab_size": 4096},
}  # fmt: skip

ENCODERS: dict[str, dict[str, Any]] = {
    "bert": _WHOLE | {"architectures": ["BertForMaskedLM"]},
    "roberta": _WHOLE | {"architectures": ["RobertaForMaskedLM"]} | {"max_position_embeddings": 1026,
        "pad_token_id": 1},
    "distilbert": {"dim": 512, "hidden_dim": 1408, "n_heads": 8, "vocab_size": 4096},
    "electra": _WHOLE | {"architectures": ["ElectraForMaskedLM"]} | {"embedding_size": 512},
    "deberta-v2": _WHOLE,
    "modernbert": _WHOLE | {"local_attention": 128, "global_attn_every_n_layers": 2},
    "t5": _T5,
    "mt5": _T5 | {"feed_forward_proj": "gated-gelu"},
    "bart": _SEQ2SEQ | {"architectures": ["BartForConditionalGeneration"]},
    "mbart": _SEQ2SEQ | {"architectures": ["MBartForConditionalGeneration"]},
    "pegasus": _SEQ2SEQ | {"architectures": ["PegasusForConditionalGeneration"]},
}  # fmt: skip

KINDS = DENSE | MIXTURES | STATEFUL | ENCODERS
_DEPTHS = {"gpt2": "n_layer", "gptj": "n_layer", "gpt_bigcode": "n_layer", "codegen": "n_layer", "bloom": "n_layer",
    "mpt": "n_layers",
    "dbrx": "n_layers", "gpt_neo": "", "xglm": "num_layers", "distilbert": "n_layers", "t5": "num_layers", "mt5": "num_layers",
    "bart": "encoder_layers", "mbart": "encoder_layers", "pegasus": "encoder_layers"}  # fmt: skip


# Traced in every variant and shape.
CORE = frozenset({
    "llama", "mistral", "qwen2", "gemma2", "phi3", "cohere", "gpt_neox", "gpt2", "falcon", "mixtral", "qwen3_moe", "gpt_oss",
    "deepseek_v3",
})  # fmt: skip
SEQUENTIAL = frozenset({"mamba", "falcon_mamba", "jamba", "recurrent_gemma", "rwkv"})  # their scans run token by token
LORA_TARGETS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("mamba2", "bamba", "granitemoehybrid", "falcon_h1", "nemotron_h", "zamba2", "mamba", "falcon_mamba", "jamba"),
    ("in_proj", "q_proj"),
)  # PEFT refuses the output projection
LAYERS = 3


def config_of(kind: str) -> dict[str, Any]:
    """The config.json of a kind, of three layers."""
    depth = _DEPTHS.get(kind, "num_hidden_layers")
    more = {"decoder_layers": LAYERS} if depth == "encoder_layers" else {}
    return {"model_type": kind, **KINDS[kind], **({depth: LAYERS} if depth else {}), **more}
