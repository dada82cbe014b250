"""vLLM's cache planner: bytes of a page per layer, layers grouped so that pages are equal, blocks one request takes.

Port of the rules of vllm/v1/kv_cache_interface.py (bytes), vllm/v1/core/kv_cache_planning.py (groups) and
vllm/platforms/interface.py (block size of hybrids). Checked against vLLM 0.33's own planner.
"""

from collections.abc import Iterable, Iterator

import msgspec

from vramcast.largest import largest_of_each, largest_that_fits
from vramcast.models.layers import LatentAttention
from vramcast.models.sharding import Stage, units_held
from vramcast.quantity import Number, is_array, maximum, minimum
from vramcast.serving.engines.base import Version, at
from vramcast.serving.engines.vllm import versions
from vramcast.serving.layers import INDEX_SCALE_BYTES, CacheLayer, cache_layer

# kinds whose state is fp32 whatever is asked (mamba_utils.py linear_attention_state_dtype, kda_state_dtype)
FLOAT32_STATES = frozenset({"LinearAttention", "KimiDelta", "Rwkv"})
FLOAT32_BYTES = 4


class CacheTypes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one element of keys and values, convolution states and recurrent states; extras of quantised layouts.

    ``head_extra``: bytes per head and token beside keys, and again beside values (fp32 scales of the per-token-head formats).
    ``latent_token``: bytes of one latent token where the layout is packed (fp8_ds_mla: 656), 0 = plain elements.
    ``drafted``: tokens drafted per step, by which convolution windows are longer.
    """

    kv: float = 2
    conv: float = 2
    state: float = 2
    head_extra: float = 0
    latent_token: int = 0
    latent_multiple: int = 1
    drafted: int = 0


class Paged(msgspec.Struct, frozen=True):
    """Equal layers on one rank: what one token takes, or one sequence's state. ``kind`` as in CacheLayer."""

    kind: str
    token_bytes: int
    state_bytes: int
    reach_tokens: int
    count: int


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the blocks of one request: tokens in flight, drafted tokens, and how states are kept.

    ``context_ranks``: ranks of decode context parallelism, each of which keeps every so many tokens of a full layer.
    """

    in_flight: Number
    speculative: int = 0
    state_blocks: int = 1
    context_ranks: int = 1


class Group(msgspec.Struct, frozen=True):
    """Layers that share one block table: how many, of what kind, with which reach and block."""

    kind: str
    layers: int
    reach_tokens: int
    block_tokens: int

    def blocks(self, tokens: Number, demand: Demand) -> Number:
        """Blocks of this group that one request of that many tokens holds (kv_cache_interface.py max_memory_usage_bytes)."""
        if self.kind == "state":
            return demand.state_blocks + demand.speculative
        if self.kind == "sliding":
            return -(-minimum(self.reach_tokens - 1 + demand.in_flight, tokens) // self.block_tokens) + 1
        if self.kind == "chunked":
            return -(-minimum(self.reach_tokens + demand.in_flight, tokens) // self.block_tokens)
        return -(-tokens // (self.block_tokens * demand.context_ranks))


class PagePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one rank and the bytes of one block across a group's layers."""

    groups: tuple[Group, ...]
    block_bytes: int
    block_tokens: int
    padded_layers: int = 0

    def request_blocks(self, tokens: Number, demand: Demand) -> Number:
        """Blocks one request of that many tokens holds over all groups."""
        return sum(group.blocks(tokens, demand) for group in self.groups)

    def longest(self, blocks: Number, demand: Demand, limit: int) -> Number:
        """The longest single request that fits into that many blocks, at most ``limit`` (a search in kv_cache_utils.py too)."""
        if [group.kind for group in self.groups] == ["full"]:
            return maximum(0, minimum(blocks * self.block_tokens * demand.context_ranks, limit))
        if is_array(blocks) or is_array(demand.in_flight):
            return largest_of_each(lambda tokens: self.request_blocks(tokens, demand), room=blocks, most=limit)
        return largest_that_fits(lambda tokens: self.request_blocks(tokens, demand), room=blocks, most=limit, first=limit)


def paged_layers(layers: Iterable[tuple[CacheLayer, int]], types: CacheTypes, *, hybrid: bool) -> list[Paged]:
    """Layers merged by equal pages. Without the hybrid manager a sliding layer pays the full length."""
    merged: dict[tuple[str, int, int, int], int] = {}
    for layer, count in layers:
        key = (_kind(layer, hybrid=hybrid), token_bytes(layer, types), state_bytes(layer, types), _reach(layer, hybrid=hybrid))
        merged[key] = merged.get(key, 0) + count
    return [Paged(kind, tokens, state, reach, count) for (kind, tokens, state, reach), count in merged.items()]


_PADDED_HEAD, _WIDEST_UNPADDED = 256, 128


def whole_heads(stage: Stage, tp: int) -> Iterator[tuple[CacheLayer, int]]:
    """The cache where vLLM caches no latents: keys and values of all heads, both as wide as a key.

    DeepSeek's 192 are padded to 256 (vllm/config.py get_head_size of 0.6: FlashAttention takes 32, 64, 128 and 256); MiniCPM3's
    96 stay (models/minicpm3.py: Attention(num_local_heads, qk_head_dim), values padded to a key's width). Block sizes:
    vllm/worker/cache_engine.py get_cache_block_size. vllm-project/vllm#10927 prints 5,373 blocks of 16 tokens in 35.42 GiB.
    """
    for block, count in stage.blocks:
        for mixer in () if block.shares_cache else block.mixers:
            if isinstance(mixer, LatentAttention):
                heads = units_held(mixer.heads, tp)
                each = mixer.head_dim if mixer.head_dim <= _WIDEST_UNPADDED else _PADDED_HEAD
                yield CacheLayer("full", heads, heads * each, heads * each), count
            else:
                yield cache_layer(mixer, tp), count


def token_bytes(layer: CacheLayer, types: CacheTypes) -> int:
    """Bytes one token adds in that layer on one rank; a sparse indexer keeps an 8-bit key and its scale beside the latent."""
    if layer.kind == "latent":
        index = layer.index_elements + INDEX_SCALE_BYTES if layer.index_elements else 0
        width = -(-layer.token_elements // types.latent_multiple) * types.latent_multiple
        return (types.latent_token or round(width * types.kv)) + index
    return round(layer.token_elements * types.kv + 2 * layer.heads * types.head_extra)


def state_bytes(layer: CacheLayer, types: CacheTypes) -> int:
    """Bytes of one sequence's convolution window and recurrent state in that layer."""
    window = layer.conv_elements + types.drafted * layer.conv_step_elements
    state = FLOAT32_BYTES if layer.state_name in FLOAT32_STATES else types.state
    return round(window * types.conv + layer.state_elements * state)


def plan(layers: list[Paged], version: Version, *, block_tokens: int = 16) -> PagePlan:
    """Groups and block bytes of one rank's layers."""
    states = [p for p in layers if p.kind == "state" and p.state_bytes]
    growing = [p for p in layers if p.kind != "state" and p.token_bytes]
    if not growing:
        return _states_only(states, block_tokens)
    block = hybrid_block(growing, states, block_tokens) if states else block_tokens
    if not states and len({(p.kind, p.reach_tokens) for p in growing}) == 1:
        return _one_group(growing, block)
    page = _common_page(growing, states, block)
    size = group_size([p.count for p in (*growing, *states)], at(version, versions.GROUP_STRETCH))
    groups = tuple(group for p in (*growing, *states) for group in _cut(p, size, page, block))
    padded = sum(size * -(-p.count // size) - p.count for p in (*growing, *states))
    return PagePlan(groups=groups, block_bytes=size * page, block_tokens=block, padded_layers=padded)


def group_size(buckets: list[int], stretch: float) -> int:
    """Layers per group: the smallest bucket, or the largest when it is less than ``stretch`` times that."""
    least, most = min(buckets), max(buckets)
    return most if most < stretch * least else least


def hybrid_block(growing: list[Paged], states: list[Paged], block_tokens: int) -> int:
    """Tokens per attention block raised until its page holds the largest state, in steps of the kernel's block."""
    token = max(p.token_bytes for p in growing)
    state = max(p.state_bytes for p in states)
    return max(block_tokens, block_tokens * -(-state // (block_tokens * token)))


def _one_group(growing: list[Paged], block: int) -> PagePlan:
    only = growing[0]
    layers = sum(p.count for p in growing)
    size = sum(p.count * p.token_bytes for p in growing) * block
    return PagePlan(groups=(Group(only.kind, layers, only.reach_tokens, block),), block_bytes=size, block_tokens=block)


def _states_only(states: list[Paged], block: int) -> PagePlan:
    groups = tuple(Group("state", p.count, 0, block) for p in states)
    return PagePlan(groups=groups, block_bytes=max((p.count * p.state_bytes for p in states), default=0), block_tokens=block)


def _common_page(growing: list[Paged], states: list[Paged], block: int) -> int:
    """Bytes every layer's page is brought to: the largest, other blocks being raised by whole factors or padded."""
    largest = max(p.token_bytes for p in growing) * block
    if states:
        return max(largest, *(p.state_bytes for p in states))
    return largest


def _cut(layer: Paged, size: int, page: int, block: int) -> Iterable[Group]:
    """As many groups as the layers need, the layers spread evenly over them."""
    own = block * max(1, page // (layer.token_bytes * block)) if layer.kind != "state" else block
    groups = -(-layer.count // size)
    for index in range(groups):
        yield Group(layer.kind, layer.count // groups + (index < layer.count % groups), layer.reach_tokens, own)


def _kind(layer: CacheLayer, *, hybrid: bool) -> str:
    if layer.kind == "latent":
        return "full"
    return layer.kind if hybrid or layer.kind == "state" else "full"


def _reach(layer: CacheLayer, *, hybrid: bool) -> int:
    return layer.reach_tokens if hybrid and layer.kind in ("sliding", "chunked") else 0
