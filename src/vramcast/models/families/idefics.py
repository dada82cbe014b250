"""IDEFICS (80B and 9B): a Llama between whose layers gated cross-attention reads what CLIP saw, condensed by a Perceiver.

Source of names and shapes: transformers 5.23, modeling_idefics.py and perceiver.py; arXiv 2306.16527.
"""

import msgspec

from vramcast.models.config import Config
from vramcast.models.families import llama, parts, vit, wrapper
from vramcast.models.inventory import Block, Model, Tensor, Tower
from vramcast.models.layers import Attention, Dense


def read(config: Config) -> Model:
    """An IDEFICS model; cross-attention stands in layers of its own, counted with what it reads."""
    hidden, seen = config.size("hidden_size"), _seen(config)
    model = llama.read(Config({**config.raw, "model_type": "llama"}, config.path))
    tower = vit.tower(seen, "model.vision_model.")
    condenser = wrapper.part(config, "perceiver_config", "idefics_perciever")
    towers = [tower, _crossing(config, hidden, tower.hidden)]
    if condenser.flag("use_resampler", default=False):
        towers.append(_perceiver(condenser, tower.hidden))
    more = config.integer("additional_vocab_size", default=0)
    extra = (_rows("model.embed_tokens.additional_embedding", more, hidden), _rows("lm_head.additional_fc", more, hidden))
    return msgspec.structs.replace(
        model,
        family="idefics",
        wraps=model.text_class,
        tensors=(*model.tensors, *(extra if more else ())),
        towers=(*model.towers, *towers),
    )


def _rows(name: str, rows: int, hidden: int) -> Tensor:
    return Tensor(name=f"{name}.weight", shape=(max(rows, 1), hidden), role="embedding")


def _seen(config: Config) -> Config:
    """The tower's config under CLIP's names."""
    seen = wrapper.part(config, "vision_config", "idefics_vision")
    names = {"hidden_size": "embed_dim"}
    renamed = {new: seen.raw[old] for new, old in names.items() if seen.has(old)}
    return Config({**seen.raw, **renamed, "model_type": "clip_vision_model"}, seen.path)


def _crossing(config: Config, hidden: int, seen: int) -> Tower:
    """Every ``cross_layer_interval``-th layer is preceded by attention to the image and an MLP, each scaled by a gate."""
    heads = config.size("num_attention_heads")
    kind = Attention(heads=heads, kv_heads=heads, head_dim=max(1, hidden // heads), causal=False, rope_dim=0)
    mlp = Dense(intermediate=config.size("intermediate_size"))
    scales = 1 if config.text("alpha_type", default="float") == "float" else hidden
    normed = config.flag("qk_layer_norms", default=False)
    block = Block(
        name="model.gated_cross_attn_layers.{}.",
        indices=tuple(range(-(-config.size("num_hidden_layers") // config.size("cross_layer_interval", default=1)))),
        feedforward=mlp,
        tensors=(
            *(Tensor(name=f"alpha_{half}", shape=(scales,), role="norm") for half in ("cross_attn", "dense")),
            *parts.linear("cross_attn.q_proj", hidden, hidden, "q", shard=0, groups=heads),
            *(t for x in "kv" for t in parts.linear(f"cross_attn.{x}_proj", hidden, seen, x, shard=0, groups=heads)),
            *parts.output(kind, hidden, "cross_attn.o_proj"),
            *(parts.norms(kind.head_dim, "cross_attn.q_layer_norm", "cross_attn.k_layer_norm") if normed else ()),
            *parts.gated_mlp(mlp, hidden),
            *parts.norms(hidden, "input_layernorm", "post_attention_layernorm"),
        ),
    )
    return Tower(name="model.gated_cross_attn_layers.", kind="vision", hidden=hidden, blocks=(block,))


def _perceiver(config: Config, width: int) -> Tower:
    name = "model.perceiver_resampler."
    heads, head_dim = config.size("resampler_n_heads"), config.size("resampler_head_dim")
    inner, mlp = heads * head_dim, Dense(intermediate=4 * width, gated=False)
    normed = config.flag("qk_layer_norms_perceiver", default=False)
    block = Block(
        name=f"{name}blocks.{{}}.",
        indices=tuple(range(config.size("resampler_depth"))),
        feedforward=mlp,
        tensors=(
            *(t for x in "qkv" for t in parts.linear(f"0.{x}_proj", inner, width, x, shard=0, groups=heads)),
            *parts.linear("0.output_proj", width, inner, "o", shard=1),
            *parts.norms(width, "0.context_layer_norm", "0.latents_layer_norm", "1.ln", bias=True),
            *(parts.norms(head_dim, "0.q_layer_norm", "0.k_layer_norm", bias=True) if normed else ()),
            *parts.plain_mlp(mlp, width, "1.fc", "1.c_proj"),
        ),
    )
    tensors = (
        vit.table(f"{name}latents", config.size("resampler_n_latents"), width),
        *parts.norms(width, f"{name}layer_norm", bias=True),
    )
    return Tower(name=name, kind="projector", hidden=width, blocks=(block,), tensors=tensors)
