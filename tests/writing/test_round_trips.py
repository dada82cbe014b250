"""What is emitted asks, read back, the same question."""

from pathlib import Path

import msgspec
import pytest

from vramcast.asking.serving import serving_question
from vramcast.asking.training import training_question
from vramcast.errors import QuestionError, UnmodelledError
from vramcast.hardware.cards import least_card
from vramcast.models.reading import read_model
from vramcast.speed.training.step import training_speed
from vramcast.training.forecast import forecast_training
from vramcast.workload import Adapter, Parallel, Serving, Training
from vramcast.writing.serving.files import emitted as emitted_server
from vramcast.writing.training.files import emitted as emitted_training

SERVERS = (
    Serving(
        model="Qwen/Qwen3-32B-FP8", engine="vllm", gpu="h100-sxm5-80", gpus=4, context=32768, kv_dtype="fp8",
        parallel=Parallel(tp=4), options={"max_num_seqs": 64, "max_num_batched_tokens": 8192},
    ),
    Serving(
        model="Qwen/Qwen3-30B-A3B", engine="vllm", gpu="h100-sxm5-80", gpus=8, context=8192, quant="fp8",
        parallel=Parallel(tp=2, dp=4), options={"enable_expert_parallel": True, "max_num_seqs": 32},
    ),
    Serving(
        model="meta-llama/Llama-3.3-70B-Instruct", engine="sglang", gpu="h100-sxm5-80", gpus=8, context=128000, quant="fp8",
        kv_dtype="fp8_e4m3", parallel=Parallel(tp=4, pp=2), options={"chunked_prefill_size": 4096, "max_running_requests": 16},
    ),
    Serving(
        model="deepseek-ai/DeepSeek-V3", engine="sglang", gpu="h200", gpus=8, context=16384, parallel=Parallel(tp=8, ep=8),
        options={"enable_dp_attention": True, "dp_size": 8},
    ),
    Serving(
        model="Qwen/Qwen3-32B", engine="tensorrt_llm", gpu="h100-sxm5-80", gpus=4, context=32768, parallel=Parallel(tp=2, pp=2),
        options={"max_batch_size": 64, "max_num_tokens": 8192},
    ),
    Serving(
        model="Qwen/Qwen2.5-32B", engine="vllm", gpu="rtx-4090", gpus=2, context=4096, parallel=Parallel(tp=2),
        options={"cpu_offload_gb": 13, "max_num_seqs": 4},
    ),
    Serving(
        model="deepseek-ai/DeepSeek-V3", engine="vllm", gpu="h200-sxm", gpus=8, context=8192, parallel=Parallel(tp=8),
        options={"speculative_method": "mtp", "num_speculative_tokens": 2, "max_num_seqs": 8},
    ),
    Serving(
        model="Qwen3-30B-A3B", engine="llama_cpp", gpu="rtx-3060", gpus=1, context=4096, quant="Q4_K_M",
        options={"n_parallel": 1, "n_cpu_moe": 27},
    ),
    Serving(
        model="Llama-3.3-70B-Instruct", engine="llama_cpp", gpu="rtx-4090", gpus=1, context=4096, quant="Q4_K_M",
        options={"n_parallel": 1, "n_gpu_layers": 35},
    ),
    Serving(
        model="Qwen3-32B", engine="llama_cpp", gpu="rtx-4090", gpus=1, context=8192, quant="Q4_K_M", kv_dtype="q8_0",
        options={"n_parallel": 4},
    ),
)  # fmt: skip


def _told(question: Serving) -> dict:
    """What a line says of a question."""
    own = msgspec.to_builtins(question)
    kept = {name: own.get(name) for name in ("engine", "context", "quant", "kv_dtype", "parallel", "options")}
    kept["model"] = question.model.rpartition("/")[2] if question.engine == "llama_cpp" else question.model
    if question.engine == "llama_cpp":
        kept["quant"], kept["model"] = question.quant, kept["model"].removesuffix(".gguf").removesuffix(f"-{question.quant}")
        kept.pop("parallel")
        kept["options"] = {k: v for k, v in question.options.items() if not k.startswith("cache_type")}
        kept.pop("kv_dtype")
    return kept


@pytest.mark.parametrize("kind", ["line", "compose", "kubernetes"])
@pytest.mark.parametrize("question", SERVERS, ids=lambda q: f"{q.engine}-{q.model.rpartition('/')[2]}")
def test_servers(question: Serving, kind: str, tmp_path: Path) -> None:
    text = emitted_server(kind, question, told="from a plan")
    ending = {"line": "start.sh", "compose": "docker-compose.yml", "kubernetes": "server.yaml"}[kind]
    (tmp_path / ending).write_text(text)
    found = serving_question(str(tmp_path / ending), gpu=f"{question.gpu}x{question.gpus}").question
    assert _told(found) == _told(question)
    assert found.gpus == question.gpus


def test_several_replicas_are_told() -> None:
    assert emitted_server("line", SERVERS[0], replicas=3).startswith("# 3 servers")
    assert "replicas: 3" in emitted_server("compose", SERVERS[0], replicas=3)
    assert "replicas: 3" in emitted_server("kubernetes", SERVERS[0], replicas=3)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(QuestionError, match="unknown --emit 'helm2'"):
        emitted_server("helm2", SERVERS[0])


LLAMA = "meta-llama/Llama-3.1-70B"
RUNS = (
    ("torchtitan", "run.toml", Training(
        model=LLAMA, gpu="H100", gpus=64, framework="torchtitan", compile=True, checkpointing="full", micro_batch=2,
        accumulate=4, seq=8192, parallel=Parallel(tp=8, dp=8))),
    ("torchtitan", "run.toml", Training(
        model="Qwen/Qwen3-30B-A3B", gpu="H100", gpus=32, framework="torchtitan", compile=True, checkpointing="selective",
        micro_batch=1, accumulate=8, seq=4096, parallel=Parallel(pp=2, ep=8, dp=16))),
    ("megatron", "run.sh", Training(
        model=LLAMA, gpu="H100", gpus=64, framework="megatron", checkpointing="none", micro_batch=1, accumulate=32, seq=8192,
        parallel=Parallel(tp=4, pp=4, vpp=4, dp=4, sp=True))),
    ("megatron", "run.sh", Training(
        model=LLAMA, gpu="H100", gpus=64, framework="megatron", checkpointing="selective", micro_batch=1, accumulate=8, seq=8192,
        parallel=Parallel(tp=8, cp=2, dp=4, sp=True))),
    ("axolotl", "run.yml", Training(
        model="Qwen/Qwen2.5-7B", gpu="A100-80G", gpus=8, framework="axolotl", method="lora", adapter=Adapter(rank=16), zero=2,
        checkpointing="full", micro_batch=4, accumulate=2, seq=4096, optimizer="adamw", parallel=Parallel(dp=8))),
    ("axolotl", "run.yml", Training(
        model="Qwen/Qwen2.5-7B", gpu="A100-80G", gpus=8, framework="axolotl", fsdp=2, checkpointing="full", micro_batch=1,
        accumulate=4, seq=8192, optimizer="adamw", parallel=Parallel(dp=8))),
    ("llama_factory", "run.yaml", Training(
        model="Qwen/Qwen2.5-7B", gpu="A100-80G", gpus=8, framework="llama_factory", method="qlora", adapter=Adapter(rank=32),
        quant="nf4", checkpointing="full", micro_batch=2, accumulate=8, seq=2048, parallel=Parallel(dp=8))),
    ("llama_factory", "run.yaml", Training(
        model="Qwen/Qwen2.5-7B", gpu="A100-80G", gpus=8, framework="llama_factory", zero=3, checkpointing="none", micro_batch=1,
        accumulate=2, seq=4096, parallel=Parallel(dp=8))),
    ("deepspeed", "ds.json", Training(
        model="Qwen/Qwen2.5-7B", gpu="A100-80G", gpus=8, zero=3, offload=("optimizer",), checkpointing="full", micro_batch=2,
        accumulate=4, seq=4096, parallel=Parallel(dp=8))),
    ("accelerate", "acc.yaml", Training(
        model="Qwen/Qwen2.5-7B", gpu="A100-80G", gpus=8, fsdp=2, checkpointing="full", micro_batch=2, accumulate=4, seq=4096,
        parallel=Parallel(dp=8))),
    ("accelerate", "acc.yaml", Training(
        model="Qwen/Qwen2.5-7B", gpu="A100-80G", gpus=8, zero=2, checkpointing="none", micro_batch=2, accumulate=4, seq=4096,
        parallel=Parallel(dp=8))),
)  # fmt: skip
# What an accelerate or DeepSpeed file leaves to the script's own arguments.
LEFT = {
    "accelerate": ("micro_batch", "accumulate", "seq", "checkpointing", "framework"),
    "deepspeed": ("seq", "checkpointing", "framework"),
}


@pytest.mark.parametrize(("kind", "name", "question"), RUNS, ids=lambda v: v if isinstance(v, str) else "")
def test_trainings(kind: str, name: str, question: Training, tmp_path: Path) -> None:
    (tmp_path / name).write_text(
        emitted_training(kind, question, read_model(question.model), told="" if name.endswith("json") else "from a plan")
    )
    typed = {"seq": question.seq, "checkpointing": question.checkpointing} if kind in LEFT else {}
    asked = training_question(question.model, files=[tmp_path / name], gpu=f"{question.gpu}x{question.gpus}", **typed)
    found = asked.question
    for field in ("model", "framework", "method", "zero", "fsdp", "micro_batch", "accumulate", "seq", "checkpointing", "offload"):
        if field not in LEFT.get(kind, ()):
            same = {"op": "selective"} if kind == "torchtitan" else {}  # torchtitan's own name of what it saves
            assert same.get(getattr(found, field), getattr(found, field)) == getattr(question, field), field
    for axis in ("tp", "pp", "vpp", "cp", "ep", "dp"):
        assert getattr(found.parallel, axis) == getattr(question.parallel, axis), axis
    if kind in ("torchtitan", "megatron"):
        model, card = read_model(question.model), least_card("H100")
        ours, theirs = (forecast_training(one, model=model, card=card) for one in (question, found))
        assert theirs.worst.device_bytes == ours.worst.device_bytes
        assert training_speed(theirs, model, card).step_s == training_speed(ours, model, card).step_s
    if question.adapter:
        assert found.adapter and found.adapter.rank == question.adapter.rank


def test_megatrons_flags_hold_the_models_own_shape(tmp_path: Path) -> None:
    model = read_model(LLAMA)
    (tmp_path / "run.sh").write_text(emitted_training("megatron", RUNS[2][2], model))
    asked = training_question(None, files=[tmp_path / "run.sh"], gpu="H100x64")
    assert asked.model is not None and asked.model.parameters == pytest.approx(model.parameters, rel=1e-3)


def test_a_kind_for_another_framework_is_refused() -> None:
    with pytest.raises(QuestionError, match="writes what megatron runs"):
        emitted_training("megatron", RUNS[0][2], read_model(LLAMA))
    with pytest.raises(QuestionError, match="unknown --emit 'slurm'"):
        emitted_training("slurm", RUNS[0][2], read_model(LLAMA))


def test_a_draft_is_one_flag_of_vllm() -> None:
    options = {"speculative_method": "mtp", "num_speculative_tokens": 2}
    line = emitted_server("line", msgspec.structs.replace(SERVERS[0], options=options))
    assert '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 2}\'' in line
    assert serving_question(line, gpu="H100x4").question.options == options


def test_sglang_drafts_where_the_way_is_named() -> None:
    asked = Serving(model="deepseek-ai/DeepSeek-V3", gpu="H200", gpus=8, engine="sglang", parallel=Parallel(tp=8))
    line = emitted_server("line", msgspec.structs.replace(asked, options={"num_speculative_tokens": 2}))
    words = "--speculative-algorithm NEXTN --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3"
    assert words in " ".join(line.replace("\\", " ").split())
    assert serving_question(line, gpu="H200x8").question.options == {
        "speculative_algorithm": "NEXTN",
        "num_speculative_tokens": 2,
    }
    again = emitted_server("line", serving_question(line, gpu="H200x8").question)
    assert again.count("--speculative-algorithm") == 1
    other = msgspec.structs.replace(asked, model=LLAMA, options={"num_speculative_tokens": 2})
    assert "NEXTN" not in emitted_server("line", other)  # the draft model's path is not ours to name


def test_what_no_flag_says_is_not_put_into_a_line() -> None:
    with pytest.raises(UnmodelledError, match="vllm has no flag for engine_core"):
        emitted_server("line", msgspec.structs.replace(SERVERS[0], options={"engine_core": "V1"}))


def test_switches_of_llama_server_have_their_words() -> None:
    line = emitted_server(
        "line", msgspec.structs.replace(SERVERS[-1], options={"flash_attn": True, "fit": False, "n_parallel": 4})
    )
    assert "--flash-attn on" in line
    assert "--fit off" in line
    assert "-np 4" in line


def test_what_the_parsers_said_is_recorded() -> None:
    recorded = msgspec.json.decode((Path(__file__).parents[2] / "benchmarks/emitted/parsed.json").read_bytes())["parsers"]
    assert {one["parser"] for one in recorded} >= {"vllm", "sglang", "torchtitan", "accelerate", "axolotl", "llama_factory"}
    assert all(one["accepted"] == one["given"] > 0 for one in recorded)


def test_megatrons_uneven_stages_and_recomputed_modules_come_back(tmp_path: Path) -> None:
    from vramcast.reading.training.files import read_training_files
    from vramcast.training.stage_layouts import balanced_layout

    model = read_model("Qwen/Qwen3-235B-A22B")  # 94 layers
    written = balanced_layout(94, 16, 6)
    asked = Training(
        model=model.id, framework="megatron", gpus=64, seq=4096, micro_batch=1, accumulate=16, options={"stage_layout": written},
        parallel=Parallel(tp=2, pp=16, vpp=6, dp=2, sp=True), checkpointing="modules:layernorm+moe_act",
    )  # fmt: skip
    (tmp_path / "run.sh").write_text(emitted_training("megatron", asked, model))
    found = read_training_files((str(tmp_path / "run.sh"),)).values
    assert (found["options.stage_layout"], found["parallel.vpp"]) == (written, 6)
    assert found["checkpointing"] == "modules:layernorm+moe_act"


@pytest.mark.parametrize("dispatched", [{"dispatcher": "flex"}, {"dispatcher": "padded", "imbalance": 1.25}])
def test_what_a_layout_launches_comes_back(tmp_path: Path, dispatched: dict[str, object]) -> None:
    from vramcast.reading.training.files import read_training_files

    options = {"expert_tp": 1, "overlaps_tensor": True, **dispatched}
    layout = Parallel(tp=2, pp=2, ep=8, dp=16, sp=True)
    model = read_model("Qwen/Qwen3-235B-A22B")
    asked = Training(
        model=model.id, framework="megatron", gpus=64, seq=4096, micro_batch=1, accumulate=16, options=options, parallel=layout
    )
    (tmp_path / "run.sh").write_text(emitted_training("megatron", asked, model))
    found = read_training_files((str(tmp_path / "run.sh"),)).values
    assert {name: found[f"options.{name}"] for name in options} == options
    chunked = Training(
        model=LLAMA, framework="torchtitan", gpus=8, seq=4096, compile=True, parallel=Parallel(tp=8),
        options={"overlaps_tensor": True},
    )  # fmt: skip
    (tmp_path / "run.toml").write_text(emitted_training("torchtitan", chunked, read_model(LLAMA)))
    assert read_training_files((str(tmp_path / "run.toml"),)).values["options.overlaps_tensor"] is True
