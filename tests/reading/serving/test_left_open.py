"""What a file leaves open: folders of another machine, words typed after a script, commands of files that are not at hand."""

from pathlib import Path

import pytest

from vramcast.asking.asked import Asked
from vramcast.asking.launched import launched, question_of_launch
from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.reading.serving.files import find_launches
from vramcast.workload import Serving


def _asked(
    folder: Path, name: str, text: str, model: str | None = None, variables: dict[str, str] | None = None
) -> Asked[Serving]:
    path = folder / name
    path.write_text(text)
    found = launched(model, (), files=(str(path),), variables=variables or {})
    assert found is not None
    return question_of_launch(found[0], found[1], {}, {}, serving_question)


@pytest.mark.parametrize("folder", ["$HOME/models", "${MODELS}", "$(cd $(dirname $0) && pwd)/models"])
def test_a_folder_that_is_left_open_is_not_asked_for(tmp_path: Path, folder: str) -> None:
    asked = _asked(tmp_path, "run.sh", f'llama-server -m "{folder}/Qwen3-8B-Q4_K_M.gguf" -c 4096\n')
    assert asked.question.model.endswith("Qwen3-8B")


def test_a_model_that_the_open_path_does_not_name_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(
        QuestionError, match=r"leaves RUNS open: say --var RUNS=.*or the model itself: vramcast serve MODEL --from"
    ):
        _asked(tmp_path, "run.sh", "vllm serve $RUNS/final --dtype half\n")


def test_a_word_typed_after_the_script_is_told_as_one(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match=r"leaves \$1 \(a word typed after the script\) open: say --var 1=\.\.\."):
        _asked(tmp_path, "run.sh", 'vllm serve "$1" --dtype half\n')


TABLE = """
declare -A MODELS
MODELS=([small]="Qwen/Qwen3-0.6B" [large]="Qwen/Qwen3-8B")
M=${MODELS[$1]}
for gpu in 0 1; do
  CUDA_VISIBLE_DEVICES=$gpu vllm serve $M --port $((8000 + gpu)) --max-model-len 4096 &
done
"""


def test_a_table_of_models_asks_for_its_key(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match=r"leaves \$1 \(a word"):
        _asked(tmp_path, "run.sh", TABLE)
    asked = _asked(tmp_path, "run.sh", TABLE, variables={"1": "large"})
    assert asked.question.model.endswith("Qwen3-8B")
    assert any(a.name == "replicas" and a.value == 2 for a in asked.assumed)


def test_ranks_of_one_server_are_no_copies(tmp_path: Path) -> None:
    lines = [f"vllm serve Qwen/Qwen3-8B --nnodes 2 --node-rank {rank}" for rank in (0, 1)]
    with pytest.raises(QuestionError, match="starts 2 engines"):
        _asked(tmp_path, "run.sh", "\n".join(lines))


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("args, rest = parser.parse_known_args()\nsubprocess.Popen(['vllm', 'serve'] + rest)\n", "${rest}"),
        ("from bench import VLLM_ARGS\nsubprocess.Popen(VLLM_ARGS)\n", "${VLLM_ARGS}"),
        ("parser.error('vllm serve arguments required, e.g. x --dtype half')\n", None),
        ("from bench import CLIENT_ARGS\nsubprocess.Popen(CLIENT_ARGS)\n", None),
    ],
)
def test_commands_of_a_program_that_another_place_holds(text: str, model: str | None) -> None:
    launches = find_launches(f"import argparse, subprocess\nparser = argparse.ArgumentParser()\n{text}", "serve.py").launches
    assert [one.model for one in launches] == ([model] if model else [])


def test_a_modelfile_with_a_quoted_base() -> None:
    (launch,) = find_launches('FROM "./Qwen3-8B-Q4_K_M.gguf"\nPARAMETER num_ctx 4096\n', "Modelfile").launches
    assert launch.model == "./Qwen3-8B-Q4_K_M.gguf"


VALUES = """
inferenceService:
  storage: {storageUri: "oci://quay.io/x/modelcar-catalog:granite-3.2-8b-instruct"}
  args: ["--max-model-len=23000", "--gpu-memory-utilization=0.99"]
  resources: {limits: {nvidia.com/gpu: "1"}}
"""
SPLIT = """
image: {repository: vllm/vllm-openai, tag: v0.12.0}
vllm:
  command: [/bin/sh, -c]
  args: ["vllm serve openai/gpt-oss-20b"]
"""


def test_values_of_peoples_own_charts() -> None:
    (launch,) = find_launches(VALUES, "values.yaml").launches
    assert (launch.engine, launch.model) == ("vllm", "granite-3.2-8b-instruct")
    (launch,) = find_launches(SPLIT, "values.yaml").launches
    assert (launch.model, launch.version) == ("openai/gpt-oss-20b", "0.12.0")


@pytest.mark.parametrize(
    ("resource", "selector", "card"),
    [
        ("google.com/tpu", "{cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice}", "tpu-v5e"),
        ("google.com/tpu", "{pool: tpu}", "google.com/tpu"),
        ("nvidia.com/gpu", "{cloud.google.com/gke-accelerator: nvidia-l4}", "l4"),
    ],
)
def test_a_device_that_is_no_gpu_is_named(resource: str, selector: str, card: str) -> None:
    pod = f"""
apiVersion: v1
kind: Pod
metadata: {{name: x}}
spec:
  nodeSelector: {selector}
  containers:
  - {{name: vllm, image: vllm/vllm-openai:latest, args: [--model, Qwen/Qwen3-8B], resources: {{limits: {{{resource}: 1}}}}}}
"""
    (launch,) = find_launches(pod, "pod.yaml").launches
    assert launch.card == card


@pytest.mark.parametrize(
    ("path", "model"),
    [
        (r"C:\Models\Llama-3.2-3B-Instruct-f16.gguf", "Llama-3.2-3B-Instruct"),
        ("/srv/models/Qwen3-8B", "Qwen3-8B"),
        ("/qwen", None),  # a family alone is no model
        ("/srv/MODEL_DIR/MODEL-00001-of-00003.gguf", None),
        ("/home/me/our-bot-7b-lora-4ep", None),
    ],
)
def test_a_path_of_another_machine(tmp_path: Path, path: str, model: str | None) -> None:
    name, text = ("Modelfile", f"FROM {path}\n") if path.startswith("C") else ("run.sh", f"vllm serve {path} --dtype half\n")
    if model is None:
        with pytest.raises(QuestionError, match="of another machine: name its model, vramcast serve MODEL --from FILE"):
            _asked(tmp_path, name, text)
    else:
        assert _asked(tmp_path, name, text).question.model.endswith(model)


@pytest.mark.parametrize(
    ("step", "model"),
    [
        ("hf download Qwen/Qwen3-8B --local-dir /models/ours", "Qwen/Qwen3-8B"),
        ("git clone https://huggingface.co/Qwen/Qwen3-8B /models/ours", "Qwen/Qwen3-8B"),
        ("hf download Qwen/Qwen3-8B\nhf download Qwen/Qwen3-4B", "/models/ours"),  # which of them is not told
        ("hf download yuhuili/EAGLE3-LLaMA3.1-Instruct-8B --local-dir /models/draft", "/models/ours"),
        ("docker pull Qwen/Qwen3-8B", "/models/ours"),
    ],
)
def test_a_folder_that_the_same_file_fills(step: str, model: str) -> None:
    (launch,) = find_launches(f"{step}\nvllm serve /models/ours --max-model-len 4096\n", "run.sh").launches
    assert launch.model == model


def test_a_program_that_fills_the_folder_it_serves() -> None:
    text = """
from vllm import LLM
from huggingface_hub import snapshot_download
MODEL_DIR = "/weights"
MODEL_NAME = "Qwen/Qwen3-8B"
def fetch(name, folder):
    snapshot_download(name, local_dir=folder)
llm = LLM(MODEL_DIR, max_model_len=4096)
"""
    (launch,) = find_launches(text, "serve.py").launches
    assert launch.model == "Qwen/Qwen3-8B"
    assert "download step" in launch.places["model"]


def test_a_program_of_the_engines_own_words_leaves_its_model_open() -> None:
    text = "from vllm import AsyncEngineArgs\nargs = parser.parse_args()\nengine_args = AsyncEngineArgs.from_cli_args(args)\n"
    (launch,) = find_launches(text, "serve.py").launches
    assert (launch.engine, launch.model) == ("vllm", "${model}")


def test_a_script_of_ones_own_hands_its_flags_on() -> None:
    compose = """
services:
  a: {image: "vllm/vllm-openai:v0.11.0", entrypoint: ["/fetch-and-run.sh"], command: --model=Qwen/Qwen3-8B --max-model-len=4096}
  b: {image: "vllm/vllm-openai:v0.11.0", entrypoint: ["/bin/check.sh"], command: now}
"""
    (launch,) = find_launches(compose, "compose.yml").launches
    assert (launch.model, launch.version) == ("Qwen/Qwen3-8B", "0.11.0")


def test_a_file_of_models_that_is_not_at_hand_is_named(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match=r"with the models of /opt/models\.ini, which is not at hand: ask for that file"):
        _asked(tmp_path, "run.sh", "llama-server --models-preset /opt/models.ini --models-max 1\n")


@pytest.mark.parametrize(
    ("step", "served", "models"),
    [
        ("hf download Qwen/Qwen3-8B --local-dir /data/base", ["/data/ours"], ["/data/ours"]),
        ("hf download Qwen/Qwen3-8B --local-dir ./ours", ["/data/ours"], ["Qwen/Qwen3-8B"]),
        ('hf download Qwen/Qwen3-8B --local-dir "$DIR"', ["/data/ours"], ["Qwen/Qwen3-8B"]),
        ("hf download Qwen/Qwen3-8B --local-dir /data/a", ["/data/a", "/data/b"], ["Qwen/Qwen3-8B", "/data/b"]),
        ("hf download Qwen/Qwen3-8B", ["/data/a", "/data/b"], ["/data/a", "/data/b"]),  # which folder it fills is not told
        ("hf download Qwen/Qwen3-8B --repo-type dataset --local-dir /data/a", ["/data/a"], ["/data/a"]),
        ("git clone https://huggingface.co/Qwen/Qwen3-8B /data/base", ["/data/ours"], ["/data/ours"]),
    ],
)
def test_a_download_fills_the_folder_that_it_names(step: str, served: list[str], models: list[str]) -> None:
    lines = "\n".join(f"vllm serve {folder} --port 80{place}" for place, folder in enumerate(served))
    assert [one.model for one in find_launches(f"{step}\n{lines}\n", "run.sh").launches] == models
