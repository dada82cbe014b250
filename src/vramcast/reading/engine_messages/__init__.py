"""What serving engines print when memory runs short, taken apart: which moment of the start it was, its numbers, what to change.

One module per engine, each a table of signatures; a signature is a pattern and what follows from its numbers.
"""

import contextlib
import importlib
import re
from collections.abc import Callable

import msgspec

from vramcast.units import GiB, KiB, MiB
from vramcast.untrusted import real_number, whole_number

ENGINES = ("vllm", "sglang", "llama_cpp", "tensorrt_llm", "tgi", "ollama", "platforms")
_SIZES = {"bytes": 1, "B": 1, "KiB": KiB, "MiB": MiB, "GiB": GiB, "GB": 10**9, "MB": 10**6}


class NoNumberError(Exception):
    """Text where a message's number should stand: no engine printed that line."""


class Figure(msgspec.Struct, frozen=True):
    """One number of a message, or one that follows from it: ``unit`` is ``bytes``, ``tokens`` or empty."""

    name: str
    value: float
    unit: str = ""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A message understood. ``moment``: what the engine was doing; ``failed``: False for a line that only reports."""

    engine: str
    moment: str
    what: str
    figures: tuple[Figure, ...] = ()
    advice: tuple[str, ...] = ()
    failed: bool = True


class Signature(msgspec.Struct, frozen=True):
    """A message's pattern, and what one match of it means."""

    pattern: re.Pattern[str]
    understand: Callable[[re.Match[str]], Finding]


def read_engine_messages(text: str) -> tuple[Finding, ...]:
    """The last occurrence of each known message in a log, failures first, in the order they were printed.

    Two lines of one failure (vLLM prints what is left, then that it is not enough) are one finding.
    """
    joined = re.sub(r"\s+", " ", text)
    found: list[tuple[int, Finding]] = []
    for engine in ENGINES:
        for signature in importlib.import_module(f"{__name__}.{engine}").SIGNATURES:
            matches = list(signature.pattern.finditer(joined))
            with contextlib.suppress(NoNumberError, ZeroDivisionError):  # a line that no engine printed is no finding
                if matches:
                    found.append((matches[-1].start(), signature.understand(matches[-1])))
    found.sort(key=lambda item: (not item[1].failed, item[0]))
    merged: dict[object, Finding] = {}
    for place, finding in found:
        key = (finding.engine, finding.moment, finding.advice) if finding.failed else place
        seen = merged.get(key)
        merged[key] = msgspec.structs.replace(seen, figures=(*seen.figures, *finding.figures)) if seen else finding
    return tuple(merged.values())


def size(number: str, unit: str) -> int:
    """Bytes of a printed size: ``size("16.10", "GiB")``."""
    below, plain = number.startswith("-"), real_number(number.removeprefix("-"))
    if plain is None:
        raise NoNumberError(number)
    return round((-plain if below else plain) * _SIZES[unit])


def count(number: str) -> int:
    """A printed whole number, with or without thousands separators."""
    found = whole_number(number)
    if found is None:
        raise NoNumberError(number)
    return found
