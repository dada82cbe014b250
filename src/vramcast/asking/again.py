"""A run that a log tells of, asked again: what it needed by the forecast, and one corrected line that fits."""

import shlex

import msgspec

from vramcast.asking.asked import answer_serving
from vramcast.asking.serving import serving_question
from vramcast.errors import VramcastError
from vramcast.ledger import Forecast
from vramcast.reading.serving.launch import Launch
from vramcast.reading.serving.log import launch_in_log
from vramcast.units import GiB

_COMMANDS = {
    "vllm": "vllm serve {model}",
    "sglang": "python -m sglang.launch_server --model-path {model}",
    "llama_cpp": "llama-server -m {model}",
    "ollama": "ollama run {model}",
    "tensorrt_llm": "trtllm-serve {model}",
}
# Our words as each engine spells them.
_SPELT = {
    "vllm": {"--context": "--max-model-len", "--quant": "--quantization"},
    "sglang": {"--context": "--context-length", "--quant": "--quantization"},
    "llama_cpp": {"--context": "-c"},
}
_NOT_ITS_OWN = ("--engine", "--gpu", "--concurrency")  # changes that no flag of the engine makes


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """``launch``: what the log tells; ``forecast``: the same, asked; ``corrected``: a line that fits, "" where none was found."""

    launch: Launch
    forecast: Forecast
    corrected: str = ""


def asked_again(text: str, *, gpu: str | None = None, card_bytes: int | None = None) -> Again | None:
    """The log's run, forecast on the card that is named or whose size the log tells; None where it tells no model or no card."""
    launch = launch_in_log(text)
    card = gpu or (f"{card_bytes / GiB:.2f}GiB" if card_bytes else None)
    if launch is None or card is None:
        return None
    line = " ".join([_COMMANDS[launch.engine].format(model=shlex.quote(launch.model)), *map(shlex.quote, launch.flags)])
    try:
        asked = serving_question(line, gpu=card, engine=f"{launch.engine}=={launch.version}" if launch.version else None)
        forecast = answer_serving(asked)
    except VramcastError:
        return None
    return Again(launch=launch, forecast=forecast, corrected=_corrected(launch, forecast))


def _corrected(launch: Launch, forecast: Forecast) -> str:
    """The command with the first change that makes it fit by the engine's own flags."""
    for advice in forecast.advice:
        words = shlex.split(advice.change)
        if advice.then_fits and not any(word in _NOT_ITS_OWN for word in words):
            spelt = [_SPELT.get(launch.engine, {}).get(word, word) for word in words]
            kept = _without(launch.flags, {word for word in spelt if word.startswith("-")})
            return " ".join([_COMMANDS[launch.engine].format(model=launch.model), *kept, *spelt])
    return ""


def _without(flags: tuple[str, ...], replaced: set[str]) -> list[str]:
    """The flags of the launch less those that the change sets."""
    kept: list[str] = []
    skip = False
    for place, word in enumerate(flags):
        name = word.partition("=")[0]
        if skip:
            skip = False
        elif name in replaced:
            skip = "=" not in word and place + 1 < len(flags) and not flags[place + 1].startswith("-")
        else:
            kept.append(word)
    return kept
