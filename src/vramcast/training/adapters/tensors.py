"""Which tensors an adapter or a partial method trains, and how many parameters that adds. Exact, from shapes."""

import re
from collections.abc import Iterator
from math import prod

from vramcast.errors import unknown_name
from vramcast.models.inventory import Model, Tensor
from vramcast.training.adapters.kinds import KINDS, Kind
from vramcast.workload import Adapter

LINEAR_ROLES = frozenset({"q", "k", "v", "qkv", "o", "q_a", "q_b", "kv_a", "kv_b", "gate", "up", "gate_up", "down", "mixer"})
_QKV, _MLP = frozenset({"q", "k", "v", "qkv"}), frozenset({"gate", "up", "gate_up", "down"})
# what a module name or a report's word means when no tensor of the model carries it
_MEANINGS: dict[str, frozenset[str]] = {
    "all-linear": LINEAR_ROLES, "all": LINEAR_ROLES, "attn": _QKV, "attention": _QKV, "mlp": _MLP,
    "head": frozenset({"head"}), "lm_head": frozenset({"head"}), "embed_out": frozenset({"head"}),
    "embed_tokens": frozenset({"embedding"}), "wte": frozenset({"embedding"}), "word_embeddings": frozenset({"embedding"}),
    "c_attn": _QKV, "query_key_value": _QKV, "w_pack": _QKV, "wqkv": _QKV, "in_proj": _QKV, "linear_qkv": _QKV,
    "c_proj": frozenset({"o", "down"}), "projection": frozenset({"o"}), "proj": frozenset({"o"}), "dense": frozenset({"o"}),
    "out_proj": frozenset({"o"}), "wo": frozenset({"o"}), "linear_proj": frozenset({"o"}), "query": frozenset({"q"}),
    "key": frozenset({"k"}), "value": frozenset({"v"}), "w1": frozenset({"gate", "up"}), "w2": frozenset({"gate", "down"}),
    "w3": frozenset({"up"}), "c_fc": frozenset({"up"}), "fc1": frozenset({"up"}), "fc2": frozenset({"down"}),
    "dense_h_to_4h": frozenset({"up", "gate_up"}), "dense_4h_to_h": frozenset({"down"}), "linear_fc1": frozenset({"up", "gate"}),
    "linear_fc2": frozenset({"down"}),
}  # fmt: skip
KNOWN_ROLES = LINEAR_ROLES | {"head", "embedding"}
_RENAMED = frozenset({"gate", "up", "down", "gate_up"})
_PACKED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}


def is_linear(tensor: Tensor) -> bool:
    """Whether the tensor is a linear layer's weight inside a block (what quantisation and all-linear adapters act on)."""
    return len(tensor.shape) == 2 and tensor.role.removeprefix("shared.").removeprefix("expert.") in LINEAR_ROLES


def targeted(model: Model, adapter: Adapter, *, router: bool = False, experts: str = "layers") -> dict[str, int]:
    """Ranks by role for the roles an adapter reaches. Raises QuestionError for a target that names no layer.

    ``router``: all-linear reaches the routers of experts too. ``experts``: what names of their projections mean. "layers": linear
    layers like any other. "tensors": the two tensors that hold all experts, and these alone: PEFT takes such names for theirs, so
    no shared expert or dense layer is adapted. "none": PEFT leaves the tensors alone.
    Source: peft 0.21, utils/transformers_weight_conversion.py, _convert_peft_config_moe.
    """
    found = dict(_targeted(model, adapter.targets, adapter.rank))
    if experts == "tensors":
        found = {role: n for role, n in found.items() if role not in _RENAMED and not role.startswith("shared.")}
    elif experts == "none":
        found = {role: n for role, n in found.items() if not role.startswith("expert.")}
    if router and set(adapter.targets) & {"all-linear", "all"}:
        found["router"] = adapter.rank
    for name in adapter.parameters:
        found.update(_parameters(model, name, adapter.rank))
    return found


def _targeted(model: Model, targets: tuple[str, ...], rank: int) -> Iterator[tuple[str, int]]:
    leaves: dict[str, set[str]] = {}
    for tensor in (t for b in model.blocks for t in b.tensors if is_linear(t)):
        leaves.setdefault(_leaf(tensor), set()).add(tensor.role)
    roles = {role for reached in leaves.values() for role in reached} | {"head", "embedding"}
    for name in (n for target in targets for n in _names(target)):
        found = _roles_of(name, leaves, roles)
        if found is None:
            raise unknown_name("adapter target", name, {*leaves, *_MEANINGS})
        yield from ((role, rank) for role in found)


def parts_of(adapter: Adapter) -> frozenset[str]:
    """Which of queries, keys and values an adapter reaches; none when it reaches all three."""
    wanted = {role for name in adapter.targets for role in _MEANINGS.get(name.lower(), {name.lower().removesuffix("_proj")})}
    parts = frozenset(wanted & {"q", "k", "v"})
    return frozenset() if "qkv" in wanted or len(parts) == len("qkv") else parts


def _parameters(model: Model, name: str, rank: int) -> dict[str, int]:
    """Expert tensors that PEFT's target_parameters name: gate_up_proj, down_proj. Raises QuestionError when there are none."""
    reached = {t.role for b in model.blocks for t in b.tensors if t.role.startswith("expert.")}
    wanted = ("expert.down",) if "down" in name else ("expert.gate", "expert.up", "expert.gate_up")
    found = {role: rank for role in wanted if role in reached}
    if not found:
        raise unknown_name("adapter parameter", name, ("experts.gate_up_proj", "experts.down_proj") if reached else ())
    return found


def _names(target: str) -> list[str]:
    """The module names of a target: its last part, or, of a regular expression, each name in its last group."""
    if not any(sign in target for sign in "|(\\["):
        return [target.rsplit(".", 1)[-1]]
    words = re.findall(r"\w+", target.rsplit("(", 1)[-1])
    suffix = "_proj" if target.endswith("_proj") else ""
    return [w.removesuffix("_proj") + suffix for w in words if w not in ("_proj", "d")]


def _roles_of(name: str, leaves: dict[str, set[str]], roles: set[str]) -> set[str] | None:
    """Roles a name reaches; none of them when the model has no such layer, None when no model has."""
    if name in leaves:
        return leaves[name]
    role = name.lower().removesuffix("_proj")
    wanted = _MEANINGS.get(name.lower()) or frozenset({role, _PACKED.get(role, role)})
    found = {r for r in roles if r.split(".")[-1] in wanted}
    return found if found or wanted & KNOWN_ROLES else None


def _leaf(tensor: Tensor) -> str:
    return tensor.name.removesuffix(".weight").rsplit(".", 1)[-1]


def sizes_of(adapter: Adapter) -> dict[str, int]:
    """The sizes of an adapter by PEFT's names: the kind's defaults, its rank, and what was given.

    Raises QuestionError for a size the kind does not have.
    """
    kind = kind_of_adapter(adapter)
    rank = {"r": adapter.rank} if kind.sizes.get("r") else {}
    for name in adapter.sizes:
        if name not in kind.sizes:
            raise unknown_name(f"size of {adapter.kind}", name, kind.sizes)
    return {**kind.sizes, **rank, **adapter.sizes}


def kind_of_adapter(adapter: Adapter) -> Kind:
    """The rules of an adapter's kind; those of LoRA for kinds that train no matrices beside a weight."""
    return KINDS["dora" if adapter.dora and adapter.kind == "lora" else adapter.kind if adapter.kind in KINDS else "lora"]


def beside(tensor: Tensor, adapter: Adapter, *, transposed: bool, fused: bool) -> tuple[tuple[int, ...], ...]:
    """Shapes of what is trained beside one weight. ``transposed``: (in, out), as GPT-2 stores it.

    ``fused``: experts whose gate and up projections are one tensor (transformers 5), which PEFT adapts at twice the rank when
    they are targeted by name, at the rank itself as a parameter (peft/tuners/lora/layer.py, ParamWrapper; lora/conversion.py).
    """
    kind, sizes = kind_of_adapter(adapter), sizes_of(adapter)
    rows, columns = reversed(tensor.shape) if transposed else tensor.shape
    if fused and tensor.role == "expert.up":
        return ()
    if fused and tensor.role == "expert.gate":
        wider = {"r": sizes["r"] * (1 if adapter.parameters else 2)} if "r" in sizes else {}
        return kind.shapes(2 * rows, columns, {**sizes, **wider})
    if "feedforward" in sizes:
        sizes["feedforward"] = tensor.role.endswith("down")
    return kind.shapes(rows, columns, sizes)


def once(model: Model, adapter: Adapter, ranks: dict[str, int]) -> tuple[tuple[tuple[int, ...], ...], int]:
    """What an adapter trains once for the whole model, and the floats it keeps without training them."""
    if adapter.kind not in KINDS:
        return (), 0
    kind, sizes = kind_of_adapter(adapter), sizes_of(adapter)
    reached = [(t, n.count) for n in model.blocks for t in n.tensors if ranks.get(t.role) and len(t.shape) == 2]
    if not reached:
        return (), 0
    widest = max(t.shape[0] for t, _ in reached), max(t.shape[1] for t, _ in reached)
    shared = kind.shared(*widest, sizes) if kind.shared else ()
    held = sum(n * t.copies * kind.held(t.shape[0], t.shape[1], sizes) for t, n in reached) if kind.held else 0
    return (shared, held) if kind.trains_shared else ((), held + sum(prod(s) for s in shared))
