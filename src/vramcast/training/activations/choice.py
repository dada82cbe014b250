"""From a resolved recipe to the style of its layers: which kernels run, in which dtypes, and what is known of such layers.

Known is whether the layers' class was read, and how far its traced layers were from the formulas.
"""

from collections.abc import Mapping
from functools import cache
from statistics import quantiles

import msgspec

from vramcast.ledger import Assumption, RankMemory, Unmodelled
from vramcast.models.classes import Layer, Traced, model_class, model_classes
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, LatentAttention
from vramcast.models.quantization.formats import NAMED
from vramcast.training.adapters.prompts import PREFIXES
from vramcast.training.adapters.tensors import parts_of
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.recipe.parts import GATHERED, Kernels, Recipe, width
from vramcast.workload import Adapter, Parallel


class LowRank(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter on linear layers, of a ``kind``: ranks by role, the dtype of its weights and its dropout.

    ``casts``: the adapter's input is cast to its dtype first (PEFT); ``fused``: one autograd function per projection that saves
    only its (dropped out) input (Unsloth's fast_lora); ``dora``: the magnitude path computes a second full output; ``padded``:
    parts of a packed projection whose additions are copied into its whole width (litgpt).
    """

    kind: str = "lora"
    ranks: Mapping[str, int] = {}
    width: int = 4
    dropout: float = 0.0
    casts: bool = True
    fused: bool = False
    dora: bool = False
    padded: frozenset[str] = frozenset()


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides what a layer saves for one token. Widths are bytes.

    ``kernels``: the recipe's own part; the rest follows from several parts of it, or from the model.
    ``width``: inputs and outputs of matmuls; ``residual``: the residual stream; ``cast_weights``: autocast keeps a copy of each
    weight; ``autocast``: pow, softmax and layer norms run in fp32, matmuls cast their inputs; ``norm_weight``: width of a norm's
    weight; ``expert_width``: that of experts which are one tensor, which grouped matmuls do not cast (transformers 5).
    ``dequantize``: bytes of a dequantised weight element per call, 0 = none; ``quant_width``: width in which a quantised linear
    saves its input though frozen (bitsandbytes up to 0.42), 0 = it does not; ``saved_inputs``: width in which a trained
    matmul saves its input when that differs (fp8, fp4), 0 = as it is; ``saved_weights``: the same of its weight;
    ``scans``: operations of their own take the absolute values of both, whose largest is wanted;
    ``unpacks``: weights are unpacked by plain tensor operations, and the unpacked copy is saved for backward (AutoGPTQ's own
    kernel in training); ``reached``: gradients are wanted of the layers' input, as of any above a trained embedding;
    ``embeds``: gradients are wanted of the embeddings, as checkpointing asks for where it is on; else the first layer saves less;
    ``normed_embedding``: a LayerNorm of the embeddings saves its input;
    ``joined``: attention runs image by image, and its results are copied into one; ``written``: the class's own row.
    ``recomputed``: layers run again in backward. ``trains``: the layer's own weights want gradients; ``trains_norms``: those of
    its norms alone do (PEFT's LN tuning), which save what they scale. ``left_wide``: roles that every quantiser leaves in float
    (T5's wo). ``prefixed``: attention looks at a trained prompt as well, and a gate adds what it sees (LLaMA-Adapter).
    ``exchanges``: an all-to-all after attention gives heads back for tokens, into a tensor of its own.
    ``gathers_again``: a matmul saves its rank's part of the sequence, and gathers the rest in backward as in forward.
    ``units_cast``: sharded units cast what they are given to their own width (FSDP2; FSDP1 casts for its root alone).
    ``moved``: modules whose saved tensors lie on the host (``activations/selective.py``).
    """

    kernels: Kernels = Kernels()
    width: int = 2
    residual: int = 2
    autocast: bool = False
    cast_weights: bool = False
    norm_weight: int = 2
    quant_width: int = 0
    saved_inputs: float = 0
    saved_weights: float = 0
    scans: bool = False
    unpacks: bool = False
    expert_width: int = 2
    trains: bool = True
    trains_norms: bool = False
    prefixed: bool = False
    exchanges: bool = False
    reached: bool = True
    embeds: bool = True
    joined: bool = False
    adapter: LowRank | None = None
    dequantize: int = 0
    gradient_width: int = 2
    units_cast: bool = False
    moved: tuple[str, ...] = ()
    tp: int = 1
    sp: bool = False
    gathers_again: bool = False
    ep: int = 1
    expert_tp: int = 1
    imbalance: float = 1.0
    normed_embedding: bool = False
    written: Layer = Layer()
    recomputed: bool = False
    left_wide: frozenset[str] = frozenset()

    def under(self, **kernels: str | float) -> "Style":
        """The same style with other words or figures of the recipe's kernels."""
        return msgspec.structs.replace(self, kernels=msgspec.structs.replace(self.kernels, **kernels))

    @property
    def widens_queries(self) -> bool:
        """Whether 4-bit layers hand out float queries, as they return the type of their input, which autocast then narrows."""
        return bool(self.dequantize) and self.autocast and self.residual > self.width


# Bytes of one element as a narrow matmul saves it; NVFP4 is half a byte and one byte of scale for 16 elements.
SAVED_WIDTHS = {"float8": 1, "nvfp4": NAMED["nvfp4"].per_element}


def updates_inside_backward(recipe: Recipe) -> bool:
    """Whether each gradient is used and freed as soon as it exists."""
    return recipe.update.implementation == "in_backward" or optimizer(recipe.update.optimizer).gradient_free


def _expert_width(recipe: Recipe, compute: int) -> int:
    """Grouped matmuls take the width of the experts' weights, which autocast leaves alone (transformers, integrations/moe.py)."""
    if not recipe.precision.autocast or not recipe.kernels.fused_experts or recipe.sharding.kind in GATHERED:
        return compute
    return width(
        recipe.precision.weights if recipe.task.method == "full" else recipe.quantization.unquantized or recipe.precision.frozen
    )


def _casts_weights(recipe: Recipe, adapter: Adapter | None, compute: int) -> bool:
    """Autocast's 16-bit copies of float weights, which a matmul saves for the gradient of its input, frozen or not."""
    if not recipe.precision.autocast or recipe.sharding.kind in GATHERED or (adapter and recipe.quantization.scheme):
        return False
    return width(recipe.precision.frozen if adapter else recipe.precision.weights) > compute


def _low_rank(recipe: Recipe, adapter: Adapter, ranks: dict[str, int]) -> LowRank:
    """How the adapters beside the layers' matrices are run.

    FSDP2's mixed precision hands adapters over in the compute dtype; FSDP1's units still show their float shards to PEFT, which
    casts the input to float first (torch 2.13, fsdp/_runtime_utils.py, _pre_forward: the unit's own hook casts it back).
    """
    gathered = recipe.precision.autocast and recipe.sharding.kind == "fsdp2"
    return LowRank(
        kind=adapter.kind,
        ranks=ranks,
        width=width(recipe.precision.compute if gathered else recipe.adapters.adapter_dtype),
        dropout=adapter.dropout,
        casts=not recipe.precision.autocast,
        fused=recipe.adapters.fused_adapter,
        dora=adapter.dora or adapter.kind == "dora",
        padded=parts_of(adapter) if recipe.adapters.pads_adapters else frozenset(),
    )


def _written(recipe: Recipe) -> Layer:
    """The words of the class whose layers in transformers run; a class never read is named by ``unread_layers``."""
    return model_class(recipe.kernels.modules).layer or Layer()


def style_of(recipe: Recipe, parallel: Parallel, adapter: Adapter | None, ranks: dict[str, int]) -> Style:
    """How this recipe's layers are implemented."""
    compute = width(recipe.precision.compute)
    return Style(
        kernels=recipe.kernels,
        width=compute,
        residual=width(recipe.precision.residual),
        autocast=recipe.precision.autocast,
        expert_width=_expert_width(recipe, compute),
        cast_weights=_casts_weights(recipe, adapter, compute),
        norm_weight=width(recipe.precision.norm_weight),
        saved_inputs=SAVED_WIDTHS.get(recipe.precision.saved_inputs, 0),
        saved_weights=SAVED_WIDTHS["nvfp4"]
        if recipe.precision.saved_inputs == "nvfp4" and recipe.recomputation.policy.kind != "op"
        else 0,
        scans=recipe.precision.scans,
        unpacks=recipe.quantization.unpacks and bool(recipe.quantization.scheme),
        quant_width=width(recipe.quantization.quant_saves)
        if recipe.quantization.quant_saves and recipe.quantization.scheme
        else 0,
        trains=adapter is None and recipe.task.method in ("full", "partial"),
        trains_norms=adapter is not None and adapter.kind in ("ln_tuning", "adapter_v2"),
        prefixed=adapter is not None and adapter.kind in PREFIXES,
        adapter=_low_rank(recipe, adapter, ranks) if adapter and ranks else None,
        dequantize=compute if recipe.quantization.scheme and not recipe.quantization.scheme.startswith("gptq") else 0,
        gradient_width=0
        if updates_inside_backward(recipe) or recipe.precision.placeholders
        else width(recipe.precision.backward_gradients),
        exchanges=parallel.cp > 1 and recipe.model_parallel.cp_comm == "a2a",
        units_cast=recipe.sharding.kind == "fsdp2",
        moved=recipe.recomputation.offload_modules,
        tp=parallel.tp,
        sp=parallel.sp if recipe.model_parallel.sequence_parallel is None else recipe.model_parallel.sequence_parallel,
        gathers_again=recipe.model_parallel.gathers_again,
        ep=parallel.ep,
        expert_tp=recipe.model_parallel.expert_tp,
        imbalance=recipe.model_parallel.imbalance,
        recomputed=recipe.recomputation.policy.kind == "full",
        written=_written(recipe),
    )


SHOWN = 0.05
"""A traced error beyond this stands among what is not modelled; a smaller one among what was assumed."""


def unread_layers(recipe: Recipe) -> tuple[Unmodelled, ...]:
    """What the answer says where the layers that run belong to a class whose modelling file nobody read."""
    modules = recipe.kernels.modules
    if not modules or model_class(modules).layer is not None:
        return ()
    return (Unmodelled(f"how {modules} writes its layers was not read: activations are those of Llama's operations"),)


def traced_error(recipe: Recipe) -> Traced | None:
    """The error of the class's traced layers, that of nine in ten traced classes where it has none.

    None where a framework brings layers of its own.
    """
    modules = recipe.kernels.modules
    return (model_class(modules).traced or usual_error()) if modules else None


@cache
def usual_error() -> Traced:
    """The errors that nine in ten of the traced classes keep within."""
    rows = [row.traced for row in model_classes() if row.traced]
    return Traced(**{f: quantiles([getattr(r, f) for r in rows], n=10)[-1] for f in Traced.__struct_fields__})


def slack_bytes(recipe: Recipe, rank: RankMemory) -> int:
    """How far the peak may be off for the layers' sake, bytes: what waits and the live layer, times their errors."""
    error = traced_error(recipe)
    if error is None:
        return 0
    peak = {term.name: term.bytes for term in rank.peak.terms}
    waiting = error.kept if recipe.recomputation.policy.kind == "full" else error.saved
    return round(waiting * peak.get("activations", 0) + max(error.forward, error.backward) * peak.get("temporaries", 0))


def traced_notes(recipe: Recipe, ranks: tuple[RankMemory, ...]) -> tuple[tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """The same in words, for the lists of the answer: what was assumed, or, where it is more than ``SHOWN``, not modelled."""
    error, modules = traced_error(recipe), recipe.kernels.modules
    if error is None:
        return (), ()
    worst, bound = max(getattr(error, f) for f in Traced.__struct_fields__), max(slack_bytes(recipe, rank) for rank in ranks)
    if model_class(modules).traced is None:
        said = f"no layer of {modules} was traced: nine in ten classes' were within {worst:.0%} of these formulas"
        return (), (Unmodelled(said, bound),)
    if worst > SHOWN:
        tops = max(error.forward, error.backward)
        said = f"traced {modules} layers were off by up to {error.saved:.1%} in what waits for backward, {tops:.1%} at their top"
        return (), (Unmodelled(said, bound),)
    because = "the largest error over traced layers of the class, truth/traced/activations.jsonl"
    return (Assumption("traced_error", round(worst, 3), because),), ()


WRITTEN_OUT = ("Mamba1", "Mamba2", "GatedDeltaNet")
"""Mixers whose plain torch operations are written down and held against traces."""


def scans_of(model: Model) -> tuple[str, ...]:
    """The kinds of mixers with a state that a model has, by their names."""
    kinds = (type(m).__name__ for b in model.blocks for m in b.mixers if not isinstance(m, (Attention, LatentAttention)))
    return tuple(dict.fromkeys(name for name in kinds if name != "ShortConv"))


def unchecked(model: Model, recipe: Recipe) -> tuple[Unmodelled, ...]:
    """The scans that no trace has checked: those of kernels, and in plain torch all but those that are written down."""
    kinds = [name for name in scans_of(model) if recipe.kernels.scan != "torch" or name not in WRITTEN_OUT]
    how = (
        "its kernels' own sources"
        if recipe.kernels.scan != "torch"
        else "its kernels, though it runs in plain torch and saves far more"
    )
    return tuple(Unmodelled(f"what a {name} scan saves follows {how}: no run or trace has checked it") for name in kinds)
