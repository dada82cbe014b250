"""A user's own training script, unmodified, under the tracer: stopped after its optimizer steps, its failures reported."""

import builtins
import functools
import importlib.util
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vramcast.tracing.execution import repeated_loops
from vramcast.tracing.execution.compiled import compile_what_is_asked
from vramcast.tracing.execution.garbage import settle
from vramcast.tracing.execution.keeper import Keeper, limit_host_memory
from vramcast.tracing.execution.lean import postpone_dynamo
from vramcast.tracing.execution.overlay import Overlay
from vramcast.tracing.execution.ranks import sharding
from vramcast.tracing.execution.ranks.spawned import join_as_first, pretend_to_spawn, processes_asked
from vramcast.tracing.execution.session import OutOfTimeError, Session
from vramcast.tracing.execution.stand_ins import (
    absent,
    absent_files,
    absent_folders,
    checkpoints,
    compiled_operations,
    data_sets,
    downloads,
    driver_tools,
    fetched_files,
    files,
    flash_package,
    flex_attention,
    four_bit,
    gone_names,
    hub_files,
    hub_kernels,
    hub_models,
    hub_writing,
    lbfgs,
    metrics,
    moved_names,
    numpy_names,
    older_arguments,
    older_calls,
    older_lightning,
    older_tokenizers,
    patches,
    pictures,
    pretrained,
    remote_decoders,
    triton_kernels,
)
from vramcast.tracing.execution.stand_ins.fake_cuda import FakeCudaError
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.libraries import lacking
from vramcast.tracing.request import ScriptRequest, TraceResult


def run_script(request: ScriptRequest, path: Path, complete: Callable[[TraceResult], TraceResult]) -> None:
    """Run ``argv`` as ``python`` would, as if a GPU were there; ``path`` gets the result, with all up to where it stopped."""
    os.environ.update(request.environment)
    postpone_dynamo()
    try:
        session = Session(backend="cuda", device=request.device, lines=True, limit=request.operator_limit)
    except (FakeCudaError, ImportError, AttributeError) as lack:
        raise lacking(lack) from None
    _prepare_process(request.argv)
    _launch_here(session, request)
    pretend_to_spawn(session, request)
    prepare_libraries(session, request.ranks, launched=request.launched)
    driver_tools.install(session.device, path.parent)
    settle()
    limit_host_memory()
    scratch = None if request.write_through else files.install(path.parent)
    checkpoints.install(session, scratch)
    if scratch is not None:
        absent_folders.install(absent_files.install(session, scratch))
    hub_files.install(session, path.parent)
    repeated_loops.install(session)
    if request.life:
        session.live()
        generations(session)
    keeper = Keeper(session, path, _with_files(complete, scratch))
    keeper.begin(request.seconds)
    with _limited(request.seconds):
        error = session.trace(lambda: _execute(request.argv), steps=request.steps)
    keeper.end(error)


def generations(session: Session) -> None:
    """Know transformers' ``generate`` for what it is."""

    def patch(module: Any) -> None:
        original = module.GenerationMixin.generate

        @functools.wraps(original)
        def generate(*args: Any, **options: Any) -> Any:
            session.places.generating = True
            try:
                return original(*args, **options)
            finally:
                session.places.generating = False

        module.GenerationMixin.generate = generate

    when_imported("transformers.generation.utils", patch)


_MOST_LISTED = 50


def _with_files(complete: Callable[[TraceResult], TraceResult], scratch: Overlay | None) -> Callable[[TraceResult], TraceResult]:
    """``complete``, with the files in a scratch layer."""

    def filled(result: TraceResult) -> TraceResult:
        found = scratch.written() if scratch is not None else []
        result.written = tuple(sorted(found, key=lambda file: -file[1])[:_MOST_LISTED])
        result.written_files = len(found)
        result.notes = tuple(dict.fromkeys((*result.notes, *(scratch.told() if scratch is not None else ()))))
        return complete(result)

    return filled


def prepare_libraries(session: Session, ranks: int, *, launched: bool = False) -> None:
    """Put the libraries of a program right for fake tensors, and tell it that it is rank 0 of ``ranks``.

    ``launched``: tell it so even where it is alone. torch.compile is taken as far as memory needs it.
    """
    flash_package.install()
    hub_kernels.install()
    triton_kernels.install()
    compiled_operations.install()
    lbfgs.install(session)
    metrics.install(session)
    data_sets.install(session)
    downloads.install(session)
    fetched_files.install(session)
    numpy_names.install(session)
    moved_names.install(session)  # before what answers any name that nothing else finds
    gone_names.install(session)
    older_arguments.install(session)
    older_calls.install(session)
    older_lightning.install(session)
    older_tokenizers.install(session)
    absent.install(session, ranks)
    pretrained.install(session)
    pictures.install(session)
    patches.transformers()
    hub_models.install(session)
    hub_writing.install(session)
    remote_decoders.install(session)
    if importlib.util.find_spec("bitsandbytes") is not None:
        four_bit.install(session)
    flex_attention.install()
    if launched or ranks > 1:
        sharding.pretend_for_scripts(session, ranks)
    else:
        sharding.pretend_when_asked(session)
    flex_attention.opaque_in_graphs()
    compile_what_is_asked(session)


def _execute(argv: tuple[str, ...]) -> None:
    if argv[0] == "-m":
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(argv[0], run_name="__main__")


def _launch_here(session: Session, request: ScriptRequest) -> None:
    """A program that starts its processes by torchrun's own function (``tune run``, ``fabric run``) goes on as their first."""
    from torch.distributed import run as elastic

    def run(asked: Any) -> None:
        join_as_first(session, request, processes_asked(asked))
        argv = (*(("-m",) if asked.module else ()), asked.training_script, *asked.training_script_args)
        _prepare_process(argv)
        _execute(argv)

    elastic.run = run


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Ends the script in time to tell what was traced until then; the parent ends a process that does not answer either."""

    def stop(*_: Any) -> None:
        raise OutOfTimeError(f"stopped after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 2.0)  # again, where a library swallowed the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _prepare_process(argv: tuple[str, ...]) -> None:
    target = argv[1:] if argv[0] == "-m" else argv
    sys.argv = list(target)
    sys.path.insert(0, str(Path.cwd() if argv[0] == "-m" else Path(argv[0]).resolve().parent))
    builtins.input = _no_input
    for name, value in {"WANDB_MODE": "disabled", "TOKENIZERS_PARALLELISM": "false", "WANDB_DISABLED": "true"}.items():
        os.environ.setdefault(name, value)


def _no_input(*_: object) -> str:
    raise EOFError("the script waits for input(), and nobody answers in a trace")
