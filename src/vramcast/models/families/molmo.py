"""Molmo (remote code): an OLMo-like decoder with CLIP ViT-L/14, whose patches are pooled by attention.

The config gives the decoder alone; the tower's sizes are constants of the code (23 of CLIP's 24 layers, features of two of them).
Source of names and shapes: modeling_molmo.py beside the checkpoints on the hub.
"""

from vramcast.models.config import Config
from vramcast.models.families import parts, vit
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense

_STYLE = vit.Style(
    attention="attention.", separate=("wq", "wk", "wv"), out="wo", mlp=("feed_forward.w1", "feed_forward.w2"),
    norms=("attention_norm", "ffn_norm"), activation="quick_gelu",
)  # fmt: skip
_NAME = "model.vision_backbone."
_NEW_TOKENS = 128


def read(config: Config) -> Model:
    """A Molmo model."""
    hidden, fused = config.size("hidden_size"), config.size("intermediate_size")
    heads = config.size("num_attention_heads")
    kind = Attention(heads=heads, kv_heads=config.size("num_key_value_heads", default=heads), head_dim=max(1, hidden // heads))
    name = "model.transformer."
    block = Block(
        name=f"{name}blocks.{{}}.",
        indices=tuple(range(config.size("num_hidden_layers"))),
        mixers=(kind,),
        feedforward=Dense(intermediate=fused // 2),
        tensors=(
            *parts.fused_attention(
                kind, hidden, qkv="att_proj", out="attn_out", bias=config.flag("qkv_bias", default=False), out_bias=False
            ),
            *parts.linear("ff_proj", fused, hidden, "gate_up", shard=0),
            *parts.linear("ff_out", hidden, fused // 2, "down", shard=1),
            *parts.norms(hidden, "attn_norm", "ff_norm"),
        ),
    )
    return parts.decoder(
        config,
        hidden=hidden,
        blocks=(block,),
        embedding=f"{name}wte.embedding",
        norm=parts.norms(hidden, f"{name}ln_f"),
        head=f"{name}ff_out.weight",
        towers=(_vision(hidden, fused // 2),),
        extra=(Tensor(name=f"{name}wte.new_embedding", shape=(_NEW_TOKENS, hidden), role="embedding"),),
    )


def _vision(hidden: int, intermediate: int) -> Tower:
    width, name = 1024, f"{_NAME}image_vit."
    pooled = {"wq": (width, 2 * width), "wk": (width, 2 * width), "wv": (width, 2 * width), "wo": (width, width)}
    projector = Dense(intermediate=intermediate)
    return Tower(
        name=_NAME,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}transformer.resblocks.{{}}.", 23, width, 16, intermediate=4096, style=_STYLE),),
        tensors=(
            vit.table(f"{name}class_embedding", width),
            vit.table(f"{name}positional_embedding", 577, width),
            *parts.linear(f"{name}patch_embedding", width, 588, "patch", shard=None),
            *parts.norms(width, f"{name}pre_ln", bias=True),
            *(
                tensor
                for key, shape in pooled.items()
                for tensor in parts.linear(f"{_NAME}image_pooling_2d.{key}", *shape, "projector", shard=None, bias=True)
            ),
            *parts.gated_mlp(projector, width, prefix=f"{_NAME}image_projector.", names=("w1", "w3", "w2"))[:2],
            *parts.linear(f"{_NAME}image_projector.w2", hidden, intermediate, "projector", shard=1),
            vit.table(f"{_NAME}pad_embed", 2, 2 * width),
        ),
        facts={"patch_size": 14, "image_size": 336, "tokens_per_image": 144},
    )
