"""The callback in Lightning's own Trainer on the CPU; skipped where Lightning is not installed. Its words are tested anyway."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vramcast.units import GiB

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
pytestmark = pytest.mark.torch

SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128}


@pytest.fixture
def peak_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The callback's class: on Lightning's own base where that is installed, else on an empty one."""
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError:
        stand_in = ModuleType("lightning.pytorch")
        stand_in.Callback = type("Callback", (), {})
        monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
        monkeypatch.setitem(sys.modules, "lightning.pytorch", stand_in)
        monkeypatch.delitem(sys.modules, "vramcast.callbacks.lightning", raising=False)
    import vramcast.callbacks

    yield vramcast.callbacks.LightningPeak
    if "lightning.pytorch" in sys.modules and not hasattr(sys.modules["lightning.pytorch"], "Trainer"):
        sys.modules.pop("vramcast.callbacks.lightning", None)


def told(peak: Any, *, strategy: str = "SingleDeviceStrategy", config: Any = None, **trainer: Any) -> Any:
    """What a callback makes of a trainer that is done, a module with a transformers model and one batch of 2 x 48."""
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE))
    own = SimpleNamespace(
        accumulate_grad_batches=4, precision="bf16-mixed", world_size=1, is_global_zero=True,
        strategy=type(strategy, (), {"config": config})(),
    )  # fmt: skip
    vars(own).update(trainer)
    module = SimpleNamespace(model=model)
    peak.on_fit_start(own, module)
    peak.on_train_batch_start(own, module, {"input_ids": torch.zeros(2, 48, dtype=torch.long)}, 0)
    peak.on_fit_end(own, module)
    return peak.beside


def test_the_run_is_read_from_the_trainer_and_the_module(peak_class: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(peak_class(gpu="L4"))
    own = found.question
    assert (own.seq, own.micro_batch, own.accumulate, own.gpu, own.framework) == (48, 2, 4, "l4", "pytorch")
    assert (own.compute_dtype, own.param_dtype) == ("bfloat16", "float32")
    assert found.forecast["allocated"] > 0
    assert "forecast" in capsys.readouterr().err


def test_what_is_said_wins(peak_class: Any) -> None:
    found = told(peak_class("Qwen/Qwen2.5-0.5B", gpu="L4", method="lora", rank=8, seq=1024))
    assert (found.question.model, found.question.method, found.question.seq) == ("Qwen/Qwen2.5-0.5B", "lora", 1024)


@pytest.mark.parametrize(
    ("strategy", "config", "field", "value"),
    [
        ("FSDPStrategy", None, "fsdp", 1),
        ("ModelParallelStrategy", None, "fsdp", 2),
        ("DeepSpeedStrategy", {"zero_optimization": {"stage": 3}}, "zero", 3),
    ],
)
def test_strategies_are_read(peak_class: Any, strategy: str, config: Any, field: str, value: int) -> None:
    found = told(peak_class(gpu="L4"), strategy=strategy, config=config, world_size=4)
    assert getattr(found.question, field) == value
    assert found.question.gpus == 4


def test_a_module_without_a_model_is_told_what_to_say(peak_class: Any, capsys: pytest.CaptureFixture[str]) -> None:
    peak = peak_class(gpu="L4")
    trainer = SimpleNamespace(
        is_global_zero=True, accumulate_grad_batches=1, world_size=1, precision="32-true", strategy=object()
    )
    peak.on_fit_end(trainer, SimpleNamespace())
    assert peak.beside is None
    assert "LightningPeak('Qwen/Qwen3-8B')" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_in_lightnings_own_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    from vramcast.callbacks import LightningPeak

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = hf.LlamaForCausalLM(hf.LlamaConfig(**SHAPE))

        def training_step(self, batch: Any, index: int) -> Any:
            return self.model(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    rows = [{"input_ids": torch.zeros(3, 16, dtype=torch.long), "labels": torch.zeros(3, 16, dtype=torch.long)}] * 2
    stats = {f"{name}_bytes.all.{when}": 2 * GiB for name in ("allocated", "active", "reserved") for when in ("peak", "current")}
    peak = LightningPeak(cases=tmp_path / "runs.jsonl", gpu="L4")
    trainer = pl.Trainer(
        max_steps=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, callbacks=[peak],
        default_root_dir=tmp_path, enable_model_summary=False,
    )  # fmt: skip
    for name, value in {"is_initialized": lambda: True, "current_device": lambda: 0, "synchronize": lambda *_: None,
                        "reset_peak_memory_stats": lambda *_: None, "memory_stats": lambda *_: stats}.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    trainer.fit(Module(), torch.utils.data.DataLoader(rows, batch_size=None))
    assert peak.beside is not None and peak.beside.measured["allocated"] == 2 * GiB
    assert (peak.beside.question.seq, peak.beside.question.micro_batch) == (16, 3)
    assert (tmp_path / "runs.jsonl").exists()
