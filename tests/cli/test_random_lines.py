"""Random command lines, valid and not: one of the four exit codes, one line for a mistake, and answers without contradiction."""

import io
import json
import random
import sys

import pytest

from vramcast.cli import run

MODELS = [
    "Qwen/Qwen2.5-7B-Instruct", "llama3.1:8b", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b",
    "Qwen/Qwen3-30B-A3B", "state-spaces/mamba-2.8b-hf", "google-t5/t5-base", "Qwen/Qwen3-32B-AWQ", "ai21labs/Jamba-v0.1",
    "nonsense", "gemma-3-27b-it-GGUF:Q4_K_M", "huggyllama/llama-7b",
]  # fmt: skip
GPUS = ["4090", "H100x8", "A100-80Gx4", "3060", "T4", "MI300X", "M3 Max 64GB", "g5.12xlarge", "24GB", "L4x2", "GTX 1080 Ti", "0"]
COUNTS = ["0", "1", "2", "3", "8", "4096", "32K", "-1", "x"]
SERVE = {
    "--gpu": GPUS, "--engine": ["vllm", "sglang", "llama.cpp", "ollama", "transformers", "tensorrt_llm", "vllm==0.6.3", "x"],
    "--context": [*COUNTS, "8192", "16384"], "--concurrency": COUNTS, "--quant": ["fp8", "awq", "nf4", "Q4_K_M", "x"],
    "--kv-dtype": ["fp8", "auto", "q8_0"], "--tp": COUNTS, "--pp": COUNTS, "--gpu-memory-utilization": ["0.5", "0.95", "1", "2"],
    "--max-num-seqs": COUNTS, "--cpu-offload-gb": COUNTS, "-ngl": COUNTS, "--enforce-eager": [None], "--prompt": COUNTS,
    "--rate": ["0", "1", "x"], "--output": COUNTS, "--slo": ["ttft=1s,tpot=50ms", "x"],
    "--link": ["pcie4", "64GB/s", "0GB/s", "x"],
    "--disagg": ["2P1D", "0P1D", "x"], "--images": COUNTS, "--dp": COUNTS, "--ep": COUNTS, "--block-size": ["16", "7", "0"],
}  # fmt: skip
TRAIN = {
    "--gpu": GPUS, "--framework": ["hf_trainer", "unsloth", "megatron", "torchtitan", "trl", "x"], "--rank": COUNTS,
    "--method": ["full", "lora", "qlora", "dpo", "x"], "--optimizer": ["adamw", "adamw_8bit", "sgd", "muon", "x"],
    "--micro-batch": COUNTS, "--seq": [*COUNTS, "512", "2048"], "--checkpointing": ["none", "full", "x"], "--fsdp": ["1", "2"],
    "--zero": ["1", "3"], "--tp": COUNTS, "--loss": ["eager", "linear"], "--quant": ["nf4", "fp8"],
    "--param-dtype": ["float32", "x"],
    "--link": ["pcie4", "x"], "--pp": COUNTS, "--cp": COUNTS, "--accumulate": COUNTS, "--tokens": ["1T", "0", "x"],
    "--offload": ["optimizer", "activations", "x"], "--set": ["residual=float32", "x=1", "scan"], "--targets": ["lm_head", "x"],
}  # fmt: skip


def line(chance: random.Random) -> list[str]:
    command, table = chance.choice([("serve", SERVE), ("train", TRAIN)])
    words = [command, chance.choice(MODELS), "--json"]
    for flag in chance.sample(sorted(table), chance.choice([1, 2, 2, 3])):
        value = chance.choice(table[flag])
        words += [flag] if value is None else [flag, value]
    return words


def contradiction(answer: dict, code: int) -> str:
    fit = answer["fit"]
    verdict, probability = fit["verdict"], fit["probability"]
    if (verdict in ("no", "partly")) != (code == 1):
        return f"{verdict} with exit code {code}"
    if verdict == "fits" and any(
        r[f"{n}_bytes"] > fit["capacity_bytes"] for r in answer["memory"]["per_gpu"] for n in ("needed", "claimed")
    ):
        return "fits beyond the card"
    if probability is not None and not fit["refused"] and verdict != "partly":
        low, high = {"fits": (0.95, 1), "tight": (0.5, 1), "no": (0, 0.5)}[verdict]
        return "" if low <= probability <= high else f"{verdict} at {probability}"
    return ""


@pytest.mark.parametrize("seed", range(4))
def test_random_lines(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, answered = random.Random(seed), 0
    for _ in range(30):
        words, raw, errors = line(chance), io.BytesIO(), io.StringIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
        monkeypatch.setattr(sys, "stderr", errors)
        code = run(words)
        sys.stdout.flush()
        assert code in (0, 1, 2, 3), (words, errors.getvalue())
        if code in (0, 1):
            answered += 1
            assert not contradiction(json.loads(raw.getvalue()), code), words
        else:
            assert errors.getvalue().count("\n") == 1, (words, errors.getvalue())
    assert answered >= 5
