"""Every deployment of one structure as columns: memory by the engine's own arithmetic, times by the closed form, both on arrays.

Times depend on replicas and chunk alone as long as every user has a seat and room in the cache, so they are worked out over
those and spread over the seats; memory depends on all three.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.planning.plans.wanted import Setting, Wanted
from vramcast.planning.verdict import margin_of
from vramcast.quantity import maximum, minimum
from vramcast.serving.engines.base import Answer, answer_of
from vramcast.serving.engines.registries import lacking
from vramcast.speed.answer import load_of, step_of, with_drafting
from vramcast.speed.closed_form import FULL, Steady, room_of, steady
from vramcast.speed.placing import SCHEDULER, deployment_of
from vramcast.speed.step import Step
from vramcast.workload import Serving, Traffic

CHUNKS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
SEATS = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
NODE = 8  # cards of a machine that is rented whole
_TIMES = ("ttft_s", "tpot_s", "tokens_per_s", "keeps_up")
_REPLICAS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """One element per deployment that fits its card by the forecast; ``tried``: how many there were before that.

    ``best_margin_bytes``: of all tried, negative where none fits.
    """

    setting: Setting
    tried: int
    best_margin_bytes: int
    replicas: Any
    chunk: Any
    seats: Any
    gpus: Any
    needed_bytes: Any
    margin_bytes: Any
    ttft_s: Any
    tpot_s: Any
    tokens_per_s: Any
    keeps_up: Any


class Fitting(msgspec.Struct, frozen=True, kw_only=True):
    """Deployments of a structure that its cards hold, before their times are known. ``room``: sequences served at once."""

    setting: Setting
    tried: int
    best_margin_bytes: int
    answer: Answer
    columns: dict[str, Any]
    room: Any

    @property
    def rows_alike(self) -> tuple[Any, ...]:
        """What decides the time of a step's rows: all but the pipeline's stages and the cache."""
        own = self.setting.layout
        layout = (own.parallel.tp, own.parallel.dp, own.parallel.ep, *own.options.items())
        return (id(self.setting.weights), self.setting.engine, self.setting.card.id, *layout)

    @property
    def alike(self) -> tuple[Any, ...]:
        """What decides the time of a step: all but the pipeline's stages."""
        return (*self.rows_alike, self.setting.kv_dtype)


def question_of(wanted: Wanted, setting: Setting, **fields: Any) -> Serving:
    """The question about one replica; ``replicas``, ``chunk`` and ``seats`` may be numbers or arrays."""
    if setting.engine == "llama_cpp":
        return _of_llama_cpp(wanted, setting, fields.get("replicas", 1))
    own, options = setting.layout, dict(setting.layout.options)
    names = SCHEDULER.get(setting.engine, ("", ""))
    options |= {name: fields[what] for name, what in zip(names, ("chunk", "seats"), strict=True) if what in fields}
    alive = own.attention_ranks if wanted.users is None else -(-wanted.users // fields.get("replicas", 1))
    return Serving(
        model=setting.weights.model.id, gpu=setting.card.id, gpus=own.ranks, engine=setting.engine, quant=setting.weights.quant,
        kv_dtype=setting.kv_dtype, parallel=own.parallel, options=options, context=wanted.context, concurrency=alive,
        prompt=wanted.prompt, output=wanted.output,
        traffic=Traffic(rate=wanted.rate, cached=wanted.cached, acceptance=wanted.accepted(own)),
    )  # fmt: skip


def fitting(wanted: Wanted, setting: Setting) -> Fitting:
    """The deployments of a structure that fit. Raises VramcastError where the engine refuses it or no law covers it."""
    import numpy as np

    copies = _replicas(wanted, setting)
    seats = np.array(SEATS if wanted.users is None else _seats(wanted))
    chunks = np.array([chunk for chunk in CHUNKS if chunk <= max(CHUNKS[0], 2 * wanted.context)])
    grid = [axis.ravel() for axis in np.meshgrid(np.array(copies), chunks, seats, indexing="ij")]
    asked = question_of(wanted, setting, replicas=grid[0], chunk=grid[1], seats=grid[2])
    answer = answer_of(asked, model=setting.weights.model, card=setting.card, limits=False)
    if refusal := next((a.because for a in answer.resolved.assumed if isinstance(a.value, str) and a.value == "refused"), ""):
        raise UnmodelledError(refusal.removesuffix(": use --engine transformers"))  # which a plan does not ask
    if unknown := lacking(setting.engine, answer.resolved.version, setting.weights.model)[1]:
        raise UnmodelledError(unknown[0].what)
    needed, margin = _memory(answer, setting, len(grid[0]))
    fits = (margin >= 0) & (grid[2] * setting.layout.attention_ranks * grid[0] >= (wanted.users or 0))
    if wanted.rented:
        cards = grid[0] * setting.layout.ranks
        fits &= (cards <= NODE) | (cards % NODE == 0)
    load, _ = load_of(asked, wanted.users or 0)
    room = np.broadcast_to(room_of(deployment_of(answer), load, setting.layout.attention_ranks), fits.shape)[fits]
    kept = dict(zip(("replicas", "chunk", "seats"), (axis[fits] for axis in grid), strict=True))
    if wanted.users is not None:
        room = np.minimum(room, np.maximum(1.0, wanted.users / (kept["replicas"] * setting.layout.parallel.pp)))
    kept |= {"needed_bytes": needed[fits], "margin_bytes": margin[fits], "gpus": kept["replicas"] * setting.layout.ranks}
    best = int(margin.max())
    return Fitting(setting=setting, tried=len(grid[0]), best_margin_bytes=best, answer=answer, columns=kept, room=room)


def timed(wanted: Wanted, alike: Sequence[Fitting], known: dict[Any, Step]) -> list[Columns]:
    """The times of structures that share their steps: worked out once for each copies, chunk and sequences at once.

    ``known``: a step by ``rows_alike``, whose rows others take over.
    """
    import numpy as np

    step = Step(deployment_of(alike[0].answer))
    step.remember_as(known.setdefault(alike[0].rows_alike, step))
    asked = alike[0].answer.resolved.question
    load, _ = load_of(asked, wanted.users or 0)
    load, _ = with_drafting(step, load, asked.options)
    copies = np.concatenate([one.columns["replicas"] * one.setting.layout.parallel.pp for one in alike])
    chunk, room = np.concatenate([one.columns["chunk"] for one in alike]), np.concatenate([one.room for one in alike])
    different, places = np.unique(np.stack([copies, chunk, room]), axis=1, return_inverse=True)
    own = step.under(chunk_tokens=different[1], max_seqs=different[2] / step.ranks)
    figures = _figures(wanted, steady(own, load, replicas=different[0], largest=False), different[0])
    spread = {name: value[places.reshape(-1)] for name, value in figures.items()}
    ends = np.cumsum([len(one.room) for one in alike])[:-1]
    parts = {name: np.split(value, ends) for name, value in spread.items()}
    return [_columns(one, {name: parts[name][i] for name in _TIMES}) for i, one in enumerate(alike)]


def _columns(one: Fitting, times: dict[str, Any]) -> Columns:
    return Columns(setting=one.setting, tried=one.tried, best_margin_bytes=one.best_margin_bytes, **one.columns, **times)


def _replicas(wanted: Wanted, setting: Setting) -> list[int]:
    """Copies of the replica that the cards allow, none without a user."""
    most = min(setting.offer.most // setting.layout.ranks, wanted.users or _REPLICAS[-1])
    return [copies for copies in _REPLICAS if copies <= most] or [1]


def _seats(wanted: Wanted) -> tuple[int, ...]:
    """Limits of sequences at once up to the first that seats all users on one rank; more would only cost memory."""
    users = wanted.users or 1
    return tuple(seats for before, seats in zip((0, *SEATS), SEATS, strict=False) if before < users) or SEATS[-1:]


def _memory(answer: Answer, setting: Setting, count: int) -> tuple[Any, Any]:
    """Needed bytes of the worst rank and what is left, one element per deployment."""
    import numpy as np

    worst = maximum(*(rank.needed_bytes for rank in answer.ranks))
    claimed = maximum(*(rank.claimed_bytes for rank in answer.ranks))
    left = minimum(margin_of(answer, worst, setting.card), setting.card.visible_bytes - claimed)
    return np.broadcast_to(worst, count), np.broadcast_to(left, count)


def _figures(wanted: Wanted, found: Steady, copies: Any) -> dict[str, Any]:
    """What is kept of a steady state; ``copies``: servers that share the load."""
    import numpy as np

    rate = found.requests_per_s * (copies if wanted.users is None else np.minimum(copies, wanted.users))
    keeps_up = found.most_per_s * copies * FULL >= wanted.rate if wanted.rate is not None else copies > 0
    own = {"ttft_s": found.ttft_s, "tpot_s": found.tpot_s, "tokens_per_s": rate * wanted.output, "keeps_up": keeps_up}
    return {name: np.broadcast_to(value, np.shape(copies)) for name, value in own.items()}


def one_by_one(wanted: Wanted, setting: Setting) -> Columns:
    """The deployments of an engine that shares one context among its users: each number of replicas is asked alone."""
    import numpy as np

    found, tried = [], _replicas(wanted, setting)
    margins = []
    for copies in tried:
        question = question_of(wanted, setting, replicas=copies)
        answer = answer_of(question, model=setting.weights.model, card=setting.card, limits=False)
        worst = max(rank.needed_bytes for rank in answer.ranks)
        margins.append(int(margin_of(answer, worst, setting.card)))
        if margins[-1] >= 0:
            load, _ = load_of(question, wanted.users or 0)
            state = steady(step_of(answer), load, replicas=copies, largest=False)
            found.append({"replicas": copies, "needed_bytes": worst, "margin_bytes": margins[-1],
                          "chunk": 2048, "seats": question.concurrency, **_figures(wanted, state, copies)})  # fmt: skip
    column = {name: np.array([row[name] for row in found]) for name in (*_KEPT, *_TIMES)}
    return Columns(
        setting=setting,
        tried=len(tried),
        best_margin_bytes=max(margins),
        gpus=column["replicas"] * setting.layout.ranks,
        **column,
    )


_KEPT = ("replicas", "needed_bytes", "margin_bytes", "chunk", "seats")


def _of_llama_cpp(wanted: Wanted, setting: Setting, replicas: int) -> Serving:
    """One llama-server: its context is shared out to as many slots as users come to it (llama.cpp, tools/server)."""
    slots = -(-(wanted.users or _SLOTS) // replicas)
    return Serving(
        model=setting.weights.model.id, gpu=setting.card.id, gpus=setting.layout.ranks, engine="llama_cpp",
        quant=setting.weights.quant, kv_dtype=setting.cache or None, context=wanted.context * slots,
        concurrency=slots,
        options={"n_parallel": slots, **setting.layout.options}, prompt=wanted.prompt, output=wanted.output,
        traffic=Traffic(rate=wanted.rate, cached=wanted.cached),
    )  # fmt: skip


_SLOTS = 16  # of a llama-server under random arrivals
