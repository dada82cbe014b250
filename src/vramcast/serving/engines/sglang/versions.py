"""SGLang's rules by the version they hold from: default fraction, batch tiers, pools.

Read from sglang/srt/arg_groups/memory_hook.py, arg_groups/cuda_graph_hook.py and configs/model_config.py (0.5.23), and
server_args.py of 0.4.6.post5, 0.5.2, 0.5.6 and 0.5.10.
"""

import msgspec

from vramcast.serving.engines.base import Table

VERSIONS = ("0.4.6", "0.5.2", "0.5.6", "0.5.10", "0.5.23")

STATE_SHARE = 0.9
# state slots of a request beside prefix reuse (mem_cache/kv_cache_configurator.py: the ratio, and two more where an extra buffer
# lets the scheduler run ahead; server_args.py: mamba_radix_cache_strategy auto is that buffer, mamba_scheduler_strategy was not)
STATE_SLOTS: Table[int] = (((0,), 3), ((0, 5, 15), 5))
# models of Mamba-2 had no prefix reuse at first (mamba2_config switched it off; 256 clients of Nemotron 3 wait for nothing in
# 0.5.6 and 0.5.9)
STATE_SLOTS_MAMBA2: Table[int] = (((0,), 1), ((0, 5, 10), 3), ((0, 5, 15), 5))

# what the default fraction follows: tensor parallel ranks alone, the card's size, or what activations and graphs are reckoned at
FRACTION: Table[str] = (((0,), "ranks"), ((0, 5), "card"), ((0, 5, 3), "reserve"))
# prefill pieces are captured unless told otherwise; before, only where asked (sgl-project/sglang#16331, #18130)
CAPTURES_PREFILL: Table[bool] = (((0,), False), ((0, 5, 10), True))
# models that see leave more of the card free: a flat share, then one that follows the encoder (server_args.py
# adjust_mem_fraction_for_vlm)
SEES_BY_ENCODER: Table[bool] = (((0,), False), ((0, 5), True))
# MiB kept for a draft and its graphs, in releases whose reserve knows of them (server_args.py)
DRAFT_MIB: Table[int] = (((0,), 0), ((0, 5, 3), 2048), ((0, 5, 23), 0))
# every pipeline stage allocates the cache of all layers (start-up logs of 0.5.9)
STAGES_HOLD_ALL: Table[bool] = (((0,), True), ((0, 5, 10), False))
# 0.4.6: a fraction by tensor parallel size alone
FIXED_FRACTION = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
# 0.5.2: GiB kept free by card size in MiB: (below, base, per rank)
RESERVED_052 = ((35 * 1024, 2.8, 0.1), (90 * 1024, 9.5, 0.5), (160 * 1024, 12.0, 0.5), (10**9, 32.0, 0.0))


class Tier(msgspec.Struct, frozen=True):
    """Defaults of cards below that many MiB: prefill chunk, largest decode batch below and from four tensor-parallel ranks."""

    below_mib: int
    chunk: int
    batch: int
    batch_tp4: int


_LARGER = (Tier(61440, 4096, 32, 160), Tier(163840, 8192, 256, 512), Tier(10**9, 16384, 512, 512))
_SMALLEST = Tier(20480, 2048, 8, 8)
TIERS: Table[tuple[Tier, ...]] = (
    ((0,), (_SMALLEST, Tier(35840, 2048, 24, 80), *_LARGER)),
    ((0, 5, 11), (_SMALLEST, Tier(35840, 4096, 48, 160), *_LARGER)),
)
UNKNOWN_CARD = Tier(0, 4096, 160, 160)
# captured prefill sizes by chunk (cuda_graph_hook.py)
PREFILL_SIZES = {2048: 42, 4096: 50, 8192: 58, 16384: 74}
