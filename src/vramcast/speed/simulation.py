"""Continuous batching, event by event: arrivals, chunked prompts, decodes, the cache's limit, preemption by recomputation.

Between two events (an arrival, an end, a prompt to prefill) every step has the same composition but for growing contexts, so the
loop jumps from event to event and takes the step's time at the middle of the way. Seeded: the same question, the same answer.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from math import ceil, inf, log

import msgspec

from vramcast.models.operations import Batch
from vramcast.speed.load import Load, Request, drawn
from vramcast.speed.step import Step

_COUNT = 2000
_BINS = 24  # contexts are told apart in steps of e^(1/24), about 4 %, interpolated between


class Served(msgspec.Struct, array_like=True):
    """What became of one request: seconds to its first token and to its last, tokens, and how often it was preempted."""

    arrival_s: float
    ttft_s: float
    e2e_s: float
    output: int
    preempted: int = 0

    @property
    def tpot_s(self) -> float:
        """Seconds per output token after the first."""
        return (self.e2e_s - self.ttft_s) / max(1, self.output - 1)


class Live:
    """A request inside a server: prompt tokens ``past`` and ``todo``, tokens ``out`` and still ``left``, times in seconds."""

    __slots__ = ("arrival", "encoded", "first", "index", "left", "out", "past", "preempted", "seen", "start", "todo")

    def __init__(self, index: int, request: Request) -> None:
        self.index, self.arrival, self.seen = index, request.arrival_s, 0.0
        self.past, self.todo = request.cached, max(1, request.prompt - request.cached)
        self.out, self.left = request.output, float(request.output)
        self.first, self.preempted, self.start, self.encoded = -1.0, 0, 0, False


class Server:
    """One replica, run through a list of requests. ``run`` returns what became of each."""

    def __init__(self, step: Step, load: Load) -> None:
        self.step, self.load = step, load
        on = step.on
        self.ranks = on.split.attention_dp
        self.rule, self.budget, self.seats = on.engine, on.chunk_tokens * self.ranks, on.max_seqs * self.ranks
        self.pool = on.pool_tokens * self.ranks or inf
        self.kept = self.pool * self.rule.watermark if self.pool < inf else 0.0
        self.polls = on.poll_steps
        if on.pool_sequences:
            self.seats = max(1, min(self.seats, int(on.pool_sequences * self.ranks)))
        self.gain, self.verified = load.per_step, load.verified
        self.draft_s = load.drafting.draft_s * load.drafting.tokens if load.drafting else 0.0
        self.now, self.began, self.steps = 0.0, 0.0, 0
        self.front = 0.0  # when the front end is free again
        self.running: list[tuple[int, int, Live]] = []
        self.batch, self.context = 0, 0.0
        self.coming: deque[Live] = deque()
        self.idle: deque[Live] = deque()
        self.waiting: deque[Live] = deque()
        self.prefilling: deque[Live] = deque()
        self.prefilled = 0.0
        self.served: list[Served] = []
        self._decode: dict[tuple[int, int, bool], float] = {}
        self._prefill: dict[tuple[int, int], tuple[float, float]] = {}
        self.busy, self.next_poll = 0.0, 0

    def run(self, requests: Iterable[Request], *, clients: int = 0) -> list[Served]:
        """Serve them all. ``clients``: at most so many are alive at once, the next is sent when one ends, not before it arrives.

        Requests that all arrive at 0 make a closed loop.
        """
        lives = [Live(i, r) for i, r in enumerate(requests)]
        self.coming = deque(self._sent(live, live.arrival) for live in (lives[:clients] if clients else lives))
        self.idle = deque(lives[clients:] if clients else ())
        while self.alive:
            self.advance()
            for _ in range(min(self.ended(), len(self.idle))):
                self._send_next()
        return self.served

    @property
    def alive(self) -> bool:
        """Whether it has requests, or knows of some that will come."""
        return bool(self.coming or self.waiting or self.prefilling or self.batch)

    def advance(self, until_s: float = inf) -> None:
        """One step of prompts, or decode steps to the next event, past ``until_s`` by one step at most; idle, to what comes."""
        self._receive()
        if self._prompts_step():
            return
        if self.batch:
            self._decodes(min(until_s, self.coming[0].seen) if self.coming else until_s)
        elif self.coming:
            self.now = max(self.now, self.coming[0].seen)

    def _send_next(self) -> None:
        """A client whose request has ended sends the next one, when it has come."""
        live = self.idle.popleft()
        self.coming.append(self._sent(live, max(live.arrival, self.now + self.rule.return_s)))

    def _sent(self, live: Live, at_s: float) -> Live:
        """A request that a client sends at that time, and the time at which the scheduler sees it."""
        live.arrival = at_s
        begun = max(at_s, self.front)
        self.front = begun + self.rule.front_s
        live.seen = begun + self.rule.ingest_s + self.rule.ingest_token_s * live.todo
        return live

    def _receive(self) -> None:
        """Requests that have come in: all up to now, or up to the last step's start where the next is composed ahead."""
        seen = self.began if self.rule.lookahead and self.batch else self.now
        while self.coming and self.coming[0].seen <= seen:
            self.waiting.append(self.coming.popleft())

    def _admit(self, room: int) -> list[tuple[Live, int]]:
        """Prompts of this step, each with its tokens: those begun first, then waiting ones while seats and cache last."""
        taken: list[tuple[Live, int]] = []
        for live in self.prefilling:
            if room <= 0:
                return taken
            part = min(room, live.todo)
            taken.append((live, part))
            room -= part
        while self.waiting and room > 0 and self.batch + len(self.prefilling) < self.seats:
            live = self.waiting[0]
            held = self.context + self.prefilled + self.batch * self.rule.spare_tokens + self.kept
            if held + live.past + live.todo > self.pool and (self.batch or self.prefilling):
                break
            self.waiting.popleft()
            self.prefilling.append(live)
            self.prefilled += live.past + live.todo
            part = min(room, live.todo)
            taken.append((live, part))
            room -= part
        return taken

    def _prompts_step(self) -> bool:
        """One step that holds prompt tokens, with the decodes beside them where the engine mixes. False: no prompt waits."""
        if not self.prefilling and (not self.waiting or self._unread()):
            return False
        decoding = self.batch if self.rule.mixes else 0
        taken = self._admit(self.budget - decoding * self.verified)
        if not taken:
            return False
        self._pass(self._prompts_s(taken, decoding), 1 if decoding else 0)
        held = self.rule.ahead + self.step.on.first_steps
        late = held * self._plain_s() if held else 0.0
        for live, part in taken:
            live.past += part
            live.todo -= part
            if not live.todo:
                self._start(live, late)
        return True

    def _unread(self) -> bool:
        """Whether the scheduler, which looks at its queue every ``poll_steps`` decode steps, does not see new requests yet."""
        if not self.polls or not self.batch or self.steps >= self.next_poll:
            self.next_poll = self.steps + self.polls
            return False
        return True

    def _prompts_s(self, taken: list[tuple[Live, int]], decoding: int) -> float:
        """Seconds of that step: prompts are dealt out over data-parallel ranks, the fullest decides."""
        share = min(self.ranks, len(taken))
        tokens = sum(part for _, part in taken)
        ending = sum(part == live.todo for live, part in taken) + decoding * self.verified
        own = decoding * self.verified / self.ranks
        parts = [self.prefill_s(part, live.past) for live, part in taken]
        seconds = sum(more for more, _ in parts) / share + max(launch for _, launch in parts)
        if self.load.encode_s:
            seconds += self.load.encode_s * sum(not live.encoded for live, _ in taken) / share
            for live, _ in taken:
                live.encoded = True
        seconds += self.step.rows_seconds(
            tokens / share + own, ending / share, everyone=tokens + decoding * self.verified, prefills=True
        )
        seconds += self.decode_s(decoding, self.context, beside=True) if decoding else 0.0
        host = self.step.host_seconds(decoding / self.ranks + len(taken) / share)
        return float(self.step.floored(seconds, prompt_tokens=tokens) + host)

    def _start(self, live: Live, late: float) -> None:
        """A prompt is done: its first token is out, the rest is decoded."""
        self.prefilling.remove(live)
        self.prefilled -= live.past
        if live.first < 0:
            live.first = self.now + late
            live.left -= 1
        if live.left <= 0:
            self._finish(live)
        else:
            self._seat(live)

    def _seat(self, live: Live) -> None:
        """Its cache is here: from the next step on it decodes."""
        live.start = self.steps
        heapq.heappush(self.running, (self.steps + ceil(live.left / self.gain), live.index, live))
        self.batch += 1
        self.context += live.past

    def _decodes(self, until: float) -> None:
        """Decode steps of one composition: to the next end, the next arrival or the cache's limit."""
        seconds = self._plain_s()
        steps = max(1, self.running[0][0] - self.steps)
        if until < inf:
            steps = min(steps, max(1, ceil((until - self.now) / seconds) + self.rule.lookahead))
        room = (self.pool - self.context - self.prefilled) / (self.batch * self.gain)
        if room < 1 and self.batch > 1:
            self._preempt()
            return
        if self.polls and self.waiting:
            steps = min(steps, max(1, self.next_poll - self.steps))
        steps = max(1, int(min(steps, max(1.0, room))))
        if steps > 2:
            seconds = self._plain_s(self.context + self.batch * self.gain * steps / 2)
        self._pass(seconds * steps, steps)

    def _plain_s(self, context: float = 0.0) -> float:
        """Seconds of a step of decodes alone."""
        if not self.batch:
            return 0.0
        rows = self.batch * self.verified
        gpu = self.step.rows_seconds(rows / self.ranks, rows / self.ranks, everyone=rows)
        gpu += self.decode_s(self.batch, context or self.context)
        past = (context or self.context) / self.batch
        return float(self.step.floored(gpu, context=past) + self.step.host_seconds(self.batch / self.ranks) + self.draft_s)

    def _pass(self, seconds: float, steps: int) -> None:
        self.now += seconds
        self.began = self.now - seconds / max(1, steps)
        self.busy += seconds
        self.steps += steps
        self.context += self.batch * self.gain * steps

    def ended(self) -> int:
        """Take out what has produced its last token."""
        ended = 0
        while self.running and self.running[0][0] <= self.steps:
            live = heapq.heappop(self.running)[2]
            self.batch -= 1
            self.context -= live.past + (self.steps - live.start) * self.gain
            self._finish(live)
            ended += 1
        if not self.batch:
            self.context = 0.0
        return ended

    def _finish(self, live: Live) -> None:
        self.served.append(Served(live.arrival, live.first - live.arrival, self.now - live.arrival, live.out, live.preempted))

    def _preempt(self) -> None:
        """The youngest gives its cache up and starts again with what it has produced as part of its prompt (vLLM, recompute)."""
        place = max(range(len(self.running)), key=lambda i: self.running[i][2].arrival)
        live = self.running[place][2]
        self.running[place] = self.running[-1]
        self.running.pop()
        heapq.heapify(self.running)
        produced = (self.steps - live.start) * self.gain
        self.batch -= 1
        self.context -= live.past + produced
        live.left = max(1.0, live.left - produced)
        live.todo, live.past = int(live.past + produced), 0
        live.preempted += 1
        self.waiting.appendleft(live)

    def decode_s(self, batch: int, context: float, *, beside: bool = False) -> float:
        """Seconds that decoding sequences add, linear between remembered contexts; ``beside`` a prompt or alone."""
        mean = max(1.0, context / batch)
        place = log(mean) * _BINS
        low = int(place)
        first, second = self._decode_at(batch, low, beside), self._decode_at(batch, low + 1, beside)
        return first + (second - first) * (place - low)

    def _decode_at(self, batch: int, place: int, beside: bool) -> float:
        key = (batch, place, beside)
        found = self._decode.get(key)
        if found is None:
            past = 2.718281828459045 ** (place / _BINS)
            one = Batch(decodes=batch / self.ranks, decode_past=past, decode_tokens=self.verified)
            found = self._decode[key] = self.step.decode_seconds(one, beside=beside)
        return found

    def prefill_s(self, new: int, past: int) -> tuple[float, float]:
        """Seconds that one prompt's part adds to a step, beyond its rows, and those that a step with prompts has but once.

        All prompts of a step go through one call of each kernel. Lengths are rounded to 2 % to be remembered.
        """
        key = (_near(new), _near(past))
        found = self._prefill.get(key)
        if found is None:
            one, two = (
                self.step.prefill_seconds(Batch(prefills=count, prefill_tokens=key[0], prefill_past=key[1])) for count in (1, 2)
            )
            found = self._prefill[key] = (two - one, 2 * one - two)
        return found


def simulate(step: Step, load: Load, *, copies: int = 1, count: int = 0, seed: int = 0) -> list[Served]:
    """What becomes of the load's requests on one of ``copies`` equal replicas, the first tenth left out as warm-up."""
    number = count or (len(load.trace) if load.trace else max(_COUNT, 12 * load.concurrency // copies))
    clients = -(-load.concurrency // copies) if load.concurrency and not load.trace else 0
    served = Server(step, load).run(drawn(load, number, seed=seed, replicas=copies), clients=clients)
    return served if load.trace else served[len(served) // 10 :]


def _near(tokens: int) -> int:
    """The length rounded to 6 significant bits."""
    if tokens < 64:
        return tokens
    shift = tokens.bit_length() - 6
    return (tokens + (1 << (shift - 1))) >> shift << shift
