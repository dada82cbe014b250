"""A shell's variables: their values in words, with defaults, sums and arrays; what nobody set stays as ``${NAME}``."""

import fnmatch
import re
from collections.abc import Mapping

from vramcast.errors import QuestionError
from vramcast.untrusted import whole_number

LONGEST = 200_000
_LARGEST_NUMBER, _LONGEST_SUM = 10**15, 400
_NAME = re.compile(
    r"\$\{(?P<bang>!)?(?P<braced>\w{1,60})(?P<all>\[[@*]\])?(?:\[(?P<key>[^\[\]@*]{1,80})\])?"
    r"(?::?(?P<how>[-=+?])(?P<other>(?:\$\{[^{}]*\}|[^{}]){0,500})|(?P<change>##?|%%?|//?|,,?|\^\^?|:)(?P<by>[^{}]{0,200}))?\}"
    r"|\$(?P<bare>[A-Za-z_]\w{0,60}|\d)|\$\((?P<manifest>[A-Za-z_]\w{0,60})\)"
)
_LENGTH = re.compile(r"\$\{#(\w{1,60})(\[[@*]\])?\}|\$#")
_SUM = re.compile(r"\$\(\(((?:[\d\s+*/%-]|\((?:[\d\s+*/%-]|\([\d\s+*/%-]*\))*\))+)\)\)")
_INNER = re.compile(r"\$\(\(((?:[^()]|\((?:[^()]|\([^()]*\))*\)){1,200})\)\)")
_OPEN = re.compile(r"\$\{([\w.]{1,80})\}")
_UNTYPED = re.compile(r"\$\{\d\d?\}")  # a word that may be typed after the script's name


def resolved(text: str, known: Mapping[str, str], *, deepest: int = 6) -> str:
    """The text with its variables filled in; unknown ones are left as ``${NAME}``. Raises QuestionError where it grows too long.

    Understands ``$NAME``, ``${NAME}``, ``${NAME:-other}``, ``${NAME:+other}``, ``${NAME[@]}``, Kubernetes' ``$(NAME)`` and sums.
    """
    for _ in range(deepest):
        if "$" not in text:
            break
        filled = _LENGTH.sub(lambda found: _length(found, known), text) if "${#" in text or "$#" in text else text
        filled = _NAME.sub(lambda found: _value(found, known), filled)
        if len(filled) > LONGEST:
            raise QuestionError(f"the script's variables write out more than {LONGEST:,} letters")
        if filled == text:
            break
        text = filled
    text = _INNER.sub(lambda found: f"$(({_bare(found[1], known)}))", text)
    text = _SUM.sub(lambda found: str(summed(found[1])), text)
    return _unknown_sums(text)


def _unknown_sums(text: str) -> str:
    """Sums of what nobody set as that variable: they are as open as it is."""
    start = text.find("$((")
    while start >= 0:
        end, depth = start + 1, 0
        while end < len(text):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
            if not depth:
                break
        name = re.search(r"[A-Za-z_]\w{0,60}", text[start:end])
        if name is not None and end - start < _LONGEST_SUM:
            text = f"{text[:start]}${{{name[0]}}}{text[end:]}"
        start = text.find("$((", start + 1)
    return text


def open_names(text: str) -> tuple[str, ...]:
    """The variables that stay open in a resolved text, in order, each once."""
    return tuple(dict.fromkeys(_OPEN.findall(text)))


def summed(expression: str) -> int:
    """A sum of whole numbers as the shell works it out: brackets first, then ``* / %``, then ``+ -``; a division is cut off.

    Raises QuestionError for huge ones, and for what is no sum.
    """
    tokens = re.findall(r"\d+|[-+*/%()]", expression)
    return _added(tokens, expression)[0]


def _added(tokens: list[str], whole: str) -> tuple[int, list[str]]:
    total, rest = _multiplied(tokens, whole)
    while rest and rest[0] in "+-":
        more, after = _multiplied(rest[1:], whole)
        total, rest = (total + more if rest[0] == "+" else total - more), after
    return total, rest


def _multiplied(tokens: list[str], whole: str) -> tuple[int, list[str]]:
    total, rest = _one_of(tokens, whole)
    while rest and rest[0] in "*/%":
        more, after = _one_of(rest[1:], whole)
        if abs(total) > _LARGEST_NUMBER:
            raise QuestionError(f"the script works out a number that is too large: {whole[:60]}")
        total, rest = {"*": total * more, "/": total // (more or 1), "%": total % (more or 1)}[rest[0]], after
    return total, rest


def _one_of(tokens: list[str], whole: str) -> tuple[int, list[str]]:
    """A number, a sign before one, or a sum in brackets; what is missing counts as 0."""
    if not tokens:
        return 0, []
    if tokens[0] == "(":
        inner, rest = _added(tokens[1:], whole)
        return inner, rest[1:] if rest[:1] == [")"] else rest
    if tokens[0] in "+-":
        inner, rest = _one_of(tokens[1:], whole)
        return (-inner if tokens[0] == "-" else inner), rest
    number = whole_number(tokens[0])
    if number is None or number > _LARGEST_NUMBER:
        raise QuestionError(f"the script works out a number that is too large: {whole[:60]}")
    return number, tokens[1:]


def _bare(expression: str, known: Mapping[str, str]) -> str:
    """Names inside a sum, which need no dollar there."""
    return re.sub(r"[A-Za-z_]\w*", lambda name: known.get(name[0], name[0])[:40], expression)


def _value(found: re.Match[str], known: Mapping[str, str]) -> str:
    name = found["braced"] or found["bare"] or found["manifest"]
    how, other = found["how"], (found["other"] or "").strip("\"'")
    value = _held(found, name, known)
    if how == "+":
        return other if value else ""
    if how in ("-", "=") and other and value and _UNTYPED.fullmatch(value):
        return other  # X=$1, then ${X:-default}: nothing was typed
    if value:
        return _changed(value, found["change"] or "", found["by"] or "")
    if how in ("-", "="):
        return other
    return value if value is not None else f"${{{_open_key(found, known) or name}}}"


def _open_key(found: re.Match[str], known: Mapping[str, str]) -> str:
    """The variable that nobody set and that chooses a word of a known array: what must be said; "" for none."""
    key = (found["key"] or "").strip("\"'")
    opened = open_names(resolved(key, known, deepest=2)) if "$" in key else open_names(known.get(key, ""))
    listed = any(word.startswith(f"{found['braced']}[") for word in known)
    return opened[0] if opened and listed else ""


def _length(found: re.Match[str], known: Mapping[str, str]) -> str:
    """``${#ARRAY[@]}``, ``${#NAME}`` and ``$#``; what nobody set stays open."""
    if not found[1]:
        return known.get("#@", "0")
    if found[2]:
        return known.get(f"#{found[1]}", f"${{{found[1]}}}")
    return str(len(known[found[1]])) if found[1] in known else "0"


def _held(found: re.Match[str], name: str, known: Mapping[str, str]) -> str | None:
    """What a variable holds: an array's words or one of them, or what the variable holds that it names (``${!NAME}``)."""
    if found["all"]:
        return known.get(f"{name}[@]", known.get(name))
    if found["key"] is not None:
        key = found["key"].strip("\"'")
        key = known.get(key.strip("${}"), key) if "$" in key or key in known else key
        return known.get(f"{name}[{key}]", known.get(name) if key == "0" else None)
    value = known.get(name)
    return known.get(value) if found["bang"] and value else value


def _changed(value: str, how: str, by: str) -> str:
    """``${X##*/}``, ``${X%.gguf}``, ``${X/a/b}``, ``${X,,}``: a part of a value, or the value with its letters changed."""
    if how[:1] in ("#", "%") and how:
        ends = range(len(value) + 1)
        cuts = [(value[:end], value[end:]) if how[0] == "#" else (value[end:], value[:end]) for end in ends]
        fitting = [rest for part, rest in cuts if fnmatch.fnmatchcase(part, by.strip("\"'"))]
        return value if not fitting else (min if len(how) == 2 else max)(fitting, key=len)
    if how[:1] == "/":
        old, _, new = by.partition("/")
        return value.replace(old, new, -1 if how == "//" else 1) if old else value
    return value.lower() if how[:1] == "," else value.upper() if how[:1] == "^" else value
