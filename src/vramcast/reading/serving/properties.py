"""DJL Serving's ``serving.properties`` (also SageMaker's LMI containers): ``option.`` keys are the engine's arguments.

Source: docs.djl.ai, serving/docs/lmi: ``option.rolling_batch`` (vllm, lmi-dist, trtllm), ``option.tensor_parallel_degree``,
``option.max_rolling_batch_size``, ``option.quantize``; every other key is passed on to the engine by its own name.
"""

import re

from vramcast.reading.serving.engine_yaml import flags_of_mapping
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext

NAME = "properties of DJL Serving"
_LINE = re.compile(r"^[ \t]*option\.(\w{1,60})\s*=\s*(.*?)\s*$", re.M)
_ENGINES = {"vllm": "vllm", "lmi-dist": "vllm", "auto": "vllm", "trtllm": "tensorrt_llm", "tensorrt-llm": "tensorrt_llm"}
_NAMES = {
    "tensor_parallel_degree": "tensor-parallel-size", "pipeline_parallel_degree": "pipeline-parallel-size",
    "max_rolling_batch_size": "max-num-seqs", "max_rolling_batch_prefill_tokens": "max-num-batched-tokens",
    "quantize": "quantization", "n_positions": "max-model-len",
}  # fmt: skip
_OWN = ("model_id", "rolling_batch", "entryPoint", "enable_streaming", "async_mode", "task", "trust_remote_code", "load_format")
_ARGUMENTS = frozenset(
    {"max_model_len", "gpu_memory_utilization", "tensor_parallel_size", "tensor_parallel_degree", "rolling_batch",
     "max_rolling_batch_size", "max_num_seqs"}
)  # fmt: skip


def is_properties(text: str) -> bool:
    """Whether a text has ``option.`` lines with an engine's arguments or the batching that only engines have."""
    return bool(_ARGUMENTS & {name for name, _ in _LINE.findall(text)})


def read(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The one launch of a file; the engine by its batching, vLLM where that is left to the container."""
    options = {name: re.split(r"\s+#", value)[0].strip() for name, value in _LINE.findall(text)}
    engine = _ENGINES.get(options.get("rolling_batch", "auto").lower(), "")
    if not engine or not (_ARGUMENTS | {"model_id"}) & options.keys():  # other programs have files of properties too
        return ()
    kept = {_NAMES.get(name, name): value for name, value in options.items() if name not in _OWN and value}
    flags = words_of_flags(parsed_flags(engine, flags_of_mapping(kept)).flags)
    return (Launch(engine=engine, model=options.get("model_id", ""), flags=flags, where=held.where),)
