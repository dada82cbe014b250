"""Commands in programs, in platforms' own files, in images built beside: what a third sample of public files had."""

from pathlib import Path

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.serving.files import find_launches

TRUSS = """
base_image:
  image: vllm/vllm-openai:v0.15.1
docker_server:
  start_command: sh -c "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --tensor-parallel-size {tp}"
resources:
  accelerator: H100:2
"""


def test_a_command_in_a_platforms_own_file() -> None:
    found = find_launches(TRUSS, "config.yaml")
    (launch,) = found.launches
    assert (launch.engine, launch.model, launch.card, launch.gpus) == ("vllm", "Qwen/Qwen3-8B", "H100", 2)
    assert launch.version == "0.15.1"
    assert "--max-model-len 8192 --tensor-parallel-size ${tp}" in " ".join(launch.flags)


@pytest.mark.parametrize(
    "text",
    [
        "macros:\n  base: docker run --rm vllm/vllm-openai --enforce-eager\n",
        "note: see vllm serve --help for flags\n",
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: tritonserver:24\n    command: [sleep]\n    args: ['9']\n",
    ],
)
def test_what_starts_no_engine_is_no_command(text: str) -> None:
    assert not find_launches(text, "other.yaml").launches


PROGRAM = '''
"""Run it: vllm serve docs/model --port 1"""
import subprocess, modal
N = 4
@app.function(gpu="H100:4")
def run(model_path: str, length: int = 32768):
    command = f"python -m sglang.launch_server --model-path {model_path} --tp-size {N} --context-length {length}"
    subprocess.run(command.split())
    cmd = ["vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", str(length)]
    cmd += ["--enforce-eager"]
    if fast:
        cmd.append("--enable-lora")
    subprocess.Popen(cmd)
'''


def test_commands_that_a_program_puts_together() -> None:
    text, words = find_launches(PROGRAM, "serve.py").launches
    assert (text.engine, text.model, text.card, text.gpus) == ("sglang", "${model_path}", "H100", 4)
    assert "--tp-size 4 --context-length 32768" in " ".join(text.flags)
    assert (words.engine, words.model) == ("vllm", "Qwen/Qwen3-8B")
    assert "--enforce-eager" in words.flags
    assert words.unread == ("--enable-lora (under a condition)",)


def test_a_program_that_trains_and_then_serves_is_taken_for_training() -> None:
    text = PROGRAM + "\nargs = TrainingArguments(output_dir='x', per_device_train_batch_size=1)\n"
    taken = taken_for(kinds_of(text.encode(), "tune.py"))
    assert taken is not None
    assert taken.command == ("train", "--from")


def test_names_through_objects_and_calls() -> None:
    text = """
from vllm import LLM
class Server:
    def __init__(self, cards, model_id="meta-llama/Llama-3.1-8B"):
        self.model = None
        self.model_id = model_id
        self.cards = cards
    def load(self):
        self.model = LLM(self.model_id, tensor_parallel_size=self.cards)
"""
    (launch,) = find_launches(text, "a.py").launches
    assert launch.model == "meta-llama/Llama-3.1-8B"
    assert launch.opened == ("cards",)


def test_an_image_of_ones_own_by_the_engines_flags() -> None:
    line = "docker run --gpus all -p 80:80 my/image:1 --model-id /data --num-shard 4 --max-total-tokens 12001"
    (launch,) = find_launches(line).launches
    assert (launch.engine, launch.model) == ("tgi", "/data")
    assert "--num-shard" in launch.flags
    assert not find_launches("docker run my/image:1 --model-id /data --epochs 4").launches


def test_a_service_built_from_a_dockerfile_beside(tmp_path: Path) -> None:
    (tmp_path / "own.Dockerfile").write_text(
        "FROM nvidia/cuda:13.0\nENV MODEL=a/b\nENV LENGTH=4096\nCMD vllm serve ${MODEL} --max-model-len ${LENGTH}\n"
    )
    text = "services: {llm: {build: {context: ., dockerfile: own.Dockerfile}, environment: [LENGTH=8192]}}\n"
    (launch,) = find_launches(text, "compose.yml", folder=tmp_path).launches
    assert launch.model == "a/b"
    assert "8192" in launch.flags


def test_models_that_another_service_pulls() -> None:
    text = """
services:
  ollama:
    image: ollama/ollama
    environment: [OLLAMA_CONTEXT_LENGTH=8192]
  pull:
    image: ollama/ollama
    entrypoint: /bin/sh
    command: ["-c", "sleep 3; OLLAMA_HOST=ollama:11434 ollama pull qwen2.5:7b; ollama pull nomic-embed-text"]
"""
    first, second = find_launches(text, "compose.yml").launches
    assert {first.model, second.model} == {"qwen2.5:7b", "nomic-embed-text"}
    assert "8192" in first.flags
    assert "8192" in second.flags


def test_an_interactive_session_in_markdown() -> None:
    text = "# Serve\n```\n>>> from vllm import LLM\n>>> llm = LLM(model='a/b', tensor_parallel_size=4)\n```\n"
    (launch,) = find_launches(text, "README.md").launches
    assert launch.model == "a/b"


def test_placeholders_of_jinja_stay_open() -> None:
    (launch,) = find_launches(
        "text-generation-launcher --model-id {{model}} --max-total-tokens {{ longest }}", "a.slurm"
    ).launches
    assert launch.opened == ("model", "longest")
