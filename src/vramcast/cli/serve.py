"""``vramcast serve``: memory of serving a model, whether it fits, and how far it can be pushed."""

from typing import Any

import click

from vramcast.errors import QuestionError
from vramcast.ledger import Assumption
from vramcast.workload import Parallel, Serving

_EPILOG = """\b
Examples:
  vramcast serve Qwen/Qwen2.5-7B-Instruct --gpu "RTX 4090"
  vramcast serve meta-llama/Llama-3.3-70B-Instruct --gpu H100x4 --context 128K --concurrency 5
  vramcast serve openai/gpt-oss-20b --engine sglang --gpu L40S --json
  vramcast serve Qwen/Qwen3-30B-A3B --engine llama.cpp --quant Q4_K_M --gpu 3090 -ngl 99 -c 32768
  vramcast serve ./config.json                       (no card: which cards hold it)

\b
The engine's own flags are accepted as its users type them (--gpu-memory-utilization 0.95, --max-num-seqs 64,
--mem-fraction-static 0.8, -ngl 40 ...); --options lists them.
"""


@click.command(
    epilog=_EPILOG,
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": True,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
    },
)
@click.argument("model")
@click.argument("engine_flags", nargs=-1, type=click.UNPROCESSED, metavar="[ENGINE FLAGS]...")
@click.option("--gpu", metavar="NAME[xN]", help="The card, and how many: 4090, A100-80Gx2, local.")
@click.option("--engine", default="vllm", show_default=True, metavar="NAME[==VERSION]", help="Serving engine and its version.")
@click.option("--context", metavar="TOKENS", help="Longest sequence to allow; the engine's own default when absent.")
@click.option("--concurrency", metavar="N", help="Sequences alive at once at that context.  [default: 1]")
@click.option("--prompt", metavar="TOKENS", help="Typical prompt length. Kept in the answer; no speed is forecast yet.")
@click.option("--output", metavar="TOKENS", help="Typical output length. Kept in the answer; no speed is forecast yet.")
@click.option("--dtype", help="Type the weights are loaded in; the checkpoint's when absent.")
@click.option("--quant", help="Weight scheme: fp8, awq, gptq, nf4, Q4_K_M ...; the checkpoint's when absent.")
@click.option("--kv-dtype", help="Type of the KV cache: auto, fp8, q8_0 ...")
@click.option("--tp", type=int, help="Tensor parallel ranks.  [default: the number of cards]")
@click.option("--pp", type=int, default=1, show_default=True, help="Pipeline stages.")
@click.option("--dp", type=int, default=1, show_default=True, help="Data parallel replicas.")
@click.option("--ep", type=int, default=1, show_default=True, help="Expert parallel ranks.")
@click.option("--explain", metavar="TERM", help="Open one term of the ledger down to its formula.")
@click.option("--options", "list_options", is_flag=True, help="List the engine's flags and leave.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(**given: Any) -> int:
    """Forecast the memory of serving MODEL.

    MODEL is a hub id, a folder, a config.json (- reads one from standard input), a safetensors index or file, or a GGUF file.
    """
    if given["list_options"]:
        from vramcast.cli.listing import show_engine_options

        return show_engine_options(given["engine"])
    from vramcast.planning.serving import forecast_serving

    question = question_of(given)
    forecast = forecast_serving(question, assumed=(*card_assumptions(given["gpu"]), *_unused_cards(question)))
    if given["as_json"]:
        from vramcast.cli.output import print_json

        print_json(forecast)
    elif given["explain"]:
        from vramcast.cli.drawing import term_page

        term_page(forecast, given["explain"]).show()
    else:
        from vramcast.cli.drawing import serving_page

        serving_page(forecast).show()
    return 1 if forecast.fit.verdict == "no" else 0


def question_of(given: dict[str, Any]) -> Serving:
    """The flags as a question. Raises QuestionError for a flag, number or name that cannot be."""
    from vramcast.cli.engine_flags import read_flags, take_fields
    from vramcast.serving.engines import engine as engine_named

    fields, flags = take_fields(list(given["engine_flags"]))
    given = {**given, **{k: _whole(v, k) if k in ("tp", "pp", "ep") else v for k, v in fields.items()}}
    name, version = _engine(given["engine"])
    engine = engine_named(name)
    gpu, gpus = named_cards(given["gpu"])
    parallel, ranks = _layout(given, gpus)
    return Serving(
        model=given["model"],
        gpu=gpu,
        gpus=max(1, gpus, ranks),
        engine=engine.name,
        engine_version=version,
        **{k: _count(given[k], k) for k in ("context", "concurrency", "prompt", "output")},
        dtype=given["dtype"],
        quant=given["quant"],
        kv_dtype=given["kv_dtype"],
        parallel=parallel,
        options=read_flags(flags, engine.options, engine=engine.name),
    )


def _engine(text: str) -> tuple[str, str | None]:
    name, named, version = text.partition("==")
    if named and not version:
        raise QuestionError(f"--engine {text} names no version: write for example {name}==0.19.0, or {name} for the newest known")
    return name, version or None


def _layout(given: dict[str, Any], gpus: int) -> tuple[Parallel, int]:
    """The layout and the cards it takes; tensor parallelism spreads over the cards that nothing else uses."""
    rest = max(1, given["pp"] * given["dp"])
    tp = max(1, gpus // rest) if given["tp"] is None else given["tp"]
    parallel = Parallel(tp=tp, **{k: given[k] for k in ("pp", "dp", "ep")})
    ranks = tp * rest
    if 1 < gpus < ranks:
        asked = f"tp {tp} x pp {parallel.pp} x dp {parallel.dp}"
        raise QuestionError(f"{asked} needs {ranks} cards, --gpu names {gpus}: name {ranks}, or use fewer ranks")
    return parallel, ranks


def _unused_cards(question: Serving) -> tuple[Assumption, ...]:
    """Cards that were named and that the layout leaves alone; llama.cpp and transformers spread over all they see."""
    from vramcast.serving.engines.base import POOL_ENGINES

    layout = question.parallel
    used, rest = layout.tp * layout.pp * layout.dp, max(1, layout.pp * layout.dp)
    if question.engine not in POOL_ENGINES or question.gpu is None or used >= question.gpus:
        return ()
    idle, more = question.gpus - used, question.gpus // rest
    because = f"{used} of {question.gpus} cards do the work: --tp {more}, or more replicas with --dp, would use the others"
    return (Assumption("unused_cards", idle, because),)


def named_cards(text: str | None) -> tuple[str | None, int]:
    """What names the card, and how many of them; of several kinds the one with least memory decides."""
    from vramcast.hardware.cards import parse_gpus

    if text is None:
        return None, 0
    cards = parse_gpus(text).cards
    if text.strip().lower() == "local":
        return "local", len(cards)
    return min(cards, key=lambda c: c.visible_bytes).id.removeprefix("custom-"), len(cards)


def card_assumptions(text: str | None) -> tuple[Assumption, ...]:
    """What reading the cards' names took for granted, for the answer to list."""
    from vramcast.hardware.cards import parse_gpus

    if text is None:
        return ()
    found = parse_gpus(text)
    kinds = sorted({c.name for c in found.cards})
    mixed = (Assumption("gpu", ", ".join(kinds), "of cards of several kinds, the one with least memory decides"),)
    return (*found.assumed, *(mixed if len(kinds) > 1 else ()))


def _whole(text: str, what: str) -> int:
    from vramcast.units import parse_count

    return parse_count(text, what=f"--{what}")


def _count(text: str | None, what: str) -> int | None:
    from vramcast.units import parse_count

    return None if text is None else parse_count(text, what=f"--{what}")
