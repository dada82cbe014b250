"""A change that people make to a question: its kind, the exact flag to type, what it costs, and the question it makes."""

from collections.abc import Callable
from typing import Any

import msgspec

# What a change costs a person, the least first: a flag, some speed, some quality, less service, another program, money.
# Weights on the host are read over PCIe at every step: 690 ms a token where a card takes 15, so fewer bits come before them.
FREE, SLOWER, CACHE_TYPE, LIGHTER, MUCH_LIGHTER, LESS_SERVED = 1, 2, 3, 4, 5, 7
ON_HOST = OTHER_PROGRAM = 8  # the CPU computes what it holds
READ_FROM_HOST = MORE_CARDS = 9  # another program that keeps all on the card comes first
DOUBLED = 5  # each doubling of the number of cards, on top of MORE_CARDS

# Kinds that set the same words: layouts say how many cards and sequences each rank has.
_SAME_WORDS = (frozenset({"layout", "cards"}), frozenset({"layout", "sequences"}), frozenset({"layout", "sharding"}),
               frozenset({"layout", "sp"}), frozenset({"cards", "sp"}))  # fmt: skip
# Kinds that give up a part of the work, or ask for another program or more cards.
_GIVES_UP = frozenset({"context", "sequences", "seq", "method", "engine", "framework", "cards"})


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change. Of a kind one is enough; ``price`` orders kinds by what they cost a person.

    ``widens``: it gives the engine more of the card rather than needing less, and too much of it leaves no room for the rest.
    ``unordered``: its steps are choices, the most wanted first, of which any may fit.
    ``alone``: it replaces so much of the question that no other change is made beside it.
    """

    kind: str
    text: str
    costs: str
    price: int
    apply: Callable[[Any], Any]
    widens: bool = False
    unordered: bool = False
    alone: bool = False

    @property
    def keeps_the_job(self) -> bool:
        """Whether the same work is done by the same program on the same cards."""
        return not self.gives_up

    @property
    def gives_up(self) -> frozenset[str]:
        """Which parts of the work are not done any more, or not on these cards."""
        return _GIVES_UP & set(self.kind.split(" and "))

    def excludes(self, other: "Change") -> bool:
        """Whether both cannot be made together."""
        kinds = {*self.kind.split(" and "), *other.kind.split(" and ")}
        return self.alone or other.alone or any(same <= kinds for same in _SAME_WORDS)

    def then(self, other: "Change") -> "Change":
        """Both changes, one after the other."""
        return Change(
            kind=f"{self.kind} and {other.kind}",
            text=f"{self.text} {other.text}",
            costs="; ".join(dict.fromkeys(part for costs in (self.costs, other.costs) for part in costs.split("; "))),
            price=self.price + other.price,
            apply=lambda question: other.apply(self.apply(question)),
            widens=self.widens or other.widens,
            unordered=self.unordered or other.unordered,
        )


def cards_flag(gpu: str | None, gpus: int) -> str:
    """The flag that names so many cards, or the words where no card was named by a person."""
    return f"--gpu {gpu.replace(' ', '-')}x{gpus}" if gpu and gpu != "local" else f"{gpus} cards"


def set_fields(kind: str, text: str, costs: str, price: int, **fields: Any) -> Change:
    """A change of fields of the question."""
    return Change(
        kind=kind, text=text, costs=costs, price=price, apply=lambda question: msgspec.structs.replace(question, **fields)
    )


def set_option(kind: str, text: str, costs: str, price: int, **options: Any) -> Change:
    """A change of the engine's own options."""

    def apply(question: Any) -> Any:
        return msgspec.structs.replace(question, options={**question.options, **options})

    return Change(kind=kind, text=text, costs=costs, price=price, apply=apply)
