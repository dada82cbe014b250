"""A shell statement as commands of words, and a word as what the shell would pass: quotes, escapes, variables, word splitting.

A word is a list of pieces, each with how it was quoted; operators part commands; what is redirected is dropped.
"""

import re
import shlex
from collections.abc import Mapping

from vramcast.reading.shell.variables import resolved

Piece = tuple[str, str]  # how it is quoted ("", "'" or '"') and its text
Word = list[Piece]
_OPERATORS = ("&&", "||", ";;", "|&", ";", "|", "&", "(", ")", "\n")
_REDIRECTS = ("<<<", ">>", ">&", "&>", "<", ">")
_PLACEHOLDER = re.compile(r"<([A-Za-z][\w ./-]{0,60})>(?=\s|$)")
_NAME = re.compile(r"[A-Za-z_]\w{0,60}")
_KEPT = re.compile(r"[A-Za-z0-9_./:=,@%+-]+")


def commands_of(text: str) -> list[list[Word]]:
    """The commands of a statement, in order, as unresolved words."""
    commands: list[list[Word]] = [[]]
    word: Word = []
    place, dropping = 0, False

    def end() -> None:
        nonlocal word, dropping
        if word:
            if not dropping:
                commands[-1].append(word)
            dropping = False
        word = []

    while place < len(text):
        letter = text[place]
        redirect = _starts(text, place, _REDIRECTS)
        operator = _starts(text, place, _OPERATORS)
        if letter in " \t\r":
            end()
            place += 1
        elif (placeholder := _PLACEHOLDER.match(text, place)) and not word:
            word.append(("", "${" + re.sub(r"\W", "_", placeholder[1]) + "}"))
            place = placeholder.end()
        elif redirect:
            if len(word) == 1 and word[0][1] in ("0", "1", "2"):
                word = []
            end()
            place += len(redirect)
            dropping = True
        elif operator:
            end()
            dropping = False
            commands.append([])
            place += len(operator)
        else:
            piece, place = _piece(text, place)
            word.append(piece)
    end()
    return [command for command in commands if command]


def expanded(word: Word, known: Mapping[str, str], arrays: Mapping[str, list[str]], given: Mapping[str, str]) -> list[str]:
    """The words that the shell passes for one: an array as its words, an unquoted variable as the words of its value."""
    if len(word) == 1 and word[0][0] != "'" and (name := _array(word[0][1])) in arrays and name not in given:
        return list(arrays[name])
    done: list[str] = [""]
    for quote, text in word:
        if quote == "'":
            done[-1] += text
        elif quote == '"':
            done[-1] += resolved(_substituted(re.sub(r"\\([\"\\`])", r"\1", text)), known).replace("\\$", "$")
        elif "$" not in text and "`" not in text:
            done[-1] += re.sub(r"\\(.)", r"\1", text)
        else:
            pieces = _split(resolved(_substituted(text), known))
            done[-1] += pieces[0] if pieces else ""
            done += pieces[1:]
    quoted = any(quote for quote, _ in word)
    return [found for found in done if found or quoted]


def _array(text: str) -> str:
    """The array that a whole word stands for: ``$@``, ``${ARGS[@]}``, ``${ARGS[*]+...}``; "" for none."""
    if text in ("$@", "$*", "${@}"):
        return "@"
    found = re.fullmatch(r"\$\{(!?\w{1,60})\[[@*]\](?::?[-+].*)?\}", text, re.S)
    return found[1] if found else ""


def _starts(text: str, place: int, marks: tuple[str, ...]) -> str:
    return next((mark for mark in marks if text.startswith(mark, place)), "")


def _piece(text: str, place: int) -> tuple[Piece, int]:
    """The quoted or bare piece that begins here, and where it ends."""
    letter = text[place]
    if letter == "'":
        end = text.find("'", place + 1)
        end = len(text) if end < 0 else end
        return ("'", text[place + 1 : end]), end + 1
    if letter == '"':
        end = _end_of_quote(text, place + 1)
        return ('"', text[place + 1 : end]), end + 1
    start = place
    while place < len(text) and text[place] not in " \t\r\n'\";|&()<>":
        if text[place] == "\\":
            place += 2
        elif text[place] == "$" and text[place + 1 : place + 2] in ("(", "{"):
            place = end_of_bracket(text, place + 1)
        elif text[place] == "`":
            end = text.find("`", place + 1)
            place = len(text) if end < 0 else end + 1
        else:
            place += 1
    return ("", text[start:place]), max(place, start + 1)


def _end_of_quote(text: str, place: int) -> int:
    while place < len(text) and text[place] != '"':
        if text[place] == "\\":
            place += 1
        elif text[place] == "$" and text[place + 1 : place + 2] == "(":
            place = end_of_bracket(text, place + 1) - 1
        place += 1
    return min(place, len(text))


def end_of_bracket(text: str, place: int) -> int:
    """Behind the bracket that closes the one here; quotes inside are passed over."""
    opens = text[place]
    closes = ")" if opens == "(" else "}"
    depth = 0
    while place < len(text):
        letter = text[place]
        if letter == "'" and opens == "(":
            end = text.find("'", place + 1)
            place = len(text) if end < 0 else end
        elif letter == opens:
            depth += 1
        elif letter == closes:
            depth -= 1
            if not depth:
                return place + 1
        place += 1
    return len(text)


def _substituted(text: str) -> str:
    """Outputs of commands, which nobody runs, as variables named after the command: ``$(nproc)`` stays, as Kubernetes writes."""
    text = in_brackets(text)
    place = text.find("$(")
    while place >= 0:
        if text.startswith("$((", place):
            place = text.find("$(", place + 3)
            continue
        end = end_of_bracket(text, place + 1)
        inside = text[place + 2 : end - 1].strip()
        name = inside if _NAME.fullmatch(inside) else "output_of_" + (_NAME.findall(inside) or ["a_command"])[0]
        text = f"{text[:place]}${{{name}}}{text[end:]}"
        place = text.find("$(", place + 2)
    return re.sub(r"`[^`]*`", "${output_of_a_command}", text)


def in_brackets(text: str) -> str:
    """``$(expr 16 / $N)`` as ``$((16 / $N))``; ``$(basename "$X")`` as ``${X##*/}``; ``$(command -v NAME)`` as the name."""
    text = re.sub(r"(?:\$\(|`)\s*expr\s+([^()`]{1,200}?)\s*(?:\)|`)", lambda found: f"$(({found[1].replace(chr(92), '')}))", text)
    text = re.sub(r"(?:\$\(|`)\s*basename\s+\"?\$\{?(\w{1,60})\}?\"?\s*(?:\)|`)", r"${\1##*/}", text)
    text = re.sub(r"(?:\$\(|`)\s*dirname\s+\"?\$\{?(\w{1,60})\}?\"?\s*(?:\)|`)", r"${\1%/*}", text)
    return re.sub(r"(?:\$\(|`)\s*(?:command -v|which|type -P)\s+([\w./-]{1,120})(?:\s[^()`]{0,80})?(?:\)|`)", r"\1", text)


def _split(text: str) -> list[str]:
    """Words of a value; quotes in it count, as they do where a script builds a command to evaluate."""
    if _KEPT.fullmatch(text) or not text:
        return [text] if text else []
    before = [""] if text[:1].isspace() else []
    after = [""] if text[-1:].isspace() else []
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    return [*before, *words, *after]
