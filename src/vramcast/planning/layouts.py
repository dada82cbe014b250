"""The smallest layouts that train a question: for each number of cards the least sharding or model parallelism that fits."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import CardRow
from vramcast.models.inventory import Model
from vramcast.planning.verdict import training_fit
from vramcast.training.forecast import TrainingForecast
from vramcast.training.forecast import forecast_training as answer_of
from vramcast.training.frameworks import framework_name
from vramcast.training.methods import named_by_task
from vramcast.training.resolve import resolve
from vramcast.workload import Parallel, Training

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_LAYOUTS = 4
MOST_CARDS = 12
# The replay of reserved memory over its closed form, at most, by how states are shared, and the other way round: 33 questions of
# one card 0.92 to 1.11; 60 of FSDP over 2 to 32 cards 0.96 to 1.26; 230 of ZeRO over 2 to 32 (three models of 1.5 to 14 billion,
# full and LoRA, Trainer and DeepSpeed): stage 1 0.91 to 1.14, stage 2 0.92 to 1.23, stage 3 0.94 to 1.19.
REPLAYED_MORE = {"none": 1.12, "ddp": 1.12, "fsdp1": 1.28, "fsdp2": 1.28, "zero1": 1.16, "zero2": 1.24, "zero3": 1.20}
REPLAYED_LESS = 1.12
# Of a need by the closed form: where more cards, cut the same way, need no less than that, the replay finds hardly less either
# (0.982 to 1.002 of the one before, 56 such pairs of the same questions; 0.971 already where the closed form says 0.97).
_HARDLY_LESS = 0.98
_CLEARLY = 0.95  # of what the row before needs: less than that is worth more cards


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """A number of cards and how the step is spread over them, as the fields of a question that it sets."""

    gpus: int
    words: str
    fields: dict[str, Any]

    def of(self, question: Training) -> Training:
        """The question in this layout."""
        return msgspec.structs.replace(question, gpus=self.gpus, **self.fields)


class Replayed(msgspec.Struct, frozen=True):
    """A step's need by the closed form, as its replay found it, and the row it was worth."""

    closed: int
    needed: int
    row: CardRow | None

    def again(self, closed: int, layout: Layout) -> CardRow | None:
        """The row of more cards, cut the same way, where they need hardly less: as sure as this one."""
        likely = round(closed * self.needed / self.closed)
        return self.row and msgspec.structs.replace(self.row, gpus=layout.gpus, needed_bytes=likely)

    def leaves_more(self, closed: int) -> bool:
        """Whether a step of that closed need, cut the same way, may be clearly below this one."""
        return closed < _HARDLY_LESS * self.closed


def smallest_layouts(question: Training, model: Model, card: Accelerator) -> tuple[CardRow, ...]:
    """Numbers of this card from the fewest up to the first that surely fits, each with the least that has to be cut.

    At most four rows; a larger number that is as tight as a smaller one is none.
    """
    rows: list[CardRow] = []
    replayed: dict[str, Replayed] = {}
    for gpus in COUNTS:
        best = None
        for layout in layouts(question, gpus):
            row = _row(layout, question, model, card, replayed)
            best = row if best is None or (row and row.verdict == "fits") else best
            if best and best.verdict == "fits":
                break
        if best and (not rows or best.verdict != rows[-1].verdict or best.needed_bytes < _CLEARLY * rows[-1].needed_bytes):
            rows.append(best)
        if len(rows) == MOST_LAYOUTS or (rows and rows[-1].verdict == "fits"):
            break
    return tuple(rows)


def cards_that_train(question: Training, model: Model, *, most: int = MOST_CARDS) -> tuple[CardRow, ...]:
    """NVIDIA and AMD cards in the smallest number that trains the question: fewest first, then the smallest; at most ``most``.

    Only cards that compute the recipe's type by themselves: emulated bf16 trains, but nobody would rent it for that.
    """
    from vramcast.hardware.accelerator import capability
    from vramcast.planning.cards import offered

    question = named_by_task(question)
    compute = resolve(question, model)[0].precision.compute

    needs = [(layout, need) for gpus in COUNTS for layout in layouts(question, gpus) if (need := _need(layout, question, model))]
    found = []
    for card in offered(lambda card: card.vendor in ("NVIDIA", "AMD") and capability(card, compute).verdict == "native"):
        layout = next((layout for layout, need in needs if need < card.visible_bytes), None)
        if layout is not None:
            found.append((layout.gpus, card.unified, card.visible_bytes, card.id, layout, card))
    rows = (_row(layout, question, model, card) for *_, layout, card in sorted(found, key=lambda f: f[:4]))
    return tuple(row for row, _ in zip((r for r in rows if r), range(most), strict=False))


def layouts(question: Training, gpus: int) -> Iterator[Layout]:
    """Ways to spread a step over that many cards, from what cuts least to what cuts most."""
    if framework_name(question.framework) == "megatron":
        yield from _model_parallel(question.parallel, gpus)
        return
    together = {"parallel": Parallel(dp=gpus)}
    if gpus == 1:
        yield Layout(gpus=1, words="one card", fields={**together, "zero": None, "fsdp": None})
        return
    for stage in (1, 2):
        yield Layout(gpus=gpus, words=f"ZeRO-{stage}", fields={**together, "zero": stage, "fsdp": None})
    yield Layout(gpus=gpus, words="fully sharded", fields={**together, "zero": None, "fsdp": 2})


def _model_parallel(own: Parallel, gpus: int) -> Iterator[Layout]:
    """Cuts of the model by tensors and stages, the least first; context and expert parallelism stay as they were asked."""
    for tp, pp in ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4), (8, 8), (8, 16)):
        layout = msgspec.structs.replace(own, tp=tp, pp=pp, sp=tp > 1, vpp=own.vpp if pp > 1 else 1)
        dp, rest = divmod(gpus, layout.model_ranks)
        if not rest:
            kept = "".join(f" {name} {getattr(own, name)}" for name in ("cp", "ep") if getattr(own, name) > 1)
            fields = {"parallel": msgspec.structs.replace(layout, dp=dp)}
            yield Layout(gpus=gpus, words=f"tp {tp} pp {pp} dp {dp}{kept}", fields=fields)


def _row(
    layout: Layout, question: Training, model: Model, card: Accelerator, replayed: dict[str, Replayed] | None = None
) -> CardRow | None:
    """The row of a card that holds the step, with the need that is forecast when the card is named.

    ``replayed``: of each way of cutting the last step that was replayed. Where it was not sure and more cards need hardly less,
    they are not either, and nothing is replayed again.
    """
    known = {} if replayed is None else replayed
    try:
        asked = layout.of(question)
        closed = max(rank.needed_bytes for rank in answer_of(asked, model=model, card=card).ranks)
        if closed > REPLAYED_LESS * card.visible_bytes:
            return None
        if (before := known.get(layout.words)) and not before.leaves_more(closed):
            return before.again(closed, layout)
        answer = answer_of(asked, model=model, card=card, replays=True)
    except VramcastError:
        return None
    row = _row_of(answer, layout, card)
    known[layout.words] = Replayed(closed, max(rank.needed_bytes for rank in answer.ranks), row)
    return row


def _row_of(answer: TrainingForecast, layout: Layout, card: Accelerator) -> CardRow | None:
    fit = training_fit(answer, card)
    if fit.verdict == "no" or (fit.margin_bytes or 0) < 0:
        return None
    return CardRow(
        gpu=card.name,
        gpus=layout.gpus,
        layout=layout.words,
        verdict=fit.verdict,
        needed_bytes=max(r.needed_bytes for r in answer.ranks),
        capacity_bytes=card.visible_bytes,
        probability=fit.probability,
        cloud_usd_per_hour=card.cloud_usd_per_hour,
        bandwidth_bytes_per_s=card.bandwidth_bytes_per_s,
    )


def _need(layout: Layout, question: Training, model: Model) -> int | None:
    try:
        answer = answer_of(layout.of(question), model=model, card=None)
    except VramcastError:
        return None
    return max(r.needed_bytes for r in answer.ranks)
