"""Why a choice lost to the best one: by how much in what the plan is ordered by, and what is different about it."""

from vramcast.planning.plans.choices import Choice
from vramcast.units import time_text

_ALIKE = 0.005


def why_lost(lost: Choice, best: Choice, order: str) -> str:
    """``23 % dearer for a million tokens: TPOT 31.2 ms against 24.0 ms; 4 cards, not 3; bfloat16, not fp8``."""
    by = {"cost": _dearer, "speed": _slower, "cards": _more}[order](lost, best)
    return f"{by}; {differences(lost, best)}"


def differences(one: Choice, other: Choice) -> str:
    """What is set otherwise, the other's value last."""
    counts = [] if one.gpus == other.gpus else [f"{one.gpus} card{'s' * (one.gpus > 1)}, not {other.gpus}"]
    pairs = [
        (one.setting.card.name, other.setting.card.name),
        (one.setting.engine, other.setting.engine),
        (one.setting.weights.name, other.setting.weights.name),
        (f"cache {one.setting.cache or 'as the model'}", other.setting.cache or "as the model"),
        (one.layout, other.layout),
    ]
    said = [f"{a}, not {b}" for a, b in pairs if a.removeprefix("cache ") != b]
    return "; ".join((*counts, *said)) or "the same but for batch and chunk"


def _times(lost: Choice, best: Choice) -> str:
    return (
        f"TTFT {time_text(lost.ttft_s)} against {time_text(best.ttft_s)}, "
        f"TPOT {time_text(lost.tpot_s)} against {time_text(best.tpot_s)}"
    )


def _dearer(lost: Choice, best: Choice) -> str:
    if lost.fit.verdict != best.fit.verdict:
        return f"it is {lost.fit.verdict} where the best {best.fit.verdict}"
    if lost.usd_per_million is None or best.usd_per_million is None:
        each, least = lost.gpus / lost.tokens_per_s, best.gpus / best.tokens_per_s
        return f"{each / least - 1:.0%} more card time for a token ({_times(lost, best)})"
    more = lost.usd_per_million / best.usd_per_million - 1
    return (
        f"{more:.0%} dearer for a million tokens ({_times(lost, best)})"
        if more >= _ALIKE
        else f"as cheap, but {_slower(lost, best)}"
    )


def _slower(lost: Choice, best: Choice) -> str:
    return f"a request takes {lost.request_s / best.request_s - 1:.0%} longer ({_times(lost, best)})"


def _more(lost: Choice, best: Choice) -> str:
    if lost.gpus > best.gpus:
        return f"{lost.gpus} cards where {best.gpus} do"
    return _dearer(lost, best)
