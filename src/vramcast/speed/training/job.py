"""What decides the time of a training step: batch, layout, number format, what is recomputed, where ranks stand."""

from typing import Literal

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.speed.kernels.collectives import Fabric
from vramcast.training.recipe.parts import GATHERED, Recipe, width
from vramcast.workload import Training

Recomputed = Literal["none", "selective", "full"]

# Products of a training recipe as kernel laws name them.
_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16", "float8": "fp8", "int8": "int8"}
# Bytes that one parameter's update reads and writes (SPEED: AdamW 24 to 30, 8-bit states 10 to 14, SGD 12).
UPDATE_BYTES = {"adamw": 30.0, "adam": 30.0, "adamw_8bit": 14.0, "sgd": 12.0, "adafactor": 16.0, "lion": 20.0, "muon": 24.0}
# Rails of a node and their rate one way, as reference systems have them: DGX A100 (8 x 200 Gb/s), DGX H100, H200 and B200
# (8 x 400 Gb/s), GB200 and GB300 NVL72 (one 400 Gb/s rail a card; 72 cards share NVLink). NVIDIA, DGX and NVL72 datasheets.
_RAIL_BYTES_PER_S = {"ampere": 25e9, "hopper": 50e9, "blackwell": 50e9}
_ISLANDS = {"gb200": 72, "gb300": 72}
_PLAIN_NODE = 8
_ETHERNET_BYTES_PER_S = 12.5e9


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
    kind = card.architecture.lower()
    rate = next((r for name, r in _RAIL_BYTES_PER_S.items() if name in kind), _ETHERNET_BYTES_PER_S)
    island = next((n for name, n in _ISLANDS.items() if card.id.startswith(name)), _PLAIN_NODE)
    server = bool(card.link_bytes_per_s) and card.form != "pcie"
    fabric = Fabric(rail_bytes_per_s=rate, rails=island) if server else Fabric(rail_bytes_per_s=_ETHERNET_BYTES_PER_S, rails=1)
    return Network(island=island, fabric=fabric)


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
        update_bytes=UPDATE_BYTES.get(recipe.update.optimizer, UPDATE_BYTES["adamw"]),
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
