"""Scripts and programs of people: defaults of shells and known programs, calls, tests of the card, what is not at hand."""

from pathlib import Path

import pytest

from vramcast.asking.training import training_question
from vramcast.errors import QuestionError
from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

FLAGS = "--per_device_train_batch_size 2 --model_max_length 512 --output_dir o"
LOADS = "model = AutoModelForCausalLM.from_pretrained('org/chat-7b')\n"


def _read(tmp_path: Path, text: str, name: str = "run.sh") -> Settings:
    (tmp_path / name).write_text(text)
    return read_training_files((str(tmp_path / name),))


def test_a_colon_sets_what_nobody_set(tmp_path: Path) -> None:
    sets = ': "${MODEL:=org/chat-7b}"\nN=8\n: ${N:=2} ${B:=4}\n'
    text = f"{sets}torchrun --nproc_per_node $N a.py --model_name_or_path $MODEL {FLAGS}"
    settings = _read(tmp_path, f"{text} --gradient_accumulation_steps $B\n")
    assert (settings.get("model"), settings.get("gpus"), settings.get("accumulate")) == ("org/chat-7b", 8, 4)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("deepspeed llava/train/train_mem.py --lora_enable True", {"adapter.rank": 64, "adapter.targets": ("all-linear",)}),
        ("python qlora.py --source_max_len 16 --target_max_len 512 --lora_r 64", {"optimizer": "paged_adamw_32bit"}),
        ("python my_qlora.py --lora_r 8", {"quant": "nf4", "optimizer": None}),
        ("python my_qlora.py --lora_r 8 --bits 16", {"quant": None}),
        ("torchrun qwenvl/train/train_qwen.py --tune_mm_llm True", {"method": None, "framework": "hf_trainer"}),
        ("python -m torch.distributed.run -m swift.cli.sft --tuner_type full --model a/b-7b", {"framework": "ms_swift"}),
        ("deepspeed a.py --task DPO", {"options.task": "dpo"}),
        ("deepspeed a.py --task chartqa", {"options.task": None}),
    ],
)
def test_programs_by_their_names(tmp_path: Path, command: str, expected: dict[str, object]) -> None:
    settings = _read(tmp_path, f"{command} --model_name_or_path org/chat-7b {FLAGS}\n")
    assert {name: settings.get(name) for name in expected} == expected


def test_how_many_cards_is_asked_where_it_is_open(tmp_path: Path) -> None:
    settings = _read(tmp_path, f"torchrun --nproc_per_node $GPUS a.py --model_name_or_path org/chat-7b {FLAGS}\n")
    assert any(line.startswith("nproc_per_node (how many cards") for line in settings.unread)


def test_the_variable_and_the_program_that_hold_the_model_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"torchrun a.py --model_name_or_path $BASE {FLAGS}\n")
    with pytest.raises(QuestionError, match=r"holds model \(BASE\)"):
        training_question(files=(str(tmp_path / "run.sh"),))
    (tmp_path / "run.sh").write_text(f"torchrun tune_all.py {FLAGS}\n")
    with pytest.raises(QuestionError, match=r"tune_all.py, which is not at hand, may"):
        training_question(files=(str(tmp_path / "run.sh"),))
    (tmp_path / "run.sh").write_text("deepspeed --module training.full --config configs/sizes.yaml --sft-only\n")
    with pytest.raises(QuestionError, match=r"sizes.yaml holds them"):
        training_question(files=(str(tmp_path / "run.sh"),))


def test_a_function_is_worked_out_for_its_own_call(tmp_path: Path) -> None:
    text = (
        "def clean(path):\n    if path is None:\n        return None\n    return path.strip()\n"
        "def find(name, cache=None):\n    if cache:\n        return f'{cache}/{name}', True\n    return name, False\n"
        "def train(model_name='org/chat-7b', data='d'):\n    model_name = clean(model_name)\n    data = clean(data)\n"
        "    path, local = find(model_name)\n    model = AutoModelForCausalLM.from_pretrained(path)\n"
        "    TrainingArguments(per_device_train_batch_size=3, bf16=torch.cuda.is_available())\n"
    )
    settings = _read(tmp_path, text, "tune.py")
    assert (settings.get("model"), settings.get("compute_dtype")) == ("org/chat-7b", "bfloat16")


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("torch.cuda.is_bf16_supported()", "bfloat16"),
        ("torch.cuda.get_device_capability()[0] >= 8", "bfloat16"),
        ("torch.cuda.get_device_capability()[0] < 8", None),
        ("torch.cuda.get_device_capability()[0] == 8", None),
        ("some_other_test()", None),
    ],
)
def test_what_is_asked_of_the_card(tmp_path: Path, test: str, expected: str | None) -> None:
    text = f"{LOADS}TrainingArguments(bf16={test}, per_device_train_batch_size=1)\n"
    assert _read(tmp_path, text, "tune.py").get("compute_dtype") == expected


def test_a_trl_trainer_and_gathered_layers(tmp_path: Path) -> None:
    text = (
        f"{LOADS}args = TrainingArguments(auto_find_batch_size=True)\n"
        "def find_all_linear_names(model):\n    return list(found)\n"
        "lora = LoraConfig(r=8, target_modules=find_all_linear_names(model))\n"
        "SFTTrainer(model=model, args=args, peft_config=lora)\n"
    )
    settings = _read(tmp_path, text, "tune.py")
    assert (settings.get("framework"), settings.get("adapter.targets")) == ("trl", ("all-linear",))
    assert any(line.startswith("auto_find_batch_size (") for line in settings.unread)


def test_unsloth_takes_one_prompts_answers_at_once(tmp_path: Path) -> None:
    text = (
        "m, t = FastLanguageModel.from_pretrained('org/chat-7b', fast_inference=True, gpu_memory_utilization=0.6)\n"
        "GRPOConfig(per_device_train_batch_size=1, num_generations={answers}, gradient_accumulation_steps=4)\n"
    )
    settings = _read(tmp_path, text.format(answers=8), "tune.py")
    assert settings.get("micro_batch") == 8
    assert any("gpu_memory_utilization 0.6" in line for line in settings.unread)
    assert _read(tmp_path, text.format(answers=4), "tune.py").get("micro_batch") == 1


def test_a_model_that_the_program_builds(tmp_path: Path) -> None:
    text = (
        "from model import GPTConfig, GPT\nbatch_size = 12\nblock_size = 1024\nn_layer = 12\nn_head = 12\nn_embd = 768\n"
        "learning_rate = 6e-4\nmax_iters = 10\ndtype = 'bfloat16'\nmodel = GPT(GPTConfig())\nctx = autocast(dtype)\n"
    )
    settings = _read(tmp_path, text, "train.py")
    assert (settings.get("param_dtype"), settings.get("compute_dtype"), settings.get("shape.tied")) == (
        "float32",
        "bfloat16",
        True,
    )
    assert _read(tmp_path, text + "model.bfloat16()\n", "train.py").get("param_dtype") is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("python3 $HOME/train.py\n", "train.py"),
        ("CUDA_VISIBLE_DEVICES=1 uv run accelerate launch main.py\n", "main.py"),
        ("export MAX_LEN=${MAX_LEN:-4096}\nbash scripts/run_sft_chat.sh\n", "run_sft_chat.sh"),
    ],
)
def test_a_script_that_only_starts_another_says_which(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "run.sh").write_text(text)
    with pytest.raises(QuestionError, match=rf"{named}, which is not at hand, may"):
        training_question(files=(str(tmp_path / "run.sh"),))
    kind = taken_for(kinds_of(text.encode(), "run.sh"))
    assert kind is not None and kind.command == ("train", "--from")


def test_a_script_that_trains_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="no flag"):
        _read(tmp_path, "bash scripts/download.sh\npython3 evaluate_trained.py\npython3 convert_to_pt.py\n")


def test_a_server_of_answers_beside_a_run_is_no_engine() -> None:
    text = (
        '#!/bin/bash\nsrun trl vllm-serve --model $M &\nsrun bash -c "accelerate launch --num_processes 8 a.py --config b.yaml"\n'
    )
    kind = taken_for(kinds_of(text.encode(), "run.slurm"))
    assert kind is not None and kind.command == ("train", "--from")


def test_quotes_over_lines_and_placeholders(tmp_path: Path) -> None:
    text = (
        "M=Qwen2.5-Math-7B\nNODES=TO_BE_FILLED\nray job submit --address=${H}:1 \\\n  --runtime-env-json='{\n"
        '    "working_dir": "\'${W}\'",\n    "env_vars": {"a": ""}\n  }\' \\\n  -- python -m verl.trainer.main_ppo '
        "actor_rollout_ref.model.path=TO_BE_FILLED/$M data.max_response_length=3072 trainer.nnodes=$NODES\n"
    )
    (tmp_path / "run.sh").write_text(text)
    question = training_question(files=(str(tmp_path / "run.sh"),)).question
    assert (question.model, question.seq) == ("Qwen2.5-Math-7B", 3584)


def test_of_several_phases_the_first_is_answered(tmp_path: Path) -> None:
    text = f"{LOADS}a = SFTConfig(per_device_train_batch_size=2, max_length=512)\nb = DPOConfig(beta=0.1, max_prompt_length=64)\n"
    settings = _read(tmp_path, text, "tune.py")
    assert (settings.get("options.task"), settings.get("seq"), settings.get("preference.beta")) == ("sft", 512, None)
    assert any(line.startswith("DPOConfig in line 3 (another run") for line in settings.unread)


def test_a_windows_path_is_another_machines(tmp_path: Path) -> None:
    text = "m = AutoModelForCausalLM.from_pretrained(r'C:\\apps\\Qwen2.5-7B-Instruct')\nTrainingArguments(output_dir='o')\n"
    (tmp_path / "tune.py").write_text(text.replace("\\\\", "\\"))
    assert training_question(files=(str(tmp_path / "tune.py"),)).question.model == "Qwen2.5-7B-Instruct"


def test_a_told_target_stands_before_what_an_evaluation_generates(tmp_path: Path) -> None:
    flags = "--max_new_tokens 32 --source_max_len 16 --target_max_len 512 --per_device_train_batch_size 4 --output_dir o"
    assert _read(tmp_path, f"python finetune.py --model_name_or_path org/chat-7b {flags}\n").get("seq") == 528


@pytest.mark.parametrize(
    ("installs", "expected"),
    [
        ("pip install -q transformers==4.40.0 peft", "4.40.0"),
        ("pip install transformers==4.40.0\npip install -U transformers", None),
        ("pip install transformers==4.40.0\npip install git+https://github.com/huggingface/transformers.git", None),
        ("pip install -U \\\n  'transformers==4.47.1' \\\n  trl==0.9.6", "4.47.1"),
        ("pip install sentence-transformers==3.0.1 transformers-stream-generator==0.0.5 transformers", None),
        ("echo transformers==4.40.0", None),
        ("# pip install transformers==4.40.0", None),
    ],
)
def test_releases_that_a_script_pins(tmp_path: Path, installs: str, expected: str | None) -> None:
    settings = _read(tmp_path, f"{installs}\ntorchrun tune.py --model_name_or_path org/chat-7b {FLAGS}\n")
    assert settings.get("release") == expected


def test_the_framework_has_the_pinned_release(tmp_path: Path) -> None:
    text = f"pip install trl==0.8.6 transformers==4.40.0\ntrl sft --model_name_or_path Qwen/Qwen2.5-7B --dataset_name d {FLAGS}\n"
    (tmp_path / "run.sh").write_text(text)
    question = training_question(files=(str(tmp_path / "run.sh"),)).question
    assert (question.framework, question.framework_version) == ("trl", "0.8.6")
    asked = training_question(files=(str(tmp_path / "run.sh"),), framework="trl==1.16")
    assert asked.question.framework_version == "1.16"


def test_a_name_that_transformers_5_lacks_dates_a_program(tmp_path: Path) -> None:
    for word, release in (("evaluation_strategy", "4.45"), ("eval_strategy", None)):
        text = f"{LOADS}TrainingArguments({word}='no', per_device_train_batch_size=1)\n"
        assert _read(tmp_path, text, "tune.py").get("release") == release
