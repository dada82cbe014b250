"""One question of many layouts: arrays in place of numbers give, element by element, what each question alone gives."""

import numpy as np
import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import Answer, answer_of
from vramcast.workload import Parallel, Serving

LAYOUTS = 24
RANDOM = np.random.default_rng(11)


def _varied(engine: str, positions: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random fields and options of that many layouts."""

    def draw(low: int, high: int) -> np.ndarray:
        return np.exp(RANDOM.uniform(np.log(low), np.log(high), LAYOUTS)).astype("int64")

    fields = {"context": draw(1, positions), "concurrency": draw(1, 2000)}
    share, total = RANDOM.uniform(0.3, 0.98, LAYOUTS), draw(8 * 2**30, 300 * 2**30)
    options = {
        "vllm": {
            "max_num_seqs": draw(1, 2000),
            "max_num_batched_tokens": draw(1, 200_000),
            "gpu_memory_utilization": share,
            "gpu_total_bytes": total,
        },
        "sglang": {
            "mem_fraction_static": share,
            "chunked_prefill_size": draw(64, 40_000),
            "cuda_graph_max_bs": draw(1, 600),
            "gpu_total_bytes": total,
        },
        "tensorrt_llm": {
            "free_gpu_memory_fraction": share,
            "max_num_tokens": draw(1, 50_000),
            "max_batch_size": draw(1, 4096),
            "gpu_total_bytes": total,
        },
    }
    return fields, options.get(engine, {})


def _counters(answer: Answer) -> list[object]:
    ranks = [(r.rank, r.allocated_bytes, r.reserved_bytes, r.device_bytes, r.needed_bytes, r.claimed_bytes) for r in answer.ranks]
    terms = [
        sorted((t.name, t.bytes) for i in r.instants for top in i.terms for _, t in top.walk() if t.bytes) for r in answer.ranks
    ]
    return [answer.cache, answer.max_context, answer.max_concurrency, ranks, terms]


CASES = [
    ("vllm", "Qwen/Qwen2.5-7B-Instruct", None, {}),
    ("vllm", "Qwen/Qwen3-30B-A3B", "0.11.0", {"parallel": Parallel(tp=2, ep=2)}),
    ("vllm", "Qwen/Qwen3-30B-A3B", "0.8.5", {"parallel": Parallel(tp=2, pp=2)}),
    ("vllm", "meta-llama/Llama-3.1-8B-Instruct", "0.5.4", {}),
    ("vllm", "deepseek-ai/DeepSeek-V3", "0.33.0", {"parallel": Parallel(tp=8)}),
    ("vllm", "google/gemma-3-27b-it", "0.21.0", {"kv_dtype": "fp8"}),
    ("vllm", "google/gemma-3-27b-it", "0.7.3", {}),
    ("vllm", "Qwen/Qwen3-Next-80B-A3B-Instruct", None, {"parallel": Parallel(tp=4)}),
    ("vllm", "openai/gpt-oss-20b", "0.19.1", {"options": {"attention_backend": "flashinfer"}}),
    ("sglang", "Qwen/Qwen2.5-7B-Instruct", None, {}),
    ("sglang", "Qwen/Qwen3-Next-80B-A3B-Instruct", None, {"parallel": Parallel(tp=4)}),
    ("sglang", "openai/gpt-oss-20b", "0.5.6", {}),
    ("sglang", "deepseek-ai/DeepSeek-V3", "0.4.6", {"parallel": Parallel(tp=8), "options": {"max_running_requests": 48}}),
    ("tensorrt_llm", "Qwen/Qwen2.5-7B-Instruct", None, {}),
    ("tensorrt_llm", "meta-llama/Llama-3.3-70B-Instruct", "0.11.0", {"parallel": Parallel(tp=4), "kv_dtype": "fp8"}),
    ("transformers", "Qwen/Qwen2.5-7B-Instruct", None, {"gpus": 2}),
    ("transformers", "google/gemma-3-27b-it", "4.46.0", {"options": {"attn_implementation": "eager"}}),
    ("transformers", "Qwen/Qwen3-Next-80B-A3B-Instruct", None, {}),
    ("transformers", "meta-llama/Llama-2-7b-hf", "4.35.0", {"options": {"loader": "autoawq"}, "quant": "awq"}),
    ("llama_cpp", "Qwen/Qwen2.5-7B-Instruct", None, {"quant": "Q4_K_M"}),
    ("llama_cpp", "google/gemma-3-27b-it", None, {"quant": "Q8_0", "gpus": 2, "options": {"kv_unified": False}}),
    ("llama_cpp", "google/gemma-3-27b-it", "b5863", {"quant": "Q4_K_M", "options": {"flash_attn": False, "n_gpu_layers": 30}}),
    ("ik_llama_cpp", "deepseek-ai/DeepSeek-V3", None, {"quant": "Q4_K_M", "options": {"mla": 2, "attn_max_batch": 512}}),
    ("llama_cpp", "Qwen/Qwen3-Next-80B-A3B-Instruct", None, {"quant": "Q4_K_M"}),
    ("vllm", "unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "0.8.5", {"options": {"enable_lora": True}}),
]


@pytest.mark.parametrize(("engine", "name", "version", "more"), CASES, ids=lambda x: str(x).rsplit("/", maxsplit=1)[-1][:30])
@pytest.mark.parametrize("gpu", ["H100", None])
def test_an_array_of_layouts_is_each_of_them(engine: str, name: str, version: str | None, more: dict, gpu: str | None) -> None:
    model, card = read_model(name, offline=True), find_accelerator(gpu) if gpu else None
    fields, options = _varied(engine, min(model.positions or 4096, 200_000))
    fixed = {"model": name, "engine": engine, "engine_version": version, "gpu": gpu, **more}
    own = more.get("options", {})
    limits = "llama" not in engine  # finding each one's longest context lays hundreds of graphs out
    together = answer_of(Serving(**{**fixed, **fields, "options": own | options}), model=model, card=card, limits=limits)
    for i in range(LAYOUTS):
        one = {k: v[i].item() for k, v in fields.items()}
        picked = {k: v[i].item() for k, v in options.items()}
        question = Serving(**{**fixed, **one, "options": own | picked})
        alone = answer_of(question, model=model, card=card, limits=limits)
        assert _counters(together.at(i)) == _counters(alone)
