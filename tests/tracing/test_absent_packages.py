"""Scripts that import what is not installed, ask an older NumPy, start their own ranks, or want a network."""

from pathlib import Path
from urllib.error import URLError

import pytest
from small_scripts import STEPS, trace_text

from vramcast.planning.tracing.answer import Traced
from vramcast.tracing.execution.advice import without_network

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


def _notes(traced: Traced) -> str:
    return "\n".join(traced.result.notes)


def test_recorders_that_are_not_installed_take_everything(tmp_path: Path) -> None:
    text = """
import torch
import comet_ml
from neptune.utils import stringify
run = comet_ml.Experiment(project_name="x")
with run.train() as part:
    part["loss"] = 1.0
    run.log_metric("loss", 1.0, step=1)
@comet_ml.decorated
def own():
    return 5
assert own() == 5 and list(run.items) == []
"""
    traced = trace_text(tmp_path, text + STEPS)
    assert (traced.result.error, traced.result.steps) == ("", 2)
    assert "comet_ml is not installed: what the script records with it goes nowhere" in _notes(traced)


def test_an_import_in_a_try_fails_as_it_would(tmp_path: Path) -> None:
    text = """
import importlib.util, torch
try:
    import comet_ml
except ImportError:
    comet_ml = None
try:
    from xformers.ops import memory_efficient_attention
except ImportError:
    memory_efficient_attention = None
try:
    from flash_attn import flash_attn_of_the_future
except ImportError:
    flash_attn_of_the_future = None
assert (comet_ml, memory_efficient_attention, flash_attn_of_the_future) == (None, None, None)
assert importlib.util.find_spec("comet_ml") is None and importlib.util.find_spec("xformers") is None
"""
    traced = trace_text(tmp_path, text + STEPS)
    assert (traced.result.error, "not installed" in _notes(traced)) == ("", False)


def test_what_a_stand_in_does_not_hold_is_refused_when_it_is_called(tmp_path: Path) -> None:
    traced = trace_text(
        tmp_path, "from flash_attn.flash_attn_interface import _flash_attn_backward as f\nimport torch\nf(1)\n" + STEPS
    )
    assert "flash_attn.flash_attn_interface._flash_attn_backward is compiled for a GPU and is not traced" in traced.result.error


def test_mpi_is_one_process_of_as_many_as_were_started(tmp_path: Path) -> None:
    text = """
import os, torch
from mpi4py import MPI
world = MPI.COMM_WORLD
assert (world.Get_rank(), world.Get_size(), world.bcast("a"), world.gather(3)) == (0, 4, "a", [3] * 4)
assert os.environ["COLOUR"] == "red blue"
"""
    traced = trace_text(tmp_path, text + STEPS, processes=4, environment={"COLOUR": "red blue"})
    assert traced.result.error == ""


def test_names_of_an_older_numpy_are_answered(tmp_path: Path) -> None:
    traced = trace_text(
        tmp_path, "import numpy as np, torch\nassert np.Inf > np.float(3)\nassert np.float_ is np.float64\n" + STEPS
    )
    assert traced.result.error == ""
    assert "np.Inf is gone from NumPy" in _notes(traced)


XFORMERS = """
import torch
from xformers.ops import LowerTriangularMask, SwiGLU, memory_efficient_attention, unbind
packed = torch.randn(2, 128, 3, 4, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
memory_efficient_attention(*unbind(packed, 2), attn_bias=LowerTriangularMask()).sum().backward()
wide = packed.detach().float()
memory_efficient_attention(*wide.unbind(2), attn_bias=torch.zeros(2, 4, 128, 128, device="cuda"))
layer = SwiGLU(32, 64, bias=False).cuda()
layer(torch.randn(4, 32, device="cuda")).sum().backward()
"""


def test_the_attention_of_xformers_is_flash_where_it_can_be(tmp_path: Path) -> None:
    traced = trace_text(tmp_path, XFORMERS + STEPS)
    assert traced.result.error == ""
    made = [a.op for a in traced.result.log.allocations]
    assert any("_flash_attention_forward" in op for op in made)
    assert any("_efficient_attention_forward" in op for op in made)


RANKS = """
import multiprocessing, torch
def main(rank, queue=None):
    model = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 512, device="cuda")).sum().backward()
        optimizer.step()
def answer(queue):
    queue.put(3)
if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    queue = multiprocessing.Queue()
    helper = multiprocessing.Process(target=answer, args=(queue,))
    helper.start()
    assert queue.get(timeout=600) == 3
    ranks = [multiprocessing.Process(target=main, args=(rank,)) for rank in range(2)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
"""


def test_the_first_rank_that_a_script_starts_runs_here(tmp_path: Path) -> None:
    traced = trace_text(tmp_path, RANKS, steps=3)
    assert (traced.result.error, traced.result.steps) == ("", 2)
    assert "main runs here, as the first of the processes that the script starts for it" in _notes(traced)


SPARSE = """
import torch
table, head = torch.nn.EmbeddingBag(1000, 64, mode="sum", sparse=True).cuda(), torch.nn.Linear(64, 1).cuda()
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], 0.1)
for _ in range(2):
    optimizer.zero_grad()
    rows, starts = torch.randint(0, 1000, (256,)).cuda(), torch.arange(0, 256, 4).cuda()
    head(table(rows, starts)).sum().backward()
    optimizer.step()
"""


def test_a_sparse_gradient_is_its_places_and_values(tmp_path: Path) -> None:
    traced = trace_text(tmp_path, SPARSE)
    assert (traced.result.error, traced.result.steps) == ("", 2)
    assert any(a.size == 256 * 64 * 4 and a.phase == "backward" for a in traced.result.log.allocations)


UNIQUE = """
import torch
codes = torch.nn.Linear(64, 8).cuda()(torch.randn(4, 64, device="cuda")).argmin(-1) + torch.randint(0, 9, (4,), device="cuda")
values, places, counts = (codes * torch.randn(4, device="cuda").long()).unique(return_inverse=True, return_counts=True)
assert len(values) == len(counts) == places.numel() == 4
"""


def test_of_values_that_nobody_knows_all_differ(tmp_path: Path) -> None:
    traced = trace_text(tmp_path, UNIQUE + STEPS)
    assert (traced.result.error, traced.result.steps) == ("", 2)
    assert any("unique" in where for where in traced.result.guessed)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (OSError("We couldn't connect to 'https://huggingface.co' to load 'a/model'"), "hf download a/model --local-dir DIR"),
        (URLError("no route to https://x.org/a.zip"), "fetch https://x.org/a.zip once"),
        (ValueError("plain"), ""),
    ],
)
def test_a_script_without_its_network_is_told_what_makes_it_local(failure: Exception, said: str) -> None:
    told = without_network(failure)
    assert said in told
    assert bool(told) == bool(said)


def test_the_programs_own_package_is_taken_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownlib").mkdir()
    (tmp_path / "ownlib" / "__init__.py").write_text("")
    (tmp_path / "ownlib" / "parts.py").write_text("VALUE = 3\n")
    (tmp_path / "scripts").mkdir()
    monkeypatch.chdir(tmp_path)
    traced = trace_text(tmp_path / "scripts", "from ownlib.parts import VALUE\nassert VALUE == 3\n" + STEPS)
    assert (traced.result.error, traced.result.steps) == ("", 2)
    assert f"ownlib is not installed: taken from the program's own folder {tmp_path}" in _notes(traced)
