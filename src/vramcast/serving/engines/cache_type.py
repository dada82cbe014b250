"""The cache's type where nobody asks for one: a checkpoint's own scheme may name it, and then ``auto`` is not the model's type.

Model Optimizer writes ``kv_cache_quant_algo`` and llm-compressor ``kv_cache_scheme`` beside the weights' scheme. vLLM follows
both (utils/torch_utils.py resolve_kv_cache_dtype_string, model_executor/layers/attention/attention.py), SGLang the first alone
(srt/model_executor/model_runner.py configure_kv_cache_dtype), TensorRT-LLM the first (_torch/model_config.py).
"""

import msgspec

from vramcast.ledger import Assumption
from vramcast.models.inventory import Model
from vramcast.serving.engines.base import Table, at, parse_version
from vramcast.serving.weights import same_as_model, storage_of
from vramcast.workload import Serving

# vllm-project/vllm#29980; SGLang's rule stands in the report of sgl-project/sglang#12298, of October 2025
FOLLOWS: dict[str, Table[bool]] = {
    "vllm": (((0,), False), ((0, 14), True)),
    "sglang": (((0,), False), ((0, 5, 4), True)),
    "tensorrt_llm": (((0,), True),),
}
_LISTS_ONLY_MODELOPT = frozenset({"sglang", "tensorrt_llm"})


def cache_followed(question: Serving, model: Model, version: str) -> tuple[Serving, tuple[Assumption, ...]]:
    """The question with the cache's type that the checkpoint names, where none was asked for and the release follows it."""
    table = FOLLOWS.get(question.engine)
    if table is None or not model.quantization or not same_as_model(question.kv_dtype):
        return question, ()
    plan = storage_of(model, quant=question.quant, dtype=question.dtype or "auto").scheme.plan
    if plan is None or plan.kv_cache is None or not at(parse_version(version, question.engine), table):
        return question, ()
    if question.engine in _LISTS_ONLY_MODELOPT and not plan.name.startswith("modelopt"):
        return question, ()
    said = Assumption("kv_dtype", plan.kv_cache, "the checkpoint's own scheme names the cache's type; auto follows it")
    return msgspec.structs.replace(question, kv_dtype=plan.kv_cache), (said,)
