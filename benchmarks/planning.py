"""Timings of the planner: processor seconds of one core. ``--fine`` ranks a million deployments. Prints a line each.

PYTHONPATH=src python benchmarks/planning.py
"""

import sys
import time

import vramcast
from vramcast.asking.plan import wanted_of
from vramcast.models.reading import read_model
from vramcast.planning.plans import serving_table
from vramcast.planning.plans.serving import plan_serving

LOAD = {"users": 64, "prompt": 4000, "output": 400, "context": "8k"}


def serve(name: str, gpu: str, **words: object) -> None:
    """One serving search, cold and then again."""
    wanted, _ = wanted_of(name, {"gpu": gpu, **LOAD, **words})
    model, figures = read_model(name), []
    for _ in range(2):
        begun = time.process_time()
        plan = plan_serving(wanted, model=model)
        figures.append(time.process_time() - begun)
    told = f"{plan.tried:>9,} deployments of {plan.structures:>4} structures"
    sys.stdout.write(f"serve {name} on {gpu}: {told}  cold {figures[0]:.2f} s, again {figures[1]:.2f} s\n")


def train(name: str, gpu: str, **words: object) -> None:
    """One training search."""
    begun = time.process_time()
    plan = vramcast.plan("train", name, gpu=gpu, tokens="1T", **words)
    told = f"{plan.tried:,} layouts of {plan.structures} structures"
    sys.stdout.write(f"train {name} on {gpu}: {told}  {time.process_time() - begun:.2f} s\n")


def main() -> int:
    """All of them."""
    import numpy  # noqa: F401 - its import is not the planner's time

    serve("meta-llama/Llama-3.3-70B-Instruct", "H100x32")
    serve("meta-llama/Llama-3.3-70B-Instruct", "H100x32", engine="vllm")
    serve("Qwen/Qwen3-235B-A22B", "H100x32")
    serve("Qwen/Qwen3-32B", "H100x8")
    serving_table.CHUNKS = tuple(range(512, 32_769, 512))
    serving_table.SEATS = tuple(range(4, 65, 1)) + tuple(range(72, 513, 8))
    serve("meta-llama/Llama-3.3-70B-Instruct", "H100x32")
    train("meta-llama/Llama-3.1-70B", "H100x64", seq=8192, batch=512)
    train("meta-llama/Llama-3.1-8B", "H100x64", seq=8192, batch=512)
    return 0


if __name__ == "__main__":
    sys.exit(main())
