"""The page: a form and its answer, drawn by the server; a script makes it follow the hand. The address holds the question."""

from asyncio import to_thread
from functools import cache
from typing import Annotated, Any
from urllib.parse import parse_qsl

from litestar import Request, Response, get, post
from litestar.exceptions import ClientException
from litestar.params import PathParameter

from vramcast.errors import VramcastError
from vramcast.language import Language
from vramcast.planning.verdict import WANTING
from vramcast.web.api import answered, first_of, forecast_of
from vramcast.web.frame import html, language_of, page
from vramcast.web.pictures import pictures_of
from vramcast.web.problems import problem_of
from vramcast.web.threads import in_thread
from vramcast.web.view import link, shown_of, with_links
from vramcast.web.words import catalogue_models, choices, gpus, lists, words_of

_EXAMPLES = {
    "serve": {"model": "Qwen/Qwen2.5-7B-Instruct", "gpu": "RTX 4090", "context": "32768", "prompt": "1000", "output": "300"},
    "train": {"model": "meta-llama/Llama-3.1-8B", "gpu": "H100", "method": "lora", "seq": "4096", "checkpointing": "full"},
}
_FIRST = {
    "serve": ("context", "concurrency", "quant", "engine", "prompt", "output"),
    "train": ("method", "micro_batch", "seq", "checkpointing"),
}
_REST = {
    "serve": ("kv_dtype", "tp", "pp", "dp", "ep", "flags"),
    "train": ("framework", "optimizer", "rank", "zero", "fsdp", "tp", "pp", "tokens"),
}
_STOPS = {
    "context": "1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576",
    "concurrency": "1,2,4,8,16,32,64,128,256,512",
    "prompt": "128,256,512,1000,2000,4000,8000,16000,32000,64000",
    "output": "32,64,128,300,500,1000,2000,4000,8000",
    "micro_batch": "1,2,4,8,16,32,64",
    "seq": "512,1024,2048,4096,8192,16384,32768,65536,131072",
}
_MOST_BESIDE = 4
Kind = Annotated[str, PathParameter(max_length=10)]


@get("/", include_in_schema=False)
@in_thread
def home(request: Request[Any, Any, Any]) -> Response[str]:
    """The serving page with an example."""
    return _asked("serve", request)


@get("/serve", include_in_schema=False)
@in_thread
def serve_page(request: Request[Any, Any, Any]) -> Response[str]:
    """The serving page."""
    return _asked("serve", request)


@get("/train", include_in_schema=False)
@in_thread
def train_page(request: Request[Any, Any, Any]) -> Response[str]:
    """The training page."""
    return _asked("train", request)


@get("/answer/{kind:str}", include_in_schema=False)
@in_thread
def fragment(request: Request[Any, Any, Any], kind: Kind) -> Response[str]:
    """The answer alone, for the script that follows the hand; with ``part=first`` what takes long is left to ``part=rest``."""
    if kind not in _EXAMPLES:
        raise ClientException(f"no answers of kind {kind[:20]!r}", status_code=404)
    words, say = words_of(request), language_of(request)
    part = words.pop("part", None)
    if part == "rest":
        return html("changes.html", {"rest": True, **_answer(kind, words, say)})
    return html("answer.html", _answer(kind, words, say, first=part == "first"))


@post("/answer/{kind:str}", status_code=200, include_in_schema=False)
async def fragment_of_config(request: Request[Any, Any, Any], kind: Kind) -> Response[str]:
    """The answer for a config.json that was dropped on the page; the body is the file."""
    if kind not in _EXAMPLES:
        raise ClientException(f"no answers of kind {kind[:20]!r}", status_code=404)
    say, config = language_of(request), await request.body()
    try:
        words = {name: value for name, value in words_of(request).items() if name != "model"}
        shown = shown_of(await to_thread(forecast_of, kind, words, config), words, kind, say)
    except VramcastError as error:
        shown = {"say": say, "problem": with_links(problem_of(error), {}, kind)}
    return html("answer.html", shown)


@get("/pictures", include_in_schema=False)
@in_thread
def pictures_page(request: Request[Any, Any, Any]) -> Response[str]:
    """What takes longer to draw than the answer: context by users, users against latency, the roofline."""
    words, say = words_of(request), language_of(request)
    alone = words.pop("alone", None)
    try:
        shown = {"say": say, "pictures": pictures_of(words, say)}
    except VramcastError as error:
        shown = {"say": say, "pictures": [], "problem": with_links(problem_of(error), words, "serve")}
    if alone:
        return html("pictures.html", shown)
    return page("pictures_page.html", request, "serve", {**shown, "back": link({**words, "lang": say.code}, "serve")})


@get("/compare", include_in_schema=False)
@in_thread
def compare_page(request: Request[Any, Any, Any]) -> Response[str]:
    """Up to four questions beside each other, each an address of this page."""
    say = language_of(request)
    given = [value for name, value in request.query_params.multi_items() if name == "vs" and value.strip()][:_MOST_BESIDE]
    answers = []
    for address in given:
        path, mark, query = address.rpartition("?")
        kind = "train" if mark and path.rstrip("/").endswith("train") else "serve"
        words = {name: value for name, value in parse_qsl(query[:4000], max_num_fields=64) if name not in ("lang", "vs")}
        shown = _answer(kind, words, say)
        answers.append((shown.get("problem"), shown.get("answer"), link({**words, "lang": say.code}, kind)))
    return page("compare.html", request, "compare", {"answers": answers, "given": [*given, *[""] * _MOST_BESIDE][:_MOST_BESIDE]})


@get("/cards", include_in_schema=False)
@in_thread
def cards_page(request: Request[Any, Any, Any]) -> Response[str]:
    """All cards."""
    return page("cards.html", request, "cards", {"cards": _cards(), "example_model": _EXAMPLES["serve"]["model"]})


@get("/api", include_in_schema=False)
@in_thread
def api_page(request: Request[Any, Any, Any]) -> Response[str]:
    """What the API has, from its own OpenAPI document."""
    paths = request.app.openapi_schema.to_schema()["paths"]
    found = [
        (method.upper(), path, doing["summary"], doing.get("description", ""))
        for path, methods in sorted(paths.items())
        for method, doing in methods.items()
    ]
    return page("api.html", request, "api", {"operations": found, "root": str(request.base_url)})


def _asked(kind: str, request: Request[Any, Any, Any]) -> Response[str]:
    """The page of a question; of the example where none was asked."""
    given, say = words_of(request), language_of(request)
    words = {name: value for name, value in given.items() if value != ""}
    example = not words
    shown = _answer(kind, words or dict(_EXAMPLES[kind]), say)
    more = {
        **shown, "kind": kind, "example": example, "first": _FIRST[kind], "rest": _REST[kind], "stops": _STOPS,
        "choices": choices(kind), "lists": lists(kind), "models": catalogue_models(), "gpus": gpus(),
        "opened": any(name in words for name in _REST[kind]),
    }  # fmt: skip
    return page("ask.html", request, kind, more)


def _answer(kind: str, words: dict[str, Any], say: Language, *, first: bool = False) -> dict[str, Any]:
    """What is shown of a question; ``first``: advice and cards follow, where there may be any."""
    words = {name: value for name, value in words.items() if value != ""}
    try:
        found = first_of(kind, words) if first else answered(kind, words)
        shown = shown_of(found, words, kind, say)
        waits = first and not found.fit.refused and found.fit.verdict in (*WANTING, "unknown")
        return {**shown, "rest_link": link({**words, "lang": say.code, "part": "rest"}, f"answer/{kind}") if waits else ""}
    except VramcastError as error:
        return {"say": say, "asked": words, "problem": with_links(problem_of(error), words, kind)}


@cache
def _cards() -> tuple[dict[str, str], ...]:
    from vramcast.hardware.accelerator import catalogue

    rows = sorted(catalogue().values(), key=lambda c: (c.vendor, -c.visible_bytes, c.name))
    return tuple(
        {
            "id": c.id,
            "name": c.name,
            "memory": f"{c.visible_bytes / 2**30:.1f}",
            "bandwidth": f"{c.bandwidth_bytes_per_s / 1e9:,.0f}",
            "bf16": f"{c.flops['bf16'] / 1e12:,.0f}" if "bf16" in c.flops else "-",
            "power": f"{c.tdp_w:,.0f}" if c.tdp_w else "-",
            "year": str(c.year or "-"),
        }
        for c in rows
    )


HANDLERS = (
    home,
    serve_page,
    train_page,
    fragment,
    fragment_of_config,
    pictures_page,
    compare_page,
    cards_page,
    api_page,
)
