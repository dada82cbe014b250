"""From a resolved recipe to the style of its layers."""

from vramcast.ledger import Unmodelled
from vramcast.models.classes import Layer, model_class
from vramcast.training.activations.style import LowRank, Style
from vramcast.training.adapters.tensors import parts_of
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.recipe.recipe import GATHERED, Recipe, width
from vramcast.workload import Adapter, Parallel

# Bytes of one element as a narrow matmul saves it; NVFP4 is half a byte and one byte of scale for 16 elements.
SAVED_WIDTHS = {"float8": 1, "nvfp4": 0.5 + 1 / 16}


def updates_inside_backward(recipe: Recipe) -> bool:
    """Whether each gradient is used and freed as soon as it exists."""
    return recipe.update == "in_backward" or optimizer(recipe.optimizer).gradient_free


def _expert_width(recipe: Recipe, compute: int) -> int:
    """Grouped matmuls take the width of the experts' weights, which autocast leaves alone (transformers, integrations/moe.py)."""
    if not recipe.autocast or not recipe.fused_experts or recipe.sharding in GATHERED:
        return compute
    return width(recipe.weights if recipe.method == "full" else recipe.unquantized or recipe.frozen)


def _casts_weights(recipe: Recipe, adapter: Adapter | None, compute: int) -> bool:
    """Autocast's 16-bit copies of float weights, which a matmul saves for the gradient of its input, frozen or not."""
    if not recipe.autocast or recipe.sharding in GATHERED or (adapter and recipe.quant):
        return False
    return width(recipe.frozen if adapter else recipe.weights) > compute


def _low_rank(recipe: Recipe, adapter: Adapter, ranks: dict[str, int]) -> LowRank:
    """How the adapters beside the layers' matrices are run."""
    return LowRank(
        kind=adapter.kind,
        ranks=ranks,
        width=width(recipe.adapter_dtype),
        dropout=adapter.dropout,
        casts=not recipe.autocast,
        fused=recipe.fused_adapter,
        dora=adapter.dora or adapter.kind == "dora",
        padded=parts_of(adapter) if recipe.pads_adapters else frozenset(),
    )


def _written(recipe: Recipe) -> Layer:
    """The words of the class whose layers in transformers run; a class never read is named by ``unread_layers``."""
    return model_class(recipe.modules).layer or Layer()


def unread_layers(recipe: Recipe) -> tuple[Unmodelled, ...]:
    """What the answer says where the layers that run belong to a class whose modelling file nobody read."""
    if not recipe.modules or model_class(recipe.modules).layer is not None:
        return ()
    return (Unmodelled(f"how {recipe.modules} writes its layers was not read: activations are those of Llama's operations"),)


def style_of(recipe: Recipe, parallel: Parallel, adapter: Adapter | None, ranks: dict[str, int]) -> Style:
    """How this recipe's layers are implemented."""
    compute = width(recipe.compute)
    return Style(
        width=compute,
        residual=width(recipe.residual),
        autocast=recipe.autocast,
        norm_form=recipe.norm_form,
        sdpa=recipe.sdpa,
        fused_experts=recipe.fused_experts,
        float_router=recipe.float_router,
        clamped_glu=recipe.clamped_glu,
        expert_width=_expert_width(recipe, compute),
        cast_weights=_casts_weights(recipe, adapter, compute),
        norm=recipe.norm,
        norm_weight=width(recipe.norm_weight),
        rope=recipe.rope,
        glu=recipe.glu,
        attention=recipe.attention,
        repeats_kv=recipe.repeats_kv,
        qkv=recipe.qkv,
        saved_inputs=SAVED_WIDTHS.get(recipe.saved_inputs, 0),
        saved_weights=SAVED_WIDTHS["nvfp4"] if recipe.saved_inputs == "nvfp4" and recipe.checkpointing != "op" else 0,
        scans=recipe.scans,
        unpacks=recipe.unpacks and bool(recipe.quant),
        quant_width=width(recipe.quant_saves) if recipe.quant_saves and recipe.quant else 0,
        experts=recipe.experts,
        trains=adapter is None and recipe.method in ("full", "partial"),
        trains_norms=adapter is not None and adapter.kind == "ln_tuning",
        adapter=_low_rank(recipe, adapter, ranks) if adapter and ranks else None,
        dequantize=compute if recipe.quant and not recipe.quant.startswith("gptq") else 0,
        hidden_dropout=recipe.hidden_dropout,
        attention_dropout=recipe.attention_dropout,
        gradient_width=0 if updates_inside_backward(recipe) else width(recipe.backward_gradients),
        tp=parallel.tp,
        sp=parallel.sp if recipe.sequence_parallel is None else recipe.sequence_parallel,
        ep=parallel.ep,
        expert_tp=recipe.expert_tp,
        imbalance=recipe.imbalance,
        scan=recipe.scan,
        recomputed=recipe.checkpointing == "full",
        written=_written(recipe),
    )
