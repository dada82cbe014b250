"""The page: a form and its answer, drawn by the server; a script makes it follow the hand. The address holds the question."""

from asyncio import to_thread
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from litestar import MediaType, Request, Response, get, post
from litestar.exceptions import ClientException
from litestar.params import PathParameter

from vramcast import __version__
from vramcast.charts.svg import heat_map
from vramcast.errors import QuestionError, VramcastError
from vramcast.planning.verdict import headline
from vramcast.units import gib, parse_count
from vramcast.web.api import answered, forecast_of, words_of
from vramcast.web.drawing import drawn
from vramcast.web.language import LANGUAGES, Language, language, preferred
from vramcast.web.pasting import read_pasted
from vramcast.web.problems import problem_of
from vramcast.web.threads import in_thread
from vramcast.web.view import link, shown_of

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
_PLACES = (
    ("serve", "nav-serve"),
    ("train", "nav-train"),
    ("compare", "nav-compare"),
    ("paste", "nav-paste"),
    ("cards", "nav-cards"),
)
_STOPS = {
    "context": "1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576",
    "concurrency": "1,2,4,8,16,32,64,128,256,512",
    "prompt": "128,256,512,1000,2000,4000,8000,16000,32000,64000",
    "output": "32,64,128,300,500,1000,2000,4000,8000",
    "micro_batch": "1,2,4,8,16,32,64",
    "seq": "512,1024,2048,4096,8192,16384,32768,65536,131072",
}
_CONTEXTS = (4096, 8192, 16384, 32768, 65536, 131072, 262144)
_USERS = (1, 2, 4, 8, 16, 32, 64)
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
    """The answer alone, for the script that follows the hand."""
    if kind not in _EXAMPLES:
        raise ClientException(f"no answers of kind {kind[:20]!r}", status_code=404)
    return _html("answer.html", _answer(kind, words_of(request), _language(request)))


@post("/answer/{kind:str}", status_code=200, include_in_schema=False)
async def fragment_of_config(request: Request[Any, Any, Any], kind: Kind) -> Response[str]:
    """The answer for a config.json that was dropped on the page; the body is the file."""
    if kind not in _EXAMPLES:
        raise ClientException(f"no answers of kind {kind[:20]!r}", status_code=404)
    say, config = _language(request), await request.body()
    try:
        words = {name: value for name, value in words_of(request).items() if name != "model"}
        shown = shown_of(await to_thread(forecast_of, kind, words, config), words, kind, say)
    except VramcastError as error:
        shown = {"say": say, "problem": _with_links(problem_of(error), {}, kind)}
    return _html("answer.html", shown)


@get("/map", include_in_schema=False)
@in_thread
def map_page(request: Request[Any, Any, Any]) -> Response[str]:
    """Context by users on the card of the question."""
    words, say = words_of(request), _language(request)
    alone = words.pop("alone", None)
    try:
        picture = _map(words, say)
    except VramcastError as error:
        return _html("answer.html", {"say": say, "problem": problem_of(error)})
    shown = {"say": say, "picture": picture}
    if alone:
        return _html("map.html", shown)
    return _page("map_page.html", request, "serve", {**shown, "back": link({**words, "lang": say.code}, "serve")})


@get("/compare", include_in_schema=False)
@in_thread
def compare_page(request: Request[Any, Any, Any]) -> Response[str]:
    """Up to four questions beside each other, each an address of this page."""
    say = _language(request)
    given = [value for name, value in request.query_params.multi_items() if name == "vs" and value.strip()][:_MOST_BESIDE]
    answers = []
    for address in given:
        path, mark, query = address.rpartition("?")
        kind = "train" if mark and path.rstrip("/").endswith("train") else "serve"
        words = {name: value for name, value in parse_qsl(query[:4000], max_num_fields=64) if name not in ("lang", "vs")}
        shown = _answer(kind, words, say)
        answers.append((shown.get("problem"), shown.get("answer"), link({**words, "lang": say.code}, kind)))
    return _page("compare.html", request, "compare", {"answers": answers, "given": [*given, *[""] * _MOST_BESIDE][:_MOST_BESIDE]})


@get("/cards", include_in_schema=False)
@in_thread
def cards_page(request: Request[Any, Any, Any]) -> Response[str]:
    """All cards."""
    return _page("cards.html", request, "cards", {"cards": _cards(), "example_model": _EXAMPLES["serve"]["model"]})


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
    return _page("api.html", request, "api", {"operations": found, "root": str(request.base_url)})


@get("/paste", include_in_schema=False)
@in_thread
def paste_form(request: Request[Any, Any, Any]) -> Response[str]:
    """The box for anything that people hold."""
    return _page("paste.html", request, "paste", {"text": "", "gpu": "", "lines": (), "found": ""})


@post("/paste", status_code=200, include_in_schema=False)
async def pasted(request: Request[Any, Any, Any]) -> Response[str]:
    """What was pasted, read: a launch line, a log, a config.json."""
    form = await request.form()
    text, gpu = str(form.get("text") or ""), str(form.get("gpu") or "")[:100]
    say = language(preferred(str(form.get("lang") or ""), request.headers.get("accept-language")))
    shown: dict[str, Any] = {"text": text, "gpu": gpu, "lines": (), "found": ""}
    try:
        shown |= read_pasted(text, gpu, say)
    except VramcastError as error:
        shown |= {"problem": _with_links(problem_of(error), {}, "serve")}
    return _page("paste.html", request, "paste", shown, say=say)


def _asked(kind: str, request: Request[Any, Any, Any]) -> Response[str]:
    """The page of a question; of the example where none was asked."""
    given, say = words_of(request), _language(request)
    words = {name: value for name, value in given.items() if value != ""}
    example = not words
    shown = _answer(kind, words or dict(_EXAMPLES[kind]), say)
    more = {
        **shown, "kind": kind, "example": example, "first": _FIRST[kind], "rest": _REST[kind], "stops": _STOPS,
        "choices": _choices(kind), "lists": _lists(kind), "models": _models(), "gpus": _gpus(),
        "opened": any(name in words for name in _REST[kind]),
    }  # fmt: skip
    return _page("ask.html", request, kind, more)


def _answer(kind: str, words: dict[str, Any], say: Language) -> dict[str, Any]:
    words = {name: value for name, value in words.items() if value != ""}
    try:
        return shown_of(answered(kind, words), words, kind, say)
    except VramcastError as error:
        return {"say": say, "asked": words, "problem": _with_links(problem_of(error), words, kind)}


def _with_links(problem: Any, words: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """A problem with the words it offers as addresses of the mended question."""
    field = problem.field or "model"
    return {
        "detail": problem.detail,
        "field": problem.field,
        "offers": [(word, link(words, kind, **{field: word})) for word in problem.suggestions],
    }


def _map(words: dict[str, Any], say: Language) -> str:
    """The grid of verdicts; contexts beyond the model's own end are left out."""
    rows = []
    words = {name: value for name, value in words.items() if name not in ("prompt", "output", "rate", "context", "concurrency")}
    first = answered("serve", words)
    longest = first.workload.get("positions") or parse_count(str(first.limits.max_context or _CONTEXTS[-1]))
    contexts = [c for c in _CONTEXTS if c <= max(longest, _CONTEXTS[0])] or [_CONTEXTS[0]]
    for users in _USERS:
        cells = []
        for context in contexts:
            try:
                found = answered("serve", {**words, "context": str(context), "concurrency": str(users)})
            except QuestionError as error:
                cells.append(("unknown", "-", str(error)))
                continue
            cells.append((found.fit.verdict, gib(found.worst.needed_bytes, 1), f"{users} x {context:,}: {headline(found.fit)}"))
        rows.append(cells)
    names = [f"{c // 1024}k" for c in contexts]
    return heat_map(names, [str(u) for u in _USERS], rows, title=say("map-title"), axes=(say("map-context"), say("map-users")))


def _language(request: Request[Any, Any, Any]) -> Language:
    return language(preferred(request.query_params.get("lang"), request.headers.get("accept-language")))


def _page(
    template: str, request: Request[Any, Any, Any], here: str, shown: dict[str, Any], *, say: Language | None = None
) -> Response[str]:
    """A whole page around what is shown."""
    say = say or _language(request)
    other = next(code for code in LANGUAGES if code != say.code)
    items = [(name, value) for name, value in request.query_params.multi_items() if name != "lang"]
    frame = {
        "say": say, "version": __version__, "places": _PLACES, "here": here, "heading": say("title"),
        "other_language": f"{request.url.path}?{urlencode([*items, ('lang', other)])}",
    }  # fmt: skip
    return _html(template, {**shown, **frame})


def _html(template: str, shown: dict[str, Any]) -> Response[str]:
    return Response(drawn(template, shown), media_type=MediaType.HTML)


@cache
def _choices(kind: str) -> dict[str, tuple[str, ...]]:
    """Words of the fields that have few."""
    if kind == "serve":
        from vramcast.serving.engines import engine_names

        return {"engine": engine_names(), "kv_dtype": ("auto", "fp8", "q8_0", "q4_0")}
    from vramcast.training.frameworks import names

    return {
        "framework": names(), "method": ("full", "lora", "qlora"), "checkpointing": ("none", "selective", "full"),
        "zero": ("0", "1", "2", "3"),
    }  # fmt: skip


@cache
def _lists(kind: str) -> dict[str, tuple[str, ...]]:
    """Words that are offered while typing, where a field takes many."""
    if kind == "serve":
        return {"quant": ("bf16", "fp8", "int8", "awq", "gptq", "nf4", "nvfp4", "mxfp4", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")}
    from vramcast.training.optimizers.rows import ROWS

    return {"optimizer": tuple(row.name for row in ROWS)}


@cache
def _models() -> tuple[str, ...]:
    from vramcast.asking.looking import find_models

    return find_models("")


@cache
def _gpus() -> tuple[str, ...]:
    from vramcast.hardware.accelerator import catalogue

    return tuple(card.name for card in catalogue().values())


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
    map_page,
    compare_page,
    cards_page,
    paste_form,
    pasted,
    api_page,
)
