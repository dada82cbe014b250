"""Engine flags as their owners type them: ``--gpu-memory-utilization 0.9``, ``-ngl 40``, read by the engine's option table."""

from collections.abc import Mapping, Sequence
from typing import Any

from vramcast.errors import QuestionError, unknown_name
from vramcast.serving.engines.options import Option
from vramcast.units import parse_bytes, parse_count

# What engines call the flags that are ours: an engine's own spelling works wherever a person pastes their command line.
FIELDS = {
    **dict.fromkeys(("--max-model-len", "--ctx-size", "-c", "--context-length", "--max-seq-len", "--num-ctx"), "context"),
    **dict.fromkeys(("--tensor-parallel-size", "-tp", "--tp-size", "--tp"), "tp"),
    **dict.fromkeys(("--pipeline-parallel-size", "-pp", "--pp-size"), "pp"),
    **dict.fromkeys(("--ep-size", "--expert-parallel-size"), "ep"),
    **dict.fromkeys(("--quantization", "-q"), "quant"),
    **dict.fromkeys(("--data-parallel-size", "-dp"), "dp"),
    **dict.fromkeys(("--users", "--num-users", "--concurrent-users"), "concurrency"),
    "--kv-cache-dtype": "kv_dtype",
    "--dtype": "dtype",
}
# Our own flags, for those who misspell one among an engine's.
OURS = ("--gpu", "--engine", "--context", "--concurrency", "--prompt", "--output", "--dtype", "--quant", "--kv-dtype", "--dp")
_TRUE = frozenset({"1", "true", "on", "yes"})
_FALSE = frozenset({"0", "false", "off", "no"})


def fields(line: str | Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Values of our own words written in an engine's spelling (``-c 32768`` is ``context``), and the flags that remain.

    ``line``: one pasted line, or its words. Raises QuestionError for a flag without its value or an open quote.
    """
    found: dict[str, str] = {}
    rest: list[str] = []
    waiting = split_line(line) if isinstance(line, str) else list(line)
    while waiting:
        flag, joined, value = waiting.pop(0).partition("=")
        if flag not in FIELDS:
            rest.append(f"{flag}{joined}{value}")
            continue
        if not joined and not waiting:
            raise QuestionError(f"{flag} needs a value")
        found[FIELDS[flag]] = value if joined else waiting.pop(0)
    return found, rest


def split_line(line: str) -> list[str]:
    """The words of a shell line. Raises QuestionError for a quote that is never closed."""
    import shlex

    try:
        return shlex.split(line)
    except ValueError as error:
        raise QuestionError(f"{line[:60]!r} is no command line: {error}") from None


def read_flags(arguments: list[str], options: tuple[Option, ...], *, engine: str) -> dict[str, Any]:
    """Values by option name from what is left of the command line after our own flags.

    Raises QuestionError for a flag the engine does not have (with the nearest), a missing value or one of the wrong type.
    """
    table = {flag: option for option in options for flag in (f"--{option.name.replace('_', '-')}", *option.flags)}
    values: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        flag, joined, value = rest.pop(0).partition("=")
        option, negated = _option(flag, table, engine)
        if option.kind == "bool" and not joined:
            values[option.name] = _bare_switch(rest, negated)
            continue
        if not joined:
            if not rest:
                raise QuestionError(f"{flag} needs a value: {option.about}")
            value = rest.pop(0)
        values[option.name] = _value(option, value, flag)
    return values


def read_options(given: Mapping[str, Any], options: tuple[Option, ...]) -> dict[str, Any]:
    """Option values by Python name, as a library's caller gives them: text is read as the flag would be ("4GiB", "128k").

    Names and bounds are the engine's to check. Raises QuestionError for text of the wrong type.
    """
    table = {option.name: option for option in options}
    return {
        name: _value(table[name], value, name) if isinstance(value, str) and name in table else value
        for name, value in given.items()
    }


def _option(flag: str, table: dict[str, Option], engine: str) -> tuple[Option, bool]:
    name = flag.replace("_", "-") if flag.startswith("--") else flag
    if name in table:
        return table[name], False
    positive = "--" + name.removeprefix("--no-")
    if name.startswith("--no-") and positive in table and table[positive].kind == "bool":
        return table[positive], True
    if not flag.startswith("-"):
        raise QuestionError(f"unexpected argument {flag[:80]!r}: flags start with -- and MODEL comes first")
    raise unknown_name(
        f"{engine} option", flag, (*table, *FIELDS, *OURS), hint=f"(vramcast serve --engine {engine} --options lists them)"
    )


def _bare_switch(rest: list[str], negated: bool) -> bool:
    if rest and rest[0].lower() in _TRUE | _FALSE:
        return (rest.pop(0).lower() in _TRUE) is not negated
    return not negated


def _value(option: Option, text: str, flag: str) -> Any:
    try:
        return _READERS.get(option.kind, str)(text)
    except ValueError:
        raise QuestionError(f"{flag} is {text[:40]!r}, expected {_EXPECTED.get(option.kind, 'text')}: {option.about}") from None


def _switch(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _counts(text: str) -> dict[str, int]:
    """``q4_k:192,f32:65`` as counts by name."""
    pairs = (part.split(":") for part in text.split(","))
    return {name.strip(): int(count) for name, count in pairs}


_READERS: dict[str, Any] = {
    "int": int, "positive": int, "float": float, "fraction": float, "bool": _switch, "count": parse_count, "bytes": parse_bytes,
    "list": lambda text: text.split(","), "shares": lambda text: [float(share) for share in text.split(",")], "counts": _counts,
}  # fmt: skip
_EXPECTED = {
    "int": "a whole number", "positive": "a whole number", "float": "a number", "fraction": "a number", "bool": "on or off",
    "shares": "shares such as 3,1", "counts": "names with counts such as q4_k:192,f32:65",
}  # fmt: skip
