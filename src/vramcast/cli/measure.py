"""``vramcast measure``: the real step on this machine's device, beside the forecast; sweeps that survive a kill; device facts."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from vramcast.asking.asked import IMAGES, LayoutWords
from vramcast.asking.training import MOMENTS
from vramcast.cli.help.grouped import CONTEXT, GroupedCommand, group
from vramcast.cli.train import training_flags, words_of
from vramcast.errors import QuestionError

_EPILOG = """\b
Examples:
  vramcast measure meta-llama/Llama-3.2-1B --method lora --rank 16 --seq 2048
  vramcast measure meta-llama/Llama-3.2-1B --seq 4096 --generate 64
  vramcast measure Qwen/Qwen2.5-0.5B --method lora --seq 512 --sweep rank=2,4,8 micro_batch=2,4,8,12 --store runs.sqlite
  vramcast measure Qwen/Qwen2.5-7B --fsdp --gpus 8
  vramcast measure -- python train.py --config my.yaml
  vramcast measure -- torchrun --nproc-per-node 8 train.py
  vramcast measure --device-facts
"""
_NOT_MEASURED = frozenset({"loss", "gpu", "zero", "offload", *LayoutWords.__annotations__, *MOMENTS, *IMAGES})
_COMMAND = f"{__name__}.command"
_run, _output = group("The run"), group("Output")


class MeasureCommand(GroupedCommand):
    """Takes the flags of a step on one card or on copies, and its own; after -- a command as typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


@click.command(cls=MeasureCommand, epilog=_EPILOG, context_settings=CONTEXT)
@training_flags(without=_NOT_MEASURED)
@click.argument("axes", nargs=-1, metavar="[NAME=V,V,...]...")
@_run("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True, help="Where the step runs.")
@_run("--gpus", type=click.IntRange(1), default=1, show_default=True, help="Ranks, one per card: DDP, or FSDP2 with --fsdp.")
@_run("--generate", type=click.IntRange(1), metavar="N", help="A prompt of --seq tokens and N after it, not a step.")
@_run(
    "--warmup",
    default=2,
    show_default=True,
    type=click.IntRange(1),
    help="Steps before timing; memory peaks are read after them.",
)
@_run("--repeats", default=3, show_default=True, type=click.IntRange(1), help="Timed steps.")
@_run("--store", type=click.Path(path_type=Path), metavar="FILE", help="Keep finished cases in FILE and skip those it holds.")
@_run("--export", type=click.Path(path_type=Path), metavar="FILE", help="Write every case of --store as JSON lines for evaluate.")
@_run("--snapshot", type=click.Path(path_type=Path), metavar="FILE", help="Record the allocator's history into FILE.")
@_run("--kernels", metavar="NAME,...", help="SDPA's kernels in this order only: flash, efficient, cudnn, math.")
@_run("--trace", is_flag=True, help="Trace the same step too, without the device, and show it beside.")
@_run("--cluster", is_flag=True, help="Spread the cases over a Ray cluster's GPUs.")
@_run("--device-facts", is_flag=True, help="Read what the catalogue needs from this card and print a row to contribute.")
@_run("--timeout", type=float, default=1800, show_default=True, metavar="SECONDS", help="Stop one case after that long.")
@_output("--sweep", "sweep", metavar="NAME=V,V,...", help="Measure a grid: rank=2,4,8 micro_batch=2,4,8,12.")
@_output("--plot", "plot", metavar="FILE", help="With --sweep: draw it to FILE (.png, .svg or .html).")
@_output("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> int:
    """Measure a training step of MODEL with random weights, or your own command after --, beside its forecast.

    Needs the [torch] extra and, unless --device cpu, a CUDA device. Out of memory is a result, not a failure.
    """
    if given["device_facts"]:
        return _show_device_facts(as_json=given["as_json"])
    if _COMMAND in ctx.meta:
        return _command(ctx.meta[_COMMAND], given)
    from vramcast.measuring.run import need_device

    if given["store"] and given["export"] and not (given["model"] or given["files"]):
        from vramcast.measuring.store import Store

        Store(given["store"]).export(given["export"])
        return 0
    if given["sweep"] is None and given["axes"]:
        raise click.UsageError(f"unexpected argument {given['axes'][0]!r}: a grid starts with --sweep, your own command with --")
    if not given["cluster"]:
        need_device(given["device"])
    return _sweep(given) if given["sweep"] is not None or given["cluster"] else _one(given)


def _command(argv: tuple[str, ...], given: dict[str, Any]) -> int:
    from vramcast.measuring.command import measure_command

    if given["model"]:
        raise QuestionError(f"either MODEL ({given['model'][:60]!r}) or a command after --, not both")
    found = measure_command(argv, timeout_s=given["timeout"])
    return _show(found, None, None, name=" ".join(argv), as_json=given["as_json"])


def _one(given: dict[str, Any]) -> int:
    from vramcast.measuring.run import measure
    from vramcast.planning.measuring import forecast_beside, point_of, trace_beside

    question, model, card = _asked(given)
    point = point_of(question, model, card=card, how=_how(given))
    found = measure(point.request, timeout_s=given["timeout"])
    if given["store"]:
        from vramcast.measuring.campaign import case_of, identity
        from vramcast.measuring.request import request_key
        from vramcast.measuring.store import Store

        store = Store(given["store"])
        store.put(request_key(point.request, *identity(given["device"])), case_of(point, found))
        if given["export"]:
            store.export(given["export"])
    forecast = forecast_beside(question, model, card)
    trace = trace_beside(point.request, card) if given["trace"] else None
    return _show(found, forecast, trace, name=point.name, as_json=given["as_json"])


def _sweep(given: dict[str, Any]) -> int:
    from vramcast.asking.grid import ask_point, axes_of
    from vramcast.asking.training import TrainingWords, training_question
    from vramcast.cli.measured_sweep import measure_sweep
    from vramcast.planning.measuring import on_cards

    axes = axes_of([*filter(None, [given["sweep"]]), *given["axes"]], TrainingWords.__annotations__)
    ask, words = partial(training_question, given["model"], files=given["files"]), {**words_of(given)}
    _, model, card = _asked({**given, "generate": None})

    def asked_at(point: dict[str, Any]) -> Any:
        return on_cards(ask_point(ask, words, point).question, card, given["gpus"])

    return measure_sweep(asked_at, axes, model=model, card=card, given=given, how=_how(given))


def _asked(given: dict[str, Any]) -> tuple[Any, Any, Any]:
    from vramcast.asking.training import training_question
    from vramcast.models.reading import read_model
    from vramcast.planning.measuring import on_cards, serving_of

    asked = training_question(given["model"], files=given["files"], **words_of(given))
    card = _local_card(given["device"])
    question = on_cards(asked.question, card, given["gpus"])
    wanted = serving_of(question, given["generate"]) if given["generate"] else question
    return wanted, asked.model or read_model(question.model), card


def _local_card(device: str) -> Any:
    if device != "cuda":
        return None
    from vramcast.errors import VramcastError
    from vramcast.hardware.cards import local_cards

    try:
        return local_cards()[0].card
    except VramcastError:
        return None


def _how(given: dict[str, Any]) -> Any:
    from vramcast.planning.measuring import RunSettings

    snapshot = str(given["snapshot"].absolute()) if given["snapshot"] else ""
    if snapshot and given["device"] != "cuda":
        raise QuestionError("--snapshot records CUDA's allocator: it needs --device cuda")
    if given["export"] and not given["store"]:
        raise QuestionError("--export writes the cases of a store: name it with --store FILE")
    kernels = tuple(given["kernels"].split(",")) if given["kernels"] else ()
    return RunSettings(
        device=given["device"], warmup=given["warmup"], repeats=given["repeats"], snapshot=snapshot, kernels=kernels
    )


def _show_device_facts(*, as_json: bool) -> int:
    from vramcast.measuring.contribution import as_row
    from vramcast.measuring.device_facts import device_facts

    facts = device_facts()
    if as_json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    else:
        sys.stdout.write(as_row(facts))
    return 0


def _show(found: Any, forecast: Any, trace: Any, *, name: str, as_json: bool) -> int:
    import msgspec

    from vramcast.cli.pages.measured import measured_page

    if as_json:
        body = {"schema": "vramcast/1", "measured": msgspec.to_builtins(found), "forecast": forecast, "trace": trace}
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")
    else:
        measured_page(found, forecast, trace, name=name).show()
    return {"ran": 0, "oom": 1}.get(found.outcome, 3)
