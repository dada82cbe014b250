"""From columns to choices: the arrays of all structures joined, put in order, and the best of them judged one by one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from vramcast.ledger import Fit
from vramcast.planning.plans.serving_table import Columns, question_of
from vramcast.planning.plans.wanted import Setting, Wanted
from vramcast.planning.verdict import serving_fit
from vramcast.serving.engines.base import answer_of
from vramcast.workload import Serving


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment: ``question`` is one of its ``replicas``; times of a request, tokens a second of all users on all cards.

    ``usd_per_million``: output tokens; None where the card has no price. ``power_w``: the boards' limits together.
    """

    setting: Setting
    question: Serving
    replicas: int
    gpus: int
    chunk: int
    seats: int
    needed_bytes: int
    fit: Fit
    ttft_s: float
    tpot_s: float
    tokens_per_s: float
    keeps_up: bool
    usd_per_hour: float | None
    usd_per_million: float | None
    power_w: float

    @property
    def layout(self) -> str:
        """``2 x (tp 4)``: copies of a replica, and what a replica is."""
        return f"{self.replicas} x {self.setting.layout.words}" if self.replicas > 1 else self.setting.layout.words

    @property
    def request_s(self) -> float:
        """Seconds from a request to its last token."""
        return self.ttft_s + self.tpot_s * max(0, (self.question.output or 1) - 1)


class Joined:
    """All deployments of a plan as long arrays; ``place`` tells which structure each belongs to."""

    def __init__(self, wanted: Wanted, tables: Sequence[Columns]) -> None:
        import numpy as np

        self.wanted, self.tables = wanted, [table for table in tables if len(table.gpus)]
        names = ("replicas", "chunk", "seats", "gpus", "needed_bytes", "margin_bytes", "ttft_s", "tpot_s", "tokens_per_s",
                 "keeps_up")  # fmt: skip
        self.of: dict[str, Any] = {
            name: np.concatenate([getattr(t, name) for t in self.tables]) if self.tables else np.zeros(0) for name in names
        }
        sizes = [len(t.gpus) for t in self.tables]
        self.place = np.repeat(np.arange(len(sizes)), sizes)
        price = np.array([t.setting.offer.usd_per_hour or np.nan for t in self.tables])
        self.usd = price[self.place] * self.of["gpus"] if sizes else np.zeros(0)
        self.request_s = self.of["ttft_s"] + self.of["tpot_s"] * max(0, wanted.output - 1)
        self.meets = np.asarray(wanted.meets(self.of["ttft_s"], self.of["tpot_s"]) & (self.of["keeps_up"] > 0), dtype=bool)

    def kinds(self, of: Callable[[Setting], Any], *, counted: bool = False) -> Any:
        """A number for each deployment, the same for those of one kind: what ``of`` says of a structure, and cards if counted."""
        import numpy as np

        numbers: dict[Any, int] = {}
        own = np.array([numbers.setdefault(of(table.setting), len(numbers)) for table in self.tables], dtype=np.int64)
        found = own[self.place]
        return found * (int(self.of["gpus"].max(initial=0)) + 1) + self.of["gpus"] if counted else found

    def setting(self, index: int) -> Setting:
        """The structure of a deployment."""
        return self.tables[int(self.place[index])].setting

    def cost(self) -> Any:
        """Dollars for a million output tokens; cards for a token a second where no card has a price."""
        import numpy as np

        with np.errstate(divide="ignore"):
            if np.isnan(self.usd).all():
                return self.of["gpus"] / self.of["tokens_per_s"]
            return np.nan_to_num(self.usd / self.of["tokens_per_s"] / 3600 * 1e6, nan=np.inf)

    def order(self) -> Any:
        """Indices from the best to the worst by what the plan is ordered by; those that keep the service level first."""
        import numpy as np

        keys = {"cost": (self.request_s, self.cost()), "speed": (self.cost(), self.request_s),
                "cards": (self.request_s, self.cost(), self.of["gpus"])}[self.wanted.order]  # fmt: skip
        missed = np.where(self.meets, 0.0, self.miss())
        return np.lexsort((-self.of["margin_bytes"], *(_coarse(key) for key in keys), missed))

    def miss(self) -> Any:
        """How many times the service level's times are exceeded at worst, 1 where they are kept."""
        import numpy as np

        worst = np.ones(len(self.place))
        if self.wanted.rate:
            worst = np.where(self.of["keeps_up"] > 0, 1.0, self.wanted.rate * self.wanted.output / self.of["tokens_per_s"])
        for asked, name in ((self.wanted.ttft_s, "ttft_s"), (self.wanted.tpot_s, "tpot_s")):
            worst = np.maximum(worst, self.of[name] / asked) if asked else worst
        return worst

    def choice(self, index: int) -> Choice:
        """One deployment, asked again by itself for its verdict."""
        setting, value = self.setting(index), {name: column[index].item() for name, column in self.of.items()}
        question = question_of(self.wanted, setting, replicas=value["replicas"], chunk=value["chunk"], seats=value["seats"])
        answer = answer_of(question, model=setting.weights.model, card=setting.card, limits=False)
        price, rate = setting.offer.usd_per_hour, value["tokens_per_s"]
        hour = None if price is None else price * value["gpus"]
        return Choice(
            setting=setting, question=question, replicas=value["replicas"], gpus=value["gpus"], chunk=value["chunk"],
            seats=value["seats"], needed_bytes=value["needed_bytes"], fit=serving_fit(answer, setting.card),
            ttft_s=value["ttft_s"], tpot_s=value["tpot_s"], tokens_per_s=rate,
            keeps_up=bool(value["keeps_up"]), usd_per_hour=hour,
            usd_per_million=hour / rate / 3600 * 1e6 if hour is not None and rate else None,
            power_w=setting.card.tdp_w * value["gpus"],
        )  # fmt: skip


def _coarse(key: Any) -> Any:
    """Keys to nine digits, so that rounding does not decide between equals."""
    import numpy as np

    finite = np.where(np.isfinite(key), key, 1e300)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = 10.0 ** (8 - np.floor(np.log10(np.maximum(finite, 1e-300))))
    return np.where(finite >= 1e299, finite, np.rint(finite * size) / size)


MOST_JUDGED = 6  # deployments of one kind, a millisecond or two each
MORE_ROOM = 1.25  # times the room that was not enough


class Judge:
    """Choices that surely fit, found in order; each deployment is judged once."""

    def __init__(self, joined: Joined) -> None:
        self.joined = joined
        self._known: dict[int, Choice] = {}

    def first(self, indices: Any, *, kinds: Any, most: int) -> Iterator[Choice]:
        """The first of each kind that fits, else its first that is tight, at most ``most`` kinds in order of appearance.

        ``indices``: deployments in order; ``kinds``: a number for each deployment of the plan.
        """
        import numpy as np

        indices = np.asarray(indices, dtype=np.int64)
        own = kinds[indices]
        _, places = np.unique(own, return_index=True)
        found = 0
        for place in np.sort(places)[: 3 * most].tolist():
            if (choice := self._of_kind(indices[own == own[place]])) is not None:
                yield choice
                found += 1
            if found == most:
                return

    def _of_kind(self, group: Any) -> Choice | None:
        """The first that surely fits; one that does not passes over those behind it that leave hardly more room."""
        margins, tight, floor = self.joined.of["margin_bytes"][group], None, -float("inf")
        for _ in range(MOST_JUDGED):
            enough = margins > floor
            if not enough.any():
                break
            place = int(enough.argmax())
            choice = self._judged(int(group[place]))
            if choice.fit.verdict == "fits":
                return choice
            tight = tight or (choice if choice.fit.verdict == "tight" else None)
            floor = max(0.0, float(margins[place])) * MORE_ROOM
        return tight

    def _judged(self, index: int) -> Choice:
        if index not in self._known:
            self._known[index] = self.joined.choice(index)
        return self._known[index]
