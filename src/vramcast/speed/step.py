"""One engine step: the sum of its operations and the host's share, as a number for schedulers and as a ledger for people.

Seconds split in three: what depends on rows alone (kept per number of rows), what decoding sequences add with their context, what
prefilling sequences add. The ledger has the same sum: layer kind, then operator, each with the law that was asked.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any

from msgspec.structs import replace

from vramcast.ledger import Term
from vramcast.models.operations import (
    Batch,
    Exchange,
    ExpertProducts,
    Linear,
    Operation,
    Pointwise,
    Recurrence,
)  # fmt: skip
from vramcast.quantity import Number, is_array, maximum, minimum
from vramcast.speed.deployment import Deployment
from vramcast.speed.kernels.law import Estimate
from vramcast.speed.scales import Scales
from vramcast.speed.stream_rows import Stream
from vramcast.speed.streams import StepOverhead, StreamClock, overhead_of, stream_of
from vramcast.speed.timing import Clock
from vramcast.units import gib, time_text

# Batch sizes that engines capture graphs for: 1, 2, 4, then multiples of 8 to 256 and of 16 beyond.
_FINE, _COARSE = 256, 512
_MOST_KEPT = 50_000
_MICRO_BATCH = 512
# A chunked scan (convolution, gates, cumulative sums, triangular solve, states, outputs) is so many kernels, most of them
# Triton's (fla/ops in SGLang 0.5.9 and vLLM 0.17); sparse attention's are in its law, measured from Python.
_SCAN_KERNELS = 40


class Step:
    """Steps of one deployment. ``seconds`` answers schedulers, ``ledger`` people; rows are remembered between calls."""

    def __init__(self, deployment: Deployment, *, stream: Stream | None = None) -> None:
        self.on = deployment
        self.stream = stream or stream_of(deployment.engine.engine, deployment.card, deployment.version)
        self.clock = Clock(deployment)
        self._streams = (
            StreamClock(self.stream, deployment.card, deployment.places, micro_rows=deployment.micro_rows)
            if self.stream
            else None
        )
        found = deployment.operations
        self.beside = self._beside(found)
        self.by_rows = tuple(one for one in found if not _by_context(one))
        self.by_context = tuple(one for one in found if _by_context(one))
        self.rows_s: dict[tuple[int, int, int], float] = {}
        self.tables: dict[tuple[str, int], Any] = {}  # what speed/many.py remembers
        self._added_s: dict[tuple[Any, ...], float] = {}
        self.ranks = deployment.split.attention_dp
        self._plain = deployment.scales == Scales()
        self.launches = sum(one.count * self._kernels(one) for one in found)

    def under(self, *, chunk_tokens: Number, max_seqs: Number) -> "Step":
        """The same steps under other limits of the scheduler (numbers or arrays), no limit of the cache; rows are shared."""
        other = copy(self)
        other.on = replace(self.on, chunk_tokens=chunk_tokens, max_seqs=max_seqs, pool_tokens=0, pool_sequences=0)
        return other

    def remember_as(self, other: "Step") -> None:
        """Rows are remembered together with a step that differs in its cache alone."""
        self.rows_s, self.tables = other.rows_s, other.tables

    @staticmethod
    def rounded_rows(rows: float) -> int:
        """Rows to what a law can tell apart, where a step has prompts."""
        return _rounded(rows)

    @staticmethod
    def meets(one: Operation) -> bool:
        """Whether data-parallel ranks' rows meet in it."""
        return isinstance(one, ExpertProducts)

    def _beside(self, found: tuple[Operation, ...]) -> StepOverhead | None:
        """What an engine without kernel tables adds to its operations, at the machine's own host factor."""
        if self.stream is None:
            return None
        bare = overhead_of(self.stream, found, layers=self.on.model.layers, hops=self.on.hops, places=self.on.places)
        factor = self.on.scales.host
        return replace(bare, host_s=bare.host_s * factor, gpu_s=bare.gpu_s * factor)

    def seconds(self, batch: Batch) -> Number:
        """Seconds of one step of all data-parallel ranks together, host included; the batch is spread over them.

        The batch's numbers may be arrays, one element per step.
        """
        if is_array(batch.tokens):
            from vramcast.speed.many import seconds_of_many

            return seconds_of_many(self, batch)
        own = batch.times(1 / self.ranks)
        gpu = self.rows_seconds(own.tokens, own.sampled, everyone=batch.tokens, prefills=batch.prefills > 0)
        if batch.decodes:
            gpu += self.decode_seconds(own, beside=batch.prefills > 0)
        if batch.prefills:
            gpu += self.prefill_seconds(own)
        busy = self.floored(gpu, prompt_tokens=batch.prefill_rows, context=batch.decode_past)
        return busy + self.host_seconds(own.decodes + own.prefills)

    def floored(self, gpu_seconds: Number, *, prompt_tokens: float = 0, context: Number = 0) -> Number:
        """What the GPU's time becomes outside a graph: gaps between kernels of a prompt's step, a constant for each layer.

        A step of decodes outside a graph (``context`` is what they look back on) takes at least what its launches take.

        Gaps add to the GPU's time whatever the length of a prompt: every layer waits for its ranks and its small kernels. A
        prompt on layers that lie on several cards runs as a pipeline of micro-batches over them.
        """
        if self.stream and self.beside:
            spread = self._piped(prompt_tokens) if self.on.hops and prompt_tokens else 1.0
            busy, host = gpu_seconds * spread + self.beside.gpu_s, self.beside.host_s
            return maximum(busy, host) if self.stream.eager and not self.beside.waits else busy + host
        if not prompt_tokens:
            return maximum(gpu_seconds, self._launched(context))
        host = self.on.engine.prefill_launch_s * self.launches * self.on.scales.host
        return maximum(gpu_seconds, host) if self.on.engine.runs_ahead else gpu_seconds + host

    def _launched(self, context: Number) -> Number:
        """Host time of launching a decode step's kernels one by one; 0 in a graph."""
        rule = self.on.engine
        alone = 1.0 if self.on.eager else (context > rule.captured_tokens) * 1.0
        return rule.launch_s * self.launches * self.on.scales.host * alone

    def _piped(self, tokens: Number) -> Number:
        """Share of the time that m micro-batches over n cards take: (m + n - 1) / (m n) (llama.cpp, -sm layer, -ub 512).

        Micro-batches of one batch (-b 2048) alone overlap: 4090 x2, x4, x8 prefill an 8B model 1.6, 2.4 and 2.9 times as fast.
        """
        parts, cards = (
            maximum(1.0, minimum(tokens, self.on.chunk_tokens) / (self.on.micro_rows or _MICRO_BATCH)),
            self.on.hops + 1,
        )
        return (parts + cards - 1) / (parts * cards)

    def _kernels(self, one: Operation) -> float:
        """Kernels that an engine launches for an operation of a prompt outside a graph: 8 or 4 bits are quantised to first."""
        if isinstance(one, Pointwise):
            return one.kernels
        if isinstance(one, Linear) and not self.stream and self.clock.quantises(one):
            return 2
        return _SCAN_KERNELS if isinstance(one, Recurrence) else 1

    def host_seconds(self, sequences: Number) -> Number:
        """What the GPU waits for: a constant and a part for each sequence."""
        own = (self.on.engine.host_s + self.on.engine.sequence_s * sequences) * self.on.scales.host
        return own + self.on.streamed_s if self.on.streamed_bytes else own

    def rows_seconds(self, tokens: float, sampled: float, *, everyone: float = 0, prefills: bool = False) -> float:
        """Seconds of everything that sees rows only, for that many rows and rows of logits on a rank.

        ``everyone``: rows of all data-parallel ranks, which meet in shared experts.
        """
        rounded = _rounded if prefills else self.padded
        rows, logits = rounded(tokens), max(1, self.padded(sampled))
        key = (rows, logits, rounded(max(tokens, everyone)) if self.ranks > 1 else rows)
        if key not in self.rows_s:
            batch = Batch(prefills=rows, prefill_tokens=1, finishing=logits)
            meeting = Batch(prefills=key[2] / self.ranks, prefill_tokens=1)
            self.rows_s[key] = sum(self.operation_seconds(one, meeting if self.meets(one) else batch) for one in self.by_rows)
        return self.rows_s[key]

    def seconds_of(self, found: Iterable[Operation], batch: Batch) -> float:
        """Seconds of operations beside the decoder's (a tower's) on a batch of prompts, launched one by one."""
        gpu, kernels = 0.0, 0.0
        for one in found:
            estimate = self._prefill(one, batch) if _by_context(one) else None
            each = (estimate,) if estimate else () if _by_context(one) else self.estimates(one, batch)
            gpu += float(one.count * _times(one) * sum(e.seconds for e in each))
            kernels += one.count * self._kernels(one)
        host = 0.0 if self.stream else self.on.engine.prefill_launch_s * kernels * self.on.scales.host
        return max(gpu, host) if self.on.engine.runs_ahead else gpu + host

    def operation_seconds(self, one: Operation, batch: Batch) -> Number:
        """Seconds of an operation that sees rows only, all its layers and kernels."""
        return one.count * _times(one) * sum(e.seconds for e in self.estimates(one, batch))

    def decode_seconds(self, batch: Batch, *, beside: bool = False) -> Number:
        """What decoding sequences add: attention over caches, states, absorbed latent products; ``beside`` a prompt or alone."""
        key = ("decode", batch.decodes, batch.decode_past, batch.decode_tokens, beside)
        return self._added(key, _only_decodes(batch, beside=beside), self._decode)

    def prefill_seconds(self, batch: Batch) -> Number:
        """What prefilling sequences add: attention over their own tokens and past, states, latent up-projections."""
        key = ("prefill", batch.prefills, batch.prefill_tokens, batch.prefill_past)
        return self._added(key, _only_prefills(batch), self._prefill)

    def _added(self, key: tuple[Any, ...], batch: Batch, estimate: Callable[[Operation, Batch], Estimate | None]) -> Number:
        if is_array(batch.tokens):
            return sum(one.count * e.seconds for one in self.by_context if (e := estimate(one, batch)))
        found = self._added_s.get(key)
        if found is None:
            found = sum(one.count * e.seconds for one in self.by_context if (e := estimate(one, batch)))
            if len(self._added_s) < _MOST_KEPT:
                self._added_s[key] = found
        return found

    def padded(self, rows: float) -> int:
        """Rows of the smallest captured graph that holds them, where the engine pads."""
        whole = max(1, round(rows))
        if not self.on.engine.pads or whole > _COARSE:
            return _rounded(whole)
        for few in (1, 2, 4, 8):
            if whole <= few:
                return few
        step = 8 if whole <= _FINE else 16
        return -(-whole // step) * step

    def ledger(self, batch: Batch) -> Term:
        """The step as a tree of seconds: layer kind, operator, law; its sum is ``seconds`` but for the padding of graphs."""
        parts: dict[str, list[Term]] = {}
        for one, estimates in self._all(batch):
            for estimate in estimates:
                parts.setdefault(one.part, []).append(_term(one, estimate))
        terms = [Term.total(name, found) for name, found in parts.items()]
        bare = sum(t.seconds for t in terms)
        more = self.floored(bare, prompt_tokens=batch.prefill_rows, context=batch.decode_past) - bare
        if more:
            terms.append(
                Term(name="launch", seconds=more, why=self._launch_why(batch), source=self.stream.source if self.stream else "")
            )
        return Term.total("step", (*terms, self._host_term(batch)))

    def _launch_why(self, batch: Batch) -> str:
        if self.stream and self.beside:
            kind = "of host time that the GPU's hides" if self.stream.eager and not self.beside.waits else "of host time"
            each = f"{self.on.model.layers} layers x {time_text(self.stream.layer_s)} and what its modules add"
            return f"{time_text(self.beside.host_s)} {kind} ({each}), {time_text(self.beside.gpu_s)} of small kernels and hops"
        if not batch.prefill_rows:
            return (
                f"{self.launches:,.0f} kernels launched one by one x {time_text(self.on.engine.launch_s)}, longer than they run"
            )
        return f"{self.launches:,.0f} kernels launched one by one x {time_text(self.on.engine.prefill_launch_s)} between them"

    def binding(self, batch: Batch) -> dict[str, float]:
        """Seconds of the step by what binds them: bandwidth, compute, launch, unit, link, host."""
        own = self.host_seconds(batch.decodes + batch.prefills) - self.on.streamed_s
        found: dict[str, float] = {"host": own, "link to the host": self.on.streamed_s}
        for one, estimates in self._all(batch):
            for estimate in estimates:
                what = "link" if isinstance(one, Exchange) and estimate.binds != "launch" else estimate.binds
                found[what] = found.get(what, 0.0) + one.count * _times(one) * float(estimate.seconds)
        gpu = sum(found.values()) - found["host"] - found["link to the host"]
        found["launch"] = (
            found.get("launch", 0.0) + self.floored(gpu, prompt_tokens=batch.prefill_rows, context=batch.decode_past) - gpu
        )
        return found

    def _host_term(self, batch: Batch) -> Term:
        rule, sequences = self.on.engine, batch.decodes + batch.prefills
        why = f"{time_text(rule.host_s)} a step + {time_text(rule.sequence_s)} x {sequences:,.0f} sequences ({rule.engine})"
        if self.on.streamed_bytes:
            why += f", and {time_text(self.on.streamed_s)} for {gib(self.on.streamed_bytes)} of weights over the link to the host"
        return Term(name="host", seconds=self.host_seconds(sequences), why=why, source=rule.source)

    def _all(self, batch: Batch) -> Iterator[tuple[Operation, tuple[Estimate, ...]]]:
        for one in self.by_rows:
            yield one, self.estimates(one, batch)
        for one in self.by_context:
            found = (
                self._decode(one, batch) if batch.decodes else None,
                self._prefill(one, batch) if batch.prefills else None,
            )
            yield one, tuple(e for e in found if e)

    def _scaled(self, found: Estimate | None) -> Estimate | None:
        """The estimate on this very machine: its seconds by the factor of what binds it."""
        if found is None or self._plain:
            return found
        factor = self.on.scales.of(found.binds)
        parts = {name: value * factor for name, value in found.parts.items()}
        return replace(found, seconds=found.seconds * factor, parts=parts)

    def estimates(self, one: Operation, batch: Batch) -> tuple[Estimate, ...]:
        """What the laws say of an operation that sees rows only."""
        if isinstance(one, Exchange) and one.collective == "all_to_all":
            return self.clock.spread(one, batch)
        if self._streams and not isinstance(one, Exchange):
            streamed = None if isinstance(one, Pointwise) else self._scaled(self._streams.estimate(one, batch))
            return (streamed,) if streamed else ()
        found = self._scaled(self.clock.rows(one, batch))
        return (found,) if found else ()

    def _decode(self, one: Operation, batch: Batch) -> Estimate | None:
        if isinstance(one, Linear) and one.rows != "decodes":
            return None
        if self._streams:
            return self._scaled(self._streams.estimate(one, _only_decodes(batch)))
        return self._scaled(self.clock.rows(one, batch) if isinstance(one, Linear) else self.clock.decode(one, batch))

    def _prefill(self, one: Operation, batch: Batch) -> Estimate | None:
        if isinstance(one, Linear) and one.rows != "keys":
            return None
        if self._streams:
            return self._scaled(self._streams.estimate(one, _only_prefills(batch)))
        return self._scaled(self.clock.rows(one, batch) if isinstance(one, Linear) else self.clock.prefill(one, batch))


def _only_decodes(batch: Batch, *, beside: bool = False) -> Batch:
    """The decodes of a batch; ``beside``: with a prompt of no length, which kernels that take both in one call see."""
    found = Batch(decodes=batch.decodes, decode_past=batch.decode_past, decode_tokens=batch.decode_tokens)
    return replace(found, prefills=1) if beside else found


def _only_prefills(batch: Batch) -> Batch:
    return Batch(prefills=batch.prefills, prefill_tokens=batch.prefill_tokens, prefill_past=batch.prefill_past)


def _by_context(one: Operation) -> bool:
    if isinstance(one, Linear):
        return one.rows in ("decodes", "keys")
    return type(one).__name__ in ("Scores", "LatentScores", "Indexing", "Recurrence")


def _times(one: Operation) -> float:
    return one.kernels if isinstance(one, Pointwise) else 1


def _rounded(rows: float) -> int:
    """Rows to a multiple of 16 up to 1,024 and of 64 beyond: what a law can tell apart, and few enough to remember."""
    whole = max(1, round(rows))
    if whole <= 16:
        return whole
    step = 16 if whole <= 1024 else 64
    return -(-whole // step) * step


def _term(one: Operation, estimate: Estimate) -> Term:
    runs: Any = one.count * _times(one)
    return Term(
        name=one.name,
        seconds=runs * float(estimate.seconds),
        why=lambda: f"{runs:g} x {estimate.why}",
        source=estimate.law.source,
    )
