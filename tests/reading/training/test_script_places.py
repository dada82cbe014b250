"""What a launch script names: where its files and programs lie, which of its commands trains, what was not typed."""

from pathlib import Path

import pytest

from vramcast.asking.training import training_question
from vramcast.errors import QuestionError
from vramcast.reading.beside import path_from
from vramcast.reading.training.files import read_training_files
from vramcast.reading.training.settings import Settings

RUN = "torchrun --nproc_per_node 2 train.py --per_device_train_batch_size 2 --model_name_or_path org/chat-7b"


def _read(path: Path, text: str) -> Settings:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return read_training_files((str(path),))


@pytest.mark.parametrize(
    "name",
    ["conf/a.yaml", "./conf/a.yaml", "${ROOT}/conf/a.yaml", "$ROOT/conf/a.yaml", "/home/me/work/conf/a.yaml", "jobs/conf/a.yaml"],
)
def test_a_command_s_file_is_found_from_the_root_of_the_repository(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "repo" / "jobs" / "big"
    folder.mkdir(parents=True)
    (tmp_path / "repo" / "setup.py").touch()
    at = tmp_path / "repo" / "conf" / "a.yaml"
    at.parent.mkdir()
    at.touch()
    found = path_from(folder, name)
    assert found is not None
    assert found.resolve() == at.resolve()


def test_a_file_outside_the_repository_is_not_the_command_s(tmp_path: Path) -> None:
    folder = tmp_path / "repo" / "jobs"
    folder.mkdir(parents=True)
    (tmp_path / "repo" / "setup.py").touch()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.yaml").touch()
    assert path_from(folder, "conf/a.yaml") is None
    assert path_from(folder, "$CONF") is None
    assert path_from(folder, "") is None


def test_a_folder_that_the_script_changes_to_holds_its_program(tmp_path: Path) -> None:
    (tmp_path / "dpo").mkdir()
    loads = "model = AutoModelForCausalLM.from_pretrained('org/a-1b', attn_implementation='eager')\n"
    (tmp_path / "dpo" / "train.py").write_text(f"{loads}args = TrainingArguments(gradient_checkpointing=True)\n")
    settings = _read(tmp_path / "run.sh", f"cd dpo\n{RUN}\n")
    assert (settings.get("checkpointing"), settings.get("attention"), settings.get("model")) == ("full", "eager", "org/chat-7b")


def test_a_program_that_is_not_at_hand_is_told(tmp_path: Path) -> None:
    assert _read(tmp_path / "run.sh", f"{RUN}\n").get("program") == "train.py (not at hand)"


def test_a_word_that_nobody_typed_leaves_the_default(tmp_path: Path) -> None:
    settings = _read(tmp_path / "run.sh", f"MODEL=$1\nMODEL=${{MODEL:-org/small-1b}}\n{RUN.replace('org/chat-7b', '$MODEL')}\n")
    assert settings.get("model") == "org/small-1b"


@pytest.mark.parametrize(
    ("text", "batch", "more"),
    [
        ("torchrun a.py --per_device_train_batch_size 2 --lr 1e-4\ntorchrun b.py --per_device_train_batch_size 8 --lr 1", 2, 1),
        ("torchrun eval.py --batch_size 8\ntorchrun a.py --per_device_train_batch_size 2 --learning_rate 1e-4", 2, 0),
        ("python make.py --per_device_train_batch_size 8\npython train_a.py --per_device_train_batch_size 2", 2, 0),
        (
            "llamafactory-cli train --stage sft --per_device_train_batch_size 2 --lora_rank 8 --finetuning_type lora\n"
            "llamafactory-cli chat --per_device_train_batch_size 5\n"
            "llamafactory-cli train --stage sft --per_device_train_batch_size 8 --finetuning_type full",
            2,
            1,
        ),
    ],
)  # fmt: skip
def test_of_several_commands_the_first_that_says_how_it_trains_is_read(tmp_path: Path, text: str, batch: int, more: int) -> None:
    settings = _read(tmp_path / "run.sh", text + "\n")
    assert settings.get("micro_batch") == batch
    assert any(line.startswith(f"{more} more commands") for line in settings.unread) is bool(more)


def test_a_file_that_says_what_is_trained_is_asked_for(tmp_path: Path) -> None:
    text = "llamafactory-cli train conf/full.yaml --model_name_or_path Qwen/Qwen3-8B --cutoff_len 512\n"
    (tmp_path / "run.sh").write_text(text)
    with pytest.raises(QuestionError, match=r"full.yaml says what is trained, and is not at hand"):
        training_question(files=(str(tmp_path / "run.sh"),))
    question = training_question(files=(str(tmp_path / "run.sh"),), method="full").question
    assert (question.model, question.method) == ("Qwen/Qwen3-8B", "full")


def test_a_launcher_s_nodes_that_a_command_counts_are_the_job_s(tmp_path: Path) -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:4\nN=$(scontrol show hostnames | wc -l)\n"
    assert _read(tmp_path / "a.sh", head + RUN.replace("--nproc_per_node 2", "--nproc_per_node 4 --nnodes $N")).get("gpus") == 16


def test_modules_built_from_numbers_are_float32(tmp_path: Path) -> None:
    text = "torchrun train.py --nlayers 6 --nhead 8 --d_model 512 --batch_size 4 --seq_len 1024 --lr 1e-3\n"
    settings = _read(tmp_path / "run.sh", text)
    assert [settings.get(f"shape.{name}") for name in ("layers", "heads", "hidden")] == [6, 8, 512]
    assert settings.get("param_dtype") == "float32"
    (tmp_path / "train.py").write_text("model = Net().bfloat16()\n")
    assert _read(tmp_path / "run.sh", text).get("param_dtype") != "float32"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "torchrun -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=org/a-7b data.max_length=2048 model.strategy=fsdp",
            {"seq": 2048, "fsdp": 1, "micro_batch": 4, "param_dtype": "float32", "checkpointing": "full"},
        ),
        (
            "deepspeed --module align_anything.trainers.text_to_text.dpo --model_name_or_path org/a-7b --train_template A",
            {"zero": 3, "micro_batch": 1, "checkpointing": "full", "options.task": "dpo"},
        ),
        (
            "deepspeed --module safe_rlhf.algorithms.ppo --actor_model_name_or_path org/a-7b --zero_stage 2 --bf16 True"
            " --actor_gradient_checkpointing",
            {"model": "org/a-7b", "zero": 2, "micro_batch": 16, "seq": 512, "checkpointing": "full"},
        ),
    ],
)  # fmt: skip
def test_recorded_programs_by_their_modules(tmp_path: Path, text: str, expected: dict[str, object]) -> None:
    settings = _read(tmp_path / "run.sh", text + "\n")
    assert {name: settings.get(name) for name in expected} == expected


def test_a_variable_that_names_the_file_of_settings_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("CONF=$1\npython train_rl.py --config $CONF\n")
    with pytest.raises(QuestionError, match=r"a variable that nobody set \(\$\{1\}\) names the file"):
        read_training_files((str(tmp_path / "run.sh"),))


def test_json_behind_a_flag_of_data_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"rows": 3, "model": "org/other-1b"}')
    settings = _read(tmp_path / "run.sh", f"{RUN} --data_path data.json --config more.json\n")
    assert settings.get("model") == "org/chat-7b"
    assert not any("data.json (" in line for line in settings.unread)
    assert any("more.json (not found" in line for line in settings.unread)


def test_a_deepspeed_of_null_is_none(tmp_path: Path) -> None:
    assert _read(tmp_path / "run.sh", f"{RUN} --deepspeed null\n").missing == []


def test_of_modules_the_one_that_has_a_rate_is_trained(tmp_path: Path) -> None:
    rewards = "deepspeed --module openrlhf.cli.batch_inference --pretrain org/judge-7b --micro_batch_size 16 --max_len 4096\n"
    trains = "deepspeed --module openrlhf.cli.train_dpo --pretrain org/chat-7b --micro_train_batch_size 2 --learning_rate 1e-6\n"
    settings = _read(tmp_path / "run.sh", rewards + trains)
    assert (settings.get("model"), settings.get("micro_batch"), settings.get("seq")) == ("org/chat-7b", 2, None)


def test_a_list_that_the_shell_hands_over_as_one_word(tmp_path: Path) -> None:
    text = f"""{RUN} --lora_r 8 --lora_target_modules '["q_proj", "k_proj"]'\n"""
    assert _read(tmp_path / "run.sh", text).get("adapter.targets") == ("q_proj", "k_proj")


def test_ray_s_cards_are_not_the_actor_s(tmp_path: Path) -> None:
    text = "ray start --head --num-gpus 7\n"
    text += "CUDA_VISIBLE_DEVICES=0,1,2 python -m openrlhf.cli.train_ppo_ray --pretrain a/b --actor_num_gpus_per_node 2"
    assert _read(tmp_path / "run.sh", f"{text} --actor_num_nodes 1 --micro_train_batch_size 1\n").get("gpus") == 2


def test_one_name_of_a_tool_is_anybody_s(tmp_path: Path) -> None:
    text = "accelerate launch --num_processes 8 my_rl.py --model_name org/a-1b --learning_rate 1e-6\n"
    settings = _read(tmp_path / "run.sh", text)
    assert (settings.get("model"), settings.get("gpus")) == ("org/a-1b", 8)
    assert settings.get("framework") != "litgpt"


def test_a_person_s_program_with_axolotl_s_names_is_not_axolotl(tmp_path: Path) -> None:
    text = "python finetune.py --base_model org/a-7b --micro_batch_size 4 --cutoff_len 256 --val_set_size 120 --lora_r 8\n"
    settings = _read(tmp_path / "run.sh", text)
    assert settings.get("framework") != "axolotl"
    assert [settings.get(name) for name in ("model", "micro_batch", "seq", "adapter.rank")] == ["org/a-7b", 4, 256, 8]


def test_a_program_works_out_what_the_command_gives(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "def train(base_model='', batch_size=128, micro_batch_size=4, ctx=256):\n"
        "    steps = batch_size // micro_batch_size\n"
        "    TrainingArguments(gradient_accumulation_steps=steps, per_device_train_batch_size=micro_batch_size)\n"
        "    SFTTrainer(max_seq_length=ctx)\nfire.Fire(train)\n"
    )
    text = "python train.py --base_model org/a-7b --batch_size 16 --micro_batch_size 2 --lora_r 8 --ctx 4096\n"
    settings = _read(tmp_path / "run.sh", text)
    assert [settings.get(name) for name in ("accumulate", "micro_batch", "seq")] == [8, 2, 4096]


def test_a_model_that_is_named_stands_before_numbers_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "torchrun train.py --vocab_size 1000 --hidden_size 64 --batch_size 2 --lr 1e-4 --seq_len 128\n"
    )
    with pytest.raises(QuestionError, match="no model"):
        training_question(files=(str(tmp_path / "run.sh"),))
    assert training_question("Qwen/Qwen3-8B", files=(str(tmp_path / "run.sh"),)).question.model == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(("name", "told"), [("ppo_trainer", False), ("ppo_trainer.yaml", False), ("my_grpo", True)])
def test_hydra_s_file_of_another_name_is_told(tmp_path: Path, name: str, told: bool) -> None:
    text = f"python -m verl.trainer.main_ppo --config-name {name} actor_rollout_ref.model.path=org/a-7b data.train_batch_size=8\n"
    assert any(line.startswith(f"config_name ({name}") for line in _read(tmp_path / "run.sh", text).unread) is told


def test_layers_that_a_word_of_olmo_checkpoints_are_told(tmp_path: Path) -> None:
    text = "torchrun scripts/train.py a.yaml --device_train_microbatch_size=2 --sharded_checkpointer=olmo_core"
    settings = _read(tmp_path / "run.sh", f"{text} --activation_checkpointing=one_in_two --save_folder=o\n")
    assert any(line.startswith("activation_checkpointing (one_in_two") for line in settings.unread)
    assert settings.get("param_dtype") == "float32"


def test_patterns_stay_whole_and_data_is_no_settings(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text('[{"a": 1}]')
    flags = "--model_name_or_path Qwen/Qwen2.5-7B --learning_rate 1e-4 --per_device_train_batch_size 2 --lora_r 8"
    (tmp_path / "run.sh").write_text(
        f'python train.py {flags} --lora_target_modules "(q_proj|v_proj)" --train_ids_path train.json\n'
    )
    found = read_training_files((str(tmp_path / "run.sh"),))
    assert found.get("adapter.targets") == ("(q_proj|v_proj)",)


def test_arguments_of_a_class_beside_are_a_trainers(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import transformers\nclass TrainingArguments(transformers.TrainingArguments):\n    a: int = 1\n"
    )
    (tmp_path / "t.py").write_text("from own import TrainingArguments\nTrainingArguments(num_train_epochs=1, bf16=True)\n")
    assert read_training_files((str(tmp_path / "t.py"),)).get("compute_dtype") == "bfloat16"


@pytest.mark.parametrize(
    ("program", "flags", "expected"),
    [
        ("loss.backward()\n", "", "float32"),
        ("fabric = L.Fabric(precision='bf16-mixed')\n", "", None),  # its own words: none of ours stand for them
        ("loss.backward()\n", "--deepspeed ds.json", None),
    ],
)
def test_float32_stands_only_where_nothing_narrows(tmp_path: Path, program: str, flags: str, expected: str | None) -> None:
    (tmp_path / "pre.py").write_text(program)
    sizes = "--n_layer 12 --n_embd 768 --n_head 12 --vocab_size 50304 --batch_size 4 --block_size 1024 --learning_rate 1e-4"
    (tmp_path / "run.sh").write_text(f"torchrun --nproc_per_node 2 pre.py {sizes} {flags}\n")
    assert read_training_files((str(tmp_path / "run.sh"),)).get("compute_dtype") == expected


def test_no_mixed_precision_multiplies_as_loaded_and_adapters_have_experts(tmp_path: Path) -> None:
    text = "model_name_or_path: a/b\nlearning_rate: 1e-4\nbatch_size: 2\nmax_seq_length: 64\nmixed_precision: 'no'\n"
    path = tmp_path / "run.yaml"
    path.write_text(text)
    assert read_training_files((str(path),)).get("compute_dtype") == "float32"
    path.write_text(f"{text}torch_dtype: bfloat16\nlora:\n  r: 8\n  num_experts: 4\n")
    found = read_training_files((str(path),))
    assert found.get("compute_dtype") == "bfloat16"
    assert found.get("shape.experts") is None
    assert any("num_experts" in line for line in found.unread)
