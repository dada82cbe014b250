"""A resolved recipe: every decision a training step's memory depends on, and where each one came from."""

from typing import Any

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import Assumption

# Shardings under which whole weights exist only while their layer runs.
GATHERED = ("zero3", "fsdp1", "fsdp2")
WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
_DTYPE_NAMES = {
    "fp32": "float32", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp8": "float8",
}  # fmt: skip


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept and done. Dtypes are torch names; a field's meaning in one line each.

    ``weights``: trained weights as held; ``frozen``: weights that are not trained; ``compute``: inputs of matmuls; ``autocast``:
    weights are cast on use; ``residual``: the hidden stream; ``gradients``: as left for the optimizer; ``backward_gradients``: as
    autograd makes them; ``reduce``: gradient communication; ``master``: dtype of a separate master copy or ""; ``states``:
    optimizer state dtype or "same"; ``optimizer_rank``: of a projecting optimizer; ``wide_ends``: embeddings keep fp32 states
    beside 8-bit ones; ``update``: fused, foreach, loop, in_backward; ``adapter_dtype``; ``norm_weight``.
    ``sharding``: none, ddp, zero1, zero2, zero3, fsdp1, fsdp2, distributed_optimizer; ``shards``: ranks that share a state.
    ``checkpointing``: none, full, selective, op, layer:n, offloaded. ``live_gathers``: blocks gathered at once;
    ``live_elements``: weights that ZeRO-3 lets be whole at once.
    ``pipeline_engine``: DeepSpeed's pipeline engine, its process groups beside Megatron's; ``stage_cut``: even, balanced, or
    balanced_ends where embedding and head count as layers; ``checks_overflow``: gradients are summed in float32 before a step.
    ``receives_ahead``: a pipeline's receive buffers for all micro-batches exist at once.
    ``foreach_twice``: a foreach step makes two lists of temporaries instead of one.
    ``microbatch_group``: micro-batches that run through a virtual stage before the next one, 0 = as many as stages;
    ``overlaps_experts``: expert communication hides behind another micro-batch. ``flattens``: its step makes one block of the
    gradients. ``returns_cache``: the model returns keys and values beside its logits (use_cache). ``spread``: layers lie on the
    cards one after another (device_map), with no pipeline schedule.
    ``scored``: share of the tokens whose logits are computed (GRPO: those of the completion, grpo_trainer.py, logits_to_keep).
    ``eval_kept``: batches of logits that stay on the card at evaluation (eval_accumulation_steps).
    ``images``: of one sequence, 0 = text alone; ``image_patches``: of one image in the vision tower, before patches are merged,
    0 = as many as the tower's config says.
    ``saves``: the checkpoint that is written: full, device (full, whole on every card), sharded, async.
    ``narrow_layers``: how many layers, from the first, multiply in 8 or 4 bits; None = all.
    ``freezes_towers``: vision and audio towers are neither trained nor adapted.
    ``longest_first``: the longest sample, far above the others, makes the first micro-batch, which finds no gradients.
    ``adapts_router``, ``adapts_experts``: what an adapter's names reach of a mixture (training/adapters/tensors.py, targeted).
    ``direct_loss``: the model's own cross entropy takes its logits as they are.
    ``scan``: whether recurrent mixers run in kernels (mamba-ssm, causal-conv1d, flash-linear-attention) or in plain torch.
    ``modules``: the family whose own layers in transformers run, "" where a framework brings its own.
    ``pads_adapters``: what an adapter adds to some parts of a packed projection is copied into all of its width.
    ``scans``: 8-bit matmuls find the largest absolute value in operations of their own, which are kept. ``one_graph``: the whole
    step is one compiled graph. ``partial_embedding``: ranks that share a vocabulary each make the embedding's whole gradient.
    ``sub_group``: elements ZeRO-3 updates at once; ``quantized_gathers``, ``quantized_gradients``: ZeRO++'s 8-bit weights and
    4-bit gradients on the links.
    """

    framework: str
    version: str = ""
    method: str = "full"
    weights: str
    frozen: str
    compute: str
    autocast: bool = False
    residual: str
    gradients: str
    backward_gradients: str
    reduce: str
    low_gradients: str = ""
    master: str = ""
    states: str = "same"
    optimizer: str
    optimizer_rank: int = 128
    wide_ends: bool = False
    update: str
    foreach_twice: bool = False
    adapter_dtype: str = "float32"
    norm_weight: str
    norm: str
    norm_form: str = "narrow"
    rope: str
    glu: str
    attention: str
    sdpa: bool = False
    repeats_kv: bool = False
    qkv: str = "separate"
    quant_saves: str = ""
    saved_inputs: str = ""
    scans: bool = False
    narrow_layers: int | None = None
    whole_accumulation: str = "none"
    separate_ends: bool = False
    sequence_parallel: bool | None = None
    experts: str
    loss: str
    logits_kept: bool = False
    holds_logits: str = ""
    returns_cache: bool = False
    logits_upcast: bool = True
    direct_loss: bool = False
    logits_softcap: bool = False
    checkpointing: str
    reentrant: bool = False
    hidden_dropout: float = 0.0
    attention_dropout: float = 0.0
    sharding: str
    reshard: bool = True
    live_gathers: int = 1
    live_elements: int = 1_000_000_000
    bucket_elements: int = 0
    ddp_buckets: bool = False
    frees_gradients: bool = True
    vocab_parallel: bool = False
    partial_embedding: bool = False
    pad_vocab_to: int = 1
    tied: bool | None = None
    fused_adapter: bool = False
    pads_adapters: bool = False
    quant: str = ""
    unquantized: str = ""
    loads_whole: bool = False
    unpacks: bool = False
    splits_experts: bool = False
    fused_experts: bool = False
    float_router: bool = False
    clamped_glu: bool = False
    adapts_router: bool = False
    adapts_experts: str = "layers"
    quant_block: int = 64
    double_quant: bool = False
    offload: tuple[str, ...] = ()
    compiled: bool = False
    stage_cut: str = "even"
    checks_overflow: bool = False
    microbatch_group: int = 0
    overlaps_experts: bool = False
    imbalance: float = 1.0
    modules: str = ""
    scan: str = "kernels"
    expert_tp: int = 1
    lengths: str = "fixed"
    longest_first: bool = False
    extends_positions: bool = False
    uneven_stages: bool = False
    spread: bool = False
    workspaces: int = 0
    pipeline_engine: bool = False
    receives_ahead: bool = False
    flattens: bool = False
    sub_group: int = 1_000_000_000
    quantized_gathers: bool = False
    quantized_gradients: bool = False
    lazy_modules: bool = True
    one_graph: bool = False
    expandable: bool = False
    trainable_layers: int | None = None
    trains_ends: bool = False
    freezes_towers: bool = False
    task: str = "sft"
    sequences: int = 1
    scored: float = 1.0
    frozen_copies: int = 0
    trained_copies: int = 0
    tenant: float = 0.0
    eval_batch: int = 0
    eval_kept: int = 1
    saves: str = ""
    images: int = 0
    image_patches: int = 0


class Draft:
    """A recipe being filled: the first value set for a name wins, and each remembers why."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}
        for name, value in given.items():
            if name not in Recipe.__struct_fields__:
                raise unknown_name("training option", name, Recipe.__struct_fields__)
            if value is not None:
                self.values[name] = dtype_name(value) if isinstance(value, str) else value
                self.reasons[name] = "given"

    def default(self, because: str, **values: Any) -> None:
        """Fill the names that are still open, each with the reason; one without a reason is not worth telling."""
        for name, value in values.items():
            if name not in self.values:
                self.values[name] = value
                self.reasons[name] = because

    def translate(self, because: str, name: str, meanings: dict[Any, Any]) -> None:
        """Replace a general word that was given by what it means in this framework."""
        given = self.values.get(name)
        if given in meanings:
            self.values[name] = meanings[given]
            self.reasons[name] = f"{given!r} means {meanings[given]!r} here: {because}"

    def extend(self, because: str, name: str, more: tuple[str, ...]) -> None:
        """Add to a list that was given what follows from it in this framework."""
        self.values[name] = (*self.values.get(name, ()), *(m for m in more if m not in self.values.get(name, ())))
        self.reasons[name] = because

    def get(self, name: str, otherwise: Any = None) -> Any:
        """The value so far."""
        return self.values.get(name, otherwise)

    def finish(self) -> tuple[Recipe, tuple[Assumption, ...]]:
        """The recipe, and what was assumed with its reason."""
        told = ((n, v, self.reasons[n]) for n, v in self.values.items() if self.reasons[n] not in ("given", ""))
        assumed = tuple(Assumption(name, value, because) for name, value, because in told)
        try:
            return msgspec.convert(self.values, Recipe), assumed
        except msgspec.ValidationError as error:
            raise QuestionError(f"training option {str(error).replace('`', '').replace(' - at $.', ', for ')}") from None


def dtype_name(value: str) -> str:
    """The torch name of a dtype; other text is returned unchanged."""
    return _DTYPE_NAMES.get(value.removeprefix("torch."), value.removeprefix("torch."))


def width(dtype: str) -> int:
    """Bytes of one element. Raises QuestionError for a dtype that is none."""
    found = WIDTHS.get(dtype_name(dtype))
    if found is None:
        raise QuestionError(f"dtype {dtype!r} is not one of {', '.join(WIDTHS)}")
    return found
