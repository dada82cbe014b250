"""How long answers take, in processor time and with a factor of five over what is promised."""

import gc
import os
import subprocess
import sys
import time

import pytest

from vramcast.hardware.cards import find_accelerator
from vramcast.models.reading import read_model
from vramcast.planning.serving import forecast_serving
from vramcast.training.forecast import forecast_training
from vramcast.training.memory import peak_bytes
from vramcast.training.structure import StepNumbers
from vramcast.workload import Parallel, Serving, Training

SLACK = 5


@pytest.fixture(autouse=True)
def no_collector():
    """A collection of what ten thousand other tests left would be counted as the forecast's."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    ("model", "engine", "promised_ms"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "vllm", 1),
        ("deepseek-ai/DeepSeek-V3", "vllm", 1),
        ("Qwen/Qwen2.5-7B-Instruct", "sglang", 1),
        ("Qwen/Qwen2.5-7B-Instruct", "tensorrt_llm", 1),
        ("Qwen/Qwen2.5-7B-Instruct", "transformers", 1),
        ("Qwen/Qwen2.5-7B-Instruct", "llama_cpp", 5),  # its graph is allocated node by node
    ],
)
def test_a_warm_forecast_takes_about_a_millisecond(model: str, engine: str, promised_ms: float) -> None:
    question = Serving(model=model, engine=engine, gpu="B300")
    known, card = read_model(model), find_accelerator("B300")
    if model.startswith("deepseek"):
        question = Serving(model=model, engine=engine, gpu="B300", gpus=4, parallel=Parallel(tp=4))
    forecast_serving(question, model=known, card=card)
    started = time.process_time()
    for _ in range(10):
        forecast_serving(question, model=known, card=card)
    assert (time.process_time() - started) / 10 * 1e3 < promised_ms * SLACK


TRAINED = {
    "FSDP": Training(model="x", gpus=8, fsdp=2, parallel=Parallel(dp=8), seq=4096),
    "LoRA": Training(model="x", method="lora", checkpointing="full", seq=4096),
    "pipeline": Training(model="x", gpus=64, framework="megatron", parallel=Parallel(tp=8, pp=4, dp=2, sp=True), seq=4096),
}


@pytest.mark.parametrize("question", TRAINED.values(), ids=TRAINED)
def test_a_warm_training_forecast_takes_less_than_a_millisecond(question: Training) -> None:
    model, card = read_model("meta-llama/Llama-3.1-8B"), find_accelerator("H100")
    forecast_training(question, model=model, card=card)
    started = time.process_time()
    for _ in range(20):
        forecast_training(question, model=model, card=card)
    assert (time.process_time() - started) / 20 * 1e3 < 1 * SLACK


@pytest.mark.parametrize("question", TRAINED.values(), ids=TRAINED)
def test_half_a_million_training_layouts_take_a_second(question: Training) -> None:
    np = pytest.importorskip("numpy")
    layouts, draw = 20_000, np.random.default_rng(0)
    numbers = StepNumbers(
        micro_batch=draw.integers(1, 33, layouts),
        seq=draw.integers(1, 65, layouts) * 256,
        accumulate=draw.integers(2, 17, layouts),
        dp=draw.integers(2, 257, layouts),
    )
    model, card = read_model("meta-llama/Llama-3.1-8B"), find_accelerator("H100")
    peak_bytes(question, numbers, model=model, card=card)
    started = time.process_time()
    peak_bytes(question, numbers, model=model, card=card)
    assert layouts / (time.process_time() - started) > 500_000 / SLACK


def test_a_cold_answer_imports_nothing_heavy() -> None:
    program = (
        "import sys; from vramcast.cli import run; run(['serve', 'Qwen/Qwen2.5-7B-Instruct', '--gpu', '4090', '--json']);"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & "
        "{'numpy', 'torch', 'transformers', 'rich', 'huggingface_hub', 'yaml', 'dataclasses', 'asyncio', "
        "'statistics', 'random', 'difflib', 'json'}), file=sys.stderr)"
    )
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=found)
    assert ran.stderr.strip() == "[]"
