"""Hostile, broken and ambiguous artefacts: one clear line each, exit code 2, nothing executed and no secret shown."""

from pathlib import Path

import pytest

from vramcast.cli import run

BOMB = "\n".join([
    'a: &a ["lol","lol","lol","lol","lol","lol","lol","lol","lol"]',
    *(f"{y}: &{y} [{','.join([f'*{x}'] * 9)}]" for x, y in zip("abcde", "bcdef", strict=True)),
    "services: {v: {image: vllm/vllm-openai, command: *f}}",
])  # fmt: skip
TAG = 'services:\n  v:\n    image: vllm/vllm-openai\n    command: !!python/object/apply:os.system ["touch pwned"]\n'
TWO = (
    "services:\n  one: {image: vllm/vllm-openai, command: --model Qwen/Qwen3-8B}\n"
    "  two: {image: vllm/vllm-openai, command: --model Qwen/Qwen3-32B}\n"
)
OPEN = (
    'services:\n  v: {image: vllm/vllm-openai, command: "--model Qwen/Qwen3-8B --max-model-len ${LEN} --api-key sk-S3CRET '
    '--mystery hf_S3CRET", environment: {HF_TOKEN: hf_S3CRET, VLLM_API_KEY: sk-S3CRET}}\n'
)
GROWS = "A=x\n" + 'A="$A$A$A$A$A$A$A$A$A$A"\n' * 8 + "vllm serve $A\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bomb.yml", BOMB, "bomb.yml writes out 1,270,488 items: more than 200,000 are not read"),
        ("tag.yml", TAG, "tag.yml is not YAML: could not determine a constructor for the tag"),
        ("two.yml", TWO, "starts 2 engines: choose one with --only NAME or its number: 1 one (Qwen/Qwen3-8B), 2 two"),
        ("open.yml", OPEN, "services.v leaves LEN open: say --var LEN=..., or --from .env too"),
        ("deep.yml", "a: " + "{b: " * 200 + "1" + "}" * 200, "is nested deeper than 100 levels"),
        ("huge.yml", "a: " + "x " * 2_200_000, "is larger than 4.0 MiB"),
        ("grow.sh", GROWS, "the script's variables write out more than 200,000 letters"),
        ("conflict.sh", "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 1.7\n", "gpu_memory_utilization is 1.7: vllm takes"),
        ("kt.sh", "ktransformers --model_path Qwen/Qwen3-8B --cache_lens 4096\n", "(context 4096): no memory rules"),
        ("none.yml", "services:\n  db: {image: postgres}\n", "starts no engine known here"),
    ],
)
def test_one_line_each(
    name: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    assert run(["serve", "--from", name, "--gpu", "H100"]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1
    assert "S3CRET" not in error
    assert not Path("pwned").exists()


def test_files_that_include_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yml").write_text("include:\n  - b.yml\nservices: {}\n")
    (tmp_path / "b.yml").write_text("include:\n  - a.yml\nservices:\n  v: {image: vllm/vllm-openai}\n")
    assert run(["serve", "--from", str(tmp_path / "a.yml"), "--gpu", "H100"]) == 2
    assert "b.yml is included by itself, through 2 files: name the last one alone" in capsys.readouterr().err


def test_a_script_that_sources_itself_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.sh").write_text("source x.sh\nvllm serve Qwen/Qwen3-8B --max-model-len 4096\n")
    assert run(["serve", "--from", str(tmp_path / "x.sh"), "--gpu", "H100"]) == 0
    assert "4,096" in capsys.readouterr().out


def test_secrets_of_an_answered_file_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "open.yml").write_text(OPEN)
    assert run(["serve", "--from", str(tmp_path / "open.yml"), "--var", "LEN=4096", "--gpu", "H100"]) == 0
    shown = capsys.readouterr()
    assert "--mystery" in shown.out
    assert "S3CRET" not in shown.out + shown.err


def test_another_engine_in_its_place_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kt.sh").write_text("ktransformers --model_path Qwen/Qwen3-8B --cache_lens 4096\n")
    assert run(["serve", "--from", str(tmp_path / "kt.sh"), "--engine", "vllm", "--gpu", "H100"]) == 0
    assert "KTransformers's own pool, buffers and graphs: vllm was asked for in its place" in capsys.readouterr().out


def test_of_a_flag_typed_twice_the_last_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.sh").write_text("vllm serve Qwen/Qwen3-8B --max-model-len 4096 --max-model-len 8192\n")
    assert run(["serve", "--from", str(tmp_path / "x.sh"), "--gpu", "H100", "--json"]) == 0
    assert '"context":8192' in capsys.readouterr().out.replace(" ", "")
