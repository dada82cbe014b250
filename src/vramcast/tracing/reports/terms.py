"""Which term of the contract an allocation belongs to, by its category, its module, and how long it lived."""

from vramcast.tracing.eventlog import Allocation, EventLog

TERMS = (
    "weights",
    "gradients",
    "optimizer",
    "master_weights",
    "activations",
    "kv_cache",
    "loss",
    "gathered",
    "temporaries",
    "workspace",
    "communication",
)
_GATHERED_OPS = ("resize_", "fsdp.")
_FORWARD = ("forward", "prefill", "decode")
_HEADS = ("lm_head", "embed_out", "output")
_PEFT_ROOT = "base_model.model"


class Naming:
    """Names the allocations of one log; ``serving``: what lives on after the forward pass is a cache."""

    def __init__(self, log: EventLog, *, serving: bool) -> None:
        self.serving = serving
        self._events = len(log.order)
        self._backwards = [m.place for m in log.marks if m.name == "backward"]

    def name(self, allocation: Allocation) -> tuple[str, str]:
        """Term and part of an allocation."""
        if allocation.category in {"weights", "gradients", "optimizer", "master_weights"}:
            return allocation.category, kind_of_module(allocation.module) or allocation.category
        if allocation.category == "workspace":
            return "workspace", allocation.op
        if allocation.category == "inputs":
            return "activations", "inputs"
        if allocation.category in {"gathered", "communication"}:
            return allocation.category, allocation.phase
        if any(name in allocation.op for name in _GATHERED_OPS):
            return "gathered", allocation.phase
        return self._by_life(allocation)

    def _by_life(self, allocation: Allocation) -> tuple[str, str]:
        module = kind_of_module(allocation.module)
        if allocation.phase in {*_FORWARD, "backward"} and _is_loss(module):
            return "loss", f"{allocation.phase}: {module}"
        if allocation.phase == "recompute":
            return "activations", f"recomputed: {module}"
        if allocation.phase in _FORWARD:
            return self._forward(allocation, module)
        if allocation.phase == "setup":
            return "weights", "made while the model was built"
        return "temporaries", f"{allocation.phase}: {module or allocation.op}"

    def _forward(self, allocation: Allocation, module: str) -> tuple[str, str]:
        if self.serving:
            kept = allocation.end < 0 or allocation.end - allocation.start > self._events // 8
            return ("kv_cache" if kept else "activations"), module
        end = allocation.end if allocation.end >= 0 else self._events
        saved = any(allocation.start < backward <= end for backward in self._backwards)
        return ("activations" if saved else "temporaries"), f"{'' if saved else 'forward: '}{module}"


def kind_of_module(module: str) -> str:
    """A module's path with layer and expert numbers replaced by ``*``."""
    return ".".join("*" if part.isdigit() else part for part in module.split("."))


def _is_loss(module: str) -> bool:
    """The head, the loss, and what the whole model's own class computes (its path is the class name, or PEFT's wrapping)."""
    last = module.rsplit(".", 1)[-1]
    whole = module == _PEFT_ROOT or ("." not in module and module[:1].isupper())
    return not module or whole or last in _HEADS or "Loss" in last
