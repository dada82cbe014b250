"""Commands that a Python program puts together and runs: ``subprocess.run(f"python -m sglang.launch_server ...".split())``.

A text counts where it begins with an engine's program and has flags; a list where its first words start one. What the tree does
not tell stays a variable. Docstrings and messages are no commands.
"""

import ast
import re
from collections.abc import Iterator

import msgspec

from vramcast.reading.python_values import Open, Program, called
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import program_of
from vramcast.reading.serving.scripts import launches_of, read_script
from vramcast.reading.shell.variables import open_names

_MARKS = re.compile(r"vllm|sglang|llama-server|mlx_lm|text-generation-launcher|lmdeploy|trtllm-serve|ollama|docker run")
_LONGEST = 8_000
_FEWEST = 2  # words of a list that is a command
# Calls whose texts are shown to a person, and those that start another program.
_SHOWN = (
    "error",
    "exit",
    "warning",
    "warn",
    "info",
    "debug",
    "critical",
    "exception",
    "add_argument",
    "ArgumentParser",
    "add_parser",
)
_STARTS = ("Popen", "run", "call", "check_call", "check_output", "execvp", "execv", "create_subprocess_exec")
_CARD = re.compile(r"([A-Za-z][A-Za-z0-9-]{1,20})!?(?::(\d{1,3}))?")  # Modal's ! refuses a newer card


def commands_in(program: Program, held: LaunchContext) -> list[Launch]:
    """The engines that a program's own commands start, in its order."""
    found: list[Launch] = []
    for node, text in _texts(program):
        place = held.at(f"the command in line {node.lineno}")
        found += read_script(text, place)
    for name, node in _lists(program.tree):
        words = [word for one in node.elts for word in _told_words(program, one)]
        words += _joined_to(program, node) if _MARKS.search(" ".join(words)) else []
        more, perhaps = _added(program, name)
        perhaps += [f"what {ast.unparse(one).lstrip('*')[:40]} adds" for one in node.elts if _is_open_spread(program, one)]
        if len(words) >= _FEWEST and _MARKS.search(" ".join(words)):
            for launch in launches_of([*words, *more], held.at(f"the command in line {node.lineno}")):
                found.append(msgspec.structs.replace(launch, unread=(*launch.unread, *perhaps)))
    whole = [launch for launch in found if launch.model and (launch.flags or not open_names(launch.model))]
    return whole or [launch for launch in found if launch.model][:1] or _elsewhere(program, held)


def _elsewhere(program: Program, held: LaunchContext) -> list[Launch]:
    """The engine that a program starts by a command of another file, which is not at hand: its name stays open."""
    imported = {
        alias.asname or alias.name for node in ast.walk(program.tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    for call in program.calls(*_STARTS):
        name = call.args[0].id if call.args and isinstance(call.args[0], ast.Name) else ""
        engine = next((one for one in ("vllm", "sglang", "lmdeploy") if one in name.lower()), "")
        if name in imported and engine and isinstance(program.value(call.args[0]), Open):
            return [Launch(engine=engine, model=f"${{{name}}}", where=held.at(f"the command in line {call.lineno}").where)]
    return []


def _joined_to(program: Program, node: ast.List) -> list[str]:
    """The words of what is added to a list where it stands: ``["vllm", "serve"] + args``; one open word for what is not told."""
    for one in ast.walk(program.tree):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add) and one.left is node:
            value = program.value(one.right)
            return [str(word) for word in value] if isinstance(value, list) else [_word(program, one.right)]
    return []


def _told_words(program: Program, node: ast.expr) -> list[str]:
    """The words of one place of a list; none of ``*more`` that the tree does not tell."""
    if not isinstance(node, ast.Starred):
        return [_word(program, node)]
    value = program.value(node.value)
    return [str(one) for one in value] if isinstance(value, list) else []


def _is_open_spread(program: Program, node: ast.expr) -> bool:
    return isinstance(node, ast.Starred) and not isinstance(program.value(node.value), list)


def _texts(program: Program) -> Iterator[tuple[ast.expr, str]]:
    """Strings that begin with an engine's program and have flags, but for docstrings and the parts of longer ones."""
    parts = {id(part) for node in ast.walk(program.tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    alone = {id(node.value) for node in ast.walk(program.tree) if isinstance(node, ast.Expr)}
    alone |= {id(part) for node in _messages(program.tree) for part in ast.walk(node)}
    for node in ast.walk(program.tree):
        whole = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and id(node) not in parts)
        if not whole or id(node) in alone or not isinstance(node, ast.JoinedStr | ast.Constant):
            continue
        text = _text(program, node)
        if len(text) < _LONGEST and " -" in text and _MARKS.search(text) and program_of(_first_words(text)) is not None:
            yield node, text


def _messages(tree: ast.Module) -> Iterator[ast.AST]:
    """What a program shows to a person: the texts of errors, logs and help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and called(node) in _SHOWN):
            yield node


def _first_words(text: str) -> list[str]:
    """The words of the first command, variables set before it left out."""
    words = re.sub(r"\\\s*\n", " ", text).strip().split("\n", 1)[0].split()
    while words and re.fullmatch(r"[A-Z_]\w*=\S*", words[0]):
        words.pop(0)
    return words


def _text(program: Program, node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(_word(program, one.value if isinstance(one, ast.FormattedValue) else one) for one in parts)


def _word(program: Program, node: ast.expr) -> str:
    """A word of a command; ``${name}`` where only running the program would tell it."""
    value = program.value(node)
    if isinstance(value, Open):
        return f"${{{re.sub(r'[^A-Za-z0-9_]', '_', value.name).strip('_')[:40] or 'value'}}}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _lists(tree: ast.Module) -> Iterator[tuple[str, ast.List]]:
    """Lists with the name that they are assigned to, "" for others."""
    named = {
        id(node.value): target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(target := node.target if isinstance(node, ast.AnnAssign) else node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.List):
            yield named.get(id(node), ""), node


def _added(program: Program, name: str) -> tuple[list[str], list[str]]:
    """Words that a program adds to a named list later, and what it may add: under a condition, or by a list that is not told."""
    if not name:
        return [], []
    always: list[str] = []
    perhaps: list[str] = []
    for node in ast.walk(program.tree):
        added, whole = _value_added(node, name)
        if added is None or (runs := program.runs(node)) is False:
            continue
        words = _words_added(program, added, whole)
        if words is None:
            perhaps.append(f"what {ast.unparse(added)[:40]} adds")
        elif runs is None:
            perhaps += [f"{word} (under a condition)" for word in words if word.startswith("--")]
        else:
            always += words
    return always, perhaps


def _words_added(program: Program, node: ast.expr, whole: bool) -> list[str] | None:
    """The words that an addition brings; None for a list of which nothing is told. ``whole``: a list is added, not one word."""
    if not whole:
        return [_word(program, node)]
    if isinstance(node, ast.List):
        return [_word(program, one) for one in node.elts]
    value = program.value(node)
    return [str(one) for one in value] if isinstance(value, list) else None


def _value_added(node: ast.AST, name: str) -> tuple[ast.expr | None, bool]:
    """What ``name += [...]``, ``name.extend([...])`` and ``name.append(x)`` add, and whether that is a list."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
        return node.value, True
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
        return None, False
    if node.func.value.id == name and node.args and node.func.attr in ("extend", "append"):
        return node.args[0], node.func.attr == "extend"
    return None, False


def card_of(program: Program) -> tuple[str, int]:
    """The card that a job platform's decorator asks for: ``gpu="H100:8"``, ``gpus="L4:8"``, ``modal.gpu.A100(count=4)``."""
    for node in ast.walk(program.tree):
        for word in node.keywords if isinstance(node, ast.Call) else ():
            if word.arg == "resources" and isinstance(asked := program.value(word.value), dict):  # BentoML's
                kind, count = asked.get("gpu_type"), asked.get("gpu")
                if isinstance(kind, str):
                    return kind.removeprefix("nvidia-").removeprefix("amd-"), count if isinstance(count, int) else 0
            if word.arg not in ("gpu", "gpus"):
                continue
            if isinstance(word.value, ast.Call) and isinstance(word.value.func, ast.Attribute):
                size = program.keywords(word.value).get("size")
                count = program.keywords(word.value).get("count")
                card = f"{called(word.value)}{f'-{size}' if isinstance(size, str) else ''}"
                return card, count if isinstance(count, int) else 0
            value = program.value(word.value)
            value = value[0] if isinstance(value, list) and value else value  # cards to try, in order
            if isinstance(value, str) and (found := _CARD.fullmatch(value)):
                return found[1], int(found[2] or 1)
    return "", 0
