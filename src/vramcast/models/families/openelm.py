"""OpenELM: heads and MLP width grow from layer to layer.

Source: arXiv 2404.14619 and the modeling file beside apple/OpenELM-270M on the hub.
"""

from typing import NamedTuple

from vramcast.errors import ConfigError
from vramcast.models.config import Config
from vramcast.models.families import parts
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import Attention, Dense


class _Layer(NamedTuple):
    heads: int
    kv_heads: int
    intermediate: int


def read(config: Config, *, prefix: str = "transformer.") -> Model:
    """OpenELM; the head is the embedding when ``share_input_output_layers`` says so."""
    hidden = config.size("model_dim")
    tied = config.flag("share_input_output_layers", default=True)
    return parts.decoder(
        Config({**config.raw, "tie_word_embeddings": tied}, config.path),
        hidden=hidden,
        blocks=parts.stack(_layers(config, hidden), lambda layer: _block(config, layer, f"{prefix}layers.{{}}.")),
        embedding=f"{prefix}token_embeddings.weight",
        norm=parts.norms(hidden, f"{prefix}norm"),
        head="lm_head.weight",
    )


def _layers(config: Config, hidden: int) -> list[_Layer]:
    count, step = config.size("num_transformer_layers"), config.size("ffn_dim_divisor", default=256)
    columns = [config.per_layer(name, count) for name in ("num_query_heads", "num_kv_heads", "ffn_multipliers")]
    layers = [Config({"heads": h, "kv_heads": k, "times": m}, config.path) for h, k, m in zip(*columns, strict=False)]
    if len(layers) < count:
        raise ConfigError(f"{config.path} has no num_query_heads, num_kv_heads or ffn_multipliers for its {count} layers")
    return [_Layer(x.size("heads"), x.size("kv_heads"), _divisible(x.number("times") * hidden, step)) for x in layers]


def _divisible(width: float, step: int) -> int:
    """The multiple of ``step`` nearest to ``width``, never more than a tenth below it."""
    rounded = max(step, int(width + step / 2) // step * step)
    return rounded if rounded >= 0.9 * width else rounded + step


def _block(config: Config, layer: _Layer, name: str) -> Block:
    hidden = config.size("model_dim")
    qk_norm = config.flag("normalize_qk_projections", default=True)
    kind = Attention(heads=layer.heads, kv_heads=layer.kv_heads, head_dim=config.size("head_dim"), qk_norm=qk_norm)
    mlp = Dense(intermediate=layer.intermediate, gated=config.flag("ffn_with_glu", default=True))
    return Block(
        name=name,
        indices=(),
        mixers=(kind,),
        feedforward=mlp,
        tensors=(
            *parts.fused_attention(kind, hidden, qkv="attn.qkv_proj", out="attn.out_proj"),
            *(parts.norms(kind.head_dim, "attn.q_norm", "attn.k_norm") if qk_norm else ()),
            *parts.linear("ffn.proj_1", (2 if mlp.gated else 1) * mlp.intermediate, hidden, "gate_up", shard=0),
            *parts.linear("ffn.proj_2", hidden, mlp.intermediate, "down", shard=1),
            *parts.norms(hidden, "ffn_norm", "attn_norm"),
        ),
    )
