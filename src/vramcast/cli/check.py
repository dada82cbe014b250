"""``vramcast check``: will what these files start fit? A line each and an exit code, for CI and pre-commit hooks."""

import sys
from typing import Any

import click
import msgspec

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand

_EPILOG = """\b
Examples:
  vramcast check docker-compose.yml --gpu L40S
  vramcast check configs/*.yml train/run.toml --gpu H100x8 --strict
  vramcast check deepspeed.json --gpu A100-80Gx8 --model meta-llama/Llama-3.1-8B --json

\b
Exit codes: 0 all fit, 1 one does not, 2 one cannot be read or asked. docs/plan.md has a pre-commit hook and a GitHub Action.
"""
_STYLES = {"fits": "good", "tight": "warn", "partly": "bad", "no": "bad", "unknown": "faint"}


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--gpu", required=True, metavar="NAME[xN]", help="The card it has to fit, and how many.")
@click.option("--model", metavar="MODEL", help="The model of training files that name none.")
@click.option("--strict", is_flag=True, help="A tight fit fails too: at least 95% likely is asked.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**given: Any) -> int:
    """Check that what each FILE starts, a server or a training, fits the card."""
    from vramcast.asking.checking import check_files

    found = list(check_files(given["files"], gpu=given["gpu"], model=given["model"], strict=given["strict"]))
    if given["as_json"]:
        body = {"schema": "vramcast/1", "checked": [_row(one) for one in found]}
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(body), indent=1) + b"\n")
    else:
        _show(found)
    if any(one.forecast is None for one in found):
        return 2
    return 0 if all(one.passes and not one.error for one in found) else 1


def _show(found: list[Any]) -> None:
    from vramcast.cli.pages.page import Page
    from vramcast.planning.verdict import headline

    page = Page()
    widest = min(40, max(len(one.file) for one in found))
    for one in found:
        if one.forecast is None:
            page.line((one.file.ljust(widest), "title"), "  ", ("cannot be asked  ", "bad"), one.error, hang=widest + 2)
            continue
        fit, worst = one.forecast.fit, one.forecast.worst
        needs = f"  {worst.needed_bytes / 2**30:.1f} of {(fit.capacity_bytes or 0) / 2**30:.1f} GiB  "
        page.line((one.file.ljust(widest), "title"), "  ", (fit.verdict.ljust(6), _STYLES[fit.verdict]), needs, headline(fit),
                  f"  {one.error}" if one.error else "", hang=widest + 2)  # fmt: skip
        if not one.passes and one.forecast.advice:
            page.line(" " * widest, "  ", ("try  ", "faint"), one.forecast.advice[0].change, hang=widest + 7)
    page.show()


def _row(one: Any) -> dict[str, Any]:
    if one.forecast is None:
        return {"file": one.file, "error": one.error}
    fit = one.forecast.fit
    return {
        "file": one.file, "kind": one.kind, "model": one.forecast.model.id, "passes": one.passes and not one.error,
        "fit": msgspec.to_builtins(fit), "needed_bytes": one.forecast.worst.needed_bytes,
        "advice": [a.change for a in one.forecast.advice], "error": one.error,
    }  # fmt: skip
