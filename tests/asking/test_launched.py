"""What starts an engine is a question: its flags count, what is typed beside it wins, nothing is dropped without a word."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramcast.asking import serving_question
from vramcast.cli import run
from vramcast.errors import QuestionError
from vramcast.workload import Parallel


def test_a_script_is_a_question_and_typed_words_win(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen2.5-14B-Instruct -tp 2 --max-model-len 16384 "
        "--max-num-seqs 8 --port 8000 --new-flag 3 --dtype float16\n"
    )
    asked = serving_question(str(file), gpu="A100-40G", context=4096, flags=["--max-num-seqs", "16"])
    question = asked.question
    assert (question.model, question.context, question.dtype) == ("Qwen/Qwen2.5-14B-Instruct", 4096, "float16")
    assert (question.gpus, question.parallel) == (2, Parallel(tp=2))
    assert question.options["max_num_seqs"] == 16
    told = {a.name: a for a in asked.assumed}
    assert told["engine"].because == "serve.sh starts it with Qwen/Qwen2.5-14B-Instruct"
    assert told["no effect on memory"].value == "port"
    assert [u.what for u in asked.unmodelled] == [
        "the flag --new-flag in serve.sh: no rule reads it, and what it changes is not counted"
    ]


def test_a_pasted_line_in_quotes_or_without() -> None:
    quoted = serving_question("vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192", gpu="4090")
    plain = serving_question("vllm", flags=["serve", "Qwen/Qwen2.5-7B-Instruct", "--max-model-len", "8192"], gpu="4090")
    assert quoted == plain
    assert quoted.question.context == 8192


def test_another_machines_paths_are_read_by_their_names() -> None:
    asked = serving_question("llama-server -m /models/Qwen3-30B-A3B-Q4_K_M.gguf -c 8192 -ngl 20")
    assert (asked.question.model, asked.question.quant, asked.question.engine) == ("Qwen3-30B-A3B", "Q4_K_M", "llama_cpp")
    assert asked.question.options == {"n_gpu_layers": 20}


def test_ollamas_run_is_its_tag(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "ollama run llama3.1:8b", "--gpu", "3060"]) == 0
    assert "Ollama b" in capsys.readouterr().out


def test_a_line_without_a_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "vllm serve --max-model-len 4096"]) == 2
    assert "starts vllm and names no model" in capsys.readouterr().err


def test_a_plain_models_question_loads_no_reader() -> None:
    program = (
        "import sys, vramcast; vramcast.serve('Qwen/Qwen2.5-1.5B-Instruct', gpu='4090'); "
        "print(*[m for m in sys.modules if m.startswith('vramcast.reading')])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == []


def test_values_of_launches_as_the_engines_take_them() -> None:
    line = (
        "vllm serve Qwen/Qwen2.5-1.5B-Instruct --kv-cache-memory-bytes 1000000000 --max-num-seq 8 --max-cudagraph-capture-size 8"
    )
    options = serving_question(line, gpu="4090").question.options
    assert options == {"kv_cache_memory_bytes": 10**9, "max_num_seqs": 8, "max_cudagraph_capture_size": 8}
    asked = serving_question("llama-server -m a-Q4_K_M.gguf --mmproj p.gguf -ngl all -fa auto -c 0 -ts 3/1")
    assert asked.question.options == {"n_gpu_layers": -1, "tensor_split": [3.0, 1.0]}
    assert "mmproj" in asked.unmodelled[0].what
    asked = serving_question(
        "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --dp 2 --enable-dp-attention", gpu="H100x2"
    )
    assert asked.question.options == {"enable_dp_attention": True, "dp_size": 2}
    assert asked.question.parallel == Parallel(tp=2)


def test_a_line_without_a_layout_is_one_card() -> None:
    asked = serving_question("vllm serve Qwen/Qwen2.5-1.5B-Instruct", gpu="4090x4")
    assert asked.question.parallel == Parallel(tp=1)
    assert next(a.value for a in asked.assumed if a.name == "unused_cards") == 3


@pytest.mark.parametrize("program", ["mlx_lm.server", "python -m mlx_lm.server", "python3 -m mlx_lm server", "uvx mlx_lm.server"])
def test_mlx_is_read_and_refused_by_name(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", f"{program} --model org/Qwen3-8B-4bit --decode-concurrency 8 --port 80", "--gpu", "M3 Max"]) == 2
    said = capsys.readouterr().err
    assert "starts MLX with org/Qwen3-8B-4bit (decode-concurrency 8): no memory rules are known for it" in said


@pytest.mark.parametrize(
    ("line", "told", "unread"),
    [
        ("vllm serve Qwen/Qwen3-8B --cudagraph-mode NONE", {"enforce_eager": "on"}, 0),
        ("vllm serve Qwen/Qwen3-8B --kv-transfer-config '{\"kv_connector\": \"NixlConnector\", \"kv_role\": \"kv_both\"}'",
         {"no effect on memory": "kv-transfer-config"}, 0),
        ("vllm serve Qwen/Qwen3-8B --kv-transfer-config '{\"kv_connector\": \"LMCacheConnectorV1\"}'",
         {"kv-transfer-config": "set"}, 1),
        ("lmdeploy serve api_server Qwen/Qwen3-8B --model-format awq --eager-mode --backend turbomind",
         {"quant": "awq", "no effect on memory": "eager-mode"}, 0),
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-queued-requests 4",
         {"no effect on memory": "max-queued-requests"}, 0),
    ],
)  # fmt: skip
def test_flags_that_a_source_settles(line: str, told: dict[str, str], unread: int) -> None:
    asked = serving_question(line, gpu="4090")
    said = {a.name: a.value for a in asked.assumed}
    assert {name: said.get(name) for name in told} == told
    assert len(asked.unmodelled) == unread


def test_what_is_no_flag_is_told_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import subprocess\ncmd = ['vllm', 'serve', 'Qwen/Qwen3-8B', '--seed', '1']\ncmd += more()\nsubprocess.run(cmd)\n"
    )
    run(["serve", "--from", str(file), "--gpu", "4090"])
    assert "not modelled: what more() adds, in a.py: the command in line 2: it is not read" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mistralai/Mistral-Nemo", "command-r-plus", "bloom", "starcoder", "Qwen-VL"])
def test_a_path_that_ends_in_one_models_name_is_that_model(name: str) -> None:
    assert serving_question(f"vllm serve /elsewhere/{name}", gpu="H100x8").question.model == name.rpartition("/")[2]


@pytest.mark.parametrize("name", ["mixtral", "gpt-oss", "qwen", "mistral", "base", "chat"])
def test_a_path_that_ends_in_a_family_names_no_model(name: str) -> None:
    with pytest.raises(QuestionError, match="a folder of another machine"):
        serving_question(f"vllm serve /elsewhere/{name}", gpu="H100x8")
