"""The five tools: what each takes, gives and does. Nothing is stored or executed, and no file of this machine is read."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vramcast.asking.asked import answer_serving, answer_training
from vramcast.asking.visitor import asked_by_visitor, asked_of_config, plan_of_visitor
from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import Forecast
from vramcast.mcp.results import Answered, ExplainedTold, ReadTold, ServingPlanned, TrainingPlanned, schema_of
from vramcast.mcp.words import LONGEST_TEXT, Helps, plan_schema, question_schema, short_text, text_schema
from vramcast.untrusted import disk_closed, shown

Watch = Callable[[int, int], None]
Given = Mapping[str, Any]
_PLAN = "What should I run? Every way to serve or train a model on the cards at hand, ranked by cost, speed or number of cards."
_EXPLAIN = "A log or a traceback with an out-of-memory message of PyTorch, vLLM, SGLang, llama.cpp, Ollama, TensorRT-LLM or TGI."
_READ = (
    "What a user holds, as text: a vllm, sglang or llama-server command, a compose file, a Kubernetes manifest, a training "
    "configuration or launch line, a config.json, a log."
)


class ToolAnswer(msgspec.Struct, frozen=True):
    """An answer: ``page`` as people read it, ``body`` as the object of ``--json``."""

    page: str
    body: dict[str, Any]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool: its words, its object, and the function that answers; ``watch`` is told how much of how much is done."""

    name: str
    title: str
    about: str
    takes: dict[str, Any]
    gives: dict[str, Any]
    answer: Callable[[Given, Watch | None], ToolAnswer]


def tools_of(helps: Helps) -> tuple[Tool, ...]:
    """The tools; ``helps``: descriptions of their words."""
    forecast = "memory byte by byte, each amount with its formula; whether it fits, how likely; limits, speed, what to change."
    return (
        Tool(name="serve", title="Memory and speed of serving a model", about=f"Serving a model with an engine: {forecast}",
             takes=question_schema("serve", helps), gives=schema_of(Answered), answer=lambda given, _: _asked("serve", given)),
        Tool(name="train", title="Memory and speed of a training step", about=f"A training step with a framework: {forecast}",
             takes=question_schema("train", helps), gives=schema_of(Answered), answer=lambda given, _: _asked("train", given)),
        Tool(name="plan", title="Which cards, engine and layout", about=_PLAN, takes=plan_schema(helps),
             gives=schema_of(ServingPlanned, TrainingPlanned), answer=_planned),
        Tool(name="explain", title="Why it ran out of memory", about=f"{_EXPLAIN} What it means, and one corrected line.",
             takes=text_schema(_EXPLAIN), gives=schema_of(ExplainedTold), answer=lambda given, _: _explained(given)),
        Tool(name="read", title="Read a command, a configuration or a log", about=f"{_READ} Says what it is and answers it.",
             takes=text_schema(_READ, name=short_text("The file's name, where there is one: docker-compose.yml.")),
             gives=schema_of(ReadTold), answer=lambda given, _: _read(given)),
    )  # fmt: skip


def _asked(kind: str, given: Given) -> ToolAnswer:
    """``serve`` or ``train``."""
    words = {name: value for name, value in given.items() if name != "config"}
    config = given.get("config")
    with disk_closed():
        if config is None:
            asked: Any = asked_by_visitor(kind, words)
        elif isinstance(config, dict):
            asked = asked_of_config(msgspec.json.encode(config), words, kind=kind)
        else:
            raise QuestionError("config: expected the object of a config.json")
        return _told(answer_serving(asked) if kind == "serve" else answer_training(asked))


def _told(forecast: Forecast) -> ToolAnswer:
    return ToolAnswer(str(forecast), forecast.to_dict())


def _planned(given: Given, watch: Watch | None) -> ToolAnswer:
    """``plan``."""
    from vramcast.asking.plan import plan_serve
    from vramcast.asking.plan_training import plan_train

    with disk_closed():
        task = str(given.get("task", ""))
        model, words = plan_of_visitor(task, {name: value for name, value in given.items() if name != "task"})
        plan: Any = (plan_serve if task == "serve" else plan_train)(model, watch=watch, **words)
    return ToolAnswer(str(plan), plan.to_dict())


def _explained(given: Given) -> ToolAnswer:
    """``explain``."""
    from vramcast.asking.looking import explain_text

    with disk_closed():
        found = explain_text(_text(given, ("text", "gpu")), gpu=_gpu(given))
    return ToolAnswer(str(found), found.to_dict())


def _read(given: Given) -> ToolAnswer:
    """``read``."""
    from vramcast.mcp.reading import read_text

    text, name = _text(given, ("text", "gpu", "name")), given.get("name") or ""
    if not isinstance(name, str) or len(name) > LONGEST_TEXT // 1000:
        raise QuestionError("name: expected a file's name")
    with disk_closed():
        found = read_text(text, name=name.replace("\\", "/").rpartition("/")[2], gpu=_gpu(given))
    pages = [found.kind, *(f"{part.name}: {part.error or part.forecast}" for part in found.parts)]
    pages += [str(found.explained)] if found.explained is not None else []
    return ToolAnswer("\n\n".join(pages), found.to_dict())


def _text(given: Given, known: tuple[str, ...]) -> str:
    for name in given:
        if name not in known:
            raise unknown_name("word", str(name), known)
    text = given.get("text")
    if not isinstance(text, str) or not text.strip():
        raise QuestionError("text: expected the text itself; files of this machine are not read")
    if len(text) > LONGEST_TEXT:
        raise QuestionError(f"the text has {len(text):,} letters: the last {LONGEST_TEXT:,} of a log are enough")
    return text


def _gpu(given: Given) -> str | None:
    gpu = given.get("gpu")
    if gpu is None or gpu == "":
        return None
    if not isinstance(gpu, str) or gpu.strip().lower() == "local":
        raise QuestionError(f"gpu {shown(gpu, 20)}: name the card, for example RTX 4090")
    return gpu
