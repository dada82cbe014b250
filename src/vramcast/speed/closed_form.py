"""Steady state of a load on a server by arithmetic: Little's law and the share of time that prompts take, solved by iteration.

B sequences decode together; each of their steps is lengthened by the prompts that arrive meanwhile. With X requests a second, a
prompt's marginal time p and a decode step's time d(B): ``TPOT = d(B) / (1 - X p)``, ``B = X * output * TPOT`` (Little). In a
closed loop of C clients X follows from C = X * (TTFT + output * TPOT). Queueing before the first token is that of one server
with random arrivals (Pollaczek-Khinchine). Clients whose requests all have one length (``spread`` 0) do not meet at random: they
end together and their prompts come together, wave after wave. For percentiles and a first wave run the simulation.

Clients, replicas and the scheduler's limits may be arrays, one element per deployment; the figures are arrays then.
"""

from functools import cached_property
from math import inf

import msgspec

from vramcast.models.operations import Batch
from vramcast.quantity import Number, ceiling, is_array, is_nothing, maximum, minimum, where
from vramcast.speed.deployment import Deployment
from vramcast.speed.load import Load
from vramcast.speed.step import Step

FULL = 0.98  # of the largest rate: beyond it queues grow without end, and no steady state is told
_ROUNDS = 24
_CYCLES, _TRAIL = 3, 3  # of a closed loop: two steps and the point they lead to
_MOVED = 1e-9


class Steady(msgspec.Struct, frozen=True, kw_only=True):
    """A load's steady state on one replica: times of a request, requests a second, sequences alive, and what they were made of.

    ``decode_s``: a step of decodes alone; ``prompt_s``: what one prompt adds to the step that takes it; ``prefill_s``: a prompt
    alone on an idle server; ``busy``: share of time that prompts take. ``most_per_s``: the largest rate that does not grow a
    queue.
    """

    ttft_s: Number
    tpot_s: Number
    requests_per_s: Number
    batch: Number
    decode_s: Number
    prompt_s: Number
    prefill_s: Number
    busy: Number
    most_per_s: Number


def steady(step: Step, load: Load, *, replicas: Number = 1, largest: bool = True) -> Steady:
    """The steady state of one of ``replicas`` equal servers (pipeline stages count as such: each holds a micro-batch).

    ``largest``: whether the largest rate is worked out too, which a closed loop does not need; infinite without.
    """
    solver = _Solver(step, load)
    most = solver.most_per_s() if largest or load.rate_per_s else inf
    if load.rate_per_s:
        return solver.open(load.rate_per_s / replicas, most)
    clients = maximum(1.0, load.concurrency / replicas)
    if load.output <= 1:
        return solver.prompts(clients, most)
    return solver.closed(clients, most) if load.spread else solver.waves(clients, most)


def room_of(on: Deployment, load: Load, ranks: int) -> Number:
    """Sequences of the load that seats, cache and states of a replica hold at once; ``ranks``: that hold different sequences."""
    by_cache = inf if is_nothing(on.pool_tokens) else on.pool_tokens / (load.prompt + max(1.0, load.output) / 2)
    by_state = inf if is_nothing(on.pool_sequences) else on.pool_sequences
    return maximum(1.0, ranks * minimum(on.max_seqs, by_cache, by_state))


def _still(before: Number, after: Number) -> bool:
    """Whether a step moved nothing any more, to nine digits."""
    moved = abs(after - before) <= _MOVED * after
    return bool(moved.all()) if is_array(moved) else bool(moved)


def _limit(first: Number, second: Number, third: Number) -> Number:
    """Where three steps of a sequence lead that nears its end by one factor a step (Aitken's delta-squared).

    The damped steps of a closed loop halve what is left each time, so two of them and this one do the work of ten. Where the
    steps do not shrink (rows that jump to the next captured graph) the third stays.
    """
    before, after = second - first, third - second
    bend = after - before
    if not is_array(bend):
        return third - after * after / bend if bend and abs(after) <= abs(before) else third
    import numpy as np

    shrinks = (np.abs(after) <= np.abs(before)) & (bend != 0)
    return np.where(shrinks, third - after * after / np.where(shrinks, bend, 1.0), third)


class _Solver:
    """One step and one load while they are solved."""

    def __init__(self, step: Step, load: Load) -> None:
        self.step, self.load, self.rule = step, load, step.on.engine
        self.new = max(1.0, load.prompt * (1 - load.cached))
        self.past = load.prompt * load.cached
        self.output = max(1.0, load.output)
        self.context = load.prompt + self.output / 2
        self.ranks = step.ranks

    def room(self) -> Number:
        """Sequences that seats and cache allow."""
        return room_of(self.step.on, self.load, self.ranks)

    def decode_s(self, batch: Number) -> Number:
        """Seconds of a step of so many decodes, over tokens gained."""
        return self._with_drafts(self._decodes_s(maximum(1.0, batch)))

    def _decodes_s(self, batch: Number) -> Number:
        """Seconds of a step of so many decodes."""
        return self.step.seconds(Batch(decodes=batch, decode_past=self.context, decode_tokens=self.load.verified))

    def _with_drafts(self, decodes_s: Number) -> Number:
        draft = self.load.drafting
        drafting = draft.draft_s * draft.tokens if draft else 0.0
        return (decodes_s + drafting) / self.load.per_step

    def _both_s(self, batch: Number, others: Number) -> tuple[Number, Number]:
        """``decode_s(batch)``, and a step of the others alone where prompts mix with it; arrays go as one through the laws."""
        if not (is_array(batch) and self.rule.mixes):
            return self.decode_s(batch), None
        import numpy as np

        found = self._decodes_s(np.concatenate([maximum(1.0, batch), others]))
        return self._with_drafts(found[: len(batch)]), found[len(batch) :]

    def prompt_s(self, batch: Number, together: Number = 1.0, *, alone_s: Number = None) -> Number:
        """What one prompt adds: the step with it and the decodes less the decodes', or all of it where prompts go alone.

        ``alone_s``: the step of the decodes, where it is known.
        """
        chunk = self.step.on.chunk_tokens * self.ranks
        parts = maximum(1.0, self.new / chunk)
        first = Batch(
            prefills=together, prefill_tokens=self.new / parts, prefill_past=self.past + (self.new - self.new / parts) / 2
        )
        few = is_nothing(batch >= 1) if is_array(batch) else batch < 1
        if not self.rule.mixes or few:
            return parts * self.step.seconds(first) / together + self.load.encode_s
        mixed = msgspec.structs.replace(first, decodes=batch, decode_past=self.context, decode_tokens=self.load.verified)
        alone_s = self._decodes_s(batch) if alone_s is None else alone_s
        more = parts * (self.step.seconds(mixed) - alone_s) / together + self.load.encode_s
        if not is_array(batch) or is_nothing(batch < 1):
            return more
        return where(batch < 1, parts * self.step.seconds(first) / together + self.load.encode_s, more)

    def most_per_s(self) -> Number:
        """Requests a second with every seat taken and prompts filling their steps: 1 / (p + output * d(B) / B)."""
        batch = self.room()
        if self.load.output <= 1:  # the prompt's own step makes the one token
            return self._of_prompts(batch)
        together = maximum(1.0, self._half_a_step())
        return 1 / (self.prompt_s(batch, together) + self.output * self.decode_s(batch) / batch)

    def _half_a_step(self) -> Number:
        """Prompts that a step's tokens hold, halved: the next one is cut, and its rest begins the step after."""
        return self.step.on.chunk_tokens * self.ranks / self.new / 2

    def _of_prompts(self, seats: Number) -> Number:
        """Requests a second where prompts alone fill the steps, so many at most."""
        return 1 / self.prompt_s(0.0, maximum(1.0, minimum(seats, self._half_a_step())))

    def open(self, rate: Number, most: Number) -> Steady:
        """Random arrivals at a rate; beyond the largest rate the state at that rate."""
        asked, room = minimum(rate, FULL * most), self.room()
        batch: Number = 1.0
        for _ in range(_ROUNDS):
            decode, prompt = self.decode_s(batch), self.prompt_s(batch)
            busy = minimum(0.97, asked * prompt)
            tpot = decode / (1 - busy)
            batch = minimum(room, 0.5 * batch + 0.5 * asked * self.output * tpot)
        found = self._steady(batch, decode=decode, prompt=prompt, busy=busy, rate=asked, most=most, met=batch)
        seated = maximum(decode, room / (asked * self.output))
        return msgspec.structs.replace(found, tpot_s=minimum(found.tpot_s, seated))

    def closed(self, clients: Number, most: Number) -> Steady:
        """So many clients, each asking again when its answer is done."""
        seats = minimum(clients, self.room())
        batch, rate = seats, 0.0
        trail = [batch]
        for done in range(_ROUNDS):
            others = maximum(0.0, batch - 1)
            decode, alone_s = self._both_s(batch, others)
            prompt = self.prompt_s(others, self._together(rate), alone_s=alone_s)
            tpot = decode + others * prompt / self.output
            alone = self._idle_s(prompt)
            rate = batch / (self.output * tpot + alone)
            batch = maximum(1.0, minimum(seats, 0.5 * batch + 0.5 * (seats - rate * alone)))
            trail.append(batch)
            if done >= _TRAIL and _still(trail[-2], batch):
                break
            if len(trail) == _TRAIL and done < 2 * _CYCLES:
                batch = maximum(1.0, minimum(seats, _limit(*trail)))
                trail = [batch]
        busy = minimum(0.97, rate * prompt)
        queue = where(clients > seats, (clients - seats) / rate, 0.0)
        others = maximum(0.0, batch - 1)
        found = self._steady(batch, decode=decode, prompt=prompt, busy=busy, rate=rate, most=most, met=others)
        return msgspec.structs.replace(found, tpot_s=tpot, ttft_s=found.ttft_s + queue)

    def prompts(self, clients: Number, most: Number) -> Steady:
        """So many clients that ask for one token: prompts alone, no sooner than full steps of them; who waits, waits for it."""
        seats = minimum(clients, self.room())
        prompt, alone = 1 / self._of_prompts(seats), self.prompt_s(0.0)
        rate = minimum(clients / self._idle_s(alone), minimum(1 / prompt, FULL * self._of_prompts(self.room())))
        return Steady(
            ttft_s=clients / rate - self.rule.return_s, tpot_s=self.decode_s(1.0), requests_per_s=rate, batch=seats,
            decode_s=self.decode_s(1.0), prompt_s=prompt, prefill_s=alone, busy=minimum(0.97, rate * prompt), most_per_s=most,
        )  # fmt: skip

    def waves(self, clients: Number, most: Number) -> Steady:
        """So many clients whose requests have one length.

        Their prompts fill n steps. An engine that runs prompts first runs all n of them before it decodes: the k-th step's
        requests wait for k. One that mixes starts as soon as the first client is back; groups of clients that end later find the
        groups before them in the queue, which stays as long as it was then.
        """
        rule, seats = self.rule, minimum(clients, self.room())
        chunk = self.step.on.chunk_tokens * self.ranks
        prompt = self.prompt_s(0.0, maximum(1.0, minimum(seats, chunk / self.new)))
        decode = self.decode_s(seats)
        one = decode * self.load.per_step
        groups = maximum(1.0, seats * self.new / chunk)
        each = seats * prompt / groups
        entry = rule.ingest_s + rule.ingest_token_s * self.new
        back = entry + rule.return_s
        queued = minimum(groups, 1 + rule.lookahead + ceiling(back / one)) if rule.mixes else groups
        ahead = queued - (queued * (queued - 1) / 2) / groups
        first = (1 - 1 / seats) * prompt if rule.front_s else 0.0  # whom the front end lets in first starts alone
        inside = maximum(ahead * each - first, rule.front_s * (seats - 1) / 2)
        ttft = entry + inside + (rule.ahead + self.step.on.first_steps) * one * minimum(1.0, groups - 1)
        slower = maximum(0.0, groups - ahead) * each if rule.mixes else (groups - 1) / 2 * each
        tpot = decode + slower / maximum(1.0, self.output - 1)
        rate = seats / (ttft + (self.output - 1) * tpot + rule.return_s)
        return Steady(
            ttft_s=ttft + where(clients > seats, (clients - seats) / rate, 0.0), tpot_s=tpot, requests_per_s=rate, batch=seats,
            decode_s=decode, prompt_s=prompt, prefill_s=self.prompt_s(0.0), busy=minimum(0.97, rate * prompt), most_per_s=most,
        )  # fmt: skip

    def _together(self, rate: Number) -> Number:
        """Prompts that share a step: those that come while one runs, no more than the step takes."""
        meanwhile = 0.0 if is_nothing(rate) else rate * self._prompt_alone_s
        return maximum(1.0, minimum(meanwhile, self.step.on.chunk_tokens * self.ranks / self.new))

    @cached_property
    def _prompt_alone_s(self) -> Number:
        """Seconds of a step of one whole prompt."""
        return self.step.seconds(Batch(prefills=1, prefill_tokens=self.new))

    def _idle_s(self, prompt_s: Number) -> Number:
        return self.rule.ingest_s + self.rule.ingest_token_s * self.new + self.rule.return_s + prompt_s

    def _steady(
        self, batch: Number, *, decode: Number, prompt: Number, busy: Number, rate: Number, most: Number, met: Number
    ) -> Steady:
        """``met``: sequences that a request meets: all under random arrivals, the others in a closed loop (arrival theorem)."""
        alone = self.prompt_s(0.0)
        step = decode * self.load.per_step
        front = minimum(0.97, rate * self.rule.front_s)
        entry = self.rule.ingest_s + self.rule.ingest_token_s * self.new + front * self.rule.front_s / (2 * (1 - front))
        polls = self.step.on.poll_steps / 2 * step
        held = self.rule.ahead + self.step.on.first_steps
        running = minimum(1.0, met)
        waits = (0.5 + self.rule.lookahead + held) * step * running + polls
        ahead = busy * met / maximum(1.0, batch)
        queue = ahead * maximum(prompt, alone) / (2 * (1 - ahead)) + ahead * maximum(prompt, alone) / 2
        taken = self.prompt_s(met) + where(met >= 1, step, 0.0) * self.rule.mixes
        return Steady(
            ttft_s=entry + waits + queue + maximum(alone, taken), tpot_s=decode / (1 - busy), requests_per_s=rate, batch=batch,
            decode_s=decode, prompt_s=prompt, prefill_s=alone, busy=busy, most_per_s=most,
        )  # fmt: skip
