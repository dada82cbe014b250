"""Files and texts that visitors send: read by the worker within bounds, answered, forgotten."""

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import UploadFile
from litestar.params import QueryParameter

from vramcast.errors import QuestionError
from vramcast.language import language, preferred
from vramcast.web.document import REFUSALS, FileOperation
from vramcast.web.frame import html, language_of, page
from vramcast.web.pasting import LARGEST_HELD_BYTES
from vramcast.web.threads import in_thread
from vramcast.web.view import with_links
from vramcast.web.worker import WORKER, Refused, busy

MOST_AT_ONCE = 4  # files that are on their way at the same time
_LONGEST_NAME = 200
_OVERHEAD = 2**20  # of a form around its file
Named = Annotated[str, QueryParameter(max_length=_LONGEST_NAME)]
_room = asyncio.Semaphore(MOST_AT_ONCE)


async def _body(request: Request[Any, Any, Any]) -> bytes:
    """The body, where few others are being received. Raises Refused where too many are."""
    if _room.locked():
        raise Refused(busy("other visitors' files are being received: ask again in a few seconds"))
    async with _room:
        return await request.body()


@post(
    "/api/profile",
    responses=REFUSALS,
    operation_class=FileOperation,
    status_code=200,
    request_max_body_size=LARGEST_HELD_BYTES,
    summary="A profiler trace: where the GPU's time went",
)
async def profile(request: Request[Any, Any, Any], name: Named = "the trace", gpu: Named = "") -> Response[bytes]:
    """The body is the trace (.json, .json.gz); the object of ``vramcast profile --json``. ``gpu``: its card."""
    data = await _body(request)
    found = await asyncio.to_thread(WORKER.ask, "profile", data=data, name=name, gpu=gpu)
    return Response(msgspec.json.encode(found["object"]), media_type="application/json")


@post("/read", status_code=200, include_in_schema=False, request_max_body_size=LARGEST_HELD_BYTES)
async def read(
    request: Request[Any, Any, Any], name: Named = "", gpu: Named = "", size: Annotated[int, QueryParameter(ge=0)] = 0
) -> Response[str]:
    """A file that was dropped on the page, as the fragment that answers it. ``size``: of the whole, where its head was sent."""
    say = language_of(request)
    try:
        data = await _body(request)
        found = await asyncio.to_thread(WORKER.ask, "held", data=data, name=name, gpu=gpu, size=size, lang=say.code)
    except Refused as refused:
        return html("held.html", {"say": say, "problem": with_links(refused.problem, {}, "serve")})
    return html("raw.html", {"held": found["html"]})


@get("/paste", include_in_schema=False)
@in_thread
def paste_form(request: Request[Any, Any, Any]) -> Response[str]:
    """The box for anything that people hold."""
    return page("paste.html", request, "paste", {"text": "", "gpu": "", "held": ""})


@post("/paste", status_code=200, include_in_schema=False, request_max_body_size=LARGEST_HELD_BYTES + _OVERHEAD)
async def pasted(request: Request[Any, Any, Any]) -> Response[str]:
    """What was pasted or chosen: a launch line, a log, a config.json, a trace."""
    await _body(request)
    form = await request.form()
    text, gpu = str(form.get("text") or ""), str(form.get("gpu") or "")[:_LONGEST_NAME]
    say = language(preferred(str(form.get("lang") or ""), request.headers.get("accept-language")))
    file = form.get("file")
    data, name = text.encode("utf-8", "replace"), ""
    if isinstance(file, UploadFile) and file.filename and not text.strip():
        data, name = await file.read(), file.filename[:_LONGEST_NAME]
    shown: dict[str, Any] = {"text": text, "gpu": gpu, "held": ""}
    try:
        if "\0" in gpu:
            raise QuestionError("a card's name has no such letters")
        found = await asyncio.to_thread(WORKER.ask, "held", data=data, name=name, gpu=gpu, size=len(data), lang=say.code)
        shown["held"] = found["html"]
    except Refused as refused:
        shown["problem"] = with_links(refused.problem, {}, "serve")
    return page("paste.html", request, "paste", shown, say=say)


HANDLERS = (profile, read, paste_form, pasted)
