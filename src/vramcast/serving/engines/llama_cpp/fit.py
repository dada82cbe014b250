"""What ``--fit`` changes so that the process leaves room on every GPU: context, then layers, then experts.

On by default since build 7400. Only what the question left open is touched (common/fit.cpp): a context that nobody gave shrinks,
not below ``fit_context``; then, unless layers or overrides were given, GPUs are filled from the last one on; what still does not
fit goes to the host: of a dense model its first layers, of a mixture the experts, of which those of the first layers come back
while there is room. Ollama gives the context itself and leaves the layers to ``--fit`` (ollama at fb3076099, llm/llama_server.go:
no ``-ngl`` unless ``num_gpu`` was set). On several GPUs layers are dealt out whole here, where ``--fit`` also cuts one of a
mixture's into its parts.
"""

from functools import partial
from typing import Any, Protocol

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.runtime import context_bytes
from vramcast.largest import edge_near
from vramcast.ledger import Assumption
from vramcast.models.layers import Experts
from vramcast.quantity import is_array
from vramcast.serving.engines.base import LeftOnHost, Resolved
from vramcast.serving.engines.llama_cpp.answer import Process, longest_context, margin_bytes, process_of
from vramcast.serving.engines.llama_cpp.generations import FITS_BY_DEFAULT, build_number
from vramcast.serving.engines.llama_cpp.options import ALL_LAYERS
from vramcast.serving.engines.llama_cpp.placement import expert_overrides
from vramcast.units import MiB

TARGET_MIB = 1024
LEAST_CONTEXT = 4096
_PLACED = ("n_cpu_moe", "cpu_moe", "override_tensor")
_PROGRAMS = {"llama_cpp": "llama.cpp", "ollama": "Ollama", "ik_llama_cpp": "ik_llama.cpp"}


def laid_out(resolved: Resolved, name: str) -> tuple[Resolved, LeftOnHost | None]:
    """The question as it is run, and what stays off the card then; unchanged without a card, or when it fits as it is.

    Without limits (an answer among many) the layers are not looked for: the ledger is that of the whole model.
    """
    card, spare = resolved.card, int(resolved.options.get("fit_target_mib") or TARGET_MIB) * MiB
    if card is None or not _wanted(resolved, name):
        return resolved, None
    process = process_of(resolved, name)
    if process.settings.placement.gpus == 0 or _fits(resolved, process, card, spare):
        return resolved, None
    if resolved.question.context is None and name != "ollama":
        resolved = _shorter(resolved, process, card, spare)
        process = process_of(resolved, name)
        if _fits(resolved, process, card, spare):
            return resolved, None
    if _is_placed(resolved, name):
        return resolved, None
    if process.settings.placement.gpus > 1 and (dealt := _dealt(resolved, name, card, spare)):
        return dealt, None
    margin = int(margin_bytes(resolved, process, card, process.settings.cache.context))
    run, away = _fewer(resolved, name, card, spare) if resolved.limits else (resolved, 0)
    told = _told(run, away, _PROGRAMS[name])
    return run, LeftOnHost(whole_bytes=card.visible_bytes - margin, short_bytes=spare - margin, told=told)


def kept_free(resolved: Resolved, name: str) -> int:
    """Bytes of each GPU that a layout which ``--fit`` makes leaves free; none where somebody placed the layers."""
    made = _wanted(resolved, name) and not _is_placed(resolved, name)
    return int(resolved.options.get("fit_target_mib") or TARGET_MIB) * MiB if made else 0


def _wanted(resolved: Resolved, name: str) -> bool:
    """Whether ``--fit`` is asked for, or on by itself. Raises UnmodelledError for many layouts at once that ask for it."""
    options = resolved.options
    arrays = is_array(resolved.context) or is_array(resolved.concurrency)
    if options.get("fit"):
        if arrays:
            raise UnmodelledError("--fit changes each layout in its own way: ask them one by one, or without --fit")
        return True
    if arrays or "fit" in options or name == "ik_llama_cpp":
        return False
    if name == "ollama":
        return not (_is_placed(resolved, name) or "tensor_split" in options or "devices" in options)
    return build_number(resolved.question.engine_version, name) >= FITS_BY_DEFAULT


def _is_placed(resolved: Resolved, name: str) -> bool:
    """Whether somebody said where layers or tensors go; Ollama's -1 layers are none said, llama.cpp's all of them."""
    asked = resolved.question.options
    layers = "n_gpu_layers" in asked and (name != "ollama" or asked["n_gpu_layers"] not in (None, ALL_LAYERS))
    split = "tensor_split" in asked and resolved.question.gpus > 1
    return layers or split or resolved.options.get("split_mode") == "row" or any(asked.get(one) for one in _PLACED)


def _told(run: Resolved, away: int, program: str) -> str:
    """``starts; Ollama puts 43 of 81 layers on the card, the CPU computes the rest``; ``away``: layers without their experts."""
    layers, count = run.model.layers, int(run.options["n_gpu_layers"])
    if count <= layers or not away:
        return f"starts; {program} puts {count} of {layers + 1} layers on the card, the CPU computes the rest"
    return f"starts; {program} keeps the experts of {away} of {layers} layers off the card, the CPU computes them"


def _fits(resolved: Resolved, process: Process, card: Accelerator, spare: int) -> bool:
    return bool(margin_bytes(resolved, process, card, process.settings.cache.context) >= spare)


def _dealt(resolved: Resolved, name: str, card: Accelerator, spare: int) -> Resolved | None:
    """All layers on the GPUs, each GPU given as many as it holds, the last GPU first; None where they do not hold all."""
    layers, gpus = resolved.model.layers, resolved.question.gpus
    counts = [0] * gpus
    room = card.visible_bytes - context_bytes(card) - spare
    whole = process_of(resolved, name, graphs=False).plan
    if sum(whole.device(device) for device in range(gpus)) > gpus * room:
        return None

    def holds(device: int, count: int, *, graphs: bool) -> bool:
        tried = [*counts[:device], count, *counts[device + 1 :]]
        changes = {"n_gpu_layers": sum(tried), "tensor_split": [float(n) for n in tried]}
        return bool(process_of(_changed(resolved, changes, ""), name, graphs=graphs).plan.device(device) <= room)

    for device in reversed(range(gpus)):
        left = layers + 1 - sum(counts)
        counts[device] = _most(partial(holds, device), guess=left // (device + 1), most=left) if left else 0
    if sum(counts) <= layers:
        return None
    dealt = _changed(resolved, {"tensor_split": [float(n) for n in counts]}, "")
    note = Assumption("tensor_split", ",".join(str(n) for n in counts), "--fit: layers that each GPU holds")
    return msgspec.structs.replace(dealt, assumed=(*resolved.assumed, note))


class _Holds(Protocol):
    """Whether the GPUs hold so many layers, with the buffers of the graphs or without."""

    def __call__(self, count: int, *, graphs: bool) -> bool: ...


def _most(holds: _Holds, *, guess: int, most: int) -> int:
    """The largest count that ``holds``, looked for without the graphs' buffers first: what fails then fails with them too."""
    bound = edge_near(guess, partial(holds, graphs=False), most=most)
    return edge_near(bound, partial(holds, graphs=True), most=bound)


def _shorter(resolved: Resolved, process: Process, card: Accelerator, spare: int) -> Resolved:
    least = int(resolved.options.get("fit_context") or LEAST_CONTEXT)
    least = min(least, resolved.context)
    longest = longest_context(resolved, process, card, spare_bytes=spare)
    because = (
        "--fit: the longest that leaves room on every GPU" if longest >= least else "--fit: the shortest that it goes down to"
    )
    length = max(least, longest)
    note = Assumption("context", length, because)
    kept = tuple(a for a in resolved.assumed if a.name != "context")
    return msgspec.structs.replace(resolved, context=length, assumed=(*kept, note))


def _fewer(resolved: Resolved, name: str, card: Accelerator, spare: int) -> tuple[Resolved, int]:
    """What fits on the GPUs, and of how many layers the experts are on the host."""
    layers = resolved.model.layers
    room = card.visible_bytes - context_bytes(card) - spare

    def fits(changes: dict[str, Any], *, graphs: bool = True) -> bool:
        changed = _changed(resolved, changes, "")
        process = process_of(changed, name, graphs=graphs)
        if graphs:
            return _fits(changed, process, card, spare)
        return all(process.plan.device(device) <= room for device in range(process.settings.placement.gpus))

    def on_gpus(count: int, *, graphs: bool, **fixed: bool) -> bool:
        return fits({**fixed, "n_gpu_layers": count}, graphs=graphs)

    def with_experts(count: int, *, graphs: bool) -> bool:
        return fits({"override_tensor": _back(count, layers)}, graphs=graphs)

    if not any(isinstance(b.feedforward, Experts) for b in resolved.model.blocks):
        count = _most(on_gpus, guess=layers + 1, most=layers + 1)
        return _changed(resolved, {"n_gpu_layers": count}, "--fit: the last layers that fit on the GPUs"), 0
    if not fits({"cpu_moe": True}):
        count = _most(partial(on_gpus, cpu_moe=True), guess=layers + 1, most=layers + 1)
        changes = {"cpu_moe": True, "n_gpu_layers": count}
        return _changed(resolved, changes, "--fit: experts and first layers on the host"), layers
    full = _most(with_experts, guess=layers, most=layers)
    away = layers - full
    return _changed(resolved, {"override_tensor": _back(full, layers)}, f"--fit: experts of {away} layers on the host"), away


def _back(full: int, layers: int) -> list[str]:
    """Overrides that keep the experts of all layers but the first ``full`` on the host."""
    return expert_overrides(layers, layers=layers, every=False)[full:]


def _changed(resolved: Resolved, changes: dict[str, Any], because: str) -> Resolved:
    notes = tuple(Assumption(key, len(v) if isinstance(v, list) else v, because) for key, v in changes.items())
    kept = tuple(a for a in resolved.assumed if a.name not in changes)
    return msgspec.structs.replace(resolved, options=resolved.options | changes, assumed=(*kept, *notes))
