"""Nix expressions as plain values: attribute sets, lists, strings and what ``let`` names. Nothing is evaluated.

A function of the file's own is its body, a call of another is its last set, list or text; an interpolation that nothing here
tells keeps the name of the program in it (``${lib.getExe' llama-cpp "llama-server"}``) or stays open.
Source of the grammar: the Nix manual, "Nix language", 2.24.
"""

import re
from typing import Any

from vramcast.errors import QuestionError

_TOKENS = re.compile(
    r"(?P<space>\s+|\#[^\n]*|/\*.*?\*/)|(?P<long>'')|(?P<text>\")|(?P<number>-?\d+(?:\.\d+)?(?![\w/]))"
    r"|(?P<path>(?:\.{1,2}|~)?/(?!/)[\w./+-]+|<[\w/.-]+>)|(?P<name>[A-Za-z_][\w'-]*)|(?P<mark>\+\+|//|->|&&|\|\||==|!=|<=|>=|\.\.\.|[^\s])",
    re.S,
)
_PROGRAM = re.compile(r"[\"']([a-z][\w.-]{2,40})[\"']\s*$")
_MAKES = re.compile(r"(?:builtins\.|lib\.)*(?:map|listToAttrs|genAttrs|mapAttrs|filter|concatMap|foldl|imap)")  # other values
_KEYWORDS = {"true": True, "false": False, "null": None}
_MOST, _DEEPEST = 60_000, 60


_IDENTITY = ("mkForce", "mkDefault", "mkOverride", "mkBefore", "mkAfter")  # how strongly a value is said, not which
_CONDITIONAL = ("optionals", "optional", "optionalString", "optionalAttrs", "mkIf")


class Unknown:
    """A value that only Nix would tell; ``name``: the expression."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    @property
    def word(self) -> str:
        """The value as an open variable of a command: ``${config_my_len}``."""
        return f"${{{re.sub(r'[^A-Za-z0-9_]+', '_', self.name)[:40].strip('_') or 'nix'}}}"


class ConditionalText(str):
    """A text that stands only under a ``condition`` that only Nix would tell."""

    condition: str

    def __new__(cls, text: str, condition: str) -> "ConditionalText":
        """``text`` under ``condition``."""
        made = super().__new__(cls, text)
        made.condition = condition
        return made


def conditional(value: Any, condition: str) -> Any:
    """A value whose texts stand under a condition."""
    if isinstance(value, dict):
        return {key: conditional(inner, condition) for key, inner in value.items()}
    if isinstance(value, list):
        return [conditional(inner, condition) for inner in value]
    return ConditionalText(value, condition) if isinstance(value, str) else value


def parse_nix(text: str, what: str) -> Any:
    """The value of a file. Raises QuestionError that names ``what`` for a text that is too long or nests without end."""
    try:
        return _Reader(text).expression({}, 0)
    except (RecursionError, IndexError):
        raise QuestionError(f"{what} is no Nix that can be read here: give the command that it starts") from None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at, self.steps = text, 0, 0
        self.kind, self.token = "", ""
        self._next()

    def _next(self) -> None:
        """Move to the next token; strings are read by ``_string``, from their first mark."""
        while True:
            self.steps += 1
            if self.steps > _MOST:
                raise IndexError
            found = _TOKENS.match(self.text, self.at)
            if found is None:
                self.kind, self.token = "end", ""
                return
            self.at = found.end()
            if found.lastgroup != "space":
                self.kind, self.token = str(found.lastgroup), found[0]
                return

    def _take(self, mark: str) -> bool:
        if self.token != mark or self.kind in ("text", "long"):
            return False
        self._next()
        return True

    def expression(self, scope: dict[str, Any], depth: int) -> Any:
        """One expression up to ``;``, ``,`` or a closing mark."""
        if depth > _DEEPEST:
            raise IndexError
        if self._take("let"):
            inner = dict(scope)
            self._bindings(inner, inner, depth, "in")
            return self.expression(inner, depth + 1)
        if self.token in ("with", "assert") and self.kind == "name":
            self._next()
            self.expression(scope, depth + 1)
            self._take(";")
            return self.expression(scope, depth + 1)
        if self._take("if"):
            return self._chosen(scope, depth)
        return self._joined(scope, depth)

    def _chosen(self, scope: dict[str, Any], depth: int) -> Any:
        """The arm of an ``if`` that its condition tells, or both where they are equal; else the value is open."""
        start = self.at - len(self.token)
        condition = self.expression(scope, depth + 1)
        named = f"if {self._since(start)}"
        self._take("then")
        then = self.expression(scope, depth + 1)
        self._take("else")
        otherwise = self.expression(scope, depth + 1)
        if isinstance(condition, bool):
            return then if condition else otherwise
        return then if type(then) is type(otherwise) and then == otherwise else Unknown(named)

    def _since(self, start: int) -> str:
        """The text from a token's start up to the token that is next."""
        return self.text[start : self.at - len(self.token)].strip()

    def _joined(self, scope: dict[str, Any], depth: int) -> Any:
        """Applications joined by ``++``, ``//`` and ``+``; other operators leave the value open."""
        start = self.at - len(self.token)
        found = self._applied(scope, depth)
        while self.kind == "mark" and self.token not in (";", ",", ")", "]", "}", "=", ":", "@"):
            mark = self.token
            self._next()
            right = self._applied(scope, depth)
            if mark == "++" and isinstance(found, list | Unknown) and isinstance(right, list | Unknown):
                found = [*(found if isinstance(found, list) else [found]), *(right if isinstance(right, list) else [right])]
            elif mark == "//" and isinstance(found, dict) and isinstance(right, dict):
                found = {**found, **right}
            elif mark == "+" and isinstance(found, str) and isinstance(right, str):
                found = found + right
            elif mark in ("+", "*") and type(found) in (int, float) and type(right) in (int, float):
                found = found + right if mark == "+" else found * right
            elif mark in ("==", "!=") and all(isinstance(one, str | int | float) for one in (found, right)):
                found = (found == right) is (mark == "==")
            elif mark == "//":
                found = found if isinstance(found, dict) else right if isinstance(right, dict) else Unknown()
            else:
                found = Unknown(self._since(start))
        if self._take(":"):  # a function's head: its body is the value
            return self.expression(scope, depth + 1)
        if self._take("@"):
            self._next()
            return self.expression(scope, depth + 1) if self._take(":") else Unknown()
        return found

    def _applied(self, scope: dict[str, Any], depth: int) -> Any:
        """Simple values side by side: one stands for itself, several are a call, whose last set, list or text counts."""
        values: list[Any] = []
        start, head, condition = self.at - len(self.token), "", ""
        while (self.kind in ("text", "long", "number", "path", "name") or self.token in ("{", "[", "(")) and not (
            self.kind == "name" and self.token in ("then", "else", "in", "or") and values
        ):
            before = self.at - len(self.token)
            values.append(self._simple(scope, depth + 1))
            condition = self._since(before) if len(values) == 2 else condition
            head = head or self.text[start : self.at]
        if len(values) == 1:
            return values[0]
        whole = self._since(start)
        if not values or _MAKES.match(head):
            return Unknown(whole)
        if (known := _call(re.split(r"[\s(\[{\"']", whole, maxsplit=1)[0].rpartition(".")[2], values, condition)) is not None:
            return known
        told = [one for one in values if isinstance(one, dict | list | str) and one != ""]
        return told[-1] if told else Unknown(whole)

    def _simple(self, scope: dict[str, Any], depth: int) -> Any:
        start = self.at - len(self.token)
        found = self._atom(scope, depth)
        return Unknown(self._since(start)) if isinstance(found, Unknown) and not found.name else found

    def _atom(self, scope: dict[str, Any], depth: int) -> Any:
        if depth > _DEEPEST:
            raise IndexError
        kind, token = self.kind, self.token
        if kind in ("text", "long"):
            return self._string(scope)
        self._next()
        if kind == "number":
            return float(token) if "." in token else int(token)
        if kind == "path":
            return token
        if token == "{":
            return self._selected(self._set(scope, depth), scope)
        if token == "[":
            found = []
            while not self._take("]") and self.kind != "end":
                found.append(self._simple(scope, depth + 1))
            return found
        if token == "(":
            inner = self.expression(scope, depth + 1)
            self._take(")")
            return self._selected(inner, scope)
        if token == "rec":
            return self._simple(scope, depth)
        if token in _KEYWORDS:
            return _KEYWORDS[token]
        return self._selected(scope.get(token, Unknown()), scope)

    def _selected(self, value: Any, scope: dict[str, Any]) -> Any:
        """``value.a.b``."""
        while self.kind == "mark" and self.token == ".":
            self._next()
            key = self._key(scope)
            value = value.get(key, Unknown()) if isinstance(value, dict) else Unknown()
        return value

    def _set(self, scope: dict[str, Any], depth: int) -> Any:
        found: dict[str, Any] = {}
        self._bindings(found, dict(scope), depth, "}")
        return found

    def _bindings(self, into: dict[str, Any], scope: dict[str, Any], depth: int, end: str) -> None:
        """``a.b = value;`` and ``inherit x;`` up to ``end``; names of a function's head are passed over."""
        while self.kind != "end" and not self._take(end):
            if self._take("inherit"):
                while self.kind != "end" and not self._take(";"):
                    if self.kind == "name" and self.token in scope:
                        into[self.token] = scope[self.token]
                    self._next()
                continue
            keys = [self._key(scope)]
            while self._take("."):
                keys.append(self._key(scope))
            if self._take("="):
                _put(into, keys, self.expression(scope if into is not scope else into, depth + 1))
                self._take(";")
            elif self._take("?"):
                self.expression(scope, depth + 1)
            elif not self._take(","):
                continue

    def _key(self, scope: dict[str, Any]) -> str:
        if self.kind in ("text", "long"):
            return self._string(scope)
        token = self.token
        self._next()
        return token

    def _string(self, scope: dict[str, Any]) -> str:
        """A string from its first mark, which was taken: interpolations filled in, escapes read."""
        long = self.kind == "long"
        parts: list[str] = []
        while self.at < len(self.text):
            rest = self.text
            if rest.startswith("''" if long else '"', self.at):
                if not long:
                    self.at += 1
                    break
                after = rest[self.at + 2 : self.at + 3]
                if after not in ("$", "'", "\\"):
                    self.at += 2
                    break
                parts.append({"$": "$", "'": "''", "\\": ""}[after])
                self.at += 3
            elif not long and rest[self.at] == "\\":
                parts.append({"n": "\n", "t": "\t"}.get(rest[self.at + 1 : self.at + 2], rest[self.at + 1 : self.at + 2]))
                self.at += 2
            elif rest.startswith("${", self.at):
                parts.append(self._interpolated(scope))
            else:
                parts.append(rest[self.at])
                self.at += 1
        self._next()
        return "".join(parts)

    def _interpolated(self, scope: dict[str, Any]) -> str:
        start = self.at + 2
        depth, end = 1, start
        while depth and end < len(self.text):
            depth += {"{": 1, "}": -1}.get(self.text[end], 0)
            end += 1
        self.at, inside = end, self.text[start : end - 1]
        value: Any = scope
        for part in inside.split("."):
            value = value.get(part.strip(), Unknown()) if isinstance(value, dict) else Unknown()
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, dict) and isinstance(value.get("url"), str):
            return str(value["url"]).rsplit("/", 1)[-1]
        program = _PROGRAM.search(inside)
        return program[1] if program else f"${{{re.sub(r'[^A-Za-z0-9_]', '_', inside)[:40].strip('_') or 'nix'}}}"


def _call(name: str, values: list[Any], condition: str) -> Any:
    """What a call of Nix's library is: ``toString x``, ``lib.optionals condition [...]``; None for other functions."""
    last = values[-1]
    if name == "toString" and len(values) == 2:
        return Unknown(condition) if isinstance(last, Unknown | bool | dict | list) else str(last)
    if name in _IDENTITY:
        return last
    if name not in _CONDITIONAL or len(values) != 3:
        return None
    if values[1] is False:
        return {"optionals": [], "optional": [], "optionalString": "", "optionalAttrs": {}}.get(name, Unknown(condition))
    last = [last] if name == "optional" else last
    if values[1] is True or (name == "mkIf" and condition.endswith((".enable", "enabled"))):  # a module's own switch
        return last
    return ConditionalText(str(last), condition) if type(last) in (int, float) else conditional(last, condition)


def _put(into: dict[str, Any], keys: list[str], value: Any) -> None:
    """A value at its path; sets at one path are joined, as Nix does."""
    for key in keys[:-1]:
        held = into.get(key)
        into[key] = held if isinstance(held, dict) else {}
        into = into[key]
    last, held = keys[-1], into.get(keys[-1])
    into[last] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value
