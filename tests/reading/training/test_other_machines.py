"""What a file takes from the machine that it ran on: paths, SLURM's cards, files written by the script, switched-off sections."""

from pathlib import Path
from typing import Any

import pytest

from vramcast.asking.training import training_question
from vramcast.errors import QuestionError
from vramcast.reading.elsewhere import is_elsewhere, known_name
from vramcast.reading.training.files import read_training_files


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/Qwen2.5-7B-Instruct", "Qwen2.5-7B-Instruct"),
        ("/x/hub/models--Qwen--Qwen2.5-7B/snapshots/0a1b2c3d4e5f", "Qwen/Qwen2.5-7B"),
        ("/home/u/.cache/modelscope/hub/Qwen/Qwen2___5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("./llama-2-7b/sft/checkpoint-200", "llama-2-7b"),
        ("/data/my_model_v2", None),
        ("/home/gpt2/runs/final", None),
        ("/data/llama3/our-merged-model", None),
        ("/Users/qwen2.5-7b/checkpoint-10", None),
        ("/mnt/weights/checkpoint-1000", None),
        ("/srv/run7/exp12", None),
        ("/models/qwen3", None),  # a family of many sizes
        ("/models/phi-4", "phi-4"),
    ],
)
def test_the_model_that_a_path_names(path: str, name: str | None) -> None:
    assert is_elsewhere(path)
    assert known_name(path) == name


def _script(tmp_path: Path, text: str, name: str = "run.sh") -> Any:
    (tmp_path / name).write_text(text)
    return read_training_files((str(tmp_path / name),))


RUN = "torchrun train.py --model_name_or_path {model} --per_device_train_batch_size 1 --max_seq_length 512 --learning_rate 1e-5\n"


def test_a_path_is_taken_for_the_model_it_names_and_told(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(RUN.format(model="/models/Qwen2.5-7B-Instruct"))
    asked = training_question(files=(str(tmp_path / "run.sh"),))
    assert asked.question.model == "Qwen2.5-7B-Instruct"
    told = next(one for one in asked.assumed if one.name == "model")
    assert "/models/Qwen2.5-7B-Instruct, which is not here, by its name" in told.because


def test_a_path_that_names_nothing_asks_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(RUN.format(model="/srv/run7/best"))
    with pytest.raises(QuestionError, match="name it, vramcast train MODEL --from FILE"):
        training_question(files=(str(tmp_path / "run.sh"),))
    assert training_question("Qwen/Qwen2.5-7B", files=(str(tmp_path / "run.sh"),)).question.seq == 512


def test_a_variable_that_holds_the_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(RUN.format(model="$1"))
    with pytest.raises(QuestionError, match="a variable that nobody set holds model"):
        training_question(files=(str(tmp_path / "run.sh"),))


@pytest.mark.parametrize(
    ("head", "launch", "cards"),
    [
        (
            "#SBATCH --nodes=4\n#SBATCH --gres=gpu:a100:8\n",
            "srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE",
            32,
        ),
        ("#SBATCH -N 2\n#SBATCH --gpus-per-node=4\n", "srun python", 8),
        ("#SBATCH --gpus=6\n", "python", 6),
        ("", "srun --gres=gpu:8 --nodes=2 --ntasks-per-node=8 python", 16),
        ("#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\n", "torchrun --nproc_per_node 2", 2),
    ],
)
def test_cards_that_a_slurm_job_asks_for(tmp_path: Path, head: str, launch: str, cards: int) -> None:
    flags = "train.py --model_name_or_path org/chat-7b --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --lr 1"
    assert _script(tmp_path, f"#!/bin/bash\n{head}{launch} {flags}\n").get("gpus") == cards


def test_a_file_that_the_script_writes_is_read(tmp_path: Path) -> None:
    text = (
        "OUT=/runs/a\ncat > $OUT/ds.json <<'EOF'\n"
        '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},\n'
        '"train_micro_batch_size_per_gpu": "auto"}\nEOF\n'
        "deepspeed train.py --model_name_or_path org/chat-7b --per_device_train_batch_size 2 --lr 1 --deepspeed $OUT/ds.json\n"
    )
    settings = _script(tmp_path, text)
    assert (settings.get("zero"), settings.get("offload"), settings.missing) == (3, ["optimizer"], [])


def test_a_section_that_is_switched_off_says_nothing(tmp_path: Path) -> None:
    text = "training: {micro_batch_size: 2, seq_len: 512, lr: 1}\nlora: {enabled: false, r: 16}\nfp16: {enabled: false}\n"
    settings = _script(tmp_path, text, "a.yaml")
    assert settings.get("adapter.rank") is None
    assert settings.get("method") is None
    assert "lora.r (switched off)" in settings.idle


def test_a_layout_without_cards_is_for_as_many_as_it_needs(tmp_path: Path) -> None:
    text = (
        "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 512\n"
        "[parallelism]\ndata_parallel_shard_degree = 4\ntensor_parallel_degree = 2\n"
    )
    settings = _script(tmp_path, text, "a.toml")
    assert settings.get("gpus") == 8
    assert "does not say how many" in settings.because["gpus"]


@pytest.mark.parametrize(
    ("loss", "task"), [("sigmoid,bco_pair", "dpo"), ("dapo", "grpo"), ("kto", "kto"), ("nll", None), ("simpo", "orpo")]
)
def test_the_name_of_an_objective_is_no_way_to_hold_logits(tmp_path: Path, loss: str, task: str | None) -> None:
    text = f"model_name_or_path: org/chat-1b\nper_device_train_batch_size: 1\nloss_type: {loss}\noutput_dir: x\n"
    settings = _script(tmp_path, text, "a.yaml")
    assert (settings.get("loss"), settings.get("options.task")) == (None, task)


def test_a_sequence_beyond_rotary_positions_is_told_and_not_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "model_name_or_path: NousResearch/Llama-2-7b-hf\nper_device_train_batch_size: 1\nmax_length: 5000\noutput_dir: x\n"
    )
    asked = training_question(files=(str(tmp_path / "a.yaml"),))
    assert asked.question.options["extends_positions"] is True
    assert any(one.name == "extends_positions" for one in asked.assumed)


@pytest.mark.parametrize(
    ("program", "more", "task"),
    [
        ("train_dpo.py", "", "dpo"),
        ("run.py", "--hub_model_id me/zephyr-orpo-7b", None),  # a name that anybody may give
        ("run.py", "--run_name baseline-for-dpo", None),
        ("run.py", "--output_dir out/sft-before-dpo", None),
    ],
)
def test_what_names_tell_of_an_objective(tmp_path: Path, program: str, more: str, task: str | None) -> None:
    flags = f"--model_name_or_path org/chat-7b --per_device_train_batch_size 1 --max_length 512 --learning_rate 1 {more}"
    settings = _script(tmp_path, f"torchrun {program} {flags}\n")
    assert settings.get("options.task") == task
    assert settings.get("task.of_name") is None


def test_a_last_backslash_is_no_value(tmp_path: Path) -> None:
    settings = _script(tmp_path, "swift sft --model org/chat-7b --train_type full --max_length 512 --optim adamw_torch \\")
    assert settings.get("optimizer") == "adamw_torch"


def test_models_beside_and_frozen_parts_are_told(tmp_path: Path) -> None:
    flags = "--model org/chat-7b --reward_model org/judge-8b --train_type full --max_length 512 --rlhf_type ppo"
    assert _script(tmp_path, f"swift rlhf {flags}\n").unread == [
        "reward_model: a model beside the trained one, which is not counted"
    ]
    flags = "--model_name_or_path org/see-7b --per_device_train_batch_size 1 --freeze_llm True --freeze_vision_tower True --lr 1"
    settings = _script(tmp_path, f"deepspeed train.py {flags}\n")
    assert settings.get("options.freezes_towers") is True
    assert "freeze_llm (True: the language model is frozen; it is counted as trained)" in settings.unread


def test_the_program_that_holds_the_settings_is_read_or_asked_for(tmp_path: Path) -> None:
    text = "accelerate launch train.py --dataset_path a.jsonl --validation_split 0.1\n"
    with pytest.raises(QuestionError, match=r"run.sh gives no sizes of its own: train.py holds them"):
        _script(tmp_path, text)
    (tmp_path / "train.py").write_text(
        "from transformers import TrainingArguments, AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('org/chat-7b')\n"
        "args = TrainingArguments(per_device_train_batch_size=3, output_dir='x')\n"
    )
    settings = _script(tmp_path, text)
    assert (settings.get("micro_batch"), settings.get("model")) == (3, "org/chat-7b")


def test_keywords_that_a_function_hands_on_are_followed(tmp_path: Path) -> None:
    text = (
        "from trl import GRPOConfig\n"
        "def build(**given):\n    known = {k: v for k, v in given.items() if k != 'x'}\n    return GRPOConfig(**known)\n"
        "names = ['q_proj', 'v_proj']\n"
        "lora = LoraConfig(r=4, target_modules=[n for n in names if n])\n"
        "settings = {'per_device_train_batch_size': 2, 'max_completion_length': 1024, 'num_generations': 4}\n"
        "build(**settings)\n"
    )
    settings = _script(tmp_path, text, "run.py")
    assert (settings.get("micro_batch"), settings.get("lengths.completion"), settings.get("options.task")) == (2, 1024, "grpo")
    assert settings.get("adapter.targets") == ("q_proj", "v_proj")


@pytest.mark.parametrize(("default", "method"), [("False", "lora"), ("True", "qlora")])
def test_quantisation_under_a_switch_counts_where_it_is_on(tmp_path: Path, default: str, method: str) -> None:
    text = (
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n"
        f"    four: bool = {default}\ncfg = Config()\n"
        "quant = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4') if cfg.four else None\n"
        "lora = LoraConfig(r=4)\nargs = SFTConfig(per_device_train_batch_size=2, max_length=512)\n"
    )
    assert _script(tmp_path, text, "run.py").get("method") == method


def test_a_folder_that_a_variable_holds_leaves_the_model_named(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(RUN.format(model="$ROOT/models/Qwen2.5-7B-Instruct"))
    assert training_question(files=(str(tmp_path / "run.sh"),)).question.model == "Qwen2.5-7B-Instruct"


def test_a_key_that_is_a_level_alone_is_read_by_nothing(tmp_path: Path) -> None:
    text = "training: {micro_batch_size: 2, seq_len: 512, lr: 1}\nconfig: a\nargs: b\n"
    text += "trainer: {strategy: {class_path: x.DeepSpeedStrategy, init_args: {stage: 2}}}\n"
    settings = _script(tmp_path, text, "a.yaml")
    assert settings.get("zero") == 2
    assert "config, args" in settings.unread[0]


def test_the_name_of_a_file_of_defaults_tells_the_back_end(tmp_path: Path) -> None:
    text = (
        "python3 -m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml' "
        "actor_rollout_ref.model.path=org/chat-7b actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 "
        "actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 "
        "actor_rollout_ref.actor.ppo_mini_batch_size=32\n"
    )
    settings = _script(tmp_path, text)
    assert (settings.get("framework"), settings.get("parallel.tp")) == ("megatron", 4)


def test_a_script_that_a_variable_holds_is_read(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\nJOB=$(cat <<EOF\nset -ex\nuv run python examples/run_grpo_math.py \\\n"
        "  --config a.yaml policy.model_name=org/chat-7b policy.max_total_sequence_length=4096 \\\n"
        "  policy.train_micro_batch_size=1 policy.train_global_batch_size=64 cluster.num_nodes=2 cluster.gpus_per_node=8\n"
        'EOF\n)\necho "$JOB" | kubectl exec -i pod -- /bin/bash\n'
    )
    settings = _script(tmp_path, text)
    assert (settings.get("framework"), settings.get("seq"), settings.get("gpus")) == ("nemo_rl", 4096, 16)
