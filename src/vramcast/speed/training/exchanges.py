"""What the ranks of a training step exchange, each by its collective's law, before anything hides behind anything."""

from collections.abc import Iterable
from typing import Any

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.operations import Batch, Exchange, ExpertProducts, Operation, Scores
from vramcast.speed.kernels import collectives
from vramcast.speed.kernels.machine import link
from vramcast.speed.training.job import NARROW, Job, Network

_UPDATE_SHARE = 0.7  # of the bandwidth that an optimizer's step over many tensors reaches
# Of an all-reduce cut into its halves, what is left where inputs are cast to 8 bits before they are gathered; sums stay in
# 16 bits (Transformer Engine, pytorch/module/layernorm_linear.py; torchao, float8/float8_tensor_parallel.py). Scales by row
# need a cast afterwards.
_GATHERED_NARROW = 0.75
# torchtitan's policy by operation saves what was reduced and gathers inputs again: ten halves of all-reduces a layer for eight
# (torchtitan/distributed/activation_checkpoint.py, reduce_scatter_tensor among the saved).
_GATHERED_AGAIN = 1.25
# DeepSpeed's CPU Adam is bound by the host's memory: 50 to 100 GB/s for one rank, and what all ranks of a host share: two sockets
# of eight DDR4 channels stream some 200 GB/s.
_HOST_ADAM_BYTES_PER_S, _HOST_BYTES_PER_S = 60e9, 200e9
_RANKS_OF_A_HOST = 8
_HOST_LINK_BYTES_PER_S = 16e9  # PCIe 3 x16, where the catalogue knows no host link


class Exchanges:
    """The exchanges of one rank of a job: seconds of one forward pass, or of a step where the method says so.

    ``tensor``, ``context`` and ``expert`` are those of all layers, of which a stage has its share.
    """

    def __init__(self, job: Job, model: Model, card: Accelerator, network: Network, found: tuple[Operation, ...]) -> None:
        self.job, self.model, self.card, self.network, self.operations = job, model, card, network, found
        self.rows = Batch(prefills=job.rows, prefill_tokens=job.seq / job.cp, all_logits=True)

    @property
    def stage_weights(self) -> float:
        """Parameters that one rank's fullest stage works with, whole, cut over tp and ep: its layers, and of the ends one."""
        model, job = self.model, self.job
        layers = sum(b.count * sum(t.elements for t in b.tensors) for b in model.blocks)
        routed = sum(b.count * sum(t.elements for t in b.tensors if t.role.startswith("expert.")) for b in model.blocks)
        share = max(job.stage_depths(model.layers)) / model.layers
        ends = max(0.0, float(model.parameters) - layers) / min(2, job.pp)
        return (share * (layers - routed) + ends) / job.tp + share * routed / max(job.ep, job.tp)

    def collective(self, name: str, world: int, size: float, *, stride: int = 1) -> float:
        """Seconds of a collective over ``world`` ranks that stand ``stride`` apart; between islands over their rails."""
        if world <= 1 or size <= 0:
            return 0.0
        inside = max(1, min(world, self.network.island // max(1, stride)))
        nodes = -(-world // inside)
        fabric = self._fabric(stride) if nodes > 1 else None
        call: Any = getattr(collectives, name)
        found = call(card=self.card, world=inside * nodes, size_bytes=size, nodes=nodes, fabric=fabric)
        return float(found.seconds)

    def _fabric(self, stride: int) -> collectives.Fabric:
        """The rails that one of ``stride`` interleaved groups has to itself."""
        rails = max(1, self.network.fabric.rails // max(1, stride))
        return collectives.Fabric(rail_bytes_per_s=self.network.fabric.rail_bytes_per_s, rails=rails)

    def gather(self) -> float:
        """One pass over the stage's weights where ranks share them; they stand tp apart."""
        job = self.job
        return (
            self.collective("all_gather", job.shards, self.stage_weights * job.weight_bytes, stride=job.tp)
            if job.gathers
            else 0.0
        )

    def scatter(self) -> float:
        """Their gradients: those of the trained parameters."""
        job = self.job
        return (
            self.collective("reduce_scatter", job.shards, self._trained() * job.reduce_bytes, stride=job.tp)
            if job.gathers
            else 0.0
        )

    def tensor(self) -> float:
        """All-reduces (or their halves under sequence parallelism) of one forward pass."""
        if self.job.tp == 1:
            return 0.0
        reduced = (one for one in self.operations if isinstance(one, Exchange) and one.collective == "all_reduce")
        narrow = self.job.products in NARROW and self.job.scaling != "row" and self.job.sequence_parallel
        again = _GATHERED_AGAIN if self.job.recomputed == "selective" and "half_of_products" in self.job.repeated else 1.0
        return self._exchanged(reduced, self.job.tp) * (_GATHERED_NARROW if narrow else 1.0) * again

    def _exchanged(self, exchanges: Iterable[Exchange], world: int) -> float:
        return sum(one.count * self.collective(one.collective, world, float(one.moved_bytes(self.rows))) for one in exchanges)

    def context(self) -> float:
        """Keys and values of the other context ranks, passed around a ring in one forward pass."""
        job = self.job
        if job.cp == 1:
            return 0.0
        each = 0.0
        for one in self.operations:
            if isinstance(one, Scores):
                width = one.kv_heads * (one.attention.head_dim + one.attention.values)
                each += one.count * self.collective("all_gather", job.cp, 2.0 * width * job.rows * job.seq, stride=job.tp)
        return each

    def expert(self) -> float:
        """Tokens sent to their experts and back, in one forward pass."""
        job = self.job
        if job.ep == 1:
            return 0.0
        nodes = -(-job.ep * job.expert_tp // self.network.island)
        total = 0.0
        for one in self.operations:
            if isinstance(one, ExpertProducts):
                copies = float(min(one.active, job.ep))
                if job.dispatcher == "flex":  # DeepEP: nodes, or a node's ranks, that a token's experts stand on
                    places = nodes if nodes > 1 else job.ep
                    copies = places * (1 - (1 - 1 / places) ** one.active)
                size = float(self.rows.tokens) / job.tp * copies * one.hidden * one.element
                total += one.count * 2 * self.collective("all_to_all", job.ep, size, stride=job.expert_tp)
        return total

    def stages(self) -> float:
        """Activations sent to the next stage, both ways counted later."""
        job = self.job
        if job.pp == 1:
            return 0.0
        size = float(self.rows.tokens) * self.model.hidden * 2 / (job.tp if job.sequence_parallel else 1)
        beyond = job.tp * job.cp * job.dp >= self.network.island
        rate = self.network.fabric.rail_bytes_per_s if beyond else link(self.card, job.pp)
        return size * job.vpp / rate

    def sync(self) -> float:
        """Gradients of the step over data-parallel ranks, where weights are whole: an all-reduce or its two halves."""
        job = self.job
        if job.gathers or job.dp * job.cp == 1 or job.sharding == "none":
            return 0.0
        trained = self._trained()
        sent = self.collective("reduce_scatter", job.dp * job.cp, trained * job.reduce_bytes, stride=job.tp)
        return sent + self.collective("all_gather", job.dp * job.cp, trained * job.weight_bytes, stride=job.tp)

    def update(self) -> float:
        """The optimizer's step over this rank's own parameters, on the card."""
        streaming = self.card.bandwidth_bytes_per_s * _UPDATE_SHARE
        return 0.0 if "optimizer" in self.job.offload else self._local() * self.job.update_bytes / streaming

    def host_update(self) -> float:
        """The same on the host: gradients down, weights up, and the update at the host's memory rate."""
        if "optimizer" not in self.job.offload:
            return 0.0
        local, rate = self._local(), self.card.host_link_bytes_per_s or _HOST_LINK_BYTES_PER_S
        moved = local * (self.job.reduce_bytes + self.job.weight_bytes) / rate
        ranks = min(self.job.gpus, _RANKS_OF_A_HOST)
        return moved + local * self.job.update_bytes / min(_HOST_ADAM_BYTES_PER_S, _HOST_BYTES_PER_S / ranks)

    def _trained(self) -> float:
        job = self.job
        return self.stage_weights * (job.trained_parameters / max(1, self.model.parameters) if job.frozen else 1.0)

    def _local(self) -> float:
        return self._trained() / (self.job.shards if self.job.sharding not in ("none", "ddp") else 1)
