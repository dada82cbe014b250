"""One rank of a pipeline: its chunks of the model under torch's own schedules, whose messages go nowhere."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from vramcast.errors import QuestionError
from vramcast.tracing.distribution import Distribution


class Part(torch.nn.Module):  # type: ignore[misc]
    """A stretch of a transformers model: tokens or hidden states in, hidden states or logits out."""

    def __init__(self, model: Any, *, first: bool, last: bool) -> None:
        super().__init__()
        self.model, self.first, self.last = model, first, last
        self.compute: Callable[[], AbstractContextManager[Any]] | None = None

    def forward(self, arriving: torch.Tensor, **positions: torch.Tensor) -> torch.Tensor:
        """The stretch, in the compute type that ``compute`` opens."""
        model = self.model if self.last else getattr(self.model, self.model.base_model_prefix)
        given = {"input_ids": arriving} if self.first else {"inputs_embeds": arriving}
        if self.compute is None:
            output = model(**given, **positions, use_cache=False)
        else:
            with self.compute():
                output = model(**given, **positions, use_cache=False)
        leaving: torch.Tensor = output.logits if self.last else output.last_hidden_state
        return leaving

    def get_input_embeddings(self) -> torch.nn.Module | None:
        """The embedding of the first part."""
        return self.model.get_input_embeddings() if self.first else None

    def get_output_embeddings(self) -> torch.nn.Module | None:
        """The head of the last part."""
        return self.model.get_output_embeddings() if self.last else None

    @property
    def base_model(self) -> torch.nn.Module:
        """The decoder without its head."""
        base: torch.nn.Module = self.model.base_model
        return base


def cut(model: Any, how: Distribution) -> list[Part]:
    """The chunks of a whole model on meta that a pipeline rank holds: stage, stage + pp, ... of pp x vpp equal stretches.

    Raises QuestionError when there are fewer layers than chunks.
    """
    pp, chunks = how.parallel.pp, how.parallel.pp * how.parallel.vpp
    base = getattr(model, model.base_model_prefix)
    layers = len(base.layers)
    if layers < chunks:
        raise QuestionError(
            f"{layers} layers cannot be cut into {pp} stages of {how.parallel.vpp} chunks: use --pp {layers} or less"
        )
    return [_chunk(model, index, chunks, layers) for index in range(how.stage, chunks, pp)]


def _chunk(model: Any, index: int, chunks: int, layers: int) -> Part:
    part = copy.deepcopy(model)
    base = getattr(part, part.base_model_prefix)
    base.layers = base.layers[layers * index // chunks : layers * (index + 1) // chunks]
    base.config.num_hidden_layers = part.config.num_hidden_layers = len(base.layers)
    first, last = index == 0, index == chunks - 1
    if not first and not (last and part.get_output_embeddings().weight is part.get_input_embeddings().weight):
        base.embed_tokens = None
    if not last:
        base.norm, part.lm_head = torch.nn.Identity(), torch.nn.Identity()
    return Part(part, first=first, last=last)


class Pipeline(torch.nn.Module):  # type: ignore[misc]
    """The chunks of a rank, and the schedule that runs them."""

    def __init__(self, chunks: list[torch.nn.Module], parts: list[Part], how: Distribution, mesh: Any) -> None:
        super().__init__()
        self.chunks = torch.nn.ModuleList(chunks)
        self.parts = parts
        self.how, self.mesh = how, mesh
        self._schedule: Any = None

    def step(self, ids: torch.Tensor, positions: dict[str, torch.Tensor], *, micro_batches: int, hidden: torch.Size) -> None:
        """Forward and backward of all micro-batches in the schedule's order; ``hidden``: shape of what one passes on."""
        if self._schedule is None:
            self._schedule = self._make(micro_batches, hidden, ids)
        losses: list[torch.Tensor] | None = [] if self.parts[-1].last else None
        inputs = (ids,) if self.parts[0].first else ()
        target = ids if self.parts[-1].last else None
        self._schedule._n_microbatches = micro_batches
        self._schedule.step(*inputs, target=target, losses=losses, return_outputs=False, **positions)

    def _make(self, micro_batches: int, hidden: torch.Size, ids: torch.Tensor) -> Any:
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
        from torch.distributed.pipelining._utils import InferenceMode

        pp, dtype = self.how.parallel.pp, _dtype_between(self.how, self.parts[0])
        passed = torch.empty(hidden, device="meta", dtype=dtype, requires_grad=True)
        tokens = torch.empty((ids.shape[0] // micro_batches, ids.shape[1]), device="meta", dtype=ids.dtype)
        stages = [
            PipelineStage(
                chunk,
                self.how.stage + pp * number,
                pp * self.how.parallel.vpp,
                ids.device,
                input_args=tokens if part.first else passed,
                output_args=passed,
                group=self.mesh.get_group(),
            )
            for number, (chunk, part) in enumerate(zip(self.chunks, self.parts, strict=True))
        ]
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC  # the ranks would vote on it
        options: dict[str, Any] = {"n_microbatches": micro_batches, "loss_fn": self._loss}
        kinds = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
        schedule: Any = (
            ScheduleInterleaved1F1B(stages, **options)
            if self.how.schedule == "interleaved"
            else kinds[self.how.schedule](stages[0], **options)
        )
        schedule._warmup_p2p = lambda *_: None
        if self.how.schedule == "1f1b":
            _run_the_first(schedule, min(micro_batches, pp + _REPEATED))
        return schedule

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        model = self.parts[-1].model
        loss: torch.Tensor = model.loss_function(
            logits=logits, labels=labels, vocab_size=model.config.get_text_config().vocab_size
        )
        return loss


# Past as many micro-batches as stages, each one of 1F1B takes the place of one that is done: the first such is traced.
_REPEATED = 1


def _run_the_first(schedule: Any, count: int) -> None:
    """Run ``count`` micro-batches of each step, with the batch and the message buffers of all of them.

    A stage makes its buffers, one per micro-batch and direction, when the schedule's first step initializes it.
    """
    initialize = schedule._initialize_stage

    def initialize_all(*args: Any, **options: Any) -> None:
        initialize(*args, **options)
        schedule._n_microbatches = count

    schedule._initialize_stage = initialize_all


def _dtype_between(how: Distribution, part: Part) -> torch.dtype:
    """The type of hidden states on their way: FSDP's compute type, or the weights'."""
    from vramcast.tracing.execution.ranks.data_parallel import dtype_or_none

    found: torch.dtype = dtype_or_none(how.compute) or next(p.dtype for p in part.parameters() if p.is_floating_point())
    return found
