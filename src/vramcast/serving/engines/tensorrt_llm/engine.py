"""TensorRT-LLM's answers: a fraction of what is free after the measured peak of a dummy run becomes cache.

Source: tensorrt_llm/_torch/pyexecutor/_util.py (KvCacheCreator): kv = (total - peak) * free_gpu_memory_fraction, whole blocks.
"""

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.serving.engines.base import Answer, Resolved
from vramcast.serving.engines.options import Option
from vramcast.serving.engines.resolving import context_of, opened, resolved
from vramcast.serving.engines.tensorrt_llm import versions
from vramcast.serving.engines.tensorrt_llm.answer import answer
from vramcast.serving.engines.tensorrt_llm.options import OPTIONS
from vramcast.workload import Serving


class TensorrtLlm(msgspec.Struct, frozen=True):
    """The engine; see base.Engine for the two questions it answers."""

    name: str = "tensorrt_llm"
    versions: tuple[str, ...] = versions.VERSIONS
    options: tuple[Option, ...] = OPTIONS

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with the engine's defaults filled in."""
        defaults, version, number = opened(self, question, model)
        for name, value in versions.defaults(number).items():
            defaults.take(name, value, "default of that version")
        context = context_of(question, model, defaults)
        return resolved(question, model, card, defaults, version=version, context=context)

    def forecast(self, resolved: Resolved) -> Answer:
        """Memory of each distinct rank, the blocks, the limits and the start-up error."""
        return answer(resolved)
