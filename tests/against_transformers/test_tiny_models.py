"""Small random models of every class transformers can build, against our reading of the same config.

Every size and switch a class has is drawn at random, so this covers what no published config uses yet.
"""

import dataclasses
import random
import warnings
from typing import Any

import pytest
from loaded import summary

from vramcast.models.families import model_types, read_config
from vramcast.models.families.registry import MODULES
from vramcast.models.inventory import Model

pytestmark = pytest.mark.torch

# Sizes are drawn for whichever of these fields a class has.
SIZES: dict[str, list[Any]] = {
    "vocab_size": [97, 128], "hidden_size": [64], "num_hidden_layers": [5, 8], "num_attention_heads": [4],
    "num_key_value_heads": [2, 4], "intermediate_size": [80, 96], "moe_intermediate_size": [24], "head_dim": [16],
    "num_experts": [6], "num_local_experts": [6], "n_routed_experts": [6], "num_experts_per_tok": [2], "moe_topk": [2],
    "moe_num_experts": [6], "moe_k": [2], "moe_num_shared_experts": [1, 2], "num_shared_experts": [1, 2],
    "n_shared_experts": [1, 2], "shared_expert_intermediate_size": [40], "shared_intermediate_size": [40],
    "share_expert_dim": [40], "dense_intermediate_size": [72], "intermediate_size_mlp": [72], "top_k_experts": [2],
    "max_position_embeddings": [64], "q_lora_rank": [24], "kv_lora_rank": [20], "qk_nope_head_dim": [12],
    "qk_rope_head_dim": [8], "v_head_dim": [16], "first_k_dense_replace": [1, 2], "index_n_heads": [2], "index_head_dim": [16],
    "index_topk": [4], "n_group": [1], "topk_group": [1], "sliding_window": [8, 16], "hc_mult": [2], "o_groups": [2],
    "o_lora_rank": [16], "n_embd": [64], "n_layer": [6], "n_head": [4], "d_model": [64], "n_layers": [6], "n_heads": [4],
    "num_layers": [6], "ffn_dim": [96], "attention_heads": [4], "word_embed_proj_dim": [64], "num_kv_heads": [2],
    "hidden_size_per_layer_input": [8], "vocab_size_per_layer_input": [90], "global_head_dim": [32],
    "num_global_key_value_heads": [1, 2], "laurel_rank": [8], "altup_num_inputs": [2], "num_dense_layers": [0, 2],
    "mlp_only_layers": [[0]], "decoder_sparse_step": [1, 2], "interleave_moe_layer_step": [1, 2], "max_window_layers": [2],
    "attention_chunk_size": [16], "pad_token_id": [0], "bos_token_id": [1], "eos_token_id": [2], "num_kv_shared_layers": [0, 1],
}  # fmt: skip
SWITCHES = {
    "tie_word_embeddings", "attention_bias", "mlp_bias", "use_qk_norm", "qk_layernorm", "use_bias", "use_qkv_bias",
    "attention_k_eq_v", "enable_moe_block", "use_double_wide_mlp", "use_sliding_window", "use_post_norm", "attention_out_bias",
    "new_decoder_architecture", "multi_query", "parallel_attn", "qkv_bias", "lm_head_bias", "enable_bias", "gating",
}  # fmt: skip
# What random drawing would set against a class's own checks.
FIXED: dict[str, dict[str, Any]] = {
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "internlm3": {"attention_bias": False, "mlp_bias": False},
    "diffllama": {"num_key_value_heads": 4},
    "deepseek_v4": {"mlp_bias": False},
    "step3p7_text": {"vocab_size": 97},
    "mimo_v2_flash": {"num_attention_heads": 8},  # its windowed layers have 8 KV heads whatever is drawn
}
# Fused here, two tensors there; the parameters are the same.
OTHER_NAMES = {"minimax_m3_vl_text"}
# DeepSeek-V4 keeps a window in every layer, whatever stands beside it.
SLIDING_BESIDE_COMPRESSION = {"deepseek_v4"}
# Families with a state or a tower, tested beside their readers; classes that cannot be built small; sub-models.
TEXT = ["llama", "mixture", "latent", "deepseek_v4", "stacked", "classic", "gemma_shared", "minimax_m3"]


# Sizes in nested objects, counted at full size.
NESTED = {"dbrx", "dots3_note_text"}


def text_types() -> list[str]:
    return [t for t in model_types() if MODULES.get(t) in TEXT and t not in NESTED]


def drawn(model_type: str, config_class: type, chance: random.Random) -> dict[str, Any]:
    fields = {f.name for f in dataclasses.fields(config_class)} | {"first_k_dense_replace"}
    sizes = {name: chance.choice(values) for name, values in SIZES.items() if name in fields}
    switches = {name: chance.random() < 0.5 for name in sorted(SWITCHES & fields)}
    return {**sizes, **switches, **FIXED.get(model_type, {})}


def built(model_type: str, fields: dict[str, Any]) -> Any:
    """The model on the meta device; skips where transformers has no such class or refuses the sizes."""
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    if model_type not in CLASSES or model_type not in transformers.CONFIG_MAPPING:
        pytest.skip("no such class in this transformers")
    name = CLASSES[model_type]
    try:
        config = transformers.CONFIG_MAPPING[model_type](**fields)
        with torch.device("meta"):
            return getattr(transformers, name if isinstance(name, str) else name[0])(config)
    except (TypeError, ValueError, AttributeError) as error:
        pytest.skip(f"transformers refuses this: {error}"[:120])


def windows(model: Model) -> list[int]:
    return [block.mixers[0].window for block in model.layer_list()]


def expected_windows(config: Any, count: int) -> list[int]:
    """What transformers' masks give each layer: by ``layer_types``, else by ``sliding_window`` alone."""
    if config.model_type == "gpt_neo":
        return [config.window_size if kind == "local" else 0 for kind in config.attention_layers]
    window = getattr(config, "sliding_window", None) or 0
    kinds = getattr(config, "layer_types", None)
    if config.model_type in SLIDING_BESIDE_COMPRESSION:
        return [window] * count
    return [window if kind == "sliding_attention" else 0 for kind in kinds] if kinds else [window] * count


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model_type", text_types())
@pytest.mark.filterwarnings("ignore")
def test_equals_the_built_model(model_type: str, seed: int) -> None:
    transformers = pytest.importorskip("transformers")
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip("remote code, or a newer class than this transformers has")
    config_class = transformers.CONFIG_MAPPING[model_type]
    fields = drawn(model_type, config_class, random.Random(f"{model_type} {seed}"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = built(model_type, fields)
    parameters = dict(model.named_parameters())
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    read = read_config({**fields, "model_type": model_type, "architectures": [type(model).__name__]})
    ours = summary(read)
    assert ours["trainable"] + ours["frozen"] == sum(p.numel() for p in parameters.values())
    assert ours["largest_tensor"] == max(p.numel() for p in parameters.values())
    assert ours["buffers"] == sum(b.numel() for name, b in model.state_dict().items() if name not in every)
    if model_type not in OTHER_NAMES:
        assert ours["tensors"] == len(parameters)
    assert windows(read) == expected_windows(model.config, len(windows(read)))
    shapes = {name: t.shape for name, t in read.all_tensors() if t.kind != "buffer"}
    theirs = {name: tuple(p.shape) for name, p in parameters.items()}
    assert {n: s for n, s in shapes.items() if n in theirs} == {n: s for n, s in theirs.items() if n in shapes}
    if MODULES[model_type] == "llama":
        assert shapes.keys() == theirs.keys()
