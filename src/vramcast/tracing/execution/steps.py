"""The steps that are traced: optimizer steps of a training loop, or a prompt and a few generated tokens."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from inspect import signature
from typing import Any

import msgspec
import torch

from vramcast.errors import QuestionError
from vramcast.tracing.execution import images, models, recipes
from vramcast.tracing.execution.compiled import compile_layers
from vramcast.tracing.execution.ranks import data_parallel, zero
from vramcast.tracing.execution.ranks.distribute import distribute
from vramcast.tracing.execution.ranks.pipeline import Pipeline
from vramcast.tracing.execution.session import Session
from vramcast.tracing.request import TraceRequest


def run(request: TraceRequest, session: Session) -> None:
    """Build the model and trace its task."""
    with session.recording():
        model = _ready(request, session)
        session.label_model(model)
        session.collect()
        session.recorder.log.mark("ready")
        kept = (train if request.task == "train" else generate)(model, request, session)
        session.recorder.closed = True  # what dies from here on dies with the program
        del kept


def _ready(request: TraceRequest, session: Session) -> torch.nn.Module:
    """The model as the traced rank holds it before the first step."""
    how = request.distribution
    if how.by_deepspeed:
        return zero.build(request, session)
    model = models.build(request, session, whole=not how.divides)
    session.count(model)
    if request.compiled:
        compile_layers(model, session)
    return distribute(model, how, session) if how.world > 1 else model


def train(model: torch.nn.Module, request: TraceRequest, session: Session) -> object:
    """Optimizer steps as a plain loop writes them; the second step is the steady state. Returns what a program would keep."""
    if isinstance(model, zero.Engine):
        for _ in range(request.steps):
            model.step([_batch(request, session) for _ in range(request.accumulate)])
        return model
    optimizer = recipes.make_optimizer(request.optimizer, model)
    for _ in range(request.steps):
        optimizer_step(model, optimizer, request, session)
    return optimizer


def optimizer_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, request: TraceRequest, session: Session) -> None:
    """One optimizer step: its micro-batches, clipping, the update, gradients dropped."""
    if isinstance(model, Pipeline):
        _pipeline_step(model, request, session)
    else:
        for left in reversed(range(request.accumulate)):
            with data_parallel.unreduced(model, request.distribution, left=left):
                _micro_step(model, request, session)
    if request.clip_norm is not None:
        for group in recipes.on_one_mesh(model.parameters()):
            torch.nn.utils.clip_grad_norm_(group, request.clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _micro_step(model: Any, request: TraceRequest, session: Session) -> None:
    batch = _batch(request, session)
    session.label_inputs(batch)
    with divided_sequence(request, session, batch), divided_loss(request):
        with autocast(request, session.backend.device_type):
            output = model(**batch, use_cache=False)
            loss = output.loss / request.accumulate if request.accumulate > 1 else output.loss
        if not request.keep_outputs:
            output = None
        loss.backward()
    del output, loss


def _pipeline_step(model: Pipeline, request: TraceRequest, session: Session) -> None:
    """All micro-batches of a step in the order of the pipeline's schedule."""
    how = request.distribution
    batch = _batch(msgspec.structs.replace(request, micro_batch=request.micro_batch * request.accumulate), session)
    session.label_inputs(batch)
    if request.autocast is not None:
        for part in model.parts:
            part.compute = partial(autocast, request, session.backend.device_type)
    columns = request.seq // how.parallel.cp // (how.parallel.tp if how.sequence_parallel else 1)
    hidden = torch.Size((request.micro_batch, columns, model.parts[0].model.config.get_text_config().hidden_size))
    with divided_sequence(request, session, batch), divided_loss(request):
        ids, positions = batch["input_ids"], {k: v for k, v in batch.items() if k == "position_ids"}
        model.step(ids, positions, micro_batches=request.accumulate, hidden=hidden)


def generate(model: Any, request: TraceRequest, session: Session) -> object:
    """The prompt, then one token at a time with the cache that the model's own class makes. Returns the cache."""
    device, cached = session.backend.device_type, cache_name(model)
    with torch.inference_mode():
        ids = torch.zeros(request.micro_batch, request.seq, dtype=torch.long, device=device)
        cache, session.places.forward = None, "prefill"
        for _ in range(request.new_tokens):
            with autocast(request, session.backend.device_type):
                output = model(input_ids=ids, use_cache=True, logits_to_keep=1, **{cached: cache})
            cache = getattr(output, cached)
            ids, session.places.forward = output.logits[:, -1:].argmax(-1), "decode"
            del output
    return cache


def cache_name(model: Any) -> str:
    """What a model's class calls its cache: state-space models of transformers call it differently."""
    names = signature(model.forward).parameters
    return next((name for name in ("past_key_values", "cache_params") if name in names), "past_key_values")


def _batch(request: TraceRequest, session: Session) -> dict[str, torch.Tensor]:
    if request.images:
        return images.pixel_inputs(*models.class_and_config(request), request, session.backend.device_type)
    ids = torch.zeros(request.micro_batch, request.seq, dtype=torch.long, device=session.backend.device_type)
    batch = {"input_ids": ids, "labels": ids}
    how = request.distribution
    if how.sequence_parallel or how.parallel.cp > 1:  # a rank cannot count the whole sequence's positions by its part
        batch["position_ids"] = torch.arange(request.seq, device=ids.device).repeat(request.micro_batch, 1)
    return batch


def divided_sequence(request: TraceRequest, session: Session, batch: dict[str, torch.Tensor]) -> AbstractContextManager[Any]:
    """PyTorch's context_parallel: the batch is cut along the sequence, keys and values travel between the ranks."""
    if request.distribution.parallel.cp == 1:
        return nullcontext()
    from torch.distributed.tensor.experimental import context_parallel

    batch["labels"] = batch["labels"].clone()  # each buffer is cut in place
    buffers = list(batch.values())
    context: AbstractContextManager[Any] = context_parallel(
        session.mesh["cp"], buffers=buffers, buffer_seq_dims=[1] * len(buffers), no_restore_buffers=set(buffers)
    )
    return context


def divided_loss(request: TraceRequest) -> AbstractContextManager[Any]:
    """PyTorch's loss_parallel where logits stay divided over the vocabulary."""
    if not request.distribution.loss_parallel:
        return nullcontext()
    from torch.distributed.tensor.parallel import loss_parallel

    context: AbstractContextManager[Any] = loss_parallel()
    return context


def autocast(request: TraceRequest, device_type: str) -> AbstractContextManager[Any]:
    """torch.autocast in the request's compute dtype, or nothing."""
    if request.autocast is None:
        return nullcontext()
    context: AbstractContextManager[Any] = torch.autocast(device_type, dtype=models.dtype_of(request.autocast))
    return context


def check(request: TraceRequest, backend: str) -> None:
    """Refuse what a backend cannot do, before anything is built."""
    if backend == "meta" and (request.autocast or request.quant or request.distribution.world > 1):
        raise QuestionError("autocast, 4-bit weights and several ranks can only be traced with the cuda backend, not with meta")


@contextmanager
def timed() -> Iterator[list[float]]:
    """Seconds spent inside, as the only item of the list."""
    started, spent = time.perf_counter(), [0.0]
    yield spent
    spent[0] = time.perf_counter() - started
