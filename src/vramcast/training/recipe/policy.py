"""A checkpointing policy as a value: which layers, or which parts of a layer, are computed again in backward."""

from collections.abc import Iterator
from typing import Literal, get_args

import msgspec

from vramcast.errors import QuestionError, unknown_name

Kind = Literal["none", "full", "offloaded", "selective", "op", "core_attention", "layer", "modules", "uniform", "block"]
Module = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"]
COUNTED = ("layer", "uniform", "block")  # written with a number: layer:2
_FROM_INPUTS = ("full", "offloaded", "uniform")


class Policy(msgspec.Struct, frozen=True):
    """What is computed again in backward.

    ``kind``: none; full (every layer from its input); offloaded (full, its inputs on the host); selective (the framework's own
    word); op (torchtitan's list of operations); core_attention (Megatron's selective); layer (every n-th layer); modules
    (Megatron's parts of a layer); uniform (chunks of n layers); block (the first n layers of a stage).
    ``layers``: the n of layer, uniform and block; ``modules``: the parts that go with modules. As text: "block:2".
    """

    kind: Kind = "none"
    layers: int = 0
    modules: tuple[Module, ...] = ()

    @property
    def recomputes_layers(self) -> bool:
        """Whether every layer is computed again from an input."""
        return self.kind in _FROM_INPUTS

    def __str__(self) -> str:
        detail = str(self.layers) if self.kind in COUNTED else "+".join(self.modules)
        return f"{self.kind}:{detail}" if detail else self.kind


def parse_policy(given: "str | Policy") -> Policy:
    """The policy of a word, with its number or its modules after a colon. Raises QuestionError with the nearest words."""
    if isinstance(given, Policy):
        return given
    word, _, detail = str(given).partition(":")
    if word not in get_args(Kind):
        raise unknown_name("checkpointing", str(given), get_args(Kind))
    if word in COUNTED and not (detail.isdigit() and int(detail)):
        raise QuestionError(f"checkpointing {given!r} names no number of layers: write {word}:2")
    if detail and word not in (*COUNTED, "modules"):
        raise QuestionError(f"checkpointing {given!r}: {word} takes nothing after a colon")
    layers = int(detail) if word in COUNTED else 0
    modules = tuple(_modules(detail)) if word == "modules" else ()
    return msgspec.convert({"kind": word, "layers": layers, "modules": modules}, Policy)


def _modules(detail: str) -> Iterator[str]:
    for module in detail.split("+"):
        if module not in get_args(Module):
            raise unknown_name("recomputed module", module, get_args(Module))
        yield module
