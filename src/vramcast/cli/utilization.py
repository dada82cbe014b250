"""``vramcast utilization``: MFU and HFU from FLOPs, throughput, step time or a training log, with the convention named."""

from typing import Any

import click

from vramcast.asking.utilization import Answer, Asked, is_log, read_log, utilization
from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.cli.run_options import run_options
from vramcast.cli.structs import print_struct
from vramcast.speed.utilization import CONVENTIONS, RECOMPUTATION

_EPILOG = """\b
Examples:
  vramcast utilization --gpu A100 --tflops 100
  vramcast utilization meta-llama/Llama-2-7b-hf --gpu A100-80Gx4 --seq 2048 --samples-per-second 3
  vramcast utilization meta-llama/Llama-3.1-8B --gpu H100x64 --seq 8192 --step-time 1.9 --batch 128
  vramcast utilization meta-llama/Llama-3.1-8B --gpu H100 --seq 8192 --tokens-per-second 7400 --checkpointing full
  vramcast utilization meta-llama/Llama-3.1-8B --gpu H100x8 --seq 8192 --log train.log
  vramcast utilization meta-llama/Llama-3.1-8B --gpu H100x8 --seq 8192 --tokens-per-second 6000 --fsdp 2 --micro-batch 1
  tail -50 train.log | vramcast utilization - --gpu H100x8
"""
_DTYPES = ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32", "int8")
_METHODS = ("full", "lora", "qlora")


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("model", required=False, metavar="[MODEL|LOG|-]")
@click.option("--gpu", required=True, metavar="NAME[xN]", help="The card and how many trained.")
@click.option("--seq", metavar="N", help="Tokens of a sequence, padding included.")
@click.option("--dtype", type=click.Choice(_DTYPES), default="bf16", show_default=True, help="Whose dense rate is 100 %.")
@click.option("--tflops", type=float, metavar="X", help="TFLOP/s of one card, as a program printed it.")
@click.option("--tokens-per-second", type=float, metavar="X", help="Tokens per second of one card.")
@click.option("--samples-per-second", type=float, metavar="X", help="Sequences per second of all cards.")
@click.option("--step-time", type=float, metavar="SECONDS", help="Seconds of an optimizer step; with --batch.")
@click.option("--batch", type=int, metavar="N", help="Sequences of an optimizer step over all cards.")
@click.option("--log", metavar="FILE|-", help="A training log, trainer_state.json or train_results.json.")
@click.option("--method", type=click.Choice(_METHODS), default="full", show_default=True, help="LoRA counts 4N, not 6N.")
@click.option("--checkpointing", type=click.Choice(RECOMPUTATION), default="none", show_default=True, help="For HFU.")
@click.option("--reference", type=float, metavar="X", help="A paper's tokens per second of one such card: as MFU.")
@run_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool, **given: Any) -> int:
    """Say how well GPUs were used: MFU by each convention, HFU, and the share of a paper's speed.

    100% is the card's dense rate, never the sparse one of data sheets. A log of the HF Trainer, torchtitan, Megatron, nanoGPT,
    nanochat, litgpt, DeepSpeed, Lightning, llm-foundry, torchtune or MaxText is read for its steady throughput.
    """
    if given["model"] and not given["log"] and is_log(given["model"]):
        given |= {"model": None, "log": given["model"]}
    given["log"] = read_log(given["log"]) if given["log"] else None
    answer = utilization(Asked(**given))
    if as_json:
        print_struct("utilization", answer)
    else:
        _page(answer).show()
    return 0


def _page(answer: Answer) -> Page:
    page, measured = Page(), answer.measured
    cards = f"{answer.gpus} cards" if answer.gpus > 1 else "one card"
    page.line((answer.model or "Utilisation", "title"), f"  {cards}")
    page.line(f"  100% is {answer.peak.label}")
    if measured.tokens_per_s is not None:
        figure = f"{measured.tokens_per_s:,.0f} tokens/s per card"
        page.line("  ", (figure, "number"), "  ", (page.fitted(measured.steps, used=len(figure) + 4), "faint"))
    elif measured.steps != "as told":
        page.line("  ", (measured.steps, "faint"))
    _table(page, answer)
    if (theirs := answer.reference) is not None:
        text = f"{theirs.share:.1%} of the reference's {theirs.tokens_per_s:,.0f} tokens/s per card, which are"
        page.line("  ", f"{text} {theirs.mfu['causal']:.1%} MFU")
    if (ours := answer.forecast) is not None:
        text = f"{ours.share:.0%} of the forecast for this run: {ours.tokens_per_s:,.0f} tokens/s per card, {ours.mfu:.1%} MFU,"
        page.line("  ", (text, "number"), f" bound by {ours.bound}")
    page.blank()
    for text in answer.limits:
        for line in _wrapped(text, page.width - 3):
            page.line("  ", line)
    return page


def _table(page: Page, answer: Answer) -> None:
    page.blank()
    work, found = answer.work, answer.found
    header = ("counted as", "TFLOP/s", "MFU", *(("GFLOP/token",) if work else ()), "")
    rows: list[tuple[str, ...]] = [header]
    for name, share in found.mfu.items():
        each = (f"{work.model[name] / 1e9:,.2f}",) if work else ()
        why = page.fitted(CONVENTIONS.get(name, "by the convention of who told it"), used=46)
        rows.append((name, f"{found.flops_per_s[name] / 1e12:,.1f}", f"{share:.2%}", *each, why))
    page.table(rows, styles=("title", "", "number"), right=frozenset(range(1, len(header) - 1)))
    if found.hfu is not None and work is not None and work.recomputed:
        page.line("  ", ("HFU ", "title"), (f"{found.hfu:.2%}", "number"), ", causal, with what checkpointing computes again")


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(40, width), subsequent_indent="  ")
