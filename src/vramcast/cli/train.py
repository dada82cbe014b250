"""``vramcast train``: memory of a training step, whether it fits, and how far batch and length can be pushed."""

from functools import partial
from typing import Any

import click

from vramcast.asking.training import TrainingWords, training_question
from vramcast.cli.grouped import CONTEXT, GroupedCommand, group
from vramcast.cli.training_flags import training_flags, words_of

_output = group("Output")

_EPILOG = """\b
Examples:
  vramcast train meta-llama/Llama-3.1-8B --gpu H100 --method lora --rank 16 --seq 4096 --checkpointing full
  vramcast train Qwen/Qwen2.5-7B --gpu A100-80Gx8 --fsdp --micro-batch 2 --seq 8192
  vramcast train meta-llama/Llama-3.1-70B --gpu H100x64 --framework megatron --tp 8 --pp 4 --sp
  vramcast train meta-llama/Llama-3.1-8B --gpu H100x32 --framework torchtitan --replicate 4 --shard 8
  vramcast train meta-llama/Meta-Llama-3-8B --gpu 4090 --method lora --sweep rank=2,4,8 micro_batch=2,4,8,12
  vramcast train --from axolotl.yaml --gpu A100-80Gx8 --micro-batch 4
  vramcast train --layers 32 --hidden 4096 --heads 32 --ffn 11008 --vocab 32000 --framework megatron --gpu A100x8
"""


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@training_flags()
@click.argument("axes", nargs=-1, metavar="[NAME=V,V,...]...")
@_output("--sweep", "sweep", metavar="NAME=V,V,...", help="Answer a grid: rank=2,4,8 micro_batch=2,4,8,12.")
@_output("--plot", "plot", metavar="FILE", help="With --sweep: draw it to FILE (.png, .svg or .html).")
@_output("--explain", metavar="TERM", help="Open one term of the ledger down to its formula.")
@_output("--options", "list_options", is_flag=True, help="List every word (with WORD in MODEL's place: those with it).")
@_output("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**given: Any) -> int:
    """Forecast the memory of a training step of MODEL, moment by moment.

    MODEL is as for `vramcast serve`, or a training file (.yaml, .toml, .sh) that names one; or give a shape (--layers,
    --hidden, --heads ...) instead.
    """
    if given["list_options"]:
        from vramcast.cli.listing import show_training_words

        return show_training_words(given["model"] or "")
    model, axes = _model_and_axes(given)
    ask, words = partial(training_question, model, files=given["files"]), words_of(given)
    if axes:
        from vramcast.asking.grid import axes_of
        from vramcast.cli.sweep import show_sweep

        grid = axes_of(axes, TrainingWords.__annotations__)
        title = f"{model or 'the model of the files'}  {words.get('method') or ''}".strip()
        return show_sweep(ask, {**words}, grid, title=title, as_json=given["as_json"], plot=given["plot"])
    if given["plot"]:
        raise click.UsageError("--plot draws a grid: add --sweep, for example --sweep micro_batch=1,2,4,8")
    from vramcast.asking.asked import answer_training
    from vramcast.planning.verdict import exit_code

    forecast = answer_training(ask(**words))
    if given["as_json"]:
        from vramcast.cli.output import print_json

        print_json(forecast)
    elif given["explain"]:
        from vramcast.cli.ledger_page import term_page

        term_page(forecast, given["explain"]).show()
    else:
        from vramcast.cli.drawing import training_page

        training_page(forecast).show()
    return exit_code(forecast.fit)


def _model_and_axes(given: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """MODEL and the axes of the grid, of which the first may stand where MODEL does when files or a shape tell the model."""
    if given["sweep"] is None:
        if given["axes"]:
            raise click.UsageError(f"unexpected argument {given['axes'][0]!r}: a grid starts with --sweep")
        return given["model"], ()
    model = given["model"]
    if model and "=" in model:
        return None, (given["sweep"], model, *given["axes"])
    return model, (given["sweep"], *given["axes"])
