"""Distribution in one process: a process group that only pretends, so that one rank's memory is the real library's own."""

import os
import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch

from vramcast.tracing.execution.ranks import collectives
from vramcast.tracing.execution.session import Session

_LOGGED = ("set_runtime_stats_and_log", "_set_static_graph", "_set_uneven_input_join", "_set_comm_hook_name", "set_error_and_log")


def pretend_group(session: Session, ranks: int, rank: int = 0) -> None:
    """Initialise torch.distributed with torch's own fake backend, as one of ``ranks``; another size replaces the last one."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        if (dist.get_world_size(), dist.get_rank()) == (ranks, rank):
            return
        dist.destroy_process_group()
        with session.mode.quiet(), session.backend.mode:  # type: ignore[attr-defined]
            _Forget.apply(torch.zeros(1, device=session.backend.device_type, requires_grad=True)).backward()
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())


class _Forget(torch.autograd.Function):  # type: ignore[misc]
    """DTensor remembers by equal meshes what to send to whom, and so the names of groups that are gone; each thread by itself.

    Its backward runs on autograd's thread.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        del ctx
        _forget()
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        del ctx
        _forget()
        return gradient


def _forget() -> None:
    from torch.distributed.tensor import _redistribute
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    _redistribute._gen_transform_infos.cache_clear()


def pretend_for_scripts(session: Session, ranks: int) -> None:
    """What a launcher gives to rank 0, and an ``init_process_group`` that joins the pretended group whatever it asks for."""
    import torch.distributed.device_mesh  # noqa: F401 - holds the function under a name of its own

    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(min(ranks, 8))})
    os.environ.update({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    _join_by(session, lambda *_, **__: ranks)
    patch_libraries(session)


def pretend_when_asked(session: Session) -> None:
    """The same for a script that no launcher started and that joins a group itself, of as many ranks as it says."""

    def asked(*_: Any, **options: Any) -> int:
        count = options.get("world_size", -1)
        return int(count if count > 0 else os.environ.get("WORLD_SIZE", "1"))

    _join_by(session, asked)


def _join_by(session: Session, ranks_of: Callable[..., int]) -> None:
    import torch.distributed

    before = torch.distributed.init_process_group
    original = getattr(before, "original", before)

    def join(*args: Any, **options: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        patch_libraries(session)
        with session.mode.quiet():
            original("fake", rank=0, world_size=ranks_of(*args, **options), store=FakeStore())

    join.original = original  # type: ignore[attr-defined]
    for name, module in list(sys.modules.items()):  # device_mesh and others hold the function under their own name
        if name.startswith("torch.distributed") and getattr(module, "init_process_group", None) is before:
            module.init_process_group = join  # type: ignore[attr-defined]
    torch.distributed.distributed_c10d._set_pg_timeout = lambda *_, **__: None  # nobody is waited for


@cache
def patch_libraries(session: Session) -> None:
    """DDP and FSDP compare their ranks, log, and tell the allocator which streams use a block: nobody is there to be asked."""
    collectives.install(session)
    _data_parallel(session)
    _flat_shards(session)
    _sharded_parameters(session)
    _stages(session)


def _data_parallel(session: Session) -> None:
    import torch.nn.parallel.distributed as ddp

    ddp._verify_param_shape_across_processes = lambda *_, **__: None
    ddp._sync_module_states = lambda *_, **__: None
    original = ddp.DistributedDataParallel.__init__

    def build(wrapper: Any, *args: Any, **kwargs: Any) -> None:
        def reduced(_: Any, bucket: Any) -> Any:
            """Each bucket is its own sum."""
            session.recorder.label(bucket.buffer(), "gradients" if wrapper.gradient_as_bucket_view else "communication")
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        original(wrapper, *args, **kwargs)
        del reduced.__annotations__  # DDP checks them
        wrapper.register_comm_hook(None, reduced)
        wrapper.register_comm_hook = lambda *_, **__: session.notes.setdefault("DDP's communication hook was not run")
        wrapper.logger = SimpleNamespace(**dict.fromkeys(_LOGGED, lambda *_: None))
        wrapper.logger._get_ddp_logging_data = lambda: SimpleNamespace(strs_map={}, ints_map={})

    ddp.DistributedDataParallel.__init__ = build


def _flat_shards(session: Session) -> None:
    """FSDP1."""
    from torch.distributed.fsdp import _flat_param, _runtime_utils

    for module in (_flat_param, _runtime_utils):
        module._no_dispatch_record_stream = lambda *_: None
    purposed(_runtime_utils, "_reduce_grad", "communication", session)


def _sharded_parameters(session: Session) -> None:
    """FSDP2: the buffers of its collectives belong to no module."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as group

    purposed(group, "foreach_all_gather", "gathered", session)
    purposed(group, "foreach_reduce", "communication", session)


def _stages(session: Session) -> None:
    """A pipeline's stages make their receive buffers before the first step, one for each micro-batch."""
    from torch.distributed.pipelining import PipelineStage

    for name in ("_prepare_forward_infra", "_prepare_backward_infra"):
        purposed(PipelineStage, name, "communication", session)
    _neighbours(PipelineStage)


def _neighbours(stage_type: Any) -> None:
    """What a stage is told of its neighbours' tensors: they receive and pass on what this rank's own stages do."""
    from torch.distributed.pipelining._utils import _derive_grad_metas, _StageBackwardMeta

    passed_on: list[Any] = []

    def receive(stage: Any, source: int) -> Any:
        if source > stage.stage_index:
            return _StageBackwardMeta(backward_metas=_derive_grad_metas(stage._stage_meta.outputs))
        return passed_on[-1]

    stage_type._send_meta = lambda stage, told, to: passed_on.append(told) if to > stage.stage_index else None
    stage_type._recv_meta = receive


def purposed(owner: Any, name: str, category: str, session: Session) -> None:
    """Let what a function of a library allocates be known by its purpose."""
    original = getattr(owner, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        with session.recorder.purpose(category):
            return original(*args, **kwargs)

    setattr(owner, name, run)
