"""The application: routes, limits, headers and errors. No database, no session, no file written, no network of its own."""

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

from litestar import Litestar, Request, Response
from litestar.config.compression import CompressionConfig
from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.static_files import create_static_files_router
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from vramcast import __version__
from vramcast.errors import VramcastError
from vramcast.web import api, pages, plans, uploads
from vramcast.web.problems import plain
from vramcast.web.worker import Refused

LARGEST_BODY_BYTES = 2 * 2**20
LONGEST_BODY_S = 30.0
_STATIC = Path(__file__).parent / "static"
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src-attr 'unsafe-inline'; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def create_app() -> Litestar:
    """The application, ready for any ASGI server."""
    static = create_static_files_router("/static", [_STATIC], include_in_schema=False, cache_control=None)
    return Litestar(
        route_handlers=[*pages.HANDLERS, *plans.HANDLERS, *uploads.HANDLERS, *api.HANDLERS, static],
        middleware=[_framed],
        exception_handlers={
            VramcastError: _refused, Refused: _refused_by_worker, TimeoutError: _late, HTTPException: _transport,
            Exception: _internal,
        },
        compression_config=CompressionConfig(backend="gzip", gzip_compress_level=5, minimum_size=1_000),
        request_max_body_size=LARGEST_BODY_BYTES,
        openapi_config=OpenAPIConfig(
            title="vramcast", version=__version__, path="/api/docs", render_plugins=[JsonRenderPlugin()],
            description="Memory and speed of large language models on GPUs. Answers are the objects of `vramcast ... --json`.",
        ),
    )  # fmt: skip


def _framed(app: ASGIApp) -> ASGIApp:
    """Every response with the headers of safety, and with an ETag where the address alone decides it."""

    async def framed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        if "\0" in scope["path"]:  # the files' router would ask the disk for it
            await send({"type": "http.response.start", "status": 400, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        if scope["method"] == "OPTIONS" and scope["path"] in ("/api/serve", "/api/train"):  # Litestar names one handler's alone
            await send({"type": "http.response.start", "status": 204, "headers": [(b"allow", b"GET, OPTIONS, POST")]})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        address = scope["raw_path"] + b"?" + scope["query_string"]
        language = next((value for name, value in scope["headers"] if name == b"accept-language"), b"")
        tag = f'W/"{hashlib.sha256(b" ".join((__version__.encode(), address, language))).hexdigest()[:20]}"'
        known = next((value for name, value in scope["headers"] if name == b"if-none-match"), b"").decode("latin-1")
        if scope["method"] == "GET" and known == tag:
            await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", tag.encode())]})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableScopeHeaders.from_message(message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if scope["method"] == "GET" and message["status"] == 200:
                    headers["etag"] = tag
                    headers["cache-control"] = "public, max-age=300"
                    headers["vary"] = "accept-language, accept-encoding"
            await send(message)

        await app(scope, _patient(receive), sent)

    return framed


def _patient(receive: Receive) -> Receive:
    """The body must arrive within ``LONGEST_BODY_S``, however slowly it is sent."""
    until, whole = time.monotonic() + LONGEST_BODY_S, False

    async def received() -> Any:
        nonlocal whole
        if whole:
            return await receive()
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            message = await receive()
        whole = not message.get("more_body", False)
        return message

    return received


def _refused(request: Request[Any, Any, Any], error: VramcastError) -> Response[Any]:
    return api.refused(request, error)


def _refused_by_worker(_: Request[Any, Any, Any], error: Refused) -> Response[Any]:
    found = error.problem
    headers = {"retry-after": "5"} if found.status == 503 else {}
    return Response(found, status_code=found.status, media_type="application/problem+json", headers=headers)


def _late(_: Request[Any, Any, Any], __: TimeoutError) -> Response[Any]:
    text = f"the body did not arrive within {LONGEST_BODY_S:.0f} s"
    return Response(plain(408, "too slow", text), status_code=408, media_type="application/problem+json")


def _transport(_: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    detail = error.detail
    if isinstance(error.extra, list) and error.extra:
        detail = f"{detail}: {error.extra[0].get('message', '')}" if isinstance(error.extra[0], dict) else detail
    return Response(
        plain(error.status_code, "the request is wrong", detail),
        status_code=error.status_code,
        media_type="application/problem+json",
        headers=error.headers or {},
    )


def _internal(_: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """A fault of ours: named by its kind, never with its text or its trace."""
    detail = f"internal error ({type(error).__name__}): please report the address that you asked"
    return Response(plain(500, "internal error", detail), status_code=500, media_type="application/problem+json")
