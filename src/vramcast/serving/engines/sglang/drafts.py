"""Which draft SGLang runs: the checkpoint's own layers, a model beside it, or one that nothing tells.

Source: sglang/srt/server_args.py (EAGLE and NEXTN of a checkpoint with draft layers take its own path where none is named).
"""

import re
from collections.abc import Mapping
from typing import Any

from vramcast.ledger import Unmodelled
from vramcast.models.inventory import Model
from vramcast.serving.engines.drafts import Draft, is_target, known_draft, uncounted
from vramcast.untrusted import printable

_OWN_LAYERS = frozenset({"eagle", "nextn"})
_EXPORTED = re.compile(r"(?<![a-z])(?:nextn|mtp)(?![a-z])", re.IGNORECASE)  # lmsys/DeepSeek-V3-0324-NextN


def drafts_itself(model: Model, options: Mapping[str, Any]) -> bool:
    """Whether the checkpoint's own draft layers are loaded.

    That is EAGLE and NEXTN without a draft model, with the target itself as one, and with a copy of its draft layers alone.
    """
    name, algorithm = options.get("speculative_draft_model_path"), _algorithm(options)
    if not (algorithm in _OWN_LAYERS if algorithm else options.get("num_speculative_tokens")):
        return False
    return not name or is_target(name, model) or (_has_layers(model) and bool(_EXPORTED.search(name)))


def draft_beside(model: Model, options: Mapping[str, Any]) -> Draft | None:
    """The draft model that ``--speculative-draft-model-path`` names; None for the target's own layers and for one unknown."""
    name = options.get("speculative_draft_model_path")
    if not name or drafts_itself(model, options):
        return None
    return known_draft(name, _algorithm(options), model, option="speculative_draft_model_path")


def uncounted_draft(model: Model, options: Mapping[str, Any], draft: Draft | None) -> tuple[Unmodelled, ...]:
    """What the answer says of a draft whose model is neither known nor among the checkpoint's layers."""
    name, algorithm = options.get("speculative_draft_model_path"), _algorithm(options)
    own = drafts_itself(model, options) and _has_layers(model)
    if draft is not None or own or algorithm == "ngram" or not (name or algorithm):
        return ()
    if name and not is_target(name, model):
        return (uncounted(name),)
    said = printable(str(options["speculative_algorithm"]))[:40] if algorithm else ""
    return (Unmodelled(f"the draft of --speculative-algorithm {said}: none is named, and {model.id} has no layers for it"),)


def _algorithm(options: Mapping[str, Any]) -> str:
    return str(options.get("speculative_algorithm") or "").lower()


def _has_layers(model: Model) -> bool:
    return any(tower.kind == "mtp" for tower in model.towers)
