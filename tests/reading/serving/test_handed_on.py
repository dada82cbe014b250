"""Commands that another command hands on, evaluations and programs of one's own: the engine behind them is read."""

from pathlib import Path

import pytest

from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError
from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.serving.files import find_launches
from vramcast.reading.serving.launch import Launch

LINE = "vllm serve Qwen/Qwen3-8B --max-model-len 4096"


def _one(text: str, name: str = "start.sh") -> Launch:
    (launch,) = find_launches(text, name).launches
    return launch


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f'tmux send-keys -t s "{LINE}" C-m', "start.sh"),
        (f'ssh host "{LINE}"', "start.sh"),
        (f'CMD="{LINE}"\neval "$CMD"', "start.sh"),
        (f'run_server "a name" "{LINE}"', "start.sh"),
        (f"cat > /tmp/run.sh <<EOF\n{LINE}\nEOF\nbash /tmp/run.sh", "start.sh"),
        (f"ssh host <<EOF\n{LINE}\nEOF", "start.sh"),
        ("python -c \"from vllm import LLM; LLM(model='Qwen/Qwen3-8B', max_model_len=4096)\"", "start.sh"),
        ("python - <<'PY'\nfrom vllm import LLM\nLLM('Qwen/Qwen3-8B', max_model_len=4096)\nPY", "start.sh"),
        ("kubectl apply -f - <<EOF\napiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:latest\n"
         "    args: [--model=Qwen/Qwen3-8B, --max-model-len=4096]\nEOF", "start.sh"),
        ("lm_eval --model vllm --model_args pretrained=Qwen/Qwen3-8B,max_model_len=4096 --tasks gsm8k", "start.sh"),
        ("A='model_name=Qwen/Qwen3-8B,max_model_length=4096,generation_parameters={a:1}'\nlighteval vllm $A 'x|y|0|0'", "e.sh"),
        ("python infer.py --model-path Qwen/Qwen3-8B --max-model-len 4096 --gpu-memory-utilization 0.9", "start.sh"),
        ("MODEL ?= Qwen/Qwen3-8B\nLEN := 4096\nserve:\n\t@vllm serve $(MODEL) --max-model-len $(LEN)", "Makefile"),
        ('model := "Qwen/Qwen3-8B"\nserve:\n    vllm serve {{model}} --max-model-len 4096', "justfile"),
        ('$m = if ($env:MODEL) { $env:MODEL } else { "Qwen/Qwen3-8B" }\nvllm serve $m `\n  --max-model-len 4096', "start.ps1"),
        (f"user_data = <<-EOF\n#!/bin/bash\n{LINE}\nEOF\n", "main.tf"),
    ],
)  # fmt: skip
def test_the_engine_behind_it(text: str, name: str) -> None:
    launch = _one(text, name)
    assert (launch.engine, launch.model) == ("vllm", "Qwen/Qwen3-8B")
    assert "4096" in " ".join(launch.flags)


@pytest.mark.parametrize(
    "text",
    [
        f'echo "{LINE}"',
        f'pkill -f "{LINE}"',
        "python train.py --model a/b --max-model-len 4096 --gpu-memory-utilization 0.9 --learning_rate 1e-4",
        "python benchmark_serving.py --model a/b --max-model-len 4096 --gpu-memory-utilization 0.9",
        "lm_eval --model hf --model_args pretrained=a/b",
    ],
)
def test_what_only_talks_trains_or_measures_starts_nothing(text: str) -> None:
    assert find_launches(text, "x.sh").launches == ()


SETTINGS = {
    ".env": "MODEL=Qwen/Qwen3-8B\nMAX_MODEL_LEN=4096\nGPU_MEMORY_UTILIZATION=0.9\nTP_SIZE=2\n",
    "model.conf": "PROFILE_MODEL='Qwen/Qwen3-8B'\nPROFILE_MAX_MODEL_LEN=4096\nPROFILE_GPU_MEM_UTIL=0.9\nPROFILE_TP=2\n",
    "vars.yml": "vllm_model: Qwen/Qwen3-8B\nvllm_max_model_len: 4096\nvllm_gpu_memory_utilization: 0.9\nvllm_tp_size: 2\n",
    "engine.toml":
        'model = "Qwen/Qwen3-8B"\n[vllm]\nmax_model_len = 4096\ngpu_memory_utilization = 0.9\n'
        "tensor_parallel_size = 2\n",
    "gallery.yaml":
        "name: x\nfile: |\n  vllm:\n    model: Qwen/Qwen3-8B\n    max-model-len: 4096\n"
        "    gpu-memory-utilization: 0.9\n"
                    "    tensor-parallel-size: 2\n",
    "list.yaml": "- id: a\n  engine_args:\n    model: Qwen/Qwen3-8B\n    max_model_len: 4096\n    gpu_memory_utilization: 0.9\n"
                 "    tensor_parallel_size: 2\n",
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_by_the_names_of_arguments(name: str) -> None:
    launch = _one(SETTINGS[name], name)
    assert (launch.engine, launch.model) == ("vllm", "Qwen/Qwen3-8B")
    assert set(launch.flags) >= {"--max-model-len", "4096", "--gpu-memory-utilization", "0.9", "--tensor-parallel-size", "2"}


def test_settings_without_a_model_are_the_engines_and_yield_to_a_training_run() -> None:
    alone = "backend: vllm\nvllm:\n  max_model_len: 4096\n  gpu_memory_utilization: 0.8\n"
    kind = taken_for(kinds_of(alone.encode(), "eval.yaml"))
    assert kind is not None and kind.command == ("serve", "--from") and "no model" in kind.because
    trained = "micro_batch_size: 4\nlora_r: 16\noptim: adamw\nseq_len: 512\n"
    beside = trained + "rollout_engine:\n  max_model_len: 4096\n  gpu_memory_utilization: 0.8\n"
    kind = taken_for(kinds_of(beside.encode(), "grpo.yaml"))
    assert kind is not None and kind.command == ("train", "--from")


@pytest.mark.parametrize(
    "text", ["MODEL=a/b\nPORT=8000\n", "TP=2\nDTYPE=bf16\n", "LEARNING_RATE=1\nMAX_MODEL_LEN=1\nGPU_MEM=1\n"]
)
def test_other_variables_are_no_engine(text: str) -> None:
    assert find_launches(text, ".env").launches == ()


def test_a_file_of_settings_alone_is_answered(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text(SETTINGS[".env"])
    asked = serving_question(None, files=(str(path),), gpu="L40S")
    assert asked.question.context == 4096 and asked.question.parallel.tp == 2
    path.write_text("HF_TOKEN=s3cret\nPORT=8000\n")
    with pytest.raises(QuestionError, match="gives variables alone") as told:
        serving_question(None, files=(str(path),), gpu="L40S")
    assert "s3cret" not in str(told.value)
