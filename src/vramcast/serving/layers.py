"""What one layer of a rank needs, in elements: its widest moment of a forward pass, and what it keeps in the cache.

Activations: four tensors of the residual's width (input, residual, normalised input, output) live beside both up projections and
their product; in attention three live beside queries, keys, values and outputs, as kernels are fused by serving engines. Checked
against the profile runs of vLLM 0.11 to 0.19.

Cache: keys and values are cut in whole heads and replicated beyond them; a latent is replicated on every rank; recurrent states
are cut by heads (sources: vllm config/model.py get_num_kv_heads, vllm model_executor/layers/mamba/mamba_utils.py). Engines turn
elements into bytes and pages.
"""

from collections.abc import Iterable, Iterator

import msgspec

from vramcast.models.inventory import Block, Mixer, Model, Tower, by_identity
from vramcast.models.layers import (
    Attention,
    Dense,
    Experts,
    GatedDeltaNet,
    LatentAttention,
    LinearAttention,
    Mamba1,
    Mamba2,
    Rwkv,
    ShortConv,
)
from vramcast.models.sharding import Stage, units_held
from vramcast.quantity import Quantity, ceil_div, named


def widest_layer(stage: Stage, *, hidden: int, tp: int) -> Quantity:
    """The widest layer of a stage: elements per token on one rank."""
    return _wider(widest_mixer(stage, hidden=hidden, tp=tp), widest_feedforward(stage, hidden=hidden, tp=tp))


@by_identity(most=512)
def widest_mixer(stage: Stage, *, hidden: int, tp: int) -> Quantity:
    """The widest attention or recurrent mixer of a stage, elements per token on one rank."""
    return _wider(*(_mixer(block, hidden, tp) for block, _ in stage.blocks))


@by_identity(most=512)
def widest_feedforward(stage: Stage, *, hidden: int, tp: int) -> Quantity:
    """The widest MLP or mixture of a stage, the workspaces of fused experts excluded, elements per token on one rank."""
    return _wider(*(_feedforward(block, hidden, tp) for block, _ in stage.blocks))


def _wider(*widths: Quantity) -> Quantity:
    return max(widths, key=lambda width: width.value, default=named(0, "no layers"))


def _feedforward(block: Block, hidden: int, tp: int) -> Quantity:
    kind, residual = block.feedforward, 4 * named(hidden, "hidden")
    if isinstance(kind, Dense):
        return residual + (3 if kind.gated else 2) * _share(kind.intermediate, "intermediate", tp)
    if isinstance(kind, Experts):
        return residual + 3 * _share(kind.shared_intermediate, "shared", tp) + named(kind.routed, "router")
    return residual


def _share(width: int, what: str, tp: int) -> Quantity:
    return ceil_div(named(width, what), named(tp, "ranks")) if tp > 1 else named(width, what)


def _mixer(block: Block, hidden: int, tp: int) -> Quantity:
    widths = [0]
    for mixer in block.mixers:
        if isinstance(mixer, Attention):
            widths.append(2 * (mixer.heads * (mixer.head_dim + mixer.values) + mixer.cache_elements) // tp)
        elif isinstance(mixer, LatentAttention):
            widths.append(mixer.heads * (2 * mixer.head_dim + 2 * mixer.value_dim) // tp + 2 * mixer.cache_elements)
        else:
            widths.append(4 * getattr(mixer, "conv_width", 0) // tp)
    return 3 * named(hidden, "hidden") + named(max(widths), "in the mixer")


# fp8_ds_mla, the packed token of a sparse latent: 512 B latent, 16 B scales, 128 B rotary key in bf16
# (vllm v1/attention/backends/mla/flashmla_sparse.py; sglang srt/mem_cache/memory_pool.py)
SPARSE_LATENT_BYTES = 656
# the scale beside the 8-bit key of a sparse-attention indexer, per token (vllm models/deepseek_v2.py DeepseekV32IndexerCache)
INDEX_SCALE_BYTES = 4

Recurrent = Mamba1 | Mamba2 | GatedDeltaNet | LinearAttention | ShortConv | Rwkv


class CacheLayer(msgspec.Struct, frozen=True):
    """One cached mixer on one rank.

    ``kind``: full, sliding, chunked, latent or state. ``key_elements`` and ``value_elements``: what one token adds here, of
    ``heads`` heads. ``reach_tokens``: the window or chunk, 0 = unlimited. ``conv_elements`` and ``state_elements``: what one
    sequence keeps; ``conv_step_elements``: one more position of the convolution window. ``index_elements``: the sparse-attention
    indexer's key of one token. ``state_name``: the recurrent kind's name.
    """

    kind: str
    heads: int = 0
    key_elements: int = 0
    value_elements: int = 0
    reach_tokens: int = 0
    conv_elements: int = 0
    state_elements: int = 0
    conv_step_elements: int = 0
    index_elements: int = 0
    state_name: str = ""

    @property
    def token_elements(self) -> int:
        """Elements one token adds, the indexer's excluded."""
        return self.key_elements + self.value_elements

    @property
    def grows(self) -> bool:
        """Whether it holds tokens rather than a fixed state."""
        return self.kind != "state"


def encodes_only(model: Model) -> bool:
    """Whether every layer sees the whole text at once (BERT, XLM-R, ModernBERT): nothing is generated, no key is met again."""
    mixers = [mixer for block in model.blocks for mixer in block.mixers]
    return bool(mixers) and all(isinstance(mixer, Attention) and not mixer.causal for mixer in mixers)


def has_states(model: Model) -> bool:
    """Whether layers with recurrent states are among the model's."""
    return any(isinstance(mixer, Recurrent) for block in model.blocks for mixer in block.mixers)


def cache_layers(stage: Stage, tp: int) -> Iterator[tuple[CacheLayer, int]]:
    """Each cached mixer of a stage with the number of its layers; layers that read another layer's cache keep none."""
    for block, count in stage.blocks:
        if not block.shares_cache:
            yield from ((cache_layer(mixer, tp), count) for mixer in block.mixers)


def tower_layers(towers: Iterable[Tower], kind: str, tp: int) -> Iterator[tuple[CacheLayer, int]]:
    """The cached mixers of towers of that kind: multi-token-prediction layers keep a cache of their own."""
    for tower in towers:
        if tower.kind == kind:
            yield from ((cache_layer(mixer, tp), block.count) for block in tower.blocks for mixer in block.mixers)


def cache_layer(mixer: Mixer, tp: int) -> CacheLayer:
    """The cache of one layer of that kind on one of ``tp`` ranks."""
    if isinstance(mixer, Attention):
        return _attention(mixer, tp)
    if isinstance(mixer, LatentAttention):
        return _latent(mixer)
    conv, state = state_elements(mixer, tp)
    step = conv // max(1, getattr(mixer, "conv", 1) - 1)
    return CacheLayer("state", conv_elements=conv, state_elements=state, conv_step_elements=step, state_name=type(mixer).__name__)


def state_elements(mixer: Recurrent, tp: int) -> tuple[int, int]:
    """Convolution and recurrent elements of one sequence on a rank; B and C groups that do not divide are replicated."""
    if isinstance(mixer, Mamba2):
        groups = mixer.groups // tp if mixer.groups % tp == 0 else 1
        width = mixer.inner // tp + 2 * groups * mixer.state
        return (mixer.conv - 1) * width, mixer.state_elements // tp
    if isinstance(mixer, Rwkv):
        return mixer.conv_elements, mixer.state_elements // tp
    return mixer.conv_elements // tp, mixer.state_elements // tp


def _attention(mixer: Attention, tp: int) -> CacheLayer:
    heads = units_held(mixer.kv_heads, tp)
    kind = "sliding" if mixer.window else "chunked" if mixer.chunk else "full"
    return CacheLayer(kind, heads, heads * mixer.head_dim, heads * mixer.values, mixer.window or mixer.chunk)


def _latent(mixer: LatentAttention) -> CacheLayer:
    index = mixer.indexer.head_dim if mixer.indexer else 0
    return CacheLayer("latent", 1, mixer.cache_elements, 0, mixer.window, index_elements=index)
