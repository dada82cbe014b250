"""CogVLM and CogVLM2 (remote code): EVA2-CLIP-E before a Llama in whose layers image tokens pass matrices of their own.

The video model of CogVLM2 has no such second matrices. Source of names and shapes: modeling_cogvlm.py and visual.py beside the
checkpoints on the hub; cogvlm2-llama3-caption stores 12,507,532,544 elements, 2,048 of them rotary frequencies.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, qwen_senses
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense


def read(config: Config) -> Model:
    """A CogVLM model; its config has no ``model_type``, the architecture names it."""
    hidden = config.size("hidden_size")
    whole = Config({**config.raw, "ffn_hidden_size": config.size("intermediate_size")}, config.path)
    seen = whole.child("vision_config")
    merged = seen.size("hidden_size") if config.has("num_multi_query_heads") else 0
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=(_block(config, hidden),),
        towers=(qwen_senses.eva(whole, seen, hidden, merged=merged, name="model.vision."),),
    )


def _block(config: Config, hidden: int) -> Block:
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_multi_query_heads", default=heads)
    kind, mlp = (
        Attention(heads=heads, kv_heads=kv_heads, head_dim=max(1, hidden // heads)),
        Dense(intermediate=config.size("intermediate_size")),
    )
    return Block(
        name="model.layers.{}.",
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *(_plain(kind, mlp, hidden) if _is_video(config) else _expert(kind, mlp, hidden)),
            *parts.norms(hidden, "input_layernorm", "post_attention_layernorm"),
            Tensor(name="self_attn.rotary_emb.inv_freq", shape=(kind.head_dim // 2,), role="position", kind="buffer"),
        ),
    )


def _is_video(config: Config) -> bool:
    return "Video" in config.architecture


def _plain(kind: Attention, mlp: Dense, hidden: int) -> tuple[Tensor, ...]:
    joined = parts.fused_attention(kind, hidden, qkv="self_attn.query_key_value", out="self_attn.dense")
    return (*joined, *parts.gated_mlp(mlp, hidden))


def _expert(kind: Attention, mlp: Dense, hidden: int) -> tuple[Tensor, ...]:
    """Each matrix twice, for words and for images; only CogVLM2's image projection of queries, keys and values has a bias."""
    grouped = kind.kv_heads != kind.heads
    halves = (
        (
            *parts.fused_attention(
                kind, hidden, qkv=f"self_attn.{side}_expert_query_key_value", out=f"self_attn.{side}_expert_dense",
                bias=grouped and side == "vision", out_bias=False,
            ),
            *parts.gated_mlp(mlp, hidden, prefix=f"mlp.{side}_mlp."),
        )
        for side in ("language", "vision")
    )  # fmt: skip
    return tuple(tensor for half in halves for tensor in half)
