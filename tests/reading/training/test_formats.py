"""Training files of every format: what each key comes to, what is told to cost nothing, what is told to have no rule."""

import json
from pathlib import Path
from typing import Any

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.training.files import read_training_files, read_training_text
from vramcast.reading.training.formats import MODULES as FORMATS
from vramcast.reading.training.formats import format_of, rules_of
from vramcast.reading.training.keys import flat
from vramcast.reading.training.settings import Settings

LLAMA_FACTORY = """
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
finetuning_type: lora
lora_rank: 16
lora_target: q_proj,v_proj
quantization_bit: 4
double_quantization: true
cutoff_len: 4096
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
bf16: true
enable_liger_kernel: true
flash_attn: fa2
dataset: mine
learning_rate: 1.0e-4
a_key_of_next_year: 3
"""
AXOLOTL = """
base_model: Qwen/Qwen2.5-7B
load_in_8bit: false
sequence_len: 8192
micro_batch_size: 4
gradient_accumulation_steps: 2
sample_packing: true
gradient_checkpointing: true
optimizer: adamw_bnb_8bit
bf16: auto
flash_attention: true
plugins:
  - axolotl.integrations.liger.LigerPlugin
liger_rms_norm: true
liger_fused_linear_cross_entropy: true
fsdp_version: 2
fsdp_config:
  offload_params: false
  reshard_after_forward: true
  transformer_layer_cls_to_wrap: Qwen2DecoderLayer
datasets:
  - path: mine
lora_r:
"""
TRL = """
model_name_or_path: meta-llama/Llama-3.1-8B
dataset_name: mine
per_device_train_batch_size: 4
max_length: 2048
packing: true
use_peft: true
lora_r: 32
lora_target_modules: all-linear
load_in_4bit: true
gradient_checkpointing: true
optim: paged_adamw_8bit
output_dir: out
"""
SWIFT = """
model: Qwen/Qwen3-8B
tuner_type: lora
lora_rank: 8
target_modules: all-linear
torch_dtype: bfloat16
max_length: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 16
deepspeed: zero3_offload
attn_impl: flash_attention_2
dataset: mine
"""
TORCHTUNE = """
model:
  _component_: torchtune.models.llama3_1.qlora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 4096
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: False
batch_size: 2
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
gradient_accumulation_steps: 8
compile: False
dtype: bf16
enable_activation_checkpointing: True
enable_activation_offloading: True
"""
TORCHTITAN = """
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
components = ["model", "loss"]
"""
LITGPT = """
checkpoint_dir: checkpoints/meta-llama/Llama-2-7b-hf
precision: bf16-true
quantize: bnb.nf4-dq
devices: 1
lora_r: 32
lora_key: true
lora_mlp: true
train:
  global_batch_size: 8
  micro_batch_size: 2
  max_seq_length: 512
eval:
  interval: 100
"""
FOUNDRY = """
variables:
  max_seq_len: 2048
max_seq_len: ${variables.max_seq_len}
model:
  name: mpt_causal_lm
  d_model: 2048
  n_heads: 16
  n_layers: 24
  expansion_ratio: 4
  vocab_size: 50368
  attn_config:
    attn_impl: flash
precision: amp_bf16
device_train_microbatch_size: 8
global_train_batch_size: 512
optimizer:
  name: decoupled_adamw
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
"""
DEEPSPEED = """
{"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto",
 "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8, "allgather_bucket_size": 2e8, "overlap_comm": true,
  "offload_optimizer": {"device": "cpu", "pin_memory": true}}, "steps_per_print": 10}
"""
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_offload_params: 'false'
  fsdp_activation_checkpointing: true
"""
PEFT = '{"peft_type": "VERA", "r": 256, "target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "Qwen/Qwen2.5-7B"}'
SECTIONED = """
model: Qwen/Qwen3-4B
template: qwen3_nothink
train_dataset: data/v1_sft_demo.yaml
peft_config:
  name: lora
  r: 16
  target_modules: all
quant_config:
  name: auto
  quantization_bit: 4
kernel_config:
  name: auto
dist_config:
  name: fsdp2
micro_batch_size: 1
global_batch_size: 4
cutoff_len: 2048
bf16: true
"""
BRIDGE = """
model:
  hf_model_id: meta-llama/Llama-3.1-70B
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  sequence_parallel: true
  recompute_granularity: selective
  recompute_modules: [core_attn, layernorm]
  seq_length: 8192
train:
  micro_batch_size: 1
  global_batch_size: 128
mixed_precision: bf16_mixed
"""
MEGATRON = r"""
#!/bin/bash
GPUS_PER_NODE=8
TP=2
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096      # a comment
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length ${SEQ:-4096}
    --max-position-embeddings 8192
    --position-embedding-type rope
    --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
)
if [[ "bf16" == "fp8" ]]; then
    MODEL_ARGS+=( "--fp8-format hybrid" )
fi
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes 2 pretrain_gpt.py \
    ${MODEL_ARGS[@]} --micro-batch-size 1 --global-batch-size $((8*16)) --bf16 --use-distributed-optimizer \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 4 \
    --sequence-parallel --recompute-activations --vocab-size 128256 --lr 1e-4
"""
# (file name, its text, some of what it comes to)
FILES: list[tuple[str, str, dict[str, Any]]] = [
    ("lf.yaml", LLAMA_FACTORY, {"framework": "llama_factory", "method": "qlora", "quant": "nf4", "adapter.rank": 16, "seq": 4096,
     "adapter.targets": ("q_proj", "v_proj"), "micro_batch": 2, "accumulate": 8, "loss": "linear", "attention": "flash",
     "options.double_quant": True, "options.norm": "fused", "compute_dtype": "bfloat16"}),
    ("ax.yml", AXOLOTL, {"framework": "axolotl", "seq": 8192, "micro_batch": 4, "checkpointing": "full",
     "optimizer": "adamw_bnb_8bit", "fsdp": 2, "loss": "linear", "options.norm": "fused", "options.reshard": True,
     "attention": "flash", "method": None}),
    ("trl.yaml", TRL, {"framework": "trl", "method": "qlora", "quant": "nf4", "adapter.rank": 32,
     "adapter.targets": ("all-linear",), "seq": 2048, "optimizer": "paged_adamw_8bit", "options.lengths": None}),
    ("swift.yaml", SWIFT, {"framework": "ms_swift", "method": "lora", "zero": 3, "offload": ["optimizer"], "accumulate": 16,
     "adapter.targets": ("all-linear",), "attention": "flash"}),
    ("tune.yaml", TORCHTUNE, {"framework": "torchtune", "model": "meta-llama/Llama-3.1-8B", "method": "qlora", "quant": "nf4",
     "adapter.targets": ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"), "seq": 4096,
     "loss": "linear_chunks", "offload": ["activations"], "checkpointing": "full", "options.update": "fused",
     "optimizer": "adamw"}),
    ("titan.toml", TORCHTITAN, {"framework": "torchtitan", "model": "meta-llama/Llama-3.1-8B", "micro_batch": 1, "seq": 8192,
     "parallel.tp": 2, "checkpointing": "op", "compile": True, "parallel.shard": None}),
    ("lit.yaml", LITGPT, {"framework": "litgpt", "model": "meta-llama/Llama-2-7b-hf", "method": "qlora", "quant": "nf4",
     "options.double_quant": True, "adapter.targets": ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "down_proj"),
     "global_batch": 8, "micro_batch": 2, "seq": 512}),
    ("mpt.yaml", FOUNDRY, {"framework": "llm_foundry", "shape.layers": 24, "shape.ffn": 8192, "shape.tied": True, "seq": 2048,
     "checkpointing": "full", "fsdp": 1, "options.gradients": "bfloat16", "global_batch": 512, "optimizer": "decoupled_adamw"}),
    ("ds.json", DEEPSPEED, {"framework": "deepspeed", "zero": 2, "offload": ["optimizer"], "options.reduce_bucket": 200_000_000,
     "options.overlaps": True, "micro_batch": 4, "accumulate": None, "compute_dtype": "bfloat16"}),
    ("acc.yaml", ACCELERATE, {"framework": "accelerate", "fsdp": 1, "gpus": 8, "options.reshard": False, "checkpointing": "full",
     "offload": None}),
    ("adapter_config.json", PEFT, {"method": "vera", "adapter.rank": 256, "model": "Qwen/Qwen2.5-7B"}),
    ("v1.yaml", SECTIONED, {"framework": "llama_factory", "method": "qlora", "quant": "nf4", "adapter.rank": 16, "fsdp": 2,
     "adapter.targets": ("all",), "global_batch": 4, "checkpointing": "full", "compute_dtype": "bfloat16"}),
    ("bridge.yaml", BRIDGE, {"framework": "megatron", "model": "meta-llama/Llama-3.1-70B", "parallel.tp": 4, "parallel.pp": 2,
     "checkpointing": "modules:core_attn+layernorm", "options.sharding": None, "global_batch": 128, "compute_dtype": "bfloat16"}),
    ("pretrain.sh", MEGATRON, {"framework": "megatron", "gpus": 16, "shape.kv_heads": 8, "seq": 4096, "parallel.vpp": 2,
     "shape.gated": True, "shape.tied": False, "shape.bias": False, "checkpointing": "selective", "global_batch": 128,
     "options.sharding": None, "compute_dtype": "bfloat16", "parallel.sp": True}),
]  # fmt: skip


def _read_mapping(keys: dict[str, Any], *, where: str) -> Settings:
    return read_training_text(json.dumps(keys), where=where)


def read(tmp_path: Path, name: str, text: str) -> Settings:
    file = tmp_path / name
    file.write_text(text.lstrip())
    return read_training_files((str(file),))


@pytest.mark.parametrize(("name", "text", "wanted"), FILES, ids=[f[0] for f in FILES])
def test_a_file_comes_to_its_settings(tmp_path: Path, name: str, text: str, wanted: dict[str, Any]) -> None:
    settings = read(tmp_path, name, text)
    assert {target: settings.get(target) for target in wanted} == wanted


@pytest.mark.parametrize(("name", "text", "_wanted"), FILES, ids=[f[0] for f in FILES])
def test_every_value_says_where_it_came_from(tmp_path: Path, name: str, text: str, _wanted: dict[str, Any]) -> None:
    settings = read(tmp_path, name, text)
    assert all(settings.because[target] for target in settings.values if target != "quant")
    assert any(a.because.startswith(name) for a in settings.assumed())


@pytest.mark.parametrize(
    ("schedule", "chunks"), [("Interleaved1F1B", 2), ("interleaved1f1b", 2), ("1F1B", None), ("GPipe", None)]
)
def test_looped_schedules_of_torchtitan_have_two_stages_a_rank(tmp_path: Path, schedule: str, chunks: int | None) -> None:
    table = f'pipeline_parallel_degree = 4\npipeline_parallel_schedule = "{schedule}"\n'
    settings = read(tmp_path, "titan.toml", TORCHTITAN.replace("[parallelism]\n", f"[parallelism]\n{table}"))
    assert settings.get("parallel.vpp") == chunks


def test_no_key_is_dropped_without_a_word(tmp_path: Path) -> None:
    settings = read(tmp_path, "lf.yaml", LLAMA_FACTORY)
    told = {a.name: a.value for a in settings.assumed()}
    (unread,) = settings.unmodelled()
    assert unread.what == "the key a_key_of_next_year: no rule reads it, and what it changes is not counted"
    assert told["no effect on memory"] == "dataset, learning_rate"


def test_a_misspelt_key_is_offered_the_known_one(tmp_path: Path) -> None:
    settings = read(tmp_path, "lf.yaml", LLAMA_FACTORY + "cutof_len: 9000\n")
    assert any("the key cutof_len (did you mean cutoff_len?)" in u.what for u in settings.unmodelled())


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_knows_its_own_signature(name: str) -> None:
    rules = rules_of(name)
    known = {*rules.RULES, *rules.IDLE}
    for key in rules.SIGNATURE:
        assert key in known or any(k.endswith("*") and key.startswith(k[:-1]) for k in known) or "zero_optimization" in key, key


def test_a_deepspeed_file_is_read_beside_the_file_that_points_to_it(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    settings = read(tmp_path, "ax.yml", AXOLOTL.replace("fsdp_version: 2", "deepspeed: configs/ds.json"))
    assert settings.get("zero") == 2
    assert settings.get("micro_batch") == 4
    assert settings.because["zero"] == "ds.json: zero_optimization.stage"


def test_deepspeed_may_stand_inside_another_file() -> None:
    inside = {
        "base_model": "x",
        "micro_batch_size": 1,
        "deepspeed": {"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}},
    }
    assert _read_mapping(inside, where="ax.yml").get("zero") == 3


def test_several_files_make_one_run(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text(ACCELERATE)
    (tmp_path / "trl.yaml").write_text(TRL)
    settings = read_training_files((str(tmp_path / "acc.yaml"), str(tmp_path / "trl.yaml")))
    assert (settings.get("framework"), settings.get("gpus"), settings.get("fsdp")) == ("trl", 8, 1)


def test_a_launch_line_reads_the_files_it_names(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text(ACCELERATE)
    line = "accelerate launch --config_file acc.yaml sft.py --model_name_or_path Qwen/Qwen3-8B --max_length 4096"
    line += " \\\n  --gradient_checkpointing"
    settings = read(tmp_path, "run.sh", line)
    assert (settings.get("model"), settings.get("seq"), settings.get("gpus")) == ("Qwen/Qwen3-8B", 4096, 8)
    assert settings.get("checkpointing") == "full"


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ({"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": ["attn", "moe_router"]}, {"graphed": 0.4}),
        ({"cuda_graph_impl": "local"}, {"graphed": 1.0}),
        ({"cuda_graph_impl": "none", "cuda_graph_modules": ["attn"]}, {}),
        ({"external_cuda_graph": True, "cuda_graph_scope": "full"}, {"graphed": 1.0}),
        ({"moe_enable_deepep": True, "moe_token_dispatcher_type": "flex"}, {"dispatcher": "flex"}),
        (
            {"moe_pad_expert_input_to_capacity": True, "moe_expert_capacity_factor": 1.5},
            {"dispatcher": "padded", "imbalance": 1.5},
        ),
        ({"moe_token_dispatcher_type": "allgather"}, {"dispatcher": "alltoall"}),
    ],
)
def test_what_megatron_launches_is_read(flags: dict[str, Any], options: dict[str, Any]) -> None:
    settings = _read_mapping(
        {"num_layers": 4, "hidden_size": 64, "use_distributed_optimizer": True} | flags, where="megatron.json"
    )
    assert settings.group("options") == options
    assert settings.unread == []


def test_shares_of_captured_parts_are_named_as_estimates() -> None:
    flags = {"num_layers": 4, "hidden_size": 64, "cuda_graph_impl": "local", "cuda_graph_modules": ["attn", "moe_combine"]}
    settings = _read_mapping(flags, where="megatron.json")
    assert settings.get("options.graphed") == 0.3
    assert "estimate" in settings.because["options.graphed"]
    assert settings.unread == ["cuda_graph_modules (moe_combine)"]


def test_accelerate_without_a_deepspeed_file_has_the_engine_s_own_buckets(tmp_path: Path) -> None:
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n"
    )
    sizes = {"reduce_bucket": 500_000_000, "prefetch_elements": 50_000_000, "persistent_elements": 100_000, "overlaps": True}
    assert read(tmp_path, "acc.yaml", text).group("options") == sizes
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2, "reduce_bucket_size": 1e8, "overlap_comm": true}}')
    pointed = text.replace("zero_stage: 3", "deepspeed_config_file: ds.json")
    assert read(tmp_path, "acc.yaml", pointed).group("options") == {"reduce_bucket": 100_000_000, "overlaps": True}
    script = "accelerate launch --config_file acc.yaml sft.py --model_name_or_path Qwen/Qwen3-8B --deepspeed ds.json"
    (tmp_path / "acc.yaml").write_text(text)
    assert read(tmp_path, "run.sh", script).get("options.reduce_bucket") == 100_000_000


def test_what_bounds_gathers_is_read_and_auto_is_left_to_the_trainer() -> None:
    section = {"stage": 3, "stage3_max_live_parameters": 3e7, "stage3_prefetch_bucket_size": "auto", "reduce_bucket_size": "auto"}
    settings = _read_mapping({"zero_optimization": section | {"stage3_max_reuse_distance": 2e7}}, where="ds.json")
    assert settings.unread == []
    options = {"live_elements": 30_000_000, "reuse_elements": 20_000_000, "persistent_elements": 100_000, "overlaps": True}
    assert settings.group("options") == options
    settings = _read_mapping({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}, where="ds.json")
    sizes = {"reduce_bucket": 500_000_000, "prefetch_elements": 50_000_000, "persistent_elements": 0, "overlaps": True}
    assert settings.group("options") == sizes


def test_a_template_stays_open(tmp_path: Path) -> None:
    settings = read(tmp_path, "ax.yml", AXOLOTL.replace("micro_batch_size: 4", "micro_batch_size: ${BATCH}"))
    assert "micro_batch_size (${BATCH})" in settings.unread
    assert settings.because["micro_batch"] == "axolotl: micro_batch_size 1"


def test_grpo_adds_prompt_and_completion() -> None:
    given = {"num_generations": 8, "max_prompt_length": 512, "max_completion_length": 1024, "beta": 0.04, "use_vllm": True,
             "per_device_train_batch_size": 4, "output_dir": "x", "vllm_gpu_memory_utilization": 0.4}  # fmt: skip
    settings = _read_mapping(given, where="grpo.yaml")
    assert (settings.get("options.task"), settings.get("seq"), settings.get("options.tenant")) == ("grpo", 1536, 0.4)
    assert settings.get("options.frozen_copies") == 1
    assert settings.get("options.scored") == pytest.approx(1024 / 1536)


def test_evaluation_keeps_logits_unless_they_are_gathered() -> None:
    given = {"per_device_train_batch_size": 4, "output_dir": "x", "eval_strategy": "steps", "per_device_eval_batch_size": 16}
    assert _read_mapping(given, where="a").get("options.eval_batch") == 16
    assert _read_mapping(given | {"eval_accumulation_steps": 1}, where="a").get("options.eval_batch") == 16  # a batch's own stay
    unsloth = given | {"per_device_eval_batch_size": 8, "use_gradient_checkpointing": "unsloth"}
    assert _read_mapping(unsloth, where="a").get("options.eval_batch") == 4  # unsloth, models/rl.py: eval_changes


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.yaml", "colour: blue", "x.yaml is no training configuration known here: its keys are colour; known: axolotl YAML"),
        ("x.yaml", "a: [1", "is not YAML: "),
        ("x.json", "{", "is not JSON: "),
        ("x.toml", "= 3", "is not TOML: "),
        ("x.yaml", "- 1", "holds list where keys and values were expected"),
        ("x.sh", "ls", "no flag"),
        ("x.yaml", LLAMA_FACTORY.replace("lora_rank: 16", "lora_rank: many"), "lora_rank is 'many'|size 'many'"),
        ("x.yaml", "base_model: x\n" + "a: " + "{b: " * 20 + "1" + "}" * 20, "nested deeper than 12 levels"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        read(tmp_path, name, text)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="cannot be read: No such file"):
        read_training_files((str(tmp_path / "none.yaml"),))
    (tmp_path / "big.yaml").write_text("a: 1\n" * 300_000)
    with pytest.raises(QuestionError, match=r"larger than 1\.0 MiB"):
        read_training_files((str(tmp_path / "big.yaml"),))


def test_keys_are_dotted_and_scored() -> None:
    assert flat({"a": {"b": 1, "c": {}}}) == {"a.b": 1, "a.c": {}}
    assert format_of({"finetuning_type": "lora", "per_device_train_batch_size": 1}, where="x") == "llama_factory"


@pytest.mark.parametrize(
    "keys",
    [
        {"finetuning_type": "full", "stage": "sft", "template": "qwen2_vl", "freeze_vision_tower": False},
        {"train_type": "full", "freeze_vit": False},
    ],
)
def test_a_tower_that_is_not_frozen_is_read(keys: dict[str, object]) -> None:
    settings = _read_mapping(keys, where="run.yaml")
    assert settings.get("options.freezes_towers") is False
    assert settings.unread == []


def test_trls_yaml_is_trls_and_its_engine_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 2\nnum_generations: 8\nmax_prompt_length: 512\n"
        "max_completion_length: 1024\nuse_vllm: true\nvllm_mode: colocate\nvllm_gpu_memory_utilization: 0.3\nbeta: 0.04\n"
    )
    found = read_training_files((str(file),))
    assert (found.get("framework"), found.get("options.task"), found.get("options.tenant")) == ("trl", "grpo", 0.3)
    assert not found.unread


def test_accelerates_launcher_flags_share_the_model(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(
        "accelerate launch --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --num_processes 8 train.py "
        "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 1\n"
    )
    found = read_training_files((str(file),))
    assert (found.get("zero"), found.get("gpus"), found.get("offload")) == (3, 8, ["optimizer"])
    assert found.get("framework") == "hf_trainer"
    assert not [name for name in found.unread if "zero" in name or "deepspeed" in name]


@pytest.mark.parametrize("keys", [("finetuning_type", "use_badam"), ("use_badam", "finetuning_type")])
def test_badam_stands_beside_full_training(keys: tuple[str, str]) -> None:
    given: dict[str, Any] = {"stage": "sft", "template": "qwen3", "per_device_train_batch_size": 1, "cutoff_len": 512}
    own = {"finetuning_type": "full", "use_badam": True}
    assert _read_mapping(given | {key: own[key] for key in keys}, where="a").get("method") == "badam"
    assert _read_mapping(given | own | {"use_badam": False}, where="a").get("method") == "full"


def test_the_default_of_a_kind_of_adapters_is_its_own() -> None:
    given = {"per_device_train_batch_size": 1, "output_dir": "x", "num_train_epochs": 1, "peft": {"type": "ia3"}}
    assert _read_mapping(given, where="a").get("adapter.targets") == ("k_proj", "v_proj", "down_proj")
