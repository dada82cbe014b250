"""Time whole cold processes side by side: vramcast, and the peers that are installed, asked for the same model.

    python benchmarks/cold_start.py [--runs 7] [--peers /path/to/venv/bin] [--write docs/speed.md]

Each command runs as a fresh process; median, minimum and maximum wall times are printed. Peers need the hub: they get
one on this machine (``local_hub.py``), where a request costs a loopback round trip. A peer that is not installed is said so:
``python -m venv peers && peers/bin/pip install accelerate transformers torch hf-mem``.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from local_hub import LocalHub
from msgspec.structs import replace

MODEL = "Qwen/Qwen2.5-7B-Instruct"
_PAGE = """# Speed of the program itself

Written by `benchmarks/cold_start.py`, run from an installed package (bytecode compiled, as pip leaves it) on two shared cores.

"""
# What the peers need of the model's config, typed from its dimensions.
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 32768, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def own_commands() -> list[tuple[str, list[str]]]:
    """What is timed of ours: (label, argv)."""
    ours = [sys.executable, "-m", "vramcast"]
    return [
        ("python -c pass (floor)", [sys.executable, "-c", "pass"]),
        ("vramcast serve --json", [*ours, "serve", MODEL, "--gpu", "RTX 4090", "--json"]),
        ("vramcast serve (table drawn)", [*ours, "serve", MODEL, "--gpu", "RTX 4090"]),
        ("vramcast serve (which cards)", [*ours, "serve", MODEL]),
        ("vramcast train --json", [*ours, "train", MODEL, "--gpu", "H100", "--json"]),
        ("vramcast models --json", [*ours, "models", MODEL, "--json"]),
    ]


# hf-mem has the hub's address in its source: its own module is run with the local one in its place.
_HF_MEM = """
import importlib.util, pathlib, sys
endpoint = sys.argv.pop(1)
spec = importlib.util.find_spec("hf_mem.run")
module = importlib.util.module_from_spec(spec)
sys.modules["hf_mem.run"] = module
text = pathlib.Path(spec.origin).read_text().replace("https://huggingface.co", endpoint)
exec(compile(text, spec.origin, "exec"), module.__dict__)
from hf_mem.cli import main
main()
"""


def peer_commands(folder: Path, endpoint: str) -> list[tuple[str, list[str]]]:
    """What is timed of the peers in that folder of programs; one that is absent is printed."""
    python = str(folder / "python")
    listed = [
        ("accelerate estimate-memory", "accelerate", [str(folder / "accelerate"), "estimate-memory", MODEL]),
        ("hf-mem", "hf-mem", [python, "-c", _HF_MEM, endpoint, "--model-id", MODEL, "--json-output"]),
    ]
    for label, program, _ in listed:
        if not (folder / program).exists():
            print(f"not installed in {folder}: {label}")
    return [(label, argv) for label, program, argv in listed if (folder / program).exists()]


def time_one(argv: list[str], runs: int, environment: dict[str, str]) -> tuple[list[float], int]:
    """Wall seconds of each run after one warm-up, and the exit code of the last."""
    seconds, code = [], 0
    env = {**os.environ, "FORCE_COLOR": "1", **environment}
    for i in range(runs + 1):
        start = time.perf_counter()
        code = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=env).returncode
        if i:
            seconds.append(time.perf_counter() - start)
    return seconds, code


def warm_forecast_ms(repeats: int = 300) -> dict[str, float]:
    """Median milliseconds of one warm forecast in this process, serving and training."""
    from vramcast import Serving, Training, forecast

    questions = {
        "one warm serving answer, with limits and advice": Serving(model=MODEL, gpu="RTX 4090"),
        "one warm training answer, with limits and advice": Training(model=MODEL, gpu="H100 SXM"),
    }
    timings = {}
    for label, question in questions.items():
        forecast(question)
        samples = []
        for _ in range(repeats):
            start = time.perf_counter()
            forecast(question)
            samples.append((time.perf_counter() - start) * 1e3)
        timings[label] = statistics.median(samples)
    return timings


def rule_rates(repeats: int = 200) -> dict[str, float]:
    """Forecasts of one CPU-second by the rules alone, each of another length: no verdict, no limits, no advice."""
    from vramcast import Parallel, Serving, Training
    from vramcast.hardware.cards import least_card
    from vramcast.models.reading import read_model
    from vramcast.serving.engines.base import answer_of
    from vramcast.training.forecast import forecast_training

    trained = "meta-llama/Llama-3.1-8B"
    served, learner, card = read_model(MODEL), read_model(trained), least_card("H100")
    gguf = Serving(model=MODEL, gpu="H100", engine="llama_cpp", quant="Q4_K_M")
    step = Training(model=trained, gpu="H100", fsdp=2, parallel=Parallel(dp=8))
    asked = {
        "vLLM, 7B": lambda n: answer_of(Serving(model=MODEL, gpu="H100", context=4096 + n), model=served, card=card),
        "llama.cpp, 7B": lambda n: answer_of(replace(gguf, context=4096 + n), model=served, card=card),
        "training under FSDP2, 8B": lambda n: forecast_training(replace(step, seq=2048 + n), model=learner),
    }
    rates = {}
    for label, ask in asked.items():
        for n in range(5):
            ask(n)
        start = time.process_time()
        for n in range(repeats):
            ask(n)
        rates[label] = repeats / (time.process_time() - start)
    return rates


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--peers", type=Path, default=Path(sys.executable).parent, help="folder with the peers' programs")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    hub = LocalHub(MODEL, CONFIG)
    rows = ["| command (cold process) | median s | min s | max s | exit |", "|---|---|---|---|---|"]
    peers = [(label, argv, {"HF_ENDPOINT": hub.url}) for label, argv in peer_commands(given.peers, hub.url)]
    for label, argv, environment in [*((label, argv, {}) for label, argv in own_commands()), *peers]:
        seconds, code = time_one(argv, given.runs, environment)
        rows.append(f"| {label} | {statistics.median(seconds):.3f} | {min(seconds):.3f} | {max(seconds):.3f} | {code} |")
    rows += ["", "| warm, in process | median ms |", "|---|---|"]
    rows += [f"| {label} | {ms:.2f} |" for label, ms in warm_forecast_ms().items()]
    rows += ["", "| the rules of memory alone | forecasts a CPU-second |", "|---|---|"]
    rows += [f"| {label} | {rate:,.0f} |" for label, rate in rule_rates().items()]
    rows += [
        "",
        f"Largest resident size of any command: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB.",
    ]
    text = "\n".join(rows)
    print(text)
    if given.write:
        given.write.write_text(_PAGE + text + "\n")


if __name__ == "__main__":
    main()
