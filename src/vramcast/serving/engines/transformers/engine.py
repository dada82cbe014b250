"""transformers' answers: weights, the cache as it grows, and the peak of a prefill; nothing is set aside beyond need."""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.quantity import Number, extent
from vramcast.serving.engines.base import Answer, Resolved, at
from vramcast.serving.engines.options import Option
from vramcast.serving.engines.resolving import Defaults, context_of, opened, resolved
from vramcast.serving.engines.transformers import versions
from vramcast.serving.engines.transformers.answer import answer
from vramcast.serving.engines.transformers.loaders import LOADERS
from vramcast.serving.engines.transformers.options import OPTIONS
from vramcast.workload import Serving


class Transformers(msgspec.Struct, frozen=True):
    """The engine; see base.Engine for the two questions it answers."""

    name: str = "transformers"
    versions: tuple[str, ...] = versions.VERSIONS
    options: tuple[Option, ...] = OPTIONS

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with the version's attention, cache and lengths filled in."""
        defaults, version, number = opened(self, question, model)
        loader = defaults.take("loader", "transformers", "the library itself")
        own = LOADERS[loader].attention
        defaults.take("attn_implementation", own or at(number, versions.ATTENTION), "default of that version")
        defaults.take("cache_implementation", "dynamic", "default: grows with the sequence")
        context = _length(question, model, defaults)
        return resolved(question, model, card, defaults, version=version, context=context)

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each card and the longest sequence that fits."""
        return answer(resolved)


def _length(question: Serving, model: Model, defaults: Defaults) -> Number:
    """Prompt and output when they are told (an output alone follows one token), else the context."""
    if question.prompt is not None or question.output is not None:
        return (1 if question.prompt is None else question.prompt) + (0 if question.output is None else question.output)
    if question.context is None:
        return context_of(question, model, defaults)
    _, longest = extent(question.context)
    if model.positions and longest > model.positions:
        beyond = (
            f"beyond the {model.positions:,} positions of the model: transformers computes it all the same, the text gets worse"
        )
        defaults.note("context", longest, beyond)
    return question.context
