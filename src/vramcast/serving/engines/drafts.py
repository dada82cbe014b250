"""The draft model beside a target: read by its name, or an EAGLE head of the target's shape where nothing tells the checkpoint.

EAGLE heads are mostly people's own checkpoints, which no catalogue holds. What one is like is told by its method: one decoder
layer over the target's states (models/families/eagle.py), so that an answer need not wait for its config.json.
"""

import re
from time import monotonic

import msgspec

from vramcast.errors import ConfigError, MissingError, QuestionError, UnmodelledError, UnsafeFileError
from vramcast.ledger import Assumption, Unmodelled
from vramcast.models.families import eagle
from vramcast.models.inventory import Model
from vramcast.untrusted import existing_path, printable

# vllm/config/speculative.py: a draft without a method has that of its name, "eagle-" or "eagle3"
_NAMED = re.compile(r"(?<![a-z])eagle(?:3|(?=[-_.]|$))", re.IGNORECASE)
_LAYERS = re.compile(r"eagle|medusa|mtp|nextn|speculator|dflash", re.IGNORECASE)  # names of draft layers rather than models
_THIRD = "eagle3"
DAMAGED = (ConfigError, UnmodelledError, UnsafeFileError)
"""Errors of a draft that is at hand and cannot be read, apart from those of a name that nothing knows."""


class Draft(msgspec.Struct, frozen=True):
    """A draft model, and what was assumed of it where its checkpoint is not known."""

    model: Model
    assumed: tuple[Assumption, ...] = ()


def draft_of(name: str | None, method: str | None, target: Model, *, option: str) -> Draft | None:
    """The draft model of a question, None where none is named.

    ``method``: eagle, eagle3 or another way of drafting, None: as the name says. ``option``: the question's word for the name.
    Raises QuestionError for a name that nothing knows where the method does not tell what the draft is like, and for a file that
    is damaged or has no rule.
    """
    if not name:
        return None
    try:
        return Draft(_read(name))
    except (QuestionError, MissingError) as unknown:
        third = _third(name, method)
        if isinstance(unknown, DAMAGED) or third is None or not eagle.fits(target):
            raise
        head = eagle.head_for(target, third=third)
        return Draft(head, (_told(name, head, target, option, third=third),))


def known_draft(name: str, method: str | None, target: Model, *, option: str) -> Draft | None:
    """As ``draft_of``; None for a name that nothing knows, which the answer tells by ``uncounted``."""
    try:
        return draft_of(name, method, target, option=option)
    except (QuestionError, MissingError) as unknown:
        if isinstance(unknown, DAMAGED):
            raise
        return None


def uncounted(name: str) -> Unmodelled:
    """What the answer says of a draft whose shape nothing tells."""
    why = "its shape is not known (a folder or config.json of it tells)"
    return Unmodelled(f"the draft model {printable(name)[:80]}: its weights and cache are not counted, {why}")


_MISSES: dict[str, tuple[float, QuestionError | MissingError]] = {}
_REMEMBERED_S, _MOST_MISSES = 60.0, 64


def _read(name: str) -> Model:
    """The draft's model. An answer asks for it in every step of its search: what nothing knew a moment ago is not asked again."""
    from vramcast.models.reading import read_model

    at, missed = _MISSES.get(name, (0.0, None))
    if missed is not None and monotonic() - at < _REMEMBERED_S and existing_path(name) is None:
        raise missed.with_traceback(None)
    try:
        return read_model(name)
    except (QuestionError, MissingError) as unknown:
        if not isinstance(unknown, DAMAGED):
            if len(_MISSES) >= _MOST_MISSES:
                _MISSES.clear()
            _MISSES[name] = monotonic(), unknown
        raise


def way_of_draft(name: str | None, target: Model) -> str:
    """The method of vLLM for a draft that is named without one: "" where its config.json decides (EAGLE, Medusa, MTP layers)."""
    if not name or is_target(name, target) or _LAYERS.search(name):
        return ""
    return "ngram" if name.strip("[]") == "ngram" else "draft_model"


def is_target(name: str, target: Model) -> bool:
    """Whether a draft's name is the target's own, by its id or as a folder of that name."""
    return name.rstrip("/").rsplit("/", 1)[-1].lower() == target.id.rsplit("/", 1)[-1].lower()


def _third(name: str, method: str | None) -> bool | None:
    """Whether the draft is an EAGLE 3 head rather than a first one; None where it is no EAGLE head."""
    said = (method or "").lower()
    if said in ("eagle", _THIRD):
        return said == _THIRD
    found = None if said else _NAMED.search(name)
    return found[0].lower().endswith("3") if found else None


def _told(name: str, head: Model, target: Model, option: str, *, third: bool) -> Assumption:
    kind = "EAGLE 3" if third else "EAGLE"
    because = (
        f"{printable(name)[:80]} is not at hand: a head of {target.id}'s shape is taken, one layer and a vocabulary of "
        f"{head.vocab:,} (a folder or config.json of the head tells its own)"
    )
    return Assumption(option, f"{kind} head, {head.parameters:,} parameters", because)
