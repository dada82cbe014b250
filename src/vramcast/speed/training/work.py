"""The parts of a training step's time, each by its own law, before anything hides anything: products, scores, streams, exchanges.

Per micro-batch of the slowest pipeline stage, in seconds of a card that runs isolated kernels. What sustained training adds to
them (power, layouts, older kernels) is ``sustained.py``; what hides behind what is ``step.py``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model, by_identity
from vramcast.models.layers import Attention
from vramcast.models.operations import (
    Batch,
    Exchange,
    ExpertProducts,
    LatentScores,
    Linear,
    Operation,
    Pointwise,
    Recurrence,
    Scores,
    Split,
    operations,
    tower_operations,
)
from vramcast.models.quantization import scheme_for
from vramcast.speed.kernels.attention import QUERY_TILE
from vramcast.speed.kernels.gemm import RECIPES, elementwise
from vramcast.speed.kernels.law import law_for
from vramcast.speed.kernels.machine import card_class, machine
from vramcast.speed.training.exchanges import Exchanges
from vramcast.speed.training.job import NARROW, Job, Network
from vramcast.speed.training.products import LIBRARY, product_s
from vramcast.speed.training.sustained import kind_of, slowed

BACKWARD_SCORES = 2.5  # FlashAttention-2, arXiv 2307.08691: five products for two, the scores computed again
# Tokens that a causal sequence's kernel loses to half masked tiles and its last wave: 99, 133, 155 and 190 TFLOP/s forward, 68,
# 107, 130 and 175 backward at 512, 1k, 2k and 16k tokens on an A100 (arXiv 2307.08691, figures 5 and 6, head 128, causal).
_RAMP_TOKENS = 900
_USUAL_HEAD = 128  # the heads that the sustained factors of attention are of
# Bytes moved for each frozen weight to unpack it before a product. bitsandbytes: codes in, 16 bits out (csrc/kernels.cu,
# kDequantizeBlockwise). AutoGPTQ's torch path (nn_modules/qlinear/qlinear_cuda.py forward, above 128 rows): a shift to int32,
# a cast, a mask, zeros and scales, each kernel reading and writing every weight.
UNPACKED_BYTES = {"kernel": 2.5, "operations": 18.5}
# Bytes that an adapter beside a product streams for each of its inputs and outputs, forward and backward: a cast, the small
# products' reads and writes, a scale and a sum, each a kernel of its own (PEFT, tuners/lora/layer.py Linear.forward); frameworks
# that fuse or compile them move this share. A dropout reads and writes each input and a mask of one byte, both ways.
_ADAPTER_BYTES, _ADAPTER_BYTES_BACK, _DROPOUT_BYTES = (5.0, 12.0), (8.0, 8.0), 5.0
# Unsloth without a dropout adds each small product to its sum as it writes it (unsloth/kernels/utils.py matmul_lora and
# fast_lora.py: addmm_ in place), forward and backward.
_ADDED_BYTES, _ADDED_BYTES_BACK = (2.0, 4.0), (6.0, 4.0)
_ADAPTER_SHARE = {"eager": 1.0, "compiled": 0.4, "fused": 0.5, "scripted": 0.5}
# Share of the dense peak that a chunked scan of a recurrent layer reaches, small products in a chain: the middle of Triton's
# gated delta nets (laws.json, recurrent_prefill, gdn).
_SCAN_SHARE = {"hopper_dc": 0.06, "blackwell_dc": 0.037}
# Its backward computes the forward's states again and twice as many products. The states after each chunk are written, passed on
# (read and written) and read; backward does so again, and with their gradients (mamba_ssm/ops/triton/ssd_combined.py).
_BACKWARD_SCANS, _STATE_PASSES = 3.0, (4.0, 10.0)
# Bytes of a pair of tokens and head that the softmax of unfused attention moves: scores in, probabilities out; backward
# probabilities and their gradients in, gradients of scores out. Its products run over all pairs, masked or not, as batches of
# small ones at this share of the peak, or as fast as their 16-bit scores can be written or read.
_PAIR_BYTES, _PAIR_BYTES_BACK, _SCORE_BYTES, _BATCHED_SHARE = 4.0, 6.0, 2.0, 0.6
# Bytes that the cross entropy moves for each logit, forward and backward: fused (Transformer Engine's or Megatron's: 16-bit
# logits in, gradients out in place), compiled, or torch's own on a float32 copy (copy, log-softmax, gradient, cast; SPEED,
# section 5).
_LOSS_BYTES = {"fused": (4.0, 6.0), "scripted": (8.0, 8.0), "compiled": (8.0, 8.0), "eager": (14.0, 16.0)}
# Bytes that casting one number to fewer bits moves beside the read and write that the product's law counts: the copy for the
# transposed product, and a pass for the largest number where one scale serves a tensor; NVFP4 rotates blocks before it rounds.
# Source: Transformer Engine, common/cast and common/transpose (cast_transpose), common/hadamard_transform.
_CAST_BYTES = {"tensor": 3.0, "row": 3.0, "block": 1.1, "nvfp4": 4.5}
_TILE = 128  # rows of a grouped product's tile: an expert's tokens are padded to it (CUTLASS grouped GEMM)
# Elements of a token's copy that permutation, exchange and activation of routed experts stream beside the products: gathered
# into expert order and back (read and write), sorted by local expert on arrival and back where ranks exchange; the activation
# reads its products and writes one. Source: Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py and moe_utils.py
# permute/unpermute.
_PERMUTED, _SORTED = 4, 4
# Bytes for each number that routed experts put out where their second product has a bias, added expert by expert in float32:
# bias times probability written, the sum, the joined copy, the cast; backward the cast, gradients of both factors and their sums
# (Megatron-LM, megatron/core/transformer/moe/experts.py TEGroupedMLP._apply_bias: torch.cat of t + b * p over torch.split).
_BIAS_BYTES = (28.0, 36.0)
# What a framework names when it runs parts of a layer again: the layer's operations behind the word.
# Source: Megatron-LM, megatron/core/transformer/transformer_config.py recompute_modules.
# Each name stands with the share of its forward time.
_NAMED: dict[str, dict[str, float]] = {
    "core_attn": {"scores": 1.0},
    "mla_up_proj": {"q_b": 1.0, "kv_b": 1.0, "rope and cache": 1.0},
    "moe_act": {"expert activation": 1.0},
    "activation": {"activation": 1.0, "expert activation": 1.0, "shared activation": 1.0},
    "layernorm": {"norms": 1.0},
    "mlp": {"feed_forward": 1.0},
    "moe": {"experts": 1.0},
    "shared_experts": {"shared.gate_up": 1.0, "shared.down": 1.0, "shared activation": 1.0},
    "half_of_products": {"products": 0.5},
}


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by what is done. A micro-batch on the slowest stage, except ``sync``, ``update`` and ``host_update``: once a step.

    ``forward``, ``backward``, ``again`` (recomputation): by kind, "products", "narrow" (products of 8 or 4 bits), "experts",
    "scores", "streams" or "scans". ``gather``: of one pass over the stage's weights; ``scatter``: of its gradients.
    ``tensor``, ``context``, ``expert``, ``stages``: exchanges of one forward pass. ``layers``: of the stage; ``routed``: those of
    them with experts. ``idle``: passes of the slowest stage that begin and end a step.
    """

    forward: dict[str, float]
    backward: dict[str, float]
    again: dict[str, float]
    layers: float
    idle: float = 0.0
    routed: float = 0.0
    gather: float = 0.0
    scatter: float = 0.0
    tensor: float = 0.0
    context: float = 0.0
    expert: float = 0.0
    stages: float = 0.0
    sync: float = 0.0
    update: float = 0.0
    host_update: float = 0.0


def parts_of(
    job: Job, model: Model, card: Accelerator, network: Network, *, length: Callable[[Parts], float] | None = None
) -> Parts:
    """Every part of the step, on the stage whose micro-batch is the longest. Raises UnmodelledError for a card of unknown rates.

    ``length``: seconds of a micro-batch of a stage, its kernels where nothing else is said.
    """
    depths = job.stage_depths(model.layers)
    last, before = depths[-1], max(depths[:-1], default=0.0)
    found = _Stages(job, model, card, network)
    if job.pp == 1:
        return found.parts(1.0, head=True)
    of = length or (lambda parts: sum(sum(work.values()) for work in (parts.forward, parts.backward, parts.again)))
    fullest, ending = found.parts(before / model.layers, head=False), found.parts(last / model.layers, head=True)
    middle, end = of(fullest), of(ending)
    every = middle * sum(depths[:-1]) / before + end  # seconds of all stages, one after another
    slow, seconds = (ending, end) if end >= middle else (fullest, middle)
    return msgspec.structs.replace(slow, idle=(every - seconds) / seconds / job.vpp)


class _Stages:
    """The kernels and exchanges of all layers and of the head, of which a stage has its share."""

    def __init__(self, job: Job, model: Model, card: Accelerator, network: Network) -> None:
        site = _Site(job, model, card)
        self.body = _Passes.of(site, [one for one in site.operations if one.part != "head"])
        self.head = _Passes.of(site, [one for one in site.operations if one.part == "head"])
        self.layers = model.layers
        self.routed = sum(one.count for one in site.operations if isinstance(one, ExpertProducts))
        moved = Exchanges(job, model, card, network, site.operations)
        self.by_layers = {"tensor": moved.tensor(), "context": moved.context(), "expert": moved.expert()}
        self.by_stage = {
            "gather": moved.gather(), "scatter": moved.scatter(), "stages": moved.stages(), "sync": moved.sync(),
            "update": moved.update(), "host_update": moved.host_update(),
        }  # fmt: skip

    def parts(self, share: float, *, head: bool) -> Parts:
        """Those of a stage with this share of the layers, and the head or not."""
        forward, backward, again = (
            {kind: size for kind, size in work.items() if size > 0} for work in self.body.on(share, self.head if head else None)
        )
        moved: Any = {name: size * share for name, size in self.by_layers.items()} | self.by_stage
        return Parts(
            forward=forward, backward=backward, again=again, layers=self.layers * share, routed=self.routed * share, **moved
        )  # fmt: skip


_Timed = tuple[str, str, float, float]  # name, kind, seconds forward, seconds backward


class _Passes(msgspec.Struct, frozen=True):
    """Seconds by kind of kernel: of the forward, the backward and what is computed again before it."""

    forward: dict[str, float]
    backward: dict[str, float]
    again: dict[str, float]

    @classmethod
    def of(cls, site: "_Site", found: list[Operation]) -> "_Passes":
        """Of these operations, each as often as the model has it."""
        forward, backward, again = (defaultdict[str, float](float) for _ in range(3))
        for one in found:
            if isinstance(one, Exchange):
                continue
            repeats = site.repeats(one)
            for name, kind, there, back in site.seconds(one):
                forward[kind] += one.count * there
                backward[kind] += one.count * back
                again[kind] += one.count * there * repeats(name)
        return cls(forward, backward, again)

    def on(self, share: float, head: "_Passes | None") -> Iterator[dict[str, float]]:
        """The three passes of a share of this, with the head or without."""
        for name in self.__struct_fields__:
            own, last = getattr(self, name), getattr(head, name) if head else {}
            yield {kind: own.get(kind, 0.0) * share + last.get(kind, 0.0) for kind in {**own, **last}}


class _Site:
    """A job on a card, while its parts are summed."""

    def __init__(self, job: Job, model: Model, card: Accelerator) -> None:
        self.job, self.model, self.card = job, model, card
        split = Split(tp=job.tp, attention_dp=job.ep, moe_ep=job.ep, moe_tp=job.expert_tp, sequence=job.sequence_parallel)
        self.operations = _operations(model, split, job.predicts_ahead)
        self.rows = Batch(prefills=job.rows, prefill_tokens=job.seq / job.cp, all_logits=True)
        self.whole = Batch(prefills=job.rows, prefill_tokens=job.seq, all_logits=True)
        self.kind = kind_of(job.framework, compiled=job.compiled)
        self.library = LIBRARY | ({"fp8": "vllm/cutlass"} if job.scaling == "row" else {})
        self.clock = slowed(card)

    def repeats(self, one: Operation) -> Any:
        """How often a named kernel of this operation is run again before backward."""
        job = self.job
        if job.recomputed == "none" or one.part == "head":
            return lambda name: 0.0
        if job.recomputed == "full":
            return lambda name: job.repeated_share
        again: dict[str, float] = {}
        for word in job.repeated:
            again |= _NAMED.get(word, {word: 1.0})
        whole = again.get(one.part, again.get("products", 0.0) if isinstance(one, Linear) else 0.0)
        return lambda name: again.get(name, whole)

    def seconds(self, one: Operation) -> list[_Timed]:
        """Its kernels: name, kind, and the seconds of one forward and one backward run."""
        if isinstance(one, Linear):
            return self._linear(one)
        if isinstance(one, ExpertProducts):
            return self._experts(one)
        if isinstance(one, (Scores, LatentScores)):
            return self._scores(one)
        moved = float(one.read_bytes(self.rows) + one.write_bytes(self.rows))
        if isinstance(one, Pointwise) and one.name == "sampling":
            logits = float(one.rows_of(self.rows)) * one.read / self.job.tp
            ahead, behind = (self._streamed(logits * size) for size in _LOSS_BYTES[self.kind])
            return [(one.name, "streams", ahead, behind)]
        if isinstance(one, Pointwise) and one.part == "norms" and self.job.sequence_parallel:
            moved /= self.job.tp
        there = self._streamed(moved)
        streamed = (one.name, "streams", there, there * 1.5)
        return [streamed, *self._scans(one)] if isinstance(one, Recurrence) else [streamed]

    def _scans(self, one: Recurrence) -> list[_Timed]:
        """The scan in chunks: its small products, and the state after each chunk, kept in float32 between its kernels."""
        share = _SCAN_SHARE.get(card_class(self.card), _SCAN_SHARE["hopper_dc"])
        there = float(one.flops(self.whole)) / self.job.cp / machine(self.card, "bf16").flops_per_s / share
        chunks = float(self.rows.tokens) / max(1, one.chunk)
        kept = chunks * one.mixer.state_elements * one.share * 4
        ahead, behind = (self._streamed(kept * passes) for passes in _STATE_PASSES)
        return [(one.name, "scans", there, there * _BACKWARD_SCANS), (one.name, "streams", ahead, behind)]

    def _streamed(self, moved: float) -> float:
        return float(elementwise(card=self.card, size_bytes=moved).seconds)

    def _scores(self, one: Scores | LatentScores) -> list[_Timed]:
        """One fused kernel, or products over all pairs with the scores in memory between them."""
        job, peak = self.job, machine(self.card, "bf16").flops_per_s / self.clock
        if job.attention != "unfused":
            there = float(one.prefill_flops(self.whole)) / job.cp / peak * self._shortened(one) * self._of_width(one)
            return [(one.name, "scores", there, there * BACKWARD_SCORES)]
        pairs = float(job.rows) * one.heads * job.seq**2 / job.cp
        mixer = one.attention
        widths = (mixer.head_dim, mixer.values if isinstance(mixer, Attention) else mixer.value_dim)
        crossed = self._streamed(pairs * _SCORE_BYTES)
        there = sum(max(2 * pairs * width / peak / _BATCHED_SHARE, crossed) for width in widths)
        ahead, behind = self._streamed(pairs * _PAIR_BYTES), self._streamed(pairs * _PAIR_BYTES_BACK)
        return [(one.name, "products", there, 2 * there), (one.name, "streams", ahead, behind)]

    def _shortened(self, one: Scores | LatentScores) -> float:
        """How much longer a fused kernel takes for each pair of tokens in sequences of this length, or in a window."""
        reach = one.reach if isinstance(one, Scores) and one.reach < self.job.seq else 0
        masked = QUERY_TILE / reach if reach else 0.0  # a query tile meets as many keys more, masked on both edges
        return (1.0 if self.job.attention == "flash1" else 1 + _RAMP_TOKENS / self.job.seq) + masked

    def _of_width(self, one: Scores | LatentScores) -> float:
        """How much longer a FLOP takes than in heads of 128: the exponential of a pair costs as much in narrow heads.

        FlashAttention 1 is slower in heads of 128 than in those of 64 (arXiv 2307.08691, figure 4).
        """
        if self.job.attention == "flash1":
            return 1.0
        softmax = law_for("prefill_attention", "", "bf16", self.card).constants["softmax_flops"]
        mixer = one.attention
        width = 2.0 * (mixer.head_dim + (mixer.values if isinstance(mixer, Attention) else mixer.value_dim))
        return (1 + softmax / width) / (1 + softmax / (4 * _USUAL_HEAD))

    def _linear(self, one: Linear) -> list[_Timed]:
        rows, plain = float(one.rows_of(self.rows)), one.part == "head" or one.name == "router"
        if rows <= 0:
            return []
        kind = "products" if plain or self.job.products not in NARROW else "narrow"
        weight = "bf16" if plain and self.job.products in NARROW else self.job.products
        there = self._product(weight, rows, one.outputs, one.inputs) * one.matrices
        back = self._product(weight, rows, one.inputs, one.outputs) * one.matrices
        if not self.job.frozen:
            back += self._product(weight, one.outputs, one.inputs, rows) * one.matrices
            back += self._added(float(one.outputs) * one.inputs * one.matrices)
        timed = [(one.name, kind, there, back)]
        if kind == "narrow":
            timed.append((one.name, "streams", self._cast(rows * one.inputs), self._cast(rows * one.outputs)))
        if self.job.frozen and not plain and (not self.job.adapted or one.name in self.job.adapted):
            timed.append(("adapter", "streams", *self._adapter(rows, one)))
        if self.job.unpacks and not plain:
            unpacked = self._streamed(float(one.outputs * one.inputs) * UNPACKED_BYTES[self.job.unpacks])
            timed.append((one.name, "unpacking", unpacked, unpacked))
        return timed

    def _adapter(self, rows: float, one: Linear) -> tuple[float, float]:
        """What an adapter beside a frozen product streams, forward and backward."""
        share, drops = rows * _ADAPTER_SHARE[self.kind], _DROPOUT_BYTES * self.job.drops
        added = self.job.framework == "unsloth" and not drops
        bytes_of = (_ADDED_BYTES, _ADDED_BYTES_BACK) if added else (_ADAPTER_BYTES, _ADAPTER_BYTES_BACK)
        ahead, back = (self._streamed(share * (one.inputs * (inner + drops) + one.outputs * outer)) for inner, outer in bytes_of)
        return ahead, back

    def _experts(self, one: ExpertProducts) -> list[_Timed]:
        """Both products of the experts held, grouped in one kernel each, and what sorts tokens into them and back."""
        # A tensor-parallel group sends each of its tokens once, and its ranks hold different experts unless they share them.
        copies = float(one.rows_of(self.rows)) * self.job.expert_tp / self.job.tp
        copies *= one.routed / one.active if self.job.every_expert else 1.0
        weight, gates = self.job.products, 2 if one.gated else 1
        there = self._grouped(weight, copies, one.held, one.width * gates, one.hidden)
        there += self._grouped(weight, copies, one.held, one.hidden, one.width)
        moved = copies * one.hidden * (_PERMUTED + (_SORTED if self.job.ep > 1 else 0)) * one.element
        sorted_s = self._streamed(moved)
        fused = self.job.fused_experts
        acted = 0.0 if fused else self._streamed(copies * one.width * (gates + 1) * one.element)
        if weight in NARROW:
            sorted_s += self._cast(copies * (one.hidden + (0 if fused else one.width)))
        bias = (0.0, 0.0)
        if one.biased and self.kind == "fused" and not fused:
            ahead, behind = _BIAS_BYTES
            bias = (self._streamed(copies * one.hidden * ahead), self._streamed(copies * one.hidden * behind))
        back = there * (1.0 if self.job.frozen else 2.0)
        if not self.job.frozen:
            back += self._added(float(one.held) * one.width * one.hidden * (gates + 1))
        unpacked = 0.0
        if unpacks := self.job.unpacks_experts:
            unpacked = self._streamed(float(one.held) * one.width * one.hidden * (gates + 1) * UNPACKED_BYTES[unpacks])
        return [
            (one.name, "experts", there, back),
            (one.name, "unpacking", unpacked, unpacked),
            ("permutation", "streams", sorted_s, sorted_s),
            ("expert bias", "streams", *bias),
            ("expert activation", "streams", acted, 1.5 * acted),
        ]

    def _grouped(self, weight: str, copies: float, held: int, outputs: float, inputs: float) -> float:
        """All experts held: tiles of each padded, the weights of every one read.

        A product each (Transformer Engine's GroupedLinear calls cuBLAS once an expert, common/gemm/cublaslt_gemm.cu
        multi_stream_cublas_gemm; loops over experts do so too); compiled layers run torch._grouped_mm, one kernel over all.
        """
        rows = -(-(copies / held) // _TILE) * _TILE
        one = self.kind == "compiled" or self.job.fused_experts
        products = (
            self._product(weight, rows * held, outputs, inputs) if one else held * self._product(weight, rows, outputs, inputs)
        )
        stored = held * outputs * inputs * RECIPES[weight].weight_bytes
        return max(products, stored / self.card.bandwidth_bytes_per_s)

    def _added(self, weights: float) -> float:
        """A micro-batch's weight gradients, added to their sum."""
        return weights * self.job.summed_bytes / self.card.bandwidth_bytes_per_s

    def _cast(self, numbers: float) -> float:
        """Casting so many numbers to the products' format, beyond what the products' law counts."""
        form = "nvfp4" if self.job.products == "nvfp4" else self.job.scaling
        return self._streamed(numbers * _CAST_BYTES[form])

    def _product(self, weight: str, rows: float, outputs: float, inputs: float) -> float:
        if rows <= 0 or outputs <= 0:
            return 0.0
        m, n, k = max(1, round(rows)), max(1, round(outputs)), max(1, round(inputs))
        pooled = "cublas" if weight == "bf16" and self.card.vendor == "NVIDIA" else ""  # over all builds of PyTorch
        return product_s(self.card, m, n, k, weight, backend=self.library.get(weight, pooled)) * self.clock


@by_identity()
def _operations(model: Model, split: Split, predicts_ahead: bool) -> tuple[Operation, ...]:
    """What all ranks of a pipeline run together, remembered: layouts of a plan share it."""
    scheme = scheme_for(model, dtype="bfloat16")
    found = operations(model, scheme=scheme, split=split)
    for tower in model.towers if predicts_ahead else ():
        if tower.kind == "mtp":
            heads = tuple(one for one in found if one.part == "head" and not isinstance(one, Exchange))
            found = (*found, *tower_operations(model, tower, scheme=scheme, split=split), *heads)
    return found
