"""MiniMax-M3, which may see: experts beside a shared one, and layers that attend only to the blocks an indexer picks.

Source: transformers 5.23, models/minimax_m3_vl (modeling and configuration files).
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.families import mixtures, parts, skeleton, spans, vit, wrapper
from vramcast.models.families.mixtures import Mixture
from vramcast.models.families.skeleton import Override, Style
from vramcast.models.inventory import Model, Tensor, Tower
from vramcast.models.layers import Attention, Indexer

_PROJECTOR = "model.multi_modal_projector."


def read(config: Config, *, prefix: str = "model.") -> Model:
    """MiniMax-M3: the decoder, with its tower where the config describes one."""
    if config.text("model_type") != "minimax_m3_vl":
        return skeleton.read(config, _STYLE, prefix=prefix)
    text = wrapper.text_of(config, "minimax_m3_vl_text")
    towers = (_eye(config, text.size("hidden_size")),) if config.has("vision_config") else ()
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers, tied=False)


def _eye(config: Config, hidden: int) -> Tower:
    """CLIP's layers on patches of any number, projected one by one and again in squares."""
    seen, name, projector = wrapper.part(config, "vision_config", "minimax_m3_vl_vision"), "model.vision_tower.", _PROJECTOR
    width, patch, inner = seen.size("hidden_size"), seen.size("patch_size"), config.size("projector_hidden_size", default=hidden)
    layers, heads, wide = (seen.size(f) for f in ("num_hidden_layers", "num_attention_heads", "intermediate_size"))
    merge, frames = seen.size("spatial_merge_size", default=2), seen.size("temporal_patch_size", default=2)
    return Tower(
        name=name,
        kind="vision",
        hidden=width,
        blocks=(vit.block(f"{name}layers.{{}}.", layers, width, heads, intermediate=wide, style=vit.Style()),),
        tensors=(
            *vit.patches(f"{name}embeddings.proj", width, 3, frames, patch, patch),
            *parts.norms(width, f"{name}pre_layrnorm", bias=True),
            *parts.linear(f"{projector}linear_1", inner, width, "projector", shard=None, bias=True),
            *parts.linear(f"{projector}linear_2", hidden, inner, "projector", shard=None, bias=True),
            *parts.linear(f"{projector}merge_linear_1", inner, hidden * merge**2, "projector", shard=None, bias=True),
            *parts.linear(f"{projector}merge_linear_2", hidden, inner, "projector", shard=None, bias=True),
        ),
        facts={"patch_size": patch, "merge": merge, "temporal_patch_size": frames},
    )


def _attend(config: Config, style: Style, span: spans.Span) -> tuple[Attention, tuple[Tensor, ...]]:
    """Grouped attention, with an indexer of its own in the sparse layers."""
    kind, tensors = skeleton.grouped(config, style, span)
    if not config.flag("is_indexed", default=False):
        return kind, tensors
    indexer = _indexer(config)
    hidden, width, prefix = config.size("hidden_size"), indexer.head_dim, "self_attn.indexer."
    added = (
        *parts.linear(f"{prefix}q_proj", indexer.heads * width, hidden, "indexer", shard=None),
        *parts.linear(f"{prefix}k_proj", width, hidden, "indexer", shard=None),
        *parts.norms(width, f"{prefix}q_norm", f"{prefix}k_norm"),
    )
    sparse = Attention(heads=kind.heads, kv_heads=kind.kv_heads, head_dim=kind.head_dim, qk_norm=True, indexer=indexer)
    return sparse, (*tensors, *added)


def _indexer(config: Config) -> Indexer:
    """Sizes of the indexer: flat fields, or those of ``sparse_attention_config``; it picks blocks of tokens."""
    nested = config.optional_child("sparse_attention_config") or config
    blocks = nested.size("sparse_topk_blocks", "index_topk_blocks", default=16)
    return Indexer(
        heads=nested.size("sparse_num_index_heads", "index_n_heads", default=4),
        head_dim=nested.size("sparse_index_dim", "index_head_dim", default=128),
        top_k=blocks * nested.size("sparse_block_size", "index_block_size", default=128),
    )


def _indexed(config: Config, reach: list[spans.Span]) -> list[Override]:
    """``layer_types`` spelt out, else ``sparse_attention_config``, else no layer is sparse."""
    names = config.per_layer("layer_types", len(reach))
    if unknown := {str(name) for name in names} - {"full_attention", "minimax_m3_sparse"}:
        raise UnmodelledError(f"{config.path}: layer_types has {min(unknown)[:40]!r}, which MiniMax-M3 has no rule for")
    nested = config.optional_child("sparse_attention_config")
    given = nested.switches("sparse_attention_freq", len(reach)) if nested else []
    sparse = [name == "minimax_m3_sparse" for name in names] or given or [False] * len(reach)
    return [(("is_indexed", int(flag)),) for flag in sparse]


def _layers(config: Config, count: int) -> list[bool]:
    """``moe_layer_freq`` is a list of 0 and 1 over the layers; all are sparse without it."""
    return config.switches("moe_layer_freq", count) or mixtures.every_layer(config, count)


def _shared(config: Config) -> int:
    return config.integer("shared_intermediate_size", default=0)


_STYLE = Style(
    qkv_bias=False, out_bias=False, qk_norm="head", attend=_attend, overrides=_indexed, mlp="fused",
    intermediate="dense_intermediate_size",
    mixture=Mixture(
        sparse=_layers, routed="num_local_experts", intermediate="intermediate_size", shared=_shared,
        correction="mlp.gate.e_score_correction_bias",
    ),
)  # fmt: skip
