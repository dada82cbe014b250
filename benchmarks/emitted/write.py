"""What ``plan --emit`` writes, for the engines' and frameworks' own parsers to read.

    python benchmarks/emitted/write.py OUT.json       then, where an engine is installed: python benchmarks/emitted/parse.py

Each entry: the parser, the words of a line or the text of a file, and what was asked.
"""

import json
import shlex
import sys
from pathlib import Path

from vramcast.models.reading import read_model
from vramcast.serving.engines import engine as engine_named
from vramcast.workload import Adapter, Parallel, Serving, Training
from vramcast.writing.serving.files import emitted as emitted_server
from vramcast.writing.serving.lines import _NO_FLAG
from vramcast.writing.training.files import emitted as emitted_training

MODELS = ("Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3")
OPTIONS = {
    "vllm": (
        {"gpu_memory_utilization": 0.9, "max_num_seqs": 64, "max_num_batched_tokens": 8192, "enforce_eager": True},
        {"kv_cache_memory_bytes": 2**33, "block_size": 32, "enable_prefix_caching": False, "cpu_offload_gb": 8.0},
        {"enable_expert_parallel": True, "max_cudagraph_capture_size": 64, "enable_lora": True, "max_loras": 2},
        {"speculative_method": "mtp", "num_speculative_tokens": 1, "attention_backend": "flashinfer"},
    ),
    "sglang": (
        {"mem_fraction_static": 0.85, "chunked_prefill_size": 4096, "max_running_requests": 64},
        {"max_total_tokens": 200_000, "cuda_graph_max_bs": 64, "page_size": 64, "disable_radix_cache": True},
        {"enable_dp_attention": True, "dp_size": 8},
    ),
}  # fmt: skip
TRAININGS = {
    "torchtitan": ("torchtitan", {"parallel": Parallel(dp=8)}),
    "megatron": ("megatron", {"parallel": Parallel(tp=4, pp=2, dp=1, sp=True)}),
    "accelerate": ("hf_trainer", {"fsdp": 2, "parallel": Parallel(dp=8)}),
    "axolotl": ("axolotl", {"method": "qlora", "adapter": Adapter(rank=16)}),
    "llama_factory": ("llama_factory", {"method": "lora", "adapter": Adapter(rank=16)}),
}  # fmt: skip


def _alone(engine: str) -> list[dict[str, object]]:
    """Every option of an engine's table by itself, with a value that can be; those that no flag says are left out."""
    values = {"int": 2, "positive": 64, "float": 0.5, "fraction": 0.8, "bool": True, "count": 8192, "bytes": 2**33}
    drafts = ("speculative_method", "speculative_model", "num_speculative_tokens")
    return [
        {option.name: values.get(option.kind, option.choices[0] if option.choices else "x")}
        for option in engine_named(engine).options
        if option.name not in _NO_FLAG and option.name not in drafts
    ]


def servers() -> list[dict[str, object]]:
    """Lines of each engine over models, layouts and options."""
    found: list[dict[str, object]] = []
    for engine, several in OPTIONS.items():
        for model in MODELS:
            for options in (*several, *(_alone(engine) if model == MODELS[0] else ())):
                question = Serving(
                    model=model, engine=engine, gpu="h100-sxm5-80", gpus=8, context=8192, kv_dtype="fp8",
                    parallel=Parallel(tp=8), options=options,
                )  # fmt: skip
                words = [word for word in shlex.split(emitted_server("line", question).replace("\\\n", " ")) if word.strip()]
                found.append({"parser": engine, "words": words})
    return found


def trainings() -> list[dict[str, object]]:
    """A file or line of each framework over models."""
    found: list[dict[str, object]] = []
    for kind, (framework, fields) in TRAININGS.items():
        for model in MODELS[:2]:
            question = Training(
                model=model, framework=framework, gpu="h100-sxm5-80", gpus=8, micro_batch=1, seq=4096, accumulate=4,
                checkpointing="full", optimizer="adamw", **fields,
            )  # fmt: skip
            found.append({"parser": kind, "text": emitted_training(kind, question, read_model(model))})
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps([*servers(), *trainings()], indent=1), encoding="utf-8")
