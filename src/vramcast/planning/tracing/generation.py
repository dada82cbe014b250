"""Tracing transformers' own generation, and the forecast of the same question beside it."""

import msgspec

from vramcast.hardware.cards import find_accelerator
from vramcast.models.inventory import Model
from vramcast.planning.serving import forecast_serving
from vramcast.planning.tracing.answer import Traced, finish, shallow, traced_result
from vramcast.planning.tracing.request import device_model
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.configs import check_built, config_of
from vramcast.tracing.request import TraceRequest
from vramcast.tracing.run import Tracer
from vramcast.workload import Serving


def trace_generation(
    serving: Serving,
    *,
    model: Model | None = None,
    backend: str = "auto",
    whole: bool = False,
    settings: AllocatorSettings | None = None,
    tracer: Tracer | None = None,
) -> Traced:
    """Trace transformers' own generation: a prompt, then ``output`` tokens (default 2) with the cache its class makes.

    A deep stack is traced at three small depths unless ``whole``. Raises as ``trace_training`` does.
    """
    if model is None:
        from vramcast.models.reading import read_model

        model = read_model(serving.model)
    card = find_accelerator(serving.gpu) if serving.gpu else None
    config, source = config_of(model, serving.model)
    request = TraceRequest(
        config=config,
        task="generate",
        micro_batch=serving.concurrency or 1,
        seq=serving.prompt or serving.context or 2048,
        new_tokens=serving.output or 2,
        param_dtype=serving.dtype or model.dtype,
        backend=backend,
        device=device_model(card),
    )
    if not whole:
        request = shallow(request, model)
    result = traced_result(request, tracer)
    check_built(model, result.parameters, source)
    workload = {**msgspec.to_builtins(serving), "engine": "transformers", "config": source, "context": request.seq}
    workload |= {"concurrency": request.micro_batch, "gpus": 1, "gpu": card.name if card else None}
    forecast = forecast_serving(_as_asked(serving, request), model=model, card=card)
    found = finish(workload, result, settings, model=model, card=card, forecast=forecast, serving=True)
    return msgspec.structs.replace(found, request=request)


def _as_asked(serving: Serving, request: TraceRequest) -> Serving:
    """The serving question that the traced run answers: every sequence at its full length, in transformers."""
    return msgspec.structs.replace(
        serving,
        engine="transformers",
        prompt=request.seq,
        output=request.new_tokens,
        context=request.seq + request.new_tokens,
        concurrency=request.micro_batch,
        dtype=request.param_dtype,
    )
