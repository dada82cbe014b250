"""A torch without a symbol that the tracer needs: meta tensors where they do, else the forecast, and always the symbol's name."""

from pathlib import Path

import msgspec
import pytest

from vramcast.cli import run
from vramcast.errors import UntraceableError
from vramcast.tracing.request import ScriptRequest, TraceRequest
from vramcast.tracing.run import trace, trace_script
from vramcast.workload import Adapter

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("peft")

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip
_REMOVER = """
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != {module!r}:
            return None
        spec = PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        def without(module):
            execute(module)
            del module.{symbol}
        spec.loader.exec_module = without
        return spec

sys.meta_path.insert(0, Without())
"""


def _without(module: str, symbol: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python processes started from here on find a torch that has lost a symbol."""
    (folder / "sitecustomize.py").write_text(_REMOVER.format(module=module, symbol=symbol))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")


def test_without_what_only_fake_cuda_needs_a_step_is_traced_on_meta_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without("torch", "_C._ensureCUDADeviceGuardSet", tmp_path, monkeypatch)
    result = trace(TraceRequest(config=LLAMA, seq=64, adapter=Adapter(rank=4)))
    assert (result.error, result.steps, result.backend) == ("", 2, "meta")
    assert "traced on meta tensors: torch 2." in result.notes[0]
    assert "_ensureCUDADeviceGuardSet" in result.notes[0]
    with pytest.raises(UntraceableError, match="_ensureCUDADeviceGuardSet"):  # no fused update on meta tensors
        trace(TraceRequest(config=LLAMA, seq=64, optimizer="adamw_fused"))


def test_a_missing_symbol_is_named_and_the_forecast_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    _without("torch.optim.optimizer", "_foreach_supported_types", tmp_path, monkeypatch)
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(LLAMA))
    assert run(["trace", str(tmp_path / "config.json"), "--seq", "64", "--framework", "pytorch", "--json"]) == 0
    answer = msgspec.json.decode(capsysbinary.readouterr().out)
    assert "trace" not in answer and answer["memory"]["per_gpu"][0]["allocated_bytes"] > 0
    reason = answer["unmodelled"][0]["what"]
    assert reason.startswith("forecast, not traced: torch 2.") and "_foreach_supported_types" in reason
    assert reason.endswith("it works with torch 2.13 and transformers 5.23")
    with pytest.raises(UntraceableError, match="_foreach_supported_types"):
        trace_script(ScriptRequest(argv=(__file__,)))


def test_libraries_without_room_for_the_tracer_at_all_are_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without("torch._subclasses.fake_tensor", "in_kernel_invocation_manager", tmp_path, monkeypatch)
    with pytest.raises(UntraceableError, match="cannot import name 'in_kernel_invocation_manager'"):
        trace(TraceRequest(config=LLAMA, seq=64))
