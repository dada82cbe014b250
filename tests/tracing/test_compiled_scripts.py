"""torch.compile in a user's script: graphs as AOTAutograd cuts them where they can be made, else the eager step."""

from pathlib import Path

import pytest

from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.request import ScriptRequest, TraceResult
from vramcast.tracing.run import trace_script

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

SCRIPT = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.head = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 30_000)
        self.register_buffer("scale", torch.ones(4096))
        {made}

    def forward(self, x, y):
        h = F.gelu(self.up(x)).square().sigmoid() * self.scale
        loss = F.cross_entropy(self.head(h).float(), y)
        {kept}
        return loss

model = Model().cuda().bfloat16()
{compiled}
optimizer = torch.optim.AdamW(model.parameters())
while True:
    loss = model(torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16), torch.randint(0, 9, (2048,), device="cuda"))
    {used}.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
WHOLE = "model = torch.compile(model)"


def _traced(folder: Path, *, compiled: str = "", made: str = "pass", kept: str = "pass", used: str = "loss") -> TraceResult:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(compiled=compiled, made=made, kept=kept, used=used))
    result = trace_script(ScriptRequest(argv=(str(script),)))
    assert (result.error, result.steps) == ("", 2)
    return result


@pytest.mark.parametrize("compiled", [WHOLE, "model.compile()"])
def test_a_compiled_model_holds_no_float_logits(compiled: str, tmp_path: Path) -> None:
    eager, fused = _traced(tmp_path), _traced(tmp_path, compiled=compiled)
    logits = 2048 * 30_000 * 4
    saved = replay(eager.log).peak_allocated_bytes - replay(fused.log).peak_allocated_bytes
    assert saved >= logits
    assert eager.notes == ()
    assert [note.startswith("torch.compile was asked for: its graphs are cut") for note in fused.notes] == [True]


def test_a_model_that_leaves_its_loss_aside_runs_as_it_is(tmp_path: Path) -> None:
    plain = _traced(tmp_path, kept="self.last = loss", used="model.last")
    result = _traced(tmp_path, compiled=WHOLE, kept="self.last = loss", used="model.last")
    assert any("Model was traced without it" in note for note in result.notes)
    assert replay(result.log).peak_allocated_bytes == replay(plain.log).peak_allocated_bytes


def test_a_table_that_a_model_keeps_for_later_does_not_stop_it(tmp_path: Path) -> None:
    kept = "self.table = x.detach().float() if self.table is None else self.table"
    result = _traced(tmp_path, compiled=WHOLE, made="self.table = None", kept=kept)
    assert any("its graphs are cut" in note for note in result.notes)


def test_a_function_that_uses_what_it_is_not_given_runs_as_it_is(tmp_path: Path) -> None:
    result = _traced(tmp_path, compiled="forward = model.forward\nmodel.forward = torch.compile(lambda x, y: forward(x, y))")
    assert any("<lambda> was traced without it" in note for note in result.notes)
