"""What the worker does: each job is a function of plain values, answered by the functions of the command line."""

import sys
from typing import Any

import msgspec

from vramcast.errors import QuestionError, VramcastError
from vramcast.language import language
from vramcast.ledger import shown_in
from vramcast.units import GiB
from vramcast.untrusted import disk_closed
from vramcast.web.problems import Problem, problem_of
from vramcast.web.worker import MOST_BYTES, put, taken

_SEVERAL = ("gpu", "engine", "framework")


def plan(*, task: str, words: dict[str, Any]) -> dict[str, Any]:
    """The plan's object; cards, engines and frameworks may be several by comma. Raises as ``vramcast plan`` does."""
    from vramcast.asking.doors import plan as planned
    from vramcast.asking.visitor import plan_of_visitor

    several = {n: [part.strip() for part in str(words[n]).split(",") if part.strip()] for n in _SEVERAL if n in words}
    model, asked = plan_of_visitor(task, {**words, **several})
    return {"object": planned(task, model, **asked).to_dict()}


def profile(*, data: bytes, name: str, gpu: str) -> dict[str, Any]:
    """The object of ``vramcast profile --json``. Raises VramcastError for what is no trace."""
    from vramcast.asking.profiling import report_on
    from vramcast.web.pasting import trace_of

    report, _ = report_on(trace_of(data), file=name, gpu=gpu or None)
    return {"object": {"schema": "vramcast/1", "kind": "profile", **shown_in("structs").told(report)}}


def held(*, data: bytes, name: str, gpu: str, size: int, lang: str) -> dict[str, Any]:
    """What was pasted or dropped, as the fragment of a page: what it was taken for, and its answer."""
    from vramcast.web.drawing import drawn
    from vramcast.web.pasting import read_held
    from vramcast.web.view import with_links

    say = language(lang)
    try:
        shown = read_held(data, name=name, gpu=gpu, size=size, say=say)
    except VramcastError as error:
        shown = {"problem": with_links(problem_of(error), {}, "serve")}
    return {"html": drawn("held.html", {"say": say, **shown})}


JOBS = {"plan": plan, "profile": profile, "held": held}


def main() -> None:
    """Answer jobs from standard input until it ends."""
    _bound()
    into, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        try:
            message = taken(into)
        except EOFError:
            return
        put(out, msgspec.msgpack.encode(_answered(msgspec.msgpack.decode(message)), enc_hook=str))


def _bound() -> None:
    """No more memory than ``MOST_BYTES``, where the system can hold a process to it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    except (ImportError, ValueError, OSError):
        return


def _answered(message: dict[str, Any]) -> dict[str, Any]:
    """The answer of one job, or its problem; a fault of ours is named by its kind alone."""
    job: Any = JOBS[message.pop("job")]
    try:
        with disk_closed():
            found: dict[str, Any] = job(**message)
            return found
    except VramcastError as error:
        problem = problem_of(error)
    except MemoryError:
        problem = problem_of(QuestionError(f"this needs more than {MOST_BYTES / GiB:.1f} GiB here: use the command line for it"))
    except Exception as error:
        detail = f"internal error ({type(error).__name__}): please report what you asked"
        problem = Problem(type="about:blank", title="internal error", status=500, detail=detail)
    return {"problem": msgspec.to_builtins(problem)}


if __name__ == "__main__":
    main()
