"""Which of vLLM's two model runners a start takes.

The second one draws from one fp32 copy of the logits in its profile run, and until 0.29 it reserved nothing for CUDA graphs.
"""

from vramcast.models.classes import model_class
from vramcast.models.feedforward import Experts
from vramcast.models.inventory import Model
from vramcast.serving.engines.versions import Version, at, parse_version
from vramcast.serving.engines.vllm import versions


def second_runner(version: Version, model: Model, *, quantized: bool) -> bool:
    """Whether the second model runner is the default for that model."""
    if at(version, versions.SECOND_RUNS_ALL):
        return True
    if quantized and not at(version, versions.SECOND_RUNS_QUANTIZED):
        return False
    dense = not any(isinstance(block.feedforward, Experts) for block in model.blocks)
    return _named(version, model.family) or (dense and at(version, versions.SECOND_RUNS_DENSE))


def _named(version: Version, family: str) -> bool:
    """Whether that release takes it for the class by name, before all dense models and at last all models did."""
    since = model_class(family).served.second_runner
    return bool(since) and version >= parse_version(since, "vllm")


def reserves_graphs(version: Version, *, second: bool) -> bool:
    """Whether the runner estimates the memory of its graphs before the cache is sized."""
    return not second or at(version, versions.SECOND_RESERVES_GRAPHS)
