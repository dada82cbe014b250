"""What ``--fit`` would change so that the process leaves room on every GPU: context, then layers, then experts.

Only what the question left open is touched (common/fit.cpp): the context shrinks, not below ``fit_context``; then a dense model
keeps as many of its last layers as fit; a mixture keeps all layers but leaves the experts on the host, and takes those of its
first layers back while there is room.
"""

from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.largest import edge_near
from vramcast.ledger import Assumption
from vramcast.models.layers import Experts
from vramcast.quantity import is_array
from vramcast.serving.engines.base import Resolved
from vramcast.serving.engines.llama_cpp.answer import Worked, longest_context, margin_bytes, work
from vramcast.serving.engines.llama_cpp.placement import expert_overrides
from vramcast.units import MiB

TARGET_MIB = 1024
LEAST_CONTEXT = 4096


def fitted(resolved: Resolved, name: str) -> Resolved:
    """The question as ``--fit`` would run it; unchanged without a card, or when it fits as it is."""
    card, options = resolved.card, resolved.options
    if is_array(resolved.context) or is_array(resolved.concurrency):
        raise UnmodelledError("--fit changes each layout in its own way: ask them one by one, or without --fit")
    spare = int(options.get("fit_target_mib") or TARGET_MIB) * MiB
    worked = work(resolved, name)
    if card is None or _fits(resolved, worked, card, spare):
        return resolved
    if resolved.question.context is None:
        resolved = _shorter(resolved, worked, card, spare)
        if _fits(resolved, work(resolved, name), card, spare):
            return resolved
    if "n_gpu_layers" in resolved.question.options:
        return resolved
    return _fewer(resolved, name, card, spare)


def _fits(resolved: Resolved, worked: Worked, card: Accelerator, spare: int) -> bool:
    return bool(margin_bytes(resolved, worked, card, worked.settings.cache.context) >= spare)


def _shorter(resolved: Resolved, worked: Worked, card: Accelerator, spare: int) -> Resolved:
    least = int(resolved.options.get("fit_context") or LEAST_CONTEXT)
    length = max(min(least, resolved.context), longest_context(resolved, worked, card, spare_bytes=spare))
    note = Assumption("context", length, "--fit: the longest that leaves room on every GPU")
    kept = tuple(a for a in resolved.assumed if a.name != "context")
    return msgspec.structs.replace(resolved, context=length, assumed=(*kept, note))


def _fewer(resolved: Resolved, name: str, card: Accelerator, spare: int) -> Resolved:
    layers = resolved.model.layers

    def fits(changes: dict[str, Any]) -> bool:
        changed = _changed(resolved, changes, "")
        return _fits(changed, work(changed, name), card, spare)

    if not any(isinstance(b.feedforward, Experts) for b in resolved.model.blocks):
        count = edge_near(layers + 1, lambda n: fits({"n_gpu_layers": n}), most=layers + 1)
        return _changed(resolved, {"n_gpu_layers": count}, "--fit: the last layers that fit on the GPUs")
    if not fits({"cpu_moe": True}):
        count = edge_near(layers + 1, lambda n: fits({"cpu_moe": True, "n_gpu_layers": n}), most=layers + 1)
        return _changed(resolved, {"cpu_moe": True, "n_gpu_layers": count}, "--fit: experts and first layers on the host")
    full = edge_near(layers, lambda n: fits({"override_tensor": _back(n, layers)}), most=layers)
    return _changed(resolved, {"override_tensor": _back(full, layers)}, f"--fit: experts of {layers - full} layers on the host")


def _back(full: int, layers: int) -> list[str]:
    """Overrides that keep the experts of all layers but the first ``full`` on the host."""
    return expert_overrides(layers, layers=layers, every=False)[full:]


def _changed(resolved: Resolved, changes: dict[str, Any], because: str) -> Resolved:
    notes = tuple(Assumption(key, len(v) if isinstance(v, list) else v, because) for key, v in changes.items())
    kept = tuple(a for a in resolved.assumed if a.name not in changes)
    return msgspec.structs.replace(resolved, options=resolved.options | changes, assumed=(*kept, *notes))
