"""The default of --mem-fraction-static: what a formula says must stay free, turned into a share of the card.

Source: sglang/srt/arg_groups/memory_hook.py:84-345 (0.5.23), all in MiB; server_args.py for what came before.
"""

from collections.abc import Mapping
from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.models.layers import LatentAttention
from vramcast.quantity import Number, maximum, where, whole
from vramcast.serving.engines.base import Version, at
from vramcast.serving.engines.sglang import versions
from vramcast.units import MiB

LARGE_CARD_MIB = 61440
LARGE_CARD_FLOOR_MIB = 10240
LATENT_GRAPHS_MIB = 1536
UNKNOWN_FRACTION = 0.95
# what the engine keeps for one token of a prefill chunk, the shortest chunk it counts, and one captured prefill size
PREFILL_TOKEN_BYTES = 1.5 * MiB
LEAST_CHUNK = 2048
PREFILL_GRAPH_MIB = 8
# what stays of the share where a model sees: for an encoder like ViT-L/14; each more as large takes a tenth, within limits
SEES_FLAT, SEES_BASE, SEES_SLOPE, SEES_LIMITS = 0.9, 0.95, 0.1, (0.8, 1.05)
USUAL_LAYERS, USUAL_HIDDEN = 24, 1024


def tier_of(card: Accelerator | None, version: Version) -> versions.Tier:
    """The defaults of a card's size, by nvidia-smi's total."""
    if card is None:
        return versions.UNKNOWN_CARD
    return next(tier for tier in at(version, versions.TIERS) if card.driver_bytes / MiB < tier.below_mib)


def is_latent(model: Model) -> bool:
    """Whether attention is MLA, whose prefill graphs are counted at a flat size."""
    return any(isinstance(mixer, LatentAttention) for block in model.blocks for mixer in block.mixers)


def captures_prefill(model: Model, version: Version, options: Mapping[str, Any], pp: int) -> bool:
    """Whether prefill pieces are captured (server_args.py _handle_piecewise_cuda_graph)."""
    senses = any(tower.kind in ("vision", "audio") for tower in model.towers)
    refused = senses or pp > 1 or options.get("enable_dp_attention") or options.get("disable_piecewise_cuda_graph")
    return at(version, versions.CAPTURES_PREFILL) and not refused


def share_of_seeing(model: Model, version: Version) -> float:
    """What stays of the default share where images are encoded beside the cache.

    Encoders of Qwen's form name their layers ``depth``, which the rule does not read: it takes the usual number.
    """
    tower = next((tower for tower in model.towers if tower.kind == "vision"), None)
    if tower is None or model_class(model.family).served.sglang_blind:
        return 1
    if not at(version, versions.SEES_BY_ENCODER):
        return SEES_FLAT
    layers = USUAL_LAYERS if "temporal_patch_size" in tower.facts else sum(block.count for block in tower.blocks)
    size = layers * (tower.hidden or USUAL_HIDDEN) ** 2 / (USUAL_LAYERS * USUAL_HIDDEN**2)
    least, most = SEES_LIMITS
    return SEES_BASE * max(least, min(most, 1 - SEES_SLOPE * (size - 1)))


def default_fraction(
    card: Accelerator | None,
    version: Version,
    *,
    tp: int,
    pp: int,
    chunk: Number,
    batch: Number,
    prefill: Number = 0,
    draft: bool = False,
    dp: int = 1,
) -> Number:
    """The fraction SGLang takes when none is given. ``prefill``: MiB of captured prefill sizes; ``draft``: one is loaded."""
    if card is None:
        return UNKNOWN_FRACTION
    size = card.driver_bytes / MiB
    rule = at(version, versions.FRACTION)
    if rule == "ranks":
        return next(fraction for ranks, fraction in versions.FIXED_FRACTION if tp >= ranks)
    if rule == "card":
        base, each = next((b, e) for below, b, e in versions.RESERVED_052 if size < below)
        return _thousandths((size - (base + each * tp * pp) * 1024) / size)
    reserved = reserved_mib(size, tp=tp, pp=pp, chunk=chunk, batch=batch, prefill=prefill, dp=dp)
    reserved += at(version, versions.DRAFT_MIB) if draft else 0
    return _thousandths((size - reserved) / size)


def _thousandths(share: Number) -> Number:
    return whole(share * 1000) / 1000


def reserved_mib(size: float, *, tp: int, pp: int, chunk: Number, batch: Number, prefill: Number, dp: int = 1) -> Number:
    """MiB kept for activations, graphs and collectives on a card of ``size`` MiB."""
    reserved = 512 + PREFILL_TOKEN_BYTES / MiB * maximum(chunk, LEAST_CHUNK) + tp * pp * 128 + 2 * batch + prefill
    if dp > 1:
        reserved += 3 * batch * dp + where(batch > 300, 1.5 * batch * dp, 0)
    return maximum(reserved, LARGE_CARD_FLOOR_MIB) if size > LARGE_CARD_MIB else reserved


def prefill_graphs_mib(chunk: Number, *, latent: bool) -> Number:
    """MiB of the captured prefill sizes: 8 for each, or a flat amount for latent attention."""
    return LATENT_GRAPHS_MIB if latent else PREFILL_GRAPH_MIB * prefill_sizes(chunk)


def prefill_sizes(chunk: Number) -> Number:
    """Captured prefill sizes of a chunk: those of the default chunk that is not larger, the smallest one's below all."""
    count: Number = versions.PREFILL_SIZES[LEAST_CHUNK]
    for size, more in versions.PREFILL_SIZES.items():
        count = where(chunk >= size, more, count)
    return count
