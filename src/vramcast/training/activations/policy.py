"""What a stage's layers keep under a checkpointing policy, and how high the live layer reaches."""

import msgspec

from vramcast.models.inventory import Block, Model
from vramcast.models.sharding import cut, share
from vramcast.models.stages import Stage
from vramcast.training.activations.layer import layer_tape
from vramcast.training.activations.regions import module_bytes
from vramcast.training.activations.style import Style
from vramcast.training.activations.tape import Life, Tape
from vramcast.training.recipe.policy import Policy

MATMULS = frozenset({"q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down", "mixer", "router"})
_BEHIND = frozenset({"gate", "up", "gate_up", "down"})


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a stage's layers, bytes.

    ``waiting``: held at the end of forward; ``copies``: autocast's of the weights of recomputed layers, which nothing saves but
    autocast keeps until it ends, after the loss; ``forward``: the live layer's forward beyond that; ``working``: the last layer's
    backward beyond that, recomputation included; ``first_working`` and ``first_kept``: the same of the first layer, and what it
    keeps; ``gradients``: weight gradients that the first layer's backward makes; ``boundary``: one layer's input;
    ``parts``: what waits, by the operation that made it, where nothing is recomputed.
    """

    waiting: float
    copies: float = 0.0
    forward: float
    working: float
    first_working: float
    first_kept: float
    gradients: float
    block_elements: float
    boundary: float
    why: str = ""
    parts: tuple[tuple[str, float], ...] = ()


def layers_of(policy: Policy, stage: Stage, style: Style, model: Model, *, tokens: float, seq: float) -> Layers:
    """Activations of the stage's layers under ``policy``."""
    own = tokens / style.tp if style.sp else tokens
    boundary = own * model.hidden * style.residual
    costs = {id(block): _cost(policy, block, style, model, tokens=tokens, seq=seq) for block, _ in stage.blocks}
    blocks = [block for block, _ in stage.blocks]
    first_life, first_kept = costs[id(min(blocks, key=lambda b: b.indices[0]))]
    last_life, last_kept = costs[id(max(blocks, key=lambda b: b.indices[-1]))]
    largest = max(blocks, key=lambda b: b.elements)
    embedded = _embedded(policy, stage, style, boundary)
    return Layers(
        waiting=_waiting(policy, stage, {i: kept for i, (_, kept) in costs.items()}, boundary) * stage.in_flight + embedded,
        copies=sum(costs[id(block)][0].cached * count for block, count in stage.blocks) if policy.recomputes_layers else 0.0,
        forward=max(_forward(policy, life) for life, _ in costs.values()),
        working=_working(policy, last_life, last_kept) + _beside(policy, stage, last_life, boundary),
        first_working=_working(policy, first_life, first_kept),
        first_kept=first_kept,
        gradients=first_life.weight_gradients,
        block_elements=_elements(largest, style),
        boundary=boundary,
        why=f"the live layer's gradients and saved tensors, highest at its {last_life.binding}",
        parts=_parts(stage, {i: life for i, (life, _) in costs.items()}, embedded) if policy.kind == "none" else (),
    )


def _parts(stage: Stage, lives: dict[int, Life], embedded: float) -> tuple[tuple[str, float], ...]:
    """What every layer keeps by the operation that made it, over the stage and its passes in flight; the embedding's last."""
    found: dict[str, float] = {}
    for block, count in stage.blocks:
        for name, size in lives[id(block)].savings.items():
            found[name] = found.get(name, 0.0) + size * count * stage.in_flight
    return (*found.items(), *((("embedding", embedded),) if embedded else ()))


def blend(narrow: Layers, wide: Layers, share: float) -> Layers:
    """Layers of which the first ``share`` run in 8 or 4 bits and the others, the last one among them, in 16."""
    waiting = share * narrow.waiting + (1 - share) * wide.waiting
    first = {name: getattr(narrow, name) for name in ("first_working", "first_kept", "gradients")}
    return msgspec.structs.replace(wide, waiting=waiting, parts=(), **first)


def _embedded(policy: Policy, stage: Stage, style: Style, boundary: float) -> float:
    """What the embedding leaves: its output, and the mask of the dropout over it for every pass in flight."""
    if not stage.first:
        return 0.0
    mask = boundary / style.residual * stage.in_flight if style.hidden_dropout else 0.0
    return mask + (boundary if policy.kind == "none" else 0)


def _waiting(policy: Policy, stage: Stage, kept_of: dict[int, float], boundary: float) -> float:
    """What one pass leaves for backward: each layer's own, or the inputs of the chunks and layers that are recomputed.

    Source: Megatron-LM core 0.16.1, transformer/transformer_block.py, _checkpointed_forward.
    """
    if policy.kind == "uniform":
        return -(-stage.layers // policy.layers) * boundary
    left = policy.layers if policy.kind == "block" else 0
    total = 0.0
    for block, count in sorted(stage.blocks, key=lambda pair: pair[0].indices[0]):
        recomputed = min(left, count)
        left -= recomputed
        total += recomputed * boundary + (count - recomputed) * kept_of[id(block)]
    return total


def _beside(policy: Policy, stage: Stage, life: Life, boundary: float) -> float:
    """Layers of the same chunk that were recomputed together with the last one: what they saved is alive too."""
    chunk = (stage.layers - 1) % policy.layers if policy.kind == "uniform" else 0
    return chunk * max(boundary, life.saved + life.input_saved)


def _forward(policy: Policy, life: Life) -> float:
    return life.transient_peak if policy.recomputes_layers else life.forward_peak - life.saved


def _working(policy: Policy, life: Life, kept_bytes: float) -> float:
    """A layer's backward beyond what waited for it: all of it when recomputed from its input."""
    return life.backward_peak - (0 if policy.recomputes_layers else min(life.saved, kept_bytes))


def _elements(block: Block, style: Style) -> float:
    layout = cut(style.tp, ep=style.ep, expert_tp=style.expert_tp)
    return sum(share(tensor, layout) for tensor in block.tensors)


def _cost(policy: Policy, block: Block, style: Style, model: Model, *, tokens: float, seq: float) -> tuple[Life, float]:
    tape = layer_tape(block, style, hidden=model.hidden, tokens=tokens, seq=seq)
    life = tape.life()
    return life, kept(policy, tape, life, narrow=style.saved_inputs > 0, scans=style.scans)


def kept(policy: Policy, tape: Tape, life: Life, *, narrow: bool = False, scans: bool = False) -> float:
    """Bytes one layer keeps for backward; ``narrow``: its matmuls make narrow copies of what they read.

    ``scans``: an operation before each matmul takes the absolute values of what it reads, and its result is kept.
    """
    whole, boundary = life.saved + life.input_saved, tape.sizes[0]
    if policy.kind in ("full", "uniform"):
        return boundary
    if policy.kind == "offloaded":
        return 0.0
    if policy.kind == "modules":
        return module_bytes(tape, policy.modules)
    if policy.kind == "op":
        return boundary + _selected(tape, narrow=narrow) + (_scanned(tape) if scans else 0)
    if policy.kind == "core_attention":
        return whole - _attention_scores(tape)
    if policy.kind == "layer":
        return boundary / policy.layers + whole * (policy.layers - 1) / policy.layers
    return whole


def _selected(tape: Tape, *, narrow: bool) -> float:
    """The per-operation policy of torchtitan: every second matmul's output, attention's output and statistics.

    A matmul that makes narrow copies is a function of its own, unknown to the policy: its output does not stay, and of its
    copies those that lie behind another matmul do; what weights, the block's input or attention's output give is made again.
    Source: torchtitan 0.2.0, distributed/activation_checkpoint.py, _get_custom_policy (mm_count % 2); torch 2.13,
    _functorch/partitioners.py (matmuls are not recomputed).
    """
    total, matmuls = 0.0, 0
    for op in tape.operations:
        if narrow and _role(op.name) in MATMULS:
            total += op.keeps if _role(op.name) in _BEHIND else 0
        elif _role(op.name) in MATMULS:
            matmuls += 1
            total += tape.sizes[op.writes] if matmuls % 2 else 0
        elif op.name == "attention":
            total += tape.sizes[op.writes] + op.keeps
        elif op.name in ("tp.reduce", "sp.scatter"):
            total += tape.sizes[op.writes]
    return total


def _scanned(tape: Tape) -> float:
    """Absolute values of each matmul's input and, as wide as its gradient, of its weight.

    Source: torchao 0.9, float8/float8_utils.py, tensor_to_amax (torch.max(torch.abs(x))), once for every linear layer.
    """
    matmuls = [op for op in tape.operations if _role(op.name) in MATMULS]
    return sum(tape.sizes[op.reads[0]] + op.weight_gradient for op in matmuls)


def _role(name: str) -> str:
    return name.removeprefix("expert.").removeprefix("shared.")


def _attention_scores(tape: Tape) -> float:
    """Megatron's selective recomputation drops what lies between the scores and the weighted sum (arXiv 2205.05198)."""
    dropped = {"softmax", "softmax.back", "dropout"}
    held = {i for op in tape.operations for i in op.saves}
    return sum(
        (tape.sizes[op.writes] if op.writes in held else 0) + op.keeps
        for op in tape.operations
        if op.name in dropped and tape.sizes[op.writes] > tape.sizes[0]
    )
