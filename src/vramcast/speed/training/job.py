"""What decides the time of a training step: batch, layout, number format, what is recomputed, where ranks stand."""

from typing import Literal

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator, island_cards, rails_of
from vramcast.models.inventory import Model
from vramcast.speed.kernels.collectives import Fabric
from vramcast.training.optimizers.rules import update_bytes
from vramcast.training.recipe.parts import GATHERED, Recipe, width
from vramcast.workload import Training

Recomputed = Literal["none", "selective", "full"]

# Products of a training recipe as kernel laws name them.
_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16", "float8": "fp8", "int8": "int8"}


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that share fast links, and what joins such islands."""

    island: int
    fabric: Fabric


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One training step as its time sees it.

    ``rows``: sequences of a micro-batch on one data-parallel rank; ``micro_batches``: of a step on each rank. ``shards``: ranks
    that share one copy of what is sharded. ``regathers``: weights gathered in forward are gathered again in backward.
    ``products``: number format of matrix products. ``update_bytes``: moved for each local parameter in the optimizer's step.
    ``trained``: share of the parameters that get gradients. ``dequantizes``: frozen weights are unpacked before each product.
    """

    seq: int
    rows: int
    micro_batches: int
    gpus: int
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    sequence_parallel: bool = False
    sharding: str = "none"
    shards: int = 1
    regathers: bool = True
    recomputed: Recomputed = "none"
    products: str = "bf16"
    weight_bytes: int = 2
    reduce_bytes: int = 2
    update_bytes: float = 30.0
    frozen: bool = False
    trained_parameters: int = 0
    dequantizes: bool = False
    overlaps_experts: bool = False
    offload: tuple[str, ...] = ()
    framework: str = ""
    compiled: bool = False

    @property
    def gathers(self) -> bool:
        """Whether whole weights exist only while their layer runs."""
        return self.sharding in GATHERED and self.shards > 1

    @property
    def tokens(self) -> int:
        """Tokens of a step over all ranks."""
        return self.seq * self.rows * self.micro_batches * self.dp


def network_of(card: Accelerator) -> Network:
    """The usual network of a card: its island of fast links and the rails between islands."""
    rate, rails = rails_of(card)
    return Network(island=island_cards(card), fabric=Fabric(rail_bytes_per_s=rate, rails=rails))


def job_of(question: Training, recipe: Recipe, model: Model, *, trained_parameters: int) -> Job:
    """The job of a question and its recipe. Raises QuestionError for a world that the layout does not divide."""
    layout = question.parallel
    model_ranks = layout.tp * layout.pp * layout.cp
    world = max(question.gpus, model_ranks * layout.dp)
    if world % model_ranks:
        raise QuestionError(f"{world} cards do not divide into tp {layout.tp} x pp {layout.pp} x cp {layout.cp}")
    dp = world // model_ranks
    narrow = recipe.precision.saved_inputs
    whole = model.parameters
    return Job(
        seq=question.seq,
        rows=question.micro_batch * recipe.task.sequences,
        micro_batches=question.accumulate,
        gpus=world,
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        cp=layout.cp,
        ep=layout.ep,
        dp=dp,
        sequence_parallel=layout.sp,
        sharding=recipe.sharding.kind,
        shards=max(1, dp * layout.cp // layout.replicate),
        regathers=recipe.sharding.reshard,
        recomputed=_recomputed(recipe.recomputation.policy.kind),
        products="nvfp4" if narrow == "nvfp4" else "fp8" if narrow == "float8" else _FORMATS[recipe.precision.compute],
        weight_bytes=width(recipe.precision.compute),
        reduce_bytes=width(recipe.precision.reduce),
        update_bytes=update_bytes(recipe.update.optimizer),
        frozen=trained_parameters < whole // 2,
        trained_parameters=trained_parameters,
        dequantizes=bool(recipe.quantization.scheme),
        overlaps_experts=recipe.model_parallel.overlaps_experts,
        offload=recipe.sharding.offload,
        framework=recipe.framework,
        compiled=recipe.kernels.compiled,
    )


def _recomputed(policy: str) -> Recomputed:
    if policy in ("none", ""):
        return "none"
    return "full" if policy in ("full", "uniform", "block", "offloaded") else "selective"
