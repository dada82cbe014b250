"""A user's own training script, unmodified, under the tracer: stopped after its optimizer steps, its failures reported."""

import os
import runpy
import sys
from pathlib import Path

from vramcast.tracing.execution import hub_models, patches, sharding, steps
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.start import settle
from vramcast.tracing.request import ScriptRequest, TraceResult


class EnoughStepsError(BaseException):
    """Raised in the optimizer's step hook once enough steps were traced; not an Exception, so that no script catches it."""


def run_script(request: ScriptRequest) -> TraceResult:
    """Run ``argv`` as ``python`` would, as if a GPU were there; the log holds everything up to where it stopped."""
    from vramcast.tracing.execution.worker import describe

    session = Session(backend="cuda", device=request.device, lines=True, limit=request.operator_limit)
    session.places.on_step.append(lambda _: _stop_after(session, request.steps))
    _prepare_process(request.argv)
    error = ""
    with steps.timed() as spent:
        try:
            patches.transformers()
            hub_models.install(session)
            patches.four_bit_if_present(session)
            if request.ranks > 1:
                sharding.pretend_for_scripts(session, request.ranks)
            settle()
            with session.recording():
                _execute(request.argv)
        except EnoughStepsError:
            pass
        except SystemExit as done:
            error = "" if not done.code else f"the script ended itself with exit code {done.code}"
        except Exception as failure:  # whatever the script raised is the finding
            error = describe(failure)
    notes = () if session.steps else ("the script made no optimizer step: the peak is of what ran before",)
    return session.result(seconds=spent[0], notes=notes, error=error)


def _execute(argv: tuple[str, ...]) -> None:
    if argv[0] == "-m":
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(argv[0], run_name="__main__")


def _prepare_process(argv: tuple[str, ...]) -> None:
    target = argv[1:] if argv[0] == "-m" else argv
    sys.argv = list(target)
    sys.path.insert(0, str(Path.cwd() if argv[0] == "-m" else Path(argv[0]).resolve().parent))
    for name, value in {"WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false", "WANDB_DISABLED": "true"}.items():
        os.environ.setdefault(name, value)


def _stop_after(session: Session, wanted: int) -> None:
    if session.steps >= wanted:
        raise EnoughStepsError(f"{wanted} optimizer steps traced")
