"""Training scripts and command lines as flags: variables, arrays and continuations are resolved, nothing is run."""

import re
import shlex
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.untrusted import whole_number

_ASSIGNS = re.compile(r"^\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)(\+?)=(.*)$", re.S)
_NAMED = re.compile(r"\$\{(\w+)(?:\[[@*]\])?(?::?[-=]([^}]{0,500}))?\}|\$(\w+)")
_SUM = re.compile(r"\$\(\(([\d\s+*/()-]+)\)\)")
_TERM = re.compile(r"\s*(\d+)\s*([*/+-]?)")
_EQUAL = re.compile(r"""\[\[?\s*["']?([^"'\]=!]*)["']?\s*(==|=|!=)\s*["']?([^"'\]]*)["']?\s*\]""")
PROGRAMS = {
    "pretrain_": "megatron", "llamafactory-cli": "llama_factory", "llamafactory": "llama_factory", "axolotl": "axolotl",
    "swift": "ms_swift", "tune": "torchtune", "litgpt": "litgpt", "composer": "llm_foundry",
}  # fmt: skip
_LONGEST_LINE, _LONGEST_CONDITION, _LARGEST_NUMBER = 200_000, 500, 10**15
END = ";"  # of a statement or an array: a switch there takes no value
_FILES = (".yaml", ".yml", ".toml", ".json")
_FILE_FLAGS = {"config_file": "accelerate", "config": "", "deepspeed": "deepspeed", "deepspeed_config": "deepspeed"}


class Command(msgspec.Struct, kw_only=True):
    """What a script asks for: the program's own name here, its flags by python name, files it points to, ``key=value`` words."""

    program: str = ""
    flags: dict[str, Any] = {}
    files: list[str] = []
    overrides: dict[str, str] = {}
    gpus: int | None = None
    task: str = ""


def read_command(text: str) -> Command:
    """The flags of a script. Raises QuestionError when it has none."""
    words, known = _words(text)
    command = Command()
    for i, word in enumerate(words):
        _program(command, word, words[i + 1] if i + 1 < len(words) else "")
    _flags(command, words)
    _cards(command, known)
    if not command.flags and not command.files and not command.overrides:
        raise QuestionError("no flag (--name value) was found in that script: give a command line or a configuration file")
    return command


def _program(command: Command, word: str, following: str) -> None:
    leaf = word.rsplit("/", 1)[-1]
    for name, program in PROGRAMS.items():
        if leaf == name or (name.endswith("_") and leaf.startswith(name)):
            command.program = command.program or program
    if leaf in ("trl", "sft.py", "dpo.py", "grpo.py", "kto.py", "orpo.py", "reward_modeling.py"):
        command.program = command.program or "huggingface"
        command.task = command.task or (following if leaf == "trl" else leaf.split(".", 1)[0].split("_", 1)[0])
    if leaf.endswith(_FILES) and not word.startswith("-") and leaf not in ("tokenizer.json",):
        command.files.append(word)
    if re.fullmatch(r"[A-Za-z_][\w.]*=\S+", word):
        name, _, value = word.partition("=")
        if not name.isupper():  # CUDA_VISIBLE_DEVICES=0,1 is the environment's
            command.overrides[name] = value


def _flags(command: Command, words: list[str]) -> None:
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        values = [value] if equals else []
        while not equals and i < len(words) and words[i] != END and not words[i].startswith("--"):
            values.append(words[i])
            i += 1
            if words[i - 1].endswith(".py"):
                values.pop()
                break
        key = name.replace("-", "_")
        found: Any = True if not values else values[0] if len(values) == 1 else values
        command.flags[key] = found
        if key in _FILE_FLAGS and isinstance(found, str) and found in command.files and key == "deepspeed":
            command.files.remove(found)


def _cards(command: Command, known: dict[str, str]) -> None:
    """Processes from the launcher's flags, or from what the environment shows."""
    per_node = command.flags.get("nproc_per_node") or known.get("NPROC_PER_NODE") or known.get("GPUS_PER_NODE")
    nodes = command.flags.get("nnodes") or known.get("NNODES") or 1
    total = command.flags.get("num_processes") or command.flags.get("num_gpus")
    visible = known.get("CUDA_VISIBLE_DEVICES")
    each, on = whole_number(str(per_node or "")), whole_number(str(nodes))
    if total and (count := whole_number(str(total))) is not None:
        command.gpus = count
    elif each is not None and on is not None:
        command.gpus = each * on
    elif visible:
        command.gpus = len(visible.split(","))


def _words(text: str) -> tuple[list[str], dict[str, str]]:
    """Every word of the script in order, arrays in the place of their use or, unused, of their definition; and its variables."""
    known: dict[str, str] = {}
    words: list[str] = []
    taken = [True]
    for line in _statements(text):
        if _branch(line, taken, known) or not all(taken):
            continue
        assigned = _ASSIGNS.match(line)
        if assigned and (assigned[3].startswith("(") or " " not in assigned[3].strip() or assigned[3].startswith(('"', "'"))):
            _assign(assigned, known)
            if assigned[3].startswith("("):
                words += [*_split(_resolved(assigned[3].strip("()\n "), known)), END]
            continue
        words += [*_split(_resolved(line, known, arrays=False)), END]
        for name, value in re.findall(r"(?:^|\s)([A-Z_]+)=(\S+)", line):
            known.setdefault(name, _resolved(value, known).strip("\"'"))
    return [w for word in words for w in (word.split() if word.startswith("--") and " " in word else [word])], known


def _statements(text: str) -> list[str]:
    """Logical lines: continuations joined, comments gone, arrays whole."""
    plain = "\n".join(re.sub(r"(^|\s)#.*$", "", line) for line in text.splitlines())
    joined = re.sub(r"\\\s*\n", " ", plain)
    found, held = [], ""
    for line in joined.splitlines():
        held = f"{held}\n{line}" if held else line
        if re.match(r"^\s*\w+\+?=\(", held) and held.count("(") > held.count(")"):
            continue
        if held.strip():
            found.append(held)
        held = ""
    return [*found, held] if held.strip() else found


def _branch(line: str, taken: list[bool], known: dict[str, str]) -> bool:
    """Follow if, else and fi; a condition that cannot be decided is taken."""
    word = line.strip().split(" ", 1)[0].rstrip(";")
    if word == "if":
        taken.append(_holds(_resolved(line, known)))
    elif word == "elif":
        taken[-1] = not taken[-1] and _holds(_resolved(line, known))
    elif word == "else" and len(taken) > 1:
        taken[-1] = not taken[-1]
    elif word == "fi" and len(taken) > 1:
        taken.pop()
    return word in ("if", "elif", "else", "fi", "then", "set", "done", "for", "while", "echo", "mkdir", "cd", "exit")


def _holds(condition: str) -> bool:
    found = _EQUAL.search(" ".join(condition.split())[:_LONGEST_CONDITION])
    if not found or "$" in condition:
        return True
    return (found[1].strip() == found[3].strip()) is (found[2] != "!=")


def _assign(assigned: re.Match[str], known: dict[str, str]) -> None:
    name, more, value = assigned[1], assigned[2], assigned[3].strip()
    found = _resolved(value.strip("()") if value.startswith("(") else value, known)
    if not value.startswith("("):
        found = found.strip("\"'")
    known[name] = f"{known.get(name, '')} {found}" if more else found


def _resolved(text: str, known: dict[str, str], *, arrays: bool = True) -> str:
    grown = len(text)

    def value(match: re.Match[str]) -> str:
        nonlocal grown
        name = match[1] or match[3]
        if not arrays and "[" in match[0]:
            return ""  # its words were read where it was made
        found = known.get(name, match[2].strip("\"'") if match[2] is not None else match[0])
        grown += len(found)
        if grown > _LONGEST_LINE:
            raise QuestionError(f"the script's variable {name[:40]} writes out more than {_LONGEST_LINE:,} letters")
        return found

    for _ in range(4):
        if "$" in text:
            text = _NAMED.sub(value, text)
    return _SUM.sub(lambda m: str(_value(m[1])), text)


def _value(expression: str) -> int:
    """Left to right, which is what launch scripts need: 8*4."""
    total, sign = 0, "+"
    for digits, following in _TERM.findall(expression):
        number = whole_number(digits)
        if number is None or abs(total) > _LARGEST_NUMBER:
            raise QuestionError(f"the script works out a number that is too large: {expression[:60]}")
        total = {"+": total + number, "-": total - number, "*": total * number, "/": total // max(1, number)}[sign]
        sign = following or sign
    return total


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()
