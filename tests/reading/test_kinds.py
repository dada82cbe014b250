"""What a text or a file is taken for: each kind by its own marks, no kind where two hold or none does."""

import json
from pathlib import Path

import pytest

from vramcast.reading.kinds import kinds_of, taken_for

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.16 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
    "1.63 GiB is free. Including non-PyTorch memory, this process has 77.42 GiB memory in use. Of the allocated memory 68.16 GiB "
    "is allocated by PyTorch, and 3.49 GiB is reserved by PyTorch but unallocated."
)
TOPOLOGY = "        GPU0    GPU1    CPU Affinity\nGPU0     X      NV12    0-15\nGPU1    NV12     X      16-31\n"
KINDS = [
    ("", "vllm serve Qwen/Qwen3-8B --max-model-len 8192", "command line", "serve"),
    ("", "accelerate launch --num_processes 8 train.py --per_device_train_batch_size 1", "command that trains", "train"),
    ("", OOM, "out-of-memory message", "explain"),
    ("", "$ vllm serve m/x -tp 2\n" + OOM, "out-of-memory message", "explain"),
    ("", TOPOLOGY, "topology", "topology"),
    ("a.py", "from transformers import TrainingArguments\nTrainingArguments(output_dir='x')\n", "training program", "train"),
    ("a.py", "from vllm import LLM\nLLM(model='m/x')\n", "Python program", "serve"),
    ("c.yaml", "services:\n  a: {image: 'vllm/vllm-openai:v0.9.0', command: --model m/x}\n", "compose file", "serve"),
    ("q.yaml", "base_model: m/x\nsequence_len: 2048\nmicro_batch_size: 1\nadapter: qlora\nlora_r: 8\n", "axolotl", "train"),
    ("config.json", json.dumps({"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1}), "config.json", "models"),
    ("m.json", json.dumps({"metadata": {}, "weight_map": {"a": "b"}}), "safetensors index", "models"),
    ("trainer_state.json", json.dumps({"log_history": [{"train_samples_per_second": 3.0}]}), "trainer's state", "utilization"),
    ("t.json", '{"traceEvents": []}', "profiler trace", "profile"),
]


@pytest.mark.parametrize(("name", "text", "what", "command"), KINDS)
def test_each_kind_by_its_own_marks(name: str, text: str, what: str, command: str) -> None:
    kind = taken_for(kinds_of(text.encode(), name))
    assert kind is not None
    assert (what in kind.what, kind.command[0]) == (True, command)


@pytest.mark.parametrize(
    ("data", "command"),
    [
        (b"GGUF\x03\x00\x00\x00", "serve"),
        (b"\x80\x04}", "explain"),
        (b"SQLite format 3\x00", "profile"),
        (b"\x1f\x8b\x08", "profile"),
    ],
)
def test_magic_bytes(data: bytes, command: str) -> None:
    kind = taken_for(kinds_of(data))
    assert kind is not None
    assert kind.command[0] == command


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.md", "# Notes\n\nWe saw *CUDA out of memory* yesterday; see `axolotl train`.\n"),
        ("pyproject.toml", "[project]\nname = 'x'\nkeywords = ['deepspeed', 'axolotl']\n"),
        ("ci.yml", "name: ci\non: push\njobs: {a: {runs-on: x, steps: [{run: make}]}}\n"),
        ("main.py", "import os\nprint(os.getcwd())\n"),
        ("", "hello there world"),
        ("grafana.json", '{"panels": [{"title": "GPU KV cache size: 100 tokens"}]}'),
        ("deploy.yaml", "apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: [{image: nginx}]}}}\n"),
    ],
)
def test_what_is_no_artefact_is_taken_for_none(name: str, text: str) -> None:
    assert taken_for(kinds_of(text.encode(), name)) is None


def test_two_kinds_that_hold_alike_are_left_to_the_person() -> None:
    program = "from vllm import LLM\nfrom trl import GRPOConfig\nLLM(model='m/x')\nGRPOConfig(output_dir='x')\n"
    kinds = kinds_of(program.encode(), "both.py")
    assert taken_for(kinds) is None
    assert {kind.command[0] for kind in kinds} == {"serve", "train"}


def test_every_sample_of_a_serving_format_is_one() -> None:
    samples = Path(__file__).parent / "serving" / "samples"
    for path in samples.rglob("*"):
        if path.is_file() and path.name not in ("expected.toml", "shared.env", "vllm.pbtxt"):
            kind = taken_for(kinds_of(path.read_bytes(), path.name, folder=path.parent))
            assert kind is not None and kind.command[0] == "serve", path


def test_a_text_beside_the_arguments_hides_none_of_them() -> None:
    text = 'from transformers import TrainingArguments\nt = TrainingArguments(output_dir="o", run_name="a\\nb")\n'
    assert kinds_of(text.encode(), "t.py")[0].because == "TrainingArguments"
    sample = 'SAMPLE = "import trl\\nTrainingArguments(1)"\n'
    assert not kinds_of(sample.encode(), "t.py")
