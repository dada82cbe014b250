"""text-generation-inference's rules by the version they hold from.

Read in the history of huggingface/text-generation-inference up to 3.3.7 (db931fcf): server/text_generation_server/models/
globals.py and flash_causal_lm.py, launcher/src/main.rs. The borders are 5df80590 (2024-12-06, released as 3.0.0).
"""

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, Dense, Experts
from vramcast.serving.engines.base import Table, Version, at

VERSIONS = ("2.0.0", "3.0.0", "3.3.7")

# TGI_WIGGLE_ROOM: the share of the card that the pool is measured against
WIGGLE_ROOM: Table[float] = (((0,), 0.95), ((3,), 0.90))
# whether the warm-up asks for log-probabilities of every token of its prompts (REQUEST_LOGPROBS is off since)
WARMS_UP_ALL_LOGITS: Table[bool] = (((0,), True), ((3,), False))
# whether max_batch_prefill_tokens is worked out from the card's and the model's FLOPs
WORKS_OUT_PREFILL: Table[bool] = (((0,), False), ((3,), True))
PREFILL_TOKENS = 4096
# flashinfer's workspace, one a process (layers/attention/flashinfer.py get_workspace)
WORKSPACE_BYTES = 128 * 2**20
FEWEST_WORKED_OUT = 100  # launcher/src/main.rs compute_optimal
# launcher/src/main.rs ComputeType::f16_flop, by the part of a card's name that tells it, longest first
_COMPUTE = (
    ("4090", 82e12), ("L40S", 363e12), ("L40", 181e12), ("L4", 121e12), ("T4", 65e12), ("A10G", 125e12), ("A40", 149e12),
    ("A100", 312e12), ("H100", 900e12), ("H200", 989e12),
)  # fmt: skip


def prefill_tokens(version: Version, model: Model, card: Accelerator | None, cards: int) -> tuple[int, str]:
    """max_batch_prefill_tokens where it is not given, and why: card FLOP/s over FLOPs a token, at most the model's positions.

    The launcher's own cut for want of memory is left out: it matters only where the model hardly fits.
    """
    work = _token_flops(model) if at(version, WORKS_OUT_PREFILL) else 0
    rate = next((value for name, value in _COMPUTE if card is not None and name in card.name.replace(" ", "")), 0.0)
    optimal = int(rate * cards / work) if work and rate else 0
    if optimal <= FEWEST_WORKED_OUT:
        return min(PREFILL_TOKENS, model.positions or PREFILL_TOKENS), "default of that version"
    chosen = min(optimal, model.positions or optimal)
    return (
        chosen,
        f"the launcher's: {rate * cards / 1e12:,.0f} TFLOP/s over {work / 1e9:,.1f} GFLOP a token, at most the positions",
    )


def _token_flops(model: Model) -> float:
    """The launcher's own count of a token's FLOPs (Config::flop); 0 where it has none, such as for models with a vision tower."""
    if any(tower.kind == "vision" for tower in model.towers):
        return 0.0
    total = 0.0
    for block in model.blocks:
        mixer = next((m for m in block.mixers if isinstance(m, Attention)), None)
        kind = block.feedforward
        if mixer is None or not isinstance(kind, Dense | Experts):
            return 0.0
        width = kind.intermediate
        if isinstance(kind, Experts):
            width = kind.active * kind.intermediate + kind.shared_intermediate
        attention = 2 * model.hidden * mixer.head_dim * (3 * mixer.heads + 2 * mixer.kv_heads)
        total += block.count * (attention + 6 * model.hidden * width)
    return total
