"""A script's text as simple statements in order: continuations joined, comments gone, compound lines taken apart.

``if A; then B; fi; C`` becomes ``if A``, ``then``, ``B``, ``fi``, ``C``; here-documents are kept apart with what they go to.
"""

import re

import msgspec

from vramcast.reading.shell.variables import LONGEST

MOST_LINES = 20_000
_HEREDOC = re.compile(r"<<-?\s*\\?([\"']?)(\w{1,60})\1")
_READ = re.compile(r"\s*read\s+(?:-\w+\s+(?:''|\"\")?\s*)*([A-Za-z_]\w{0,60})\s*<<")
_TARGET = re.compile(r"(?:>>?|\btee(?:\s+-a)?)\s*([^\s<>|;&]{1,300})")
_PROMPT = re.compile(r"^\s*(?:[$>%]\s+|\w+@[\w.-]+:[^$#]*[$#]\s+|PS [^>]*>\s+)")
_TAKES_SCRIPT = re.compile(
    r"^\s*(?:\w+=\S*\s+)*(?:sudo\s+|exec\s+|time\s+|nohup\s+)*(?P<program>(?:\S*/)?(?:bash|sh|zsh|ssh|srun|docker|podman|kubectl|su|sbatch|"
    r"singularity|apptainer|python[\d.]*))\b(?P<rest>.*)$"
)
_APPLIES = re.compile(r"\b(?:kubectl|oc)\b.*\s-f\s*-|\bdocker[ -]compose\b.*\s-f\s*-")
_HELD = re.compile(r"\s*(?:export\s+)?[A-Za-z_]\w{0,60}=\"?\$\(\s*cat\s*$")
_RUNS = re.compile(
    r"\s*(?:\w+=\S* +)*(?:uv run +)?(?:python[\d.]*|torchrun|accelerate|deepspeed|srun|vllm|swift|ray job) +[\w./-]"
)
_SET_TO = re.compile(r"^\s*\"?[\w.-]{1,60}\"?\s*=\s*$")  # Terraform's: user_data = <<-EOF
_OPENS_FUNCTION = re.compile(
    r"^(?:function\s+(?P<word>[\w.:-]+)\s*(?:\(\s*\))?|(?P<name>[A-Za-z_][\w.:-]*)\s*\(\s*\))\s*(?P<rest>\{.*)?$", re.S
)
_LEADING = re.compile(r"^(then|do|else|\{)\s+(?=\S)")


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A here-document. ``target``: the file it is written to, "" for none; ``program``: what reads it as its script."""

    body: str
    quoted: bool = False
    target: str = ""
    adds: bool = False
    program: str = ""


def logical_lines(text: str) -> list[str | Document]:
    """Statements as written, each whole, in order, with the here-documents before the line that holds them."""
    found: list[str | Document] = []
    lines, place = text.splitlines()[:MOST_LINES], 0
    while place < len(lines):
        line, place = lines[place], place + 1
        if (heredoc := _HEREDOC.search(line)) and "<<<" not in line:
            body, place = _until(lines, place, heredoc[2])
            if kept := _READ.match(line):  # read -r -d '' NAME <<EOF
                words = " ".join(one.rstrip().removesuffix("\\") for one in body)
                found.append(f"{kept[1]}='{words}'" if heredoc[1] else f'{kept[1]}="{words}"')
                continue
            found.append(_document(line, heredoc, body))
            line = f"{line[: heredoc.start()]} {line[heredoc.end() :]}"
        whole = uncommented(_PROMPT.sub("", line))
        if whole.lstrip().startswith("case ") and not re.search(r"\besac\b", whole):
            body, place = _until(lines, place, "esac")
            found.append("\n".join([whole.strip(), *map(uncommented, body), "esac"]))
            continue
        while place < len(lines) and len(whole) < LONGEST and (more := _goes_on(whole)):
            whole = f"{whole[:-1] if more == 'line' else whole}{' ' if more == 'line' else chr(10)}{uncommented(lines[place])}"
            place += 1
        if whole.strip():
            found.append(whole.strip())
    return found


def _is_job(head: str, body: list[str]) -> bool:
    """Whether a variable is set to a script (``JOB=$(cat <<EOF``): it runs where the variable is handed to a shell."""
    return _HELD.match(head) is not None and any(_RUNS.match(one) for one in body)


def _document(line: str, heredoc: re.Match[str], body: list[str]) -> Document:
    outside = f"{line[: heredoc.start()]} {line[heredoc.end() :]}"
    target = _TARGET.search(outside)
    reads = _TAKES_SCRIPT.match(line[: heredoc.start()])
    program = reads["program"].rsplit("/", 1)[-1] if reads else "sh" if _SET_TO.match(line[: heredoc.start()]) else ""
    program = program or ("sh" if _is_job(line[: heredoc.start()], body) else "")
    file = target[1].strip("\"'") if target and not reads else ""
    if _APPLIES.search(outside):  # kubectl apply -f - <<EOF
        program, file = "", "stdin.yaml"
    adds = ">>" in outside or "tee -a" in outside
    return Document(body="\n".join(body), quoted=bool(heredoc[1]) or "\\" in heredoc[0], target=file, adds=adds, program=program)


def simple(text: str) -> list[str]:
    """The simple statements of a logical line; quotes, brackets and ``case`` blocks stay whole."""
    if text.startswith("case "):
        end = text.rfind("esac") + 4
        rest = text[end:].lstrip(" ;")
        return [text[:end], *(simple(rest) if rest and end > 4 else [])]
    found: list[str] = []
    for piece in _parted(text):
        found += _unwrapped(piece.strip())
    return [piece for piece in found if piece]


def _unwrapped(piece: str) -> list[str]:
    """A piece without the keyword before it: ``then X`` is ``then`` and ``X``; ``f() { X`` is ``f() {`` and ``X``."""
    if leading := _LEADING.match(piece):
        return [leading[1], *_unwrapped(piece[leading.end() :])]
    if (function := _OPENS_FUNCTION.match(piece)) and (function["rest"] or function["word"] or piece.endswith(")")):
        name, rest = function["word"] or function["name"], (function["rest"] or "")
        inner = rest.removeprefix("{").strip()
        return [f"function {name}", *(["{"] if rest else []), *(_unwrapped(inner) if inner else [])]
    return [piece]


def _parted(text: str) -> list[str]:
    """Parts between ``;`` and line ends that stand in no quotes and no brackets; ``;;`` parts nothing."""
    found, start, place, depth, quote = [], 0, 0, 0, ""
    while place < len(text):
        letter = text[place]
        if letter == "\\" and quote != "'":
            place += 2
            continue
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "(" or text.startswith("${", place):
            depth += 1
        elif letter in ")}" and depth:
            depth -= 1
        elif letter in ";\n" and not depth:
            if text.startswith(";;", place):
                place += 2
                continue
            found.append(text[start:place])
            start = place + 1
        place += 1
    return [*found, text[start:]]


def body_until(statements: list[str], place: int, opens: tuple[str, ...], closes: str) -> tuple[list[str], int]:
    """The statements before the one that closes what is open at ``place``, and the place behind it."""
    body: list[str] = []
    depth = 1
    while place < len(statements):
        word = re.split(r"[\s;&|<>]", statements[place], maxsplit=1)[0]
        place += 1
        depth += (word in opens) - (word == closes)
        if not depth:
            break
        body.append(statements[place - 1])
    return body, place


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
    if "\n" in line:  # inside a quote that began before: '{"a": "'${B}'"}' opens and closes several
        return "inside" if _ends_quoted(line) else ""
    inside = re.match(r"^\s*(?:(?:export|local|readonly|declare(?: -\w+)?)\s+)?\w+\+?=\(", line) and line.count("(") > line.count(
        ")"
    )
    return "inside" if inside or _open_quote(line) else ""


def _ends_quoted(text: str) -> bool:
    """Whether a quote or a bracket of an array is open at the end of a text, by every letter of it."""
    quote, place = "", 0
    while place < len(text):
        letter = text[place]
        if letter == "\\" and quote != "'":
            place += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        place += 1
    array = re.match(r"^\s*(?:(?:export|local|readonly|declare(?: -\w+)?)\s+)?\w+\+?=\(", text)
    return bool(quote) or bool(array and text.count("(") > text.count(")"))


def _open_quote(line: str) -> bool:
    """Whether a quote that begins a value is still open: ``CMD="vllm serve ...`` over several lines."""
    return bool(
        re.search(r"=\"[^\"]*$|\s-l?c\s+\"[^\"]*$|^\s*(?:ssh|eval)\s[^\"]*\"[^\"]*$", line) and line.count('"') % 2
    ) or bool(
        re.search(r"[=\s]'[^']*$", line)
        and line.count("'") % 2
        and re.search(r"(?:-l?c|=|config|json|ssh\s[^']*|eval)\s*'[^']*$", line)
    )


def uncommented(line: str) -> str:
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
