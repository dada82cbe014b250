"""DeepSpeed's own engine on fake tensors: ZeRO 1 to 3."""

import os
import sys
from typing import Any

import torch

from vramcast.tracing.execution import models, recipes
from vramcast.tracing.execution.ranks.sharding import patch_libraries, pretend_group, purposed
from vramcast.tracing.execution.session import Session
from vramcast.tracing.request import TraceRequest

_AGREED = ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks")


class Engine(torch.nn.Module):  # type: ignore[misc]
    """A DeepSpeed engine around a model, and what a program keeps with it."""

    def __init__(self, engine: Any, session: Session, *, keeps_output: bool) -> None:
        super().__init__()
        self.engine = engine
        self._session, self._keeps_output = session, keeps_output

    def step(self, batches: list[dict[str, torch.Tensor]]) -> None:
        """One optimizer step of as many micro-batches as the engine was told to accumulate."""
        for batch in batches:
            self._session.label_inputs(batch)
            output = self.engine(**batch, use_cache=False)
            loss = output.loss
            if not self._keeps_output:
                del output
            self.engine.backward(loss)
            del loss
            self._label_gradients()
            self._session.places.phase = "optimizer"
            self.engine.step()

    def _label_gradients(self) -> None:
        for name in ("averaged_gradients", "grad_partitions_flat_buffer"):
            for tensor in _tensors(getattr(self.engine.optimizer, name, None)):
                self._session.label(tensor, "gradients")


def build(request: TraceRequest, session: Session) -> Engine:
    """The request's model in DeepSpeed's engine, as one of the pretended ranks."""
    how = request.distribution
    pretend_group(session, how.world)
    patch_libraries(session)
    _as_launched(how.world)
    import deepspeed

    _patch(session)
    config = _config(request)
    if how.sharding == "zero3" and not how.engine.moves_whole:
        with deepspeed.zero.Init(config_dict_or_path=config, mem_efficient_linear=False):
            model = models.build(request, session)
    else:
        model = models.build(request, session)
    session.places.name_modules(model)
    session.parameters = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
    session.trainable = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters() if p.requires_grad)
    optimizer = recipes.make_optimizer(request.optimizer, model)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, dist_init_required=False)
    _label(engine, session)
    return Engine(engine, session, keeps_output=request.keep_outputs)


def _config(request: TraceRequest) -> dict[str, Any]:
    """What the engine is told, and what the Trainer fills in for "auto" (integrations/deepspeed.py, trainer_config_finalize)."""
    hidden, told = models.hidden_size(request), request.distribution.engine
    auto = {"reduce_bucket": hidden * hidden, "prefetch": int(0.9 * hidden * hidden), "persistent": 10 * hidden}
    sizes = auto if not told.reduce_bucket else {name: getattr(told, name) for name in auto}
    return {
        "train_micro_batch_size_per_gpu": request.micro_batch,
        "gradient_accumulation_steps": request.accumulate,
        "gradient_clipping": request.clip_norm or 0.0,
        "bf16": {"enabled": request.param_dtype == "bfloat16"},
        "fp16": {"enabled": request.param_dtype == "float16"},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": int(request.distribution.sharding[-1]),
            "overlap_comm": told.overlaps,
            "contiguous_gradients": True,
            "reduce_bucket_size": sizes["reduce_bucket"],
            "stage3_prefetch_bucket_size": sizes["prefetch"],
            "stage3_param_persistence_threshold": sizes["persistent"],
            "stage3_max_live_parameters": told.live,
            "stage3_max_reuse_distance": told.reuse,
        },
    }


def _as_launched(ranks: int) -> None:
    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(min(ranks, 8))})
    os.environ.update({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "DS_ACCELERATOR": "cuda"})
    for name in ("range_push", "range_pop", "mark"):  # profiler ranges exist on CUDA builds only
        setattr(torch.cuda.nvtx, name, lambda *_, **__: 0)
    torch.Tensor.record_stream = lambda *_: None


def _patch(session: Session) -> None:
    """The engine compares its ranks and looks for overflows, whose values nobody knows; its buffers belong to no module."""
    from deepspeed.runtime.zero import partitioned_param_coordinator, stage3, stage_1_and_2

    for module in [m for name, m in sys.modules.items() if name.startswith("deepspeed.")]:
        for name in _AGREED:
            if hasattr(module, name):
                setattr(module, name, lambda *_, **__: None)
    partitioned = stage_1_and_2.DeepSpeedZeroOptimizer
    if getattr(partitioned, "_vramcast_patched", False):
        return
    partitioned._vramcast_patched = True
    for kind in (partitioned, stage3.DeepSpeedZeroOptimizer_Stage3):
        looks = kind.has_overflow
        kind.has_overflow = lambda self, *args, _looks=looks, **kwargs: bool(_looks(self, *args, **kwargs)) and False
    purposed(partitioned, "setup_buckets", "communication", session)
    fetcher = partitioned_param_coordinator.PartitionedParameterCoordinator
    purposed(fetcher, "_PartitionedParameterCoordinator__all_gather_params_", "gathered", session)


def _label(engine: Any, session: Session) -> None:
    """Name the flat buffers that the engine keeps beside the model."""
    optimizer = engine.optimizer
    for parameter in engine.module.parameters():
        if hasattr(parameter, "ds_tensor"):
            session.label(parameter.ds_tensor, "weights")
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
        for tensor in _tensors(getattr(optimizer, name, None)):
            session.label(tensor, "master_weights")
    for name, value in vars(optimizer).items():
        if "bucket" in name:
            for tensor in _tensors(value):
                session.label(tensor, "communication")


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for each in found for tensor in _tensors(each)]
