"""The pre-commit hook and the Action of docs/plan.md: they name what exists, and the line they run is one that runs."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from vramcast.cli import run

ROOT = Path(__file__).parents[2]
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "plan.md").read_text(), re.S)]
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
COMPOSE = "services:\n  a:\n    image: vllm/vllm-openai\n    command: --model Qwen/Qwen3-8B --max-model-len {}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docker-compose.yml").write_text(COMPOSE.format(8192))
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "axolotl.yml").write_text(
        "base_model: Qwen/Qwen2.5-7B\nadapter: lora\nlora_r: 16\nsequence_len: 4096\nmicro_batch_size: 1\ndatasets: []\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_documented_hook_is_the_one_that_is_defined(folder: Path) -> None:
    (used,) = next(block for block in BLOCKS if "repos" in block)["repos"][0]["hooks"]
    hook = HOOKS[used["id"]]
    words = shlex.split(hook["entry"])
    assert words[0] == "vramcast"
    assert run([*words[1:], *used["args"], "docker-compose.yml"]) == 0, "pre-commit puts the files last"
    (folder / "docker-compose.yml").write_text(COMPOSE.format(40960))
    assert run([*words[1:], "--gpu", "L4", "docker-compose.yml"]) == 1


@pytest.mark.parametrize(
    ("name", "checked"),
    [("docker-compose.yml", True), ("deploy/compose.yaml", True), ("Modelfile", True), ("conf/axolotl_qlora.yml", True),
     ("ds/deepspeed_zero3.json", True), ("README.md", False), ("package.json", False), ("values.yml", False)],
)  # fmt: skip
def test_the_hook_looks_at_what_starts_something(name: str, checked: bool) -> None:
    assert bool(re.search(HOOKS["vramcast-check"]["files"], name)) is checked  # as pre-commit looks


def test_the_line_of_the_action_runs(folder: Path) -> None:
    steps = next(block for block in BLOCKS if "jobs" in block)["jobs"]["check"]["steps"]
    line = next(step["run"] for step in steps if step.get("run", "").startswith("vramcast"))
    words = [
        str(path) for word in shlex.split(line)[1:] for path in (sorted(map(str, folder.glob(word))) if "*" in word else [word])
    ]
    assert run(words) == 0
