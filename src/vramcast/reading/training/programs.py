"""Training programs: the keyword arguments of TrainingArguments and its relatives, by the syntax tree, never executed.

Beside them what they build (program_built). Each argument becomes the key that the same setting has in a file; what only running
the program would tell stays ``${name}``.
"""

import ast
import re
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.python_imports import TextOf
from vramcast.reading.python_values import Program, called, field_defaults, parse_python
from vramcast.reading.training.keys import flat
from vramcast.reading.training.program_built import built_beside, plain, tell_opened
from vramcast.reading.training.program_defaults import TRAINERS, classifier, implied
from vramcast.reading.training.program_loops import (
    batch_of_loop,
    is_loop_of_a_model,
    of_loop,
    tell_open,
    without_rivals,
    writes_loop,
)
from vramcast.reading.training.program_models import own_model
from vramcast.reading.training.program_modules import parts_of
from vramcast.reading.training.program_runs import given_to_trainer
from vramcast.reading.training.settings import Settings

# Classes of arguments, and the task that each is for.
ARGUMENTS = {
    "TrainingArguments": "", "Seq2SeqTrainingArguments": "", "SFTConfig": "sft", "DPOConfig": "dpo", "GRPOConfig": "grpo",
    "KTOConfig": "kto", "ORPOConfig": "orpo", "RewardConfig": "reward", "UnslothTrainingArguments": "sft", "PPOConfig": "",
    "CPOConfig": "orpo", "AsyncGRPOConfig": "grpo",
}  # fmt: skip
_OF_ARGUMENTS = {
    "per_device_train_batch_size": "micro_batch", "gradient_accumulation_steps": "accumulate", "optim": "optimizer",
    "gradient_checkpointing": "checkpointing", "max_length": "seq", "bf16": "compute_dtype",
}  # fmt: skip
_LONGEST = 20_000
_STARTS = re.compile(
    r"\b(?:torchrun|accelerate|deepspeed|python[\d.]*|swift|llamafactory-cli|axolotl)\b.*(?:\s--\w|\w\.\w+=)", re.S
)


def read_program(text: str, settings: Settings, *, where: str, text_of: TextOf | None = None) -> dict[str, Any]:
    """The keys that a program sets, as a file of TrainingArguments would hold them; task and framework go into ``settings``.

    ``text_of``: the text of a file beside it, for settings that it imports. Raises QuestionError for what is no Python, or a
    program that sets none of them.
    """
    program = parse_python(text, where, text_of)
    program.capability = settings.capability
    keys, first = _arguments(program, settings, where)
    keys |= {name: value for name, value in _own_fields(program).items() if name not in keys}
    if not keys:
        raise _nothing_set(program, where)
    built_beside(program, keys, settings, where)
    implied(program, keys, settings, where, arguments=first)
    return {name: plain(value) for name, value in keys.items()}


def _nothing_set(program: Program, where: str) -> QuestionError:
    """The error of a program that sets nothing that can be read: its own settings come when it is started, or it has none."""
    if parsers := [call for call in program.calls("HfArgumentParser", "H4ArgumentParser", "TrlParser") if call.args]:
        return QuestionError(
            f"{where} sets no TrainingArguments, SFTConfig or the like that can be read without running it: "
            f"{called(parsers[0])} takes them from the command or the YAML that starts it; give that: vramcast train --from FILE"
        )
    return QuestionError(
        f"{where} sets no TrainingArguments, SFTConfig or the like that can be read without running it: vramcast trace -- "
        f"python {where} runs its step without a GPU; or give its settings as flags or as a YAML"
    )


def _arguments(program: Program, settings: Settings, where: str) -> tuple[dict[str, Any], str]:
    """The arguments of the run that is answered, with the class that holds them; "" for none.

    Those that the first trainer is given, else the first that are made; what stands in another branch of an open test fills in.
    """
    made = [
        call
        for call in program.calls(*ARGUMENTS, *_relatives(program))
        if program.runs(call) is not False and not _is_own(program, called(call))
    ]
    if not made:
        return {}, ""
    classes = [call for call in made if called(call) in ARGUMENTS]
    chosen = given_to_trainer(program, made, (*TRAINERS, *_trainers(program))) or next(iter(classes), made[0])
    first, keys = called(chosen), program.keywords(chosen)
    for call in (one for one in made if one is not chosen):
        if called(call) not in ARGUMENTS or (called(call) == first and None in (program.runs(call), program.runs(chosen))):
            keys = {**program.keywords(call), **keys}
        else:
            settings.unread.append(
                f"{called(call)} in line {call.lineno} (another run's: that of line {chosen.lineno} is answered)"
            )
    tell_opened(program, chosen, settings, _OF_ARGUMENTS, keys)
    if task := ARGUMENTS.get(first, ""):
        settings.put("options.task", task, f"{where}: {first} in line {chosen.lineno}")
    return keys, first if first in ARGUMENTS else ""


def _trainers(program: Program) -> set[str]:
    """Classes of trainers by their name's end: a library's or the program's own."""
    return {name for node in ast.walk(program.tree) if isinstance(node, ast.Call) and (name := called(node)).endswith("Trainer")}


_OF_EVERY_TRAINER = {"output_dir", "per_device_train_batch_size", "gradient_accumulation_steps"}


def _is_own(program: Program, name: str) -> bool:
    """Whether a class of the program bears the name of a class of arguments and is none: ``class SFTConfig(BaseModel)``."""
    if (module := program.imports.modules_of.get(name)) and not _LIBRARIES.match(module):  # from config import SFTConfig
        other, theirs = program.imports.of_name(name)
        if not isinstance(other, Program) or theirs not in other.scopes.classes:  # not at hand: what it is given tells
            given = {word.arg for call in program.calls(name) for word in call.keywords}
            return not given & _OF_EVERY_TRAINER
        return _is_own(other, theirs)
    own = program.scopes.classes.get(name)
    bases = [ast.unparse(base).rsplit(".", 1)[-1] for base in own.bases] if own else []
    return own is not None and not any(base in ARGUMENTS or base.endswith("Arguments") for base in bases)


def longest_tokenised(text: str, where: str, text_of: TextOf | None = None) -> int | None:
    """The length that a program cuts or pads samples to: ``tokenizer(..., max_length=2048, truncation=True)``; None for none."""
    found: list[int] = []
    for part in parts_of(parse_python(text, where, text_of)):
        for call in (node for node in ast.walk(part.tree) if isinstance(node, ast.Call)):
            names = {word.arg for word in call.keywords}
            if "max_length" in names and names & {"truncation", "padding"}:
                value = part.keywords(call).get("max_length")
                found += [value] if isinstance(value, int) and not isinstance(value, bool) and value > 0 else []
    return max(found, default=None)


def _relatives(program: Program) -> set[str]:
    """Classes of arguments by their name's end: SentenceTransformerTrainingArguments, a library's own."""
    names = {called(node) for node in ast.walk(program.tree) if isinstance(node, ast.Call)}
    return {name for name in names if name.endswith("TrainingArguments")} - ARGUMENTS.keys()


def constants_of(text: str, where: str, text_of: TextOf | None = None) -> dict[str, Any]:
    """What a program's own names hold (its module's constants, argparse's defaults, Lightning's trainer), as a file's keys would.

    For training loops of their own, which set sizes as ``micro_batch_size = 4``. Raises QuestionError for what is no Python.
    """
    program = parse_python(text, where, text_of)
    found: dict[str, Any] = {}
    names = _names_of_training(program)
    names |= {name: node for name, node in program.names.items() if name not in names}
    for names_ in (names, program.arguments, program.attributes):
        for name, node in names_.items():
            value = program.value(node)
            if isinstance(value, int | float | str | bool):
                found.setdefault(name, value)
            elif isinstance(value, dict) and names_ is names:  # CONFIG = {"batch_size": 4, ...}
                found |= {f"{name}.{key}": inner for key, inner in flat(plain(value)).items() if f"{name}.{key}" not in found}
    for call in program.calls("Trainer", "Fabric"):
        given = program.keywords(call)
        found |= {f"trainer.{name}": value for name, value in given.items() if isinstance(value, int | str)}
    return found


def _names_of_training(program: Program) -> dict[str, ast.expr]:
    """What the parameters of the function that trains stand for: of several functions with a ``model``, that one's is meant."""
    for name, function in program.scopes.functions.items():
        starts = any(isinstance(one, ast.Call) and called(one) == "train" for one in ast.walk(function))
        if starts or name.startswith(("train", "finetune", "fine_tune")):
            held = program.scopes.bindings.get(id(function), {})
            return {key: bound[0].value for key, bound in held.items() if bound[0].line == 0}
    return {}


def options_of_program(text: str, where: str) -> set[str]:
    """Names of the settings that a program has: its constants, its options with or without a default."""
    program = parse_python(text, where)
    flags = {
        str(arg.value).lstrip("-").replace("-", "_")
        for call in program.calls("add_argument")
        for arg in call.args
        if isinstance(arg, ast.Constant)
    }
    return flags | constants_of(text, where).keys()


def settings_of_loop(
    text: str, settings: Settings, *, where: str, text_of: TextOf | None = None
) -> tuple[dict[str, Any], dict[str, Any]] | str:
    """A loop's own names with what it builds beside them, as keys; or the command that trains which the program runs.

    Raises QuestionError for a program with neither.
    """
    from vramcast.reading.training import shared

    built: dict[str, Any] = {}
    program = parse_python(text, where, text_of)
    program.capability = settings.capability
    built_beside(program, built, settings, where)
    classifier(program, built, settings, where)
    if shared.marks(options_of_program(text, where)) >= shared.FEWEST or "lora_r" in built or is_loop_of_a_model(text):
        of_loop(program, built, settings, where)
        keys = without_rivals(constants_of(text, where, text_of), settings)
        if "model_name_or_path" not in built:
            own_model(program, text, keys, settings, where)
        return keys, {name: plain(value) for name, value in built.items()}
    if command := command_in(text, where):
        return command
    raise _nothing_set(program, where)


def finish_loop(text: str, settings: Settings, where: str, text_of: TextOf | None = None) -> None:
    """What a loop's calls say where its names said nothing: batch, length; what is open then is named."""
    program = parse_python(text, where, text_of)
    if settings.builds:
        settings.drop(*(f"shape.{name}" for name in settings.group("shape")))
    batch_of_loop(program, settings, where)
    if writes_loop(program):
        settings.put("seq", longest_tokenised(text, where, text_of), f"{where}: the length its tokenizer cuts samples to")
    tell_open(program, settings, where)


_LIBRARIES = re.compile(r"(?:trl|transformers|unsloth|sentence_transformers|setfit|optimum|span_marker)\b|$")


def command_in(text: str, where: str) -> str:
    """A command that trains which a program writes or runs: an f-string, a list of words; "" for none."""
    from vramcast.reading.training.starting import starts_training

    program = parse_python(text, where)
    alone = {id(node.value) for node in ast.walk(program.tree) if isinstance(node, ast.Expr)}  # what a docstring tells
    for node in ast.walk(program.tree):
        if not isinstance(node, ast.JoinedStr | ast.Constant | ast.List) or id(node) in alone:
            continue
        value = program.value(node)
        words = value if isinstance(value, list) else []
        told = " ".join(str(plain(word)) for word in words) if words else _written(program, node)
        if len(told) < _LONGEST and _STARTS.search(told) and starts_training(told):
            return told
    return ""


def _written(program: Program, node: ast.AST) -> str:
    """A text with what is open in it as variables."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(plain(program.value(one.value if isinstance(one, ast.FormattedValue) else one))) for one in parts)


def _own_fields(program: Program) -> dict[str, Any]:
    """Defaults of the program's own classes of arguments: relatives of TrainingArguments, and those that their parser takes."""
    found: dict[str, Any] = {}
    parsed = {
        name.id
        for call in program.calls("HfArgumentParser", "H4ArgumentParser", "TrlParser")
        for name in (call.args[0].elts if call.args and isinstance(call.args[0], ast.Tuple | ast.List) else call.args[:1])
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(program.tree):
        if isinstance(node, ast.ClassDef):
            own = {name: program.value(default) for name, default in field_defaults(node)}
            named = {ast.unparse(base) for base in node.bases} | {str(own.get("_target_"))}  # Hydra's class of the fields
            if node.name in parsed or {name.rsplit(".", 1)[-1] for name in named} & ARGUMENTS.keys():
                found |= {name: value for name, value in own.items() if name != "_target_"}
    return found
