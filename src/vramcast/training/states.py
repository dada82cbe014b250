"""Weights, gradients, optimizer states and master weights of one rank: its elements times their widths, over those who share.

Every size is a ``Quantity``: it answers for one layout or for arrays of them, and writes its own formula.
"""

import msgspec

from vramcast.quantity import Number, Quantity, bytes_, largest, named, smallest, summed
from vramcast.training.counts import Count, Elements
from vramcast.training.methods import code_width
from vramcast.training.optimizers.rules import ENDS, StateBytes, kept_states, optimizer, working_bytes
from vramcast.training.recipe.parts import Recipe, width

WHOLE = ("none", "ddp")
WEIGHTS_CUT = ("zero3", "fsdp1", "fsdp2")
GRADIENTS_CUT = ("zero2", *WEIGHTS_CUT)
NOTHING = bytes_(0)


class ShardCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Over how many ranks dense tensors are cut, and experts, which fewer ranks share; numbers or arrays."""

    dense: Number
    experts: Number


class States(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank keeps between steps, and what its step makes of it for a moment.

    ``step_copy``: temporaries of the optimizer's step; ``step_gradients``: gradients that are left when it begins;
    ``flat_copy``: what DeepSpeed makes of them for its step; ``outside_buckets``: gradients less those in its buckets;
    ``wide_copy``: the widest gradient in float32, while it is added to float32 ones; ``overflow_copy``: while it is summed;
    ``whole_gradients``: of accumulated micro-batches; ``loaded``: a quantised model before sharding cuts it.
    """

    weights: Quantity
    gradients: Quantity
    outside_buckets: Quantity
    optimizer: Quantity
    master: Quantity
    step_copy: Quantity
    step_gradients: Quantity
    flat_copy: Quantity
    wide_copy: Quantity
    overflow_copy: Quantity
    whole_gradients: Quantity
    loaded: Quantity
    host_states: Quantity
    host_weights: Quantity
    host_gradients: Quantity


def states(held: Count, recipe: Recipe, sharers: ShardCounts) -> States:
    """Sizes by part under the recipe's dtypes and sharding."""
    rules = _Rules(held, recipe, sharers)
    offload = recipe.sharding.offload
    weights, gradients, moments = rules.weights(), rules.gradients(), rules.optimizer()
    moved = rules.row.paged or "optimizer" in offload
    resting = NOTHING if rules.gradients_on_host() else gradients
    return States(
        weights=NOTHING if "parameters" in offload else weights,
        gradients=resting,
        outside_buckets=rules.outside_buckets(resting),
        optimizer=rules.resident() if moved else moments,
        master=NOTHING if "optimizer" in offload else rules.master(),
        step_copy=rules.step_copy(),
        step_gradients=rules.own_gradients() if rules.drops_others() and not rules.gradients_on_host() else resting,
        flat_copy=rules.flat_copy(gradients),
        wide_copy=rules.widest() if recipe.precision.low_gradients and not recipe.precision.frees_low else NOTHING,
        overflow_copy=rules.overflow_copy(),
        whole_gradients=rules.whole_gradients(),
        loaded=rules.loaded(),
        host_states=summed(moments, rules.master()) if moved else NOTHING,
        host_weights=weights if "parameters" in offload else NOTHING,
        host_gradients=rules.host_gradients(gradients, moved=moved),
    )


def placeholders(recipe: Recipe, elements: float) -> Quantity:
    """Gradients that nobody reads: matmuls have added the real ones to their buffer, and autograd wants a tensor."""
    each = bytes_(width(recipe.precision.backward_gradients))
    return named(elements, "of one placeholder per weight shape") * each if elements else NOTHING


class _Rules:
    """One rank's elements under a recipe: what is cut over its sharers, and in which widths."""

    def __init__(self, held: Count, recipe: Recipe, sharers: ShardCounts) -> None:
        self.held, self.recipe, self.sharers = held, recipe, sharers
        self.row = optimizer(recipe.update.optimizer)
        self.kind, self.models = recipe.sharding.kind, 1 + recipe.task.trained_copies
        precision = recipe.precision
        self.weight, self.gradient = width(precision.weights), width(precision.gradients)
        self.adapter = width(recipe.adapters.adapter_dtype)
        self.master_width = width(recipe.update.master) if recipe.update.master else 0

    @property
    def updates_inside_backward(self) -> bool:
        return self.row.gradient_free or self.recipe.update.implementation == "in_backward"

    def weights(self) -> Quantity:
        held, recipe, cut = self.held, self.recipe, self.kind in WEIGHTS_CUT
        scheme, frozen = recipe.quantization.scheme, recipe.quantization.unquantized or recipe.precision.frozen
        compute = bytes_(recipe.task.frozen_copies * width(recipe.precision.compute))
        copies = (self.models * held.trained.dense + held.frozen.dense, self.models * held.trained.experts + held.frozen.experts)
        return summed(
            self._trained(cut, bytes_(self.weight)),
            self._shared(cut, held.frozen, "frozen", bytes_(width(frozen))),
            self._shared(cut, Elements(*copies), "in copies that only run forward", compute),
            self._shared(cut, held.quantized, f"in {scheme}", bytes_(code_width(recipe))),
            self._scales(cut),
            self._shared(cut, held.adapter, "in adapters", bytes_(self.adapter)),
            named(held.adapter_held, "floats that adapters keep") * bytes_(4),
        )

    def _scales(self, cut: bool) -> Quantity:
        """Whole on every rank, as bitsandbytes' own attributes of a weight; divided where they are a part of the tensor."""
        size = self.held.quantized_scales
        divided = cut and self.recipe.quantization.shards_scales
        return self._shared(True, size, "of their scales", bytes_(1)) if divided else bytes_(size.total, "of their scales")

    def gradients(self) -> Quantity:
        cut = self.kind in GRADIENTS_CUT
        return NOTHING if self.updates_inside_backward else self._gradients(cut)

    def own_gradients(self) -> Quantity:
        """Those of the rank's own partition, once those of other ranks' parameters are gone."""
        return NOTHING if self.updates_inside_backward else self._gradients(self.kind not in WHOLE)

    def _gradients(self, cut: bool) -> Quantity:
        dtype = self.recipe.precision.gradients
        return summed(
            self._trained(cut, bytes_(self.gradient, f"({dtype})")),
            self._shared(cut, self.held.adapter, "in adapters", bytes_(self.adapter)),
        )

    def optimizer(self) -> Quantity:
        """The optimizer's states, tensor by tensor; per element they are what their shapes come to."""
        held, cut = self.held, self.kind not in WHOLE
        kept, added = self._kept()
        return summed(
            self._states(cut, held.trained, "trained", kept, self.models),
            self._states(cut, held.adapter, "in adapters", added, 1),
        )

    def resident(self) -> Quantity:
        """States that stay on the card though the optimizer is paged."""
        if "optimizer" in self.recipe.sharding.offload:
            return NOTHING
        kept, added = self._kept()
        return self._over(self.kind not in WHOLE, bytes_(kept.resident + added.resident, "of states too small to be paged"))

    def master(self) -> Quantity:
        cut, each = self.kind not in WHOLE, bytes_(self.master_width, "of masters")
        return summed(self._trained(cut, each), self._shared(cut, self.held.adapter, "in adapters", each))

    def step_copy(self) -> Quantity:
        """The lists that a foreach step makes, and what orthogonalising the largest matrix takes."""
        update, cut = self.recipe.update, self.kind not in WHOLE
        if self._flattened():
            return NOTHING
        shapes = (part.shape for part in self.held.shapes if part.role not in ENDS)
        working = working_bytes(self.row, shapes, width=self.gradient)
        lists = self._lists()
        if not lists:
            return bytes_(working, _NEWTON_SCHULZ)
        made = summed(
            self._trained(cut, bytes_(width(update.master or self.recipe.precision.weights))),
            self._shared(cut, self.held.adapter, "in adapters", bytes_(self.master_width or self.adapter)),
        )
        return summed(named(lists, "lists of a foreach step") * made, bytes_(working, _NEWTON_SCHULZ))

    def flat_copy(self, gradients: Quantity) -> Quantity:
        """What DeepSpeed's 16-bit stages add to the gradients at their step: the highest of three moments.

        For the norm every gradient is squared in float64 (runtime/zero/stage_1_and_2.py, get_grad_norm_direct). Then gradients
        of other ranks' parameters are freed, and those of its own are flattened in 16 bits and copied to fp32 (step;
        stage3.py, _prepare_fp32_grad_for_sub_group: at most a sub-group at a time; zero/config.py: sub_group_size 1e9). Stages 1
        and 2 then drop the 16-bit ones before the optimizer runs, in as many temporaries of the fp32 partition as a step takes.
        """
        if not self._copies_gradients():
            return NOTHING
        own, narrow, wide = self._own_elements(), bytes_(self.gradient), bytes_(4, "(float32)")
        if not self.recipe.update.flattens:  # each gradient is copied to fp32 by itself
            return own * wide
        third = self.kind == "zero3"
        flat = smallest(own, named(self.recipe.update.sub_group, "elements of a sub-group")) if third else own
        freed = NOTHING if self.kind != "zero1" or self.drops_others() else gradients - own * narrow
        dropped = NOTHING if third else own * narrow + freed
        squared = smallest(named(largest_matrix(self.held), "elements of the largest matrix"), own) * bytes_(8, "(float64)")
        flattened = flat * bytes_(self.gradient + 4, "(both)") - freed
        return largest(squared, flattened, flat * wide * (1 + self._lists()) - dropped)

    def widest(self) -> Quantity:
        return named(largest_matrix(self.held), "elements of the largest gradient") * bytes_(4, "(float32)")

    def overflow_copy(self) -> Quantity:
        if not self.recipe.update.checks_overflow:
            return NOTHING
        own = self._elements(self.held.trained)
        return smallest(named(largest_matrix(self.held), "elements of the largest gradient"), own) * bytes_(4, "(float32)")

    def whole_gradients(self) -> Quantity:
        """Gradients while FSDP accumulates without synchronising: of the trained parameters, or of their whole flat units.

        FSDP2 keeps them in the dtype of the reduction (torch 2.13, _fsdp_param.py, to_accumulated_grad_if_needed).
        """
        held, precision = self.held, self.recipe.precision
        dtype = precision.reduce if self.kind == "fsdp2" else precision.backward_gradients
        trained = named(held.trained.total, "trained")
        units = held.frozen.total if self.recipe.sharding.whole_accumulation == "units" else 0
        return summed(
            trained * bytes_(width(dtype), f"({dtype}, whole until the last micro-batch)"),
            named(held.adapter.total, "in adapters") * bytes_(self.adapter),
            named(units, "frozen in the same units") * bytes_(width(precision.frozen)),
        )

    def loaded(self) -> Quantity:
        recipe, held = self.recipe, self.held
        if self.kind == "zero3" and recipe.sharding.moves_whole:
            whole = named(
                held.trained.total + held.adapter.total + held.frozen.total, "of the whole model, before they are cut up"
            )
            return summed(whole * bytes_(width(recipe.precision.compute)), self._loaded_codes())
        if not recipe.quantization.loads_whole or self.kind not in ("fsdp1", "zero3"):
            return NOTHING
        return summed(self._loaded_codes(), named(held.frozen.total, "frozen") * bytes_(width(recipe.precision.frozen)))

    def _loaded_codes(self) -> Quantity:
        """What is held in fewer bits, whole, and its scales."""
        held, recipe = self.held, self.recipe
        return summed(
            named(held.quantized.total, f"in {recipe.quantization.scheme} (before sharding)") * bytes_(code_width(recipe)),
            bytes_(held.quantized_scales.total, "of their scales"),
        )

    def host_gradients(self, gradients: Quantity, *, moved: bool) -> Quantity:
        """Gradients kept on the host: DeepSpeed's in fp32 for its step there, FSDP's as they were reduced."""
        if "gradients" in self.recipe.sharding.offload:
            return gradients
        if not moved or not self.recipe.update.flattens:
            return NOTHING
        cut, each = self.kind not in WHOLE, bytes_(4, "(float32)")
        return summed(self._trained(cut, each), self._shared(cut, self.held.adapter, "in adapters", each))

    def gradients_on_host(self) -> bool:
        """Whether reduced gradients lie on the host: with FSDP's shards there, and with DeepSpeed's states from ZeRO-2 on.

        Sources: DeepSpeed 0.18, runtime/zero/stage3.py, grad_partitions_flat_buffer on the optimizer's own device;
        stage_1_and_2.py, copy_grads_in_partition with cpu_offload; common.fsdp_offload.
        """
        offload, sharding = self.recipe.sharding.offload, self.kind in ("zero2", "zero3")
        return "gradients" in offload or ("optimizer" in offload and sharding and self.recipe.update.flattens)

    def outside_buckets(self, gradients: Quantity) -> Quantity:
        """Gradients less other ranks' that were copied into a reduction's bucket, which the next one is written over.

        Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, reduce_independent_p_g_buckets_and_remove_grads: whatever a
        bucket can hold.
        """
        bucket = self.recipe.sharding.bucket
        small = sum(part.elements * part.copies for part in self.held.shapes if part.elements <= bucket)
        if self.kind != "zero1" or not self.recipe.update.flattens or not small or self.gradients_on_host():
            return gradients
        held = named(small, "elements in buckets")
        return gradients - (held - self._over(True, held)) * bytes_(self.gradient)

    def drops_others(self) -> bool:
        """Whether gradients of other ranks' parameters are gone when a step of ZeRO-1 begins.

        Source: DeepSpeed 0.19, runtime/zero/stage_1_and_2.py, independent_gradient_partition_epilogue: zero_grad after the
        averages of its own partition are taken.
        """
        return self.kind == "zero1" and self.recipe.update.frees_gradients and self._flattened()

    def _copies_gradients(self) -> bool:
        """Whether 16-bit gradients are copied to fp32 for the step, on the card and beside a master copy."""
        narrow = self.recipe.update.master and self.gradient < 4 and self.kind != "distributed_optimizer"
        return bool(narrow) and "optimizer" not in self.recipe.sharding.offload

    def _flattened(self) -> bool:
        return self.recipe.update.flattens and self._copies_gradients()

    def _lists(self) -> float:
        """Parameter-size temporaries of a step."""
        foreach = self.recipe.update.implementation == "foreach" and "optimizer" not in self.recipe.sharding.offload
        return (1 + self.recipe.update.foreach_twice) * self.row.step_copies if foreach else 0.0

    def _kept(self) -> tuple[StateBytes, StateBytes]:
        """States of what is trained, and of adapters."""
        update, held = self.recipe.update, self.held
        each = self.master_width or self.weight if update.states == "same" else width(update.states)
        rank = update.optimizer_rank
        kept = kept_states(held.shapes, self.row, width=each, rank=rank, wide_ends=update.wide_ends)
        added = self.master_width or self.adapter
        return kept, kept_states(held.adapters, self.row, width=added, rank=rank, wide_ends=False)

    def _states(self, cut: bool, held: Elements, what: str, kept: StateBytes, models: int) -> Quantity:
        parts = zip(self._parts(cut, held, what), self._parts(cut, Elements(kept.dense, kept.experts), what), strict=True)
        return summed(
            *(
                self._over(cut, named(models * n, words) * bytes_(size / n, f"of {self.row.name}'s states"), experts=experts)
                for (n, words, experts), (size, _, _) in parts
                if n and size
            )
        )

    def _own_elements(self) -> Quantity:
        """Trained elements of the rank's own partition, adapters among them."""
        trained, adapter = self.held.trained, self.held.adapter
        return self._elements(Elements(trained.dense + adapter.dense, trained.experts + adapter.experts))

    def _elements(self, held: Elements) -> Quantity:
        cut = self.kind not in WHOLE
        return summed(
            *(self._over(cut, named(n, words), experts=experts) for n, words, experts in self._parts(cut, held, "trained"))
        )

    def _trained(self, cut: bool, each: Quantity) -> Quantity:
        """What is trained, in all models, in that width."""
        return self._shared(cut, self.held.trained, "trained", each, models=self.models)

    def _shared(self, cut: bool, held: Elements, what: str, each: Quantity, *, models: int = 1) -> Quantity:
        parts = self._parts(cut, held, what) if each.value else ()
        return summed(*(self._over(cut, named(models * n, words) * each, experts=experts) for n, words, experts in parts if n))

    def _parts(self, cut: bool, held: Elements, what: str) -> tuple[tuple[float, str, bool], ...]:
        """Elements with their word and whether experts' ranks share them: one part where all ranks share everything alike."""
        dense, experts = self.sharers.dense, self.sharers.experts
        if not cut or (isinstance(dense, int) and isinstance(experts, int) and dense == experts):
            return ((held.total, what, False),)
        return ((held.dense, what, False), (held.experts, f"{what} of experts", True))

    def _over(self, cut: bool, amount: Quantity, *, experts: bool = False) -> Quantity:
        ranks = self.sharers.experts if experts else self.sharers.dense
        alone = isinstance(ranks, int) and ranks == 1
        return amount / named(ranks, "ranks") if cut and not alone else amount


_NEWTON_SCHULZ = "of Newton-Schulz over the largest matrix (the update, two 16-bit iterates, two Gram matrices)"


def largest_matrix(held: Count) -> int:
    """Elements of the largest trained matrix."""
    return max((part.shape[0] * part.shape[1] for part in held.shapes if len(part.shape) == 2), default=0)
