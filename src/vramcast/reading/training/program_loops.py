"""A training loop that a program writes itself: its optimizer, its batch, its precision, by the calls that make them.

No trainer's default stands behind such a loop: what it does not say stays open and is told with its flag.
"""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.python_imports import imports_module
from vramcast.reading.python_values import Open, Program, called, parse_python
from vramcast.reading.training.program_defaults import LOADERS, TRAINERS, kbit
from vramcast.reading.training.program_modules import parts_of
from vramcast.reading.training.settings import Settings

_OPTIMIZERS = {
    **{name: name.lower() for name in ("AdamW", "Adam", "SGD", "RMSprop", "Adafactor", "Lion", "Adagrad")},
    **{"AdamW8bit": "adamw_8bit", "Adam8bit": "adamw_8bit", "PagedAdamW": "paged_adamw", "PagedAdamW8bit": "paged_adamw_8bit"},
    **{"PagedAdamW32bit": "paged_adamw_32bit", "FusedAdam": "adamw"},
}
_OF_TEXT = re.compile(
    r"AutoModelFor|tokenizer|\bGPT|LMHead|context_length|block_size|vocab_size|n_tokens|num_tokens|tokenize|input_ids"
)
_OTHERS = re.compile(r"val|test|eval|dev(?![a-z])|valid", re.I)
_OPEN = {"micro_batch": "how many sequences a card takes at once: 1 is taken, --micro-batch N says it",
         "seq": "how long they are: --seq N says it"}  # fmt: skip


def writes_loop(program: Program) -> bool:
    """Whether a program steps an optimizer behind a backward pass of its own, and no trainer does it for it."""
    calls = {called(node) for node in ast.walk(program.tree) if isinstance(node, ast.Call)}
    return "backward" in calls and "step" in calls and not calls & {*TRAINERS, "Fabric"}


def is_loop_of_a_model(text: str) -> bool:
    """Whether a text is such a loop around a language model, by the calls and names of its code, never by its strings."""
    if not re.search(r"\.backward\(", text) or not re.search(r"\.step\(", text):
        return False
    with suppress(QuestionError):
        tree = parse_python(text, "the program").tree
        if imports_module(tree, "petals"):  # its layers run on the cards of others
            return False
        names = " ".join(_names_in(tree))
        steps = [called(node) for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        return {"backward", "step"} <= set(steps) and _OF_TEXT.search(names) is not None
    return False


def _names_in(tree: ast.AST) -> Iterator[str]:
    """The names of a program's code: of variables, attributes, arguments, what it imports, keys of its mappings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            yield node.arg
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            yield node.slice.value
        elif isinstance(node, ast.Dict):
            yield from (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


def of_loop(program: Program, built: dict[str, Any], settings: Settings, where: str) -> None:
    """Put what a loop's calls say; ``built``: the keys of what it makes beside them. Nothing for a program without a loop."""
    if not writes_loop(program):
        return
    _optimizer(program, settings, where)
    _precision(program, settings, where)
    _further_models(program, settings)
    kbit(program, built, settings, where, by_trl=False)


def batch_of_loop(program: Program, settings: Settings, where: str) -> None:
    """The batch of the loader that trains, where no name has told it."""
    if not writes_loop(program):
        return
    for part in parts_of(program):
        loaders = {called(node) for node in ast.walk(part.tree) if isinstance(node, ast.Call)}
        for call in part.calls(
            *(name for name in loaders if re.search(r"data_?loader", name, re.I))
        ):  # create_dataloader_v1(...)
            words = {word.arg: word.value for word in call.keywords}
            size = words.get("batch_size") or (call.args[1] if len(call.args) > 1 and called(call) == "DataLoader" else None)
            if part.runs(call) is False or size is None or _OTHERS.search(ast.unparse(call.args[0]) if call.args else ""):
                continue
            value = part.value(size)
            if isinstance(value, int) and not isinstance(value, bool):
                settings.put("micro_batch", value, f"{where}: DataLoader in line {call.lineno}")
            return


_SHAPES = {"n_layer": "layers", "n_layers": "layers", "num_layers": "layers", "n_embd": "hidden", "emb_dim": "hidden",
           "d_model": "hidden", "n_head": "heads", "n_heads": "heads", "num_heads": "heads"}  # fmt: skip


def without_rivals(keys: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The keys without sizes of models that stand beside each other in several mappings: which one is trained stays open."""
    held: dict[str, set[Any]] = {}
    for key, value in keys.items():
        if (leaf := key.rsplit(".", 1)[-1]) in _SHAPES:
            held.setdefault(_SHAPES[leaf], set()).add(value)
    rivals = {name for name, values in held.items() if len(values) > 1}
    if not rivals:
        return keys
    for name in rivals:
        settings.leave_open(f"shape.{name}")
    return {key: value for key, value in keys.items() if key.rsplit(".", 1)[-1] not in _SHAPES}


def tell_open(program: Program, settings: Settings, where: str) -> None:
    """Name what the loop does not say, with its flag; no trainer's default stands for it."""
    if writes_loop(program) and not settings.group("shape"):  # one of a known model; its own model has rules of its own
        settings.put("framework", "pytorch", f"{where}: a loop of its own, which calls backward and step itself")
    if writes_loop(program) and settings.get("adapter.rank") and not settings.get("adapter.on"):
        settings.leave_open("adapter.targets")
        settings.unread.append("adapter.targets (layers that its own adapters stand at: --targets NAMES says it)")
    if writes_loop(program) and settings.get("optimizer") is None and "optimizer" not in settings.opened:
        settings.unread.append("optimizer (none known here is made in it: adamw is taken, --optimizer NAME says it)")
    for target, told in _OPEN.items() if writes_loop(program) else ():
        if settings.get(target) is None and target not in settings.opened and not settings.get("size.any"):
            settings.leave_open(target)
            settings.unread.append(f"{target} ({told})")


def _further_models(program: Program, settings: Settings) -> None:
    """Name the models that a loop loads beside the one that it trains: a reference, a teacher."""
    last = max((call.lineno for call in program.calls("backward")), default=0)  # what is loaded behind it tries what was trained
    loaded: dict[str, int] = {}
    for node in (one for one in ast.walk(program.tree) if isinstance(one, ast.Assign) and one.lineno < last):
        target, value = node.targets[0], node.value
        by = ast.unparse(value.func) if isinstance(value, ast.Call) and isinstance(target, ast.Name) else ""
        if LOADERS.fullmatch(by) and not by.startswith(("Peft", "AutoPeft")) and program.runs(value) is not False:
            loaded.setdefault(ast.unparse(target), node.lineno)
    for name, line in [*loaded.items()][1:]:
        settings.unread.append(f"{name} (a further model, loaded in line {line}: it is not counted)")


_NARROWING = {"autocast", "Accelerator", "GradScaler", "Fabric", "initialize", "half", "bfloat16"}  # what may narrow otherwise


def _optimizer(program: Program, settings: Settings, where: str) -> None:
    from vramcast.training.optimizers.rules import optimizer

    made = [call for call in program.calls(*_OPTIMIZERS) if program.runs(call) is not False]
    for call in made[:1] if len({called(call) for call in made}) == 1 else made:
        if len({called(one) for one in made}) > 1 and program.runs(call) is not True:
            continue
        with suppress(QuestionError):
            settings.put("optimizer", optimizer(_OPTIMIZERS[called(call)]).name, f"{where}: {called(call)} in line {call.lineno}")


def _precision(program: Program, settings: Settings, where: str) -> None:
    """``autocast(dtype=...)``, which is float16 on a card unless said, and accelerate's ``mixed_precision``."""
    for call in program.calls("autocast", "Accelerator"):
        given = program.keywords(call)
        word = given.get("dtype", "float16") if called(call) == "autocast" else given.get("mixed_precision")
        word = {"fp16": "float16", "bf16": "bfloat16"}.get(str(word), word)
        off = program.runs(call) is False or given.get("enabled", True) is False
        if not off and not isinstance(word, Open) and word in ("float16", "bfloat16"):
            settings.put("compute_dtype", word, f"{where}: {called(call)} in line {call.lineno}")
            settings.put("options.autocast", True, f"{where}: {called(call)} in line {call.lineno}")
            return
    calls = {called(node) for node in ast.walk(program.tree) if isinstance(node, ast.Call)}
    if settings.get("compute_dtype") is None and not calls & _NARROWING and not imports_module(program.tree, "deepspeed"):
        settings.put("options.autocast", False, f"{where}: its loop opens no autocast")
