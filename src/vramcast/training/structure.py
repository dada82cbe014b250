"""The structure of a training question: all that does not depend on the numbers of a batch or on how many ranks share it.

The model, the recipe and the cut into stages decide what a rank holds and what its layers save as formulas of the batch; these
are worked out once and kept, because planners ask one structure for thousands of batches and worlds.
"""

import msgspec

from vramcast.ledger import Assumption
from vramcast.models.inventory import Model, by_identity
from vramcast.models.layers import Attention
from vramcast.models.sharding import Stage, cut, share
from vramcast.quantity import Number, is_array, several
from vramcast.training.activations.choice import style_of, updates_inside_backward
from vramcast.training.activations.layers import Blended, LayerCosts, layers_of_part, windows_of
from vramcast.training.activations.style import Style
from vramcast.training.adapters.prompts import virtual_tokens
from vramcast.training.adapters.tensors import targeted
from vramcast.training.counts import Count, count, trains
from vramcast.training.methods import PARTIALS, PROMPTS, adapter_of, named_by_task
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.recipe.policy import Policy
from vramcast.training.resolve import resolve
from vramcast.training.stages import bounds_of, places, stages
from vramcast.training.states import GRADIENTS_CUT
from vramcast.training.towers import TowerLayers, towers_of
from vramcast.workload import Adapter, Parallel, Training


class StepNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a step that may be arrays, one element per layout: sequences, tokens of each, micro-batches, ranks.

    ``dp``: data-parallel ranks; ``replicate``: replicas of the sharded model among them; ``gpus``: cards of the run, where they
    are more than the axes of parallelism name.
    """

    micro_batch: Number = 1
    seq: Number = 2048
    accumulate: Number = 1
    dp: Number = 1
    replicate: Number = 1
    gpus: Number = 1

    @property
    def accumulates(self) -> bool:
        """Whether a step has several micro-batches."""
        return several(self.accumulate)


class RankStructure(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of rank: what it holds, and what its layers save, for every batch.

    ``place``: its stage in the pipeline; ``embedding`` and ``head``: elements of the ends it gathers; ``embedding_gradient``:
    bytes of the embedding's own gradient, ``partial_embedding``: of a whole one on every rank, which becomes its part afterwards;
    ``columns``: of the vocabulary; ``returned``: elements a token leaves in a cache that the model returns.
    """

    stage: Stage
    place: int
    held: Count
    layers: LayerCosts
    block_elements: float
    towers: tuple[TowerLayers, ...]
    embedding: float
    head: float
    tied: bool
    embedding_gradient: float
    partial_embedding: float
    columns: float
    prediction_heads: int
    trains_head: bool
    returned: float


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """A question less its numbers. ``virtual_tokens``: those a prompt method puts before every sequence."""

    model: Model
    recipe: Recipe
    assumed: tuple[Assumption, ...]
    parallel: Parallel
    ranks: tuple[RankStructure, ...]
    virtual_tokens: int = 0


def numbers_of(question: Training) -> StepNumbers:
    """The numbers of a question."""
    parallel = question.parallel
    return StepNumbers(
        micro_batch=question.micro_batch,
        seq=question.seq,
        accumulate=question.accumulate,
        dp=parallel.dp,
        replicate=parallel.replicate,
        gpus=question.gpus,
    )


def structure_of(question: Training, model: Model) -> Structure:
    """The structure of a question, kept for the next one that differs from it in its numbers alone.

    Raises QuestionError for a name, a word or a cut into stages that cannot be.
    """
    question = named_by_task(question)
    recipe, assumed = resolved(question, model)
    return structure_under(question, model, recipe, assumed)


def resolved(question: Training, model: Model) -> tuple[Recipe, tuple[Assumption, ...]]:
    """The recipe of a question, kept for all that differ from it in their numbers. Raises QuestionError as ``resolve``."""
    return _resolved(model, _Key(question))


def structure_under(question: Training, model: Model, recipe: Recipe, assumed: tuple[Assumption, ...] = ()) -> Structure:
    """The structure of a question under a recipe that is resolved already."""
    reached = frozenset(window for window in windows_of(model) if _reaches(question.seq, window))
    return _structure(model, recipe, assumed, _Key(question), reached)


def _reaches(seq: Number, window: int) -> bool:
    """Whether sequences are as long as a window; raises ValueError for an array in which that differs."""
    return several(seq // window + 1) if is_array(seq) else seq >= window


class _Key:
    """A question known by all but its numbers."""

    __slots__ = ("question", "text")

    def __init__(self, question: Training) -> None:
        bare = msgspec.structs.replace(question, micro_batch=1, seq=1, accumulate=1, gpu=None, gpus=1)
        self.question, self.text = question, msgspec.json.encode(bare, enc_hook=str)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.text == other.text


@by_identity(most=512)
def _resolved(model: Model, key: _Key) -> tuple[Recipe, tuple[Assumption, ...]]:
    return resolve(key.question, model)


@by_identity(3, most=512)
def _structure(model: Model, recipe: Recipe, assumed: tuple[Assumption, ...], key: _Key, reached: frozenset[int]) -> Structure:
    question = key.question
    adapter = adapter_of(question)
    build = _Build(question, model, recipe, adapter, reached)
    bounds = bounds_of(model, question.parallel, recipe)
    cut_up = zip(stages(model, question.parallel, bounds=bounds), places(question.parallel.pp), strict=True)
    return Structure(
        model=model,
        recipe=recipe,
        assumed=assumed,
        parallel=question.parallel,
        ranks=tuple(build.rank(stage, place) for stage, place in cut_up),
        virtual_tokens=virtual_tokens(adapter.kind, adapter.sizes) if adapter else 0,
    )


def adapter_ranks(model: Model, recipe: Recipe, adapter: Adapter | None) -> dict[str, int]:
    """Ranks of an adapter by the roles it reaches; none without one, or where it is a prompt."""
    if not adapter or adapter.kind in PROMPTS:
        return {}
    return targeted(model, adapter, router=recipe.adapters.adapts_router, experts=recipe.adapters.adapts_experts)


class _Build:
    """The making of a structure, stage by stage."""

    def __init__(
        self, question: Training, model: Model, recipe: Recipe, adapter: Adapter | None, reached: frozenset[int]
    ) -> None:
        self.question, self.model, self.recipe, self.adapter, self.reached = question, model, recipe, adapter, reached
        self.ranks = adapter_ranks(model, recipe, adapter)
        self.style = style_of(recipe, question.parallel, adapter, self.ranks)
        self.policy = _policy(recipe, question.parallel)

    def rank(self, stage: Stage, place: int) -> RankStructure:
        model, recipe, parallel = self.model, self.recipe, self.question.parallel
        layers = self._layers(stage)
        ends = {role: sum(share(t, cut(parallel.tp)) for t in model.tensors if t.role == role) for role in ("embedding", "head")}
        return RankStructure(
            stage=stage,
            place=place,
            held=count(model, stage, parallel, recipe, adapter=self.adapter, ranks=self.ranks),
            layers=layers,
            block_elements=block_elements(layers),
            towers=towers_of(model, recipe, stage, self.policy, self.style, reached=self.reached),
            embedding=ends["embedding"] * stage.first,
            head=ends["embedding" if model.tied else "head"] * stage.last,
            tied=model.tied and recipe.loss.tied is not False and stage.first and stage.last,
            embedding_gradient=self._embedding_gradient(stage, ends["embedding"]),
            partial_embedding=self._partial_embedding(stage),
            columns=model.vocab / (parallel.tp if recipe.model_parallel.vocab_parallel else 1),
            prediction_heads=1 + sum(t.kind == "mtp" and not t.stored_only for t in model.towers),
            trains_head=trains(model, recipe, self.adapter, "head"),
            returned=sum(n * m.cache_elements for b, n in stage.blocks for m in b.mixers if isinstance(m, Attention)),
        )

    def _layers(self, stage: Stage) -> LayerCosts:
        """What this stage's layers keep: some of them frozen, some in 16 bits while the others are narrow."""
        precision = self.recipe.precision
        if not precision.saved_inputs or precision.narrow_layers is None:
            return self._layers_under(stage, self.style)
        wide = msgspec.structs.replace(self.style, saved_inputs=0, saved_weights=0)
        share_narrow = min(1.0, precision.narrow_layers / self.model.layers)
        return Blended(those=self._layers_under(stage, self.style), rest=self._layers_under(stage, wide), share=share_narrow)

    def _layers_under(self, stage: Stage, style: Style) -> LayerCosts:
        part, trained = PARTIALS.get(self.question.method), self.recipe.task.trainable_layers or 0
        hidden = self.model.hidden
        return layers_of_part(self.policy, stage, style, hidden=hidden, partial=part, trained=trained, reached=self.reached)

    def _embedding_gradient(self, stage: Stage, elements: float) -> float:
        """Bytes of a trained embedding's own gradient, where a rank keeps whole ones."""
        trained = trains(self.model, self.recipe, self.adapter, "embedding")
        gone = self.recipe.sharding.kind in GRADIENTS_CUT or updates_inside_backward(self.recipe)
        return 0.0 if not trained or not stage.first or gone else elements * width(self.recipe.precision.backward_gradients)

    def _partial_embedding(self, stage: Stage) -> float:
        """Bytes of the embedding's gradient where DTensor cuts a vocabulary: on each rank a whole one, then its part of the sum.

        Source: torch 2.13, distributed/tensor/_ops/_embedding_ops.py, embedding_dense_backward_strategy (its result is Partial).
        """
        tp, trained = self.question.parallel.tp, trains(self.model, self.recipe, self.adapter, "embedding")
        if not trained or not stage.first or not self.recipe.model_parallel.partial_embedding or tp == 1:
            return 0.0
        whole = sum(t.elements for t in self.model.tensors if t.role == "embedding")
        return whole * width(self.recipe.precision.backward_gradients) * (1 + 1 / tp)


def block_elements(layers: LayerCosts) -> float:
    """Elements of the largest of the layers, on this rank."""
    return block_elements(layers.rest) if isinstance(layers, Blended) else layers.block_elements


def _policy(recipe: Recipe, parallel: Parallel) -> Policy:
    """The policy of a rank's layers: offloaded activations leave nothing on the card; block counts layers of each chunk."""
    policy = recipe.recomputation.policy
    if policy.kind == "block":
        return Policy("block", policy.layers * parallel.vpp)
    return Policy("offloaded") if "activations" in recipe.sharding.offload and policy.kind != "none" else policy
