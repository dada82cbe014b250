"""One row per GGUF architecture: the ``model_type`` whose family reads it and the keys that are its own.

``keys``: config.json field <- GGUF key after ``<arch>.``; ``fixed``: fields that the architecture implies; ``special``: the
step in ``gguf.py`` that works out what no single key says. Source of keys: llama.cpp, src/models/<arch>.cpp (load_arch_hparams).
"""

from typing import Any

import msgspec


class Architecture(msgspec.Struct, frozen=True):
    """How one GGUF architecture's keys become a config.json."""

    model_type: str
    keys: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    special: str = ""


_EXPERTS = {"num_experts": "expert_count", "moe_intermediate_size": "expert_feed_forward_length"}
_SHARED = {"shared_expert_intermediate_size": "expert_shared_feed_forward_length"}
_LOCAL = {"num_local_experts": "expert_count"}
_ROUTED = {
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "first_k_dense_replace": "leading_dense_block_count",
}
_NEXTN = {"num_nextn_predict_layers": "nextn_predict_layers"}
_SHARED_CACHE = {"num_kv_shared_layers": "attention.shared_kv_layers"}
_COUNTED = {"num_shared_experts": "expert_shared_count"}
_INDEXED = {
    "index_n_heads": "attention.indexer.head_count",
    "index_head_dim": "attention.indexer.key_length",
    "index_topk": "attention.indexer.top_k",
}
_T5 = {
    "d_model": "embedding_length",
    "d_kv": "attention.key_length",
    "d_ff": "feed_forward_length",
    "num_layers": "block_count",
    "num_decoder_layers": "decoder_block_count",
    "num_heads": "attention.head_count",
    "relative_attention_num_buckets": "attention.relative_buckets_count",
}
_BIASED = {"attention_bias": True}

ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture("llama", special="mixtral"),
    "deci": Architecture("nemotron-nas", special="searched"),
    "arcee": Architecture("arcee"),
    "smollm3": Architecture("smollm3"),
    "mistral3": Architecture("ministral3"),
    "qwen": Architecture("qwen"),
    "qwen2": Architecture("qwen2"),
    "qwen2vl": Architecture("qwen2_vl"),
    "qwen2moe": Architecture("qwen2_moe", _EXPERTS | _SHARED),
    "qwen3": Architecture("qwen3"),
    "qwen3vl": Architecture("qwen3"),
    "qwen3moe": Architecture("qwen3_moe", _EXPERTS),
    "qwen3vlmoe": Architecture("qwen3_moe", _EXPERTS),
    "qwen3next": Architecture("qwen3_next", _EXPERTS | _SHARED, special="delta"),
    "qwen35": Architecture("qwen3_5_text", special="delta"),
    "qwen35moe": Architecture("qwen3_5_moe_text", _EXPERTS | _SHARED, special="delta"),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2"),
    "gemma3": Architecture("gemma3_text", fixed={"sliding_window_pattern": 6}, special="windows"),
    "gemma3n": Architecture("gemma3n_text", _SHARED_CACHE, special="windows"),
    "gemma4": Architecture("gemma4_text", _EXPERTS | _SHARED_CACHE, special="windows"),
    "phi2": Architecture("phi"),
    "phi3": Architecture("phi3"),
    "phimoe": Architecture("phimoe", _LOCAL),
    "deepseek": Architecture("deepseek", _ROUTED),
    "deepseek2": Architecture("deepseek_v3", _ROUTED, special="latent"),
    "glm-dsa": Architecture("glm_moe_dsa", _ROUTED, special="latent"),
    "minicpm3": Architecture("minicpm3", special="latent"),
    "gpt-oss": Architecture("gpt_oss", _LOCAL | {"intermediate_size": "expert_feed_forward_length"}),
    "chatglm": Architecture(
        "chatglm",
        {
            "num_layers": "block_count",
            "ffn_hidden_size": "feed_forward_length",
            "multi_query_group_num": "attention.head_count_kv",
            "kv_channels": "attention.key_length",
            "padded_vocab_size": "vocab_size",
        },
        {"multi_query_attention": True, "add_qkv_bias": True},
    ),
    "glm4": Architecture("glm4", _NEXTN, {"attention_bias": False}),
    "glm4moe": Architecture("glm4_moe", _ROUTED | _NEXTN),
    "minimax-m2": Architecture("minimax_m2", _LOCAL | {"intermediate_size": "expert_feed_forward_length"}),
    "mamba": Architecture("mamba", special="mamba1"),
    "mamba2": Architecture("mamba2", special="mamba2"),
    "jamba": Architecture("jamba", special="jamba"),
    "falcon": Architecture("falcon"),
    "falcon-h1": Architecture("falcon_h1", special="mamba_mixed"),
    "nemotron": Architecture("nemotron"),
    "nemotron_h": Architecture("nemotron_h", special="pattern_hybrid"),
    "nemotron_h_moe": Architecture(
        "nemotron_h",
        _ROUTED | {"moe_shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
        special="pattern_hybrid",
    ),
    "granite": Architecture("granite"),
    "granitemoe": Architecture("granitemoe", _LOCAL),
    "granitehybrid": Architecture(
        "granitemoehybrid",
        _LOCAL | {"shared_intermediate_size": "expert_shared_feed_forward_length"},
        special="mamba_mixed",
    ),
    "lfm2": Architecture("lfm2", special="short_conv"),
    "lfm2moe": Architecture("lfm2_moe", _EXPERTS | {"num_dense_layers": "leading_dense_block_count"}, special="short_conv"),
    "bitnet": Architecture("bitnet"),
    "bitnet-25": Architecture("bitnet"),
    "bitnet-b1.58": Architecture("bitnet"),
    "stablelm": Architecture("stablelm"),
    "starcoder2": Architecture("starcoder2"),
    "starcoder": Architecture("gpt_bigcode"),
    "command-r": Architecture("cohere"),
    "cohere2": Architecture("cohere2", fixed={"sliding_window_pattern": 4}, special="windows"),
    "internlm2": Architecture("internlm2"),
    "baichuan": Architecture("baichuan"),
    "olmo": Architecture("olmo"),
    "olmo2": Architecture("olmo2"),
    "olmoe": Architecture("olmoe", {"num_experts": "expert_count"}),
    "exaone": Architecture("exaone"),
    "exaone4": Architecture("exaone4", fixed={"sliding_window_pattern": 4}, special="windows"),
    "gpt2": Architecture("gpt2"),
    "gptneox": Architecture("gpt_neox"),
    "mpt": Architecture("mpt"),
    "bloom": Architecture("bloom"),
    "dbrx": Architecture("dbrx", special="dbrx"),
    "minicpm": Architecture("minicpm"),
    "seed_oss": Architecture("seed_oss", fixed=_BIASED),
    "ernie4_5": Architecture("ernie4_5"),
    "ernie4_5-moe": Architecture(
        "ernie4_5_moe",
        {"moe_num_experts": "expert_count", "moe_k": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length"},
    ),
    "hunyuan-dense": Architecture("hunyuan_v1_dense"),
    "hunyuan-moe": Architecture("hunyuan_v1_moe", _EXPERTS),
    "dots1": Architecture("dots1", _ROUTED),
    "bailingmoe": Architecture("bailing_moe", _EXPERTS | {"num_shared_experts": "expert_shared_count"}),
    "bailingmoe2": Architecture("bailing_moe", _EXPERTS | {"num_shared_experts": "expert_shared_count"}),
    "mimo2": Architecture("mimo_v2_flash", _ROUTED),
    "grok": Architecture("grok-1", {"num_experts": "expert_count"}),
    "arctic": Architecture("arctic", _LOCAL),
    "afmoe": Architecture(
        "afmoe",
        _EXPERTS | _COUNTED | {"num_dense_layers": "leading_dense_block_count"},
        {"sliding_window_pattern": 4},
        special="windows",
    ),
    "apertus": Architecture("apertus"),
    "bert": Architecture("bert", fixed={"architectures": ["BertModel"]}),
    "nomic-bert": Architecture("nomic_bert", fixed={"architectures": ["NomicBertModel"]}),
    "codeshell": Architecture("kclgpt", {"num_query_groups": "attention.head_count_kv"}),
    "deepseek2-ocr": Architecture("deepseek", _ROUTED),
    "deepseek32": Architecture("deepseek_v32", _ROUTED | _INDEXED, special="latent"),
    "dream": Architecture("Dream"),
    "exaone-moe": Architecture(
        "exaone_moe",
        _EXPERTS | _COUNTED | {"first_k_dense_replace": "leading_dense_block_count"},
        {"sliding_window_pattern": 4},
        special="windows",
    ),
    "gemma-embedding": Architecture(
        "gemma3_text", fixed={"sliding_window_pattern": 6, "architectures": ["Gemma3TextModel"]}, special="windows"
    ),
    "gptj": Architecture("gptj"),
    "hunyuan_vl": Architecture("hunyuan_v1_dense"),
    "hy_v3": Architecture("hy_v3", _EXPERTS | _COUNTED),
    "jais2": Architecture("jais2", fixed=_BIASED | {"mlp_bias": True}),
    "llada": Architecture("llada"),
    "llama-embed": Architecture("llama", fixed={"architectures": ["LlamaModel"]}),
    "llama4": Architecture(
        "llama4_text",
        _LOCAL
        | {
            "intermediate_size_mlp": "feed_forward_length",
            "intermediate_size": "expert_feed_forward_length",
            "interleave_moe_layer_step": "interleave_moe_layer_step",
        },
    ),
    "mellum": Architecture("mellum", _EXPERTS),
    "mistral4": Architecture("mistral4", _ROUTED, special="latent"),
    "orion": Architecture("orion"),
    "paddleocr": Architecture("ernie4_5"),
    "pangu-embedded": Architecture("llama", fixed=_BIASED),
    "rnd1": Architecture("qwen3_moe", _EXPERTS),
    "rwkv6": Architecture("rwkv6", {"head_size": "wkv.head_size"}),
    "rwkv7": Architecture(
        "rwkv7",
        {
            "head_dim": "wkv.head_size",
            "decay_low_rank_dim": "attention.decay_lora_rank",
            "a_low_rank_dim": "attention.iclr_lora_rank",
            "v_low_rank_dim": "attention.value_residual_mix_lora_rank",
            "gate_low_rank_dim": "attention.gate_lora_rank",
        },
    ),
    "t5": Architecture("t5", _T5, {"feed_forward_proj": "gated-gelu"}),
    "t5encoder": Architecture("t5", _T5, {"feed_forward_proj": "gated-gelu", "architectures": ["T5EncoderModel"]}),
    "xverse": Architecture("xverse"),
}
