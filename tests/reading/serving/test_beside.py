"""Artefacts in several files: kustomizations, settings that a program imports; and what starts no engine though it names one."""

from pathlib import Path

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.serving.files import find_launches, read_serving_file

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  template:
    spec:
      containers:
        - name: engine
          image: placeholder
          args: ["--model=$(MODEL)"]
          envFrom: [{configMapRef: {name: runtime}}]
"""
OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../base]
images: [{name: placeholder, newName: vllm/vllm-openai, newTag: v0.11.0}]
patches:
  - path: arguments.yaml
  - target: {kind: Deployment, name: server}
    patch: |
      - op: add
        path: /spec/template/spec/containers/0/resources
        value: {limits: {nvidia.com/gpu: 2}}
"""
ARGUMENTS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  template:
    spec:
      containers:
        - name: engine
          args: ["--model=$(MODEL)", "--max-model-len=$(LONGEST)"]
"""


def _overlay(tmp_path: Path) -> Path:
    base, overlay = tmp_path / "base", tmp_path / "overlays" / "small"
    base.mkdir()
    overlay.mkdir(parents=True)
    (base / "kustomization.yaml").write_text(
        "resources: [deployment.yaml]\nconfigMapGenerator: [{name: runtime, envs: [runtime.env]}]\n"
    )
    (base / "runtime.env").write_text("MODEL=org/Model-8B\nLONGEST=8192\n")
    (base / "deployment.yaml").write_text(DEPLOYMENT)
    (overlay / "arguments.yaml").write_text(ARGUMENTS)
    (overlay / "kustomization.yaml").write_text(OVERLAY)
    return overlay / "kustomization.yaml"


def test_a_kustomization_is_joined_with_its_base(tmp_path: Path) -> None:
    file = _overlay(tmp_path)
    taken = taken_for(kinds_of(file.read_bytes(), file.name, folder=file.parent))
    assert taken is not None
    assert taken.what == "a kustomization"
    (launch,) = read_serving_file(str(file)).launches
    assert (launch.engine, launch.model, launch.version, launch.gpus) == ("vllm", "org/Model-8B", "0.11.0", 2)
    assert launch.flags == ("--max-model-len", "8192")


def test_a_kustomization_of_itself_is_told(tmp_path: Path) -> None:
    file = tmp_path / "kustomization.yaml"
    file.write_text("kind: Kustomization\nresources: [../" + tmp_path.name + "]\n")
    with pytest.raises(QuestionError, match=rf"\.\./{tmp_path.name} is a base of itself, through 1 files"):
        find_launches(file.read_text(), file.name, folder=tmp_path)


def test_a_base_that_is_not_at_hand_is_named(tmp_path: Path) -> None:
    file = tmp_path / "small" / "kustomization.yaml"
    file.parent.mkdir()
    file.write_text("kind: Kustomization\nresources: [../base, deployment.yaml, https://host/x]\n")
    with pytest.raises(QuestionError, match=r"builds on \.\./base, deployment\.yaml, https://host/x, which is not at hand"):
        find_launches(file.read_text(), file.name, folder=file.parent)
    taken = taken_for(kinds_of(file.read_bytes(), file.name, folder=file.parent))
    assert taken is not None
    assert taken.what == "a kustomization"


def test_what_a_kustomization_names_and_lacks_is_unread(tmp_path: Path) -> None:
    file = _overlay(tmp_path)
    (file.parent / "arguments.yaml").unlink()
    (tmp_path / "base" / "runtime.env").unlink()
    file.write_text(OVERLAY.replace("[../../base]", "[../../base, more.yaml]") + "components: [../extra]\n")
    (launch,) = find_launches(file.read_text(), file.name, folder=file.parent).launches
    assert [one.removesuffix(", which is not at hand") for one in launch.unread] == [
        "the base more.yaml", "the variables of runtime.env", "the component ../extra", "the patch arguments.yaml",
    ]  # fmt: skip


def test_a_kustomization_that_starts_nothing_is_known_as_one(tmp_path: Path) -> None:
    text = "kind: Kustomization\nresources: []\nnamePrefix: a-\n"
    taken = taken_for(kinds_of(text.encode(), "kustomization.yaml", folder=tmp_path))
    assert taken is not None
    assert (taken.what, taken.command) == ("a kustomization", ("serve", "--from"))


def test_settings_that_a_program_imports(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("import missing\nMODEL = 'org/Model-8B'\nclass Engine:\n    longest = 4096\n")
    program = "from vllm import LLM\nfrom config import MODEL as NAME, Engine\nimport config\n"
    program += "LLM(model=NAME, max_model_len=Engine.longest, tokenizer=config.MODEL)\n"
    (launch,) = find_launches(program, "run.py", folder=tmp_path).launches
    assert launch.model == "org/Model-8B"
    assert "4096" in launch.flags
    assert find_launches(program, "run.py").launches[0].opened  # no folder, nothing read


def test_programs_that_import_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import X\nX = X\n")
    (tmp_path / "b.py").write_text("from a import X\nfrom vllm import LLM\nLLM(model=X)\n")
    assert find_launches((tmp_path / "b.py").read_text(), "b.py", folder=tmp_path).launches[0].opened


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("check.sh", 'podman run --rm "$REPO/llama" ls -l /usr/bin/llama-server\n'),
        (
            "Dockerfile",
            'FROM vllm/vllm-openai:v0.9.0\nRUN pip install x\nENTRYPOINT ["/bin/bash", "-c", "exec \\"$@\\"", "--"]\n',
        ),
        ("run.sh", "uv run -m train.main generator.backend=vllm generator.local=true generator.engines=2\n"),
    ],
)
def test_what_names_an_engine_and_starts_none(name: str, text: str) -> None:
    assert not find_launches(text, name).launches


@pytest.mark.parametrize(
    ("name", "text", "model", "flag"),
    [
        ("serve.sh", 'E=$(engine)\n"$E" run -d --gpus all "vllm/vllm-openai:$1" org/Model-1B --max-model-len 512\n',
         "org/Model-1B", "512"),
        ("bench.yml", "runs:\n- model_id: org/Model-8B\n  image_uri: vllm/vllm-openai:v0.9.0\n  inference:\n"
         "    container_type: vllm\n    cli_params: \"--max-model-len 4096 --tensor-parallel-size 8\"\n", "org/Model-8B", "4096"),
        ("values.yaml", "vllm:\n  model: {name: org/Model-8B, maxModelLen: 16384}\n  maxNumBatchedTokens: 1024\n",
         "org/Model-8B", "16384"),
        ("npu.md", "```cmd\nllama-cli-npu.exe -m model-Q4_K_M.gguf -c 1024\n```\n", "model-Q4_K_M.gguf", "1024"),
    ],
)  # fmt: skip
def test_launches_in_other_words(name: str, text: str, model: str, flag: str) -> None:
    launch = find_launches(text, name).launches[0]
    assert launch.model == model
    assert flag in launch.flags


def test_a_default_of_several_words_in_a_compose_file() -> None:
    text = (
        "services:\n  a:\n    image: vllm/vllm-openai:v0.9.0\n"
        "    command: org/Model-8B --max-model-len ${LONGEST:-8192} ${MORE---enforce-eager --seed 2}\n"
    )
    (launch,) = find_launches(text, "compose.yaml").launches
    assert launch.flags == ("--max-model-len", "8192", "--enforce-eager", "--seed", "2")
