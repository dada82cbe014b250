"""Steady state of a load on a server by arithmetic: Little's law and the share of time that prompts take, solved by iteration.

B sequences decode together; each of their steps is lengthened by the prompts that arrive meanwhile. With X requests a second, a
prompt's marginal time p and a decode step's time d(B): ``TPOT = d(B) / (1 - X p)``, ``B = X * output * TPOT`` (Little). In a
closed loop of C clients X follows from C = X * (TTFT + output * TPOT). Queueing before the first token is that of one server
with random arrivals (Pollaczek-Khinchine). For percentiles and start-up waves run the simulation.
"""

from math import inf

import msgspec

from vramcast.models.operations import Batch
from vramcast.speed.load import Load
from vramcast.speed.step import Step

_ROUNDS = 24


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """A load's steady state on one replica: times of a request, requests a second, sequences alive, and what they were made of.

    ``decode_s``: a step of decodes alone; ``prompt_s``: what one prompt adds to the step that takes it; ``prefill_s``: a prompt
    alone on an idle server; ``busy``: share of time that prompts take. ``most_per_s``: the largest rate that does not grow a
    queue.
    """

    ttft_s: float
    tpot_s: float
    requests_per_s: float
    batch: float
    decode_s: float
    prompt_s: float
    prefill_s: float
    busy: float
    most_per_s: float


def steady(step: Step, load: Load, *, replicas: int = 1) -> Steady:
    """The steady state of one of ``replicas`` equal servers (pipeline stages count as such: each holds a micro-batch)."""
    solver = _Solver(step, load)
    most = solver.most_per_s()
    if load.rate_per_s:
        return solver.open(load.rate_per_s / replicas, most)
    return solver.closed(max(1.0, load.concurrency / replicas), most)


class _Solver:
    """One step and one load while they are solved."""

    def __init__(self, step: Step, load: Load) -> None:
        self.step, self.load, self.rule = step, load, step.on.engine
        self.new = max(1.0, load.prompt * (1 - load.cached))
        self.past = load.prompt * load.cached
        self.output = max(1.0, load.output)
        self.context = load.prompt + self.output / 2
        self.ranks = step.ranks

    def room(self) -> float:
        """Sequences that seats and cache allow."""
        on = self.step.on
        by_cache = on.pool_tokens / (self.load.prompt + self.output / 2) if on.pool_tokens else inf
        by_state = on.pool_sequences or inf
        return max(1.0, self.ranks * min(on.max_seqs, by_cache, by_state))

    def decode_s(self, batch: float) -> float:
        """Seconds of a step of so many decodes, over tokens gained."""
        one = Batch(decodes=max(1.0, batch), decode_past=self.context, decode_tokens=self.load.verified)
        draft = self.load.drafting
        drafting = draft.draft_s * draft.tokens if draft else 0.0
        return (self.step.seconds(one) + drafting) / self.load.per_step

    def prompt_s(self, batch: float, together: float = 1.0) -> float:
        """What one prompt adds: the step with it and the decodes less the decodes', or all of it where prompts go alone."""
        chunk = self.step.on.chunk_tokens * self.ranks
        parts = max(1.0, self.new / chunk)
        first = Batch(
            prefills=together, prefill_tokens=self.new / parts, prefill_past=self.past + (self.new - self.new / parts) / 2
        )
        if not self.rule.mixes or batch < 1:
            return parts * self.step.seconds(first) / together
        mixed = msgspec.structs.replace(first, decodes=batch, decode_past=self.context, decode_tokens=self.load.verified)
        alone = Batch(decodes=batch, decode_past=self.context, decode_tokens=self.load.verified)
        return parts * (self.step.seconds(mixed) - self.step.seconds(alone)) / together

    def most_per_s(self) -> float:
        """Requests a second with every seat taken and prompts filling their steps: 1 / (p + output * d(B) / B)."""
        batch = self.room()
        together = max(1.0, self.step.on.chunk_tokens * self.ranks / self.new / 2)
        return 1 / (self.prompt_s(batch, together) + self.output * self.decode_s(batch) / batch)

    def open(self, rate: float, most: float) -> Steady:
        """Random arrivals at a rate; beyond the largest rate the state at that rate."""
        asked, batch = min(rate, 0.98 * most), 1.0
        for _ in range(_ROUNDS):
            decode, prompt = self.decode_s(batch), self.prompt_s(batch)
            busy = min(0.97, asked * prompt)
            tpot = decode / (1 - busy)
            batch = min(self.room(), 0.5 * batch + 0.5 * asked * self.output * tpot)
        return self._steady(batch, decode=decode, prompt=prompt, busy=busy, rate=asked, most=most)

    def closed(self, clients: float, most: float) -> Steady:
        """So many clients, each asking again when its answer is done."""
        seats = min(clients, self.room())
        batch, rate = seats, 0.0
        for _ in range(_ROUNDS):
            decode, prompt = self.decode_s(batch), self.prompt_s(max(0.0, batch - 1), self._together(rate))
            tpot = decode + max(0.0, batch - 1) * prompt / self.output
            alone = self._idle_s(prompt)
            rate = batch / (self.output * tpot + alone)
            batch = max(1.0, min(seats, 0.5 * batch + 0.5 * (seats - rate * alone)))
        busy = min(0.97, rate * prompt)
        queue = (clients - seats) / rate if clients > seats else 0.0
        found = self._steady(batch, decode=decode, prompt=prompt, busy=busy, rate=rate, most=most)
        return msgspec.structs.replace(found, tpot_s=tpot, ttft_s=found.ttft_s + queue)

    def _together(self, rate: float) -> float:
        """Prompts that share a step: those that come while one runs, no more than the step takes."""
        meanwhile = rate * self.step.seconds(Batch(prefills=1, prefill_tokens=self.new)) if rate else 0.0
        return max(1.0, min(meanwhile, self.step.on.chunk_tokens * self.ranks / self.new))

    def _idle_s(self, prompt_s: float) -> float:
        return self.rule.ingest_s + self.rule.ingest_token_s * self.new + self.rule.return_s + prompt_s

    def _steady(self, batch: float, *, decode: float, prompt: float, busy: float, rate: float, most: float) -> Steady:
        alone = self.prompt_s(0.0)
        step = decode * self.load.per_step
        entry = self.rule.ingest_s + self.rule.ingest_token_s * self.new
        polls = self.step.on.poll_steps / 2 * step
        held = self.rule.ahead + self.step.on.first_steps
        waits = (0.5 + self.rule.lookahead + held) * step * min(1.0, batch) + polls
        queue = busy * max(prompt, alone) / (2 * (1 - busy)) + busy * max(prompt, alone) / 2
        taken = self.prompt_s(batch) + (step if self.rule.mixes and batch >= 1 else 0.0)
        return Steady(
            ttft_s=entry + waits + queue + max(alone, taken), tpot_s=decode / (1 - busy), requests_per_s=rate, batch=batch,
            decode_s=decode, prompt_s=prompt, prefill_s=alone, busy=busy, most_per_s=most,
        )  # fmt: skip
