"""Expert-parallel exchange: tokens sent to the ranks that hold their experts (dispatch) and their results back (combine).

``t = launch + link``: every token goes once to each rank that holds one of its experts. Low-latency kernels write straight
into the peer's buffer; high-throughput kernels gather and pay more per call. Data and form: SPEED 3.
"""

from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.speed.kernels.collectives import Fabric, link
from vramcast.speed.kernels.law import Estimate, law_for

FORMULA = "launch + link"


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
    constants: dict[str, float], *, tokens: Any, hidden: Any, copies: Any, element_bytes: Any, link_bytes_per_s: Any
) -> dict[str, Any]:
    """Seconds of launch and of the copies on the link."""
    return {
        "launch": constants["launch_us"] * 1e-6,
        "link": tokens * hidden * element_bytes * copies / (link_bytes_per_s * constants["link"]),
    }


def _exchange(
    operation: str, *, card: Accelerator, tokens: Any, hidden: Any, top_k: Any, ep: Any, element_bytes: float, nodes: int,
    fabric: Fabric | None, implementation: str,
) -> Estimate:  # fmt: skip
    chosen = law_for(operation, implementation, "bf16", card)
    rate = fabric.rail_bytes_per_s if fabric is not None and nodes > 1 else link(card)
    copies = top_k if implementation == "low_latency" else ranks_reached(top_k, ep)
    parts = exchange_parts(
        chosen.law.constants, tokens=tokens, hidden=hidden, copies=copies, element_bytes=element_bytes, link_bytes_per_s=rate
    )
    return Estimate(seconds=parts["launch"] + parts["link"], parts=parts, formula=FORMULA, chosen=chosen)
