"""Why each term of a step has its size: the formula with its numbers, and where the rule comes from."""

import msgspec

from vramcast.training.counts import Count
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.quantized import code_width
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.states import GRADIENTS_CUT, WEIGHTS_CUT, WHOLE, accumulated


class Shards(msgspec.Struct, frozen=True, kw_only=True):
    """Over how many ranks dense tensors are cut, and experts, which fewer ranks share."""

    dense: int
    experts: int

    def when(self, cut: bool) -> "Shards":
        """These shards where the recipe cuts the tensors in question, one rank where it does not."""
        return self if cut else Shards(dense=1, experts=1)


SOURCES = {
    "weights": "models/inventory: exact tensors; PEFT and bitsandbytes for what is frozen or quantised",
    "gradients": "torch autograd; ZeRO, arXiv 1910.02054, table 1",
    "activations": "torch/csrc/autograd: what each operation saves",
    "loss": "the framework's loss function",
    "gathered": "torch 2.13, distributed/fsdp; DeepSpeed 0.18, runtime/zero/partition_parameters.py",
    "temporaries": "torch/csrc/autograd/engine.cpp: order and life of gradients",
    "gradient_copy": "DeepSpeed 0.6.0, runtime/zero/stage_1_and_2.py: step, get_grad_norm_direct; bf16_optimizer.py",
    "secondary_weights": "DeepSpeed 0.18, runtime/zero/partition_parameters.py: _partition_param_sec; arXiv 2306.10209",
    "overflow_check": "DeepSpeed 0.6.0, runtime/zero/stage_1_and_2.py: _has_inf_or_nan",
    "communication": "DeepSpeed 0.6.0, runtime/zero/constants.py (buckets of 5e8); torch 2.13, nn/parallel/distributed.py",
}


def source_of(term: str, recipe: Recipe) -> str:
    """Where the rule of a term comes from."""
    if term in ("optimizer", "master_weights"):
        return optimizer(recipe.update.optimizer).source
    return SOURCES.get(term, "")


def weights(held: Count, recipe: Recipe, shards: Shards) -> str:
    """Trained, frozen, quantised and adapter elements with their widths."""
    shards = shards.when(recipe.sharding.kind in WEIGHTS_CUT)
    return _sum(
        *_trained(held, f"trained x {width(recipe.precision.weights)} B", shards),
        (held.frozen, f"frozen x {width(recipe.quantization.unquantized or recipe.precision.frozen)} B", shards.dense),
        (held.quantized, f"in {recipe.quantization.scheme} x {code_width(recipe):g} B", shards.dense),
        (round(held.quantized_scales), "B of their scales", 1),
        (held.adapter, f"in adapters x {width(recipe.adapters.adapter_dtype)} B", shards.dense),
    )


def secondary(held: Count, recipe: Recipe, ranks: int) -> str:
    """ZeRO++'s second copy of the weights."""
    elements = held.trained + held.expert_trained + held.frozen
    return f"a second copy of {elements:,} x {width(recipe.precision.compute)} B / {ranks} ranks"


def whole_gradients(held: Count, recipe: Recipe) -> str:
    """Gradients kept whole while micro-batches accumulate."""
    each = accumulated(recipe)
    units = held.frozen if recipe.sharding.whole_accumulation == "units" else 0
    return _sum(
        (held.trained + held.expert_trained, f"x {width(each)} B ({each}), whole until the last micro-batch", 1),
        (held.adapter, f"in adapters x {width(recipe.adapters.adapter_dtype)} B", 1),
        (units, f"frozen in the same units x {width(recipe.precision.frozen)} B", 1),
    )


def gradients(held: Count, recipe: Recipe, shards: Shards, *, own: bool = False) -> str:
    """Gradients of what is trained; ``own``: those of other ranks' parameters are gone."""
    shards = shards.when(own or recipe.sharding.kind in GRADIENTS_CUT)
    return _sum(
        *_trained(held, f"x {width(recipe.precision.gradients)} B ({recipe.precision.gradients})", shards),
        (held.adapter, f"in adapters x {width(recipe.adapters.adapter_dtype)} B", shards.dense),
    )


def optimizer_states(held: Count, recipe: Recipe, shards: Shards) -> str:
    """The optimizer's tensors per trained element."""
    row, shards = optimizer(recipe.update.optimizer), shards.when(recipe.sharding.kind not in WHOLE)
    own, added = (
        row.state_width or width(recipe.update.master or dtype)
        for dtype in (recipe.precision.weights, recipe.adapters.adapter_dtype)
    )
    shape = "" if row.shape == "elementwise" else f", {row.shape.replace('_', ' ')} states"
    parts = _sum(
        *_trained(held, f"x {row.moments:g} x {own:g} B", shards),
        (held.adapter, f"in adapters x {row.moments:g} x {added:g} B", shards.dense),
    )
    return f"{row.name}: {parts}{shape}"


def stepping(held: Count, recipe: Recipe, shards: Shards) -> tuple[str, str]:
    """What an optimizer makes for its step and drops, and where that is read."""
    row = optimizer(recipe.update.optimizer)
    if row.shape == "momentum":
        return "Newton-Schulz over the largest matrix: the update, two 16-bit iterates, two Gram matrices", row.source
    lists, shards = row.step_copies * (1 + recipe.update.foreach_twice), shards.when(recipe.sharding.kind not in WHOLE)
    own, added = (width(recipe.update.master or dtype) for dtype in (recipe.precision.weights, recipe.adapters.adapter_dtype))
    made = _sum(
        *_trained(held, f"x {lists:g} x {own} B", shards), (held.adapter, f"in adapters x {lists:g} x {added} B", shards.dense)
    )
    return f"lists of a foreach step: {made}", "torch 2.13, optim/adamw.py: _multi_tensor_adamw"


def master(held: Count, recipe: Recipe, shards: Shards) -> str:
    """The separate master copy."""
    each = width(recipe.update.master) if recipe.update.master else 0
    return _sum(*_trained(held, f"x {each} B", shards.when(recipe.sharding.kind not in WHOLE)))


def gradient_copy(held: Count, recipe: Recipe, shards: Shards) -> str:
    """Gradients made anew in another dtype."""
    if recipe.precision.low_gradients:
        return "the largest gradient in float32, before it is added"
    own = _sum(*_trained(held, "", shards.when(recipe.sharding.kind not in WHOLE)))
    return f"{own} flattened in {recipe.precision.gradients} and float32, or the largest in float64"


def activations(recipe: Recipe, *, depth: int, in_flight: float, tokens: float) -> str:
    """What waits for backward, by policy."""
    passes = f" x {in_flight:g} passes in flight" if in_flight > 1 else ""
    kept = {
        "full": "each layer's input",
        "offloaded": "nothing: moved to the host",
        "op": "each layer's input and chosen outputs",
    }
    policy = recipe.recomputation.policy
    kept["uniform"] = f"the input of every {policy.layers} layers"
    kept["block"] = f"the input of {policy.layers} layers, and all that the others save"
    kept["modules"] = f"what a layer saves outside {', '.join(policy.modules)}"
    what = kept.get(
        policy.kind, f"what {recipe.kernels.attention} attention, {recipe.kernels.norm} norms and {recipe.kernels.glu} MLPs save"
    )
    return f"{what} for {tokens:,.0f} tokens, {depth} layers{passes}"


def _trained(held: Count, each: str, shards: Shards) -> tuple[tuple[int, str, int], ...]:
    """Dense and expert elements: where experts are sharded over fewer ranks, each with its own."""
    if shards.dense == shards.experts:
        return ((held.trained + held.expert_trained, each, shards.dense),)
    return ((held.trained, each, shards.dense), (held.expert_trained, f"of experts {each}", shards.experts))


def _sum(*parts: tuple[int, str, int]) -> str:
    """Elements, what they are multiplied by, and the ranks that share them, as one sum."""
    return " + ".join(f"{n:,} {each}".rstrip() + (f" / {ranks} ranks" if ranks > 1 else "") for n, each, ranks in parts if n)
