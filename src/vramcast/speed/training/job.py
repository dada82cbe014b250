"""What decides the time of a training step: batch, layout, number format, what is recomputed, where ranks stand."""

from typing import Any, Literal

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator, capability, island_cards, rails_of
from vramcast.models.classes import Layer, model_class
from vramcast.models.inventory import Model
from vramcast.models.operations.building import FUSED
from vramcast.speed.kernels.collectives import Fabric
from vramcast.training.adapters.tensors import is_linear, targeted
from vramcast.training.methods import BITSANDBYTES
from vramcast.training.optimizers.rules import update_bytes
from vramcast.training.recipe.parts import GATHERED, Cut, Policy, Recipe, width
from vramcast.training.stage_layouts import stage_spans
from vramcast.workload import Training

Recomputed = Literal["none", "selective", "full"]
OUTSIDE_LAYERS = frozenset({"embedding", "head"})  # what an adapter may reach beside a layer's products
# Scores written to memory (PyTorch's math, Megatron before flash attention); FlashAttention 1 and its Triton twins;
# FlashAttention 2, which torch's SDPA carries; cuDNN's, which Transformer Engine takes on Hopper and later.
Attention = Literal["unfused", "flash1", "flash2", "cudnn"]
# One scale a tensor (found by a pass before the cast), a row or column, a block of 32 numbers (MXFP8).
Scaling = Literal["tensor", "row", "block"]
Dispatcher = Literal["alltoall", "flex", "padded"]

# torchtitan's policy by operation keeps attention and every second matrix product: half of the products and all that streams run
# again (torchtitan/distributed/activation_checkpoint.py).
OPERATIONS_AGAIN = ("half_of_products", "norms", "activation", "rope and cache")
# Products of a training recipe as kernel laws name them.
_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16", "float8": "fp8", "int8": "int8"}

NARROW = frozenset({"fp8", "nvfp4", "int8"})  # products of 8 and 4 bits


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """Cards that share fast links, and what joins such islands."""

    island: int
    fabric: Fabric


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One training step as its time sees it.

    ``rows``: sequences of a micro-batch on one data-parallel rank; ``micro_batches``: of a step on each rank. ``shards``: ranks
    that share one copy of what is sharded. ``regathers``: weights gathered in forward are gathered again in backward.
    ``products``: number format of matrix products; ``scaling``: what shares a scale of 8-bit ones. ``update_bytes``: moved for
    each local parameter in the optimizer's step. ``trained_parameters``: those that get gradients. ``adapted``: frozen products
    with an adapter beside them, by name (qkv, o, gate_up, down, embedding, head; none named: every one). ``drops``: whether an
    adapter's inputs pass a dropout. ``unpacks``: how frozen weights are unpacked before each product (a key of
    ``work.UNPACKED_BYTES``), ``unpacks_experts``: those of routed experts, which bitsandbytes leaves where they are one tensor.
    ``every_expert``: every token goes through every expert. ``repeated``: what selective recomputation runs again, in Megatron's
    words or an operation's part; ``repeated_share``: of the layers, where whole ones are. ``graphed``: share of the launches that
    CUDA graphs replay. ``attention``: the kernel's generation (ATTENTION). ``dispatcher``: how tokens reach their experts:
    "alltoall" (NCCL, after the host has read how many go where), "flex" (DeepEP, HybridEP: a token crosses to a node once, the
    host does not wait) or "padded" (capacities known beforehand). ``expert_tp``: ranks that share one expert. ``fused_experts``:
    all experts of a rank in one kernel a product, which adds biases, activates and casts as it writes (Transformer Engine's op
    fuser over CuTe DSL). ``summed_bytes``: moved for each weight to add a micro-batch's gradient to the sum beside it.
    ``overlaps_tensor``: all-gathers and reduce-scatters run in chunks beside their products. ``predicts_ahead``: MTP layers
    train. ``stage_layout``: Megatron's pipeline layout; empty where stages are cut by the rule ``stage_cut``.
    """

    seq: int
    rows: int
    micro_batches: int
    gpus: int
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    stage_layout: str = ""
    stage_cut: Cut = "even"
    cp: int = 1
    ep: int = 1
    dp: int = 1
    sequence_parallel: bool = False
    sharding: str = "none"
    shards: int = 1
    regathers: bool = True
    recomputed: Recomputed = "none"
    products: str = "bf16"
    scaling: Scaling = "tensor"
    weight_bytes: int = 2
    reduce_bytes: int = 2
    update_bytes: float = 30.0
    frozen: bool = False
    trained_parameters: int = 0
    adapted: tuple[str, ...] = ()
    drops: bool = True
    unpacks: str = ""
    unpacks_experts: str = ""
    every_expert: bool = False
    repeated: tuple[str, ...] = ("scores",)
    repeated_share: float = 1.0
    graphed: float = 0.0
    attention: Attention = "flash2"
    dispatcher: Dispatcher = "alltoall"
    expert_tp: int = 1
    fused_experts: bool = False
    summed_bytes: int = 0
    overlaps_tensor: bool = False
    overlaps_experts: bool = False
    predicts_ahead: bool = False
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

    def stage_depths(self, layers: int) -> list[float]:
        """Layers of each stage. Raises QuestionError for a layout that is none of this model's."""
        spans = stage_spans(layers, pp=self.pp, vpp=self.vpp, cut=self.stage_cut, layout=self.stage_layout)
        return [float(sum(stop - start for start, stop in stage)) for stage in spans]


def network_of(card: Accelerator) -> Network:
    """The usual network of a card: its island of fast links and the rails between islands."""
    rate, rails = rails_of(card)
    return Network(island=island_cards(card), fabric=Fabric(rail_bytes_per_s=rate, rails=rails))


def job_of(question: Training, recipe: Recipe, model: Model, *, trained_parameters: int) -> Job:
    """The job of a question and its recipe. Raises QuestionError for a world that the layout does not divide."""
    layout, (world, dp) = question.parallel, _world(question)
    products = _products(recipe)
    return Job(
        seq=question.seq,
        rows=question.micro_batch * recipe.task.sequences,
        micro_batches=question.accumulate,
        gpus=world,
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        stage_layout=recipe.model_parallel.stage_layout,
        stage_cut=recipe.model_parallel.stage_cut,
        cp=layout.cp,
        ep=layout.ep,
        dp=dp,
        sequence_parallel=layout.sp or bool(recipe.model_parallel.sequence_parallel),
        sharding=recipe.sharding.kind,
        shards=max(1, dp * layout.cp // layout.replicate),
        regathers=recipe.sharding.reshard,
        **_recomputed(recipe.recomputation.policy, model.layers // layout.pp),
        products=products,
        weight_bytes=min(width(recipe.precision.compute), gathered_bytes(recipe.framework, products, "tensor")),
        reduce_bytes=width(recipe.precision.reduce),
        update_bytes=update_bytes(recipe.update.optimizer),
        frozen=trained_parameters < model.parameters // 2,
        trained_parameters=trained_parameters,
        adapted=_adapted(question, model),
        drops=question.adapter is not None and question.adapter.dropout > 0,
        unpacks=_unpacking(recipe),
        unpacks_experts="" if recipe.kernels.fused_experts and recipe.quantization.scheme in BITSANDBYTES else _unpacking(recipe),
        every_expert=runs_every_expert(recipe.kernels.modules),
        attention=_attention(recipe),
        expert_tp=recipe.model_parallel.expert_tp,
        summed_bytes=summed_bytes(layers_of(recipe.framework), width(recipe.precision.reduce)),
        graphed=recipe.kernels.graphed,
        dispatcher=recipe.model_parallel.dispatcher,
        overlaps_experts=recipe.model_parallel.overlaps_experts,
        overlaps_tensor=recipe.model_parallel.overlaps_tensor,
        offload=recipe.sharding.offload,
        framework=layers_of(recipe.framework),
        compiled=recipe.kernels.compiled,
    )


def _world(question: Training) -> tuple[int, int]:
    """Cards of the run, and data-parallel ranks among them. Raises QuestionError where the layout does not divide the cards."""
    layout = question.parallel
    model_ranks = layout.tp * layout.pp * layout.cp
    world = max(question.gpus, model_ranks * layout.dp)
    if world % model_ranks:
        raise QuestionError(f"{world} cards do not divide into tp {layout.tp} x pp {layout.pp} x cp {layout.cp}")
    return world, world // model_ranks


def _products(recipe: Recipe) -> str:
    """The number format of a recipe's matrix products, as kernel laws name it."""
    narrow = recipe.precision.saved_inputs
    return "nvfp4" if narrow == "nvfp4" else "fp8" if narrow == "float8" else _FORMATS[recipe.precision.compute]


def on_card(job: Job, compute: str, card: Accelerator) -> Job:
    """The job as the card computes it: bfloat16 that it only emulates runs at the rate of float32, with no tensor core.

    Source: NVIDIA, CUDA C++ programming guide, warp matrix functions: __nv_bfloat16 from compute capability 8.0 on.
    """
    if compute != "bfloat16" or job.products != "bf16" or capability(card, "bf16").verdict != "emulated":
        return job
    return msgspec.structs.replace(job, products="fp32")


def layers_of(framework: str) -> str:
    """The framework whose layers run: Megatron-Bridge's are Megatron-Core's (Megatron-Bridge, models/gpt_provider.py)."""
    return "megatron" if framework == "megatron_bridge" else framework


def summed_bytes(framework: str, reduce_bytes: int) -> int:
    """Bytes moved for each weight to add a micro-batch's gradient to the sum kept beside it, less the write of its product.

    Megatron's product adds to the sum itself (LinearWithGradAccumulationAndAsyncCommunication); DeepSpeed's pipeline reads the
    16-bit gradient and adds it to a float32 one (deepspeed/runtime/bf16_optimizer.py, update_hp_grads).
    """
    return {"megatron": 2 * reduce_bytes - 2, "megatron_deepspeed": 2 + 2 * 4}.get(framework, 0)


def gathered_bytes(framework: str, products: str, scaling: Scaling) -> int:
    """Bytes of a weight as ranks gather it: torchtitan's float8 with one scale a tensor casts before (its docs/float8.md)."""
    if framework == "torchtitan" and products == "fp8" and scaling == "tensor":
        return 1
    return 4 if products in ("fp32", "tf32") else 2


def _adapted(question: Training, model: Model) -> tuple[str, ...]:
    """The products that the question's adapters reach; none named where they reach every one."""
    if question.adapter is None:
        return ()
    reached = {FUSED.get(role, role) for role in targeted(model, question.adapter)}
    every = {FUSED.get(t.role, t.role) for block in model.blocks for t in block.tensors if is_linear(t)}
    return () if every <= reached else tuple(sorted(reached))


def _unpacking(recipe: Recipe) -> str:
    """Whether frozen weights of fewer bits are unpacked by one kernel (bitsandbytes) or by plain tensor operations (AutoGPTQ)."""
    stored = recipe.quantization
    return "" if not stored.scheme else "operations" if stored.unpacks else "kernel"


def runs_every_expert(modules: str) -> bool:
    """Whether a class of transformers runs all its experts on every token; no class ("") stands for a framework's own layers.

    Llama 4: scores that were not chosen are zero (transformers 4.51 to 5, models/llama4/modeling_llama4.py, Llama4TextMoe).
    """
    return (model_class(modules).layer or Layer()).every_expert


def _attention(recipe: Recipe) -> Attention:
    if recipe.kernels.attention in ("eager", "unfused", "math"):
        return "unfused"
    return "cudnn" if layers_of(recipe.framework) == "megatron" or recipe.kernels.attention == "cudnn" else "flash2"


def _recomputed(policy: Policy, stage: int) -> dict[str, Any]:
    """What a policy runs again: whole layers, and of which share of a stage's; or its parts (a key of ``work._NAMED``)."""
    if policy.kind in ("none", ""):
        return {"recomputed": "none"}
    if policy.kind in ("layer", "block"):
        share = 1 / policy.layers if policy.kind == "layer" else policy.layers / max(1, stage)
        return {"recomputed": "full", "repeated_share": min(1.0, share)}
    if policy.kind in ("full", "uniform", "offloaded"):
        return {"recomputed": "full"}
    if policy.kind == "op":
        return {"recomputed": "selective", "repeated": OPERATIONS_AGAIN}
    return {"recomputed": "selective", "repeated": tuple(policy.modules) or ("core_attn",)}
