"""Count the files of vramcast that one question visits: those of which at least one function is called.

    python tools/visits.py serve Qwen/Qwen2.5-7B-Instruct --gpu H100 --json

Each line is a file, its lines, and the functions that were called. What runs while a module is imported (class bodies, tables) is
no visit. ``--core`` asks the rules alone, of a model that was read before: no command line, no verdict, no speed. Ask in a fresh
process: what an earlier question left in caches is not visited again.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import vramcast

ROOT = Path(vramcast.__file__).parent
_FUNCTION = 1  # inspect.CO_OPTIMIZED: set on functions and comprehensions, not on modules and class bodies


def visited(ask: Callable[[], Any]) -> dict[str, set[str]]:
    """The files below src/vramcast whose functions ``ask`` calls, each with their names."""
    found: dict[str, set[str]] = {}
    root = f"{ROOT}{os.sep}"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_flags & _FUNCTION and not _importing(frame, root):
            found.setdefault(code.co_filename.removeprefix(root), set()).add(code.co_name)

    sys.setprofile(note)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return found


def _importing(frame: FrameType | None, root: str) -> bool:
    """Whether the call stands below the body of a module or class of ours."""
    while frame is not None:
        code: CodeType = frame.f_code
        if not code.co_flags & _FUNCTION and code.co_filename.startswith(root):
            return True
        frame = frame.f_back
    return False


def whole(arguments: list[str]) -> None:
    """The command line with all it does, its page or JSON thrown away."""
    from vramcast.cli import run

    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        run(arguments)
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)


def core(arguments: list[str]) -> Callable[[], Any]:
    """The rules of serving or training alone, for the model and card of the command line."""
    from vramcast.models.reading import read_model

    model, card = read_model(arguments[1]), arguments[arguments.index("--gpu") + 1]
    if arguments[0] == "serve":
        from vramcast.hardware.cards import least_card
        from vramcast.serving.engines.base import answer_of
        from vramcast.workload import Serving

        named = least_card(card)
        return lambda: answer_of(Serving(model=arguments[1], gpu=card), model=model, card=named)
    from vramcast.training.forecast import forecast_training
    from vramcast.workload import Training

    return lambda: forecast_training(Training(model=arguments[1], gpu=card), model=model)


def main(arguments: list[str]) -> None:
    """Print the files of one question and how many they are."""
    ask = core(arguments[1:]) if arguments[0] == "--core" else lambda: whole(arguments)
    found = visited(ask)
    for name in sorted(found):
        lines = len((ROOT / name).read_text("utf-8").splitlines())
        sys.stdout.write(f"{name} {lines} {' '.join(sorted(found[name]))}\n")
    sys.stdout.write(f"{len(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
