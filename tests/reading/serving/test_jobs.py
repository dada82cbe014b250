"""Scripts inside YAML, variables alone, runners: what starts an engine without a compose file or a manifest of pods."""

import pytest

from vramcast.reading.serving.files import ServingFile, find_launches

DSTACK = """
type: service
image: lmsysorg/sglang:v0.5.6
env:
  - HF_TOKEN
  - MODEL_ID=zai-org/GLM-4.5-Air-FP8
commands:
  - python -m sglang.launch_server --model-path $MODEL_ID --tp $DSTACK_GPUS_NUM --port 8000
resources:
  gpu: H200:4
"""
REPLICAS = """
type: service
replicas:
  - count: 1
    commands: [smg launch --port 8000]
  - count: 1..4
    commands: [vllm serve Qwen/Qwen3-8B --max-model-len 8192]
    resources: {gpu: L40S}
"""
SKYPILOT = """
resources:
  accelerators: {L4: 2}
envs:
  MODEL: Qwen/Qwen3-8B
run: |
  vllm serve $MODEL --tensor-parallel-size $SKYPILOT_NUM_GPUS_PER_NODE
"""
RECIPE = """
model: Qwen/Qwen3-8B
defaults: {tensor_parallel: 2, max_model_len: 8192}
command: |
  vllm serve {model} -tp {tensor_parallel} --max-model-len {max_model_len}
"""
RUNNER = """
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: srt-llama}
spec:
  engineConfig:
    runner:
      image: docker.io/lmsysorg/sglang:v0.5.5
      command: [python3, -m, sglang.launch_server, --model-path, $(MODEL_PATH), --tp-size, "2", --mem-frac, "0.9"]
      resources: {limits: {nvidia.com/gpu: 2}}
"""
FLEET = """
apiVersion: orchestration.aibrix.ai/v1alpha1
kind: RayClusterFleet
metadata: {name: r1}
spec:
  template:
    spec:
      headGroupSpec:
        template:
          spec:
            containers:
              - image: aibrix/vllm-openai:v0.7.3
                command: [/bin/bash, -lc, --]
                args: ["ulimit -n 65536; vllm serve /models/deepseek-r1 --tensor-parallel-size 16"]
"""
PRESET = """
services:
  llama:
    build: .
    environment:
      - LLAMA_ARG_FLASH_ATTN=on
      - LLAMA_ARG_KV_UNIFIED=1
  app:
    image: ghcr.io/open-webui/open-webui:main
    environment:
      - OLLAMA_BASE_URL=http://ollama:11434
"""
RAYLLM = """
engine_kwargs: {max_num_seqs: 256}
max_request_context_length: 8192
model_loading_config: {model_id: meta-llama/Meta-Llama-3.1-70B-Instruct}
tensor_parallelism: {degree: 4}
accelerator_type: A100-80G
"""


def _one(text: str, name: str = "x.yaml") -> tuple[str, str, tuple[str, ...], int, str]:
    found: ServingFile = find_launches(text, name)
    assert len(found.launches) == 1
    launch = found.launches[0]
    return launch.engine, launch.model, launch.flags, launch.gpus, launch.card


@pytest.mark.parametrize(
    ("text", "engine", "model", "flags", "gpus", "card"),
    [
        (DSTACK, "sglang", "zai-org/GLM-4.5-Air-FP8", {"--tp", "4"}, 4, "H200"),
        (REPLICAS, "vllm", "Qwen/Qwen3-8B", {"--max-model-len", "8192"}, 1, "L40S"),
        (SKYPILOT, "vllm", "Qwen/Qwen3-8B", {"--tensor-parallel-size", "2"}, 2, "L4"),
        (RECIPE, "vllm", "Qwen/Qwen3-8B", {"-tp", "2", "--max-model-len", "8192"}, 0, ""),
        (RUNNER, "sglang", "${MODEL_PATH}", {"--tp-size", "2", "--mem-frac", "0.9"}, 2, ""),
        (FLEET, "vllm", "/models/deepseek-r1", {"--tensor-parallel-size", "16"}, 0, ""),
        (PRESET, "llama_cpp", "", {"--flash-attn", "on", "--kv-unified", "1"}, 0, ""),
        (RAYLLM, "vllm", "meta-llama/Meta-Llama-3.1-70B-Instruct", {"--tensor-parallel-size", "4", "8192"}, 0, "A100-80G"),
    ],
)
def test_what_a_job_starts(text: str, engine: str, model: str, flags: set[str], gpus: int, card: str) -> None:
    found = _one(text)
    assert (found[0], found[1], found[3], found[4]) == (engine, model, gpus, card)
    assert flags <= set(found[2])


def test_variables_of_a_server_by_themselves() -> None:
    engine, model, flags, _, _ = _one("OLLAMA_CONTEXT_LENGTH=16384\nOLLAMA_NUM_PARALLEL=2\nOLLAMA_HOST=0.0.0.0\n", "override.env")
    assert (engine, model) == ("ollama", "")
    assert set(flags) == {"--ctx-size", "16384", "--n-parallel", "2"}
    assert find_launches("OLLAMA_BASE_URL=http://x\nPORT=3000\n", ".env").launches == ()


def test_a_loop_over_arguments_that_are_not_there_never_runs() -> None:
    script = (
        'MODEL=Qwen/Qwen3-8B\nwhile [ "$1" != "" ]; do\n case $1 in\n -m) MODEL=$2 ;;\n esac\n shift\ndone\nvllm serve $MODEL\n'
    )
    assert _one(script, "x.sh")[1] == "Qwen/Qwen3-8B"


def test_a_command_put_together_in_a_variable() -> None:
    script = 'A=(--max-model-len 8192)\nCMD="vllm serve Qwen/Qwen3-8B \\\n ${A[@]}"\n'
    script += 'if [[ "$X" == *"fp8"* ]]; then\n CMD="$CMD --kv-cache-dtype fp8"\nfi\nexec $CMD\n'
    assert {"--max-model-len", "8192"} <= set(_one(script, "x.sh")[2])
    assert find_launches(f"X=a-fp8-b\n{script}", "x.sh").launches[0].flags[-1] == "fp8"


def test_values_of_a_program() -> None:
    program = (
        'from vllm import LLM\nD = "/llamas"\nN = "m"\nllm = LLM(model=D + "/" + N, dtype=f"{N}16", tensor_parallel_size=tp)\n'
    )
    program = f"import sys\nif sys.argv:\n    tp = 1\nelse:\n    tp = 2\n{program}"
    _, model, flags, _, _ = _one(program, "x.py")
    assert (model, "m16" in flags, "${tp}" in flags) == ("/llamas/m", True, True)
