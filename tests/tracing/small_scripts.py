"""A small script and its trace: what the tests of scripts share."""

from pathlib import Path

from vramcast.planning.tracing.answer import Traced, trace_program

STEPS = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    loss = model(torch.randn(4, 64, device="cuda")).sum()
    loss.backward()
    optimizer.step()
"""


def trace_text(folder: Path, text: str, *, gpu: str = "H100", **options: object) -> Traced:
    """The trace of a script of that text, written into the folder."""
    script = folder / "train.py"
    script.write_text(text)
    return trace_program((str(script),), gpu=gpu, **options)  # type: ignore[arg-type]


def trace_without_hub(folder: Path, text: str) -> Traced:
    """The same where no hub is reached and none is cached."""
    return trace_text(folder, text, environment={"HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1"})
