"""Traced here and by PyTorch's own MemTracker: the same training steps on the same fake CUDA tensors, timed in one run.

    python benchmarks/tracing/against_memtracker.py [LAYERS]      (needs the [torch] extra)

Two AdamW steps of a decoder written in plain PyTorch, of an 8-billion-parameter Llama's width. Prints both peaks and seconds;
each traces one layer before, and both run with the garbage collector set as in the tracing process.
"""

import sys
import time

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.execution.garbage import settle
from vramcast.tracing.execution.session import Session
from vramcast.tracing.policies import DeviceModel
from vramcast.units import gib

HIDDEN, FEEDFORWARD, HEADS, VOCAB, SEQ = 4096, 14336, 32, 128256, 4096


class Layer(nn.Module):
    """Attention and a gated feed-forward, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.gate, self.up = nn.Linear(HIDDEN, FEEDFORWARD), nn.Linear(HIDDEN, FEEDFORWARD)
        self.down = nn.Linear(FEEDFORWARD, HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One layer."""
        parts = self.qkv(self.norms[0](x)).view(1, SEQ, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def build(layers: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The decoder in bf16 and its optimizer."""
    with torch.device("cuda"):
        model = nn.Sequential(nn.Embedding(VOCAB, HIDDEN), *(Layer() for _ in range(layers)), nn.Linear(HIDDEN, VOCAB)).bfloat16()
    return model, torch.optim.AdamW(model.parameters(), foreach=True)


def run(model: nn.Module, optimizer: torch.optim.Optimizer, tracker: MemTracker | None = None) -> None:
    """Two steps."""
    for _ in range(2):
        if tracker is not None:
            tracker.reset_mod_stats()
        ids = torch.zeros(1, SEQ, dtype=torch.long, device="cuda")
        nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


def ours(session: Session, layers: int) -> int:
    """Peak of requested bytes without library workspaces."""
    with session.recording():
        run(*build(layers))
    log = session.recorder.log
    return replay(log.without(n for n, a in enumerate(log.allocations, 1) if a.category == "workspace")).peak_requested_bytes


def theirs(session: Session, layers: int) -> int:
    """MemTracker's peak on the device."""
    with session.backend.mode:
        model, optimizer = build(layers)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            run(model, optimizer, tracker)
    peaks = tracker.get_tracker_snapshot("peak")
    return max(snapshot["Total"] for device, snapshot in peaks.items() if device.type == "cuda")


def main(layers: int) -> None:
    """Print the two lines and their ratio."""
    session, seconds = Session(backend="cuda", device=DeviceModel()), []
    settle()
    for name, measure in (("vramcast", ours), ("MemTracker", theirs)):
        measure(session, 1)  # what either imports and caches at its first operators is not timed
        session.restart()
        started = time.perf_counter()
        peak = measure(session, layers)
        seconds.append(time.perf_counter() - started)
        print(f"{name:12} {peak:>18,} B {gib(peak):>12} {seconds[-1]:8.2f} s", flush=True)
    print(f"torch {torch.__version__}, {layers} layers: MemTracker takes {seconds[1] / seconds[0]:.1f} x the time")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
