"""From a resolved recipe to the style of its layers."""

from vramcast.models.classes import Layer, model_class
from vramcast.models.quantization.formats import NAMED
from vramcast.training.activations.style import LowRank, Style
from vramcast.training.adapters.tensors import parts_of
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.recipe.parts import GATHERED, Recipe, width
from vramcast.workload import Adapter, Parallel

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
    """How the adapters beside the layers' matrices are run."""
    return LowRank(
        kind=adapter.kind,
        ranks=ranks,
        width=width(recipe.adapters.adapter_dtype),
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
        width=compute,
        residual=width(recipe.precision.residual),
        autocast=recipe.precision.autocast,
        norm_form=recipe.kernels.norm_form,
        sdpa=recipe.kernels.sdpa,
        fused_experts=recipe.kernels.fused_experts,
        float_router=recipe.kernels.float_router,
        clamped_glu=recipe.kernels.clamped_glu,
        expert_width=_expert_width(recipe, compute),
        cast_weights=_casts_weights(recipe, adapter, compute),
        norm=recipe.kernels.norm,
        norm_weight=width(recipe.precision.norm_weight),
        rope=recipe.kernels.rope,
        glu=recipe.kernels.glu,
        attention=recipe.kernels.attention,
        repeats_kv=recipe.kernels.repeats_kv,
        qkv=recipe.kernels.qkv,
        saved_inputs=SAVED_WIDTHS.get(recipe.precision.saved_inputs, 0),
        saved_weights=SAVED_WIDTHS["nvfp4"]
        if recipe.precision.saved_inputs == "nvfp4" and recipe.recomputation.policy.kind != "op"
        else 0,
        scans=recipe.precision.scans,
        unpacks=recipe.quantization.unpacks and bool(recipe.quantization.scheme),
        quant_width=width(recipe.quantization.quant_saves)
        if recipe.quantization.quant_saves and recipe.quantization.scheme
        else 0,
        experts=recipe.kernels.experts,
        trains=adapter is None and recipe.task.method in ("full", "partial"),
        trains_norms=adapter is not None and adapter.kind == "ln_tuning",
        adapter=_low_rank(recipe, adapter, ranks) if adapter and ranks else None,
        dequantize=compute if recipe.quantization.scheme and not recipe.quantization.scheme.startswith("gptq") else 0,
        hidden_dropout=recipe.kernels.hidden_dropout,
        attention_dropout=recipe.kernels.attention_dropout,
        gradient_width=0 if updates_inside_backward(recipe) else width(recipe.precision.backward_gradients),
        tp=parallel.tp,
        sp=parallel.sp if recipe.model_parallel.sequence_parallel is None else recipe.model_parallel.sequence_parallel,
        ep=parallel.ep,
        expert_tp=recipe.model_parallel.expert_tp,
        imbalance=recipe.model_parallel.imbalance,
        scan=recipe.kernels.scan,
        recomputed=recipe.recomputation.policy.kind == "full",
        written=_written(recipe),
    )
