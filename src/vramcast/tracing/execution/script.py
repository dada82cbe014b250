"""A user's own training script, unmodified, under the tracer: stopped after its optimizer steps, its failures reported."""

import os
import runpy
import sys
from pathlib import Path

from vramcast.tracing.execution import flash_package, hub_models, patches, sharding, steps, triton_kernels
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.start import settle
from vramcast.tracing.request import ScriptRequest, TraceResult


def run_script(request: ScriptRequest) -> TraceResult:
    """Run ``argv`` as ``python`` would, as if a GPU were there; the log holds everything up to where it stopped."""
    session = Session(backend="cuda", device=request.device, lines=True, limit=request.operator_limit)
    _prepare_process(request.argv)
    with steps.timed() as spent:
        _prepare_libraries(session, request.ranks)
        settle()
        error = session.trace(lambda: _execute(request.argv), steps=request.steps)
    notes = () if session.steps else ("the script made no optimizer step: the peak is of what ran before",)
    return session.result(seconds=spent[0], notes=notes, error=error)


def _prepare_libraries(session: Session, ranks: int) -> None:
    flash_package.install()
    triton_kernels.install()
    patches.transformers()
    hub_models.install(session)
    patches.four_bit_if_present(session)
    if ranks > 1:
        sharding.pretend_for_scripts(session, ranks)


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
