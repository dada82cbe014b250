"""LLaDA (remote code): a diffusion language model with OLMo's blocks under their first names; Dream is a Qwen2 (see llama).

Every token attends to every other at each step, nothing is cached: published code recomputes all of it.
Source of names and shapes: modeling_llada.py beside the checkpoints, whose 8,015,581,184 elements this equals.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import Attention, Dense

_NAME = "model.transformer."


def read(config: Config, *, prefix: str = _NAME) -> Model:
    """A LLaDA model."""
    hidden, heads = config.size("d_model", "hidden_size"), config.size("n_heads", "num_attention_heads")
    kv_heads = config.size("n_kv_heads", "num_key_value_heads", default=heads)
    kind = Attention(heads=heads, kv_heads=kv_heads, head_dim=max(1, hidden // heads), causal=False)
    mlp, bias = (
        Dense(intermediate=config.size("mlp_hidden_size", "intermediate_size")),
        config.flag("include_bias", default=False),
    )
    qkv_bias = bias or config.flag("include_qkv_bias", default=False)
    block = Block(
        name=f"{prefix}blocks.{{}}.",
        indices=tuple(range(config.size("n_layers", "num_hidden_layers"))),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *parts.attention(kind, hidden, prefix="", bias=qkv_bias, out_bias=bias, out="attn_out"),
            *parts.gated_mlp(mlp, hidden, prefix="", bias=bias, names=("ff_proj", "up_proj", "ff_out")),
            *parts.norms(hidden, "attn_norm", "ff_norm"),
        ),
    )
    tied = config.flag("weight_tying", "tie_word_embeddings", default=False)
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": tied}, config.path),
        hidden=hidden,
        vocab=config.size("embedding_size", "vocab_size"),
        blocks=(block,),
        embedding=f"{prefix}wte.weight",
        norm=parts.norms(hidden, f"{prefix}ln_f"),
        head=f"{prefix}ff_out.weight",
    )
