"""Lines and files that start an engine: which engine, which model, how many cards, which flags."""

from pathlib import Path

import pytest

from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.reading.serving import Launch, read_script, read_serving_file
from vramcast.writing.serving.files import emitted as emitted_server

VLLM = "vllm/vllm-openai"


@pytest.mark.parametrize(
    ("line", "engine", "model", "flags"),
    [
        ("vllm serve Qwen/Qwen3-8B --max-model-len 8192", "vllm", "Qwen/Qwen3-8B", ("--max-model-len", "8192")),
        ("$ CUDA_VISIBLE_DEVICES=0,1 vllm serve m/x -tp 2", "vllm", "m/x", ("-tp", "2")),
        ("nohup python3 -m vllm.entrypoints.openai.api_server --model=m/x --port 1", "vllm", "m/x", ("--port", "1")),
        ("python -m sglang.launch_server --model-path m/x --tp 2", "sglang", "m/x", ("--tp", "2")),
        ("./build/bin/llama-server -m a.gguf -c 4096", "llama_cpp", "a.gguf", ("-c", "4096")),
        ("llama-server -hf g/x-GGUF:Q8_0 -ngl 99", "llama_cpp", "g/x-GGUF:Q8_0", ("-ngl", "99")),
        ("trtllm-serve m/x --max_batch_size 8", "tensorrt_llm", "m/x", ("--max_batch_size", "8")),
        ("ollama run llama3.1:8b", "ollama", "llama3.1:8b", ()),
        (f"docker run --gpus all -v a:b -p 1:1 {VLLM}:latest --model m/x", "vllm", "m/x", ()),
    ],
)
def test_lines(line: str, engine: str, model: str, flags: tuple[str, ...]) -> None:
    (found,) = read_script(line)
    assert (found.engine, found.model, found.flags) == (engine, model, flags)


def test_scripts_are_read_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text(
        "#!/bin/bash\nset -e\nexport CUDA_VISIBLE_DEVICES=0,1,2,3\nMODEL=m/x\nrm -rf nothing\n"
        "vllm serve ${MODEL} \\\n  --max-model-len 8192 \\\n  -tp 4  # four cards\n"
    )
    (found,) = read_serving_file(str(file)).launches
    flags = ("--max-model-len", "8192", "-tp", "4")
    assert found == Launch(engine="vllm", model="m/x", flags=flags, gpus=4, devices=("0", "1", "2", "3"), where="serve.sh")


def test_compose_files_tell_version_and_cards(tmp_path: Path) -> None:
    file = tmp_path / "compose.yml"
    file.write_text(
        f"services:\n  web: {{image: nginx}}\n  llm:\n    image: {VLLM}:v0.11.0\n"
        "    command: [--model, m/x, --max-num-seqs, '8']\n"
        "    deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ['0', '1']}]}}}\n"
    )
    (found,) = read_serving_file(str(file)).launches
    assert (found.engine, found.model, found.flags) == ("vllm", "m/x", ("--max-num-seqs", "8"))
    assert (found.version, found.gpus, found.name, found.where) == ("0.11.0", 2, "llm", "compose.yml: services.llm")


def test_an_engines_own_yaml(tmp_path: Path) -> None:
    file = tmp_path / "v.yaml"
    file.write_text("model: m/x\nmax-model-len: 4096\nenforce-eager: true\n")
    (found,) = read_serving_file(str(file)).launches
    assert found.flags == ("--max-model-len", "4096", "--enforce-eager", "true")
    file.write_text("max-model-len: 4096\n")
    (found,) = read_serving_file(str(file)).launches
    assert found.model == ""


def test_modelfiles_and_llama_swap(tmp_path: Path) -> None:
    file = tmp_path / "Modelfile"
    file.write_text("# mine\nFROM llama3.1:8b\nPARAMETER num_ctx 8192\nPARAMETER temperature 0.2\n")
    (found,) = read_serving_file(str(file)).launches
    assert (found.engine, found.model, found.flags, found.idle) == (
        "ollama",
        "llama3.1:8b",
        ("--ctx-size=8192",),
        ("temperature",),
    )
    file = tmp_path / "swap.yaml"
    file.write_text("models:\n  a:\n    cmd: llama-server -m /m/a.gguf -c 4096\n")
    assert read_serving_file(str(file)).launches[0].model == "/m/a.gguf"


def test_a_file_that_starts_nothing_says_what_would(tmp_path: Path) -> None:
    file = tmp_path / "x.sh"
    file.write_text("echo vllm\nunclosed 'quote\n")
    with pytest.raises(QuestionError, match=r"x.sh starts no engine known here: expected a line such as vllm serve MODEL"):
        read_serving_file(str(file))


def test_sglang_counts_the_checked_token_among_its_drafts() -> None:
    line = "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --speculative-algorithm EAGLE"
    asked = serving_question(f"{line} --speculative-num-draft-tokens 4", gpu="H200x8").question
    assert asked.options["num_speculative_tokens"] == 3
    assert "--speculative-num-draft-tokens 4" in emitted_server("line", asked)
