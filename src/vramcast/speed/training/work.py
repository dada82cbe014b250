"""The parts of a training step's time, each by its own law, before anything hides anything: products, scores, streams, exchanges.

Per micro-batch of the slowest pipeline stage, in seconds of a card that runs isolated kernels. What sustained training adds to
them (power, layouts, older kernels) is ``sustained.py``; what hides behind what is ``step.py``.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model, by_identity
from vramcast.models.operations import (
    Batch,
    Exchange,
    ExpertProducts,
    LatentScores,
    Linear,
    Operation,
    Pointwise,
    Scores,
    Split,
    operations,
)
from vramcast.models.quantization import scheme_for
from vramcast.speed.kernels import collectives
from vramcast.speed.kernels.gemm import elementwise, gemm
from vramcast.speed.kernels.law import Estimate
from vramcast.speed.kernels.machine import link, machine
from vramcast.speed.training.job import Job, Network

BACKWARD_SCORES = 2.5  # FlashAttention-2, arXiv 2307.08691: five products for two, the scores computed again
_HOST_ADAM_BYTES_PER_S = 60e9  # DeepSpeed's CPU Adam is bound by the host's memory: 50 to 100 GB/s of one socket
_UPDATE_SHARE = 0.7  # of the bandwidth that an optimizer's step over many tensors reaches
_DEQUANTIZED_BYTES = 0.5 + 2 + 2  # codes in, 16-bit copy out, and in again


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by what is done. A micro-batch on the slowest stage, except ``sync``, ``update`` and ``host_update``: once a step.

    ``forward``, ``backward``, ``again`` (recomputation): by kind, "products", "experts", "scores" or "streams".
    ``gather``: of one pass over the stage's weights; ``scatter``: of its gradients. ``tensor``, ``context``, ``expert``,
    ``stages``: exchanges of one forward pass. ``kernels``: launches of one forward pass.
    """

    forward: dict[str, float]
    backward: dict[str, float]
    again: dict[str, float]
    kernels: float
    layers: float
    gather: float = 0.0
    scatter: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0
    stages: float = 0.0
    sync: float = 0.0
    update: float = 0.0
    host_update: float = 0.0


def parts_of(job: Job, model: Model, card: Accelerator, network: Network) -> Parts:
    """Every part of the step. Raises UnmodelledError for a card whose rates are unknown."""
    site = _Site(job, model, card, network)
    forward, backward, again = (defaultdict[str, float](float) for _ in range(3))
    kernels = 0.0
    for one in site.operations:
        share = site.share(one)
        if isinstance(one, Exchange):
            continue
        kind, there = site.seconds(one)
        forward[kind] += share * there
        backward[kind] += share * site.back(one, there)
        again[kind] += share * there * site.repeats(one)
        kernels += share * (one.kernels if isinstance(one, Pointwise) else 1)
    weights = site.stage_weights
    return Parts(
        forward=dict(forward),
        backward=dict(backward),
        again=dict(again),
        kernels=kernels,
        layers=model.layers / job.pp,
        gather=site.sharded(weights * job.weight_bytes, "all_gather") if job.gathers else 0.0,
        scatter=site.sharded(weights * job.reduce_bytes, "reduce_scatter") if job.gathers else 0.0,
        tensor=site.tensor(),
        context=site.context(),
        expert=site.expert(),
        stages=site.stages(),
        sync=site.sync(),
        update=site.update(),
        host_update=site.host_update(),
    )


class _Site:
    """A job on a card, while its parts are summed."""

    def __init__(self, job: Job, model: Model, card: Accelerator, network: Network) -> None:
        self.job, self.model, self.card, self.network = job, model, card, network
        # Experts are cut by tp inside each of ep groups, or spread over as many more ranks: a rank's FLOPs are the same.
        split = Split(tp=job.tp, attention_dp=job.ep, moe_ep=job.ep, moe_tp=job.tp, sequence=job.sequence_parallel)
        found = operations(model, scheme=scheme_for(model, dtype="bfloat16"), split=split)
        self.operations: tuple[Operation, ...] = found
        self.rows = Batch(prefills=job.rows, prefill_tokens=job.seq / job.cp, all_logits=True)
        self.whole = Batch(prefills=job.rows, prefill_tokens=job.seq, all_logits=True)

    def share(self, one: Operation) -> float:
        """How often the slowest stage runs it: its part of the layers, or the whole head on the last stage."""
        return one.count / self.job.pp if one.part != "head" else 1.0

    def seconds(self, one: Operation) -> tuple[str, float]:
        """Its kind and the seconds of one forward run."""
        if isinstance(one, Linear):
            narrow = one.part not in ("head",)
            return "products", self._product(self._rows(one), one.outputs, one.inputs, matrices=one.matrices, narrow=narrow)
        if isinstance(one, ExpertProducts):
            rows = float(one.rows_of(self.rows)) / max(1, one.held)
            each = self._product(rows, one.width * (2 if one.gated else 1), one.hidden) + self._product(
                rows, one.hidden, one.width
            )
            return "experts", each * one.held
        if isinstance(one, (Scores, LatentScores)):
            return "scores", float(one.prefill_flops(self.whole)) / self.job.cp / machine(self.card, "bf16").flops_per_s
        moved = float(one.read_bytes(self.rows) + one.write_bytes(self.rows))
        return "streams", _number(elementwise(card=self.card, size_bytes=moved))

    def back(self, one: Operation, forward: float) -> float:
        """Seconds of its backward from those of its forward."""
        if isinstance(one, Linear):
            return self._product_back(one)
        if isinstance(one, ExpertProducts):
            return forward * (1.0 if self.job.frozen else 2.0)
        if isinstance(one, (Scores, LatentScores)):
            return forward * BACKWARD_SCORES
        return forward * 1.5

    def repeats(self, one: Operation) -> float:
        """How often its forward is run again before backward."""
        if self.job.recomputed == "none" or one.part == "head":
            return 0.0
        return 1.0 if self.job.recomputed == "full" or isinstance(one, (Scores, LatentScores)) else 0.0

    def _rows(self, one: Linear) -> float:
        return float(one.rows_of(self.rows))

    def _product(self, rows: float, outputs: float, inputs: float, *, matrices: int = 1, narrow: bool = True) -> float:
        if rows <= 0 or outputs <= 0:
            return 0.0
        weight = self.job.products if narrow else "bf16"
        m, n, k = max(1, round(rows)), max(1, round(outputs)), max(1, round(inputs))
        return _gemm_s(self.card, m, n, k, weight) * matrices

    def _product_back(self, one: Linear) -> float:
        rows, narrow = self._rows(one), one.part != "head"
        inputs = self._product(rows, one.inputs, one.outputs, matrices=one.matrices, narrow=narrow)
        dequantized = one.outputs * one.inputs * _DEQUANTIZED_BYTES if self.job.dequantizes else 0.0
        unpacked = dequantized / (self.card.bandwidth_bytes_per_s * _UPDATE_SHARE)
        if self.job.frozen:
            return inputs + 2 * unpacked
        return inputs + self._product(one.outputs, one.inputs, rows, matrices=one.matrices, narrow=narrow)

    @property
    def stage_weights(self) -> float:
        """Parameters that one rank's stage works with, whole: the layers of the stage cut over tp and ep."""
        total = float(self.model.parameters)
        routed = sum(b.count * sum(t.elements for t in b.tensors if t.role.startswith("expert.")) for b in self.model.blocks)
        return ((total - routed) / self.job.tp + routed / max(self.job.ep, self.job.tp)) / self.job.pp

    def collective(self, name: str, world: int, size: float, *, stride: int = 1) -> float:
        """Seconds of a collective over ``world`` ranks that stand ``stride`` apart; between islands over their rails."""
        if world <= 1 or size <= 0:
            return 0.0
        inside = max(1, min(world, self.network.island // max(1, stride)))
        nodes = -(-world // inside)
        call: Any = getattr(collectives, name)
        found: Estimate = call(
            card=self.card, world=inside * nodes, size_bytes=size, nodes=nodes, fabric=self._fabric(stride) if nodes > 1 else None
        )
        return _number(found)

    def _fabric(self, stride: int) -> collectives.Fabric:
        """The rails that one of ``stride`` interleaved groups has to itself."""
        rails = max(1, self.network.fabric.rails // max(1, stride))
        return collectives.Fabric(rail_bytes_per_s=self.network.fabric.rail_bytes_per_s, rails=rails)

    def sharded(self, size: float, name: str) -> float:
        """A gather or a scatter of the stage's weights over the ranks that share them, which stand tp apart."""
        return self.collective(name, self.job.shards, size, stride=self.job.tp)

    def tensor(self) -> float:
        """All-reduces (or their halves under sequence parallelism) of one forward pass."""
        exchanges = (one for one in self.operations if isinstance(one, Exchange) and one.collective == "all_reduce")
        return self._exchanged(exchanges, self.job.tp) if self.job.tp > 1 else 0.0

    def _exchanged(self, exchanges: Iterable[Exchange], world: int) -> float:
        return sum(
            self.share(one) * self.collective(one.collective, world, float(one.moved_bytes(self.rows))) for one in exchanges
        )

    def context(self) -> float:
        """Keys and values of the other context ranks, passed around a ring in one forward pass."""
        job = self.job
        if job.cp == 1:
            return 0.0
        each = 0.0
        for one in self.operations:
            if isinstance(one, Scores):
                width = one.kv_heads * (one.attention.head_dim + one.attention.values)
                each += self.share(one) * self.collective("all_gather", job.cp, 2.0 * width * job.rows * job.seq, stride=job.tp)
        return each

    def expert(self) -> float:
        """Tokens sent to their experts and back, in one forward pass."""
        job = self.job
        if job.ep == 1:
            return 0.0
        total = 0.0
        for one in self.operations:
            if isinstance(one, ExpertProducts):
                sent = float(self.rows.tokens) / (job.tp if job.sequence_parallel else 1) * min(one.active, job.ep)
                size = sent * one.hidden * one.element
                total += self.share(one) * 2 * self.collective("all_to_all", job.ep, size, stride=1)
        return total

    def stages(self) -> float:
        """Activations sent to the next stage, both ways counted later."""
        job = self.job
        if job.pp == 1:
            return 0.0
        size = float(self.rows.tokens) * self.model.hidden * 2 / (job.tp if job.sequence_parallel else 1)
        beyond = job.tp * job.cp * job.dp >= self.network.island
        rate = self.network.fabric.rail_bytes_per_s if beyond else link(self.card)
        return size * job.vpp / rate

    def sync(self) -> float:
        """Gradients of the step over data-parallel ranks, where weights are whole: an all-reduce or its two halves."""
        job = self.job
        if job.gathers or job.dp * job.cp == 1 or job.sharding == "none":
            return 0.0
        trained = self.stage_weights * (job.trained_parameters / max(1, self.model.parameters) if job.frozen else 1.0)
        sent = self.collective("reduce_scatter", job.dp * job.cp, trained * job.reduce_bytes, stride=job.tp)
        return sent + self.collective("all_gather", job.dp * job.cp, trained * job.weight_bytes, stride=job.tp)

    def update(self) -> float:
        """The optimizer's step over this rank's own parameters, on the card."""
        return 0.0 if "optimizer" in self.job.offload else self._local() * self.job.update_bytes / self._streaming()

    def host_update(self) -> float:
        """The same on the host: gradients down, weights up, and the update at the host's memory rate."""
        if "optimizer" not in self.job.offload:
            return 0.0
        local, link = self._local(), self.card.host_link_bytes_per_s or 16e9
        return (
            local * (self.job.reduce_bytes + self.job.weight_bytes) / link
            + local * self.job.update_bytes / _HOST_ADAM_BYTES_PER_S
        )

    def _streaming(self) -> float:
        return self.card.bandwidth_bytes_per_s * _UPDATE_SHARE

    def _local(self) -> float:
        job = self.job
        trained = self.stage_weights * (job.trained_parameters / max(1, self.model.parameters) if job.frozen else 1.0)
        return trained / (job.shards if job.sharding not in ("none", "ddp") else 1)


_LIBRARY = {"fp8": "trtllm"}


@by_identity(most=50_000)
def _gemm_s(card: Accelerator, m: int, n: int, k: int, weight: str) -> float:
    """Seconds of a product, remembered: layouts of a plan run the same products over and over."""
    return _number(gemm(card=card, m=m, n=n, k=k, weight=weight, backend=_LIBRARY.get(weight, "")))


def _number(found: Estimate) -> float:
    return float(found.seconds)
