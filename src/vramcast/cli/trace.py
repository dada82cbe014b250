"""``vramcast trace``: the real training step, or a user's own script, on fake tensors: no GPU, every allocation recorded."""

from pathlib import Path
from typing import Any

import click

from vramcast.asking.launchers import read_launch
from vramcast.asking.training import MOMENTS
from vramcast.cli.help.grouped import CONTEXT, GroupedCommand, group
from vramcast.cli.train import training_flags, words_of
from vramcast.errors import QuestionError, UntraceableError
from vramcast.tracing.distribution import SCHEDULES

_EPILOG = """\b
Examples:
  vramcast trace meta-llama/Llama-3.1-8B --gpu H100 --seq 4096
  vramcast trace ./my-model --method lora --rank 16 --checkpointing full --capacity 24GiB
  vramcast trace Qwen/Qwen2.5-7B --seq 4096 --gpu A100-80G --limits
  vramcast trace Qwen/Qwen2.5-7B --seq 4096 --remedies --timeline step.png
  vramcast trace Qwen/Qwen2.5-7B --seq 8192 --generate 4
  vramcast trace meta-llama/Llama-3.1-70B --gpu H100x64 --framework torchtitan --tp 8 --pp 4 --accumulate 8
  vramcast trace --gpu A100x8 -- torchrun --nproc-per-node 8 train.py --config my.yaml
"""
_NOT_TRACED = frozenset({"loss", *MOMENTS})
_run, _output = group("The trace"), group("Output")


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@training_flags(without=_NOT_TRACED)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- python SCRIPT ...]")
@_run("--generate", type=click.IntRange(1, 1000), metavar="N", help="Trace a prompt of --seq tokens and N tokens after it.")
@_run("--static-graph", is_flag=True, help="DDP is told that every step uses the same parameters.")
@_run("--schedule", type=click.Choice(SCHEDULES), help="Order of a pipeline's micro-batches; interleaved with --vpp.")
@_run("--capacity", metavar="SIZE", help="Would it fit in that much memory, the allocator's retries included?")
@_run("--alloc-conf", metavar="TEXT", default="", help="PYTORCH_ALLOC_CONF of the run; else as its framework sets it.")
@_run("--backend", type=click.Choice(["auto", "cuda", "meta"]), default="auto", show_default=True, help="Fake tensors.")
@_run("--only-layers", type=int, metavar="N", help="Build only the first N layers.")
@_run("--whole", is_flag=True, help="Trace every layer, even where a few tell the whole.")
@_output("--limits", is_flag=True, help="Find the largest micro-batch and the longest sequence from a few traces.")
@_output("--against", metavar="FILE", help="Set the trace beside an earlier one's JSON (vramcast trace ... --json > FILE).")
@_output("--remedies", is_flag=True, help="Trace the step again with each remedy: what would it save?")
@_output(
    "--timeline", metavar="FILE", help="Write .png, .svg or .html (a picture), .json (Chrome trace) or .pickle (for memory_viz)."
)
@_run(
    "--steps",
    type=click.IntRange(1, 100_000),
    default=2,
    show_default=True,
    metavar="N",
    help="Of a script: optimizer steps to trace.",
)
@_run("--write-through", is_flag=True, help="Of a script: let it write its files for real, not into a scratch folder.")
@_run("--life", is_flag=True, help="Of a script: the peak of each stage, saving and evaluation after its steps too.")
@_run("--timeout", type=float, default=600, show_default=True, metavar="SECONDS", help="Stop the trace after that long.")
@_run("--keep", is_flag=True, help="Keep the libraries loaded for this terminal's next traces, for ten minutes.")
@_output("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**given: Any) -> int:
    """Trace a training step of MODEL, or your own script after --, without a GPU: the peak, what stands at it, what would help.

    The step is the real code of PyTorch, transformers, PEFT and bitsandbytes on tensors without memory; every allocation is
    replayed through a model of PyTorch's caching allocator. Needs the [torch] extra.
    """
    from vramcast.planning.verdict import exit_code
    from vramcast.tracing.allocator.settings import parse_alloc_conf
    from vramcast.tracing.run import Tracer

    settings = parse_alloc_conf(given["alloc_conf"]) if given["alloc_conf"] else None
    capacity = _capacity(given["capacity"])
    _check(given)
    kept = _kept(given["against"])
    try:
        with (
            _progress(f"tracing {given['model'] or 'the model'}"),
            Tracer(timeout_s=given["timeout"], keep=given["keep"]) as tracer,
        ):
            traced = _traced(given, settings, tracer)
            limits = _limits(traced, tracer, given["gpu"], capacity) if given["limits"] else None
            remedies = _remedies(traced, tracer) if given["remedies"] else ()
    except UntraceableError as lack:
        from vramcast.cli.untraced import forecast_instead

        return forecast_instead(given, lack)
    if given["timeline"]:
        _write_timeline(traced, given["timeline"], capacity)
    findings = _findings(traced, capacity, kept, limits, remedies)
    if given["as_json"]:
        _print_json(traced, findings)
    else:
        from vramcast.cli.pages.tracing import tracing_page

        tracing_page(traced, findings).show()
    if traced.result.error or traced.answer.fit.error:
        return 3  # nothing tells what the whole program needs
    limited = findings.under_capacity
    return int(bool(exit_code(traced.answer.fit)) or (limited is not None and not limited.fits))


def _check(given: dict[str, Any]) -> None:
    """Refuse before the trace what would be refused after it."""
    if given["program"]:
        _check_script(given)
        if given["keep"]:
            raise QuestionError("--keep is of named models: a script's own imports are its own")
    elif given["life"] or given["write_through"]:
        raise QuestionError("--life and --write-through are of a script: write vramcast trace -- python train.py ...")
    if given["limits"] and not (given["gpu"] or given["capacity"]):
        raise QuestionError("limits of which card? name it with --gpu, or give --capacity 24GiB")
    if given["timeline"]:
        from vramcast.charts.write import ENDINGS, altair
        from vramcast.tracing.reports.timeline import check_timeline

        check_timeline(Path(given["timeline"]), pictures=ENDINGS)
        if Path(given["timeline"]).suffix.lower() in ENDINGS:
            altair()


_OF_A_MODEL = (
    "limits", "remedies", "whole", "compile", "only_layers", "seq", "micro_batch", "method", "optimizer", "framework", "generate",
    "backend", "schedule", "static_graph", "tp", "pp", "cp", "ep", "zero", "fsdp", "checkpointing", "rank",
)  # fmt: skip


def _check_script(given: dict[str, Any]) -> None:
    """Refuse flags that a script makes meaningless: it decides its own batch, length and recipe."""
    from click import get_current_context
    from click.core import ParameterSource

    typed = get_current_context().get_parameter_source
    for name in _OF_A_MODEL:
        if name in given and typed(name) is ParameterSource.COMMANDLINE:
            raise QuestionError(
                f"--{name.replace('_', '-')} says nothing to a script, which decides that itself: change the script, or trace a "
                "named model"
            )


def _write_timeline(traced: Any, file: str, capacity: int) -> None:
    """The run as a picture, or in the form of another viewer."""
    from vramcast.charts.write import ENDINGS

    log, settings = traced.result.log, traced.reading.settings
    if Path(file).suffix.lower() not in ENDINGS:
        from vramcast.tracing.reports.timeline import write_timeline

        write_timeline(log, Path(file), settings)
        return
    from vramcast.charts.timeline import draw_timeline
    from vramcast.tracing.reports.history import history

    workload = traced.answer.workload
    title = _title(workload)
    held = capacity or traced.answer.fit.capacity_bytes or 0
    room = max(0, held - (traced.answer.worst.device_bytes - traced.answer.worst.reserved_bytes))
    draw_timeline(history(log, settings, serving="engine" in workload), file, title=title, capacity_bytes=room)


def _title(workload: dict[str, Any]) -> str:
    if "script" in workload:
        return " ".join(workload["script"])
    if "engine" in workload:
        return f"{workload['model']}: {workload['concurrency']} x {workload['context']:,} tokens and {workload['output']} more"
    return f"{workload['model']}: {workload['method']}, micro-batch {workload['micro_batch']} x {workload['seq']:,} tokens"


def _traced(given: dict[str, Any], settings: Any, tracer: Any) -> Any:
    """What was traced: a script, a prompt with its answer, or a training step."""
    from vramcast.asking.training import training_question
    from vramcast.planning.tracing.answer import trace_training
    from vramcast.planning.tracing.layout import LayoutOptions

    if given["program"]:
        return _program_traced(given, settings)
    asked = training_question(given["model"], files=given["files"], **words_of(given))
    if given["generate"]:
        return _generation_traced(given, asked, settings, tracer)
    return trace_training(
        asked.question,
        model=asked.model,
        backend=given["backend"],
        layers=given["only_layers"],
        whole=given["whole"],
        layout=LayoutOptions(static_graph=given["static_graph"], schedule=given["schedule"] or ""),
        settings=settings,
        tracer=tracer,
    )


def _program_traced(given: dict[str, Any], settings: Any) -> Any:
    """The user's own script, as its launcher starts it."""
    from vramcast.asking.asked import named_cards
    from vramcast.planning.tracing.answer import trace_program

    launch, cards = read_launch((given["model"], *given["program"])), named_cards(given["gpu"])
    return trace_program(
        launch.argv,
        gpu=cards.gpu,
        gpus=cards.count,
        processes=launch.processes,
        environment=launch.environment,
        settings=settings,
        steps=given["steps"],
        write_through=given["write_through"],
        life=given["life"],
        timeout_s=given["timeout"],
    )


def _generation_traced(given: dict[str, Any], asked: Any, settings: Any, tracer: Any) -> Any:
    """A prompt of --seq tokens and the tokens after it, in plain transformers."""
    from vramcast.planning.tracing.generation import trace_generation
    from vramcast.workload import Serving

    question = asked.question
    serving = Serving(
        model=question.model, gpu=question.gpu, prompt=question.seq, output=given["generate"], concurrency=question.micro_batch
    )
    return trace_generation(
        serving, model=asked.model, backend=given["backend"], whole=given["whole"], settings=settings, tracer=tracer
    )


def _findings(traced: Any, capacity: int, kept: Any, limits: Any, remedies: Any) -> Any:
    """What the log tells beside its peak: in so much memory, against an earlier trace, over the life of a job."""
    from vramcast.cli.pages.tracing import Findings
    from vramcast.hardware.runtime import context_bytes
    from vramcast.planning.tracing.against import changes
    from vramcast.tracing.allocator.replay import replay, smallest_card_bytes
    from vramcast.tracing.reports.life import life

    log, settings = traced.result.log, traced.reading.settings
    return Findings(
        under_capacity=replay(log, settings, capacity_bytes=max(0, capacity - context_bytes(None))) if capacity else None,
        smallest_capacity_bytes=smallest_card_bytes(log, settings),
        limits=limits,
        remedies=remedies,
        against=changes(kept, traced) if kept else (),
        life=life(log, settings),
    )


def _limits(traced: Any, tracer: Any, gpu: str | None, capacity: int) -> Any:
    """The limits on the card, or in --capacity."""
    from vramcast.hardware.cards import find_accelerator
    from vramcast.hardware.runtime import context_bytes
    from vramcast.planning.tracing.limits import limits_of

    card = find_accelerator(traced.answer.workload["gpu"]) if gpu else None
    held = capacity or (card.visible_bytes if card else 0)
    return limits_of(traced, tracer, room_bytes=held - context_bytes(card))


def _remedies(traced: Any, tracer: Any) -> Any:
    from vramcast.planning.tracing.remedies import remedies_of

    return remedies_of(traced, tracer)


def _kept(file: str | None) -> Any:
    from vramcast.planning.tracing.against import read_earlier

    return read_earlier(file) if file else None


def _capacity(text: str | None) -> int:
    from vramcast.units import parse_bytes

    return parse_bytes(text, what="--capacity") if text else 0


def _print_json(traced: Any, findings: Any) -> None:
    import sys

    import msgspec

    from vramcast.cli.output import as_contract

    reading, result = traced.reading, traced.result
    trace = {
        **{name: getattr(result, name) for name in result.__struct_fields__ if name != "log"},
        "usage": reading.usage,
        "expandable_segments": reading.expandable,
        "expandable_segments_save_bytes": reading.expandable_saves_bytes,
        "top": reading.top,
        "by_module": [{"module": name, "bytes": size} for name, size in reading.by_module],
        "beside_forecast": [{"name": n, "traced_bytes": t, "forecast_bytes": f} for n, t, f in traced.beside],
        **msgspec.structs.asdict(findings),
    }
    answer, limits = as_contract(traced.answer), findings.limits
    if limits is not None:
        answer["limits"] |= {"max_context": limits.max_seq, "max_micro_batch": limits.max_micro_batch}
    encoded = msgspec.json.encode({**answer, "trace": trace})
    sys.stdout.buffer.write(msgspec.json.format(encoded, indent=1) + b"\n")


def _progress(what: str) -> Any:
    """A spinner while the other process works, only where a person is watching."""
    import sys
    from contextlib import nullcontext

    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"{what} ...")
