"""Steps and steady states on arrays against the same asked one by one."""

import random

import msgspec
import numpy as np
import pytest

from vramcast.hardware.cards import least_card
from vramcast.models.operations import Batch
from vramcast.models.reading import read_model
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import step_of
from vramcast.speed.closed_form import steady
from vramcast.speed.load import Load
from vramcast.speed.many import _MOST_TOGETHER, _roundings
from vramcast.speed.step import Step
from vramcast.workload import Parallel, Serving

MODELS = (
    ("meta-llama/Llama-3.1-8B-Instruct", "vllm", Parallel(tp=2), {}),
    ("Qwen/Qwen3-30B-A3B", "vllm", Parallel(tp=2, dp=4), {"enable_expert_parallel": True}),
    ("deepseek-ai/DeepSeek-V3", "sglang", Parallel(tp=8, ep=8), {"enable_dp_attention": True, "dp_size": 8}),
    ("google/gemma-3-27b-it", "tensorrt_llm", Parallel(tp=4), {}),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", "vllm", Parallel(tp=4), {}),
    ("Qwen/Qwen2.5-7B-Instruct", "transformers", Parallel(), {}),
)
LOADS = (Load(prompt=3000, output=300, concurrency=1, cached=0.3), Load(prompt=700, output=900, rate_per_s=2.0))


@pytest.mark.parametrize("load", LOADS, ids=("closed", "open"))
@pytest.mark.parametrize(("name", "engine", "parallel", "options"), MODELS, ids=lambda v: v if isinstance(v, str) else "")
def test_arrays_of_deployments_are_each_deployment_alone(name, engine, parallel, options, load) -> None:
    draw = random.Random(hash((name, engine)) % 1000)
    question = Serving(model=name, gpu="H200", gpus=8, engine=engine, context=8192, parallel=parallel, options=options)
    on = step_of(answer_of(question, model=read_model(name), card=least_card("H200"), limits=False)).on
    clients = np.array([draw.uniform(1, 600) for _ in range(40)])
    limits = {
        "chunk_tokens": np.array([draw.choice([512, 2048, 8192, 16384]) for _ in clients]),
        "max_seqs": np.array([draw.choice([4, 16, 64, 256, 1024]) for _ in clients]),
        "pool_tokens": np.array([draw.uniform(2e4, 4e6) for _ in clients]),
    }
    together = steady(Step(msgspec.structs.replace(on, **limits)), load, replicas=1 / clients)
    for i in draw.sample(range(len(clients)), 6):
        own = {field: values[i].item() for field, values in limits.items()}
        alone = steady(Step(msgspec.structs.replace(on, **own)), load, replicas=1 / clients[i].item())
        for field in alone.__struct_fields__:
            column = np.broadcast_to(getattr(together, field), clients.shape)
            assert column[i] == pytest.approx(getattr(alone, field), rel=1e-9, abs=1e-15), field


def test_a_step_takes_as_long_whatever_other_steps_were_asked_before() -> None:
    question = Serving(
        model=MODELS[1][0], gpu="H200", gpus=8, engine="vllm", context=8192, parallel=MODELS[1][2], options=MODELS[1][3]
    )
    on = step_of(answer_of(question, model=read_model(question.model), card=least_card("H200"), limits=False)).on
    few, many = (Batch(decodes=np.array(rows), decode_past=900.0) for rows in ([3.0, 40.0], [1.0, 24.0, 40.0, 333.0]))
    fresh = Step(on).seconds(few)
    Step(on).seconds(many)
    assert Step(on).seconds(few).tolist() == fresh.tolist()
    assert all(len(asked) <= _MOST_TOGETHER for table in _roundings.values() for asked in table.asked.values())
