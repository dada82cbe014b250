"""Prefill and decode on workers of their own: the event simulation and the closed form of a server in two pools.

A request runs its prompt on a prefill worker, its cache moves to a decode worker (``transfer``), and that one decodes it: prompts
never lengthen a decode step. Workers of a pool are taken in turn. Both pools' clocks are advanced together, the earliest first,
so that clients of a closed loop send their next request when the decode worker has ended the last.
"""

from collections.abc import Iterable
from math import inf
from typing import TypeVar

import msgspec

from vramcast.models.operations import Batch
from vramcast.speed.closed_form import FULL, room_of
from vramcast.speed.load import Load, Request, drawn
from vramcast.speed.simulation import Live, Served, Server
from vramcast.speed.step import Step
from vramcast.speed.transfer import HANDOVERS, REACHED, Handover, fan_out, rank_bytes

_COUNT = 2000
_HALVINGS = 40


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """Two pools of equal workers and the rate of the link between them, in bytes per second for each card."""

    prefill: Step
    decode: Step
    prefill_workers: int = 1
    decode_workers: int = 1
    rate_bytes_per_s: float

    @property
    def handover(self) -> Handover:
        """How the engine hands a request over; as a whole, by a router, where nothing is known of it."""
        return HANDOVERS.get(self.decode.on.engine.engine, HANDOVERS["tensorrt_llm"])

    @property
    def cards(self) -> int:
        """Cards of both pools."""
        return self.prefill_workers * self.prefill.on.ranks + self.decode_workers * self.decode.on.ranks

    def transfer_s(self, tokens: float) -> float:
        """Seconds that a cache of so many tokens takes over the link."""
        moved = rank_bytes(self.decode.by_context, tokens) * fan_out(self.prefill.on, self.decode.on)
        return moved / (self.rate_bytes_per_s * REACHED)

    def exposed_s(self, tokens: float) -> float:
        """Of those, what comes after the prefill."""
        whole = self.transfer_s(tokens)
        return whole * min(1.0, self.prefill.on.chunk_tokens / max(1.0, tokens)) if self.handover.by_chunk else whole


class _Prefiller(Server):
    """A worker that computes prompts and the first token; what it has done stands in ``done``."""

    def __init__(self, step: Step, load: Load) -> None:
        super().__init__(step, load)
        self.done: list[Live] = []
        self.link_free_s = 0.0

    def _finish(self, live: Live) -> None:
        self.done.append(live)


class _Decoder(Server):
    """A worker that takes prefilled requests into its batch at a step's start."""

    def __init__(self, step: Step, load: Load, *, again: bool) -> None:
        super().__init__(step, load)
        self.again = again
        self.ended_now = 0

    def _prompts_step(self) -> bool:
        while self.waiting and not self.waiting[0].todo:
            live = self.waiting[0]
            if self.batch and (self.batch >= self.seats or self.context + live.past + self.batch > self.pool):
                return False
            self._take(self.waiting.popleft())
        return super()._prompts_step() if self.waiting or self.prefilling else False

    def _take(self, live: Live) -> None:
        """The first token is out at once where the prefill worker has made it, one step later where it is computed again."""
        live.left = max(1.0, live.out - (0.0 if self.again else 1.0))
        self._seat(live)
        if live.first < 0:
            live.first = self.now + (self._plain_s() if self.again else 0.0)

    def _finish(self, live: Live) -> None:
        self.ended_now += 1
        super()._finish(live)


_Worker = TypeVar("_Worker", bound=Server)


class _Run:
    """One load run through both pools."""

    def __init__(self, pools: Pools, load: Load) -> None:
        self.pools = pools
        self.rule = pools.decode.on.engine
        self.prefillers = [_Prefiller(pools.prefill, load) for _ in range(pools.prefill_workers)]
        again = pools.handover.again
        self.decoders = [_Decoder(pools.decode, load, again=again) for _ in range(pools.decode_workers)]
        self.handed = 0
        self.sent = 0
        self.moves: dict[int, tuple[float, float]] = {}
        # No request that a decode worker's end sets free comes to another one sooner than this after it.
        alone = float(pools.prefill.seconds(Batch(prefills=1, prefill_tokens=max(1.0, load.prompt * (1 - load.cached)))))
        self.soonest_s = self.rule.return_s + self.rule.ingest_s + alone / 2

    def serve(self, requests: Iterable[Request], clients: int) -> list[Served]:
        """Run them all; ``clients``: at most so many are alive at once."""
        lives = [Live(i, one) for i, one in enumerate(requests)]
        for live in sorted(lives[:clients] if clients else lives, key=lambda one: (one.arrival, one.todo)):
            self._send(live, live.arrival)
        idle = lives[clients:][::-1] if clients else []
        while True:
            prefills, prefiller = _earliest(self.prefillers)
            decodes, decoder = _earliest(self.decoders)
            if prefiller is None and decoder is None:
                return [one for worker in self.decoders for one in worker.served]
            if prefiller is not None and (decoder is None or prefills <= decodes):
                prefiller.advance()
                prefiller.ended()
                self._hand_over(prefiller)
            elif decoder is not None:
                decoder.advance(min(prefills, decodes + self.soonest_s))
                decoder.ended()
                for _ in range(min(decoder.ended_now, len(idle))):
                    live = idle.pop()
                    self._send(live, max(live.arrival, decoder.now + self.rule.return_s))
                decoder.ended_now = 0

    def _send(self, live: Live, at_s: float) -> None:
        """A client's request: to the next prefill worker in turn."""
        live.arrival, live.left = at_s, 1.0  # here it makes its first token and no more
        live.seen = at_s + self.rule.ingest_s + self.rule.ingest_token_s * live.todo
        _queue(self.prefillers[self.sent % len(self.prefillers)], live)
        self.sent += 1

    def _hand_over(self, worker: _Prefiller) -> None:
        """Caches of prompts that are done go over the worker's link one after the other."""
        for live in worker.done:
            tokens = live.past
            if tokens not in self.moves:
                self.moves[tokens] = self.pools.transfer_s(tokens), self.pools.exposed_s(tokens)
            whole, exposed = self.moves[tokens]
            worker.link_free_s = max(worker.now + exposed, worker.link_free_s + whole)
            live.seen = worker.link_free_s + self.rule.ingest_s * self.pools.handover.relayed
            live.first, live.todo = -1.0, 0
            _queue(self.decoders[self.handed % len(self.decoders)], live)
            self.handed += 1
        worker.done.clear()


def _earliest(workers: list[_Worker]) -> tuple[float, _Worker | None]:
    """The worker that does something first, and when; none where all are idle and know of nothing to come."""
    soonest, found = inf, None
    for worker in workers:
        if worker.batch or worker.waiting or worker.prefilling:
            at = worker.now
        elif worker.coming:
            at = max(worker.now, worker.coming[0].seen)
        else:
            continue
        if at < soonest:
            soonest, found = at, worker
    return soonest, found


def _queue(worker: Server, live: Live) -> None:
    """Into what comes, in the order in which it is seen."""
    later: list[Live] = []
    while worker.coming and worker.coming[-1].seen > live.seen:
        later.append(worker.coming.pop())
    worker.coming.append(live)
    worker.coming.extend(reversed(later))


def simulate_pools(pools: Pools, load: Load, *, count: int = 0, seed: int = 0, all_of_it: bool = False) -> list[Served]:
    """What becomes of the load's requests, the first tenth left out as warm-up unless ``all_of_it`` or a trace is asked for."""
    number = count or (len(load.trace) if load.trace else max(_COUNT, 12 * load.concurrency))
    clients = 0 if load.trace else load.concurrency
    served = _Run(pools, load).serve(drawn(load, number, seed=seed), clients)
    served.sort(key=lambda one: one.arrival_s)
    return served if load.trace or all_of_it else served[len(served) // 10 :]


class SteadyPools(msgspec.Struct, frozen=True, kw_only=True):
    """A load's steady state on two pools; seconds, requests a second of the whole server, and shares of time.

    ``batch``: sequences that one decode worker runs; ``prefill_s``: a prompt alone; ``waits_s``: for the prefill workers, for the
    decode worker's running step; ``busy``: share of time that prefill workers are.
    """

    ttft_s: float
    tpot_s: float
    requests_per_s: float
    most_per_s: float
    most_prefill_per_s: float
    most_decode_per_s: float
    batch: float
    decode_s: float
    prefill_s: float
    transfer_s: float
    entry_s: float
    busy: float


def steady_pools(pools: Pools, load: Load) -> SteadyPools:
    """The closed form: prompts queue for the prefill pool, decodes share the decode pool, nothing else couples them.

    Open loop: B = X * output * d(B) / workers. Closed loop of C clients: C = X * (TTFT + output * d(B)), by halving B.
    """
    return _PoolSolver(pools, load).solve()


class _PoolSolver:
    def __init__(self, pools: Pools, load: Load) -> None:
        self.pools, self.load, self.rule = pools, load, pools.decode.on.engine
        self.output = max(1.0, load.output)
        self.new, self.past = max(1.0, load.prompt * (1 - load.cached)), load.prompt * load.cached
        self.prefill_s, self.most_prefill = self._prefill()
        self.room = float(room_of(pools.decode.on, load, pools.decode.ranks))
        self.most_decode = self._rate(self.room)

    def _prefill(self) -> tuple[float, float]:
        """Seconds of a prompt alone, and requests a second of all prefill workers with full steps."""
        step, chunk = self.pools.prefill, self.pools.prefill.on.chunk_tokens * self.pools.prefill.ranks
        alone = self._prompts_s(step, 1.0, min(1.0, step.on.chunk_tokens / self.new))
        together = max(1.0, chunk / self.new)
        each = self._prompts_s(step, together, min(1.0, chunk / self.new / together)) / together
        return alone, self.pools.prefill_workers / each

    def _prompts_s(self, step: Step, count: float, part: float) -> float:
        tokens = self.new * part
        one = Batch(prefills=count, prefill_tokens=tokens, prefill_past=self.past + (self.new - tokens) / 2)
        return float(step.seconds(one)) / part + count * self.load.encode_s

    def decode_s(self, batch: float) -> float:
        """Seconds of one token of a decode worker's batch."""
        one = Batch(
            decodes=max(1.0, batch), decode_past=self.load.prompt + self.output / 2, decode_tokens=self.load.verified
        )  # fmt: skip
        draft = self.load.drafting
        drafting = draft.draft_s * draft.tokens if draft else 0.0
        return (float(self.pools.decode.seconds(one)) + drafting) / self.load.per_step

    def _rate(self, batch: float) -> float:
        """Requests a second of all decode workers at that batch each."""
        return self.pools.decode_workers * batch / (self.output * self.decode_s(batch))

    def solve(self) -> SteadyPools:
        most = min(self.most_prefill, self.most_decode)
        if self.load.rate_per_s:
            rate = min(self.load.rate_per_s, FULL * most)
            batch = self._batch_of(rate)
            return self._state(batch, rate, most)
        clients, workers = float(self.load.concurrency), self.pools.decode_workers
        low, high = 0.0, min(self.room, clients / workers)
        for _ in range(_HALVINGS):
            batch = (low + high) / 2
            rate = min(self._rate(batch), FULL * most)
            alive = rate * (self._first_s(rate, batch) + self.rule.return_s) + workers * batch
            low, high = (low, batch) if alive > clients else (batch, high)
        rate = min(self._rate(low), FULL * most)
        return self._state(min(low, self._batch_of(rate)), rate, most, clients=clients)

    def _batch_of(self, rate: float) -> float:
        """The batch of each decode worker at that rate (Little)."""
        low, high = 0.0, self.room
        for _ in range(_HALVINGS):
            batch = (low + high) / 2
            low, high = (batch, high) if self._rate(batch) < rate else (low, batch)
        return high

    def _first_s(self, rate: float, batch: float) -> float:
        """Way in, queue of the prefill pool (M/D/n by Sakasegawa's exponent), prompt, transfer, half a decode step."""
        workers = self.pools.prefill_workers
        busy = min(FULL, rate / self.most_prefill)
        queue: float = self.prefill_s * busy ** ((2 * (workers + 1)) ** 0.5 - 1) / (workers * (1 - busy)) / 2
        step = self.decode_s(batch) * self.load.per_step
        seated = (0.5 + self.pools.handover.again) * step * min(1.0, batch)
        return self._entry_s() + queue + self.prefill_s + self.pools.exposed_s(self.load.prompt) + seated

    def _entry_s(self) -> float:
        rule = self.rule
        return rule.ingest_s * (1 + self.pools.handover.relayed) + rule.ingest_token_s * self.new

    def _state(self, batch: float, rate: float, most: float, *, clients: float = 0.0) -> SteadyPools:
        first = self._first_s(rate, batch)
        if clients:  # who neither decodes nor returns waits
            first = max(first, (clients - self.pools.decode_workers * batch) / rate - self.rule.return_s)
        decode = self.decode_s(batch)
        return SteadyPools(
            ttft_s=first, tpot_s=decode, requests_per_s=rate, most_per_s=most, most_prefill_per_s=self.most_prefill,
            most_decode_per_s=self.most_decode, batch=batch, decode_s=decode, prefill_s=self.prefill_s,
            transfer_s=self.pools.exposed_s(self.load.prompt), entry_s=self._entry_s(), busy=min(1.0, rate / self.most_prefill),
        )  # fmt: skip
