"""Expert-parallel exchange: tokens sent to the ranks that hold their experts (dispatch) and their results back (combine).

``t = launch + tokens + link``: every token goes once to each rank that holds one of its experts. Low-latency kernels write
straight into the peer's buffer; high-throughput kernels gather and pay more per call. Data and form: SPEED 3.
"""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.collectives import Fabric
from vramcast.speed.kernels.law import Estimate, law_for
from vramcast.speed.kernels.machine import Machine, link

FORMULA = "launch + tokens + link"


def dispatch(
    *, card: Accelerator, tokens: Any, hidden: Any, top_k: Any, ep: Any, element_bytes: float = 1, nodes: int = 1,
    fabric: Fabric | None = None, implementation: str = "low_latency",
) -> Estimate:  # fmt: skip
    """Seconds to send ``tokens`` of this rank, ``hidden`` numbers of ``element_bytes`` each, to their experts' ranks.

    ``implementation``: "low_latency" (decode) or "high_throughput" (prefill). ``fabric``: the network, where nodes > 1.
    """
    return _exchange(
        "dispatch", card=card, tokens=tokens, hidden=hidden, top_k=top_k, ep=ep, element_bytes=element_bytes, nodes=nodes,
        fabric=fabric, implementation=implementation,
    )  # fmt: skip


def combine(
    *, card: Accelerator, tokens: Any, hidden: Any, top_k: Any, ep: Any, element_bytes: float = 2, nodes: int = 1,
    fabric: Fabric | None = None, implementation: str = "low_latency",
) -> Estimate:  # fmt: skip
    """Seconds to bring the experts' results back and add them up. Arguments as dispatch."""
    return _exchange(
        "combine", card=card, tokens=tokens, hidden=hidden, top_k=top_k, ep=ep, element_bytes=element_bytes, nodes=nodes,
        fabric=fabric, implementation=implementation,
    )  # fmt: skip


def ranks_reached(top_k: Any, ep: Any) -> Any:
    """Ranks that a token visits, with its experts spread evenly: ep * (1 - (1 - 1/ep)^top_k)."""
    return ep * (1 - (1 - 1 / ep) ** top_k)


def exchange_parts(
    constants: dict[str, float], on: Machine, *, tokens: Any, hidden: Any, copies: Any, element_bytes: Any
) -> dict[str, Any]:
    """Seconds of launch, of each token's bookkeeping and of the copies on the link (``on.bandwidth_bytes_per_s``, one way)."""
    return {
        "launch": constants["launch_us"] * 1e-6,
        "tokens": tokens * copies * constants["token_ns"] * 1e-9,
        "link": tokens * hidden * element_bytes * copies / (on.bandwidth_bytes_per_s * constants["link"]),
    }


def _exchange(
    operation: str, *, card: Accelerator, tokens: Any, hidden: Any, top_k: Any, ep: Any, element_bytes: float, nodes: int,
    fabric: Fabric | None, implementation: str,
) -> Estimate:  # fmt: skip
    chosen = law_for(operation, implementation, "1" if nodes == 1 else "2" if nodes == 2 else "4", card)
    rate = fabric.rail_bytes_per_s if fabric is not None and nodes > 1 else link(card, int(ep) // nodes)
    copies = top_k if implementation == "low_latency" else ranks_reached(top_k, ep)
    on = Machine(units=1, flops_per_s=1.0, bandwidth_bytes_per_s=rate)
    parts = exchange_parts(chosen.constants, on, tokens=tokens, hidden=hidden, copies=copies, element_bytes=element_bytes)
    return Estimate(seconds=sum(parts.values()), parts=parts, formula=FORMULA, chosen=chosen)
