"""llama.cpp, ik_llama.cpp and Ollama as engines: defaults filled in, then every device's memory by name."""

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, Unmodelled
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.quantity import Number
from vramcast.serving.engines.base import Answer, Resolved
from vramcast.serving.engines.llama_cpp import ollama
from vramcast.serving.engines.llama_cpp.answer import answer, process_of
from vramcast.serving.engines.llama_cpp.fit import kept_free, laid_out
from vramcast.serving.engines.llama_cpp.generations import VERSIONS, build_note
from vramcast.serving.engines.llama_cpp.options import ALL_LAYERS, OPTIONS
from vramcast.serving.engines.llama_cpp.settings import devices_of, fill
from vramcast.serving.engines.options import Option, checked
from vramcast.serving.engines.resolving import Defaults, context_of, crossed
from vramcast.workload import Serving


class LlamaCpp(msgspec.Struct, frozen=True):
    """The engine under one of its names; see base.Engine for the two questions it answers.

    ``schedules``: it starts llama-server itself, with a context of its own choice.
    """

    name: str = "llama_cpp"
    versions: tuple[str, ...] = VERSIONS
    options: tuple[Option, ...] = OPTIONS
    schedules: bool = False

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with the defaults of its build filled in. Raises QuestionError for unknown options or contexts."""
        given = checked(question.options, OPTIONS, self.name)
        _check_known(model, self.name)
        defaults = Defaults({k: v for k, v in given.items() if (k, v) != ("n_gpu_layers", ALL_LAYERS)})
        version = self._version(question, defaults)
        context = self._context(question, model, card, defaults)
        asked = msgspec.structs.replace(question, context=context)
        fill(defaults, self.name, asked, model.layers)
        return Resolved(
            question=question,
            model=model,
            card=card,
            version=version,
            context=context,
            concurrency=defaults.values["n_parallel"],
            options=defaults.values,
            assumed=tuple(defaults.assumed),
            unmodelled=(*_unmodelled(question, model), *crossed(question, model, defaults.values["n_parallel"])),
        )

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each GPU (and of the host, when it holds layers), the cache plan and the limits."""
        run, left = laid_out(resolved, self.name)
        spare = kept_free(resolved, self.name)
        found = answer(_with_prediction(run) if self.schedules else run, self.name, spare_bytes=spare)
        return msgspec.structs.replace(found, left=left, start_error="") if left else found

    def _version(self, question: Serving, defaults: Defaults) -> str:
        asked = question.engine_version
        if asked is None:
            return str(defaults.note("engine_version", VERSIONS[-1], "newest build whose rules are known"))
        note = build_note(asked, self.name)
        return str(defaults.note("engine_version", asked, note)) if note else asked

    def _context(self, question: Serving, model: Model, card: Accelerator | None, defaults: Defaults) -> Number:
        if question.context is None and self.schedules and card is not None:
            total = card.visible_bytes * devices_of(question)
            tokens = min(ollama.default_context(total), model.positions or 2**40)
            return int(defaults.note("context", tokens, "Ollama's default for this much GPU memory"))
        if question.context is not None:
            return question.context
        return context_of(question, model, defaults)


def _check_known(model: Model, name: str) -> None:
    """Raises UnmodelledError for a class that llama.cpp cannot load."""
    served = model_class(model.text_class).served
    if not served.gguf and not model.loaded_from.lower().endswith(".gguf"):
        instead = f"{served.ggml_program} runs it, " if served.ggml_program else ""
        why = "neither its converter nor its graphs know the class"
        raise UnmodelledError(f"{name} has no {model.text_class}: {why}; {instead}--engine transformers")


def _with_prediction(resolved: Resolved) -> Resolved:
    """Ollama's own pre-check beside the forecast: it decides what else it unloads, not what this process takes."""
    file_bytes = process_of(resolved, "ollama").placed.file_bytes
    predicted = ollama.predicted_bytes(resolved.model, file_bytes, resolved.context)
    note = Assumption(
        "ollama_predicted_bytes", predicted, "Ollama's pre-check: the file and a full-length f16 cache of every layer"
    )
    return msgspec.structs.replace(resolved, assumed=(*resolved.assumed, note))


def _unmodelled(question: Serving, model: Model) -> tuple[Unmodelled, ...]:
    notes = [Unmodelled(what) for what in model.unmodelled]
    if question.options.get("split_mode") == "row":
        notes.append(Unmodelled("row split: matrices are cut by rows over the GPUs; shown as if cut by layers"))
    return tuple(notes)


_NAMES = ("llama_cpp", "ik_llama_cpp", "ollama")
ENGINES = {name: LlamaCpp(name=name, schedules=name == "ollama") for name in _NAMES}
