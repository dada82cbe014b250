"""Adapters of PEFT under the tracer: what is trained is what the forecast counts, kind by kind; the rest is refused by name."""

import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.models.families import read_config
from vramcast.planning.tracing.answer import trace_training
from vramcast.planning.tracing.request import training_request
from vramcast.tracing.request import TraceRequest
from vramcast.tracing.run import Tracer
from vramcast.training.forecast import forecast_training
from vramcast.workload import Adapter, Training

H = 256
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": H, "intermediate_size": 3 * H,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
}  # fmt: skip
MODEL = read_config(LLAMA)
KINDS = [
    Adapter(kind="dora"),
    Adapter(kind="vera", rank=16),
    Adapter(kind="ia3"),
    Adapter(kind="lokr", rank=4),
    Adapter(kind="oft", sizes={"oft_block_size": 16}),
    Adapter(kind="miss", rank=8),
    Adapter(kind="prompt", sizes={"num_virtual_tokens": 7}),
    Adapter(kind="prefix", sizes={"num_virtual_tokens": 7, "projection": 1, "encoder_hidden_size": 48}),
    Adapter(kind="p_tuning", sizes={"encoder_hidden_size": 48}),
    Adapter(kind="ln_tuning"),
    Adapter(kind="trainable_tokens", sizes={"tokens": 3}),
]


def _asked(adapter: Adapter, **fields: object) -> tuple[Training, TraceRequest]:
    question = Training(model="llama", method=adapter.kind, adapter=adapter, seq=64, **fields)  # type: ignore[arg-type]
    return question, training_request(question, MODEL, LLAMA, card=None, backend="cuda", layers=None)[0]


@pytest.mark.torch
@pytest.mark.parametrize("adapter", KINDS, ids=lambda a: a.kind)
def test_what_peft_trains_is_what_the_forecast_counts(adapter: Adapter, tracer: Tracer) -> None:
    pytest.importorskip("peft")
    question, request = _asked(adapter)
    result = tracer.trace(request)
    assert (result.error, result.steps) == ("", 2)
    assert result.trainable == forecast_training(question, model=MODEL).trainable_parameters
    held = sum(a.size for a in result.log.allocations if a.category == "optimizer" and a.end < 0)
    assert held >= 2 * 4 * result.trainable  # PEFT holds what it trains in fp32, and AdamW twice as much beside


@pytest.mark.torch
@pytest.mark.parametrize("method", ["road", "delora"])
def test_an_adapter_that_only_peft_knows_is_traced_without_a_forecast(
    method: str, tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    monkeypatch.setattr("vramcast.planning.tracing.answer.config_of", lambda *_: (LLAMA, "here"))
    traced = trace_training(Training(model="llama", method=method, seq=64), model=MODEL, tracer=tracer)
    assert (traced.forecast, traced.beside, traced.answer.workload["method"]) == (None, (), method)
    assert 0 < traced.result.trainable < traced.result.parameters / 10


@pytest.mark.torch
@pytest.mark.parametrize(("method", "layers", "ends"), [("freeze", (1,), False), ("lisa", (0,), True)])
def test_some_layers_are_trained_and_the_others_have_no_gradients(
    method: str, layers: tuple[int, ...], ends: bool, tracer: Tracer
) -> None:
    question = Training(model="llama", method=method, seq=64, options={"trainable_layers": 1})
    request, _ = training_request(question, MODEL, LLAMA, card=None, backend="cuda", layers=None)
    assert (request.trained_layers, request.trains_ends) == (layers, ends)
    result = tracer.trace(request)
    assert result.trainable == forecast_training(question, model=MODEL).trainable_parameters
    of_layers = {a.module.split(".")[2] for a in result.log.allocations if a.category == "gradients" and ".layers." in a.module}
    assert of_layers == set(map(str, layers))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"method": "frozen"}, "a frozen model, which makes no step"),
        ({"method": "badam"}, "BAdam's own optimizer: trace your script"),
        ({"method": "xlora"}, "X-LoRA, which needs trained adapters"),
        ({"options": {"task": "dpo"}}, "task dpo, whose loss needs more than one sequence and model"),
    ],
)
def test_what_is_trained_otherwise_is_refused_by_name(fields: dict[str, object], what: str) -> None:
    question = Training(model="llama", seq=64, **fields)  # type: ignore[arg-type]
    with pytest.raises(UnmodelledError, match=f"the tracer does not run {what}"):
        training_request(question, MODEL, LLAMA, card=None, backend="auto", layers=None)


@pytest.mark.torch
def test_a_kind_that_peft_does_not_have_is_named(tracer: Tracer) -> None:
    pytest.importorskip("peft")
    with pytest.raises(QuestionError, match="unknown adapter of PEFT 'lorra': did you mean lora"):
        tracer.trace(TraceRequest(config=LLAMA, seq=64, adapter=Adapter(kind="lorra")))
