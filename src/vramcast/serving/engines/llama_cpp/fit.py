"""What ``--fit`` would change so that the process leaves room on every GPU: context, then layers, then experts.

Only what the question left open is touched (common/fit.cpp): the context shrinks, not below ``fit_context``; then a dense model
keeps as many of its last layers as fit; a mixture keeps all layers but leaves the experts on the host, and takes those of its
first layers back while there is room. Ollama gives the context itself and leaves the layers to ``--fit``, whose default is on
(ollama at fb3076099, llm/llama_server.go: no ``-ngl`` unless ``num_gpu`` was set).
"""

from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.largest import edge_near
from vramcast.ledger import Assumption
from vramcast.models.layers import Experts
from vramcast.quantity import is_array
from vramcast.serving.engines.base import LeftOnHost, Resolved
from vramcast.serving.engines.llama_cpp.answer import Process, longest_context, margin_bytes, process_of
from vramcast.serving.engines.llama_cpp.options import ALL_LAYERS
from vramcast.serving.engines.llama_cpp.placement import expert_overrides
from vramcast.units import MiB

TARGET_MIB = 1024
LEAST_CONTEXT = 4096


def fitted(resolved: Resolved, name: str, *, shortens: bool) -> Resolved:
    """The question as ``--fit`` would run it; unchanged without a card, or when it fits as it is.

    ``shortens``: a context that nobody asked for is left to ``--fit`` too.
    """
    card, options = resolved.card, resolved.options
    if is_array(resolved.context) or is_array(resolved.concurrency):
        raise UnmodelledError("--fit changes each layout in its own way: ask them one by one, or without --fit")
    spare = int(options.get("fit_target_mib") or TARGET_MIB) * MiB
    process = process_of(resolved, name)
    if card is None or _fits(resolved, process, card, spare):
        return resolved
    if resolved.question.context is None and shortens:
        resolved = _shorter(resolved, process, card, spare)
        if _fits(resolved, process_of(resolved, name), card, spare):
            return resolved
    if resolved.question.options.get("n_gpu_layers", ALL_LAYERS) != ALL_LAYERS:
        return resolved
    return _fewer(resolved, name, card, spare)[0]


def left_to_fit(resolved: Resolved) -> bool:
    """Whether Ollama leaves the layout to ``--fit``: nothing of it was asked, on a card that is known."""
    own = ("n_cpu_moe", "cpu_moe", "override_tensor", "tensor_split", "devices", "fit")
    said = any(name in resolved.options for name in own)
    layers = resolved.question.options.get("n_gpu_layers")
    arrays = is_array(resolved.context) or is_array(resolved.concurrency)
    return resolved.card is not None and layers in (None, ALL_LAYERS) and not said and not arrays


def left_on_host(resolved: Resolved, name: str) -> tuple[Resolved, LeftOnHost | None]:
    """The question as it is run where all of it leaves too little room on the card, and what stays off the card then.

    Without limits (an answer among many) the layers are not looked for: the ledger is that of the whole model.
    """
    card = resolved.card
    spare = int(resolved.options.get("fit_target_mib") or TARGET_MIB) * MiB
    process = process_of(resolved, name)
    if card is None or _fits(resolved, process, card, spare):
        return resolved, None
    margin = int(margin_bytes(resolved, process, card, process.settings.cache.context))
    run, away = _fewer(resolved, name, card, spare) if resolved.limits else (resolved, 0)
    return run, LeftOnHost(whole_bytes=card.visible_bytes - margin, short_bytes=spare - margin, told=_told(run, away))


def _told(run: Resolved, away: int) -> str:
    """``starts; Ollama puts 43 of 81 layers on the card, the CPU computes the rest``; ``away``: layers without their experts."""
    layers, count = run.model.layers, int(run.options["n_gpu_layers"])
    if count <= layers or not away:
        return f"starts; Ollama puts {count} of {layers + 1} layers on the card, the CPU computes the rest"
    return f"starts; Ollama keeps the experts of {away} of {layers} layers off the card, the CPU computes them"


def _fits(resolved: Resolved, process: Process, card: Accelerator, spare: int) -> bool:
    return bool(margin_bytes(resolved, process, card, process.settings.cache.context) >= spare)


def _shorter(resolved: Resolved, process: Process, card: Accelerator, spare: int) -> Resolved:
    least = int(resolved.options.get("fit_context") or LEAST_CONTEXT)
    length = max(min(least, resolved.context), longest_context(resolved, process, card, spare_bytes=spare))
    note = Assumption("context", length, "--fit: the longest that leaves room on every GPU")
    kept = tuple(a for a in resolved.assumed if a.name != "context")
    return msgspec.structs.replace(resolved, context=length, assumed=(*kept, note))


def _fewer(resolved: Resolved, name: str, card: Accelerator, spare: int) -> tuple[Resolved, int]:
    """What fits on the GPUs, and of how many layers the experts are on the host."""
    layers = resolved.model.layers

    def fits(changes: dict[str, Any]) -> bool:
        changed = _changed(resolved, changes, "")
        return _fits(changed, process_of(changed, name), card, spare)

    if not any(isinstance(b.feedforward, Experts) for b in resolved.model.blocks):
        count = edge_near(layers + 1, lambda n: fits({"n_gpu_layers": n}), most=layers + 1)
        return _changed(resolved, {"n_gpu_layers": count}, "--fit: the last layers that fit on the GPUs"), 0
    if not fits({"cpu_moe": True}):
        count = edge_near(layers + 1, lambda n: fits({"cpu_moe": True, "n_gpu_layers": n}), most=layers + 1)
        changes = {"cpu_moe": True, "n_gpu_layers": count}
        return _changed(resolved, changes, "--fit: experts and first layers on the host"), layers
    full = edge_near(layers, lambda n: fits({"override_tensor": _back(n, layers)}), most=layers)
    away = layers - full
    return _changed(resolved, {"override_tensor": _back(full, layers)}, f"--fit: experts of {away} layers on the host"), away


def _back(full: int, layers: int) -> list[str]:
    """Overrides that keep the experts of all layers but the first ``full`` on the host."""
    return expert_overrides(layers, layers=layers, every=False)[full:]


def _changed(resolved: Resolved, changes: dict[str, Any], because: str) -> Resolved:
    notes = tuple(Assumption(key, len(v) if isinstance(v, list) else v, because) for key, v in changes.items())
    kept = tuple(a for a in resolved.assumed if a.name not in changes)
    return msgspec.structs.replace(resolved, options=resolved.options | changes, assumed=(*kept, *notes))
