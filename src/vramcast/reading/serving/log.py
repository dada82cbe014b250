"""The launch that a serving engine's log tells of: its configuration line, its arguments, or the command typed above them.

Lines: vLLM "Initializing a V1 LLM engine (v0.11.0) with config: model='m/x', ..." and "non-default args: {...}"; SGLang
"server_args=ServerArgs(model_path='m/x', ...)".
"""

import re

from vramcast.reading.serving.launch import Launch
from vramcast.reading.serving.scripts import read_script

_STARTS = re.compile(r"(?:vllm serve|vllm\.entrypoints|sglang\.launch_server|llama-server|trtllm-serve|ollama run)\b")
_ENGINE = re.compile(r"Initializing an? (?:V[01] )?LLM engine \(v?([\d.]{1,20})[^)]{0,40}\) with config: (.{1,6000})")
_ARGUMENTS = re.compile(r"non-default args: \{(.{1,4000}?)\}(?:\s|$)")
_SGLANG = re.compile(r"server_args=ServerArgs\((.{1,8000})")
_PAIR = re.compile(r"'?(\w{2,40})'?\s?[=:]\s?('[^']{0,300}'|[\w./:-]{1,80})")
_MOST_LINES = 200_000

_VLLM_KEYS = {
    "max_seq_len": "--max-model-len", "max_model_len": "--max-model-len", "tensor_parallel_size": "--tensor-parallel-size",
    "pipeline_parallel_size": "--pipeline-parallel-size", "kv_cache_dtype": "--kv-cache-dtype", "quantization": "--quantization",
    "gpu_memory_utilization": "--gpu-memory-utilization", "max_num_seqs": "--max-num-seqs", "enforce_eager": "--enforce-eager",
    "max_num_batched_tokens": "--max-num-batched-tokens", "cpu_offload_gb": "--cpu-offload-gb", "dtype": "--dtype",
}  # fmt: skip
_SGLANG_KEYS = {
    "context_length": "--context-length", "tp_size": "--tp-size", "mem_fraction_static": "--mem-fraction-static",
    "kv_cache_dtype": "--kv-cache-dtype", "chunked_prefill_size": "--chunked-prefill-size", "quantization": "--quantization",
    "max_running_requests": "--max-running-requests",
}  # fmt: skip
_EMPTY = frozenset({"None", "auto", "False", "", "fp8_checkpoint"})


def launch_in_log(text: str) -> Launch | None:
    """The last launch that a log tells of, or None. A typed command counts most: it is what the person can change."""
    typed = [line for line in text.splitlines()[-_MOST_LINES:] if len(line) < 4000 and _STARTS.search(line)]
    for line in reversed(typed[-20:]):
        if found := read_script(line[_STARTS.search(line).start() if line.lstrip()[:1].isdigit() else 0 :]):  # type: ignore[union-attr]
            return found[0]
    return _vllm(text) or _sglang(text)


def _vllm(text: str) -> Launch | None:
    engine, arguments = (list(pattern.finditer(text)) for pattern in (_ENGINE, _ARGUMENTS))
    said = _pairs(engine[-1][2]) if engine else {}
    typed = _pairs(arguments[-1][1]) if arguments else {}
    model = typed.get("model_tag") or typed.get("model") or said.get("model")
    if not model:
        return None
    values = {name: value for name, value in {**said, **typed}.items() if name in _VLLM_KEYS}
    if "max_model_len" in values:
        values.pop("max_seq_len", None)
    return Launch(engine="vllm", model=model, flags=_flags(values, _VLLM_KEYS), version=engine[-1][1] if engine else None)


def _sglang(text: str) -> Launch | None:
    found = list(_SGLANG.finditer(text))
    values = _pairs(found[-1][1]) if found else {}
    model = values.get("model_path")
    return Launch(engine="sglang", model=model, flags=_flags(values, _SGLANG_KEYS)) if model else None


def _pairs(text: str) -> dict[str, str]:
    """``name=value`` and ``'name': value``, the first of each."""
    pairs: dict[str, str] = {}
    for name, value in _PAIR.findall(text):
        pairs.setdefault(name, value.strip("'").removeprefix("torch."))
    return pairs


def _flags(values: dict[str, str], keys: dict[str, str]) -> tuple[str, ...]:
    named = ((keys[name], value) for name, value in values.items() if name in keys and value not in _EMPTY)
    return tuple(flag if value == "True" else f"{flag}={value}" for flag, value in named)
