"""Engine arguments in mappings that no reader of its own knows, scripts that start one server of several, guides in YAML."""

import pytest

from vramcast.reading.serving.files import find_launches

CATALOGUE = """
catalog:
  small-l4:
    url: hf://org/Small-11B?x=1
    engine: VLLM
    args: [--max-model-len=8192, --enforce-eager]
    resourceProfile: nvidia-gpu-l4:1
    minReplicas: 1
  big-h100:
    url: hf://org/Big-24B
    engine: VLLM
    args: [--kv-cache-dtype=fp8]
"""
PROFILE = """
profiles:
  "org/Model-119B-NVFP4":
    tp_size: 4
    mem_fraction_static: "0.85"
    context_length: 262144
    info_url: https://example.org
"""
CAMEL = "platform: {model: {name: org/M-8B}, vllmArgs: {maxModelLen: 4096, gpuMemoryUtilization: 0.9}}\n"
NAMED = "model: {model_name: org/M-8B, model_max_length: 2048}\nengine: SGLANG\n"
LISTED = """
tasks:
  - image: {beaker: x/y}
    command: ["/bin/sh", "-c"]
    arguments: ["pip install vllm && A=1 vllm serve org/M-32B --tensor-parallel-size 2"]
"""
GUIDE = """
model: {model_id: org/M-8B, base_args: ["--trust-remote-code"]}
variants: {bf16: {}}
guide: |
  ## Eight cards
  ```bash
  vllm serve org/M-8B --tensor-parallel-size 8
  ```
"""
ARMS = """
case "${1:-all}" in
  small)
    CUDA_VISIBLE_DEVICES=0 vllm serve org/Small --max-model-len 4096 ;;
  big)
    vllm serve org/Big \\
      --max-model-len 8192
    ;;
  all) $0 small & $0 big & wait ;;
esac
"""
SERVER = """
shared: {model_name: org/M-27B-FP8, base_url: "http://x/v1"}
server: {backend: vllm, host: 127.0.0.1, tensor_parallel_size: 2, gpu_memory_utilization: 0.92, dtype: bfloat16, theme: dark}
"""
ENTERED = """
ARGS=(serve org/M-27B --max-model-len 4096)
docker run --gpus all -e A=1 -v x:/y --entrypoint vllm vllm/vllm-openai:v0.27.1 "${ARGS[@]}"
"""
BEHIND = """
docker run --gpus all -v /m:/m my-image:1 /m/org/M-27B --served-model-name x --max-num-seqs 8 --max-model-len 4096 \\
  --gpu-memory-utilization 0.9
"""
PAIRS = """
services:
  vllm:
    image: vllm/vllm-openai:v0.11.0
    command:
      - vllm
      - serve
      - org/M-8B
      - --tensor-parallel-size 2
"""
KINDS = """
case "$1" in
  small) MODEL=org/Small-1B ;;
  big) MODEL=org/Big-8B ;;
esac
vllm serve "$MODEL" --max-model-len 4096
"""
RAY = """
kind: ConfigMap
apiVersion: v1
metadata: {name: script}
data:
  serve_it.py: |
    import os
    from vllm.engine.arg_utils import AsyncEngineArgs
    class Deployment:
        def __init__(self, model, longest):
            args = AsyncEngineArgs(model=model, max_model_len=longest)
    app = Deployment.bind(model=os.environ.get("MODEL", "a/b"), longest=int(os.environ.get("LONGEST", "1")))
---
kind: RayService
apiVersion: ray.io/v1
metadata: {name: ray}
spec:
  serveConfigV2: |
    applications:
    - import_path: serve_it:app
      runtime_env: {env_vars: {LONGEST: "8192"}}
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("values.yaml", CATALOGUE, [("vllm", "org/Small-11B", "--max-model-len 8192 --enforce-eager", "l4"),
                                    ("vllm", "org/Big-24B", "--kv-cache-dtype fp8", "")]),
        ("p.yml", PROFILE, [("sglang", "org/Model-119B-NVFP4",
                             "--tp-size 4 --mem-fraction-static 0.85 --context-length 262144", "")]),
        ("c.yaml", CAMEL, [("vllm", "org/M-8B", "--max-model-len 4096 --gpu-memory-utilization 0.9", "")]),
        ("n.yaml", NAMED, [("sglang", "org/M-8B", "", "")]),
        ("l.yaml", LISTED, [("vllm", "org/M-32B", "--tensor-parallel-size 2", "")]),
        ("g.yaml", GUIDE, [("vllm", "org/M-8B", "--trust-remote-code", ""),
                           ("vllm", "org/M-8B", "--tensor-parallel-size 8", "")]),
        ("a.sh", ARMS, [("vllm", "org/Small", "--max-model-len 4096", ""), ("vllm", "org/Big", "--max-model-len 8192", "")]),
        ("s.json.yaml", SERVER, [("vllm", "org/M-27B-FP8",
                                  "--tensor-parallel-size 2 --gpu-memory-utilization 0.92 --dtype bfloat16", "")]),
        ("e.sh", ENTERED, [("vllm", "org/M-27B", "--max-model-len 4096", "")]),
        ("b.sh", BEHIND, [("vllm", "/m/org/M-27B",
                           "--served-model-name x --max-num-seqs 8 --max-model-len 4096 --gpu-memory-utilization 0.9", "")]),
        ("o.yml", PAIRS, [("vllm", "org/M-8B", "--tensor-parallel-size 2", "")]),
        ("k.sh", KINDS, [("vllm", "org/Small-1B", "--max-model-len 4096", ""),
                         ("vllm", "org/Big-8B", "--max-model-len 4096", "")]),
        ("r.yaml", RAY, [("vllm", "a/b", "--max-model-len 8192", "")]),
    ],
)  # fmt: skip
def test_what_starts(name: str, text: str, expected: list[tuple[str, str, str, str]]) -> None:
    found = find_launches(text, name).launches
    plain = [
        (x.engine, x.model, " ".join(w for w in x.flags if "info-url" not in w and "example" not in w), x.card) for x in found
    ]
    assert plain == expected


@pytest.mark.parametrize(
    "text",
    [
        "engine: SGLANG\nother: 1\n",
        "model: {name: a/b}\nengine: NATIVE\n",
        "model: a/b\nmax_model_len: 3\nmax_num_seqs: 4\nlearning_rate: 1e-5\nvllm: {max_model_len: 3, max_num_seqs: 4}\n",
    ],
)
def test_what_starts_nothing(text: str) -> None:
    assert not [x for x in find_launches(text, "other.yaml").launches if x.model]
