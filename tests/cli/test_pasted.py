"""``vramcast FILE``, ``-`` and pasted text: said first what it is, then its answer; never guessed, nothing secret shown."""

import io
import sys
from pathlib import Path

import pytest

from vramcast.cli import run

TOKEN = "hf_" + "Q" * 34
LINE = "vllm serve Qwen/Qwen2.5-1.5B-Instruct --max-model-len 4096"


def test_a_pasted_line_is_answered_after_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([LINE, "--gpu", "4090"]) == 0
    said = capsys.readouterr()
    assert said.err == "taken for a command line (it starts vllm): vramcast serve --from - --gpu 4090\n"
    assert "context 4,096 tokens" in said.out


def test_a_file_and_standard_input_ask_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(LINE + "\n")
    assert run([str(file), "--gpu", "4090", "--json"]) == 0
    named = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    assert run(["-", "--gpu", "4090", "--json"]) == 0
    assert capsys.readouterr().out == named.replace("serve.sh", "standard input")


def test_what_is_nothing_known_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["hello there world"]) == 2
    assert "'hello there world' is nothing known here, nor a command" in capsys.readouterr().err
    (tmp_path / "both.py").write_text(
        "from vllm import LLM\nfrom trl import GRPOConfig\nLLM(model='m')\nGRPOConfig(output_dir='x')\n"
    )
    assert run([str(tmp_path / "both.py")]) == 2
    told = capsys.readouterr().err
    assert "vramcast serve --from" in told
    assert "vramcast train --from" in told
    assert run(["trian"]) == 2
    assert "did you mean train" in capsys.readouterr().err
    assert run(["nofile.yml"]) == 2
    assert "there is no file nofile.yml, and no command of that name" in capsys.readouterr().err
    assert run([str(tmp_path)]) == 2
    assert "is a folder without a model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("bomb.yaml", "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"
         "f: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n", "more than 200,000 are not read"),
        ("tag.yaml", "services: !!python/object/apply:os.system [id]\n", "is not YAML: could not determine a constructor"),
        ("include.yml", "include: [include.yml]\nservices: {}\n", "is included by itself"),
        ("extends.yml", "services:\n  a: {extends: b}\n  b: {extends: a, image: x}\n", "extends itself"),
        ("open.sh", "vllm serve $MODEL -tp $TP --port $PORT\n", "leaves MODEL, TP open: say --var MODEL=... --var TP=..."),
        ("two.yml", "services:\n  a: {image: 'vllm/vllm-openai', command: --model m/x}\n"
         "  b: {image: 'vllm/vllm-openai', command: --model m/y}\n",
         "starts 2 engines: choose one with --only NAME or its number: 1 a (m/x), 2 b (m/y)"),
        ("kt.sh", "ktransformers --model_path m/x --gguf_path g\n", "its kernels now run in SGLang"),
        ("path.sh", "vllm serve /mnt/models\n", "a folder of another machine: name its model"),
        ("none.sh", "echo hello\n", "starts no engine known here"),
        ("grow.sh", "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A\n" * 8 + "vllm serve $A\n", "write out more than"),
        ("nest.sh", "sh -c \"sh -c 'vllm serve m/x --max-model-len abc'\"\n", "--context 'abc' is not a number"),
        ("syntax.py", "from vllm import LLM\nLLM(model=\n", "is not Python"),
    ],
)  # fmt: skip
def test_bad_artefacts_are_one_clear_line(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert run(["serve", "--from", str(file), "--gpu", "H100"]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_a_huge_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "huge.yml"
    file.write_bytes(b"# x\n" * 2**21)
    assert run(["serve", "--from", str(file)]) == 2
    assert "is larger than 4.0 MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.sh", f"export HF_TOKEN={TOKEN}\nX={TOKEN} vllm serve Qwen/Qwen2.5-1.5B-Instruct --api-key {TOKEN} --odd {TOKEN}\n"),
        ("b.yml", f"services:\n  a:\n    image: vllm/vllm-openai\n    environment: [HF_TOKEN={TOKEN}, VLLM_API_KEY={TOKEN}]\n"
         f"    command: [--model, Qwen/Qwen2.5-1.5B-Instruct, --api-key, {TOKEN}]\n"),
        ("c.sh", f"docker run -e HF_TOKEN={TOKEN} vllm/vllm-openai --max-model-len 4096\n"),
        ("d.py", f"from vllm import LLM\nLLM(model='Qwen/Qwen2.5-1.5B-Instruct', hf_token='{TOKEN}')\n"),
        ("e.sh", f"torchrun train.py --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct --hub_token {TOKEN} --secret_key {TOKEN}\n"),
        ("f.yml", f"services: {{a: {{image: x, command: [{TOKEN}]}}}}\n"),
    ],
)  # fmt: skip
def test_secrets_are_never_shown(name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    file.write_text(text)
    for more in ([], ["--json"]):
        for words in (["serve", "--from", str(file)], [str(file)], ["train", "--from", str(file)]):
            run([*words, *more])
    told = capsys.readouterr()
    assert TOKEN not in told.out + told.err
    assert "Q" * 12 not in told.out + told.err


def test_variables_are_given_and_env_files_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, env = tmp_path / "s.sh", tmp_path / "my.env"
    script.write_text("vllm serve $MODEL --max-model-len ${LENGTH:-1024}\n")
    env.write_text("MODEL=Qwen/Qwen2.5-1.5B-Instruct\n")
    assert run(["serve", "--from", str(script), "--from", str(env), "--var", "LENGTH=2048", "--gpu", "4090"]) == 0
    assert "context 2,048 tokens" in capsys.readouterr().out
    assert run(["serve", "--from", str(env)]) == 2
    assert "gives variables alone" in capsys.readouterr().err
    assert run(["serve", "--from", str(script), "--var", "MODEL"]) == 2
    assert "--var 'MODEL' is not NAME=VALUE" in capsys.readouterr().err


def test_conflicting_flags_the_last_one_counts_as_for_the_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "s.sh"
    script.write_text("vllm serve Qwen/Qwen2.5-1.5B-Instruct --max-model-len 1024 --max-model-len 2048\n")
    assert run(["serve", "--from", str(script), "--gpu", "4090"]) == 0
    assert "context 2,048 tokens" in capsys.readouterr().out


def test_a_training_log_with_its_model_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text("{'train_runtime': 10.0, 'train_samples_per_second': 3.0, 'train_steps_per_second': 0.3}\n")
    assert run([str(log), "Qwen/Qwen2.5-1.5B-Instruct", "--gpu", "H100", "--seq", "2048"]) == 0
    said = capsys.readouterr()
    assert "vramcast utilization Qwen/Qwen2.5-1.5B-Instruct --log" in said.err
    assert "MFU" in said.out


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("serve.sh", "#! /bin/bash\nset -e\nARGS=1\nsource ./start-server.sh\n", "runs ./start-server.sh: ask about that file"),
        (
            "compose.yml",
            "services:\n  router:\n    image: my/router:latest\n",
            "none of its services is",
        ),
    ],
)
def test_a_file_that_hands_over_names_what_it_runs(
    name: str, text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert run([str(file)]) == 2
    printed = capsys.readouterr().err
    assert "starts nothing known here" in printed
    assert told in printed


def test_a_command_that_goes_on_in_words_is_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    """What stands behind ``on`` is the card, not a prompt that is dropped in silence."""
    run(["ollama run qwen3:30b on 16gb mac mini m4"])
    assert "--gpu=16gb mac mini m4" in capsys.readouterr().err
    run(["ollama run qwen3:30b"])
    assert "taken for a command line" in capsys.readouterr().err
