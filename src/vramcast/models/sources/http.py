"""Bounded HTTP reads: ranges, time limits, retries with backoff, and credentials that never follow a redirect to another host.

What the hub answers is turned into one clear error: gated, absent, too many requests, cut off, slow, unreachable. Status and
``X-Error-Code`` values: huggingface_hub, utils/_http.py (hf_raise_for_status).
"""

import contextlib
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec

from vramcast.errors import MissingError, QuestionError, UnsafeFileError, VramcastError
from vramcast.units import gib

_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_WAIT_S = 20.0
_CHUNK = 64 * 1024
_FORGOTTEN_S = 60.0

_LOST: dict[str, float] = {}
"""When each host was last found out of reach: many questions in one process wait for it once."""


class AbsentError(QuestionError):
    """The server has no such repository, revision or file; ``code`` says which in the hub's words."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Reply(msgspec.Struct, frozen=True):
    """Bytes of a file, the file's whole size and the commit it belongs to ("" when the server does not say)."""

    body: bytes
    size: int
    commit: str = ""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """How to ask: credentials, seconds to wait for a byte and for a whole answer, and how often to try."""

    token: str | None = None
    wait_s: float = 10.0
    total_s: float = 60.0
    attempts: int = 4
    sleep: Callable[[float], None] = time.sleep

    def get(self, url: str, *, largest: int) -> Reply:
        """A whole file of at most ``largest`` bytes."""
        return self._retried(lambda: self._get(url, None, largest))

    def get_range(self, url: str, start: int, length: int) -> Reply:
        """``length`` bytes from ``start``, fewer where the file ends before."""
        return self._retried(lambda: self._get(url, (start, length), length))

    def _retried(self, ask: Callable[[], Reply]) -> Reply:
        for attempt in range(self.attempts):
            try:
                return ask()
            except _AgainError as again:
                if attempt + 1 == self.attempts:
                    raise again.error from None
                self.sleep(min(_LONGEST_WAIT_S, again.after_s or 0.5 * 2**attempt))
        raise MissingError("no attempt was allowed: attempts is 0")

    def _get(self, url: str, span: tuple[int, int] | None, most: int) -> Reply:
        request = self._request(url, span)
        if time.monotonic() - _LOST.get(urlsplit(url).netloc, -_FORGOTTEN_S) < _FORGOTTEN_S:
            raise _unreachable(url, "it was out of reach a moment ago")
        with _Watched(self.total_s) as watched:
            try:
                with watched.opener(self.token, url).open(request, timeout=self.wait_s) as reply:
                    return self._body(reply, url, span, most)
            except urllib.error.HTTPError as error:
                with error:
                    raise _refused(error, url) from None
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                if watched.late:
                    late = MissingError(
                        f"{_shown(url)} is too slow: no answer in {self.total_s:g} s; try again, or fetch the file"
                    )
                    raise _AgainError(late) from None
                if isinstance(error, urllib.error.URLError):
                    _LOST[urlsplit(url).netloc] = time.monotonic()
                    raise _unreachable(url, error.reason) from None
                raise _AgainError(_unreachable(url, error)) from None

    def _request(self, url: str, span: tuple[int, int] | None) -> urllib.request.Request:
        if _home(url)[0] not in {"http", "https"}:
            raise QuestionError(f"{url[:120]!r} is not a web address: HF_ENDPOINT must look like https://huggingface.co")
        request = urllib.request.Request(url, headers={"User-Agent": "vramcast", "Accept-Encoding": "identity"})
        if self.token:
            if not (self.token.isascii() and self.token.isprintable()):
                raise QuestionError("the hub token holds characters that no token has: set HF_TOKEN again (hf_...)")
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if span:
            request.add_header("Range", f"bytes={span[0]}-{span[0] + span[1] - 1}")
        return request

    def _body(self, reply: Any, url: str, span: tuple[int, int] | None, most: int) -> Reply:
        start = span[0] if span and reply.status == 200 else 0
        if start > most:
            raise UnsafeFileError(f"{url} is served without range requests: use the hub itself or a mirror that has them")
        data = self._read(reply, url, start + most + (0 if span else 1))
        if not span and len(data) > most:
            raise UnsafeFileError(f"{url} is larger than {gib(most)}: a file of its kind is not")
        total = _count((reply.headers.get("Content-Range") or "").rpartition("/")[2])
        declared = _count(reply.headers.get("Content-Length"))
        size = next(n for n in (total, declared, len(data)) if n is not None)
        return Reply(data[start : start + most], size, reply.headers.get("X-Repo-Commit") or "")

    def _read(self, reply: Any, url: str, most: int) -> bytes:
        """At most ``most`` bytes, within the time for the whole answer; a body shorter than announced is an error."""
        declared = _count(reply.headers.get("Content-Length"))
        expected = None if declared is None else min(most, declared)
        parts, held, deadline = list[bytes](), 0, time.monotonic() + self.total_s
        while held < most and (part := reply.read1(min(_CHUNK, most - held))):
            parts.append(part)
            held += len(part)
            if time.monotonic() > deadline:
                raise _AgainError(
                    MissingError(f"{url} is too slow: {held:,} bytes in {self.total_s:g} s; try again, or fetch the file")
                )
        if expected is not None and held < expected:
            raise _AgainError(MissingError(f"{url} was cut off after {held:,} of {expected:,} bytes; try again"))
        return b"".join(parts)


class HttpRanges:
    """A remote file, its first bytes read at once."""

    def __init__(self, client: Client, url: str, *, head: int = _CHUNK) -> None:
        self._client, self._url = client, url
        self.name = url
        first = client.get_range(url, 0, head)
        self._head = first.body
        self.size, self.commit = first.size, first.commit

    def read(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``."""
        if offset + length <= len(self._head):
            return self._head[offset : offset + length]
        body = self._client.get_range(self._url, offset, length).body if offset + length <= self.size else b""
        if len(body) < length:
            raise UnsafeFileError(f"{self.name} is truncated: byte {offset + length:,} is needed and it has {self.size:,}")
        return body


class _AgainError(Exception):
    """Worth another try; ``error`` is what to say when tries run out, ``after_s`` what the server asked to wait."""

    def __init__(self, error: VramcastError, after_s: float = 0.0) -> None:
        self.error, self.after_s = error, after_s


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the token goes along only to the scheme, host and port it was given for, after any number of them."""

    def __init__(self, token: str | None, home: tuple[str, str]) -> None:
        self._token, self._home = token, home

    def redirect_request(  # noqa: PLR0917 the base class calls it so
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if _home(newurl)[0] not in {"http", "https"}:
            raise UnsafeFileError(f"{_shown(req.full_url)} redirects to {newurl[:120]!r}, which is not a web address")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if following and self._token and _home(newurl) == self._home:
            following.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return following


class _Watched:
    """The connections of one answer, all cut when its time is over: a server that drips bytes cannot hold a read for ever."""

    def __init__(self, seconds: float) -> None:
        self.late = False
        self._open = list[http.client.HTTPConnection]()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> "_Watched":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def opener(self, token: str | None, url: str) -> urllib.request.OpenerDirector:
        """An opener whose connections are watched."""
        watch = self._watch

        class Http(urllib.request.HTTPHandler):
            def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(watch(http.client.HTTPConnection), req)

        class Https(urllib.request.HTTPSHandler):
            def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(watch(http.client.HTTPSConnection), req)

        return urllib.request.build_opener(_Redirects(token, _home(url)), Http, Https)

    def _watch(self, kind: type[http.client.HTTPConnection]) -> Any:
        def connect(*args: Any, **options: Any) -> http.client.HTTPConnection:
            connection = kind(*args, **options)
            self._open.append(connection)
            return connection

        return connect

    def _cut(self) -> None:
        self.late = True
        for connection in self._open:
            with contextlib.suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)


def _home(url: str) -> tuple[str, str]:
    """Scheme, and host with port: what a token is given for. Raises UnsafeFileError for text that is no address."""
    try:
        parts = urlsplit(url)
        return parts.scheme.lower(), f"{(parts.hostname or '').lower()}:{parts.port or ''}"
    except ValueError:
        raise UnsafeFileError(f"{url[:120]!r} is not a web address") from None


def _shown(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    return url.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1) if "@" in parts.netloc else url


def _count(text: str | None) -> int | None:
    """A whole number of a header; None where it is none (isdigit takes a superscript two, int does not)."""
    return int(text) if text and len(text) <= 18 and text.isascii() and text.isdigit() else None


def _refused(error: urllib.error.HTTPError, url: str) -> Exception:
    code = error.headers.get("X-Error-Code") or ""
    if error.code in {401, 403}:
        return _no_access(url, error.code, code)
    if error.code in {404, 410}:
        return AbsentError(f"{url} does not exist", code or "EntryNotFound")
    if error.code in _RETRIED:
        wait = _count(error.headers.get("Retry-After")) or 0
        return _AgainError(MissingError(f"{_shown(url)} answered {error.code} {error.reason}: try again later"), float(wait))
    return MissingError(f"{_shown(url)} answered {error.code} {error.reason}")


def _no_access(url: str, status: int, code: str) -> Exception:
    page = _shown(url).partition("/resolve/")[0]
    if code == "RepoNotFound":
        return AbsentError(f"{page} does not exist, or is private to others (set HF_TOKEN to an account that may read it)", code)
    if code == "GatedRepo":
        return MissingError(f"{page} is gated: accept its terms on that page, then set HF_TOKEN (or run: hf auth login)")
    return MissingError(f"{page} refuses access ({status}): set HF_TOKEN to a token that may read it (or run: hf auth login)")


def _unreachable(url: str, reason: object) -> MissingError:
    host = urlsplit(url).netloc.rpartition("@")[2]
    return MissingError(
        f"{host} cannot be reached ({str(reason) or type(reason).__name__}): use a catalogued id, a local folder or file, "
        "or set HF_ENDPOINT to a mirror"
    )
