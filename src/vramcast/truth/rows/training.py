"""Training rows of the measured corpus: a row's forecast and its measured counters side by side."""

import re
from collections.abc import Iterator
from typing import Any

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.cards import anonymous_card, find_accelerator
from vramcast.ledger import RankMemory
from vramcast.training.forecast import TrainingForecast, forecast_training
from vramcast.truth.judgement import Judgement, Pair, Unexpressed
from vramcast.truth.rows.training_keys import same_keys, unread_words
from vramcast.truth.rows.training_model import model_of
from vramcast.truth.rows.training_question import framework_of, question_of
from vramcast.truth.rows.unread import novel
from vramcast.truth.scales import OF_A_STEP
from vramcast.truth.steps import certain_bytes, step_scale, training_keys
from vramcast.units import GiB


def forecast_of(row: dict[str, Any]) -> TrainingForecast:
    """The forecast for a row. Raises VramcastError with the reason when the row cannot be expressed."""
    return forecast_training(question_of(row), model=model_of(same_keys(row)), card=card_of(row), replays=True)


def card_of(row: dict[str, Any]) -> Accelerator | None:
    """The row's card: by its name, else any card of the size the report states; None when it states neither."""
    size = row.get("gpu_mem_gib")
    try:
        card = find_accelerator(str(row.get("gpu") or ""))
    except VramcastError:
        return anonymous_card(round(size * GiB)) if size else None
    return card if not size or abs(card.visible_bytes / GiB / size - 1) < 0.1 else anonymous_card(round(size * GiB))


TIGHT = 0.92  # of the card: above it a longer batch or fragmentation ends the run
_COUNTERS = {
    "peak_allocated_gib": "allocated",
    "peak_active_gib": "allocated",
    "peak_reserved_gib": "reserved",
    "nvidia_smi_gib": "device",
}


def judge(row: dict[str, Any]) -> Judgement:
    """The row beside its forecast. Raises Unexpressed with the reason when the row cannot be asked."""
    try:
        answer = forecast_of(row)
    except VramcastError as error:
        raise Unexpressed(str(error)) from None
    family = {k: v for k, v in training_keys(answer).items() if k in ("family", "novel")}
    row = same_keys(row)
    unread = unread_words(row)
    return Judgement(
        id=row["id"],
        keys=_keys(row) | family | novel(unread),
        quality=row.get("quality", "A"),
        pairs=tuple(_pairs(row, answer)),
        fit_called=_called(row, answer),
        fit_actual="oom" if row.get("outcome") == "oom" else "ran",
        unread=unread,
    )


def _pairs(row: dict[str, Any], answer: TrainingForecast) -> Iterator[Pair]:
    rank = _rank(row, answer)
    if row.get("outcome") == "oom":
        return  # what a run held when it ended is no peak of a step
    later = _after_first_step(row, rank)
    forecast = {
        "allocated": _training_peak(row, rank) - later,
        "reserved": rank.reserved_bytes - later,
        "device": rank.device_bytes - later,
    }
    certain = certain_bytes(rank)
    for key, measure in _COUNTERS.items():
        value = (row.get("measured") or {}).get(key)
        if value:
            said = forecast[measure]
            scale = step_scale(said, certain) if measure in OF_A_STEP else 0
            kept = 0 if answer.novel else certain
            yield Pair(measure=measure, predicted=said, measured=value * GiB, at=rank.rank, scale=scale, certain=kept)


def _training_peak(row: dict[str, Any], rank: RankMemory) -> int:
    """The allocated peak; the Trainer's own tracker resets the counter after loading."""
    if "memory tracker" not in str((row.get("measured") or {}).get("counter")):
        return rank.allocated_bytes
    loading = max((i.bytes for i in rank.instants if i.name == "load"), default=0)
    stepping = max(i.bytes for i in rank.instants if i.name != "load")
    return rank.allocated_bytes - max(0, loading - stepping)


_FIRST = re.compile(r"after (iteration 1|the first iteration)\b", re.IGNORECASE)


def _after_first_step(row: dict[str, Any], rank: RankMemory) -> int:
    """What the peak gains after the first step, of a counter that was read after it: Adam's states are made at its end.

    Megatron-LM prints its memory once, after the first log interval (training/training.py, report_memory_flag).
    """
    if not _FIRST.search(str((row.get("measured") or {}).get("counter"))):
        return 0
    return max(0, rank.allocated_bytes - (rank.first_step_bytes or rank.allocated_bytes))


def _rank(row: dict[str, Any], answer: TrainingForecast) -> RankMemory:
    """The rank the report logged: Megatron prints its last one, others the largest."""
    last = "last rank" in str((row.get("measured") or {}).get("counter"))
    return answer.ranks[-1] if last else answer.worst


def _called(row: dict[str, Any], answer: TrainingForecast) -> str:
    """What the forecast says of the row's card: no when its tensors exceed it, tight when little is left for the allocator."""
    card = card_of(row)
    if card is None:
        return ""
    outside = answer.worst.device_bytes - answer.worst.reserved_bytes
    if answer.worst.allocated_bytes + outside > card.visible_bytes:
        return "no"
    return "tight" if answer.worst.device_bytes > TIGHT * card.visible_bytes else "fits"


def _keys(row: dict[str, Any]) -> dict[str, str]:
    s = row["settings"]
    parallel = s.get("parallel") or {}
    cut = [f"{k}{parallel[k]}" for k in ("tp", "pp", "cp", "ep") if (parallel.get(k) or 1) > 1]
    keys = {
        "engine": framework_of(row["framework"]),
        "source": row["source"],
        "version": str(row.get("framework_version") or ""),
        "method": row["method"],
        "recompute": str(s.get("activation_checkpointing") or ""),
        "parallel": "+".join(cut) or f"dp{parallel.get('dp') or 1}",
    }
    if s.get("quant"):
        keys["quant"] = str(s["quant"])
    return keys
