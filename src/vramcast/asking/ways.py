"""One page per model: the ways to run it and to train it, each asked on the cards at hand or for the smallest that hold it.

Weights go from most bits to fewest, methods from the whole model to adapters, so that the first that fits loses least. Every row
is the question of the flags beside it: typed, they give the same answer.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from vramcast.asking.asked import Asked, count_of
from vramcast.asking.serving import serving_question
from vramcast.asking.training import training_question
from vramcast.errors import QuestionError, VramcastError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, Fit, ModelFacts
from vramcast.models.inventory import Model, facts_of
from vramcast.workload import Serving, Training

CONTEXT, SEQ = 8192, 2048
_LIGHTER_UNDER_VLLM = ("fp8", "awq")
_FILES = ("Q8_0", "Q6_K", "Q4_K_M", "Q3_K_M")
_FOUR_BIT_FILES = ("MXFP4_MOE",)  # of a checkpoint that stores its experts so
_LIGHTER = 0.97  # of the weights before: a scheme that saves less is no way of its own
_ABOUT = 0.8  # of the heaviest weights of a card: fp8's 8 bits and Q8_0's 8.5 lose alike, Q6_K's 6.6 more
_PROMPT, _OUTPUT = 1024, 256
_USABLE = 512  # tokens: a context below that serves nobody
_RANK = 16
_BITSANDBYTES = ("NVIDIA", "AMD", "")  # vendors whose cards run its 8-bit optimizers and 4-bit weights; "": a size alone


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way. ``longest``: tokens of the longest sequence that surely fits, 0 for none, None without a card.

    ``tokens_per_s``: of each user while decoding, or of one card while training. ``cards``: the fewest and smallest that hold it,
    where none was named. ``refused``: why there is no answer.
    """

    task: str
    program: str
    how: str
    flags: str
    weights_bytes: int = 0
    needed_bytes: int = 0
    fit: Fit = Fit(verdict="unknown")
    longest: int | None = None
    tokens_per_s: float | None = None
    cards: str = ""
    refused: str = ""


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked and every way; ``gpu``: the card's name and ``gpu_id`` what it is typed as, empty without one."""

    model: ModelFacts
    gpu: str
    gpu_id: str
    gpus: int
    capacity_bytes: int
    context: int
    users: int
    seq: int
    run: tuple[Way, ...]
    train: tuple[Way, ...]
    assumed: tuple[Assumption, ...]

    @property
    def gpu_flag(self) -> str:
        """The words that name these cards behind a command, empty without any."""
        from vramcast.planning.changes import cards_flag

        if not self.gpu_id:
            return ""
        flag = cards_flag(self.gpu_id, self.gpus)
        return flag.removesuffix("x1") if self.gpus == 1 else flag


def ways_of(
    model: str, *, gpu: str | None = None, context: int | str | None = None, users: int | str | None = None,
    seq: int | str | None = None, only: str = "",
) -> Ways:  # fmt: skip
    """The ways of a model, on a card or for any: served with ``context``, trained with ``seq``. ``only``: run or train.

    Raises QuestionError for names and numbers that cannot be.
    """
    asking, assumed = _page_of(model, gpu=gpu, context=context, users=users, seq=seq)
    card, held = asking.card, asking.model
    return Ways(
        model=facts_of(held),
        gpu=card.name if card else "",
        gpu_id=asking.gpu_id,
        gpus=asking.gpus,
        capacity_bytes=card.visible_bytes if card else 0,
        context=asking.context,
        users=asking.users,
        seq=asking.seq or min(SEQ, held.positions or CONTEXT),
        run=() if only == "train" else tuple(asking.to_run()),
        train=() if only == "run" else tuple(asking.to_train()),
        assumed=assumed,
    )


def best_way(
    model: str, task: str, *, gpu: str, context: int | str | None = None, users: int | str | None = None,
    seq: int | str | None = None,
) -> Way | None:  # fmt: skip
    """The way of a task (``run`` or ``train``) that loses least on the cards, as ``least_lossy`` has it; None where none fits.

    Raises QuestionError as ``ways_of`` does.
    """
    asking, _ = _page_of(model, gpu=gpu, context=context, users=users, seq=seq)
    asking, found = msgspec.structs.replace(asking, only_what_fits=True), []
    for way in asking.to_train() if task == "train" else asking.to_run():
        found.append(way)
        if way.fit.verdict == "fits" and (task == "train" or way is found[0]):
            break  # nothing after it loses less
    return least_lossy(found)


def least_lossy(found: Sequence[Way]) -> Way | None:
    """Of the ways that surely fit, else of those that may, the one that loses least; None where none does.

    Of ways to run it is the first of those with about the heaviest weights; ways to train stand in their order.
    """
    for verdict in ("fits", "tight"):
        if fitting := [way for way in found if way.fit.verdict == verdict]:
            heaviest = 0 if fitting[0].task == "train" else max(way.weights_bytes for way in fitting)
            return next(way for way in fitting if way.weights_bytes >= _ABOUT * heaviest)
    return None


def _page_of(
    model: str, *, gpu: str | None, context: int | str | None, users: int | str | None, seq: int | str | None
) -> "tuple[_Page, tuple[Assumption, ...]]":
    """What every way of a model is asked with, and what was assumed of names."""
    from vramcast.hardware.cards import least_card
    from vramcast.models.reading import read_model

    first = serving_question(model, gpu=gpu)
    held = first.model or read_model(first.question.model)
    tokens = count_of(context, "context") if context is not None else min(CONTEXT, held.positions or CONTEXT)
    at_once = count_of(users, "users") if users is not None else 1
    trained = count_of(seq, "seq") if seq is not None else None
    for name, value in (("context", tokens), ("users", at_once), ("seq", trained)):
        if value is not None and value < 1:
            raise QuestionError(f"--{name} is {value}: expected at least 1")
    page = _Page(
        name=model,
        model=held,
        gpu=gpu,
        gpu_id=first.question.gpu or "",
        card=least_card(first.question.gpu) if first.question.gpu else None,
        gpus=first.question.gpus,
        context=tokens,
        users=at_once,
        seq=trained,
    )
    cards = tuple(a for a in first.assumed if a.name in ("gpu", "model"))
    return page, (*(a for a in held.assumed if a.name == "model"), *cards)


class _Page(msgspec.Struct, frozen=True, kw_only=True):
    """What every row of a page shares."""

    name: str
    model: Model
    gpu: str | None
    gpu_id: str
    card: Accelerator | None
    gpus: int
    context: int
    users: int
    seq: int | None
    only_what_fits: bool = False  # limits and speed of what does not fit are not wanted

    def to_run(self) -> Iterator[Way]:
        """Under vLLM as published and with fewer bits, then GGUF files under llama.cpp; none that saves nothing."""
        published = self._run("vllm", None)
        yield published
        if not published.refused and not published.fit.refused:
            yield from self._saving("vllm", self._lighter(), published)
        yield from self._saving("llama.cpp", _files_of(self.model), published)

    def _saving(self, engine: str, schemes: tuple[str, ...], published: Way) -> Iterator[Way]:
        """An engine's ways, each lighter than the one before and than what was published; the first refusal ends them."""
        lightest = published.weights_bytes or float("inf")
        for scheme in schemes:
            way = self._run(engine, scheme)
            if way.refused:
                yield from () if engine == "vllm" else (way,)
                return
            if way.weights_bytes < _LIGHTER * lightest:
                lightest = way.weights_bytes
                yield way

    def _lighter(self) -> tuple[str, ...]:
        """Schemes of fewer bits under vLLM: none below a checkpoint of four."""
        from vramcast.planning.serving_changes import LEAST_BITS, stored_format

        own = stored_format(self.model)
        return () if own is not None and own.bits < LEAST_BITS else _LIGHTER_UNDER_VLLM

    def _run(self, engine: str, scheme: str | None) -> Way:
        flags = "" if engine == "vllm" else f"--engine {engine}"
        flags += f" --quant {scheme}" if scheme else ""
        whole = self.context if engine == "vllm" else self.context * self.users  # llama.cpp cuts one context into its slots
        flags += f" --context {whole}" + (f" --concurrency {self.users}" if self.users > 1 else "")
        program = "vLLM" if engine == "vllm" else engine
        way = Way(task="run", program=program, how=scheme or _published(self.model), flags=flags.strip())
        try:
            asked = serving_question(self.name, gpu=self.gpu, engine=engine, quant=scheme, context=whole,
                                     concurrency=self.users if self.users > 1 else None)  # fmt: skip
            return self._answered(way, asked)
        except VramcastError as error:
            return msgspec.structs.replace(way, refused=str(error))

    def _answered(self, way: Way, asked: Asked[Serving]) -> Way:
        from vramcast.planning.serving import ServingOnCard, longest_context
        from vramcast.planning.verdict import serving_fit, worst_of
        from vramcast.serving.engines.base import answer_of

        answer = answer_of(asked.question, model=self.model, card=self.card, limits=False)
        worst = worst_of(answer.ranks)
        way = msgspec.structs.replace(way, weights_bytes=_weights(worst), needed_bytes=worst.needed_bytes)
        if self.card is None:
            return msgspec.structs.replace(way, cards=self._smallest(asked.question))
        way = msgspec.structs.replace(way, fit=serving_fit(answer, self.card))
        if self._is_unwanted(way):
            return way
        held = ServingOnCard(question=asked.question, answer=answer, card=self.card)
        longest = _without_errors(lambda: longest_context(held, sure=True, concurrency=self.users)) or 0
        if way.program != "vLLM":  # its longest is that of all slots together, and of at most the model's positions
            longest = max(longest // self.users, self.context if way.fit.verdict == "fits" else 0)
        return msgspec.structs.replace(
            way,
            longest=longest if longest >= _USABLE else 0,
            tokens_per_s=_without_errors(lambda: self._decoding(asked.question)),
        )

    def _decoding(self, question: Serving) -> float:
        """Tokens a second of each user at a typical length, all of them at work."""
        from vramcast.serving.engines.base import answer_of
        from vramcast.speed.answer import serving_speed

        longest = min(self.model.positions or self.context, self.context)
        output = min(_OUTPUT, max(1, longest // 4))
        typical = msgspec.structs.replace(question, prompt=min(_PROMPT, longest - output), output=output, concurrency=self.users)
        return 1 / serving_speed(answer_of(typical, model=self.model, card=self.card, limits=False)).tpot.seconds

    def _smallest(self, question: Serving) -> str:
        from vramcast.planning.cards import cards_that_hold

        rows = cards_that_hold(question, self.model, most=1)
        return f"{rows[0].gpus} x {rows[0].gpu}" if rows else ""

    def to_train(self) -> Iterator[Way]:
        """All weights, LoRA and QLoRA under the Trainer with checkpointing; sharded over several cards; QLoRA under Unsloth."""
        several = {"fsdp": 2} if self.gpus > 1 else {}
        methods: tuple[tuple[str, dict[str, Any]], ...] = (
            ("full", {"method": "full", **several}),
            ("full, 8-bit AdamW", {"method": "full", "optimizer": "adamw_8bit", **several}),
            ("LoRA", {"method": "lora", "rank": _RANK, **several}),
            ("QLoRA", {"method": "qlora", "rank": _RANK, **several}),
        )
        quantises = self.card is None or self.card.vendor in _BITSANDBYTES
        for how, words in methods:
            if quantises or how in ("full", "LoRA"):
                yield self._train("HF Trainer", how, {**words, "checkpointing": "full"})
        if self.gpus == 1 and quantises:
            yield self._train("Unsloth", "QLoRA", {"method": "qlora", "rank": _RANK, "framework": "unsloth"})

    def _is_unwanted(self, way: Way) -> bool:
        return self.only_what_fits and way.fit.verdict not in ("fits", "tight")

    def _train(self, program: str, how: str, words: dict[str, Any]) -> Way:
        words = {**words, **({"seq": self.seq} if self.seq is not None else {})}
        flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in words.items())
        way = Way(task="train", program=program, how=how, flags=flags)
        try:
            return self._trained(way, training_question(self.name, gpu=self.gpu, **words))
        except VramcastError as error:
            return msgspec.structs.replace(way, refused=str(error))

    def _trained(self, way: Way, asked: Asked[Training]) -> Way:
        from vramcast.planning.layouts import cards_that_train
        from vramcast.planning.training import ledger_of, longest_sequence
        from vramcast.planning.verdict import worst_of

        answer = ledger_of(asked.question, model=self.model, card=self.card)
        worst = worst_of(answer.ranks)
        way = msgspec.structs.replace(way, weights_bytes=_weights(worst), needed_bytes=worst.needed_bytes, fit=answer.fit)
        if self.card is None:
            rows = cards_that_train(asked.question, self.model, most=1)
            return msgspec.structs.replace(way, cards=f"{rows[0].gpus} x {rows[0].gpu}" if rows else "")
        card = self.card
        if self._is_unwanted(way):
            return way
        return msgspec.structs.replace(
            way,
            longest=longest_sequence(asked.question, self.model, card),
            tokens_per_s=_without_errors(lambda: _training_rate(asked.question, self.model, card)),
        )


def _training_rate(question: Training, model: Model, card: Accelerator) -> float:
    from vramcast.speed.training.step import training_speed
    from vramcast.training.forecast import forecast_training

    return float(training_speed(forecast_training(question, model=model, card=card), model, card).tokens_per_s_per_gpu)


def _files_of(model: Model) -> tuple[str, ...]:
    scheme = (model.quantization or {}).get("quant_method")
    return _FOUR_BIT_FILES if scheme == "mxfp4" else _FILES


def _published(model: Model) -> str:
    """The type of the weights as their maker published them."""
    from vramcast.models.quantization import scheme_for

    return f"{scheme_for(model).name if model.quantization else model.dtype}, as published"


def _weights(rank: Any) -> int:
    return next((term.bytes for term in rank.terms if term.name == "weights"), 0)


def _without_errors(ask: Callable[[], Any]) -> Any:
    """What is asked, None where no rule or law has it."""
    try:
        return ask()
    except VramcastError:
        return None
