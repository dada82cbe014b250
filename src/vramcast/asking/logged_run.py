"""A run that a log tells of, asked again: what it needed by the forecast, and one corrected line that fits."""

import shlex
from collections.abc import Iterable

import msgspec

from vramcast.asking.asked import answer_serving
from vramcast.asking.serving import serving_question
from vramcast.errors import QuestionError, VramcastError
from vramcast.ledger import Forecast
from vramcast.reading.engine_messages import Finding
from vramcast.reading.serving.launch import Launch
from vramcast.reading.serving.log import launch_in_log
from vramcast.truth.case import Case
from vramcast.units import GiB
from vramcast.workload import Serving

_COMMANDS = {
    "vllm": "vllm serve {model}",
    "sglang": "python -m sglang.launch_server --model-path {model}",
    "llama_cpp": "llama-server -m {model}",
    "ollama": "ollama run {model}",
    "tensorrt_llm": "trtllm-serve {model}",
    "tgi": "text-generation-launcher --model-id {model}",
    "lmdeploy": "lmdeploy serve api_server {model}",
}
# Our words as each engine spells them.
_SPELT = {
    "vllm": {"--context": "--max-model-len", "--quant": "--quantization"},
    "sglang": {"--context": "--context-length", "--quant": "--quantization"},
    "llama_cpp": {"--context": "-c"},
}
_NOT_ITS_OWN = ("--engine", "--gpu", "--concurrency")  # changes that no flag of the engine makes


class LoggedRun(msgspec.Struct, frozen=True, kw_only=True):
    """``launch``: what the log tells; ``forecast``: the same, asked; ``corrected``: a line that fits, "" where none was found.

    ``measured``: what the log printed, by measure: weights and kv_pool in bytes, cache_tokens.
    """

    launch: Launch
    question: Serving
    forecast: Forecast
    corrected: str = ""
    measured: dict[str, float] = {}

    @property
    def beside(self) -> tuple[tuple[str, float, float], ...]:
        """Each printed figure with the forecast's: measure, measured, forecast."""
        limits, weights = self.forecast.limits, next((t for t in self.forecast.worst.terms if t.name == "weights"), None)
        said = {"weights": weights.bytes if weights else None, "kv_pool": limits.cache_bytes, "cache_tokens": limits.cache_tokens}
        found = ((name, value, said.get(name)) for name, value in self.measured.items())
        return tuple((name, value, float(own)) for name, value, own in found if own is not None)

    def case(self) -> Case:
        """The log's figures as a case to keep. Raises QuestionError for a log that printed none."""
        figures = {name: value for name, value in self.measured.items() if name in _MEASURES}
        if not figures:
            raise QuestionError("the log prints no size of weights or cache, so there is no case in it")
        own = self.question
        versions = {own.engine: own.engine_version} if own.engine_version else {}
        return Case(id=f"{own.model} {own.engine} on {own.gpus} x {own.gpu}", level="measured", figures=figures, serving=own,
                    gpu=own.gpu or "", versions=versions)  # fmt: skip


_MEASURES = ("weights", "kv_pool")
# Figures of engines' lines by the measure that they are.
_PRINTED = {"weights loaded": "weights", "cache available": "kv_pool", "tokens of cache": "cache_tokens"}


def measured_in(findings: Iterable[Finding]) -> dict[str, float]:
    """What a log printed of its start, the last of each; of a cache for which nothing was left, nothing."""
    figures = (figure for finding in findings for figure in finding.figures if not finding.failed)
    return {_PRINTED[figure.name]: figure.value for figure in figures if figure.name in _PRINTED}


def asked_again(
    text: str, *, gpu: str | None = None, card_bytes: int | None = None, findings: Iterable[Finding] = ()
) -> LoggedRun | None:
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
    return LoggedRun(
        launch=launch, question=asked.question, forecast=forecast, corrected=_corrected(launch, forecast),
        measured=measured_in(findings),
    )  # fmt: skip


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
