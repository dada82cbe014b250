"""The graph of feed-forward layers: MLPs and mixtures of experts (src/llama-graph.cpp, build_ffn and build_moe_ffn)."""

from vramcast.models.layers import Dense, Experts
from vramcast.serving.engines.llama_cpp.building import Builder, Weights
from vramcast.serving.engines.llama_cpp.graph import I32, Node


def mlp(b: Builder, weights: Weights, kind: Dense, x: Node, *, suffix: str = "") -> Node:
    """Up, gate, activation, down. ``suffix``: "_shexp" for shared experts."""
    up, gate = weights[f"ffn_up{suffix}.weight"], f"ffn_gate{suffix}.weight"
    if gate in weights:
        mixed = _gated(b, up, weights[gate], x, kind.intermediate)
    elif kind.gated:
        both = b.matmul(up, x, 2 * kind.intermediate)
        mixed = b.graph.op("glu", (kind.intermediate, b.rows(x)), both)
    else:
        mixed = b.graph.like("unary", b.biased(weights, f"ffn_up{suffix}.bias", b.matmul(up, x, kind.intermediate)))
    return b.biased(weights, f"ffn_down{suffix}.bias", b.matmul(weights[f"ffn_down{suffix}.weight"], mixed, b.hidden))


def _gated(b: Builder, up: Node, gate: Node, x: Node, width: int) -> Node:
    raised = b.matmul(up, x, width)
    opened = b.matmul(gate, x, width)
    if b.graph_rules.gated_unit:
        return b.graph.op("glu", (width, b.rows(x)), opened, raised)
    return b.graph.like("mul", b.graph.like("unary", opened), raised)


def experts(b: Builder, weights: Weights, kind: Experts, x: Node) -> Node:
    """Routed experts, their weighted sum, and the shared experts beside them."""
    routed = _routed(b, weights, kind, x)
    if not kind.shared_intermediate:
        return routed
    shared = mlp(b, weights, Dense(intermediate=kind.shared_intermediate, gated=kind.gated), x, suffix="_shexp")
    if "ffn_gate_inp_shexp.weight" in weights:
        opened = b.graph.like("unary", b.matmul(weights["ffn_gate_inp_shexp.weight"], x, 1))
        shared = b.graph.like("mul", shared, opened)
    return b.add(routed, shared)


def _routed(b: Builder, weights: Weights, kind: Experts, x: Node) -> Node:
    g, rows = b.graph, b.rows(x)
    chosen, share = _choice(b, weights, kind, x)
    g.expand(share)
    wide = g.view(x, b.hidden, 1, rows)
    hidden = _inner(b, weights, (kind.intermediate, kind.active, rows), wide, chosen)
    down = g.op("matmul_id", (b.hidden, kind.active, rows), weights["ffn_down_exps.weight"], hidden, chosen)
    down = g.like("add", down, weights["ffn_down_exps.bias"], chosen) if "ffn_down_exps.bias" in weights else down
    weighted = g.like("mul", down, share)
    g.expand(weighted)
    return _summed(b, weighted, kind.active, rows)


def _choice(b: Builder, weights: Weights, kind: Experts, x: Node) -> tuple[Node, Node]:
    """Which experts each token goes to, and with what weights."""
    g, rows = b.graph, b.rows(x)
    logits = b.biased(weights, "ffn_gate_inp.bias", b.matmul(weights["ffn_gate_inp.weight"], x, kind.routed))
    chances = g.like("softmax", logits)
    ranked = g.like("add", chances, weights["exp_probs_b.bias"]) if "exp_probs_b.bias" in weights else chances
    order = g.op("argsort", (kind.routed, rows), ranked, width=I32)
    chosen = g.view(order, kind.active, rows, width=I32, strided=True)
    seen = g.view(chances, 1, kind.routed, rows)
    share = g.op("get_rows", (1, kind.active, rows), seen, chosen)
    total = g.op("sum_rows", (1, rows), g.view(share, kind.active, rows))
    share = g.op("div", (kind.active, rows), g.view(share, kind.active, rows), total)
    return chosen, g.view(share, 1, kind.active, rows)


def _inner(b: Builder, weights: Weights, shape: tuple[int, int, int], x: Node, chosen: Node) -> Node:
    g, up = b.graph, weights["ffn_up_exps.weight"]
    if "ffn_gate_exps.weight" not in weights:
        return g.like("unary", g.op("matmul_id", shape, up, x, chosen))
    gate = weights["ffn_gate_exps.weight"]
    if b.graph_rules.fused_experts:
        return g.op("matmul_id", shape, up, gate, x, chosen)
    raised = g.op("matmul_id", shape, up, x, chosen)
    raised = g.like("add", raised, weights["ffn_up_exps.bias"], chosen) if "ffn_up_exps.bias" in weights else raised
    opened = g.op("matmul_id", shape, gate, x, chosen)
    opened = g.like("add", opened, weights["ffn_gate_exps.bias"], chosen) if "ffn_gate_exps.bias" in weights else opened
    if b.graph_rules.gated_unit:
        return g.op("glu", shape, opened, raised)
    return g.like("mul", g.like("unary", opened), raised)


def _summed(b: Builder, weighted: Node, active: int, rows: int) -> Node:
    """Experts are added one view after the other; ik_llama.cpp adds them in one operation."""
    g = b.graph
    parts = [g.view(weighted, 1, strided=True) for _ in range(active)]
    if b.graph_rules.fused_norm:
        return g.op("multi_add", (b.hidden, rows), parts[0])
    g.expand(*parts)
    total = parts[0]
    for part in parts[1:]:
        total = g.like("add", total, part) if total.op == "add" else g.op("add", (b.hidden, rows), total, part)
        g.expand(total)
    return total
