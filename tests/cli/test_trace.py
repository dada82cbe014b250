"""``vramcast trace``: what it accepts, and what it refuses before anything runs."""

from pathlib import Path

import msgspec
import pytest

from vramcast.asking.training import MOMENTS
from vramcast.cli import run
from vramcast.cli.trace import command
from vramcast.cli.train import command as train_command


def test_it_takes_the_flags_of_train_that_describe_a_step() -> None:
    own = {p.name for p in command.params}
    assert {"optimizer", "micro_batch", "seq", "checkpointing", "rank", "fsdp", "capacity", "timeline"} <= own
    assert {p.name for p in train_command.params} - own == {"axes", "sweep", "plot", "list_options", "explain", "loss", *MOMENTS}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "python", "nowhere.py"], "there is no script 'nowhere.py'"),
        (["--", "bash", "train.sh"], "names no script: write vramcast trace -- python train.py"),
        (["meta-llama/Llama-3.1-8B", "--framework", "megatron", "--gpu", "H100x2"], "Megatron's layers are its own"),
        (["meta-llama/Llama-3.1-8B", "--alloc-conf", "expandable:True"], "unknown allocator option 'expandable'"),
        (["meta-llama/Llama-3.1-8B", "--limits"], "limits of which card? name it with --gpu, or give --capacity 24GiB"),
        (
            ["--limits", "--gpu", "H100", "--", "python", "train.py"],
            "--limits says nothing to a script",
        ),
        (["meta-llama/Llama-3.1-8B", "--timeline", "step.gif"], "not 'step.gif'"),
        (["meta-llama/Llama-3.1-8B", "--timeline", "/no/such/folder/step.png"], "the folder of '/no/such/folder/step.png'"),
        (["deepseek-ai/DeepSeek-V3"], "trace its own folder or config.json"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_the_next_step(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert run(["trace", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.torch
def test_a_library_that_is_missing_is_named_with_its_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "bitsandbytes.py").write_text("raise ModuleNotFoundError(\"No module named 'bitsandbytes'\")\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run(["trace", "Qwen/Qwen2.5-0.5B", "--seq", "128", "--optimizer", "adamw_8bit"]) == 3
    assert "tracing this needs bitsandbytes: pip install bitsandbytes" in capsys.readouterr().err


@pytest.mark.torch
def test_a_small_model_is_traced_beside_its_forecast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "intermediate_size": 704,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "hidden_act": "silu",
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    timeline = tmp_path / "step.pickle"
    flags = [
        "--seq",
        "512",
        "--gpu",
        "H100",
        "--capacity",
        "24GiB",
        "--timeline",
        str(timeline),
        "--remedies",
        "--limits",
        "--json",
    ]
    assert run(["trace", str(tmp_path), *flags]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    rank, trace = found["memory"]["per_gpu"][0], found["trace"]
    assert found["schema"] == "vramcast/1"
    assert rank["allocated_bytes"] == trace["usage"]["peak_allocated_bytes"]
    assert trace["under_capacity"]["failed_at"] is None
    remedies = {row["change"]: row for row in trace["remedies"]}
    assert remedies["--checkpointing full"]["how"] == "traced"
    assert all(row["saves_bytes"] + row["reserved_bytes"] == rank["reserved_bytes"] for row in remedies.values())
    limits = trace["limits"]
    assert found["limits"]["max_micro_batch"] == limits["max_micro_batch"] > 100
    assert all(check["traced_bytes"] <= limits["room_bytes"] < 24 * 2**30 for check in limits["checks"])
    beside = {row["name"]: row for row in trace["beside_forecast"]}
    assert beside["weights"]["traced_bytes"] == pytest.approx(beside["weights"]["forecast_bytes"], rel=0.01)
    assert run(["explain", str(timeline)]) == 0
    assert "Peak:" in capsys.readouterr().out


@pytest.mark.torch
@pytest.mark.parametrize("more", [[], ["--experts", "4", "--expert-ffn", "32"]], ids=["dense", "experts"])
def test_a_shape_given_by_numbers_is_traced(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    shape = ["--layers", "2", "--hidden", "64", "--heads", "4", "--ffn", "128", "--vocab", "100", "--seq", "32"]
    assert run(["trace", *shape, *more, "--json"]) == 0
    assert msgspec.json.decode(capsys.readouterr().out)["model"]["layers"] == 2
