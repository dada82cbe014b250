"""A script's statements as they would run: assignments, branches, loops, functions; the commands that remain."""

import fnmatch
import re
from collections.abc import Mapping

from vramcast.reading.shell.conditions import holds, tests_variables
from vramcast.reading.shell.state import Branch, Line, Reader, Script, ShellStart, set_array, set_element, unquoted
from vramcast.reading.shell.statements import Document, body_until, logical_lines, simple
from vramcast.reading.shell.variables import LONGEST, open_names, resolved
from vramcast.reading.shell.words import Word, commands_of, end_of_bracket, expanded, in_brackets

__all__ = ["Line", "Script", "ShellStart", "open_names", "read_script_text"]

_DECLARES = r"(?:(?:export|local|readonly|typeset|declare(?: -\w+)?|set|setx|\$env:)\s*)?"
_ASSIGNS = re.compile(rf"{_DECLARES}([A-Za-z_]\w{{0,60}})(\+?)=(.*)", re.S)
_ELEMENT = re.compile(rf"{_DECLARES}([A-Za-z_]\w{{0,60}})\[([^\]]{{1,80}})\]=(.*)", re.S)
ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,60})=(.*)", re.S)
_AFTER_TEST = re.compile(r"(?P<test>!?\s*\[\[?\s(?:(?!&&|\|\|).)*?\s\]\]?)\s*(?P<how>&&|\|\|)\s*(?P<rest>.+)", re.S)
_ONE = re.compile(r"[A-Za-z_]\w{0,60}=(?:\"[^\"]*\"|'[^']*'|[^\s;\"'()]*)")
_SEVERAL = re.compile(rf"(?:{_ONE.pattern}\s+)+{_ONE.pattern}")
_DEFAULTS = re.compile(r"\$\{([A-Za-z_]\w{0,60}):?=((?:\$\{[^{}]*\}|[^{}\"]){0,300})\}")
_QUOTES = "\"'"
_READS = re.compile(
    r"(?:IFS=(?P<quote>[\"']?)\$?'?(?P<by>[^\"' ])'?(?P=quote)\s+)?"
    r"read\s+(?P<array>-\w*a\w*\s+)?(?:-\w+\s+)*(?P<names>[\w\s]+?)\s*<<<\s*(?P<value>.+)",
    re.S,
)
_FOR = re.compile(r"for\s+([A-Za-z_]\w{0,60})\s+in\s+(.+)", re.S)
_CASE_WITHIN = re.compile(r"((?:^|;)[ \t]*(?:do|then|else))[ \t]+(?=case[ \t])", re.M)
_SKIPPED = {"then", "do", "else", "time", "!", "{", "}"}
_OPENS_LOOP, _OPENS_BODY = ("for", "while", "until", "select"), ("{",)
_DECLARING = (["export"], ["set"], ["declare"], ["local"], ["readonly"], ["typeset"])
_MOST_ARGUMENTS = 64  # turns of a loop over them
_MOST_COMMANDS, _MOST_STEPS, _MOST_WORDS, _DEEPEST = 4_000, 60_000, 24, 8


def read_script_text(text: str, around: ShellStart | None = None) -> Script:
    """The commands of a script. Raises QuestionError for variables that write out without end."""
    reader = Reader(around or ShellStart())
    _read(reader, text)
    for name, body in list(reader.functions.items()):  # what only another script calls is read as if it ran
        if name not in reader.called:
            reader.ended = reader.returned = False
            reader.branches.clear()
            _run(reader, body)
    files = {resolved(name, reader.known): _heredoc(body, reader.known) for name, body in reader.files.items()}
    return Script(
        lines=tuple(reader.lines), files=files, variables=reader.known, arrays=reader.arrays, programs=tuple(reader.programs)
    )


def _heredoc(parts: list[tuple[bool, str]], known: Mapping[str, str]) -> str:
    """The text of here-documents in one file: variables filled in, but where the mark was quoted."""
    return "\n".join(body if quoted else resolved(body, known) for quoted, body in parts)


def _read(reader: Reader, text: str) -> None:
    text = text[: LONGEST * 5]
    if _CASE_WITHIN.search(text):  # one line of all: while [ $# -gt 0 ]; do case $1 in ... esac; done
        text = re.sub(r"\besac[ \t]*;[ \t]*(?=\w)", "esac\n", _CASE_WITHIN.sub(r"\1\n", text))
    _run(reader, _statements(reader, text))


def _statements(reader: Reader, text: str) -> list[str]:
    """Simple statements; here-documents go to the files that they are written to, or stand where a shell reads them."""
    found: list[str] = []
    for one in logical_lines(text):
        if isinstance(one, str):
            found += simple(one)
        elif one.program.startswith("python"):
            reader.programs.append(one.body)
        elif one.program and reader.depth < _DEEPEST:
            reader.depth += 1
            found += _statements(reader, one.body)
            reader.depth -= 1
        else:
            _kept(reader, one)
    return found


def _kept(reader: Reader, one: Document) -> None:
    if one.target:
        before = reader.files.get(one.target, []) if one.adds else []
        reader.files[one.target] = [*before, (one.quoted, one.body)]


def _run(reader: Reader, statements: list[str]) -> None:
    place = 0
    while place < len(statements):
        reader.steps += 1
        if len(reader.lines) >= _MOST_COMMANDS or reader.ended or reader.returned or reader.steps > _MOST_STEPS:
            return
        text, place = statements[place], place + 1
        word = re.split(r"[\s;]", text, maxsplit=1)[0]
        if word == "function" and text.count(" ") == 1:
            place = place + 1 if statements[place : place + 1] == ["{"] else place
            reader.functions[text.split()[1]], place = body_until(statements, place, _OPENS_BODY, "}")
        elif word in _OPENS_LOOP:
            body, place = body_until(statements, place, _OPENS_LOOP, "done")
            _loop(reader, text, body)
        else:
            _statement(reader, text)


def _loop(reader: Reader, text: str, body: list[str]) -> None:
    """A loop over words that are told runs for each; one over the script's own arguments never, where there are none."""
    if False in [branch.runs for branch in reader.branches]:
        return
    own = re.match(r"(?:while|until)\b.*(?:\$(?:\{?[1#@*])|\bgetopts\b)", text, re.S)
    if own:
        _arguments(reader, text, body)
        return
    over = _FOR.fullmatch(text)
    words = _words(reader, over[2]) if over else []
    if over is None or over[1] in reader.given or not 0 < len(words) <= _MOST_WORDS or any(map(_unsaid, words)):
        if over and not words and "$" in over[2] and re.fullmatch(r"\s*\"?\$(?:@|\{@\})\"?\s*", over[2]):
            return
        _run(reader, body)
        return
    for word in words:
        reader.known[over[1]] = word
        _run(reader, body)


def _arguments(reader: Reader, text: str, body: list[str]) -> None:
    """A loop over the script's own arguments: once for each that ``getopts`` tells, or as long as its body shifts them away."""
    options = re.search(r"\bgetopts\s+[\"']?:?([\w:]+)[\"']?\s+(\w+)", text)
    words = [*reader.arrays["@"]]
    while options and words and re.fullmatch(r"-[A-Za-z0-9]\S*", words[0]):
        letter, value = words[0][1], words[0][2:]
        words = words[1:]
        if f"{letter}:" in options[1]:
            value, words = (value, words) if value else (words[0] if words else "", words[1:])
        reader.known |= {options[2]: letter, "OPTARG": value}
        _run(reader, body)
    for _ in range(0 if options else _MOST_ARGUMENTS):
        if not (before := [*reader.arrays["@"]]):
            return
        _run(reader, body)
        if reader.arrays["@"] == before or reader.ended:
            return


def _unsaid(word: str) -> bool:
    return bool(open_names(word)) or re.fullmatch(r"\{\d+\.\.\S*\}", word) is not None


def _statement(reader: Reader, text: str) -> None:
    if _branch(reader, text):
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
    if split := _READS.fullmatch(text):
        _split_into(reader, split)
        return
    if text.startswith(": ") or _SEVERAL.fullmatch(text):
        for one in _several(reader, text):
            _statement(reader, one)
        return
    if element := _ELEMENT.fullmatch(text):
        set_element(reader, element[1], element[2], resolved(unquoted(in_brackets(element[3].strip())), reader.known))
        return
    if (assigned := _ASSIGNS.fullmatch(text)) and _is_assignment(assigned[3]):
        _assign(reader, assigned)
        if text.startswith(("export", "set", "$env")) or reader.exports_all:
            reader.exported.add(assigned[1])
        return
    for place, command in enumerate(commands_of(text)):
        _command(reader, command, first=not place)


def _several(reader: Reader, text: str) -> list[str]:
    """The assignments of one line: ``A="x" B=2``, and those of ``: "${X:=y}"`` to what nobody set."""
    if text.startswith(": "):
        return [f'{name}="{value.strip(_QUOTES)}"' for name, value in _DEFAULTS.findall(text) if not reader.known.get(name)]
    return [found[0] for found in _ONE.finditer(text)]


def _after_test(reader: Reader, found: re.Match[str]) -> None:
    """``[ "$N" -gt 64 ] && N=64``: what follows runs where the test holds (``&&``) or does not (``||``)."""
    truth, opened = holds(found["test"], reader.known)
    runs = truth if truth is None else truth is (found["how"] == "&&")
    told = tests_variables(found["test"])
    reader.branches.append(Branch(runs=runs, ran=bool(runs), opened=opened, told=told))
    _statement(reader, found["rest"].strip())
    reader.branches.pop()


def _split_into(reader: Reader, found: re.Match[str]) -> None:
    """``IFS=, read -r A B <<< "$LIST"``: the parts of a value by name; the last name takes what is left."""
    value = resolved(unquoted(found["value"].strip()), reader.known)
    names = found["names"].split()
    parts = value.split(found["by"]) if found["by"] else value.split()
    if found["array"]:
        set_array(reader, names[-1], parts)
        return
    for place, name in enumerate(names):
        rest = parts[place:]
        if name not in reader.given and rest:
            reader.known[name] = rest[0] if place < len(names) - 1 else (found["by"] or " ").join(rest)


def _is_assignment(value: str) -> bool:
    plain = value.strip()
    if plain.startswith("("):
        return True
    if plain[:1] in ("'", '"'):
        return plain.find(plain[0], 1) in (-1, len(plain) - 1)
    return not re.search(r"\s", plain) or (plain.startswith("$(") and end_of_bracket(plain, 1) == len(plain))


def _assign(reader: Reader, assigned: re.Match[str]) -> None:
    name, more, value = assigned[1], assigned[2], in_brackets(assigned[3].strip())
    if name in reader.given:
        return
    if opened := next((branch.opened for branch in reader.branches if branch.runs is None), ()):
        mark = "".join(f"${{{open_}}}" for open_ in opened)
        adds = more or re.match(rf"[\"']?\$\{{?{name}\b", value)
        reader.known[name] = f"{reader.known.get(name, '')} {mark}" if adds else mark  # what may be added to it
        if name in reader.arrays:  # its words stay words
            set_array(reader, name, [*reader.arrays[name], mark] if adds else [mark])
            reader.known[name] = reader.arrays[name][0]
    elif value.startswith("("):
        words = _words(reader, value[1 : value.rindex(")")] if ")" in value else value[1:])
        keyed = [re.fullmatch(r"\[([^\]]{1,80})\]=(.*)", word, re.S) for word in words]
        if keyed and all(keyed):
            for one in keyed:
                set_element(reader, name, one[1], one[2])  # type: ignore[index]
        else:
            set_array(reader, name, [*reader.arrays.get(name, []), *words] if more else words)
    elif value.startswith(("$(", "`")) and not value.startswith("$(("):
        reader.known.pop(name, None)
    else:
        found = resolved(unquoted(value), reader.known)
        found = "" if found == f"${{{name}}}" and not more else found
        reader.known[name] = f"{reader.known.get(name, '')}{found}" if more else found
        if not reader.known[name]:
            reader.known.pop(name)


def _branch(reader: Reader, text: str) -> bool:
    """Follow if, elif, else and fi; True where the statement was one of them."""
    word = re.split(r"[\s;]", text, maxsplit=1)[0]
    if word == "if":
        truth, opened = holds(text, reader.known)
        reader.branches.append(Branch(runs=truth, ran=bool(truth), opened=opened, told=tests_variables(text)))
        return True
    if not reader.branches or word not in ("elif", "else", "fi"):
        return word in ("then", "fi", "done", "esac", "do", "trap", "{", "}")
    branch = reader.branches[-1]
    if word == "fi":
        reader.branches.pop()
    elif branch.runs is not None or branch.ran:
        truth, opened = (True, ()) if word == "else" else holds(text, reader.known)
        branch.runs = False if branch.ran else truth
        branch.opened, branch.ran = opened, branch.ran or bool(truth)
    return True


def _case(reader: Reader, text: str) -> None:
    """``case "$X" in a|b) ... ;; *) ... ;; esac``: the first part whose pattern fits; every part where X is open."""
    found = re.fullmatch(r"case\s+(\S+|\"[^\"]*\")\s+in\b(.*)\besac\b.*", text, re.S)
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
        reader.branches.append(Branch(runs=None if opened else True, opened=opened))
        depth = len(reader.branches)
        _run(reader, _statements(reader, body))
        del reader.branches[depth - 1 :]
        if not opened:
            return


def _are_options(parts: list[str]) -> bool:
    """Whether the patterns of a case are flags and what stands for anything else."""
    heads = [part.strip().partition(")")[0].strip().strip("\"'") for part in parts]
    return any(head.startswith("--") for head in heads) and all(head.startswith(("-", "*", '""')) or not head for head in heads)


def _command(reader: Reader, raw: list[Word], *, first: bool) -> None:
    words = [found for word in raw for found in expanded(word, reader.known, reader.arrays, reader.given)]
    while words and words[0] in _SKIPPED:
        words = words[1:]
    if words[:1] in (["exit"], ["return"]):  # a script's own check that fails is not where it is meant to end
        ends = words[1:] in ([], ["0"]) and first and all(branch.runs and branch.told for branch in reader.branches)
        reader.ended, reader.returned = ends and words[0] == "exit", ends and words[0] == "return"
        return
    environment = {name: value for name, value in reader.known.items() if name in reader.exported}
    while words and (assigned := ASSIGNMENT.fullmatch(words[0])):
        environment[assigned[1]] = reader.given.get(assigned[1], assigned[2])
        words = words[1:]
    if words[:2] == ["set", "-a"] or words[:3] == ["set", "-o", "allexport"]:
        reader.exports_all = True
    if words[:1] in _DECLARING or not words:
        _exports(reader, words, environment)
        return
    if words[0] in ("source", ".") and len(words) > 1:
        _sourced(reader, words[1])
    elif words[0] == "shift":
        count = int(words[1]) if len(words) > 1 and words[1].isdigit() and len(words[1]) < 3 else 1
        reader.takes(reader.arrays["@"][count:])
    elif words[0] in reader.functions:
        _called(reader, words)
    elif words[0] != ":":
        reader.lines.append(Line(words=tuple(words), environment=environment))
        reader.ended = words[0] == "exec" and len(words) > 1 and first and all(branch.runs for branch in reader.branches)


def _called(reader: Reader, words: list[str]) -> None:
    """Run a function's body with the words as its arguments; the caller's own stand again behind it."""
    reader.called.add(words[0])
    if reader.depth >= _DEEPEST:
        return
    before, open_branches = reader.arrays["@"], len(reader.branches)
    reader.depth += 1
    reader.takes(words[1:])
    _run(reader, reader.functions[words[0]])
    del reader.branches[open_branches:]
    reader.takes(before)
    reader.depth -= 1
    reader.returned = False


def _exports(reader: Reader, words: list[str], environment: dict[str, str]) -> None:
    for word in words[1:]:
        assigned = ASSIGNMENT.fullmatch(word)
        if assigned and assigned[1] not in reader.given:
            reader.known[assigned[1]] = assigned[2]
        if words[0] not in ("local", "readonly", "typeset"):
            reader.exported.add(assigned[1] if assigned else word)
    if not words:
        reader.known |= environment


def _sourced(reader: Reader, name: str) -> None:
    text = reader.source(name) if reader.depth < _DEEPEST else None
    if text is not None:
        reader.depth += 1
        _read(reader, text)
        reader.depth -= 1
        reader.ended = False


def _words(reader: Reader, text: str) -> list[str]:
    words = (word for command in commands_of(text.replace("\n", " ")) for word in command)
    return [found for word in words for found in expanded(word, reader.known, reader.arrays, reader.given)]
