"""What libraries ask a GPU build for: parts of SyncBatchNorm, least squares, its description; and pictures from the network."""

from pathlib import Path

import pytest

from vramcast.tracing.request import ScriptRequest
from vramcast.tracing.run import trace_script

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

STEPS = """
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    out(model).backward()
    optimizer.step()
"""
SYNCED = """
import os, torch
assert "CUDA" in torch.__config__.show()
assert os.popen("stty size").read().split() == ["24", "80"]
torch.distributed.init_process_group("nccl")
model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.Conv2d(64, 8, 1)).cuda()
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
out = lambda model: model(torch.randn(16, 3, 66, 66, device="cuda")).sum()
"""
FITTED = """
import torch
knots = torch.randn(256, 300, 12)
values = torch.randn(256, 300, 64)
model = torch.nn.Linear(64, 12).cuda()
model.weight.data.copy_(torch.linalg.lstsq(knots, values).solution[0])
on_card = torch.linalg.lstsq(knots.cuda(), values.cuda()).solution
assert on_card.shape == (256, 12, 64)
out = lambda model: model(on_card[:, 0]).sum()
"""
FETCHED = """
import torch, torchvision
pictures = torchvision.datasets.CIFAR10({root!r}, download=True, transform=torchvision.transforms.ToTensor())
digits = torchvision.datasets.MNIST({root!r}, download=True, train=False)
assert len(torchvision.datasets.MNIST({root!r})) == 60_000
assert (len(pictures), len(digits)) == (50_000, 10_000)
picture, label = pictures[7]
model = torch.nn.Linear(picture.numel(), 10).cuda()
out = lambda model: model(picture.reshape(1, -1).cuda()).sum()
"""

WRITTEN = """
import torch
lengths, one = torch.empty(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
lengths.copy_(torch.tensor([3, 700, 9], device="cuda"))
one[1] = torch.tensor(500, device="cuda")
assert (lengths.tolist(), one.tolist()) == ([3, 700, 9], [0, 500, 0])
unknown = torch.empty(4)
unknown.copy_(torch.randn(4, device="cuda"))
assert unknown.tolist() == [1.0] * 4
model = torch.nn.Linear(8, 8).cuda()
out = lambda model: model(torch.zeros(1, 8, device="cuda")).sum()
"""
HISTORY = """
import torch
model = torch.nn.Linear(512, 512, bias=False).cuda()
optimizer = torch.optim.LBFGS(model.parameters(), history_size=4, max_iter=500, {search})
before = dict(optimizer.param_groups[0])
def closure():
    optimizer.zero_grad()
    loss = model(torch.zeros(1, 512, device="cuda")).sum()
    loss.backward()
    return loss
optimizer.step(closure)
assert optimizer.param_groups[0] == before
state = optimizer.state[model.weight]
assert (len(state["old_dirs"]), len(state["old_stps"]), state["n_iter"]) == (4, 4, {iterations})
for _ in range(3):
    optimizer.step(closure)
"""


def _sizes(text: str, folder: Path, ranks: int = 1) -> tuple[list[int], tuple[str, ...]]:
    script = folder / "train.py"
    script.write_text(text + STEPS)
    result = trace_script(ScriptRequest(argv=(str(script),), ranks=ranks, launched=ranks > 1))
    assert (result.error, result.steps) == ("", 2)
    return [a.size for a in result.log.allocations], result.notes


def test_synchronised_norms_make_what_their_kernels_make(tmp_path: Path) -> None:
    sizes, _ = _sizes(SYNCED, tmp_path, ranks=2)
    feature_map = 16 * 64 * 64 * 64 * 4
    assert sizes.count(feature_map) == 2 * 4  # of each step: the convolution's, the norm's, and a gradient of each


def test_least_squares_on_the_host_and_on_the_card(tmp_path: Path) -> None:
    sizes, _ = _sizes(FITTED, tmp_path)
    assert 256 * 12 * 64 * 4 in sizes


def test_host_tensors_hold_what_a_card_s_tensor_is_known_to_hold(tmp_path: Path) -> None:
    _sizes(WRITTEN, tmp_path)


@pytest.mark.parametrize("search", ["", "line_search_fn='strong_wolfe'"])
def test_lbfgs_fills_its_history(tmp_path: Path, search: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(HISTORY.format(search=search, iterations=6))
    result = trace_script(ScriptRequest(argv=(str(script),)))
    assert (result.error, result.steps) == ("", 2)
    assert any(note.startswith("LBFGS makes 6 iterations") for note in result.notes)


def test_pictures_that_cannot_be_fetched_are_made_up_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    _, notes = _sizes(FETCHED.format(root=str(tmp_path)), tmp_path)
    assert set(notes) == {f"{name} is not here: its pictures are made up" for name in ("CIFAR10", "MNIST")}
