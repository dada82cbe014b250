"""``vramcast serve``: memory of serving a model, whether it fits, and how far it can be pushed."""

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click

from vramcast.asking.serving import ServingWords, serving_question
from vramcast.cli.help.grouped import CONTEXT, GroupedCommand, group

_load, _types, _card, _output = group("Load"), group("Types"), group("Card and layout"), group("Output")

_EPILOG = """\b
Examples:
  vramcast serve Qwen/Qwen2.5-7B-Instruct --gpu "RTX 4090"
  vramcast serve meta-llama/Llama-3.3-70B-Instruct --gpu H100x4 --context 128K --concurrency 5
  vramcast serve openai/gpt-oss-20b --engine sglang --gpu L40S --json
  vramcast serve Qwen/Qwen3-30B-A3B --engine llama.cpp --quant Q4_K_M --gpu 3090 -ngl 99 -c 32768
  vramcast serve ./config.json                       (no card: which cards hold it)
  vramcast serve Qwen/Qwen3-32B-AWQ --gpu 4090 --best context
  vramcast serve --from compose.yml --from .env --gpu 4090
  vramcast serve --from deployment.yaml --only decode --json
  kubectl get deployment NAME -o yaml | vramcast serve --from - --gpu L40S

\b
The engine's own flags are accepted as its users type them (--gpu-memory-utilization 0.95, --max-num-seqs 64,
--mem-fraction-static 0.8, -ngl 40 ...); --options lists them.
"""


_AXIS = re.compile(r"[a-z_]+=[^=]+$")


@click.command(
    cls=GroupedCommand,
    epilog=_EPILOG,
    context_settings={**CONTEXT, "ignore_unknown_options": True, "allow_interspersed_args": True},
)
@click.argument("model", required=False)
@click.argument("engine_flags", nargs=-1, type=click.UNPROCESSED, metavar="[ENGINE FLAGS]...")
@_load(
    "--from",
    "files",
    multiple=True,
    metavar="FILE|-",
    help="Start from what you hold: script, compose, Kubernetes, Helm, .py, .env.",
)
@_load("--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable that the file leaves open.")
@_load("--only", metavar="NAME", help="Which engine of a file that starts several: its name or number.")
@_load("--context", metavar="TOKENS", help="Longest sequence to allow; auto: the longest that fits; else the engine's default.")
@_load(
    "--concurrency",
    metavar="N",
    help="Requests at once on all cards, each of --context; left out: of --prompt and --output.  [default: 1]",
)
@_load("--prompt", metavar="TOKENS", help="Typical prompt length: adds the speed of the server to the answer.")
@_load("--output", metavar="TOKENS", help="Typical output length: adds the speed of the server to the answer.")
@_load("--rate", metavar="N", help="Requests a second, arriving at random, instead of --concurrency clients.")
@_load("--workload", metavar="FILE", help="Requests to replay: lines with arrival_s, prompt, output (JSON or CSV).")
@_load("--cached", metavar="SHARE", help="Share of each prompt that the prefix cache holds.  [default: 0]")
@_load("--length-spread", metavar="SHARE", help="How far clients' lengths vary to either side; 0: all alike.  [default: 0.1]")
@_load("--acceptance", metavar="SHARE", help="Share of drafted tokens that are accepted (with --num-speculative-tokens).")
@_load("--images", metavar="N", help="Images in each prompt beside its text: their tokens and the tower's time count.")
@_load("--image-patches", metavar="N", help="Patches of one image, where the model takes any size.")
@_load("--slo", metavar="TIMES", help="What a request must meet, for example ttft=1s,tpot=50ms: goodput and the largest rate.")
@_types("--dtype", help="Type the weights are loaded in; the checkpoint's when absent.")
@_types("--quant", help="Weight scheme: fp8, awq, gptq, nf4, Q4_K_M ...; the checkpoint's when absent.")
@_types("--kv-dtype", help="Type of the KV cache: auto, fp8, q8_0 ...")
@_card("--gpu", metavar="NAME[xN]", help="The card, and how many: 4090, A100-80Gx2, local.")
@_card("--engine", show_default="vllm", metavar="NAME[==VERSION]", help="Serving engine and its version.")
@_card("--tp", metavar="N", show_default="the number of cards", help="Tensor parallel ranks.")
@_card("--pp", metavar="N", show_default="1", help="Pipeline stages.")
@_card("--dp", metavar="N", show_default="1", help="Data parallel replicas; vLLM cuts experts over them too.")
@_card("--ep", metavar="N", show_default="1", help="Expert parallel ranks: vLLM deals over tp x dp, others within tp.")
@_card("--disagg", metavar="xPyD", help="Prefill and decode apart: workers of each (2P1D); --tp is a decode worker's.")
@_card("--prefill-tp", metavar="N", show_default="--tp", help="With --disagg: tensor parallel ranks of a prefill worker.")
@_card("--transfer-link", metavar="NAME", help="With --disagg: the link that caches move over, by card: ib400, nvlink4, 50GB/s.")
@_card("--link", metavar="NAME", help="Link between the cards where it is not the card's own: pcie4, nvlink4, 64GB/s.")
@_card("--host-bandwidth", metavar="RATE", help="Memory bandwidth of the host, for layers that run on the CPU: 90GB/s.")
@_card("--profile", metavar="NAME", help="The machine's own speed, as vramcast calibrate learned it.")
@_output(
    "--best",
    "best",
    type=click.Choice(("context", "users")),
    help="The most the cards give, setting by setting, with the line to type.",
)
@_output("--curve", is_flag=True, help="Draw throughput against latency for more and more users.")
@_output("--explain", metavar="TERM", help="Open one term of the ledger down to its formula.")
@_output("--sweep", "sweep", multiple=True, metavar="NAME=V,V,...", help="Answer a grid: context=4096,8192 concurrency=1,4,16.")
@_output("--plot", "plot", metavar="FILE", help="Draw the answer, or with --sweep the grid, to FILE (.png, .svg or .html).")
@_output("--options", "list_options", is_flag=True, help="List the engine's flags and leave.")
@_output("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**given: Any) -> int:
    """Forecast the memory of serving MODEL.

    MODEL is a hub id, a folder, a config.json (- reads one from standard input), a safetensors index or file, or a GGUF file; or
    what starts an engine, which --from takes too: a pasted line, a script, a compose file, a manifest, Helm values.
    """
    if given["list_options"]:
        from vramcast.cli.pages.listing import show_engine_options

        return show_engine_options(given["engine"] or "vllm")
    from vramcast.asking.asked import answer_serving
    from vramcast.planning.verdict import exit_code

    given["engine_flags"], given["model"] = _flags_and_model(given)
    axes = [*given["sweep"], *(word for word in given["engine_flags"] if _AXIS.match(word))] if given["sweep"] else []
    flags = [word for word in given["engine_flags"] if word not in axes]
    if axes:
        return _sweep(given, flags, axes)
    asked = _ask(given, flags)(**words_of(given))
    if given["best"]:
        from vramcast.cli.best import show_best

        return show_best(asked, given["best"], as_json=given["as_json"])
    if given["curve"]:
        from vramcast.cli.curve import show_curve

        return show_curve(asked, as_json=given["as_json"])
    forecast = answer_serving(asked)
    if given["plot"]:
        from vramcast.cli.plotted import plot_answer

        plot_answer(forecast, given["plot"], asked=asked)
    _show(forecast, term=given["explain"], as_json=given["as_json"])
    return exit_code(forecast.fit)


def _show(forecast: Any, *, term: str | None, as_json: bool) -> None:
    """The answer as one JSON object, as one term of its ledger, or as a page."""
    if as_json:
        from vramcast.cli.output import print_json

        print_json(forecast)
    elif term:
        from vramcast.cli.pages.ledger import term_page

        term_page(forecast, term).show()
    else:
        from vramcast.cli.pages.answer import serving_page

        serving_page(forecast).show()


def _sweep(given: dict[str, Any], flags: list[str], axes: list[str]) -> int:
    from vramcast.asking.grid import axes_of
    from vramcast.cli.sweep import show_sweep

    grid, title = axes_of(axes, ServingWords.__annotations__), given["model"] or ", ".join(given["files"])
    return show_sweep(_ask(given, flags), {**words_of(given)}, grid, title=title, as_json=given["as_json"], plot=given["plot"])


def _ask(given: dict[str, Any], flags: list[str]) -> Callable[..., Any]:
    """The question but for its words."""
    return partial(
        serving_question,
        _model(given),
        flags=flags,
        files=given["files"],
        variables=variables_of(given["variables"]),
        only=given["only"],
    )


def _flags_and_model(given: dict[str, Any]) -> tuple[tuple[str, ...], str | None]:
    """The engine's flags and MODEL; with --from a flag may stand where MODEL does."""
    model = given["model"]
    if given["files"] and model and model.startswith("-") and model != "-":
        return (model, *given["engine_flags"]), None
    return given["engine_flags"], model


def _model(given: dict[str, Any]) -> str | None:
    if not given["model"] and not given["files"]:
        raise click.UsageError("no model: write for example vramcast serve Qwen/Qwen2.5-7B-Instruct --gpu 4090")
    return str(given["model"]) if given["model"] else None


def variables_of(pairs: Iterable[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a mapping. Raises UsageError for one without its value."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--var {pair[:60]!r} is not NAME=VALUE")
        found[name.strip()] = value
    return found


def words_of(given: dict[str, Any]) -> ServingWords:
    """The words of the question among the command's parameters."""
    words: ServingWords = {}
    words.update({name: given[name] for name in ServingWords.__annotations__ if name in given})  # type: ignore[typeddict-item]
    return words
