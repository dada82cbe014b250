"""``vramcast rules``: the rules of thumb in circulation, listed, or one of them with one's own numbers."""

from typing import Any

import click

from vramcast.asking.links import rate_of
from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.cli.pages.page import Page
from vramcast.cli.structs import print_struct
from vramcast.errors import QuestionError
from vramcast.truth.folklore import Exact, Measured, entries
from vramcast.truth.folklore.calculator import RULES, Line, Reckoning, find_rule, reckon, takes
from vramcast.units import GB, GiB, parse_count, time_text

_EPILOG = """\b
Examples:
  vramcast rules                                     every rule, and the numbers it takes
  vramcast rules 16-bytes --params 7e9
  vramcast rules kv-cache meta-llama/Llama-3.1-8B --tokens 8192 --batch 4
  vramcast rules ttft-tpot Qwen/Qwen2.5-7B-Instruct --gpu A100 --tokens 1024
  vramcast rules activations Qwen/Qwen2.5-7B-Instruct --tokens 4096 --json
"""


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("name", required=False, metavar="[RULE]")
@click.argument("model", required=False, metavar="[MODEL]")
@click.option("--params", metavar="N", help="Parameters: 7e9, 7B. A MODEL brings its own.")
@click.option("--hidden", type=click.IntRange(1), metavar="N", help="Width of the residual stream.")
@click.option("--layers", type=click.IntRange(1), metavar="N", help="Number of layers.")
@click.option("--heads", type=click.IntRange(1), metavar="N", help="Query heads.")
@click.option("--ffn", type=click.IntRange(1), metavar="N", help="Width of the MLP.")
@click.option("--tokens", metavar="N", help="Tokens of a sequence: 2048, 8k.")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="Sequences.")
@click.option(
    "--bytes", "bytes_each", type=click.FloatRange(0, 8, min_open=True), metavar="X", help="Bytes of one element: 4, 2, 1, 0.5."
)
@click.option("--gpu", metavar="NAME", help="A card: its memory, dense bf16 rate and bandwidth.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="Cards or workers.")
@click.option(
    "--peak-tflops", type=click.FloatRange(0, min_open=True), metavar="X", help="Dense rate of one card, instead of --gpu."
)
@click.option("--bandwidth", metavar="RATE", help="Of one card's memory, instead of --gpu: 2039GB/s.")
@click.option(
    "--tflops", type=click.FloatRange(0, min_open=True), metavar="X", help="TFLOP/s of one card, as a program printed it."
)
@click.option(
    "--samples-per-second", type=click.FloatRange(0, min_open=True), metavar="X", help="Sequences per second of all cards."
)
@click.option("--paper", type=click.FloatRange(0, min_open=True), metavar="X", help="A paper's tokens per second of one card.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(name: str | None, model: str | None, as_json: bool, **given: Any) -> int:
    """List the rules people use to size a GPU, or ask one of them.

    RULE is a name or a number of docs/folklore.md (F9). With a MODEL the exact answer is that of the model; without one it is
    that of the page's own example, and says so.
    """
    from vramcast.hardware.cards import find_accelerator

    if name is None:
        if model or any(value is not None for value in given.values()):
            raise QuestionError("which rule? vramcast rules lists them, for example vramcast rules 16-bytes --params 7e9")
        _listed(as_json)
        return 0
    gpu = given.pop("gpu")
    answer = reckon(name, model=model, card=find_accelerator(gpu) if gpu else None, **_numbers(given))
    if as_json:
        print_struct("rule", answer)
    else:
        _page(answer).show()
    return 0


def _numbers(given: dict[str, Any]) -> dict[str, float]:
    """The numbers by the rules' own names; those that were not given are left out."""
    told = {word: value for word, value in given.items() if value is not None}
    found: dict[str, float] = {
        w: told[w] for w in ("hidden", "layers", "heads", "ffn", "batch", "bytes_each", "gpus", "tflops") if w in told
    }
    for word, name in (("params", "parameters"), ("tokens", "tokens")):
        if word in told:
            found[name] = parse_count(told[word], what=f"--{word}")
            if not found[name]:
                raise QuestionError(f"--{word} is 0: expected a number above 0")
    if "peak_tflops" in told:
        found["peak_flops"] = told["peak_tflops"] * 1e12
    if "bandwidth" in told:
        found["bandwidth"] = rate_of(told["bandwidth"])
    if "samples_per_second" in told:
        found["samples_per_s"] = told["samples_per_second"]
    if "paper" in told:
        found["paper_tokens_per_s"] = told["paper"]
    return found


def _listed(as_json: bool) -> None:
    every = {entry.id: entry for entry in entries()}
    if as_json:
        print_struct(
            "rules",
            [{"name": rule.name, "id": rule.entry, "rule": every[rule.entry].rule, "takes": takes(rule)} for rule in RULES],
        )
        return
    page = Page()
    page.line(
        ("Rules of thumb", "title"),
        ("  vramcast rules NAME asks one and shows the numbers it takes; docs/folklore.md has them all", "faint"),
    )
    page.blank()
    page.table(
        [(rule.entry, rule.name, page.fitted(every[rule.entry].rule, used=32)) for rule in RULES], styles=("faint", "number", "")
    )
    quoted = [entry for number, entry in every.items() if number not in {rule.entry for rule in RULES}]
    page.heading("Quoted without a formula (docs/folklore.md)")
    page.table([(entry.id, page.fitted(entry.rule, used=10)) for entry in quoted], styles=("faint", ""))
    page.show()


def _page(answer: Reckoning) -> Page:
    page = Page()
    page.line((answer.rule, "title"), (f"  {answer.id}", "faint"))
    page.heading("The rule")
    if answer.takes:
        page.line("  ", (f"takes {', '.join(answer.takes)}", "faint"))
    for line in answer.said:
        page.line(f"  {line.label}  ", (_shown(line), "number"))
        page.line("    = ", (line.why, "faint"))
    page.heading("Exact, for the page's own example" if answer.of_reference else "Exact")
    page.table([(exact.label, _exact(exact)) for exact in answer.exact], styles=("", "number"), right=frozenset({1}))
    if answer.measured:
        page.heading("Measured")
        for one in answer.measured:
            page.line("  ", _measured(one))
    page.heading("Why they differ")
    page.line("  ", f"{answer.why[0].upper()}{answer.why[1:]}.")
    if answer.of_reference and find_rule(answer.name).exact is not None:
        page.line("  ", ("name a MODEL behind the rule for its own exact answer", "faint"))
    return page


def _shown(line: Line) -> str:
    if line.unit == "B":
        return f"{line.value / GiB:,.2f} GiB  ({line.value / GB:,.2f} GB)"
    if line.unit == "s":
        return time_text(line.value)
    if line.unit == "FLOP":
        return f"{line.value / 1e12:,.2f} TFLOP" if line.value >= 1e12 else f"{line.value / 1e9:,.2f} GFLOP"
    return (
        f"{line.value:,.1f}" if line.value > 2 else f"{line.value:.2%}" if line.label.startswith("share") else f"{line.value:.2f}"
    )


def _exact(exact: Exact) -> str:
    return f"{exact.value:,.2f} {exact.unit}"


def _measured(one: Measured) -> str:
    return f"{one.label}: {one.text} ({one.source})"
