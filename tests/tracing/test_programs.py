"""What programs do around their step: loaders, formatting, their own instruments, checkpoints, meshes; honest ends."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_scripts import trace_text

from vramcast.cli.trace import command
from vramcast.planning.tracing.answer import Traced, trace_program

pytestmark = pytest.mark.torch
pytest.importorskip("torch")


def _traced(folder: Path, text: str, **options: object) -> Traced:
    return trace_text(folder, text, gpu="RTX 4090", **options)


INVENTORY = """
import inspect, torch
failed = []
for module in (torch.cuda, torch.cuda.memory, torch.accelerator, torch.cuda.random, torch.backends.cuda):
    for name in dir(module):
        function = getattr(module, name)
        if name.startswith("_") or not (inspect.isfunction(function) or inspect.isbuiltin(function)):
            continue
        try:
            taken = inspect.signature(function).parameters.values()
        except (ValueError, TypeError):
            continue
        if any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in taken):
            continue
        try:
            function()
        except Exception as error:
            failed.append(f"{module.__name__}.{name}: {error!r}")
for call in (
    lambda: torch.cuda.max_memory_allocated(device=0), lambda: torch.cuda.current_stream(device=0),
    lambda: torch.cuda.get_rng_state(device=0), lambda: torch.cuda.memory_stats()["allocated_bytes.all.peak"],
    lambda: torch.cuda.memory._record_memory_history(max_entries=10), lambda: torch.cuda.set_per_process_memory_fraction(0.5),
    lambda: torch.cuda.nvtx.range_push("a"), lambda: torch.cuda.cudart().cudaProfilerStart(), lambda: torch.cuda.profiler.start(),
    lambda: torch.cuda.can_device_access_peer(0, 0), lambda: torch.cuda.get_device_properties(0).shared_memory_per_block,
    lambda: torch.Generator(device="cuda").manual_seed(1), lambda: torch.nn.init.trunc_normal_(torch.empty(300, 300)),
    lambda: torch.randn(300, 300).mean().item(),
):
    try:
        call()
    except Exception as error:
        failed.append(repr(error))
assert not failed, failed
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_every_function_of_torch_cuda_that_takes_nothing_is_answered(tmp_path: Path) -> None:
    assert _traced(tmp_path, INVENTORY).result.error == ""


LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 128), torch.randint(0, 10, (64,)))
model = torch.nn.Sequential(torch.nn.Linear(128, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
best = 1e9
for step, (x, y) in enumerate(DataLoader(data, batch_size=8, num_workers=1, pin_memory=True)):
    torch.cuda.reset_peak_memory_stats()
    logits = model(x.cuda(non_blocking=True))
    loss = torch.nn.functional.cross_entropy(logits, y.cuda())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert loss < 1e4 and torch.isfinite(loss) and not torch.isnan(logits).any() and not norm > 100
    line = f"step {step} loss {loss:.4f} norm {norm.item():.2f} {loss:>8.3f}"
    held, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(device="cuda:0")
    assert 0 < held <= peak <= torch.cuda.max_memory_reserved(), (held, peak)
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == held
    with torch.no_grad():
        kept = torch.topk(logits, 3)[0]
        logits[logits < kept[:, [-1]]] = -float("inf")
        assert logits[logits > 0].dim() == 1
    if loss.item() < best:
        best = loss.item()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "best.pt")
    found = torch.load("best.pt", map_location="cuda")
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
"""


AROUND = """
import subprocess, torch
listed = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=True).stdout
asked = subprocess.run(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"], capture_output=True, text=True)
assert "4090" in listed and "4090" in asked.stdout and asked.stdout.strip().endswith("MiB"), (listed, asked)
import pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetMemoryInfo(card).total == torch.cuda.get_device_properties(0).total_memory
from flash_attn_interface import flash_attn_func
queries = torch.randn(2, 64, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
out, sums = flash_attn_func(queries, queries, queries, causal=True, return_softmax_lse=True)
assert (out.shape, sums.shape) == (queries.shape, (2, 4, 64))
out.sum().backward()
assert isinstance(torch.cuda.FloatTensor(2, 3), torch.cuda.FloatTensor) and torch.ones(2, device="cuda").new(4).shape == (4,)
assert torch.cuda.LongTensor([1, 2]).tolist() == [1, 2] and not isinstance(torch.ones(2), torch.cuda.FloatTensor)
assert torch.ones(2).type(torch.cuda.HalfTensor).type() == "torch.cuda.HalfTensor"
assert torch.ones(2).type("torch.cuda.HalfTensor").type() == "torch.cuda.HalfTensor"
assert torch.ones(2).type(torch.float64).dtype == torch.float64 and torch.ones(2).type() == "torch.FloatTensor"
table, rows = torch.ones(8, 4, device="cuda"), torch.arange(8) < 3
table[rows] = torch.zeros(8, 4, device="cuda")[rows]
assert table[rows].shape == (3, 4)
torch.nn.Linear(2, 2).load_state_dict(torch.hub.load_state_dict_from_url("http://localhost:9/weights.pth")["model"])
launch = torch.cuda._compile_kernel("source", "name", compute_capability="90")
launch.set_shared_memory_config(100)
launch((1, 1, 1), (128, 1, 1), (queries,))
model = torch.nn.Linear(4100, 4100)
model.weight.rate = 0.1
model.cuda()
assert model.weight.rate == 0.1 and model.weight.is_cuda
assert model.weight.detach().cpu().numpy().shape == (4100, 4100)
with open("model.pt", "wb") as file:
    torch.save(model, file)
with open("model.pt", "rb") as file:
    again = torch.load(file, weights_only=False)
assert again.weight.shape == model.weight.shape
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.randn(2, 4100, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_what_programs_do_around_their_steps_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pynvml")
    monkeypatch.chdir(tmp_path)
    assert _traced(tmp_path, AROUND).result.error == ""


HUB = """
import importlib.util
import kernels, evaluate
assert importlib.util.find_spec("evaluate")
flash = kernels.get_kernel("kernels-community/flash-attn3", version=1).flash_attn_interface
assert flash.flash_attn_func
try:
    kernels.get_kernel("someone/other")
except ImportError as refused:
    assert "someone/other is compiled for a GPU" in str(refused)
import torch
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
metric = evaluate.load("accuracy")
metric.add_batch(predictions=[1], references=[1])
assert metric.compute() == {"accuracy": 1.0}
"""
WITHIN = """
import os, sys
from torch.distributed.run import main
if "RANK" not in os.environ:
    main(["--nproc_per_node", "4", __file__])
    sys.exit(0)
import torch
torch.distributed.init_process_group("nccl")
assert torch.distributed.get_world_size() == 4
optimizer = torch.optim.SGD(torch.nn.Linear(4, 4).cuda().parameters(), 0.1)
for _ in range(2):
    optimizer.step()
"""


def test_a_program_that_starts_its_ranks_itself_goes_on_as_the_first(tmp_path: Path) -> None:
    traced = _traced(tmp_path, WITHIN)
    assert (traced.result.error, traced.result.steps) == ("", 2)


PACKAGES = {
    "kernels.py": "def get_kernel(name): raise OSError('no network')\n",
    "evaluate.py": "def load(name): raise FileNotFoundError(name)\n",
}


def test_what_lies_on_a_hub_is_made_up_or_refused_by_name(tmp_path: Path) -> None:
    for name, text in PACKAGES.items():
        (tmp_path / name).write_text(text)
    traced = _traced(tmp_path, HUB, steps=3)
    assert traced.result.error == ""
    assert any("evaluate.load('accuracy') found no metric" in note for note in traced.result.notes)


TOWERS = """
import json, os, torch
from transformers import AutoModel, BertConfig
BertConfig(hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4).save_pretrained("whole/text")
text = AutoModel.from_pretrained("whole", subfolder="text")
assert text.config.hidden_size == 64
import diffusers.models.modeling_utils as diffusers
class Tower(diffusers.ModelMixin, torch.nn.Linear):
    @classmethod
    def load_config(cls, name, subfolder):
        return {"in_features": 8, "out_features": 16} if (name, subfolder) == ("whole", "unet") else None
    @classmethod
    def from_config(cls, config):
        return cls(**config)
tower = Tower.from_pretrained("whole", subfolder="unet", torch_dtype=torch.float16)
assert (tower.weight.dtype, tower.weight.device.type) == (torch.float16, "cpu")
"""


def test_models_of_parts_are_built_from_the_configs_of_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "diffusers" / "models"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "modeling_utils.py").write_text("class ModelMixin: pass\n")
    monkeypatch.chdir(tmp_path)
    assert _traced(tmp_path, TOWERS).result.error == ""


def test_a_usual_loop_runs_to_its_second_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    traced = _traced(tmp_path, LOADER)
    assert (traced.result.error, traced.result.steps) == ("", 2)
    assert not (tmp_path / "best.pt").exists()  # a checkpoint without values never lands on a disk
    assert traced.answer.fit.verdict == "fits"


MESH = """
import os, torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
assert torch.cuda.device_count() == int(os.environ["WORLD_SIZE"]) == 4
mesh = init_device_mesh("cuda", (4,))
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(4)]).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_mesh_is_made_without_a_process_group_before_it(tmp_path: Path) -> None:
    traced = _traced(tmp_path, MESH, gpus=4, processes=4, timeout_s=60)
    assert (traced.result.error, traced.result.steps) == ("", 2)
    assert traced.answer.worst.peak.terms
    states = sum(t.bytes for t in traced.answer.worst.terms if t.name == "optimizer")
    assert states == pytest.approx(2 * 4 * 4 * 1024 * 1024 / 4, rel=0.01)  # two moments in fp32, a quarter each


COPIES = """
import torch
model = torch.nn.DataParallel(torch.nn.Linear(256, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    out = model(torch.randn(64, 256, device="cuda"))
    assert out.shape == (64, 256)
    out.sum().backward()
    optimizer.step()
"""


def test_data_parallel_runs_the_first_cards_part(tmp_path: Path) -> None:
    assert _traced(tmp_path, COPIES, gpus=2).result.error == ""


COMPILED = """
import torch
step = torch.compile(lambda model, x: model(x).sum())
model = torch.nn.Linear(8192, 8192).cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    step(model, torch.randn(400_000, 8192, device="cuda")).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (COMPILED, "torch.compile was asked for"),
        ("print('nothing')", "made no optimizer step"),
        (
            "import torch\ntorch.zeros(4, device='cuda')\nraise ValueError('no data')",
            "failed before its steps were done: ValueError",
        ),
    ],
)
def test_what_is_not_known_is_not_said_to_fit(tmp_path: Path, text: str, said: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)
    done = CliRunner().invoke(command, ["--gpu", "RTX 4090", "--json", "--", "python", str(script)], standalone_mode=False)
    assert done.return_value == 3
    fit = json.loads(done.stdout)["fit"]
    assert (fit["verdict"], said in fit["error"]) == ("unknown", True)


@pytest.mark.parametrize("flag", [["--seq", "4096"], ["--only-layers", "2"], ["--remedies"], ["--whole"], ["--limits"]])
def test_flags_that_a_script_makes_meaningless_are_refused(flag: list[str]) -> None:
    done = CliRunner().invoke(command, [*flag, "--", "python", "train.py"])
    assert "says nothing to a script" in str(done.exception)


def test_the_usual_type_of_a_checkpoint_follows_the_release_of_transformers() -> None:
    import torch

    from vramcast.tracing.execution.stand_ins.hub_models import _usual

    assert [_usual(version) for version in ("4.46.3", "4.57.1", "5.0.0", "5.23.0")] == [
        torch.float32,
        torch.float32,
        "auto",
        "auto",
    ]


CTC = """
import torch
table = torch.nn.Linear(80, 100).cuda()
optimizer = torch.optim.SGD(table.parameters(), 0.1)
targets, told = torch.randint(1, 100, (4, 50), device="cuda"), torch.tensor([50, 40, 30, 20])
for lengths in (told, told.tolist(), told.cuda()):
    sounds = table(torch.randn(4, 400, 80, device="cuda")).log_softmax(-1).transpose(0, 1)
    torch.nn.functional.ctc_loss(sounds, targets, torch.full((4,), 400), lengths).backward()
    optimizer.step()
"""


def test_the_ctc_loss_keeps_a_table_as_wide_as_its_longest_target(tmp_path: Path) -> None:
    traced = _traced(tmp_path, CTC, steps=3)
    assert (traced.result.error, traced.result.steps) == ("", 3)
    tables = [a for a in traced.result.log.allocations if a.size == 4 * 4 * 400 * (2 * 50 + 1)]
    assert [a.phase for a in tables] == ["forward", "backward"] * 3


def test_steps_that_put_nothing_on_the_card_are_not_said_to_fit(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nlayer = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(layer.parameters())\n"
        "while True:\n    layer(torch.ones(1, 4)).sum().backward()\n    optimizer.step()\n"
    )
    done = CliRunner().invoke(command, ["--gpu", "H100", "--json", "--", "python", str(script)], standalone_mode=False)
    fit = json.loads(done.stdout)["fit"]
    assert (done.return_value, fit["verdict"]) == (3, "unknown")
    assert fit["error"] == "the program put nothing on the card: its steps ran on the CPU"


CARDS = """
import torch
first, second = torch.device("{first}"), torch.device("{second}")
one = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)).to(first)
two = torch.nn.Linear(64, 64).to(second).share_memory()
optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()])
for _ in range(2):
    x = one(torch.randn(8, 64).to(first)) - torch.randn(8, 64, device=first)
    loss = (two(x.to(second)) * torch.randint(1, 9, (8,)).to(second)[:, None]).pow(2).mean()
    assert loss.device == second
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("first", "second", "several"), [("cuda:1", "cuda:1", False), ("cuda:0", "cuda:1", True)])
def test_a_card_other_than_the_first_and_two_by_hand(tmp_path: Path, first: str, second: str, several: bool) -> None:
    result = _traced(tmp_path, CARDS.format(first=first, second=second), gpus=2).result
    assert (result.error, result.steps) == ("", 2)
    told = "the script puts tensors on 2 cards: the peak is of all of them together, more than any holds"
    assert (told in result.notes) is several


def test_a_shape_says_how_many_elements_a_mask_holds(tmp_path: Path) -> None:
    text = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    out = model(torch.randn(8, 64, device="cuda"))
    mask = torch.rand(8, 64, device="cuda") > 0.5
    half = torch.masked_select(out, mask).view(8, 32)
    pairs = out[mask].view(8, -1)
    odd = out[mask].view(-1, 3)
    assert half.shape == (8, 32) and pairs.shape[0] == 8 and odd.shape[1] == 3
    (half.sum() + pairs.sum() + odd.sum()).backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(text)
    result = trace_program((str(tmp_path / "train.py"),), gpu="H100").result
    assert (result.error, result.steps) == ("", 2)
