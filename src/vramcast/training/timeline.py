"""One training step of one rank as a timeline: what is alive at each instant, in named terms that sum to it.

A term's size is a quantity: it answers for one layout or for arrays of them, and its ``why`` is its own formula.
"""

from collections.abc import Iterable, Iterator

import msgspec

from vramcast.ledger import Instant
from vramcast.quantity import Number, Quantity, bytes_, is_there, largest, maximum, named, summed
from vramcast.training.activations.layers import MiddleLayer
from vramcast.training.full_sharding import (
    adapters_come_ahead,
    beside,
    copies_out,
    cut_gradients,
    cuts_units,
    flat_gradients,
    root_reduced,
    whole_at_the_loss,
)
from vramcast.training.gathers import (
    gathered,
    gathered_ahead,
    gathered_last,
    gathered_to_save,
    gathered_with_last,
    reduced_before,
    reducing,
)
from vramcast.training.moment import (
    EMBEDDING,
    EVALUATION,
    FORWARD,
    LAST_BLOCK,
    LOSS,
    LOSS_BACKWARD,
    OVERFLOW,
    SEEING,
    STEP,
    LiveBytes,
    Moments,
)
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.recipe.parts import width
from vramcast.training.states import GRADIENTS_CUT, NOTHING
from vramcast.training.structure import Rank, retained_inputs
from vramcast.training.towers import ENCODER

_FOREACH, _ACCUMULATE = "torch 2.13, optim/adamw.py: _multi_tensor_adamw", "torch: derivatives.yaml, accumulate_grad.h"


def instants(rank: Rank) -> tuple[Instant, ...]:
    """The instants of a steady step, in order."""
    return tuple(_Timeline(rank).moments())


class _Timeline:
    """The moments of one rank's step, which share the terms that stay."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self.recipe, self.layers = rank, rank.recipe, rank.layers
        self.states, self.units, self.tower = rank.states, rank.units, rank.tower
        self.ledgers = Moments(rank)
        self.reducing = reducing(self.recipe, self.units, rank.kind.held)

    def moments(self) -> Iterator[Instant]:
        """In the order of a step."""
        stage, recipe = self.rank.kind.stage, self.recipe
        if is_there(self.states.loaded):
            yield self.ledgers.loading()
        if self._sees:
            yield self.ledgers.at(f"{SEEING} {self.tower.name}", self._seeing())
        yield from self._named(copies_out(self.rank))
        yield self.ledgers.at(FORWARD, self._end_of_forward())
        if stage.last:
            yield self.ledgers.at(LOSS, self._loss())
            yield self.ledgers.at(LOSS_BACKWARD, self._loss_backward())
        yield self.ledgers.at(LAST_BLOCK, self._last_block())
        yield from self._units_reduced()
        if self.layers.between:
            yield from self._named(_layers_between(self.rank, self.reducing))
        yield self.ledgers.at("backward of the first block", self._first_block())
        if self.rank.kind.embedding_gradient or self.rank.kind.partial_embedding:
            yield self.ledgers.at(EMBEDDING, self._embedding())
        yield from self._named(root_reduced(self.rank))
        if self._sees and is_there(bytes_(self.tower.saved)):
            yield self.ledgers.at(f"backward of the {self.tower.name}", self._seen())
        if recipe.update.checks_overflow:
            check = LiveBytes(gradients=self.states.gradients, overflow_check=self.states.overflow_copy)
            yield self.ledgers.at(OVERFLOW, check)
        yield self.ledgers.at(STEP, self._optimizer_step())
        if recipe.task.eval_batch:
            yield self.ledgers.at(EVALUATION, self._evaluation())
        if recipe.task.saves:
            yield self.ledgers.at("checkpoint save", self._save())

    def _named(self, moments: Iterable[tuple[str, LiveBytes]]) -> Iterator[Instant]:
        return (self.ledgers.at(name, alive) for name, alive in moments)

    @property
    def _sees(self) -> bool:
        return bool(self.rank.kind.towers) and is_there(bytes_(self.tower.held))

    def _seeing(self) -> LiveBytes:
        """Images go through their tower before the decoder begins."""
        return LiveBytes(tower=self.tower.held, temporaries=bytes_(self.tower.forward, "the tower's live layer"))

    def _end_of_forward(self) -> LiveBytes:
        copies = self.layers.copies * (1 - 1 / self.rank.kind.stage.layers)
        return self._waiting(
            temporaries=summed(bytes_(self.layers.forward, "the live layer's forward"), _autocast_copies(copies)),
            gathered=gathered(self.recipe, self.units, blocks=1, ends="head"),
            ahead=gathered_with_last(self.recipe, self.units),
        )

    def _loss(self) -> LiveBytes:
        return self._waiting(
            temporaries=_autocast_copies(self.layers.copies),
            loss=self.rank.loss.forward,
            gathered=whole_at_the_loss(self.rank, again=False),
            ahead=gathered_last(self.recipe, self.units),
        )

    def _loss_backward(self) -> LiveBytes:
        return self._waiting(loss=self.rank.loss.backward, gathered=whole_at_the_loss(self.rank, again=True))

    def _last_block(self) -> LiveBytes:
        """The head's gradient already exists (or, sharded, is on its way), one block's working set is at its highest."""
        return self._waiting(
            temporaries=summed(
                self._live_layer(self.layers.working),
                self.reducing,
                reduced_before(self.recipe, self.units, self.units.last_unit(self.recipe)),
            ),
            gathered=gathered(self.recipe, self.units, blocks=2 - adapters_come_ahead(self.rank), ends="none"),
            ahead=gathered_ahead(self.recipe, self.units),
            loss=self.rank.loss.held,
        )

    def _units_reduced(self) -> Iterator[Instant]:
        """Where gradients of whole units are cut up: at the last block (or the one before it) and at the second."""
        units, layers = self.units, self.layers
        if not cuts_units(self.rank):
            return
        flat = self.recipe.sharding.kind == "fsdp1"
        finds, two = self.rank.finds_gradients, gathered(self.recipe, units, blocks=2, ends="none")
        ahead, held = gathered_ahead(self.recipe, units), self.rank.loss.held
        late = flat_gradients(self.rank, -1) if flat else self._beside(layers.working, 1)
        if flat or not units.sizes:
            yield self.ledgers.at(
                "gradients of the last block" if flat else "backward of the block before the last",
                msgspec.structs.replace(
                    self._waiting(temporaries=late, gathered=two, loss=held, ahead=ahead),
                    activations=layers.waiting - layers.last_kept,
                    gradients=None if finds or flat else cut_gradients(self.rank, 1),
                ),
            )
        if units.depth > 2 and not units.sizes:
            yield self.ledgers.at(
                "backward of the second block",
                LiveBytes(
                    gradients=self.states.gradients if finds else cut_gradients(self.rank, units.depth - 2),
                    activations=layers.first_kept * (1 if flat else 2),
                    tower=self.tower.held,
                    loss=held,
                    ahead=ahead,
                    temporaries=flat_gradients(self.rank, 1) if flat else self._beside(layers.first_working, 2),
                    gathered=two,
                ),
            )

    def _beside(self, working: Number, after: int) -> Quantity:
        """A block's backward, the ends' gradients that wait, and under FSDP2 the reduction of the block ``after`` it."""
        return beside(self.rank, self._live_layer(working), self.reducing, after)

    def _first_block(self) -> LiveBytes:
        """All gradients exist but the embedding's, unless a tied head has made it; of the activations only the first block's."""
        rank, layers = self.rank, self.layers
        retained = retained_inputs(rank)
        late = 0 if self.units.tied or rank.finds_gradients else rank.kind.embedding_gradient
        own = 0 if self.recipe.sharding.kind in GRADIENTS_CUT else layers.gradients + late
        cuts = cuts_units(self.rank) and not rank.finds_gradients
        return LiveBytes(
            gradients=cut_gradients(self.rank, self.units.depth - 1) if cuts else self._gradients_without(own),
            activations=retained if is_there(bytes_(retained)) else layers.first_kept,
            tower=self.tower.held,
            loss=self.rank.loss.held,
            temporaries=largest(self._beside(layers.first_working, 1), flat_gradients(self.rank, 0)),
            gathered=gathered(self.recipe, self.units, blocks=1, ends="none", place=0),
            ahead=gathered_ahead(self.recipe, self.units, ends="embedding"),
            gradient_copy=self.states.wide_copy,
        )

    def _gradients_without(self, own: Number) -> Quantity:
        """The gradients less those that this block's backward, and the embedding's, have not made yet."""
        gradients = self.states.gradients
        if not is_there(bytes_(own)):
            return gradients
        left = maximum(0.0, gradients.value - own)
        return gradients - bytes_(gradients.value - left, "of the live layer and the embedding (not made yet)")

    def _embedding(self) -> LiveBytes:
        """The embedding's gradient is a matrix of its own, added to one that is there: the tied head's, or an earlier batch's.

        Source: torch, derivatives.yaml, embedding_dense_backward; accumulate_grad.h takes a first gradient as it is.
        """
        there = self.units.tied or self.rank.finds_gradients or self._copied_to_partition
        own = self.rank.kind.partial_embedding or (self.rank.kind.embedding_gradient if there else 0)
        output = bytes_(self.layers.boundary, "the gradient of the embedding's output")
        return LiveBytes(
            gradients=self.states.outside_buckets if self._copied_to_partition else self.states.gradients,
            tower=0.0 if self.tower.name == ENCODER else self.tower.held,  # an encoder's embedding is the last of all
            loss=self.rank.loss.held,
            temporaries=summed(output, bytes_(own, "the embedding's own gradient")),
            gathered=gathered(self.recipe, self.units, blocks=0, ends="embedding"),
            gradient_copy=self.states.wide_copy,
            source=_ACCUMULATE,
        )

    @property
    def _copied_to_partition(self) -> bool:
        """Whether the first rank, whose partition begins with the embedding, copies its gradient into the partition's buffer.

        Source: DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py, copy_grads_in_partition (grads_in_partition).
        """
        return self.recipe.sharding.kind == "zero1" and self.recipe.update.flattens

    def _seen(self) -> LiveBytes:
        """A tower's backward is the last of the step: every other gradient exists, and that of the decoder's input."""
        boundary = bytes_(self.layers.boundary, "the gradient of the decoder's input")
        found = self.rank.finds_gradients or self.recipe.sharding.kind in GRADIENTS_CUT
        return LiveBytes(
            gradients=self._gradients_without(0 if found else self.tower.gradients),
            tower=self.tower.held,
            temporaries=summed(bytes_(self.tower.working, "the tower's live layer"), boundary),
            gradient_copy=self.states.wide_copy,
        )

    def _optimizer_step(self) -> LiveBytes:
        row = optimizer(self.recipe.update.optimizer)
        return LiveBytes(
            gradients=self.states.step_gradients,
            temporaries=self.states.step_copy,
            gradient_copy=self.states.flat_copy,
            source=row.source if row.shape == "momentum" else _FOREACH,
        )

    def _evaluation(self) -> LiveBytes:
        """A forward without autograd at the evaluation batch, after batches whose logits stay on the card.

        Source: transformers 5, trainer.py (evaluation_loop), trainer_pt_utils.py: EvalLoopContainer.add concatenates what was
        kept with what is new, both alive; accelerate converts the model's outputs to float under autocast.
        """
        rank, recipe = self.rank, self.recipe
        scale, compute = recipe.task.eval_batch / rank.rows, width(recipe.precision.compute)
        batch = rank.tokens * scale * rank.structure.model.vocab if rank.kind.stage.last else 0.0
        each = 4 if recipe.precision.autocast else compute
        kept = max(0, 2 * recipe.task.eval_kept - 2)
        logits = named(batch, "logits of a batch")
        return LiveBytes(
            between_steps=True,
            gradients=rank.resting_gradients,
            tower=self.tower.pixels * scale,
            temporaries=bytes_(maximum(self.layers.forward, self.tower.forward) * scale, "the live layer's forward"),
            loss=summed(
                logits * bytes_(compute + 4, "(and their float copy)"), logits * named(kept, "batches kept") * bytes_(each)
            ),
            gathered=gathered(recipe, self.units, blocks=1, ends="head"),
        )

    def _save(self) -> LiveBytes:
        """Weights gathered for a checkpoint, between two steps."""
        put_together = gathered_to_save(self.recipe, self.units, self.rank.kind.held, self.states)
        return LiveBytes(between_steps=True, gradients=self.rank.resting_gradients, gathered=put_together)

    def _waiting(
        self,
        *,
        temporaries: Quantity = NOTHING,
        loss: Quantity = NOTHING,
        gathered: Quantity = NOTHING,
        ahead: Quantity = NOTHING,
    ) -> LiveBytes:
        """A moment at which all activations wait for backward."""
        return LiveBytes(
            activations=self.layers.waiting,
            tower=self.tower.held,
            temporaries=temporaries,
            loss=loss,
            gathered=gathered,
            ahead=ahead,
        )

    def _live_layer(self, working: Number) -> Quantity:
        """A layer's backward at its highest, and the gradient of its input."""
        return summed(bytes_(working, self._highest), bytes_(self.layers.boundary, "the gradient of its input"))

    def _highest(self) -> str:
        return f"the live layer's gradients and saved tensors (highest at its {self.layers.highest_at()})"


def _autocast_copies(size: Number) -> Quantity:
    return bytes_(size, "autocast's copies of the weights")


def _layers_between(rank: Rank, reducing: Quantity) -> Iterator[tuple[str, LiveBytes]]:
    """The backward of each layer between the first and the last of a model whose layers differ, by name.

    Hybrids (attention among state-space or gated-delta layers), dense layers before experts, windows among full attention: the
    layer that needs most need be neither the first nor the last, and under full sharding each unit is as large as its own layer.
    ``reducing``: gradients of the ends on their way.
    """
    for layer in rank.layers.between:
        what = f"the live layer's gradients and saved tensors (highest at its {layer.highest_at})"
        live = summed(bytes_(layer.working, what), bytes_(rank.layers.boundary, "the gradient of its input"))
        alive = LiveBytes(
            gradients=_gradients_after(rank, layer),
            activations=_waiting_up_to(rank, layer),
            tower=rank.tower.held,
            loss=rank.loss.held,
            temporaries=largest(beside(rank, live, reducing, layer.place + 1), flat_gradients(rank, layer.place)),
            gathered=gathered(rank.recipe, rank.units, blocks=2 - adapters_come_ahead(rank), ends="none", place=layer.place),
            ahead=gathered_ahead(rank.recipe, rank.units, place=layer.place),
        )
        yield f"backward of layer {layer.place + 1}", alive


def _waiting_up_to(rank: Rank, layer: MiddleLayer) -> Number:
    """What it and the layers before it keep; where FSDP1 hooks inputs, those of all layers with the gradients made so far."""
    if not is_there(bytes_(retained_inputs(rank))):
        return layer.waiting
    return rank.layers.waiting + (rank.units.depth - 1 - layer.place) * rank.layers.boundary


def _gradients_after(rank: Rank, layer: MiddleLayer) -> Quantity:
    """Those of the layers behind it, and the head's; all that the micro-batch began with where it found some."""
    gradients = rank.states.gradients
    if rank.finds_gradients:
        return gradients
    if cuts_units(rank):
        return cut_gradients(rank, rank.units.depth - 1 - layer.place)
    if rank.recipe.sharding.kind in GRADIENTS_CUT:
        return gradients
    late = 0 if rank.units.tied else rank.kind.embedding_gradient
    left = maximum(0.0, gradients.value - layer.made - late)
    return gradients - bytes_(gradients.value - left, "of this layer, those before it and the embedding (not made yet)")
