"""Programs whose settings are dataclass fields, XTuner's configurations, and files that point to what is not at hand."""

from pathlib import Path

import pytest

import vramcast
from vramcast.errors import QuestionError
from vramcast.reading.training.files import read_training_files

FIELDS = """
from dataclasses import dataclass, field
from transformers import TrainingArguments, HfArgumentParser
@dataclass
class ScriptArguments:
    batch: int = field(default=4)
    lora_r: int = 64
args = HfArgumentParser(ScriptArguments).parse_args_into_dataclasses()[0]
TrainingArguments(output_dir="x", per_device_train_batch_size=args.batch)
LoraConfig(r=args.lora_r)
"""
OWN = """
import transformers
class TrainingArguments(transformers.TrainingArguments):
    model_max_length: int = field(default=512)
    gradient_checkpointing: bool = True
"""
XTUNER = """
from xtuner.model import SupervisedFinetune
pretrained_model_name_or_path = "Qwen/Qwen2.5-7B"
max_length = 2048
pack_to_max_length = True
batch_size = 2
accumulative_counts = 16
optim_type = PagedAdamW32bit
model = dict(type=SupervisedFinetune,
    llm=dict(quantization_config=dict(type=BitsAndBytesConfig, load_in_4bit=True)),
    lora=dict(type=LoraConfig, r=64))
optim_wrapper = dict(type=AmpOptimWrapper, dtype="float16")
"""
FULL = """
model_name_or_path: Qwen/Qwen2.5-7B
stage: sft
finetuning_type: full
template: qwen
cutoff_len: 1024
output_dir: x
num_train_epochs: 1
per_device_train_batch_size: 1
gradient_accumulation_steps: 16
deepspeed: examples/deepspeed/ds_z3_config.json
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.py", FIELDS, {"micro_batch": 4, "adapter.rank": 64}),
        ("b.py", OWN, {"seq": 512, "checkpointing": "full"}),
        (
            "c.py",
            XTUNER,
            {"model": "Qwen/Qwen2.5-7B", "seq": 2048, "micro_batch": 2, "accumulate": 16, "optimizer": "paged_adamw_32bit",
             "quant": "nf4", "adapter.rank": 64, "method": "qlora", "compute_dtype": "float16", "lengths.packed": True},
        ),
        ("d.yaml", FULL, {"framework": "llama_factory", "method": "full", "seq": 1024, "accumulate": 16}),
        ("e.sh", 'MODEL_OPTIONS="--num-layers 4 --hidden-size 64 --seq-length 261"\nMORE="--decoder-seq-length 3200"\n',
         {"shape.layers": 4, "seq": 3200, "framework": "megatron"}),
        ("g.yaml", "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_offload_params: true\n",
         {"offload": ["parameters"]}),
        ("h.py", XTUNER.replace("max_length = 2048", "max_length = int(2048 - (336 / 14) ** 2)"), {"seq": 1472}),
        ("i.py", XTUNER.replace("max_length = 2048", "max_length = int(9 ** 9 ** 9)"), {"seq": None}),
        ("f.yaml", "base_model: x/y\nsequence_len: 8\nmicro_batch_size: 1\ngradient_checkpointing: true\n"
         "activation_offloading: legacy\n", {"checkpointing": "offloaded"}),
    ],
)  # fmt: skip
def test_what_is_read(tmp_path: Path, name: str, text: str, expected: dict[str, object]) -> None:
    (tmp_path / name).write_text(text)
    settings = read_training_files((str(tmp_path / name),))
    assert {key: settings.get(key) for key in expected} == expected


def test_a_file_that_is_not_at_hand_is_read_by_its_name_where_that_tells_the_stage(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(FULL)
    answer = vramcast.train(files=[tmp_path / "x.yaml"], gpu="H100x8")
    assert answer.workload["zero"] == 3
    assert any("ds_z3_config.json" in one.what for one in answer.unmodelled)


def test_a_file_that_is_not_at_hand_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(FULL.replace("ds_z3_config.json", "ours.json"))
    with pytest.raises(QuestionError, match=r"ours.json cannot be read: .* or say its stage with --zero N"):
        vramcast.train(files=[tmp_path / "x.yaml"], gpu="H100x8")
    assert vramcast.train(files=[tmp_path / "x.yaml"], gpu="H100x8", zero=3).workload
