"""What selective checkpointing keeps of one layer: by operation (torchtitan), or by parts recomputed by themselves (Megatron).

Source of the parts, --recompute-modules: Megatron-LM core 0.16.1. A checkpointed part keeps its inputs and its output (core_attn:
transformer/attention.py; mlp: transformer_layer.py, dense layers only; moe, shared_experts: moe/moe_layer.py). A part "without
output" keeps its inputs alone, because its output is made again before who saved it needs it (tensor_parallel/random.py,
CheckpointWithoutOutput: layernorm, mla_up_proj, moe_act). A norm is a part only where Transformer Engine has not fused it into
the matmul after it: before latent attention and before experts (models/gpt/gpt_layer_specs.py).
"""

from collections.abc import Callable, Iterable

from vramcast.training.activations.sizes import Amount, Size
from vramcast.training.activations.tape import Operation, Tape

MATMULS = frozenset({"q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down", "mixer", "router"})
_BEHIND = frozenset({"gate", "up", "gate_up", "down"})
_KERNEL = frozenset(
    {"repeat.k", "repeat.v", "attention.cast", "scores", "mask", "softmax", "softmax.back", "weighted", "attention"}
)
_POINTWISE = frozenset({"glu", "activation", "product", "relu", "square"})
_COMPRESSED = frozenset({"k", "latent.split", "sp.gather"})
Indices = set[int]


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


def module_bytes(tape: Tape, modules: Iterable[str]) -> Amount:
    """Bytes one layer keeps when each of ``modules`` is recomputed by itself. A module the layer has not changes nothing."""
    inside, held = _held(tape, modules)
    outside = (op for n, op in enumerate(tape.operations) if n not in inside)
    return sum(tape.sizes[i] for i in held) + sum(op.keeps for op in outside)


def moved_bytes(tape: Tape, recomputed: Iterable[str], moved: Iterable[str]) -> Amount:
    """Bytes of what one layer keeps that lie on the host: what the ``moved`` modules read and save, ``recomputed`` ones apart.

    Source: Megatron-LM at d98e8a64d, core/pipeline_parallel/fine_grained_activation_offload.py (hooks on every tensor saved
    inside a module, of a million elements and more; smaller ones are counted as moved here).
    """
    inside, held = _held(tape, recomputed)
    region = {n for module in moved for n in OFFLOADED[module](tape.operations)}
    touched = {i for n in region for i in tape.operations[n].saves}
    touched |= {tape.stands_for.get(r, r) for n in region for r in tape.operations[n].reads}
    keeps = sum(op.keeps for n, op in enumerate(tape.operations) if n in region and n not in inside)
    return sum(tape.sizes[i] for i in held & touched) + keeps


def _held(tape: Tape, modules: Iterable[str]) -> tuple[Indices, set[int]]:
    """Operations that are recomputed, and the tensors that stay: saved ones of what runs outside, inputs of what runs inside."""
    inside: Indices = set()
    discarded: set[int] = set()
    for module in modules:
        find, keeps_output = MODULES[module]
        part = find(tape.operations)
        inside |= part
        if not keeps_output:
            discarded |= {tape.operations[n].writes for n in part}
    operations = tape.operations
    made = {operations[n].writes for n in inside}
    held = {i for n, op in enumerate(operations) if n not in inside for i in op.saves} - discarded
    held |= {tape.stands_for.get(r, r) for n in inside for r in operations[n].reads if r not in made} - discarded
    return inside, held


def _named(operations: list[Operation], *names: str) -> Indices:
    return {n for n, op in enumerate(operations) if op.name in names}


def _first(operations: list[Operation], *names: str) -> int:
    return min(_named(operations, *names), default=len(operations))


def _last(operations: list[Operation], *names: str) -> int:
    return max(_named(operations, *names), default=-1)


def _core_attention(operations: list[Operation]) -> Indices:
    """The kernel, with the dropout of its probabilities."""
    kernel = _named(operations, *_KERNEL)
    return kernel | {n for n in _named(operations, "dropout") if min(kernel, default=n) < n < max(kernel, default=n)}


def _separate_norms(operations: list[Operation]) -> Indices:
    """The norm before latent attention, and the one before a router."""
    norms = sorted(_named(operations, "norm"))
    before = {n for n in norms if n < _first(operations, "latent.split")} if _named(operations, "latent.split") else set()
    router = _first(operations, "router")
    pre_mlp = [n for n in norms if _last(operations, "o") < n < router] if router < len(operations) else []
    return {*([min(before)] if before else []), *pre_mlp}


def _up_projections(operations: list[Operation]) -> Indices:
    """From the compressed latents to queries, keys and values, the norms of the latents among them."""
    if not _named(operations, "latent.split"):
        return set()
    down = {min(_named(operations, "q"))} if len(_named(operations, "q")) > 1 else set()
    start, stop = min(_named(operations, "norm")), min(_named(operations, *_KERNEL))
    return {n for n in range(start + 1, stop) if operations[n].name not in _COMPRESSED} - down


def _expert_activation(operations: list[Operation]) -> Indices:
    start, stop = _first(operations, "permute"), _first(operations, "route.weight")
    return {n for n in range(start, stop) if operations[n].name in _POINTWISE} if start < stop < len(operations) else set()


def _dense_mlp(operations: list[Operation]) -> Indices:
    """The feed-forward part of a layer without experts, its fused norm included."""
    if _named(operations, "router") or not _named(operations, "down"):
        return set()
    first = _first(operations, "gate", "gate_up", "up")
    norm = max((n for n in _named(operations, "norm") if _last(operations, "o") < n < first), default=first)
    return set(range(norm, _last(operations, "down") + 1))


def _expert_layer(operations: list[Operation]) -> Indices:
    start = _first(operations, "router")
    return set(range(start, max(_last(operations, "unpermute", "experts"), _last(operations, "shared.add")) + 1))


def _shared_experts(operations: list[Operation]) -> Indices:
    return set(range(_first(operations, "shared.gate", "shared.gate_up", "shared.up"), _last(operations, "shared.down") + 1))


MODULES: dict[str, tuple[Callable[[list[Operation]], Indices], bool]] = {
    "core_attn": (_core_attention, True),
    "layernorm": (_separate_norms, False),
    "mla_up_proj": (_up_projections, False),
    "mlp": (_dense_mlp, True),
    "moe": (_expert_layer, True),
    "moe_act": (_expert_activation, False),
    "shared_experts": (_shared_experts, True),
}


def _attention_norm(operations: list[Operation]) -> Indices:
    return {min(_named(operations, "norm"), default=len(operations))} & set(range(_first(operations, *_KERNEL)))


def _projections(operations: list[Operation]) -> Indices:
    """From the normed input to queries, keys and values: with latent attention the way down and up again."""
    inputs = _named(operations, "q", "k", "v", "qkv", "sp.gather")
    return set(range(min(inputs), _first(operations, *_KERNEL))) if inputs else set()


def _mlp_norm(operations: list[Operation]) -> Indices:
    after = _last(operations, "o")
    first = _first(operations, "router", "gate", "gate_up", "up")
    return {n for n in _named(operations, "norm") if after < n < first}


OFFLOADED: dict[str, Callable[[list[Operation]], Indices]] = {
    "attn_norm": _attention_norm,
    "qkv_linear": _projections,
    "core_attn": _core_attention,
    "attn_proj": lambda operations: _named(operations, "o"),
    "mlp_norm": _mlp_norm,
    "expert_fc1": lambda operations: _named(operations, "expert.gate", "expert.up", "expert.gate_up"),
    "moe_act": _expert_activation,
}
