"""Why each term of a step has its size: the formula with its numbers, and where the rule comes from."""

from vramcast.training.optimizers import optimizer
from vramcast.training.recipe import Recipe, width
from vramcast.training.states import GRADIENTS_CUT, WEIGHTS_CUT, WHOLE, Count

SOURCES = {
    "weights": "models/inventory: exact tensors; PEFT and bitsandbytes for what is frozen or quantised",
    "gradients": "torch autograd; ZeRO, arXiv 1910.02054, table 1",
    "activations": "torch/csrc/autograd: what each operation saves",
    "loss": "the framework's loss function",
    "gathered": "torch/distributed/fsdp, deepspeed/runtime/zero",
    "temporaries": "torch/csrc/autograd/engine.cpp: order and life of gradients",
    "gradient_copy": "deepspeed/runtime/zero/stage_1_and_2.py: step, get_grad_norm_direct; bf16_optimizer.py: update_hp_grads",
    "secondary_weights": "DeepSpeed 0.18, runtime/zero/partition_parameters.py: _partition_param_sec; arXiv 2306.10209",
    "communication": "deepspeed/runtime/zero/config.py, torch/nn/parallel/distributed.py",
}


def source_of(term: str, recipe: Recipe) -> str:
    """Where the rule of a term comes from."""
    if term in ("optimizer", "master_weights"):
        return optimizer(recipe.optimizer).source
    return SOURCES.get(term, "")


def weights(held: Count, recipe: Recipe, shards: int) -> str:
    """Trained, frozen, quantised and adapter elements with their widths."""
    parts = [
        f"{count:,} {what} x {each} B"
        for count, what, each in (
            (held.trained + held.expert_trained, "trained", width(recipe.weights)),
            (held.frozen, "frozen", width(recipe.unquantized or recipe.frozen)),
            (held.quantized, f"in {recipe.quant}", 1 if recipe.quant in ("int8", "gptq8") else 0.5),
            (held.adapter, "in adapters", width(recipe.adapter_dtype)),
        )
        if count
    ]
    return " + ".join(parts) + _shared(shards, recipe.sharding in WEIGHTS_CUT)


def secondary(held: Count, recipe: Recipe, ranks: int) -> str:
    """ZeRO++'s second copy of the weights."""
    return f"a second copy of {held.trained + held.expert_trained + held.frozen:,} x {width(recipe.compute)} B / {ranks} ranks"


def gradients(held: Count, recipe: Recipe, shards: int) -> str:
    """Gradients of what is trained."""
    parts = []
    if held.trained or held.expert_trained:
        parts.append(f"{held.trained + held.expert_trained:,} x {width(recipe.gradients)} B ({recipe.gradients})")
    if held.adapter:
        parts.append(f"{held.adapter:,} in adapters x {width(recipe.adapter_dtype)} B")
    return " + ".join(parts) + _shared(shards, recipe.sharding in GRADIENTS_CUT)


def optimizer_states(held: Count, recipe: Recipe, shards: int) -> str:
    """The optimizer's tensors per trained element."""
    row = optimizer(recipe.optimizer)
    counts = (
        (held.trained + held.expert_trained, width(recipe.master or recipe.weights)),
        (held.adapter, width(recipe.master or recipe.adapter_dtype)),
    )
    parts = [f"{row.moments:g} x {row.state_width or each:g} B x {count:,}" for count, each in counts if count]
    shape = "" if row.shape == "elementwise" else f", {row.shape.replace('_', ' ')} states"
    return f"{row.name}: {' + '.join(parts)}{shape}" + _shared(shards, recipe.sharding not in WHOLE)


def master(held: Count, recipe: Recipe, shards: int) -> str:
    """The separate master copy."""
    return f"{held.trained + held.expert_trained:,} x {width(recipe.master) if recipe.master else 0} B" + _shared(
        shards, recipe.sharding not in WHOLE
    )


def gradient_copy(held: Count, recipe: Recipe, shards: int) -> str:
    """Gradients made anew in another dtype."""
    if recipe.low_gradients:
        return "the largest gradient in float32, before it is added"
    own = _shared(shards, recipe.sharding not in WHOLE)
    return f"{held.trained + held.expert_trained:,}{own} flattened in {recipe.gradients} and float32, or the largest in float64"


def activations(recipe: Recipe, *, depth: int, in_flight: float, tokens: float) -> str:
    """What waits for backward, by policy."""
    passes = f" x {in_flight:g} passes in flight" if in_flight > 1 else ""
    kept = {
        "full": "each layer's input",
        "offloaded": "nothing: moved to the host",
        "op": "each layer's input and chosen outputs",
    }
    what = kept.get(recipe.checkpointing, f"what {recipe.attention} attention, {recipe.norm} norms and {recipe.glu} MLPs save")
    return f"{what} for {tokens:,.0f} tokens, {depth} layers{passes}"


def _shared(shards: int, cut: bool) -> str:
    return f" / {shards} ranks" if cut and shards > 1 else ""
