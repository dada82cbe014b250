"""What selective checkpointing keeps of one layer: of what it saves, the operations that are not made again."""

from vramcast.training.activations.sizes import Amount, Size
from vramcast.training.activations.tape import Tape

MATMULS = frozenset({"q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down", "mixer", "router"})
_BEHIND = frozenset({"gate", "up", "gate_up", "down"})


def selected(tape: Tape, *, narrow: bool) -> Amount:
    """The per-operation policy of torchtitan: every second matmul's output, attention's output and statistics.

    A matmul that makes narrow copies is a function of its own, unknown to the policy: its output does not stay, and of its
    copies those that lie behind another matmul do; what weights, the block's input or attention's output give is made again.
    Source: torchtitan 0.2.0, distributed/activation_checkpoint.py, _get_custom_policy (mm_count % 2); torch 2.13,
    _functorch/partitioners.py (matmuls are not recomputed).
    """
    total: Amount = 0.0
    matmuls = 0
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


def scanned(tape: Tape) -> Amount:
    """Absolute values of each matmul's input and, as wide as its gradient, of its weight.

    Source: torchao 0.9, float8/float8_utils.py, tensor_to_amax (torch.max(torch.abs(x))), once for every linear layer.
    """
    matmuls = [op for op in tape.operations if _role(op.name) in MATMULS]
    return sum(tape.sizes[op.reads[0]] + op.weight_gradient for op in matmuls)


def _role(name: str) -> str:
    return name.removeprefix("expert.").removeprefix("shared.")


def _is_score(size: Amount, stream: Amount) -> bool:
    """Whether a tensor has an element for every pair of places, as no other part of a layer has."""
    return size.grows_with("seq") if isinstance(size, Size) else size > stream


def attention_scores(tape: Tape) -> Amount:
    """Megatron's selective recomputation drops what lies between the scores and the weighted sum (arXiv 2205.05198)."""
    dropped = {"softmax", "softmax.back", "dropout"}
    held = {i for op in tape.operations for i in op.saves}
    return sum(
        (tape.sizes[op.writes] if op.writes in held else 0) + op.keeps
        for op in tape.operations
        if op.name in dropped and _is_score(tape.sizes[op.writes], tape.sizes[0])
    )
