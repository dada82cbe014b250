"""The API: the objects of ``--json`` over HTTP. Answers depend on the address alone, so they carry an ETag and may be cached."""

from functools import partial
from threading import Semaphore
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.params import JSONBody, QueryParameter

from vramcast.asking.visitor import asked_by_visitor, asked_of_config
from vramcast.errors import QuestionError, VramcastError
from vramcast.ledger import Forecast
from vramcast.untrusted import disk_closed
from vramcast.web.document import REFUSALS, ServeOperation, TrainOperation
from vramcast.web.problems import Problem, problem_of
from vramcast.web.threads import Answers, in_thread
from vramcast.web.words import words_of

_MOST_FOUND = 50
Named = Annotated[str, QueryParameter(max_length=200)]


class Asking(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a question: its words as in the address, and the model's own config.json where the model has no name here."""

    words: dict[str, str | int | float | bool | None] = {}
    config: dict[str, Any] | None = None


class Pasted(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A log or a traceback; ``gpu`` names the card where the text does not."""

    text: str
    gpu: str | None = None


def forecast_of(kind: str, words: dict[str, Any], config: bytes | None = None, *, advises: bool = True) -> Forecast:
    """The answer to a visitor's question. Raises VramcastError for one that cannot be answered."""
    from vramcast.asking.asked import answer_serving, answer_training

    with disk_closed():
        asked: Any = asked_of_config(config, words, kind=kind) if config is not None else asked_by_visitor(kind, words)
        return (answer_serving if kind == "serve" else answer_training)(asked, advises=advises)


# Turns: training near the border takes ten times as long as serving; of two quick ones the second goes past one that is not.
_QUICK, _LONG = Semaphore(2), Semaphore(1)
_FULL = {
    "serve": Answers(partial(forecast_of, "serve"), turn=_QUICK),
    "train": Answers(partial(forecast_of, "train"), turn=_LONG),
}
_FIRST = {kind: Answers(partial(forecast_of, kind, advises=False), turn=_QUICK) for kind in _FULL}


def answered(kind: str, words: dict[str, Any]) -> Forecast:
    """The answer to a question by words alone, remembered. Raises as ``forecast_of`` does."""
    return _FULL["train" if kind == "train" else "serve"].of(words)


def first_of(kind: str, words: dict[str, Any]) -> Forecast:
    """The same without advice and without the table of cards, which take ten times as long."""
    return _FIRST["train" if kind == "train" else "serve"].of(words)


def contract(forecast: Forecast) -> Response[bytes]:
    """The contract's object as JSON."""
    return Response(msgspec.json.encode(forecast.to_dict()), media_type="application/json")


@get("/api/serve", responses=REFUSALS, operation_class=ServeOperation, summary="Memory, fit and speed of serving a model")
@in_thread
def serve(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The words of ``vramcast serve`` as parameters: model, gpu, engine, context, concurrency, prompt, output, flags ..."""
    return contract(answered("serve", words_of(request)))


@get("/api/train", responses=REFUSALS, operation_class=TrainOperation, summary="Memory, fit and speed of a training step")
@in_thread
def train(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The words of ``vramcast train`` as parameters: model, gpu, framework, method, rank, micro_batch, seq, checkpointing ..."""
    return contract(answered("train", words_of(request)))


@post("/api/serve", responses=REFUSALS, status_code=200, summary="The same, for a config.json sent along")
@in_thread
def serve_config(data: JSONBody[Asking]) -> Response[bytes]:
    """``words`` as the parameters of the address; ``config``: the model's config.json, read in memory and forgotten."""
    return _posted("serve", data)


@post("/api/train", responses=REFUSALS, status_code=200, summary="The same, for a config.json sent along")
@in_thread
def train_config(data: JSONBody[Asking]) -> Response[bytes]:
    """``words`` as the parameters of the address; ``config``: the model's config.json, read in memory and forgotten."""
    return _posted("train", data)


def _posted(kind: str, data: JSONBody[Asking]) -> Response[bytes]:
    if data.config is None:
        return contract(forecast_of(kind, data.words))
    return contract(forecast_of(kind, data.words, msgspec.json.encode(data.config)))


@get("/api/models", responses=REFUSALS, summary="Models that are answered with no network")
@in_thread
def models(find: Named = "") -> dict[str, Any]:
    """The ids that contain ``find``, the makers' own first."""
    from vramcast.asking.looking import find_models

    return {"schema": "vramcast/1", "models": find_models(find)[:_MOST_FOUND] if find else find_models("")}


@get("/api/gpus", responses=REFUSALS, summary="The cards and their facts")
@in_thread
def gpus(name: Named = "") -> dict[str, Any]:
    """All cards, or the one of that name."""
    from vramcast.hardware.accelerator import catalogue
    from vramcast.hardware.cards import least_card

    if name.strip().lower() == "local":
        raise QuestionError("gpu 'local' is the server's own card: name the card, for example RTX 4090")
    found = [least_card(name)] if name else list(catalogue().values())
    return {"schema": "vramcast/1", "gpus": [msgspec.to_builtins(card) for card in found]}


@post("/api/explain", responses=REFUSALS, status_code=200, summary="An out-of-memory message or an engine's log, explained")
@in_thread
def explain(data: JSONBody[Pasted]) -> Response[bytes]:
    """What the text says of memory, with figures; where it tells a run, the forecast of that run and one corrected line."""
    from vramcast.asking.looking import explain_text

    with disk_closed():
        body = explain_text(data.text, gpu=data.gpu).to_dict()
    return Response(msgspec.json.encode(body, enc_hook=str), media_type="application/json")


def refused(_: Request[Any, Any, Any], error: VramcastError) -> Response[Problem]:
    """An error of the question as problem details."""
    problem = problem_of(error)
    return Response(problem, status_code=problem.status, media_type="application/problem+json")


HANDLERS = (serve, train, serve_config, train_config, models, gpus, explain)
