"""A script's statements in order: here-documents, continuations, assignments, branches; the commands that remain."""

import fnmatch
import re
from collections.abc import Callable, Mapping

import msgspec

from vramcast.reading.shell.conditions import holds
from vramcast.reading.shell.variables import LONGEST, open_names, resolved
from vramcast.reading.shell.words import Word, commands_of, expanded, in_brackets

__all__ = ["Line", "Script", "open_names", "read_script_text"]

_ASSIGNS = re.compile(r"(?:(?:export|local|readonly|declare(?: -\w+)?|set|setx|\$env:)\s*)?([A-Za-z_]\w{0,60})(\+?)=(.*)", re.S)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,60})=(.*)", re.S)
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w{1,60})\1")
_READ = re.compile(r"\s*read\s+(?:-\w+\s+(?:''|\"\")?\s*)*([A-Za-z_]\w{0,60})\s*<<")
_TARGET = re.compile(r"(?:>>?|\btee(?:\s+-a)?)\s*([^\s<>|;&]{1,300})")
_PROMPT = re.compile(r"^\s*(?:[$>%]\s+|\w+@[\w.-]+:[^$#]*[$#]\s+|PS [^>]*>\s+)")
_AFTER_TEST = re.compile(r"(?P<test>!?\s*\[\[?\s(?:(?!&&|\|\|).)*?\s\]\]?)\s*(?P<how>&&|\|\|)\s*(?P<rest>.+)", re.S)
_ONE = re.compile(r"[A-Za-z_]\w{0,60}=(?:\"[^\"]*\"|'[^']*'|[^\s;\"'()]*)")
_SEVERAL = re.compile(rf"(?:{_ONE.pattern}\s*;\s*)+{_ONE.pattern}\s*;?")
_SKIPPED = {"then", "do", "else", "time", "!", "{", "}"}
_MOST_LINES, _MOST_COMMANDS = 20_000, 4_000


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its words, resolved; ``environment``: the variables it was started with, exported or written before it."""

    words: tuple[str, ...]
    environment: dict[str, str] = {}


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Commands in order; ``files``: here-documents by the file they are written to.

    ``variables`` and ``arrays``: as they stand at the end.
    """

    lines: tuple[Line, ...]
    files: dict[str, str] = {}
    variables: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}


class _Reader:
    def __init__(self, around: "Around") -> None:
        self.given, self.source = dict(around.given), around.source
        self.known: dict[str, str] = {**around.environment, **around.given}
        self.exported = set(around.environment)
        self.exports_all = False
        self.arm = around.arm
        self.ended = False
        self.arrays: dict[str, list[str]] = {"@": [*around.arguments], "*": [*around.arguments]}
        self.known |= {str(place): word for place, word in enumerate(around.arguments[:9], 1)}
        self.files: dict[str, list[tuple[bool, str]]] = {}
        self.lines: list[Line] = []
        self.branches: list[_Branch] = []
        self.depth = 0
        self.skipped = 0


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds a script. ``given``: variables that stand whatever it sets; ``environment``: those it starts with.

    ``arguments``: the words after its name (``$@``); ``source``: the text of a file that it sources, or None.
    ``arm``: which part of a ``case`` is read, whatever its word: for scripts that start one server of several by their argument.
    """

    given: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    source: Callable[[str], str | None] = lambda _name: None
    arm: int | None = None


class _Branch(msgspec.Struct, kw_only=True):
    """One open ``if``: whether its present part runs (None: an open variable decides), and whether one has run."""

    runs: bool | None
    ran: bool = False
    opened: tuple[str, ...] = ()


def read_script_text(text: str, around: Around | None = None) -> Script:
    """The commands of a script. Raises QuestionError for variables that write out without end."""
    reader = _Reader(around or Around())
    _read(reader, text)
    files = {resolved(name, reader.known): _heredoc(body, reader.known) for name, body in reader.files.items()}
    return Script(lines=tuple(reader.lines), files=files, variables=reader.known, arrays=reader.arrays)


def _heredoc(parts: list[tuple[bool, str]], known: Mapping[str, str]) -> str:
    """The text of here-documents in one file: variables filled in, but where the mark was quoted."""
    return "\n".join(body if quoted else resolved(body, known) for quoted, body in parts)


def _read(reader: _Reader, text: str) -> None:
    for statement in _statements(reader, text[: LONGEST * 5]):
        if len(reader.lines) >= _MOST_COMMANDS or reader.ended:
            return
        _statement(reader, statement)


def _statements(reader: _Reader, text: str) -> list[str]:
    """Logical lines: here-documents kept apart, continuations joined, comments gone, open quotes and arrays whole."""
    found: list[str] = []
    lines, place = text.splitlines()[:_MOST_LINES], 0
    while place < len(lines):
        line, place = lines[place], place + 1
        if heredoc := _HEREDOC.search(line):
            body, place = _until(lines, place, heredoc[2])
            if kept := _READ.match(line):  # read -r -d '' NAME <<EOF
                words = " ".join(one.rstrip().removesuffix("\\") for one in body)
                found.append(f"{kept[1]}='{words}'" if heredoc[1] else f'{kept[1]}="{words}"')
                continue
            if target := _TARGET.search(line):
                file, adds = target[1].strip("\"'"), ">>" in line or "tee -a" in line
                before = reader.files.get(file, []) if adds else []
                reader.files[file] = [*before, (bool(heredoc[1]), "\n".join(body))]
            line = f"{line[: heredoc.start()]} {line[heredoc.end() :]}"
        whole = _uncommented(_PROMPT.sub("", line))
        if whole.lstrip().startswith("case ") and not re.search(r"\besac\b", whole):
            body, place = _until(lines, place, "esac")
            found.append("\n".join([whole.strip(), *map(_uncommented, body), "esac"]))
            continue
        while place < len(lines) and len(whole) < LONGEST and (more := _goes_on(whole)):
            whole = f"{whole[:-1] if more == 'line' else whole}{' ' if more == 'line' else chr(10)}{_uncommented(lines[place])}"
            place += 1
        if whole.strip():
            found.append(whole.strip())
    return found


def _until(lines: list[str], place: int, mark: str) -> tuple[list[str], int]:
    body: list[str] = []
    while place < len(lines) and lines[place].strip().rstrip(";") != mark:
        body.append(lines[place])
        place += 1
    return body, place + 1


def _goes_on(line: str) -> str:
    """Why a statement continues on the next line: a mark at its end ("line"), an open array or quote ("inside"), or ""."""
    if line.endswith(("\\", " `", " ^")):
        return "line"
    inside = re.match(r"^\s*(?:(?:export|local|readonly|declare(?: -\w+)?)\s+)?\w+\+?=\(", line) and line.count("(") > line.count(
        ")"
    )
    return "inside" if inside or _open_quote(line) else ""


def _open_quote(line: str) -> bool:
    """Whether a quote that begins a value is still open: ``CMD="vllm serve ...`` over several lines."""
    return bool(re.search(r"=\"[^\"]*$|\s-l?c\s+\"[^\"]*$", line) and line.count('"') % 2) or bool(
        re.search(r"[=\s]'[^']*$", line) and line.count("'") % 2 and re.search(r"(?:-l?c|=|config|json)\s*'[^']*$", line)
    )


def _uncommented(line: str) -> str:
    """The line without its comment; a # inside quotes or a word is none."""
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place].rstrip()
    return line.rstrip()


def _passed_over(reader: _Reader, text: str) -> bool:
    """Whether a statement stands in a loop over the script's own arguments, and there are none: such a loop never runs."""
    word = re.split(r"[\s;]", text, maxsplit=1)[0]
    opens = word in ("while", "until", "for") and not re.search(r"[;\s]done\b", text)
    if reader.skipped:
        reader.skipped += opens - (word == "done")
        return True
    if opens and not reader.arrays["@"] and re.match(r"(?:while|until)\b.*\$(?:\{?[1#@*])", text):
        reader.skipped = 1
        return True
    return False


def _statement(reader: _Reader, text: str) -> None:
    if _passed_over(reader, text) or _branch(reader, text):
        return
    runs = [branch.runs for branch in reader.branches]
    if False in runs:
        return
    if text.startswith("case "):
        _case(reader, text)
        return
    if after := _AFTER_TEST.fullmatch(text):
        _after_test(reader, after)
        return
    if _SEVERAL.fullmatch(text):  # A="x"; B=2
        for found in _ONE.finditer(text):
            _statement(reader, found[0])
        return
    if (assigned := _ASSIGNS.fullmatch(text)) and _is_assignment(assigned[3]):
        _assign(reader, assigned)
        if text.startswith(("export", "set", "$env")) or reader.exports_all:
            reader.exported.add(assigned[1])
        return
    for place, command in enumerate(commands_of(text)):
        _command(reader, command, first=not place)


def _after_test(reader: _Reader, found: re.Match[str]) -> None:
    """``[ "$N" -gt 64 ] && N=64``: what follows runs where the test holds (``&&``) or does not (``||``)."""
    truth, opened = holds(found["test"], reader.known)
    runs = truth if truth is None else truth is (found["how"] == "&&")
    reader.branches.append(_Branch(runs=runs, ran=bool(runs), opened=opened))
    _statement(reader, found["rest"].strip())
    reader.branches.pop()


def _is_assignment(value: str) -> bool:
    plain = value.strip()
    if plain.startswith("("):
        return True
    if plain[:1] in ("'", '"'):
        return plain.find(plain[0], 1) in (-1, len(plain) - 1)
    return not re.search(r"\s", plain) or plain.startswith("$(")


def _assign(reader: _Reader, assigned: re.Match[str]) -> None:
    name, more, value = assigned[1], assigned[2], in_brackets(assigned[3].strip())
    if name in reader.given:
        return
    if opened := next((branch.opened for branch in reader.branches if branch.runs is None), ()):
        mark = "".join(f"${{{open_}}}" for open_ in opened)
        adds = more or re.match(rf"[\"']?\$\{{?{name}\b", value)
        reader.known[name] = f"{reader.known.get(name, '')} {mark}" if adds else mark  # what may be added to it
        if name in reader.arrays:  # its words stay words
            reader.arrays[name] = [*reader.arrays[name], mark] if adds else [mark]
            reader.known[f"{name}[@]"] = " ".join(reader.arrays[name])
    elif value.startswith("("):
        words = _words(reader, value[1 : value.rindex(")")] if ")" in value else value[1:])
        reader.arrays[name] = [*reader.arrays.get(name, []), *words] if more else words
        reader.known[name] = reader.arrays[name][0] if reader.arrays[name] else ""
        reader.known[f"{name}[@]"] = " ".join(reader.arrays[name])
    elif value.startswith(("$(", "`")) and not value.startswith("$(("):
        reader.known.pop(name, None)
    else:
        found = resolved(value[1:-1] if value[:1] in ("'", '"') and value[-1:] == value[:1] else value, reader.known)
        found = "" if found == f"${{{name}}}" and not more else found
        reader.known[name] = f"{reader.known.get(name, '')}{found}" if more else found
        if not reader.known[name]:
            reader.known.pop(name)


def _branch(reader: _Reader, text: str) -> bool:
    """Follow if, elif, else and fi; True where the statement was one of them."""
    word = re.split(r"[\s;]", text, maxsplit=1)[0]
    if word == "if":
        inline = re.fullmatch(r"if\s+(.*?);\s*then\s+(.+?);?\s*(?:else\s+(.+?);?\s*)?fi;?", text, re.S)
        truth, opened = holds(text, reader.known)
        reader.branches.append(_Branch(runs=truth, ran=bool(truth), opened=opened))
        if inline:
            _inline(reader, inline)
        return True
    if not reader.branches or word not in ("elif", "else", "fi"):
        return word in ("then", "fi", "done", "esac", "do", "shift", "trap", "for", "while")
    branch = reader.branches[-1]
    if word == "fi":
        reader.branches.pop()
    elif branch.runs is not None or branch.ran:
        truth, opened = (True, ()) if word == "else" else holds(text, reader.known)
        branch.runs = False if branch.ran else truth
        branch.opened, branch.ran = opened, branch.ran or bool(truth)
    if rest := re.match(r"else\s+(\S.*)", text, re.S):
        _statement(reader, rest[1])
    return True


def _case(reader: _Reader, text: str) -> None:
    """``case "$X" in a|b) ... ;; *) ... ;; esac``: the first part whose pattern fits; every part where X is open."""
    found = re.fullmatch(r"case\s+(\S+|\"[^\"]*\")\s+in\b(.*)\besac\b;?", text, re.S)
    if found is None:
        return
    value = resolved(found[1].strip("\"'"), reader.known)
    opened = open_names(value)
    parts = [part for part in re.split(r";;&?", found[2]) if ")" in part]
    if re.fullmatch(r"\"?\$\{?1(?::?-)?\}?\"?", found[1]) and not reader.arrays["@"] and _are_options(parts):
        return  # the script's own flags, of which none was given
    if reader.arm is not None:
        parts, opened = parts[reader.arm : reader.arm + 1], ()
    for part in parts:
        head, bracket, body = part.strip().partition(")")
        patterns = [pattern.strip().strip("\"'") for pattern in head.lstrip("( \n").split("|")]
        if not bracket or not (opened or reader.arm is not None or any(fnmatch.fnmatchcase(value, one) for one in patterns)):
            continue
        reader.branches.append(_Branch(runs=None if opened else True, opened=opened))
        for statement in _statements(reader, body):
            for line in [statement] if re.search("[\"'\n]", statement) else statement.split(";"):
                _statement(reader, line.strip())
        reader.branches.pop()
        if not opened:
            return


def _are_options(parts: list[str]) -> bool:
    """Whether the patterns of a case are flags and what stands for anything else."""
    heads = [part.strip().partition(")")[0].strip().strip("\"'") for part in parts]
    return any(head.startswith("--") for head in heads) and all(head.startswith(("-", "*", '""')) or not head for head in heads)


def _inline(reader: _Reader, found: re.Match[str]) -> None:
    """``if A; then B; else C; fi`` in one line."""
    branch = reader.branches[-1]
    for part in found[2].split(";"):
        _statement(reader, part.strip())
    if found[3]:
        branch.runs = None if branch.runs is None else not branch.ran
        for part in found[3].split(";"):
            _statement(reader, part.strip())
    reader.branches.pop()


def _command(reader: _Reader, raw: list[Word], *, first: bool) -> None:
    words = [found for word in raw for found in expanded(word, reader.known, reader.arrays, reader.given)]
    while words and words[0] in _SKIPPED:
        words = words[1:]
    if words[:1] in (["exit"], ["return"]):  # a script's own check that fails is not where it is meant to end
        reader.ended = words in (["exit"], ["exit", "0"]) and first and all(branch.runs for branch in reader.branches)
        return
    environment = {name: value for name, value in reader.known.items() if name in reader.exported}
    while words and (assigned := ASSIGNMENT.fullmatch(words[0])):
        environment[assigned[1]] = reader.given.get(assigned[1], assigned[2])
        words = words[1:]
    if words[:2] == ["set", "-a"] or words[:3] == ["set", "-o", "allexport"]:
        reader.exports_all = True
    if words[:1] in (["export"], ["set"], ["declare"]) or not words:
        _exports(reader, words[1:] if words else [], environment)
        return
    if words[0] in ("source", ".") and len(words) > 1:
        _sourced(reader, words[1])
        return
    if words[0] == ":":
        return
    reader.lines.append(Line(words=tuple(words), environment=environment))
    reader.ended = words[0] == "exec" and len(words) > 1 and first and all(branch.runs for branch in reader.branches)


def _exports(reader: _Reader, words: list[str], environment: dict[str, str]) -> None:
    for word in words:
        assigned = ASSIGNMENT.fullmatch(word)
        if assigned and assigned[1] not in reader.given:
            reader.known[assigned[1]] = assigned[2]
        reader.exported.add(assigned[1] if assigned else word)
    if not words:
        reader.known |= environment


def _sourced(reader: _Reader, name: str) -> None:
    text = reader.source(name) if reader.depth < 8 else None
    if text is not None:
        reader.depth += 1
        _read(reader, text)
        reader.depth -= 1
        reader.ended = False


def _words(reader: _Reader, text: str) -> list[str]:
    words = (word for command in commands_of(text.replace("\n", " ")) for word in command)
    return [found for word in words for found in expanded(word, reader.known, reader.arrays, reader.given)]
