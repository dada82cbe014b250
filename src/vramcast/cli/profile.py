"""``vramcast profile``: what a profiler trace says: where the GPU's time went, on which kernels, and what limits."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.run_options import RUN_NAMES, run_options
from vramcast.cli.structs import print_struct
from vramcast.errors import MissingError, QuestionError

_EPILOG = """\b
Examples:
  vramcast profile trace.json.gz
  vramcast profile trace.json.gz --gpu H100 --roofline roofline.png --timeline streams.png
  vramcast profile traces/ --bars ranks.png
  vramcast profile after.json.gz --against before.json.gz
  vramcast profile report.sqlite --json
  vramcast profile rank0.json.gz --model meta-llama/Llama-3.1-8B --gpu H100x8 --seq 8192 --fsdp 2 --micro-batch 1
"""


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("what", metavar="FILE|FOLDER|-")
@click.option(
    "--gpu", metavar="NAME", help="The card whose rates kernels are held against (default: the one named in the trace)."
)
@click.option("--against", metavar="FILE", help="A trace from before a change: what became faster, what slower.")
@click.option("--top", type=click.IntRange(1, 40), default=10, show_default=True, help="Rows of the tables.")
@click.option("--timeline", metavar="FILE", help="Write streams over time as .png, .svg or .html.")
@click.option("--bars", metavar="FILE", help="Write the parts of the time by step (of a folder: by rank) as .png, .svg or .html.")
@click.option("--roofline", metavar="FILE", help="Write matmuls and attentions under the card's roofs as .png, .svg or .html.")
@click.option("--cluster", is_flag=True, help="Read a folder's files over a Ray cluster (RAY_ADDRESS) that sees them.")
@click.option("--model", metavar="MODEL", help="Whose training step was traced: its forecast is set beside the trace's steps.")
@click.option("--seq", metavar="N", help="Tokens of a sequence of that run.")
@click.option("--method", type=click.Choice(["full", "lora", "qlora"]), help="How it trained.")
@click.option("--checkpointing", type=click.Choice(["none", "selective", "full"]), help="What it computed again.")
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(what: str, **given: Any) -> int:
    """Say where a GPU's time went, from a trace of PyTorch's profiler (.json, .json.gz), Nsight Systems (.sqlite) or rocprof.

    A folder holds one trace per rank: stragglers are found between them. Memory stays bounded for files of any size. Needs the
    [profile] extra. Exit code 2 when a trace is damaged; what was read before the damage is answered.
    """
    _check(given)
    if what != "-" and Path(what).expanduser().is_dir():
        return _folder(Path(what).expanduser(), given)
    trace, report, card = _one(what, given["gpu"])
    _pictures(trace, report, card, given)
    if given["against"]:
        return _compare(report, given)
    beside = _beside(report, given)
    if given["as_json"]:
        print_struct("profile", report, **({"beside": beside} if beside else {}))
    else:
        from vramcast.cli.pages.profile import beside_page, profile_page

        profile_page(report, top=given["top"], beside=beside_page(beside) if beside else None).show()
    return _damaged(report)


def _beside(report: Any, given: dict[str, Any]) -> Any:
    """The forecast of the traced run, None when no model is named."""
    names = ("method", "checkpointing", *RUN_NAMES)
    words = {name: given[name] for name in names if given[name] is not None}
    if not given["model"]:
        if words or given["seq"]:
            raise QuestionError("name the --model whose step was traced: its forecast is set beside the trace")
        return None
    from vramcast.asking.trace_comparison import compare_with_trace

    return compare_with_trace(report, model=given["model"], gpu=given["gpu"], seq=given["seq"], words=words)


def _check(given: dict[str, Any]) -> None:
    """Refuse before the work what would be refused after it."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        raise MissingError.extra("profile", "reading traces") from None
    wanted = [given[name] for name in ("timeline", "bars", "roofline") if given[name]]
    if wanted:
        from vramcast.charts.write import altair, check_file

        altair()
        for file in wanted:
            check_file(file)


def _one(what: str, gpu: str | None) -> tuple[Any, Any, Any]:
    """The trace, its report and the card of one file. Raises QuestionError when no GPU worked in it."""
    from vramcast.asking.profiling import report_on

    trace = _read(what)
    return trace, *report_on(trace, file=what, gpu=gpu)


def _read(what: str) -> Any:
    from vramcast.profiling.files import read_stream, read_trace

    try:
        if what == "-":
            import io

            source = io.BufferedReader(sys.stdin.buffer, 2**16)  # type: ignore[type-var]
            return read_stream(source, source.peek(16)[:16])
        path = Path(what).expanduser()
        size = path.stat().st_size if path.is_file() else None
        with _progress(f"reading {path.name}", size) as advance:
            return read_trace(path, progress=advance)
    except QuestionError as error:
        raise QuestionError(f"{what}: {error}") from None


def _pictures(trace: Any, report: Any, card: Any, given: dict[str, Any]) -> None:
    if not any(given[name] for name in ("timeline", "bars", "roofline")):
        return
    from vramcast.charts.profile import draw_parts, draw_roofline, draw_streams

    if given["timeline"]:
        draw_streams(trace, report, given["timeline"])
    if given["bars"]:
        draw_parts(report, given["bars"])
    if given["roofline"]:
        draw_roofline(report, card, given["roofline"])


def _compare(after: Any, given: dict[str, Any]) -> int:
    from vramcast.profiling.against import compare

    _, before, _ = _one(given["against"], given["gpu"])
    found = compare(before, after)
    if given["as_json"]:
        print_struct("profile comparison", found)
    else:
        from vramcast.cli.pages.profile import comparison_page

        comparison_page(found).show()
    return max(_damaged(before), _damaged(after))


def _folder(folder: Path, given: dict[str, Any]) -> int:
    from vramcast.hardware.cards import least_card
    from vramcast.profiling.files import trace_files
    from vramcast.profiling.ranks import read_ranks

    if given["timeline"] or given["roofline"] or given["against"]:
        raise QuestionError("--timeline, --roofline and --against are about one trace: name a file of the folder")
    files = trace_files(folder)
    card = least_card(given["gpu"]) if given["gpu"] else None
    with _progress(f"reading {len(files)} traces", len(files)) as advance:
        ranks = read_ranks(files, folder=str(folder), card=card, cluster=given["cluster"], done=lambda _: advance(1))
    if given["bars"]:
        from vramcast.charts.profile import draw_parts

        draw_parts(ranks, given["bars"])
    if given["as_json"]:
        print_struct("profile of ranks", ranks)
    else:
        from vramcast.cli.pages.profile import profile_page, ranks_page

        ranks_page(ranks).show()
        click.echo()
        profile_page(ranks.typical, top=given["top"]).show()
    return 2 if any(row.damage for row in ranks.ranks) else 0


def _damaged(report: Any) -> int:
    """Exit code 2 with one line when the file was read in part."""
    if not report.reading.damage:
        return 0
    read = f"{report.reading.events:,} events of {report.reading.bytes / 1e6:,.1f} MB"
    click.echo(f"vramcast: {report.file}: {report.reading.damage}; answered from the {read} before that", err=True)
    return 2


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Any]:
    """A bar on standard error, where a person watches, for what takes longer than a second."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)
