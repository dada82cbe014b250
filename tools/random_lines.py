"""Random command lines of every command that answers without a GPU: ``python tools/random_lines.py 25000 [--seed N]``.

Each line is run inside this process, as typed. A fault is an exit code beside 0 to 3, a mistake told in more or less than one
line, or an answer whose verdict, probability, exit code, bar and terms say different things. Faults are printed with their
line; the last line counts. ``tests/cli/test_random_lines.py`` runs a few hundred of them.
"""

import argparse
import io
import json
import random
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from vramcast.cli import run

MODELS = [
    "Qwen/Qwen2.5-7B-Instruct", "llama3.1:8b", "google/gemma-3-27b-it", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b",
    "qwen3",
    "Qwen/Qwen3-30B-A3B", "state-spaces/mamba-2.8b-hf", "google-t5/t5-base", "Qwen/Qwen3-32B-AWQ", "ai21labs/Jamba-v0.1",
    "nonsense", "gemma-3-27b-it-GGUF:Q4_K_M", "huggyllama/llama-7b", "openai/whisper-large-v3", "BAAI/bge-m3", "llama 2 7b",
    "Qwen/Qwen2.5-VL-7B-Instruct", "zai-org/GLM-4.7", "通义千问7B", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "no.yaml",
    "-", "",
    "moonshotai/Kimi-K2-Instruct", "deepseek-ai/DeepSeek-V4-Flash", "Qwen/Qwen3-Next-80B-A3B-Instruct", "gpt2", "x" * 300,
]  # fmt: skip
GPUS = [
    "4090", "H100x8", "A100-80Gx4", "3060", "T4", "MI300X", "M3 Max 64GB", "g5.12xlarge", "24GB", "L4x2", "GTX 1080 Ti",
    "0", "",
    "V100-32Gx4", "colab", "Mac", "dgx spark", "2x3090", "H100x3", "any", "strix halo", "rtx 4090x1000", "Gaudi 3",
    "7900 XTX", "x",
]  # fmt: skip
COUNTS = ["0", "1", "2", "3", "8", "64", "4096", "32K", "32k", "1M", "-1", "x", "1e3", "", "99999999999999999999"]
WRONG = frozenset({"", "0", "-1", "x", "1e3", "99999999999999999999", "nan", "nonsense", "no.yaml", "-", "x" * 300, "Mac"})
_RIGHT = 0.7
SHARES = ["0", "0.05", "0.5", "0.95", "1", "2", "x", "nan"]
SERVE: dict[str, list[str | None]] = {
    "--gpu": [*GPUS], "--engine": ["vllm", "sglang", "llama.cpp", "ollama", "transformers", "tensorrt_llm", "vllm==0.6.3",
    "x", "vllm=="],
    "--context": [*COUNTS, "8192", "16384", "auto"], "--concurrency": [*COUNTS], "--dtype": ["fp16", "bfloat16", "float32",
    "x"],
    "--quant": ["fp8", "awq", "nf4", "Q4_K_M", "q8_0", "int8", "w8a8", "gptq", "mxfp4", "x"], "--kv-dtype": ["fp8", "auto",
    "q8_0", "x"],
    "--tp": [*COUNTS], "--pp": [*COUNTS], "--dp": [*COUNTS], "--ep": [*COUNTS], "--gpu-memory-utilization": [*SHARES],
    "--mem-fraction-static": [*SHARES], "--free-gpu-memory-fraction": [*SHARES], "--max-num-seqs": [*COUNTS],
    "--num-beams": [*COUNTS],
    "--max-num-batched-tokens": [*COUNTS], "--cpu-offload-gb": [*COUNTS], "-ngl": [*COUNTS], "-ub": [*COUNTS],
    "--enforce-eager": [None],
    "--prompt": [*COUNTS], "--output": [*COUNTS], "--rate": ["0", "1", "100", "x"], "--images": [*COUNTS], "--cpu-moe": [None],
    "--slo": ["ttft=1s,tpot=50ms", "x"], "--link": ["pcie4", "64GB/s", "0GB/s", "x"], "--disagg": ["2P1D", "0P1D", "x"],
    "--block-size": ["16", "7", "0"], "--prefill-chunk-size": [*COUNTS], "--explain": ["weights", "kv_cache", "tpot", "x"],
    "--best": ["context", "users", "x"], "--sweep": ["context=1k,2k", "gpus=1..3", "x", "tp=1,2", "quant=awq,fp8"],
    "--attn-implementation": ["eager", "sdpa", "x"], "--lang": ["zh", "en", "x"], "--options": [None],
}  # fmt: skip
TRAIN: dict[str, list[str | None]] = {
    "--gpu": [*GPUS], "--rank": [*COUNTS], "--micro-batch": [*COUNTS], "--seq": [*COUNTS, "512", "2048"],
    "--accumulate": [*COUNTS],
    "--framework": ["hf_trainer", "unsloth", "megatron", "torchtitan", "trl", "deepspeed", "axolotl", "torchtune", "litgpt",
    "x"],
    "--method": ["full", "lora", "qlora", "dpo", "grpo", "sft", "pretrain", "dora", "ppo", "orpo", "x"],
    "--optimizer": ["adamw", "adamw_8bit", "sgd", "muon", "adafactor", "galore_adamw", "lion", "paged_adamw_8bit", "x"],
    "--checkpointing": ["none", "full", "selective", "offloaded", "uniform:2", "x"], "--fsdp": ["1", "2", "3"],
    "--zero": ["1", "2", "3", "9"],
    "--tp": [*COUNTS], "--pp": [*COUNTS], "--cp": [*COUNTS], "--ep": [*COUNTS], "--sp": [None], "--loss": ["eager",
    "linear", "plain", "x"],
    "--quant": ["nf4", "fp8", "llm.int8", "gptq", "x"], "--param-dtype": ["float32", "fp16", "int8", "x"],
    "--grad-dtype": ["float32", "x"],
    "--compute-dtype": ["float16", "bfloat16", "fp8", "x"], "--link": ["pcie4", "x"], "--tokens": ["1T", "1B", "0", "x"],
    "--offload": ["optimizer", "parameters", "activations", "gradients", "x"], "--set": ["residual=float32", "x=1", "scan",
    "master=float32"],
    "--targets": ["lm_head", "all-linear", "q_proj,v_proj", "x"], "--attention": ["eager", "flash", "sdpa", "x"],
    "--explain": ["weights", "optimizer", "step", "x"], "--sweep": ["rank=2,4", "micro_batch=1..3", "x",
    "optimizer=adamw,sgd", "gpu=4090,3090"],
    "--lang": ["zh", "x"], "--options": [None],
}  # fmt: skip
RULES = ["16-bytes", "kv-cache", "twenty-percent", "two-n", "ttft-tpot", "activations", "flops-ratio", "bytes-per-parameter", "x"]
RULE_FLAGS = ("--params", "--tokens", "--batch", "--bytes", "--hidden", "--layers", "--gpu", "--bandwidth", "--peak-tflops")
TEXTS = [
    "llama 3.1 8b on a 4090", "can I run qwen3 32b on 2x 3090 with 32k", "用4090能跑Qwen3-8B吗",
    "fine-tune mistral 7b on T4 with qlora",
    "deepseek v3 on 8xH200 for 10 users", "CUDA error: out of memory",
    "vllm serve Qwen/Qwen3-8B --max-model-len 16384 -tp 2", "hello",
    "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B", "ollama run llama3.1:8b", "{", "a: [", "%PDF",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB.",
    "llama-server -hf Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M -c 32768 -ngl 99", "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X", '{"a": 1}',
]  # fmt: skip


def line(chance: random.Random) -> list[str]:
    """One command line; of serve and train mostly with --json, so that its answer can be held against itself."""
    command = chance.choices(list(_OTHERS), weights=[weight for _, weight in _OTHERS.values()])[0]
    return _OTHERS[command][0](chance)


def _answer(command: str, table: dict[str, list[str | None]], chance: random.Random) -> list[str]:
    words = [command, _one(MODELS, chance), *(["--json"] if chance.random() < 0.8 else [])]
    for flag in chance.sample(sorted(table), chance.choice([1, 2, 2, 3, 4])):
        value = _one(table[flag], chance)
        words += [flag] if value is None else [flag, value]
    return words


def _one(values: list[Any], chance: random.Random) -> Any:
    """One of the values; two in three times one that may be right."""
    right = [value for value in values if value not in WRONG]
    return chance.choice(right if right and chance.random() < _RIGHT else values)


def _serve(chance: random.Random) -> list[str]:
    return _answer("serve", SERVE, chance)


def _train(chance: random.Random) -> list[str]:
    return _answer("train", TRAIN, chance)


def _plan(chance: random.Random) -> list[str]:
    words = ["plan", chance.choice(["serve", "train", "x", chance.choice(MODELS)]), chance.choice(MODELS)]
    words += ["--gpu", chance.choice([*GPUS[:8], "x"])] if chance.random() < 0.8 else []
    return words + chance.choice([[], ["--json"], ["--users", chance.choice(COUNTS)], ["--context", chance.choice(COUNTS)]])


def _models(chance: random.Random) -> list[str]:
    extra = chance.choice([[], ["--json"], ["--flops"], ["--flops", "--seq", chance.choice(COUNTS)], ["--find", "qwen"], ["--x"]])
    return ["models", chance.choice(MODELS), *extra]


def _fit(chance: random.Random) -> list[str]:
    words = ["fit", chance.choice(MODELS), *(["--json"] if chance.random() < _RIGHT else [])]
    words += ["--gpu", chance.choice(GPUS)] if chance.random() < _RIGHT else []
    for flag in chance.sample(("--context", "--users", "--only"), chance.choice([0, 1, 2])):
        words += [flag, chance.choice(["run", "train", "x"] if flag == "--only" else COUNTS)]
    return words


def _gpus(chance: random.Random) -> list[str]:
    flags = chance.choice([[], ["--json"], ["--sort", chance.choice(["price", "x"])], ["--at-least", chance.choice(COUNTS)]])
    return ["gpus", *chance.sample(GPUS, chance.choice([0, 1, 1, 2, 3])), *flags]


def _rules(chance: random.Random) -> list[str]:
    words = ["rules", chance.choice(RULES), *chance.choice([[], [chance.choice(MODELS)]])]
    for flag in chance.sample(RULE_FLAGS, chance.choice([0, 1, 2])):
        words += [flag, chance.choice(GPUS if flag == "--gpu" else [*COUNTS, "7e9", "312"])]
    return words


def _utilization(chance: random.Random) -> list[str]:
    words = ["utilization", *chance.choice([[], [chance.choice(MODELS)]]), "--gpu", chance.choice(GPUS)]
    flag = chance.choice(["--tflops", "--tokens-per-second", "--samples-per-second", "--step-seconds", "--x"])
    return [
        *words,
        flag,
        chance.choice([*COUNTS, "100", "0.5"]),
        *chance.choice([[], ["--seq", chance.choice(COUNTS)], ["--json"]]),
    ]


def _text(chance: random.Random) -> list[str]:
    return [
        *chance.choice([[], ["explain"], ["serve"], ["train"], ["check"], ["topology"], ["profile"], ["doctor"]]),
        chance.choice(TEXTS),
    ]


def _file(chance: random.Random) -> list[str]:
    path = (
        Path(tempfile.gettempdir())
        / f"vramcast_random_lines{chance.choice(['.yaml', '.sh', '.json', '.txt', '.log', '.py', ''])}"
    )
    path.write_text(chance.choice(TEXTS), encoding="utf-8")
    command = chance.choice(
        [[], ["explain"], ["check"], ["topology"], ["doctor"], ["profile"], ["utilization", "--log"], ["train", "--from"]]
    )
    return [*command, str(path), *chance.choice([[], ["--gpu", chance.choice(GPUS)], ["--json"]])]


_OTHERS = {
    "serve": (_serve, 40), "train": (_train, 30), "plan": (_plan, 1), "fit": (_fit, 1), "models": (_models, 6),
    "gpus": (_gpus, 5), "rules": (_rules, 6),
    "utilization": (_utilization, 5), "text": (_text, 4), "file": (_file, 4),
}  # fmt: skip


def contradiction(answer: dict[str, Any], code: int) -> str:
    """What an answer of serve or train says twice and differently; "" where it agrees with itself."""
    fit = answer["fit"]
    verdict, probability = fit["verdict"], fit["probability"]
    if (verdict in ("no", "partly")) != (code == 1):
        return f"{verdict} with exit code {code}"
    for rank in answer["memory"]["per_gpu"]:
        bar, total = rank["interval"], sum(term["bytes"] for term in rank["terms"])
        if verdict == "fits" and max(rank["needed_bytes"], rank["claimed_bytes"] or 0) > fit["capacity_bytes"]:
            return "fits beyond the card"
        if bar and not bar["low_bytes"] <= rank["needed_bytes"] <= bar["high_bytes"]:
            return "the bar does not hold the need"
        if any(abs(t["bytes"] - sum(p["bytes"] for p in t["terms"])) > 2 + len(t["terms"]) for t in rank["terms"] if t["terms"]):
            return "parts do not sum to their term"
        if min([total, *(term["bytes"] for term in rank["terms"])]) < 0:
            return "a negative term"
    if probability is not None and not fit["refused"] and verdict != "partly":
        low, high = {"fits": (0.95, 1), "tight": (0.5, 1), "no": (0, 0.5)}[verdict]
        return "" if low <= probability <= high else f"{verdict} at {probability}"
    return ""


def fault(words: list[str]) -> tuple[int, str]:
    """The exit code of a line, and what is wrong with what it printed."""
    raw, errors, streams = io.BytesIO(), io.StringIO(), (sys.stdout, sys.stderr, sys.stdin)
    shown, printed = io.TextIOWrapper(raw, encoding="utf-8"), b""
    sys.stdout, sys.stderr = shown, errors
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"{}"), encoding="utf-8")
    try:
        code = run(words)
        shown.flush()
        printed = raw.getvalue()
    finally:
        sys.stdout, sys.stderr, sys.stdin = streams
    said = [one for one in errors.getvalue().splitlines() if not one.startswith(("taken for", "asked as", "wrote "))]
    if code not in (0, 1, 2, 3):
        return code, f"exit {code}: {said[-1:]}"
    if code in (2, 3) and words[0] == "check" and printed:  # its table says what is wrong with which file
        return code, ""
    if code in (2, 3):
        told = len(said) == 1 and said[0].startswith("vramcast: ")
        return code, "" if told else f"a mistake in {len(said)} lines: {said[:2]}"
    if "Traceback" in errors.getvalue():
        return code, "a traceback"
    alone = (
        words[0] in ("serve", "train") and "--json" in words and not {"--sweep", "--explain", "--best", "--options"} & {*words}
    )
    return code, contradiction(json.loads(printed), code) if alone and printed.startswith(b"{") else ""


def main() -> None:
    """Run so many lines; exit code 1 where one has a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", type=int)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance, codes, faults = random.Random(asked.seed), Counter[int](), 0
    for _ in range(asked.lines):
        words = line(chance)
        code, wrong = fault(words)
        codes[code] += 1
        if wrong:
            faults += 1
            print(f"{wrong}\n    vramcast {shlex.join(words)}", flush=True)
    print(f"{asked.lines:,} lines of seed {asked.seed}: {faults} faults; exit codes {dict(sorted(codes.items()))}")
    sys.exit(int(faults > 0))


if __name__ == "__main__":
    main()
