"""Scripts that a launcher would start as several processes: rank 0 runs, and what it asks of the others is answered."""

from pathlib import Path

import pytest

from vramcast.tracing.allocator.replay import replay
from vramcast.tracing.request import ScriptRequest, TraceResult
from vramcast.tracing.run import trace_script

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("transformers")

WIDTH, BATCH, PARTS = 512, 64, 8


def _traced(folder: Path, script: str, *, ranks: int = 1, launched: bool = True) -> TraceResult:
    (folder / "train.py").write_text(script)
    return trace_script(ScriptRequest(argv=(str(folder / "train.py"),), ranks=ranks, launched=launched))


COPIES = """
import os
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("nccl")
model = DistributedDataParallel(nn.Linear(1024, 1024).to(int(os.environ["LOCAL_RANK"])))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_distributed_script_runs_as_rank_0_of_a_pretended_group(tmp_path: Path) -> None:
    result = _traced(tmp_path, COPIES, ranks=8)
    assert (result.error, result.steps) == ("", 2)
    weights = 4 * 1024 * 1025
    assert replay(result.log).peak_requested_bytes >= 3 * weights  # weights, gradients and DDP's bucket


SHARDED = """
import os
from datetime import timedelta
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
torch.distributed.init_process_group("nccl")
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
torch.distributed.tensor._random.manual_seed(7, mesh)
with torch.device("meta"):
    model = nn.Linear(1024, 1024, bias=False)
fully_shard(model, mesh=mesh)
model.to_empty(device="cuda")
nn.init.trunc_normal_(model.weight)  # a random state for each shard
with torch.cuda.graph(torch.cuda.CUDAGraph(), pool=torch.cuda.graph_pool_handle(), stream=torch.cuda.Stream()):
    pass
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=9), None)
"""


@pytest.mark.parametrize("ranks", [1, 8])
def test_sharded_weights_are_drawn_and_times_and_graphs_are_set(tmp_path: Path, ranks: int) -> None:
    result = _traced(tmp_path, SHARDED, ranks=ranks)
    assert (result.error, result.steps) == ("", 2)
    held = [a.size for a in result.log.allocations if a.category == "weights" and a.end < 0]
    assert held == [4 * 1024 * 1024 // ranks]


STAGES = f"""
import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B
torch.distributed.init_process_group("nccl")
stages = [
    PipelineStage(nn.Linear({WIDTH}, {WIDTH}).cuda(), number, 4, torch.device("cuda:0")) for number in (0, 2)
]
schedule = ScheduleInterleaved1F1B(stages, n_microbatches={PARTS}, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD([p for s in stages for p in s.submod.parameters()], lr=0.1)
while True:
    schedule.step(torch.randn({BATCH}, {WIDTH}, device="cuda"))
    optimizer.step()
"""


def test_the_stages_of_a_pipeline_learn_their_neighbours_shapes(tmp_path: Path) -> None:
    """Nobody is there to tell them: a stage receives what the first one passes on, and gradients of that shape."""
    result = _traced(tmp_path, STAGES, ranks=2)
    assert (result.error, result.steps) == ("", 2)
    message = 4 * WIDTH * BATCH // PARTS
    buffers = [a for a in result.log.allocations if a.category == "communication" and a.size == message and a.end < 0]
    assert len(buffers) == 3 * PARTS  # inputs of the third stage, gradients of both, one for each micro-batch


EQUALS = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
count = torch.tensor(1, device="cuda")
dist.all_reduce(count)
host = torch.ones(3)
dist.all_reduce(host, op=dist.ReduceOp.SUM)
most = torch.tensor([5], device="cuda")
dist.all_reduce(most, op=dist.ReduceOp.MAX)
lengths = [torch.zeros(2, dtype=torch.long, device="cuda") for _ in range(4)]
dist.all_gather(lengths, torch.tensor([3, 7], device="cuda"))
objects, sent = [None] * 4, ["mine"]
dist.all_gather_object(objects, {"a": 1})
dist.broadcast_object_list(sent)
assert (count.item(), host.tolist(), most.item()) == (4, [4.0] * 3, 5)
assert [each.tolist() for each in lengths] == [[3, 7]] * 4
assert (objects, sent) == ([{"a": 1}] * 4, ["mine"])
"""
STEPS = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.randn(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    dist.barrier()
"""


def test_the_other_ranks_say_what_the_first_says(tmp_path: Path) -> None:
    result = _traced(tmp_path, EQUALS + STEPS, ranks=4)
    assert (result.error, result.steps) == ("", 2)


def test_a_script_that_no_launcher_started_joins_a_group_of_its_own(tmp_path: Path) -> None:
    alone = """
import os, torch, torch.distributed as dist
os.environ.update(RANK="0", WORLD_SIZE="1")
dist.init_process_group("nccl", init_method="env://")
assert dist.get_world_size() == 1
"""
    result = _traced(tmp_path, alone + STEPS, launched=False)
    assert (result.error, result.steps) == ("", 2)
