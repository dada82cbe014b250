"""Which of vLLM's two model runners a start takes.

The second one draws from one fp32 copy of the logits in its profile run, and until 0.29 it reserved nothing for CUDA graphs.

Sources: vllm/config/vllm.py use_v2_model_runner and DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES by release (notes of 0.22 to 0.25,
vllm-project/vllm#43458, #44443, #53183); vllm/v1/worker/gpu/model_runner.py _dummy_sampler_run, sample/sampler.py;
profile_cudagraph_memory returned 0 until vllm-project/vllm#53306.
"""

from vramcast.models.classes import model_class
from vramcast.models.feedforward import Experts
from vramcast.models.inventory import Model
from vramcast.serving.engines.versions import Table, Version, at, parse_version

_TAKES_QUANTIZED: Table[bool] = (((0,), False), ((0, 24), True))
_ALL_DENSE = (0, 25)
_ALL = (0, 29)
_RESERVES_GRAPHS = (0, 29)


def second_runner(version: Version, model: Model, *, quantized: bool) -> bool:
    """Whether the second model runner is the default for that model."""
    if version >= _ALL:
        return True
    if quantized and not at(version, _TAKES_QUANTIZED):
        return False
    dense = not any(isinstance(block.feedforward, Experts) for block in model.blocks)
    return _named(version, model.family) or (dense and version >= _ALL_DENSE)


def _named(version: Version, family: str) -> bool:
    """Whether that release takes it for the class by name, before all dense models and at last all models did."""
    since = model_class(family).served.second_runner
    return bool(since) and version >= parse_version(since, "vllm")


def reserves_graphs(version: Version, *, second: bool) -> bool:
    """Whether the runner estimates the memory of its graphs before the cache is sized."""
    return not second or version >= _RESERVES_GRAPHS
