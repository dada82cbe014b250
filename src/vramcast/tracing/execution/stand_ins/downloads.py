"""Texts and vocabularies that a script fetches itself: without a network as much text, and an encoding of as many tokens.

Only texts that are known by their address are made up; any other file fails as it did and says so.
"""

import functools
import io
import re
import zlib
from collections.abc import Iterable
from email.message import Message
from typing import Any

from vramcast.tracing.execution.advice import is_network
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.published.corpora import corpus
from vramcast.tracing.published.words import LONGEST_PIECE, TOKENS_A_WORD

# Tokens of tiktoken's encodings, and the one that ends a text (tiktoken_ext/openai_public.py).
_ENCODINGS = {
    "gpt2": (50_257, 50_256),
    "r50k_base": (50_257, 50_256),
    "p50k_base": (50_281, 50_256),
    "cl100k_base": (100_277, 100_257),
    "o200k_base": (200_019, 199_999),
}
_END = "<|endoftext|>"
_PIECE = re.compile(rf"\s?\w{{1,{LONGEST_PIECE}}}|\s?[^\w\s]|\s+")


def install(session: Session) -> None:
    """Answer urllib, requests and tiktoken where they find no network, with a note."""
    when_imported("urllib.request", functools.partial(_urllib, session))
    when_imported("requests.api", functools.partial(_requests, session))
    when_imported("tiktoken.registry", functools.partial(_tiktoken, session))


def _fetched(session: Session, address: Any, failure: OSError) -> bytes | None:
    """The made-up content of a text at an address where that was not reached; None for any other file and failure."""
    address = getattr(address, "full_url", address)
    found = corpus(address) if isinstance(address, str) and is_network(failure) else None
    if found is None:
        return None
    session.notes[
        f"{address} was not fetched: a text of {found.characters:,} characters of {found.kinds} kinds is made up, as many as it"
        " has; its words, and so counts of tokens, are not its own"
    ] = None
    return found.text().encode()


class _Answer(io.BytesIO):
    """What ``urlopen`` gives back: a file with the words of an HTTP answer around it."""

    status = code = 200

    def __init__(self, content: bytes, address: str) -> None:
        super().__init__(content)
        self.url, self.headers = address, Message()
        self.headers["Content-Length"] = str(len(content))

    def info(self) -> Message:
        """See http.client.HTTPResponse."""
        return self.headers

    def geturl(self) -> str:
        """See http.client.HTTPResponse."""
        return self.url

    def getcode(self) -> int:
        """See http.client.HTTPResponse."""
        return self.code


def _urllib(session: Session, module: Any) -> None:
    opened = module.urlopen

    @functools.wraps(opened)
    def open_address(url: Any, *args: Any, **options: Any) -> Any:
        try:
            return opened(url, *args, **options)
        except OSError as failure:
            content = _fetched(session, url, failure)
            if content is None:
                raise
        return _Answer(content, str(getattr(url, "full_url", url)))

    module.urlopen = open_address  # ``urlretrieve`` asks it too


def _requests(session: Session, module: Any) -> None:
    original = module.request

    @functools.wraps(original)
    def request(method: Any, url: Any, **options: Any) -> Any:
        try:
            return original(method, url, **options)
        except OSError as failure:
            content = _fetched(session, url, failure) if str(method).lower() == "get" else None
            if content is None:
                raise
        from requests import Response

        answer = Response()
        answer.status_code, answer.url, answer.encoding, answer.raw = 200, url, "utf-8", io.BytesIO(content)
        return answer

    module.request = request


def _tiktoken(session: Session, module: Any) -> None:
    original = module.get_encoding

    @functools.wraps(original)
    def get_encoding(name: str) -> Any:
        try:
            return original(name)
        except OSError as failure:
            if name not in _ENCODINGS or not is_network(failure):
                raise
        about = f"as many tokens, about {TOKENS_A_WORD:.2f} for a word"
        session.notes[f"tiktoken's {name} is not here: it is made up ({about})"] = None
        return MadeUpEncoding(name, *_ENCODINGS[name])

    module.get_encoding = get_encoding
    for owner in ("tiktoken", "tiktoken.model"):
        when_imported(owner, lambda found: setattr(found, "get_encoding", get_encoding))


class MadeUpEncoding:
    """What a script asks of a ``tiktoken.Encoding``; decoding gives back the pieces that were encoded."""

    def __init__(self, name: str, tokens: int, end: int) -> None:
        self.name, self.n_vocab, self.max_token_value, self.eot_token = name, tokens, tokens - 1, end
        self.special_tokens_set = {_END}
        self._special_tokens = {_END: self.eot_token}
        self._pat_str, self._mergeable_ranks = _PIECE.pattern, dict[bytes, int]()
        self._pieces: dict[int, str] = {self.eot_token: _END}

    def encode_ordinary(self, given: str) -> list[int]:
        """See tiktoken.Encoding."""
        return [self._token(piece) for piece in _PIECE.findall(given)]

    def encode(self, given: str, **_: Any) -> list[int]:
        """See tiktoken.Encoding: the end of a text is a token of its own, wherever it stands."""
        parts = [self.encode_ordinary(part) for part in given.split(_END)]
        return parts[0] + [token for part in parts[1:] for token in (self.eot_token, *part)]

    def encode_batch(self, given: Iterable[str], **_: Any) -> list[list[int]]:
        """See tiktoken.Encoding."""
        return [self.encode(each) for each in given]

    def encode_ordinary_batch(self, given: Iterable[str], **_: Any) -> list[list[int]]:
        """See tiktoken.Encoding."""
        return [self.encode_ordinary(each) for each in given]

    def encode_single_token(self, given: str | bytes) -> int:
        """See tiktoken.Encoding."""
        return self.eot_token if given in (_END, _END.encode()) else self._token(str(given))

    def decode(self, tokens: Iterable[int], **_: Any) -> str:
        """See tiktoken.Encoding."""
        return "".join(self._pieces.get(int(token), "?") for token in tokens)

    def decode_bytes(self, tokens: Iterable[int]) -> bytes:
        """See tiktoken.Encoding."""
        return self.decode(tokens).encode()

    def decode_batch(self, given: Iterable[Iterable[int]], **_: Any) -> list[str]:
        """See tiktoken.Encoding."""
        return [self.decode(each) for each in given]

    def _token(self, piece: str) -> int:
        token = zlib.crc32(piece.encode()) % self.eot_token
        self._pieces[token] = piece
        return token
