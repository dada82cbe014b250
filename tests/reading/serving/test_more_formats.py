"""Files that people hold beside the usual ones: Makefiles, supervisord, Windows' llama-swap, programs with build arguments."""

from pathlib import Path

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.serving.files import find_launches, read_serving_file
from vramcast.reading.serving.programs import image_engine

SUPERVISOR = """
[program:one]
command=vllm serve org/Model-8B --max_model_len 4096
environment=CUDA_VISIBLE_DEVICES="0,1",OTHER="x"

[program:web]
command=/usr/bin/nginx -g off
"""
WINDOWS = """
macros:
  "server-rocm": >
    C:\\Users\\me\\apps\\llama-server.exe --port ${PORT}
models:
  small:
    cmd: |
      ${server-rocm}
      -m F:\\models\\Small-1B-Q4_K_M.gguf -c 2048
"""


def test_a_makefile_is_no_yaml(tmp_path: Path) -> None:
    file = tmp_path / "Makefile"
    file.write_text("start:\n\tuv run main.py\n\ndeploy:\n\tvllm serve org/Model-8B --max-model-len 512\n")
    (launch,) = read_serving_file(str(file)).launches
    assert (launch.model, launch.flags) == ("org/Model-8B", ("--max-model-len", "512"))


def test_supervisors_programs() -> None:
    found = find_launches(SUPERVISOR, "server.conf")
    assert found.kind == "supervisor configuration"
    (launch,) = found.launches
    assert (launch.model, launch.gpus, launch.name) == ("org/Model-8B", 2, "one")


def test_windows_paths_of_llama_swap() -> None:
    (launch,) = find_launches(WINDOWS, "config.yaml").launches
    assert (launch.engine, launch.model) == ("llama_cpp", "F:/models/Small-1B-Q4_K_M.gguf")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("compose.yaml", "services:\n  a:\n    image: my-lmdeploy-dev\n    command: uvicorn app:app --host 0.0.0.0\n"),
        ("setup.sh", "conda create --name ktransformers python=3.11\n"),
    ],
)
def test_another_program_beside_an_engines_name(name: str, text: str) -> None:
    assert not find_launches(text, name).launches


def test_an_image_that_is_named_after_its_program() -> None:
    text = "models:\n  a:\n    cmd: docker run --rm llama-server:cpu -m /models/Small-1B-Q8_0.gguf -ngl 99\n"
    (launch,) = find_launches(text, "config.yaml").launches
    assert (launch.engine, launch.flags) == ("llama_cpp", ("-ngl", "99"))


def test_bentos_arguments_are_those_of_its_build(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.bentoml.build.args]\nmodel_id = "org/Model-70B"\n')
    (tmp_path / "requirements.txt").write_text("vllm==0.11.0\n")
    file = tmp_path / "service.py"
    file.write_text(
        "import bentoml, pydantic\nclass A(pydantic.BaseModel):\n    model_id: str = 'org/Model-8B'\n    port: int = 1\n"
        "given = bentoml.use_arguments(A)\nclass S:\n    def __command__(self):\n"
        "        return ['vllm', 'serve', given.model_id, '--port', str(given.port), *given.more()]\n"
    )
    (launch,) = read_serving_file(str(file)).launches
    assert (launch.model, launch.version, launch.flags) == ("org/Model-70B", "0.11.0", ("--port", "1"))
    assert launch.unread == ("what given.more() adds",)


def test_an_annotated_command_with_words_that_are_added() -> None:
    text = (
        "import subprocess\nMORE = '--max-model-len 64'\ncmd: list[str] = ['vllm', 'serve', 'org/M']\n"
        "cmd.extend(MORE.split())\ncmd += other()\nsubprocess.run(cmd)\n# pip install vllm==0.9.1\n"
    )
    (launch,) = find_launches(text, "a.py").launches
    assert (launch.flags, launch.unread, launch.version) == (("--max-model-len", "64"), ("what other() adds",), "0.9.1")


def test_a_circle_in_one_expression_leaves_the_others_told() -> None:
    loop = "def f(d):\n    x = d.get(f(d), f(d), f(d))\n    return [x, f(x), f(x)]\ny = f(f(1))\n" * 3
    text = "from vllm import LLM\nM = 'org/M'\n" + loop + "print(f'{y} {f(y)}')\nLLM(model=M)\n"
    assert find_launches(text, "a.py").launches[0].model == "org/M"


def test_a_name_of_the_files_own_is_its_only_hub_name() -> None:
    text = 'model_id = "qwen36-27b-fp8"\n[identity]\nsource_repository = "Qwen/Qwen3.6-27B-FP8"\n[launch]\n'
    text += "context_length = 4096\nmem_fraction_static = 0.6\n"
    (launch,) = find_launches(text, "sglang.toml").launches
    assert launch.model == "Qwen/Qwen3.6-27B-FP8"
    taken = taken_for(kinds_of(text.encode(), "sglang.toml"))
    assert taken is not None
    assert taken.command == ("serve", "--from")


CHART = """
image: {repository: registry/vllm-cuda, tag: "1"}
model: {uri: "oci://quay.io/x/modelcar-catalog:granite-3.3-2b-instruct", args: ["--gpu-memory-utilization=0.8"]}
servingRuntime: {command: [python, -m, vllm.entrypoints.openai.api_server], args: [--model=/mnt/models]}
"""
FILE_CHART = """
model: {name: org/Other}
image: {repository: vllm/vllm-openai, command: [sh, -c], args: ["vllm serve --config /etc/vllm/config.yaml"]}
vllm: {config: {model: org/Model-9B, max_model_len: 8192, gpu_memory_utilization: 0.95}}
"""
RUNTIME = """
servingRuntime: {enabled: true, image: "kserve/vllmserver:v0.12.1"}
inferenceService: {predictor: {storageUri: "s3://models/demo/"}}
"""


@pytest.mark.parametrize(
    ("text", "model", "flags"),
    [
        (CHART, "granite-3.3-2b-instruct", ("--gpu-memory-utilization", "0.8")),
        (FILE_CHART, "org/Model-9B", ("--config", "/etc/vllm/config.yaml", "--max-model-len", "8192",
                                      "--gpu-memory-utilization", "0.95")),
        (RUNTIME, "demo", ()),
    ],
)  # fmt: skip
def test_charts_that_keep_their_parts_apart(text: str, model: str, flags: tuple[str, ...]) -> None:
    (launch,) = find_launches(text, "values.yaml").launches
    assert (launch.engine, launch.model, launch.flags) == ("vllm", model, flags)


def test_a_runtime_and_its_service_in_two_blocks() -> None:
    text = """# Deploy
```yaml
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: big}
spec: {containers: [{name: k, image: "quay.io/modh/vllm:x", args: [--model=/mnt/models, --tensor-parallel-size=4]}]}
```
```yaml
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: big}
spec: {predictor: {model: {modelFormat: {name: vLLM}, runtime: big, storageUri: "oci://r/modelcar-llama-3-3-70b-instruct:1.5"}}}
```
"""
    (launch,) = find_launches(text, "deploy.md").launches
    assert (launch.model, launch.flags) == ("llama-3.3-70b-instruct", ("--tensor-parallel-size", "4"))


def test_ollama_by_a_roles_defaults() -> None:
    text = (
        "ollama_state: present\nollama_num_parallel: 2\nollama_model: gpt-oss:20b\nollama_pull_models: [gpt-oss:20b, qwen3:8b]\n"
    )
    found = find_launches(text, "main.yml").launches
    assert [(one.model, one.flags, one.unread) for one in found] == [
        ("gpt-oss:20b", ("--n-parallel", "2"), ()),
        ("qwen3:8b", ("--n-parallel", "2"), ()),
    ]


def test_a_function_of_a_script_in_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text('serve() {\n  llama-server --no-webui "$@"\n}\n')
    (tmp_path / "small").mkdir()
    file = tmp_path / "small" / "run.sh"
    file.write_text("source ../setup.sh\nserve -m Small-1B-Q4_K_M.gguf -c $((2*1024))\n")
    (launch,) = read_serving_file(str(file)).launches
    assert (launch.model, launch.flags) == ("Small-1B-Q4_K_M.gguf", ("--no-webui", "-c", "2048"))


@pytest.mark.parametrize(
    ("name", "text", "engine", "model", "flags"),
    [
        ("values.yaml", "modelName: org/M\nimage: {repository: x/vllm-openai, tag: v0.11}\nextraArgs: [--max-model-len, '64']\n",
         "vllm", "org/M", ("--max-model-len", "64")),
        ("values.yaml", "model: {organization: org, name: M}\nimage: {name: vllm/vllm-openai}\nargs: ['--load-format auto']\n",
         "vllm", "org/M", ("--load-format", "auto")),
        ("a.yaml", "containers:\n  app:\n    image: {repository: ollama/ollama, tag: '1'}\n    env: {OLLAMA_NUM_PARALLEL: '2'}\n",
         "ollama", "", ("--n-parallel", "2")),
        ("_profile.env", "MODEL_DIR=m-8b\nMODEL_HF=org/M-8B\nMAX_MODEL_LEN=64\nGPU_MEMORY_UTILIZATION=0.8\n",
         "vllm", "org/M-8B", ("--max-model-len", "64", "--gpu-memory-utilization", "0.8")),
        ("run.sh", "/opt/llama/llama-server-ec9e0301 -m small-Q4_0.gguf -c 64\n", "llama_cpp", "small-Q4_0.gguf", ("-c", "64")),
        ("run.sh", "python -m lightllm.server.api_server --model_dir /m/M-8B --tp 2\n", "lightllm", "/m/M-8B", ("--tp", "2")),
        ("run.sh", "python serve.py engine.max_model_len=64 engine.gpu_memory_utilization=0.8 model.model_path=org/M\n",
         "vllm", "org/M", ("--max-model-len", "64", "--gpu-memory-utilization", "0.8")),
    ],
)  # fmt: skip
def test_names_of_a_model_and_of_an_engine(name: str, text: str, engine: str, model: str, flags: tuple[str, ...]) -> None:
    (launch,) = find_launches(text, name).launches
    assert (launch.engine, launch.model, launch.flags) == (engine, model, flags)


def test_overrides_that_train_start_nothing() -> None:
    text = "python -m main actor.model_path=org/M rollout.gpu_memory_utilization=0.8 rollout.max_model_len=64\n"
    assert not find_launches(text, "run.sh").launches


def test_nvidias_tags_are_no_release() -> None:
    text = "services:\n  a:\n    image: nvcr.io/nvidia/vllm:25.10-py3\n    command: vllm serve org/M\n"
    assert find_launches(text, "compose.yaml").launches[0].version is None


@pytest.mark.parametrize("text", ["args: [--port=8080]\n", "config:\n  args: 1\n", "# a\n```yaml\nargs: 1\nkwargs: 2\n```\n"])
def test_keys_that_are_levels_alone_are_nothing_known(text: str) -> None:
    for name in ("a.yaml", "a.md"):
        assert taken_for(kinds_of(text.encode(), name)) is None


def test_an_option_of_the_program_decides_its_branch() -> None:
    text = (
        "import argparse, subprocess\np = argparse.ArgumentParser()\n"
        "p.add_argument('--size', default='none')\nargs = p.parse_args()\nsize = args.size\nmore = ''\n"
        "if size == 'small':\n    path = 'org/M-8B'\n    more = '--max-model-len 64'\n"
        "cmd = ['vllm', 'serve', path, '--seed', '1']\ncmd.extend(more.split())\nsubprocess.run(cmd)\n"
    )
    assert find_launches(text, "a.py").launches[0].opened
    (launch,) = find_launches(text, "a.py", variables={"size": "small"}).launches
    assert (launch.model, launch.flags) == ("org/M-8B", ("--seed", "1", "--max-model-len", "64"))


def test_a_block_whose_end_is_no_yaml_is_read_to_there() -> None:
    text = (
        "```yaml\ncontainers:\n  - name: a\n    image: vllm/vllm-openai:latest\n"
        "    args: [--model, org/M, --max-model-len, '64']\n"
        "  volumes:\n    - name: x\n```\n"
    )
    (launch,) = find_launches(text, "a.md").launches
    assert (launch.model, launch.flags) == ("org/M", ("--max-model-len", "64"))
    assert launch.unread == ("the block from line 5 on, which is not YAML",)


SIDECAR = """
image: {repository: vllm/vllm-openai, tag: v0.11.0}
args:
  - "--model=org/Model-8B"
  - "--max-model-len 8192"
  - '--speculative-config={"method": "ngram", "num_speculative_tokens": 4}'
metrics: {image: {repository: prom/exporter, tag: v1}, args: ["--max-num-seqs", "4"]}
scraper: {args: ["--max-num-seqs", "5"]}
"""


def test_arguments_of_a_charts_other_sections_are_not_the_engines() -> None:
    (launch,) = find_launches(SIDECAR, "values.yaml").launches
    assert "--max-num-seqs" not in launch.flags
    assert launch.flags[:2] == ("--max-model-len", "8192")
    assert launch.flags[2:] == ("--speculative-method", "ngram", "--num-speculative-tokens", "4")


def test_a_kustomization_by_its_name(tmp_path: Path) -> None:
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:v0.11.0\n"
    )
    (tmp_path / "pod.yaml").write_text(f"{pod}    args: [--model, org/Model-8B]\n")
    (tmp_path / "kustomization.yaml").write_text("resources:\n- pod.yaml\n")
    found = read_serving_file(str(tmp_path / "kustomization.yaml"))
    assert (found.kind, [one.model for one in found.launches]) == ("kustomization", ["org/Model-8B"])


def test_supervisors_variables_and_comments() -> None:
    text = (
        "[program:a]\ncommand=vllm serve org/M --max-model-len %(ENV_LEN)s --port 80%(process_num)02d ; the engine\n"
        'environment=LEN="512"\n'
    )
    (launch,) = find_launches(text, "supervisord.conf").launches
    assert launch.flags[:2] == ("--max-model-len", "512")
    assert "engine" not in launch.flags


@pytest.mark.parametrize(("image", "engine"), [("x/ollama-server:1", None), ("x/llama-server:cpu", "llama_cpp")])
def test_an_image_is_no_other_engines_by_the_end_of_its_name(image: str, engine: str | None) -> None:
    found = image_engine(image)
    assert (found[0] if found else None) == engine


def test_overrides_that_describe_an_engine() -> None:
    said = ["engine.max_model_len=8192", "engine.gpu_memory_utilization=0.9", "model.path=org/M"]
    text = f"python serve.py {' '.join(said)}\n"
    assert [one.model for one in find_launches(text, "run.sh").launches] == ["org/M"]
