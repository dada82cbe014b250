"""Weights, gradients, optimizer states and master weights of one rank: its elements times their widths, over its shards."""

import msgspec

from vramcast.training.counts import Count
from vramcast.training.optimizers.rows import Optimizer
from vramcast.training.optimizers.rules import working_bytes
from vramcast.training.optimizers.states import ENDS, Kept, kept_states
from vramcast.training.quantized import code_width
from vramcast.training.recipe.parts import Recipe, width

WHOLE = ("none", "ddp")
WEIGHTS_CUT = ("zero3", "fsdp1", "fsdp2")
GRADIENTS_CUT = ("zero2", *WEIGHTS_CUT)


class States(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes one rank keeps between steps.

    ``step_copy``: temporaries of a foreach step; ``step_gradients``: those that are left when it begins; ``flat_copy``: what
    DeepSpeed makes of them for its step;
    ``wide_copy``: the widest gradient in float32, while it is added to float32 ones; ``overflow_copy``: while it is summed.
    """

    weights: float
    gradients: float
    optimizer: float
    master: float
    step_copy: float
    step_gradients: float = 0
    flat_copy: float = 0
    wide_copy: float = 0
    overflow_copy: float = 0
    whole_gradients: float = 0
    loaded: float = 0
    host_states: float = 0
    host_weights: float = 0
    host_gradients: float = 0


def states(held: Count, recipe: Recipe, row: Optimizer, *, shards: int, expert_shards: int) -> States:
    """Bytes by part under the recipe's dtypes and sharding."""
    cut = _Cut(recipe, shards, expert_shards)
    models = 1 + recipe.task.trained_copies
    trained, experts, adapters = models * held.trained, models * held.expert_trained, held.adapter
    weight, adapter_width = width(recipe.precision.weights), width(recipe.adapters.adapter_dtype)
    frozen = held.frozen * width(recipe.quantization.unquantized or recipe.precision.frozen)
    weights = cut.weights(trained * weight, experts * weight) + cut.weights(frozen, 0)
    weights += recipe.task.frozen_copies * cut.weights((trained + experts + held.frozen) * width(recipe.precision.compute), 0)
    weights += cut.weights(held.quantized * code_width(recipe), 0) + held.quantized_scales
    small = cut.weights(adapters * adapter_width, 0) + 4 * held.adapter_held
    gradient = width(recipe.precision.gradients)
    gradients = cut.gradients(trained * gradient, experts * gradient) + cut.gradients(adapters * adapter_width, 0)
    master = width(recipe.update.master) if recipe.update.master else 0
    state_of = master or weight if recipe.update.states == "same" else width(recipe.update.states)
    kept = kept_states(held.shapes, row, width=state_of, rank=recipe.update.optimizer_rank, wide_ends=recipe.update.wide_ends)
    small_kept = kept_states(
        held.adapters, row, width=master or adapter_width, rank=recipe.update.optimizer_rank, wide_ends=False
    )
    optimizer = models * cut.states(kept.dense, kept.experts) + cut.states(small_kept.dense, small_kept.experts)
    lists = (
        1 + recipe.update.foreach_twice
        if recipe.update.implementation == "foreach" and "optimizer" not in recipe.sharding.offload
        else 0
    )
    copies = lists * row.step_copies
    moved = row.paged or "optimizer" in recipe.sharding.offload
    if row.gradient_free or recipe.update.implementation == "in_backward":
        gradients = 0.0
    resting = 0.0 if "gradients" in recipe.sharding.offload else gradients
    return States(
        weights=0 if "parameters" in recipe.sharding.offload else weights + small,
        gradients=resting,
        optimizer=_resident(kept, small_kept, cut, recipe) if moved else optimizer,
        master=0
        if "optimizer" in recipe.sharding.offload
        else cut.states(trained * master + adapters * master, experts * master),
        step_gradients=cut.states(resting, 0) if _drops_others(recipe) else resting,
        flat_copy=_flat_copy(held, recipe, cut, gradients, copies),
        wide_copy=largest(held) * 4 if recipe.precision.low_gradients else 0,
        overflow_copy=min(largest(held), cut.states(held.trained, held.expert_trained)) * 4
        if recipe.update.checks_overflow
        else 0,
        step_copy=0.0
        if _flattened(recipe)
        else copies * cut.states(trained * (master or weight), experts * (master or weight))
        + copies * cut.states(adapters * (master or adapter_width), 0)
        + working_bytes(row, (part.shape for part in held.shapes if part.role not in ENDS), width=gradient),
        whole_gradients=_whole(held, recipe),
        loaded=_loaded(held, recipe),
        host_states=optimizer + cut.states((trained + adapters) * master, experts * master) if moved else 0,
        host_weights=weights + small if "parameters" in recipe.sharding.offload else 0,
        host_gradients=_host_gradients(recipe, cut.states(4 * (trained + adapters), 4 * experts) if moved else 0, gradients),
    )


def _host_gradients(recipe: Recipe, wide: float, gradients: float) -> float:
    """Gradients kept on the host: DeepSpeed's in fp32 for its step there, FSDP's as they were reduced."""
    return gradients if "gradients" in recipe.sharding.offload else wide if recipe.update.flattens else 0


def _matrices(held: Count) -> list[tuple[tuple[int, int], int]]:
    return [((part.shape[0], part.shape[1]), part.copies) for part in held.shapes if len(part.shape) == 2]


def largest(held: Count) -> int:
    """Elements of the largest trained matrix."""
    return max((rows * columns for (rows, columns), _ in _matrices(held)), default=0)


def _copies_gradients(recipe: Recipe) -> bool:
    """Whether 16-bit gradients are copied to fp32 for the step, on the card and beside a master copy."""
    narrow = recipe.update.master and width(recipe.precision.gradients) < 4 and recipe.sharding.kind != "distributed_optimizer"
    return bool(narrow) and "optimizer" not in recipe.sharding.offload


def _flattened(recipe: Recipe) -> bool:
    return recipe.update.flattens and _copies_gradients(recipe)


def _drops_others(recipe: Recipe) -> bool:
    """Whether gradients of other ranks' parameters are gone when a step of ZeRO-1 begins.

    Source: DeepSpeed 0.19, runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue: zero_grad after the averages
    of its own partition are taken.
    """
    return recipe.sharding.kind == "zero1" and recipe.update.frees_gradients and _flattened(recipe)


def _flat_copy(held: Count, recipe: Recipe, cut: "_Cut", gradients: float, copies: float) -> float:
    """What DeepSpeed's 16-bit stages add to the gradients at their step: the highest of three moments.

    For the norm every gradient is squared in float64 (runtime/zero/stage_1_and_2.py, get_grad_norm_direct). Then the gradients
    of other ranks' parameters are freed, and those of its own are flattened in 16 bits and copied to fp32 (step;
    stage3.py, _prepare_fp32_grad_for_sub_group: at most a sub-group at a time; zero/config.py: sub_group_size 1e9). Stages 1
    and 2 then drop the 16-bit ones before the optimizer runs, in ``copies`` temporaries of the fp32 partition.
    """
    if not _copies_gradients(recipe):
        return 0.0
    own, narrow = cut.states(held.trained + held.adapter, held.expert_trained), width(recipe.precision.gradients)
    if not recipe.update.flattens:  # each gradient is copied to fp32 by itself
        return own * 4
    third = recipe.sharding.kind == "zero3"
    flat = min(own, recipe.update.sub_group) if third else own
    freed = 0.0 if recipe.sharding.kind != "zero1" or _drops_others(recipe) else gradients - own * narrow
    updating = flat * 4 * (1 + copies) - (0 if third else own * narrow + freed)
    return max(min(largest(held), own) * 8, flat * (narrow + 4) - freed, updating)


def _loaded(held: Count, recipe: Recipe) -> float:
    if not recipe.quantization.loads_whole or recipe.sharding.kind != "fsdp1":
        return 0.0
    return held.quantized * code_width(recipe) + held.quantized_scales + held.frozen * width(recipe.precision.frozen)


def accumulated(recipe: Recipe) -> str:
    """The dtype of whole gradients that wait for the last micro-batch."""
    return recipe.precision.reduce if recipe.sharding.kind == "fsdp2" else recipe.precision.backward_gradients


def _whole(held: Count, recipe: Recipe) -> float:
    """Gradients while FSDP accumulates without synchronising: of the trained parameters, or of their whole flat units.

    FSDP2 keeps them in the dtype of the reduction (torch 2.13, _fsdp_param.py, to_accumulated_grad_if_needed).
    """
    trained = (held.trained + held.expert_trained) * width(accumulated(recipe)) + held.adapter * width(
        recipe.adapters.adapter_dtype
    )
    return trained + (held.frozen * width(recipe.precision.frozen) if recipe.sharding.whole_accumulation == "units" else 0)


class _Cut:
    """What the sharding divides."""

    def __init__(self, recipe: Recipe, shards: int, expert_shards: int) -> None:
        self.kind, self.shards, self.expert_shards = recipe.sharding.kind, max(1, shards), max(1, expert_shards)

    def _divide(self, dense: float, experts: float) -> float:
        return dense / self.shards + experts / self.expert_shards

    def weights(self, dense: float, experts: float) -> float:
        return self._divide(dense, experts) if self.kind in WEIGHTS_CUT else dense + experts

    def gradients(self, dense: float, experts: float) -> float:
        return self._divide(dense, experts) if self.kind in GRADIENTS_CUT else dense + experts

    def states(self, dense: float, experts: float) -> float:
        return dense + experts if self.kind in WHOLE else self._divide(dense, experts)


def _resident(kept: Kept, small: Kept, cut: "_Cut", recipe: Recipe) -> float:
    """States that stay on the card though the optimizer is paged."""
    return 0.0 if "optimizer" in recipe.sharding.offload else cut.states(kept.resident + small.resident, 0)
