"""The parts of a recipe: every decision that a training step's memory depends on, each with its words and one line.

A field's type is what it can be (``Literal`` words, numbers within limits), its ``Meta`` says what it means; docs/recipes.md is
written from both. Dtypes are torch names.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from vramcast.errors import QuestionError, unknown_name
from vramcast.models.classes import NormForm
from vramcast.units import BY_NAME

Kind = Literal["none", "full", "offloaded", "selective", "op", "core_attention", "layer", "modules", "uniform", "block"]
Module = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"]
Moved = Literal["attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act"]
COUNTED = ("layer", "uniform", "block")  # written with a number: layer:2
_FROM_INPUTS = ("full", "offloaded", "uniform")


class Policy(msgspec.Struct, frozen=True):
    """What is computed again in backward.

    ``kind``: none; full (every layer from its input); offloaded (full, its inputs on the host); selective (the framework's own
    word); op (torchtitan's list of operations); core_attention (Megatron's selective); layer (every n-th layer); modules
    (Megatron's parts of a layer); uniform (chunks of n layers); block (the first n layers of a stage).
    ``layers``: the n of layer, uniform and block; ``modules``: the parts that go with modules. As text: "block:2".
    """

    kind: Kind = "none"
    layers: int = 0
    modules: tuple[Module, ...] = ()

    @property
    def recomputes_layers(self) -> bool:
        """Whether every layer is computed again from an input."""
        return self.kind in _FROM_INPUTS

    def __str__(self) -> str:
        detail = str(self.layers) if self.kind in COUNTED else "+".join(self.modules)
        return f"{self.kind}:{detail}" if detail else self.kind


def parse_policy(given: "str | Policy") -> Policy:
    """The policy of a word, with its number or its modules after a colon. Raises QuestionError with the nearest words."""
    if isinstance(given, Policy):
        return given
    word, _, detail = str(given).partition(":")
    if word not in get_args(Kind):
        raise unknown_name("checkpointing", str(given), get_args(Kind))
    if word in COUNTED and not (detail.isdigit() and int(detail)):
        raise QuestionError(f"checkpointing {given!r} names no number of layers: write {word}:2")
    if detail and word not in (*COUNTED, "modules"):
        raise QuestionError(f"checkpointing {given!r}: {word} takes nothing after a colon")
    layers = int(detail) if word in COUNTED else 0
    modules = tuple(_modules(detail)) if word == "modules" else ()
    return msgspec.convert({"kind": word, "layers": layers, "modules": modules}, Policy)


def _modules(detail: str) -> Iterator[str]:
    for module in detail.split("+"):
        if module not in get_args(Module):
            raise unknown_name("recomputed module", module, get_args(Module))
        yield module


Dtype = Literal["float32", "bfloat16", "float16", "float8", "int8"]
DTYPES: tuple[str, ...] = get_args(Dtype)
ShardingKind = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "distributed_optimizer"]
LossKind = Literal[
    "eager", "plain", "fused", "in_place", "linear", "chunked", "chunked_head", "whole_chunked", "vocab_parallel", "compiled",
    "chunked_linear", "row_chunks", "blocks", "linear_chunks", "overwritten", "float_gradient", "vocab_parallel_copy",
    "token_logps", "token_logps_copied", "none",
]  # fmt: skip
Offloaded = Literal["optimizer", "parameters", "activations", "gradients"]
Cut = Literal["even", "balanced", "balanced_ends", "even_ends"]
Share = Annotated[float, Meta(ge=0, lt=1)]

# Shardings under which whole weights exist only while their layer runs.
GATHERED: tuple[ShardingKind, ...] = ("zero3", "fsdp1", "fsdp2")


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """The types that numbers are held and multiplied in."""

    weights: Annotated[Dtype, Meta(description="trained weights as they are held")] = "bfloat16"
    frozen: Annotated[Dtype, Meta(description="weights that are not trained")] = "bfloat16"
    compute: Annotated[Dtype, Meta(description="inputs of matmuls")] = "bfloat16"
    autocast: Annotated[bool, Meta(description="autocast casts weights and inputs when they are used")] = False
    given_loaded: Annotated[
        bool, Meta(description="the trainer is given a model that was loaded before, not a name that it loads itself")
    ] = False
    residual: Annotated[Dtype, Meta(description="the hidden stream between layers")] = "bfloat16"
    norm_weight: Annotated[Dtype, Meta(description="weights of norms as layers see them")] = "bfloat16"
    gradients: Annotated[Dtype, Meta(description="gradients as they are left for the optimizer")] = "bfloat16"
    backward_gradients: Annotated[Dtype, Meta(description="gradients as autograd makes them")] = "bfloat16"
    reduce: Annotated[Dtype, Meta(description="gradients while they are communicated")] = "bfloat16"
    low_gradients: Annotated[
        Literal[Dtype, ""],
        Meta(description="gradients of backward beside wider ones, to which they are added"),
    ] = ""
    frees_low: Annotated[bool, Meta(description="those narrow gradients are freed when backward is over")] = False
    placeholders: Annotated[
        bool, Meta(description="matmuls add weight gradients to their buffer; one narrow placeholder stays per weight shape")
    ] = False
    saved_inputs: Annotated[
        Literal["float8", "nvfp4", ""], Meta(description="narrow copies that 8- and 4-bit matmuls keep of their inputs")
    ] = ""
    scans: Annotated[
        bool, Meta(description="8-bit matmuls take absolute values in operations of their own, whose results are kept")
    ] = False
    narrow_layers: Annotated[
        int | None, Meta(description="layers, counted from the first, that multiply in 8 or 4 bits; None = all")
    ] = None


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """Frozen weights in fewer bits."""

    scheme: Annotated[str, Meta(description="the scheme of frozen weights: nf4, int8, gptq ... (training/methods.py)")] = ""
    unquantized: Annotated[
        Literal[Dtype, ""], Meta(description="frozen weights that the scheme leaves alone; empty = as ``frozen``")
    ] = ""
    quant_block: Annotated[int, Meta(ge=1, description="elements that share a scale")] = 64
    double_quant: Annotated[bool, Meta(description="scales are quantised themselves")] = False
    shards_scales: Annotated[bool, Meta(description="scales are a part of the weight, and divided with it")] = False
    quant_saves: Annotated[
        Literal[Dtype, ""], Meta(description="width in which a quantised layer saves its input; empty = it saves none")
    ] = ""
    unpacks: Annotated[bool, Meta(description="weights are unpacked by plain tensor operations, and the copy is saved")] = False
    loads_whole: Annotated[
        bool, Meta(description="a model in fewer bits is loaded whole on every card before sharding cuts it")
    ] = False


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """The optimizer and its step."""

    optimizer: Annotated[str, Meta(description="the optimizer, a row of training/optimizers/rows.py")] = "adamw"
    implementation: Annotated[
        Literal["fused", "foreach", "loop", "in_backward"], Meta(description="how its step runs over the parameters")
    ] = "foreach"
    master: Annotated[Literal[Dtype, ""], Meta(description="a separate master copy of trained weights; empty = none")] = ""
    states: Annotated[Literal[Dtype, "same"], Meta(description="moments; same = as the weights, or their master copy")] = "same"
    optimizer_rank: Annotated[int, Meta(ge=1, description="rank of an optimizer that projects gradients")] = 128
    wide_ends: Annotated[bool, Meta(description="embeddings keep float32 moments beside 8-bit ones")] = False
    foreach_twice: Annotated[bool, Meta(description="a foreach step makes two lists of temporaries instead of one")] = False
    frees_gradients: Annotated[bool, Meta(description="gradients are freed after a step, not zeroed in place")] = True
    flattens: Annotated[bool, Meta(description="the step makes one flat block of the gradients")] = False
    visits: Annotated[bool, Meta(description="states lie on the host and come to the card for the step alone")] = False
    checks_overflow: Annotated[bool, Meta(description="gradients are summed in float32 before the step")] = False
    sub_group: Annotated[int, Meta(ge=1, description="elements that ZeRO-3 updates at once")] = 1_000_000_000


class Sharding(msgspec.Struct, frozen=True, kw_only=True):
    """What data-parallel ranks divide, what is put together for a moment, and what lies on the host."""

    kind: Annotated[ShardingKind, Meta(description="what data-parallel ranks divide among themselves")] = "none"
    reshard: Annotated[bool, Meta(description="gathered weights are freed after forward and gathered again")] = True
    live_gathers: Annotated[int, Meta(ge=1, description="blocks whose weights are whole at once")] = 1
    overlaps: Annotated[bool, Meta(description="DeepSpeed reduces gradients on a stream of its own (overlap_comm)")] = True
    flattens_beside: Annotated[bool, Meta(description="DeepSpeed's flat weights are made on the card, beside the tensors")] = True
    moves_whole: Annotated[
        bool,
        Meta(description="DeepSpeed moves the whole model to every card and cuts it up there (no zero.Init around its making)"),
    ] = False
    live_elements: Annotated[int, Meta(ge=0, description="weights that ZeRO-3 lets be whole at once")] = 1_000_000_000
    reuse_elements: Annotated[
        int, Meta(ge=0, description="elements within which a weight is used again and so stays whole under ZeRO-3")
    ] = 1_000_000_000
    prefetch_elements: Annotated[int, Meta(ge=0, description="elements that ZeRO-3 fetches ahead at a time")] = 50_000_000
    persistent_elements: Annotated[int, Meta(ge=0, description="weights of no more elements are always whole under ZeRO-3")] = (
        100_000
    )
    separate_ends: Annotated[bool, Meta(description="embedding and head are units of their own")] = False
    last_at_loss: Annotated[
        Literal["", "backward", "whole"],
        Meta(description="FSDP2's last block at the loss: gathered before its backward by the root's hook, or whole throughout"),
    ] = ""
    bucket_elements: Annotated[
        int, Meta(ge=0, description="elements of flat communication buckets in all; 0 = those that gradients are reduced in")
    ] = 0
    reduce_bucket: Annotated[int, Meta(ge=0, description="elements of one bucket of gradients; 0 = all of bucket_elements")] = 0
    buckets_from: Annotated[
        Literal["start", "loss", "gradients"],
        Meta(description="since when buckets exist: always, or in backward from the loss or from the first weight's gradient on"),
    ] = "start"
    ddp_buckets: Annotated[bool, Meta(description="DDP keeps a copy of the gradients in its buckets")] = False
    whole_accumulation: Annotated[
        Literal["none", "trained", "units"],
        Meta(description="gradients that stay whole until the last micro-batch: of trained weights, or of their whole units"),
    ] = "none"
    quantized_gathers: Annotated[bool, Meta(description="ZeRO++ gathers weights in 8 bits")] = False
    quantized_gradients: Annotated[bool, Meta(description="ZeRO++ reduces gradients in 4 bits")] = False
    offload: Annotated[tuple[Offloaded, ...], Meta(description="what lies in host memory")] = ()

    @property
    def bucket(self) -> int:
        """Elements of one bucket of gradients."""
        return self.reduce_bucket or self.bucket_elements

    @property
    def buckets(self) -> int:
        """Elements of all flat buckets: of ZeRO 1 and 2 one, or two where one is filled while the other is reduced."""
        two = self.overlaps and self.kind in ("zero1", "zero2")
        return self.bucket_elements or self.reduce_bucket * (2 if two else 1)


class ModelParallel(msgspec.Struct, frozen=True, kw_only=True):
    """How tensor, expert and pipeline parallelism divide a model, and what they hold for it."""

    sequence_parallel: Annotated[
        bool | None, Meta(description="norms and residuals hold 1/tp of the sequence; None = as the layout says")
    ] = None
    gathers_again: Annotated[
        bool, Meta(description="matmuls save a rank's part of the sequence and gather the rest again in backward")
    ] = False
    vocab_parallel: Annotated[bool, Meta(description="logits are cut over the tensor-parallel ranks")] = False
    partial_embedding: Annotated[
        bool, Meta(description="ranks that share a vocabulary each make the embedding's whole gradient")
    ] = False
    pad_vocab_to: Annotated[int, Meta(ge=1, description="the vocabulary is padded to a multiple of this, times tp")] = 1
    expert_tp: Annotated[int, Meta(ge=1, description="tensor-parallel ranks that share one expert")] = 1
    imbalance: Annotated[float, Meta(ge=1, description="rows of the busiest rank's experts over the mean")] = 1.0
    overlaps_experts: Annotated[bool, Meta(description="expert communication hides behind another micro-batch")] = False
    overlaps_tensor: Annotated[
        bool, Meta(description="gathers and scatters of tensor parallelism run in chunks beside their products; no memory")
    ] = False
    dispatcher: Annotated[
        Literal["alltoall", "flex", "padded"],
        Meta(description="how tokens reach experts: NCCL, DeepEP or HybridEP, known capacities; its buffers are not counted"),
    ] = "alltoall"
    stage_cut: Annotated[
        Cut, Meta(description="how layers are cut into stages; with _ends embedding and head count as layers (stage_layouts.py)")
    ] = "even"
    cp_comm: Annotated[
        Literal["p2p", "a2a"],
        Meta(description="ranks that share a sequence pass keys and values on, or exchange heads for tokens"),
    ] = "p2p"
    stage_layout: Annotated[
        str, Meta(max_length=4096, description="Megatron's pipeline layout, as Et*3|(tt|)*6L; empty = as ``stage_cut``")
    ] = ""
    uneven_stages: Annotated[bool, Meta(description="layers need not divide into stages")] = False
    microbatch_group: Annotated[
        int, Meta(ge=0, description="micro-batches that run through a virtual stage before the next; 0 = as many as stages")
    ] = 0
    pipeline_engine: Annotated[bool, Meta(description="DeepSpeed's pipeline engine, with its own process groups")] = False
    receives_ahead: Annotated[bool, Meta(description="receive buffers for all micro-batches exist at once")] = False
    spread: Annotated[bool, Meta(description="device_map lays layers on the cards one after another, without a schedule")] = False


class Recomputation(msgspec.Struct, frozen=True, kw_only=True):
    """Which activations are computed again in backward."""

    policy: Annotated[Policy, Meta(description="what is computed again: none, full, op, block:2, modules:mlp+moe ...")] = Policy()
    offload_modules: Annotated[
        tuple[Moved, ...],
        Meta(description="parts of a layer whose saved tensors lie on the host until backward (Megatron's list)"),
    ] = ()
    reentrant: Annotated[bool, Meta(description="torch's reentrant checkpoint, which runs its own autograd")] = False


class Kernels(msgspec.Struct, frozen=True, kw_only=True):
    """Which implementation runs each part of a layer."""

    attention: Annotated[
        Literal["flash", "cudnn", "efficient", "math", "eager", "unfused"], Meta(description="the attention kernel")
    ] = "flash"
    sdpa: Annotated[bool, Meta(description="torch picks the kernel for each layer, ``attention`` first")] = False
    repeats_kv: Annotated[bool, Meta(description="keys and values are expanded to all heads")] = False
    qkv: Annotated[
        Literal["separate", "views", "copies"], Meta(description="queries, keys and values: three projections, or parts of one")
    ] = "separate"
    norm: Annotated[
        Literal["eager", "native", "fused"], Meta(description="norms: written out in Python, torch's own, one fused kernel")
    ] = "eager"
    norm_form: Annotated[NormForm, Meta(description="where an eager norm casts back to 16 bits")] = "narrow"
    rope: Annotated[Literal["eager", "fused"], Meta(description="rotary embedding")] = "eager"
    glu: Annotated[
        Literal["eager", "views", "torch", "fused", "recomputed", "packed"],
        Meta(description="the gated part of an MLP; views: gate and up are parts of one matmul's result"),
    ] = "eager"
    clamped_glu: Annotated[bool, Meta(description="GPT-OSS's gate, clamped on both sides")] = False
    experts: Annotated[Literal["loop", "grouped"], Meta(description="experts one after another, or in grouped matmuls")] = "loop"
    fused_experts: Annotated[bool, Meta(description="all experts are one tensor (transformers 5)")] = False
    splits_experts: Annotated[bool, Meta(description="experts packed in one tensor are split into linear layers")] = False
    float_router: Annotated[bool, Meta(description="the router runs in float32")] = False
    scan: Annotated[
        Literal["kernels", "torch"], Meta(description="recurrent mixers run in kernels of packages, or in plain torch")
    ] = "kernels"
    modules: Annotated[str, Meta(description="the family whose own layers in transformers run; empty = the framework's own")] = ""
    compiled: Annotated[bool, Meta(description="torch.compile")] = False
    graphed: Annotated[
        float, Meta(ge=0, le=1, description="share of the launches that CUDA graphs replay; their memory is not counted")
    ] = 0.0
    one_graph: Annotated[bool, Meta(description="the whole step is one compiled graph")] = False
    hidden_dropout: Annotated[Share, Meta(description="dropout of the hidden stream")] = 0.0
    attention_dropout: Annotated[Share, Meta(description="dropout of attention's probabilities")] = 0.0


class Adapters(msgspec.Struct, frozen=True, kw_only=True):
    """How adapters run and what they reach."""

    adapter_dtype: Annotated[Dtype, Meta(description="the adapters' weights")] = "float32"
    fused_adapter: Annotated[bool, Meta(description="one autograd function for a projection and its adapter")] = False
    pads_adapters: Annotated[
        bool, Meta(description="what is added to parts of a packed projection is copied into its whole width")
    ] = False
    adapts_router: Annotated[bool, Meta(description="all-linear reaches the routers of experts")] = False
    adapts_experts: Annotated[
        Literal["layers", "tensors", "none"],
        Meta(description="what names of experts' projections mean: layers, the tensors of all experts, or nothing"),
    ] = "layers"


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The output head and the cross entropy."""

    kind: Annotated[LossKind, Meta(description="the implementation of head and cross entropy")] = "plain"
    logits_kept: Annotated[bool, Meta(description="the model's own 16-bit logits stay beside the float copy")] = False
    holds_logits: Annotated[Literal[Dtype, ""], Meta(description="logits that a variable of the loop holds in backward")] = ""
    returns_cache: Annotated[bool, Meta(description="the model returns keys and values beside its logits (use_cache)")] = False
    keeps_outputs: Annotated[
        bool, Meta(description="a pipeline's last stage keeps the logits of every micro-batch until the step is over")
    ] = False
    output_buffers: Annotated[int, Meta(ge=0, description="of those at most so many, until written again; 0 = all")] = 0
    logits_upcast: Annotated[bool, Meta(description="the loss converts logits to float32")] = True
    direct_loss: Annotated[bool, Meta(description="the model's own cross entropy takes its logits as they are")] = False
    logits_softcap: Annotated[bool, Meta(description="logits are squashed by a tanh")] = False
    tied: Annotated[bool | None, Meta(description="head and embedding share a tensor; None = as the model says")] = None
    scored: Annotated[float, Meta(gt=0, le=1, description="share of the tokens whose logits are computed")] = 1.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is trained, on what, and the moments beside the step."""

    kind: Annotated[str, Meta(description="sft, dpo, grpo ...: a row of training/methods.py")] = "sft"
    method: Annotated[Literal["full", "frozen", "partial", "adapter"], Meta(description="which weights are trained")] = "full"
    trainable_layers: Annotated[int | None, Meta(description="layers that a partial method trains")] = None
    trains_ends: Annotated[bool, Meta(description="a partial method trains embedding and head")] = False
    freezes_towers: Annotated[bool, Meta(description="vision and audio towers are neither trained nor adapted")] = False
    sequences: Annotated[int, Meta(ge=1, description="sequences that one sample becomes")] = 1
    frozen_copies: Annotated[int, Meta(ge=0, description="further copies of the model that only run forward")] = 0
    trained_copies: Annotated[int, Meta(ge=0, description="further copies of the model that are trained")] = 0
    tenant: Annotated[Share, Meta(description="share of the card that an engine beside the training claims")] = 0.0
    lengths: Annotated[Literal["fixed", "variable"], Meta(description="whether batches differ in length")] = "fixed"
    longest_first: Annotated[bool, Meta(description="the longest sample, far above the others, makes the first micro-batch")] = (
        False
    )
    extends_positions: Annotated[bool, Meta(description="rotary positions are extended beyond the model's own")] = False
    images: Annotated[int, Meta(ge=0, description="images of one sequence; 0 = text alone")] = 0
    image_patches: Annotated[int, Meta(ge=0, description="patches of one image in the tower; 0 = as its config says")] = 0
    eval_batch: Annotated[int, Meta(ge=0, description="sequences of an evaluation batch; 0 = no evaluation")] = 0
    eval_kept: Annotated[int, Meta(ge=1, description="batches of logits that stay on the card (eval_accumulation_steps)")] = 1
    saves: Annotated[
        Literal["", "full", "device", "sharded", "async"], Meta(description="the checkpoint that is written; empty = none")
    ] = ""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The process that runs the step: allocator, kernels, workspaces."""

    expandable: Annotated[bool, Meta(description="the allocator's expandable segments")] = False
    lazy_modules: Annotated[bool, Meta(description="kernels are loaded when they are first used")] = True
    workspaces: Annotated[int, Meta(ge=0, description="matmul workspaces beside the two of torch")] = 0


Part = Precision | Quantization | Update | Sharding | ModelParallel | Recomputation | Kernels | Adapters | Loss | Task | Process


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved recipe: every decision that a training step's memory depends on, by part."""

    framework: str = ""
    version: str = ""
    task: Task = Task()
    precision: Precision = Precision()
    quantization: Quantization = Quantization()
    update: Update = Update()
    sharding: Sharding = Sharding()
    model_parallel: ModelParallel = ModelParallel()
    recomputation: Recomputation = Recomputation()
    kernels: Kernels = Kernels()
    adapters: Adapters = Adapters()
    loss: Loss = Loss()
    process: Process = Process()


def width(dtype: str) -> int:
    """Bytes of one element. Raises QuestionError for a dtype that is none of a recipe's."""
    if dtype not in DTYPES:
        raise QuestionError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return BY_NAME[dtype].bits // 8
