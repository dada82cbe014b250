"""Plans on the page and in the API: the words that a visitor may ask with, the object of ``--json``, and its view."""

from functools import lru_cache
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.params import PathParameter

from vramcast.charts.plans import serving_front, training_front
from vramcast.errors import VramcastError, unknown_name
from vramcast.language import Language
from vramcast.units import DAY_S, time_text
from vramcast.web.document import REFUSALS, PlanServeOperation, PlanTrainOperation
from vramcast.web.drawing import pictured
from vramcast.web.frame import html, language_of, page
from vramcast.web.problems import Problem, problem_of
from vramcast.web.threads import in_thread
from vramcast.web.view import command_of, link, with_links
from vramcast.web.words import catalogue_models, choices, gpus, words_of
from vramcast.web.worker import WORKER, Refused

_KEPT = 64  # plans remembered, some 25 kB each
_SHOWN_REFUSED = 4
_EXAMPLES = {
    "serve": {"model": "openai/gpt-oss-20b", "gpu": "RTX 4090x4, L40Sx2, H100", "rate": "4", "prompt": "1500", "output": "400"},
    "train": {"model": "meta-llama/Llama-3.1-8B", "gpu": "H100x16@2.50", "seq": "8192", "tokens": "100B"},
}
_FIRST = {
    "serve": ("gpu", "users", "rate", "context", "prompt", "output", "slo", "by"),
    "train": ("gpu", "method", "seq", "tokens", "deadline", "budget", "by"),
}
_REST = {"serve": ("engine", "bits", "most_gpus"), "train": ("framework", "rank", "optimizer", "batch")}
_BY = {"serve": ("cost", "speed", "cards"), "train": ("time", "cost", "cards")}


@lru_cache(maxsize=_KEPT)
def _remembered(task: str, words: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    found: dict[str, Any] = WORKER.ask("plan", task=task, words=dict(words))["object"]
    return found


def planned(task: str, words: dict[str, Any]) -> dict[str, Any]:
    """The plan's object, remembered. Raises Refused for a problem of the question or of the worker."""
    return _remembered(task, tuple(sorted(words.items())))


@get("/api/plan", responses=REFUSALS, operation_class=PlanServeOperation, summary="Deployments of a model on cards, ranked")
@in_thread
def plan_serve_api(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The words of ``vramcast plan serve`` as parameters: model, gpu (several by comma), users or rate, slo, engine ..."""
    return _object("serve", words_of(request))


@get("/api/plan/train", responses=REFUSALS, operation_class=PlanTrainOperation, summary="Layouts that train a model, ranked")
@in_thread
def plan_train_api(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The words of ``vramcast plan train`` as parameters: model, gpu (several by comma), seq, tokens, deadline, budget ..."""
    return _object("train", words_of(request))


def _object(task: str, words: dict[str, Any]) -> Response[bytes]:
    return Response(msgspec.json.encode(planned(task, words)), media_type="application/json")


@get("/plan", include_in_schema=False)
@in_thread
def plan_page(request: Request[Any, Any, Any]) -> Response[str]:
    """The plan page: a form for serving or training, and the ranked answer where something was asked."""
    given, say = words_of(request), language_of(request)
    task = _task(given.pop("task", "serve"))
    words = {name: value for name, value in given.items() if value != ""}
    shown = plan_shown(task, words, say) if words else {"say": say, "asked": dict(_EXAMPLES[task]), "plan": None}
    known = {**choices(task), "by": _BY[task]}
    more = {
        "task": task, "first": _FIRST[task], "rest": _REST[task], "choices": known, "models": catalogue_models(), "gpus": gpus(),
        "opened": any(name in words for name in _REST[task]), "example": not words,
    }  # fmt: skip
    return page("plan.html", request, "plan", {**shown, **more})


@get("/answer/plan/{task:str}", include_in_schema=False)
@in_thread
def plan_fragment(request: Request[Any, Any, Any], task: Annotated[str, PathParameter(max_length=10)]) -> Response[str]:
    """The plan alone, for the script."""
    words = {name: value for name, value in words_of(request).items() if value != "" and name != "task"}
    return html("plan_answer.html", plan_shown(_task(task), words, language_of(request)))


def _task(task: str) -> str:
    if task not in _EXAMPLES:
        raise unknown_name("plan", task[:40], _EXAMPLES)
    return task


def plan_shown(task: str, words: dict[str, Any], say: Language) -> dict[str, Any]:
    """What the template needs: the plan's view, or the problem beside its field."""
    try:
        view = _serving(planned(task, words), say) if task == "serve" else _training(planned(task, words), say)
    except Refused as refused:
        return _problem(refused.problem, task, words, say)
    except VramcastError as error:
        return _problem(problem_of(error), task, words, say)
    line = command_of({n: v for n, v in words.items() if n != "gpu"}, f"plan {task}")
    cards = [part.strip() for part in str(words.get("gpu", "")).split(",") if part.strip()]
    command = " ".join([line, *(f"--gpu '{card}'" if " " in card or "@" in card else f"--gpu {card}" for card in cards)])
    return {"say": say, "asked": words, "task": task, "plan": {**view, "command": command}, "json_link": _json_link(task, words)}


def _problem(problem: Problem, task: str, words: dict[str, Any], say: Language) -> dict[str, Any]:
    path = f"plan?task={task}&"
    return {"say": say, "asked": words, "task": task, "plan": None, "problem": with_links(problem, words, path)}


def _json_link(task: str, words: dict[str, Any]) -> str:
    return link(words, "api/plan" if task == "serve" else "api/plan/train")


def _common(found: dict[str, Any]) -> dict[str, Any]:
    plan = found["plan"]
    refused = sorted(plan["refused"].items(), key=lambda item: -item[1])[:_SHOWN_REFUSED]
    nearest = plan["nearest"]
    return {
        "meets": plan["meets"], "tried": f"{plan['tried']:,}", "structures": f"{plan['structures']:,}", "refused": refused,
        "nearest": (nearest["what"], _gib(nearest["short_bytes"] or 0)) if nearest and not plan["ranked"] else None,
        "assumed": found["assumed"],
        "without": ", ".join(plan["cards_without_job"]) if len(plan["cards_without_job"]) <= _SHOWN_REFUSED else "",
    }  # fmt: skip


def _serving(found: dict[str, Any], say: Language) -> dict[str, Any]:
    plan = found["plan"]
    return {
        **_common(found),
        "front": pictured(serving_front(plan, say)),
        "rows": [_choice(one, say) for one in plan["ranked"]],
        "fewest": [_choice(one, say) for one in plan["fewest_cards"]],
        "weights": [_choice(one, say) for one in plan["by_weights"]] if len(plan["by_weights"]) > 1 else [],
    }


def _choice(one: dict[str, Any], say: Language) -> dict[str, Any]:
    """One deployment as texts; ``link`` asks about a single replica of it on the serving page."""
    cards = one["gpus"] // one["replicas"]
    own = {
        "model": one["model"], "gpu": f"{one['gpu']}x{cards}" if cards > 1 else one["gpu"], "engine": one["engine"],
        "quant": one["quant"], "kv_dtype": one["kv_dtype"], "lang": say.code,
        **{name: size for name, size in one["parallel"].items() if size > 1},
    }  # fmt: skip
    return {
        "cards": f"{one['gpus']} x {one['gpu']}",
        "runs": f"{one['engine']} {one['weights']}{' kv ' + one['kv_dtype'] if one['kv_dtype'] else ''}",
        "layout": one["layout"], "verdict": one["verdict"], "memory": f"{one['needed_bytes'] / 2**30:.1f}",
        "ttft": _brief(one["ttft_s"]), "tpot": _brief(one["tpot_s"]), "request": _brief(one["request_s"]),
        "rate": f"{one['tokens_per_s']:,.0f}",
        "cost": f"${one['usd_per_million_tokens']:,.2f}" if one["usd_per_million_tokens"] else "\u2013",
        "hour": f"${one['usd_per_hour']:,.2f}" if one["usd_per_hour"] else "\u2013",
        "power": f"{one['power_w'] / 1000:,.1f} kW", "command": one["command"], "lost": one.get("lost", ""),
        "room": _room(one), "link": link(own, "serve"),
    }  # fmt: skip


def _training(found: dict[str, Any], say: Language) -> dict[str, Any]:
    plan = found["plan"]
    return {
        **_common(found),
        "front": pictured(training_front(plan, say)),
        "rows": [_trained(one, plan["task"], say) for one in plan["ranked"]],
        "fewest": [_trained(one, plan["task"], say) for one in plan["fewest_cards"]],
        "weights": [],
    }


def _trained(one: dict[str, Any], task: dict[str, Any], say: Language) -> dict[str, Any]:
    own = {
        "model": task["model"], "gpu": f"{one['gpu']}x{one['gpus']}" if one["gpus"] > 1 else one["gpu"],
        "framework": one["framework"], "method": task["method"], "seq": task["seq"], "micro_batch": one["micro_batch"],
        "accumulate": one["accumulate"], "checkpointing": one["checkpointing"], "zero": one["zero"], "fsdp": one["fsdp"],
        "lang": say.code, **{name: size for name, size in one["parallel"].items() if name != "dp" and size and size is not True
                             and size > 1},
    }  # fmt: skip
    return {
        "cards": f"{one['gpus']} x {one['gpu']}", "runs": one["framework"],
        "layout": one["layout"].removeprefix(one["framework"]).strip(), "verdict": one["verdict"],
        "memory": f"{one['needed_bytes'] / 2**30:.1f}", "step": _brief(one["step_s"]), "mfu": f"{one['mfu']:.1%}",
        "rate": f"{one['tokens_per_s']:,.0f}", "days": time_text(one["days"] * DAY_S) if one["days"] else "\u2013",
        "usd": f"${one['usd']:,.0f}" if one["usd"] else "\u2013", "lost": "", "power": f"{one['power_w'] / 1000:,.1f} kW",
        "room": _room(one), "link": link(own, "train"),
        "command": command_of({n: v for n, v in own.items() if n != "lang"}, "train"),
    }  # fmt: skip


def _brief(seconds: float) -> str:
    """``239 ms`` or ``6.62 s``: three digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


def _room(one: dict[str, Any]) -> str:
    """``14.9 / 23.5 GiB``."""
    return f"{one['needed_bytes'] / 2**30:.1f} / {_gib(one['capacity_bytes'])}"


HANDLERS = (plan_serve_api, plan_train_api, plan_page, plan_fragment)
