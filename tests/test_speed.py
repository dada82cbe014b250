"""How long answers take, in processor time and with a factor of five over what is promised."""

import os
import subprocess
import sys
import time

import pytest

from vramcast.hardware.names import find_accelerator
from vramcast.models.reading import read_model
from vramcast.planning.serving import forecast_serving
from vramcast.workload import Parallel, Serving

SLACK = 5


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


def test_a_cold_answer_imports_nothing_heavy() -> None:
    program = (
        "import sys; from vramcast.cli import run; run(['serve', 'Qwen/Qwen2.5-7B-Instruct', '--gpu', '4090', '--json']);"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & "
        "{'numpy', 'torch', 'transformers', 'rich', 'huggingface_hub', 'yaml', 'dataclasses', 'asyncio'}), file=sys.stderr)"
    )
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=found)
    assert ran.stderr.strip() == "[]"
