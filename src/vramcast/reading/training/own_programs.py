"""Programs of people's own that a script starts: what is assumed where neither their flags nor their text say it.

One line names every such thing with the flag that changes it, so that no default of a library stands for a program unseen.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vramcast.reading.python_options import executes_files
from vramcast.reading.training.mappings import contents
from vramcast.reading.training.settings import Settings
from vramcast.reading.training.tables import tables

# The files by which a tool's own repository is started; another one with the tool's flags is a program of its own.
# Sources: LLaMA-Factory src/ (train.py, train_bash.py, v0.1 train_sft.py ...), ms-swift swift/cli and examples/pytorch/llm.
_OF_TOOLS = {
    "llama_factory": re.compile(r"(?:train(?:_bash|_sft|_pt|_rm|_ppo|_dpo|_web)?|launcher|cli)\.py"),
    "ms_swift": re.compile(r"(?:sft|rlhf|pt|llm_sft|llm_dpo|main|megatron_sft)\.py"),
}
ABSENT, UNREADABLE = "(not at hand)", "(at hand, but nothing of its step could be read)"
# What a forecast depends on, the targets that say it, and the flag that changes it.
_ASSUMED = (
    ("method", ("method", "adapter.on", "adapter.rank", "quant"), "--method"),
    ("adapted modules", ("adapter.targets",), "--targets"),
    ("optimizer", ("optimizer",), "--optimizer"),
    ("weights' type", ("param_dtype",), "--param-dtype"),
    ("compute type", ("compute_dtype",), "--compute-dtype"),
    ("checkpointing", ("checkpointing",), "--checkpointing"),
    ("length", ("seq", "length.source", "length.target", "lengths.prompt", "tokens.at_once"), "--seq"),
    ("batch", ("micro_batch", "size.any"), "--micro-batch"),
)


def is_own(name: str, programmed: str, scripts: list[str]) -> bool:
    """Whether flags of a format (``name``) are given to a program that is none of the format's own.

    ``programmed``: the tool that the command itself names, "" for none.
    """
    table = tables().get(name)
    if name in ("shared", "huggingface"):
        return True
    if table is not None:  # a copy under another folder; keys that are one program's alone name it
        return bool(table.base == "huggingface" and not table.sure and not programmed and scripts)
    known = _OF_TOOLS.get(name)
    return known is not None and bool(scripts) and not programmed and known.fullmatch(scripts[0].rsplit("/", 1)[-1]) is None


def note_unknown_program(settings: Settings, *, shared_alone: bool) -> None:
    """Tell that a program is not known, and what of its step nothing says, each with its flag; before any default is put.

    It is one that a script starts and that is not at hand or tells nothing, or (``shared_alone``) one whose file is read by the
    names that training programs share.
    """
    if not (settings.unseen or shared_alone):
        return
    adapts = bool(settings.get("adapter.on") or settings.get("adapter.rank") or settings.get("method") in ("lora", "qlora"))
    left = [
        f"{what} ({flag})"
        for what, targets, flag in _ASSUMED
        if not any(one in settings.values or one in settings.opened for one in targets)
        and (adapts or flag != "--targets")
        and (settings.get("zero") is None or flag != "--param-dtype")  # DeepSpeed casts the model itself
    ]
    because = "read by the names that training programs share"
    if left:
        because = f"nothing says its {', '.join(left)}: usual defaults stand for them, each flag changes its own"
    gives = "; --from reads the program too" if settings.unseen.endswith(ABSENT) else ""
    settings.put("program", settings.unseen or "unknown here", f"{because}{gives}")


def executed_over(text: str, files: list[str], at: Callable[[str], Path | None]) -> tuple[dict[str, Any], str]:
    """The constants of files that a command hands to a program which executes them over its own; the first that is not at hand.

    ``torchrun train.py config/train_gpt2.py`` (karpathy/nanoGPT, configurator.py): of a program that executes nothing, none.
    """
    from vramcast.reading.training.programs import constants_of

    found: dict[str, Any] = {}
    for file in files if executes_files(text) else ():
        if (path := at(file)) is None:
            return found, file
        found |= {name: value for name, value in constants_of(contents(path), path.name).items() if "." not in name}
    return found, ""


def usual_length(settings: Settings, program: str) -> None:
    """The length of transformers' own examples where no flag says one: run_clm.py cuts texts into blocks of at most 1,024.

    Source: transformers v4.57, examples/pytorch/language-modeling/run_clm.py and run_clm_no_trainer.py (``block_size``).
    """
    if re.fullmatch(r"run_clm(?:_no_trainer)?\.py", program):
        settings.default("seq", 1024, f"{program}: blocks of at most 1,024 tokens")
