"""OLMo's first code (hf_olmo), and LLaDA, a diffusion language model of its blocks; Dream is a Qwen2 (see llama).

Every token of LLaDA attends to every other at each step, nothing is cached: published code recomputes all of it.
Source of names and shapes: modeling_llada.py beside the checkpoints, whose 8,015,581,184 elements this equals, and olmo/model.py
of allenai/OLMo; OLMo-7B counts 6,888,095,744 as transformers builds its later form.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import Attention, Dense

_NAME = "model.transformer."


def read(config: Config, *, prefix: str = _NAME) -> Model:
    """An OLMo or LLaDA model in OLMo's first names."""
    return _olmo(config, prefix) if config.text("model_type") == "hf_olmo" else _llada(config, prefix)


def _olmo(config: Config, prefix: str) -> Model:
    """Fused projections, the MLP's two halves in one tensor; norms that may have no weight; learned positions unless turned."""
    if config.text("block_type", default="sequential") != "sequential":
        raise UnmodelledError(f"{config.path}: block_type is {config.text('block_type')[:40]!r}; known is sequential")
    hidden, heads = config.size("d_model"), config.size("n_heads")
    single = config.flag("multi_query_attention", default=False)
    kind = Attention(
        heads=heads,
        kv_heads=config.size("n_kv_heads", default=1 if single else heads),
        head_dim=max(1, hidden // heads),
        qk_norm=config.flag("attention_layer_norm", default=False),
    )
    gated = config.text("activation_type", default="swiglu") == "swiglu"
    wide = config.size("mlp_hidden_size", default=config.size("mlp_ratio", default=4) * hidden)
    mlp = Dense(intermediate=wide // 2 if gated else wide, gated=gated)
    block = Block(
        name=f"{prefix}blocks.{{}}.",
        indices=tuple(range(config.size("n_layers"))),
        mixers=(kind,),
        feedforward=mlp,
        tensors=_olmo_layer(config, kind, mlp, hidden, wide),
    )
    turned = config.flag("rope", default=False) or config.flag("alibi", default=False)
    places = config.size("max_sequence_length", default=1024)
    table = () if turned else (Tensor(name=f"{prefix}wpe.weight", shape=(places, hidden), role="position"),)
    return _around(config, block, prefix, norm=_olmo_norms(config, hidden, f"{prefix}ln_f"), extra=table)


def _olmo_layer(config: Config, kind: Attention, mlp: Dense, hidden: int, wide: int) -> tuple[Tensor, ...]:
    bias = config.flag("include_bias", default=False)
    scaled = ((kind.heads, "q_norm"), (kind.kv_heads, "k_norm")) if kind.qk_norm else ()
    return (
        *parts.fused_attention(kind, hidden, qkv="att_proj", out="attn_out", bias=bias),
        *parts.linear("ff_proj", wide, hidden, "gate_up" if mlp.gated else "up", shard=0, bias=bias),
        *parts.linear("ff_out", hidden, mlp.intermediate, "down", shard=1, bias=bias),
        *_olmo_norms(config, hidden, "attn_norm", "ff_norm"),
        *(t for heads, name in scaled for t in _olmo_norms(config, heads * kind.head_dim, name)),
    )


def _olmo_norms(config: Config, width: int, *names: str) -> tuple[Tensor, ...]:
    if not config.flag("layer_norm_with_affine", default=True):
        return ()
    said = config.flag("bias_for_layer_norm", "include_bias", default=False)
    return parts.norms(width, *names, bias=said and config.text("layer_norm_type", default="default") != "rms")


def _around(config: Config, block: Block, prefix: str, *, norm: tuple[Tensor, ...], extra: tuple[Tensor, ...] = ()) -> Model:
    tied = config.flag("weight_tying", "tie_word_embeddings", default=config.text("model_type") == "hf_olmo")
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": tied}, config.path),
        hidden=config.size("d_model", "hidden_size"),
        vocab=config.size("embedding_size", "vocab_size"),
        blocks=(block,),
        embedding=f"{prefix}wte.weight",
        norm=norm,
        head=f"{prefix}ff_out.weight",
        extra=extra,
    )


def _llada(config: Config, prefix: str) -> Model:
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
    return _around(config, block, prefix, norm=parts.norms(hidden, f"{prefix}ln_f"))
