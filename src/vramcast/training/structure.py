"""What ranks hold and what their layers save, as formulas; then one rank's step for the numbers of a batch.

The model, the recipe and the cut into stages decide what a rank holds and what its layers save as formulas of the batch; these
are worked out once and kept, because planners ask one structure for thousands of batches and worlds.
"""

import msgspec

from vramcast.ledger import Assumption
from vramcast.models.classes import norms_embedding
from vramcast.models.inventory import Model, by_identity
from vramcast.models.layers import Attention
from vramcast.models.sharding import Stage, cut, share
from vramcast.quantity import Number, Quantity, is_array, maximum, minimum, several
from vramcast.training.activations.choice import Style, style_of, updates_inside_backward
from vramcast.training.activations.layers import LayerCosts, Layers, MixedLayers, StageLayers, layers_of_part, windows_of
from vramcast.training.activations.sizes import Shape
from vramcast.training.adapters.prompts import virtual_tokens
from vramcast.training.adapters.tensors import targeted
from vramcast.training.counts import (
    Count,
    beside_decoder,
    bounds_of,
    count,
    in_flight,
    passed_over,
    placeholder_elements,
    places,
    stages,
    trains,
    unquantized_roles,
)
from vramcast.training.gathers import Units
from vramcast.training.loss import NO_HEAD, Logits, LossCost, loss_cost
from vramcast.training.methods import PARTIALS, PROMPTS, adapter_of
from vramcast.training.recipe.parts import Policy, Recipe, width
from vramcast.training.resolve import WithoutNumbers
from vramcast.training.states import GRADIENTS_CUT, NOTHING, ShardCounts, States, states
from vramcast.training.towers import TowerCost, TowerLayers, cost_of, towers_of
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

    ``place``: its stage in the pipeline; ``sizes``: elements of each layer where they differ; ``embedding`` and ``head``: of
    the ends it gathers; ``embedding_gradient``: bytes of the embedding's own gradient, ``partial_embedding``: of a whole one on
    every rank, which becomes its part afterwards; ``placeholders``: elements of one gradient per distinct weight shape;
    ``columns``: of the vocabulary; ``transforms_head``: a dense layer stands before the head; ``beside``: elements of towers
    outside their layers; ``returned``: elements a token leaves in a cache that the model returns.
    """

    stage: Stage
    place: int
    held: Count
    layers: LayerCosts
    style: Style
    block_elements: float
    sizes: tuple[float, ...]
    towers: tuple[TowerLayers, ...]
    embedding: float
    head: float
    beside: float
    tied: bool
    embedding_gradient: float
    partial_embedding: float
    placeholders: float
    columns: float
    prediction_heads: int
    trains_head: bool
    transforms_head: bool
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


def structure_under(question: Training, model: Model, recipe: Recipe, assumed: tuple[Assumption, ...] = ()) -> Structure:
    """The structure of a question under its recipe, kept for the next one that differs from it in its numbers alone.

    Raises QuestionError for a cut into stages that cannot be.
    """
    reached = frozenset(window for window in windows_of(model) if _reaches(question.seq, window))
    return _structure(model, recipe, assumed, WithoutNumbers(question), reached)


def _reaches(seq: Number, window: int) -> bool:
    """Whether sequences are as long as a window; raises ValueError for an array in which that differs."""
    return several(seq // window + 1) if is_array(seq) else seq >= window


@by_identity(3, most=512)
def _structure(
    model: Model, recipe: Recipe, assumed: tuple[Assumption, ...], key: WithoutNumbers, reached: frozenset[int]
) -> Structure:
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


def _scaled_outputs(model: Model, adapter: Adapter | None) -> dict[str, int]:
    """Roles whose outputs LLaMA-Adapter v2 scales: every linear layer."""
    if adapter is None or adapter.kind != "adapter_v2":
        return {}
    return targeted(model, Adapter(kind="lora", rank=1, targets=("all-linear",)))


class _Build:
    """The making of a structure, stage by stage."""

    def __init__(
        self, question: Training, model: Model, recipe: Recipe, adapter: Adapter | None, reached: frozenset[int]
    ) -> None:
        self.question, self.model, self.recipe, self.adapter, self.reached = question, model, recipe, adapter, reached
        self.ranks = adapter_ranks(model, recipe, adapter)
        style = style_of(recipe, question.parallel, adapter, self.ranks or _scaled_outputs(model, adapter))
        wide = unquantized_roles(model) if adapter and recipe.quantization.scheme else frozenset()
        frozen = style.adapter is not None and not style.trains and "embedding" not in self.ranks
        embeds = not frozen or trains(model, recipe, adapter, "embedding")
        self.style = msgspec.structs.replace(style, normed_embedding=norms_embedding(model), left_wide=wide, embeds=embeds)
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
            style=self.style,
            block_elements=layers.block_elements,
            sizes=layers.sizes if isinstance(layers, StageLayers) else (),
            towers=towers_of(model, recipe, stage, self.policy, self.style, reached=self.reached),
            embedding=ends["embedding"] * stage.first,
            head=ends["embedding" if model.tied else "head"] * stage.last,
            beside=float(sum(t.elements for tower in beside_decoder(model) for t in tower.tensors)) * stage.first,
            tied=model.tied and recipe.loss.tied is not False and stage.first and stage.last,
            embedding_gradient=self._embedding_gradient(stage, ends["embedding"]),
            partial_embedding=self._partial_embedding(stage),
            placeholders=placeholder_elements(model, stage, parallel, recipe),
            columns=model.vocab / (parallel.tp if recipe.model_parallel.vocab_parallel else 1),
            prediction_heads=1 + sum(t.kind == "mtp" and not t.stored_only for t in model.towers),
            trains_head=trains(model, recipe, self.adapter, "head"),
            transforms_head=any(t.role == "head" and t.shape == (model.hidden, model.hidden) for t in model.tensors),
            returned=sum(n * m.cache_elements for b, n in stage.blocks for m in b.mixers if isinstance(m, Attention)),
        )

    def _layers(self, stage: Stage) -> LayerCosts:
        """What this stage's layers keep: some of them frozen, some in 16 bits while the others are narrow."""
        precision = self.recipe.precision
        if not precision.saved_inputs or precision.narrow_layers is None:
            return self._layers_under(stage, self.style)
        wide = msgspec.structs.replace(self.style, saved_inputs=0, saved_weights=0)
        share_narrow = min(1.0, precision.narrow_layers / self.model.layers)
        return MixedLayers(those=self._layers_under(stage, self.style), rest=self._layers_under(stage, wide), share=share_narrow)

    def _layers_under(self, stage: Stage, style: Style) -> LayerCosts:
        part, trained = PARTIALS.get(self.question.method), self.recipe.task.trainable_layers or 0
        hidden, run = self.model.hidden, tuple(pair for pair in stage.blocks if not passed_over(pair[0], self.recipe))
        stage = msgspec.structs.replace(stage, blocks=run) if run and len(run) < len(stage.blocks) else stage
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


def _policy(recipe: Recipe, parallel: Parallel) -> Policy:
    """The policy of a rank's layers: offloaded activations leave nothing on the card; block counts layers of each chunk."""
    policy = recipe.recomputation.policy
    if policy.kind == "block":
        return Policy("block", policy.layers * parallel.vpp)
    return Policy("offloaded") if "activations" in recipe.sharding.offload and policy.kind != "none" else policy


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the moments of a step are made of. ``tokens`` and ``rows`` (sequences) of one micro-batch on this rank.

    ``finds_gradients``: the largest micro-batch begins with gradients of earlier ones, or of the step before.
    """

    structure: Structure
    kind: RankStructure
    states: States
    layers: Layers
    loss: LossCost
    units: Units
    tower: TowerCost
    tokens: Number
    rows: Number
    in_flight: Number
    micro_batches: Number
    finds_gradients: bool
    accumulates: bool

    @property
    def recipe(self) -> Recipe:
        """Its recipe."""
        return self.structure.recipe

    @property
    def starting_gradients(self) -> Quantity:
        """Gradients that are there when the largest micro-batch begins."""
        return self.states.gradients if self.finds_gradients else NOTHING

    @property
    def resting_gradients(self) -> Quantity:
        """Gradients that stay when no step is under way: those in buffers of their own."""
        return self.states.gradients if self.recipe.update.frees_gradients is False else NOTHING


def rank_of(kind: RankStructure, structure: Structure, numbers: StepNumbers) -> Rank:
    """One kind of rank under those numbers."""
    recipe, parallel = structure.recipe, structure.parallel
    rows = recipe.task.sequences * numbers.micro_batch
    seq = numbers.seq + structure.virtual_tokens
    text = Shape(tokens=rows * seq / parallel.cp, seq=seq)
    passes = in_flight(kind.place, parallel, recipe, micro_batches=numbers.accumulate)
    layers = kind.layers.at(text, passes)
    sharers = sharers_of(structure, numbers)
    return Rank(
        structure=structure,
        kind=kind,
        states=states(kind.held, recipe, sharers),
        layers=layers,
        loss=_loss(kind, structure, tokens=text.tokens, rows=rows, passes=numbers.accumulate),
        units=_units(kind, sharers.dense),
        tower=cost_of(kind.towers, text, rows=rows, in_flight=passes),
        tokens=text.tokens,
        rows=rows,
        in_flight=passes,
        micro_batches=numbers.accumulate,
        finds_gradients=recipe.update.frees_gradients is False or (numbers.accumulates and not recipe.task.longest_first),
        accumulates=numbers.accumulates,
    )


def sharers_of(structure: Structure, numbers: StepNumbers) -> ShardCounts:
    """Ranks that share a dense tensor and an expert."""
    parallel, experts_tp = structure.parallel, structure.recipe.model_parallel.expert_tp
    dense = maximum(1, numbers.dp * parallel.cp // numbers.replicate)
    return ShardCounts(dense=dense, experts=maximum(1, dense * parallel.tp // (parallel.ep * experts_tp)))


def _units(kind: RankStructure, ranks: Number) -> Units:
    """What sharding gathers on this rank; the ends are on the first stage and the last."""
    return Units(
        block=kind.block_elements,
        depth=kind.stage.layers,
        embedding=kind.embedding,
        head=kind.head,
        tied=kind.tied,
        ranks=ranks,
        root=kind.beside,
        sizes=kind.sizes,
    )


def _loss(kind: RankStructure, structure: Structure, *, tokens: Number, rows: Number, passes: Number) -> LossCost:
    recipe, model = structure.recipe, structure.model
    if not kind.stage.last:
        return NO_HEAD
    returned = recipe.loss.returns_cache and recipe.recomputation.policy.kind == "none"
    trained = kind.trains_head
    return loss_cost(
        recipe,
        Logits(
            tokens=tokens * recipe.loss.scored,
            vocab=kind.columns,
            cache=tokens * kind.returned if returned else 0,
            outputs=_kept_outputs(recipe, passes),
            hidden=model.hidden,
            rows=rows,
            width=width(recipe.precision.compute),
            heads=kind.prediction_heads,
            head_trains=trained,
            transformed=kind.transforms_head,
            head_gradient=kind.columns * model.hidden * width(recipe.precision.backward_gradients)
            if trained and not recipe.precision.placeholders
            else 0,
        ),
    )


def _kept_outputs(recipe: Recipe, passes: Number) -> Number:
    kept, buffers = recipe.loss.keeps_outputs, recipe.loss.output_buffers
    return (minimum(passes, buffers) if buffers else passes) if kept else 0


def retained_inputs(rank: Rank) -> Number:
    """FSDP1 hooks the inputs of frozen units and keeps them, with their gradients, until backward ends.

    torch 2.13, distributed/fsdp/_runtime_utils.py: _register_post_backward_reshard_only_hook puts a multi-grad hook on the
    inputs of a unit whose parameters need no gradient (since torch 2.1). With reentrant checkpointing the hooked
    inputs are the checkpoints, whose gradients stay as well.
    """
    recipe = rank.recipe
    if recipe.sharding.kind != "fsdp1" or recipe.task.method == "full" or recipe.recomputation.policy.kind != "full":
        return 0.0
    return rank.layers.waiting + (rank.kind.stage.layers - 2) * rank.layers.boundary
