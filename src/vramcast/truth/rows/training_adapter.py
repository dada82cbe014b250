"""The adapter of a training row, from a report's words and its count of trained parameters."""

from collections.abc import Callable
from typing import Any

from vramcast.workload import Adapter

# elements of one virtual token: a row of the embedding, or a key and a value in every layer
_ONE_TOKEN: dict[str, Callable[[dict[str, int]], int]] = {
    "prompt_tuning": lambda arch: arch["hidden"],
    "prefixtuning": lambda arch: 2 * arch["layers"] * arch["kv_heads"] * arch["head_dim"],
}


def method_of(text: str) -> str:
    """The method by its own name; runs without gradients are asked as full ones."""
    return text.split(" ", 1)[0].removeprefix("peft-") if not text.startswith("fwd") else "full"


def adapter_of(row: dict[str, Any]) -> Adapter | None:
    """The adapter that a row names, if it names one."""
    method, given = method_of(row["method"]), row["settings"].get("adapters")
    if not given or method == "full":
        return None
    targets = given.get("targets") or "all-linear"
    names = [targets] if isinstance(targets, str) else [str(t) for t in targets]
    return Adapter(
        kind="lora" if method in ("lora", "qlora") else method,
        rank=int(given.get("r") or 8),
        targets=tuple(_target(n) for n in names),
        dropout=float(given.get("dropout") or 0.0),
        modules_to_save=tuple(given.get("modules_to_save") or ()),
        dora=bool(given.get("use_dora")) or row["method"] == "dora",
        sizes=_virtual_tokens(method, given, row.get("arch") or {}),
    )


def _virtual_tokens(method: str, given: dict[str, Any], arch: dict[str, Any]) -> dict[str, int]:
    """How many there are: what is trained, in tokens. Nothing where the row does not tell, or no whole number comes out."""
    trained = given.get("trainable_params")
    if method not in _ONE_TOKEN or not trained or not arch:
        return {}
    tokens, rest = divmod(trained, _ONE_TOKEN[method](arch))
    return {} if rest else {"num_virtual_tokens": tokens}


def _target(text: str) -> str:
    if text == "output_proj":  # torchtune's name
        return "o_proj"
    return "attn" if "attention" in text or "DEFAULT" in text else text
