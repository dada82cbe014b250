"""What a stage's layers keep under a checkpointing policy, and how high the live layer reaches: worked out for every shape.

A ``StageLayers`` is made once for a structure (model, recipe, layout) and answers ``at`` any shape of a batch, numbers or arrays.
Where only some layers are trained, or only some multiply in 8 bits, two of them are blended.

A frozen layer that lies above a trained one passes gradients through: its matmuls save nothing of their inputs, its kernels,
norms and products save what they always do (torch, tools/autograd/derivatives.yaml). Below the lowest trained layer nothing
needs a gradient and nothing is saved, unless the embedding is trained.
"""

from collections.abc import Callable

import msgspec

from vramcast.models.inventory import Block, Model, by_identity
from vramcast.models.layers import Attention
from vramcast.models.sharding import Stage, cut, share
from vramcast.quantity import Number, maximum, minimum
from vramcast.training.activations.altup import ends_saved, in_float
from vramcast.training.activations.choice import Style
from vramcast.training.activations.layer import has_own_embedding, is_shared, layer_tape, streams
from vramcast.training.activations.selective import attention_scores, module_bytes, moved_bytes, scanned, selected
from vramcast.training.activations.sizes import TOKENS, Amount, Length, Peak, Shape, at
from vramcast.training.activations.tape import Life, Tape
from vramcast.training.methods import Partial, last_layers
from vramcast.training.recipe.parts import Policy


class Layers(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a stage's layers for one batch, bytes (or arrays of them).

    ``waiting``: held at the end of forward; ``copies``: autocast's of the weights of recomputed layers, which nothing saves but
    autocast keeps until it ends, after the loss; ``forward``: the live layer's forward beyond that; ``working``: the last layer's
    backward beyond that, recomputation included; ``first_working``: the same of the first layer; ``first_kept``, ``last_kept``:
    what each keeps; ``gradients``: weight gradients that the first layer's backward makes; ``boundary``: one layer's input;
    ``parts``: what waits, by the operation that made it, where nothing is recomputed; ``highest_at``: the operation at which the
    last layer's backward is highest; ``between``: layers unlike their neighbours.
    """

    waiting: Number
    copies: Number = 0.0
    forward: Number
    working: Number
    first_working: Number
    first_kept: Number
    last_kept: Number
    gradients: Number
    block_elements: float
    boundary: Number
    parts: Callable[[], tuple[tuple[str, Number], ...]] = tuple
    highest_at: Callable[[], str] = str
    between: tuple["MiddleLayer", ...] = ()


class MiddleLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer between the first and the last of a stage whose layers differ, at its backward, bytes.

    ``place``: counted from the first; ``waiting``: of it and the layers before it; ``working``: its backward beyond that;
    ``made``: weight gradients that it and the layers before it make; ``highest_at``: the operation at which it is highest.
    """

    place: int
    waiting: Number
    working: Number
    made: Number
    highest_at: str


class _Block(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of a block: its life, what it keeps under the policy, and how much of that lies on the host until backward."""

    life: Life
    kept: Amount
    moved: Amount = 0.0

    def working(self, shape: Shape, *, recomputed: bool) -> Number:
        """Its backward beyond what waited for it: all of it, or its second forward, when it is recomputed from its input."""
        highest = at(self.life.backward_peak, shape)
        return (
            maximum(highest, at(self.life.forward_peak, shape))
            if recomputed
            else highest - minimum(at(self.life.saved, shape), at(self.kept, shape))
        )


class _MiddleLayer(msgspec.Struct, frozen=True, kw_only=True):
    """The same for every shape; ``after``: what the layers behind it keep."""

    place: int
    block: _Block
    after: Amount
    made: Amount


class StageLayers(msgspec.Struct, frozen=True, kw_only=True):
    """A stage's layers under a policy, for every shape.

    ``one_pass``: what a forward pass leaves for backward; ``mask``: of the dropout over the embedding, for each pass;
    ``embedded``: the embedding's output, and what the last layer keeps here that others moved to the host; ``beside``: layers
    recomputed together with the last one, counted; ``parts``: what a pass leaves by the operation that made it; ``biases``:
    positions that the first layer makes and hands to all that are recomputed, which makes them again.
    ``sizes``: elements of each layer in order, empty where all are alike, as is ``between``.
    """

    policy: Policy
    boundary: Amount
    one_pass: Amount
    mask: Amount
    embedded: Amount
    copies: Amount
    forward: tuple[Amount | Peak, ...]
    first: _Block
    last: _Block
    biases: Amount
    beside: int
    block_elements: float
    parts: tuple[tuple[str, Amount], ...]
    sizes: tuple[float, ...] = ()
    between: tuple[_MiddleLayer, ...] = ()

    def at(self, shape: Shape, in_flight: Number = 1.0) -> Layers:
        """The cost for a shape, of which ``in_flight`` passes wait for their backward."""
        recomputed, boundary = self.policy.recomputes_layers, at(self.boundary, shape)
        embedded = at(self.mask, shape) * in_flight + at(self.embedded, shape)
        beside = self.last.life.saved + self.last.life.input_saved
        waiting = at(self.one_pass, shape) * in_flight + embedded + at(self.biases, shape)
        return Layers(
            waiting=waiting,
            copies=at(self.copies, shape),
            forward=maximum(*(at(size, shape) for size in self.forward)),
            working=self.last.working(shape, recomputed=recomputed)
            + (self.beside * maximum(boundary, at(beside, shape)) if self.beside else 0.0),
            first_working=self.first.working(shape, recomputed=recomputed) + at(self.biases, shape),
            first_kept=at(self.first.kept, shape) + at(self.biases, shape) / 2,
            last_kept=at(self.last.kept, shape),
            gradients=at(self.first.life.weight_gradients, shape),
            block_elements=self.block_elements,
            boundary=boundary,
            parts=lambda: self._opened(shape, in_flight, embedded),
            highest_at=lambda: _highest_at(self.last, shape),
            between=tuple(
                MiddleLayer(
                    place=layer.place,
                    waiting=waiting - at(layer.after, shape),
                    working=layer.block.working(shape, recomputed=recomputed),
                    made=at(layer.made, shape),
                    highest_at=layer.block.life.binding,
                )
                for layer in self.between
            ),
        )

    def _opened(self, shape: Shape, in_flight: Number, embedded: Number) -> tuple[tuple[str, Number], ...]:
        found = tuple((name, at(size, shape) * in_flight) for name, size in self.parts)
        return (*found, *((("embedding", embedded),) if found and (self.embedded or self.mask) else ()))


class MixedLayers(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of which the first ``share`` are as ``those`` and the others, the last one among them, as ``rest``.

    ``highest``: the step that needs most counts, in which either kind may be the last.
    """

    those: "LayerCosts"
    rest: "LayerCosts"
    share: float
    highest: bool = False

    @property
    def block_elements(self) -> float:
        """Elements of the largest of the layers, on this rank."""
        return self.rest.block_elements

    def at(self, shape: Shape, in_flight: Number = 1.0) -> Layers:
        """The cost for a shape, of which ``in_flight`` passes wait for their backward."""
        those, rest, share = self.those.at(shape, in_flight), self.rest.at(shape, in_flight), self.share
        return msgspec.structs.replace(
            rest,
            waiting=share * those.waiting + (1 - share) * rest.waiting,
            working=maximum(those.working, rest.working) if self.highest else rest.working,
            first_working=those.first_working,
            first_kept=those.first_kept,
            gradients=those.gradients,
            parts=tuple,
            between=(),
        )


LayerCosts = StageLayers | MixedLayers


def _highest_at(block: _Block, shape: Shape) -> str:
    peak = block.life.backward_peak
    return peak.reached_by(shape) if isinstance(peak, Peak) else block.life.binding


def layers_of(policy: Policy, stage: Stage, style: Style, *, hidden: int, reached: frozenset[int] = frozenset()) -> StageLayers:
    """The stage's layers under ``policy``, for every shape whose sequences are as long as the windows in ``reached``."""
    own = TOKENS / style.tp if style.sp else TOKENS
    carried = streams(stage.blocks[0][0])
    boundary = own * hidden * (in_float(style).residual * carried if carried > 1 else style.residual)
    seq = Length(reached)
    costs = {id(block): _cost(policy, block, style, hidden=hidden, seq=seq) for block, _ in stage.blocks}
    blocks = [block for block, _ in stage.blocks]
    first, last = min(blocks, key=lambda b: b.indices[0]), max(blocks, key=lambda b: b.indices[-1])
    recomputed = policy.recomputes_layers
    before = _returned(stage, style, tokens=own, seq=seq) if recomputed else 0.0
    forward = (c.life.transient_peak + before if recomputed else c.life.forward_peak - c.life.saved for c in costs.values())
    masked = stage.first and style.kernels.hidden_dropout
    order = _in_order(stage)
    begins = stage.first and policy.kind == "none" and not style.embeds  # no gradient goes below the first layer
    unreached = msgspec.structs.replace(style, reached=False)
    lower = _cost(policy, first, unreached, hidden=hidden, seq=seq) if begins else costs[id(first)]
    one_pass = _one_pass(policy, stage, {i: cost.kept - cost.moved for i, cost in costs.items()}, boundary)
    embedded = _embedded(policy, stage, style, boundary)
    if has_own_embedding(first):
        embedded += ends_saved(first, style, count=carried, hidden=hidden, tokens=own, layers=stage.layers)
    return StageLayers(
        policy=policy,
        boundary=boundary,
        one_pass=one_pass - (costs[id(first)].kept - lower.kept if begins else 0.0),
        mask=boundary / style.residual if masked and not begins else 0.0,
        embedded=embedded + (0.0 if recomputed else _zeros(stage, style, seq) + costs[id(last)].moved),
        copies=sum(costs[id(block)].life.cached * count for block, count in stage.blocks) if recomputed else 0.0,
        forward=tuple(forward),
        first=lower,
        last=costs[id(last)],
        biases=_biases(stage, style, seq) if recomputed and style.written.biased else 0.0,
        beside=(stage.layers - 1) % policy.layers if policy.kind == "uniform" else 0,
        block_elements=_elements(max(blocks, key=lambda b: b.elements), style),
        parts=_parts(stage, {i: cost.life for i, cost in costs.items()}, first, lower.life) if policy.kind == "none" else (),
        sizes=tuple(_elements(block, style) for block in order),
        between=() if policy.kind in ("uniform", "block", "offloaded") else _unlike(order, costs),
    )


def _embedded(policy: Policy, stage: Stage, style: Style, boundary: Amount) -> Amount:
    """The embedding's output where something saves it, and the copy of the embeddings that layers with a shared block read."""
    saved = stage.first and (style.embeds if policy.kind == "none" else style.normed_embedding)
    copied = any(is_shared(block) for block, _ in stage.blocks)
    return (boundary if saved else 0.0) + (boundary if copied else 0.0)


def layers_of_part(
    policy: Policy,
    stage: Stage,
    style: Style,
    *,
    hidden: int,
    partial: Partial | None,
    trained: int,
    reached: frozenset[int] = frozenset(),
) -> LayerCosts:
    """A stage of which ``trained`` layers are trained, in the step that needs most; all of them without ``partial``."""
    if partial is None or not trained:
        return layers_of(policy, stage, style, hidden=hidden, reached=reached)
    deep = last_layers(stage, depth_reached(stage.layers, partial, trained))
    active = layers_of(policy, deep, style, hidden=hidden, reached=reached)
    if trained >= deep.layers:
        return active
    frozen = msgspec.structs.replace(style, trains=False)
    passing = layers_of(policy, deep, frozen, hidden=hidden, reached=reached)
    return MixedLayers(those=active, rest=passing, share=trained / deep.layers, highest=True)


def depth_reached(depth: int, partial: Partial, trained: int) -> int:
    """Layers from the last one down to the lowest that needs gradients."""
    if partial.whole_backward:
        return depth
    return depth - depth // trained + 1 if partial.spread else trained


def _in_order(stage: Stage) -> tuple[Block, ...]:
    """The blocks of a whole model's layers, first to last, where they differ; else none."""
    whole = all(count == block.count for block, count in stage.blocks)
    if len(stage.blocks) < 2 or not whole:
        return ()
    placed = sorted((index, at) for at, (block, _) in enumerate(stage.blocks) for index in block.indices)
    return tuple(stage.blocks[at][0] for _, at in placed)  # two stacks may count from 0, each with a name of its own


def _unlike(order: tuple[Block, ...], costs: dict[int, _Block]) -> tuple[_MiddleLayer, ...]:
    """The first and last layer of each kind and neighbours, without the ends of the stage, which have moments of their own."""
    kinds = [id(block) for block in order]
    found: dict[tuple[int, ...], list[int]] = {}
    for place in range(1, len(order) - 1):
        found.setdefault(tuple(kinds[place - 1 : place + 2]), []).append(place)
    made = [costs[kind].life.weight_gradients for kind in kinds]
    kept = [costs[kind].kept for kind in kinds]
    places = sorted({places[end] for places in found.values() for end in (0, -1)}, reverse=True)
    return tuple(_MiddleLayer(place=p, block=costs[kinds[p]], after=sum(kept[p + 1 :]), made=sum(made[: p + 1])) for p in places)


def windows_of(model: Model) -> frozenset[int]:
    """The windows and chunks of a model's attention: whether a sequence reaches one decides what its layers write out."""
    mixers = [m for block in model.blocks for m in block.mixers]
    return frozenset(w for m in mixers for w in (getattr(m, "window", 0), getattr(m, "chunk", 0)) if isinstance(w, int) and w > 0)


def _parts(stage: Stage, lives: dict[int, Life], first: Block, lowest: Life) -> tuple[tuple[str, Amount], ...]:
    """What every layer keeps by the operation that made it, over the stage; the first layer's life may be its own."""
    found: dict[str, Amount] = {}
    each = [(lives[id(block)], count - (block is first)) for block, count in stage.blocks]
    for life, count in (*each, (lowest, 1)):
        for name, size in life.savings.items():
            found[name] = found.get(name, 0.0) + size * count
    return tuple(found.items())


def _one_pass(policy: Policy, stage: Stage, kept_of: dict[int, Amount], boundary: Amount) -> Amount:
    """What one pass leaves for backward: each layer's own, or the inputs of the chunks and layers that are recomputed.

    Source: Megatron-LM core 0.16.1, transformer/transformer_block.py, _checkpointed_forward.
    """
    if policy.kind == "uniform":
        return -(-stage.layers // policy.layers) * boundary
    left = policy.layers if policy.kind == "block" else 0
    total: Amount = 0.0
    for block, count in sorted(stage.blocks, key=lambda pair: pair[0].indices[0]):
        recomputed = min(left, count)
        left -= recomputed
        total += recomputed * boundary + (count - recomputed) * kept_of[id(block)]
    return total


def _biases(stage: Stage, style: Style, seq: Amount) -> Amount:
    """A number for every pair of places and head, of the layer's own sequence and of the encoder's, which are zeros.

    Source: transformers 5.23, models/t5/modeling_t5.py, T5Attention.forward and T5Stack.forward (position_bias).
    """
    block, _ = stage.blocks[0]
    heads = next(m.heads for m in block.mixers if isinstance(m, Attention)) / style.tp
    return seq**2 * heads * style.residual * (2 if block.cross else 1)


def _zeros(stage: Stage, style: Style, seq: Amount) -> Amount:
    """The encoder's positions, all zeros, that every layer's attention across adds and its backward may ask for.

    They have the queries' width; where autocast narrows them, each layer keeps its own copy instead.
    """
    if style.widens_queries:
        return 0.0
    crosses = style.written.biased and any(block.cross for block, _ in stage.blocks)
    return _biases(stage, style, seq) / 2 if crosses else 0.0


def _returned(stage: Stage, style: Style, *, tokens: Amount, seq: Amount) -> Amount:
    """The probabilities of the layer before, which nothing saved and the model's loop still names."""
    if not style.written.returns_scores or stage.layers == 1:
        return 0.0
    heads = max((m.heads for block, _ in stage.blocks for m in block.mixers if isinstance(m, Attention)), default=0)
    held = 4 if style.dequantize and style.autocast else style.width  # 4-bit layers return the float of their LayerNorm
    return tokens * heads / style.tp * seq * held


def _elements(block: Block, style: Style) -> float:
    layout = cut(style.tp, ep=style.ep, expert_tp=style.expert_tp)
    return sum(share(tensor, layout) for tensor in block.tensors)


@by_identity(most=256)
def _known(block: Block, style: Style, hidden: int, reached: frozenset[int]) -> tuple[Tape, Life]:
    return _taped(block, style, hidden, reached)


def _taped(block: Block, style: Style, hidden: int, reached: frozenset[int]) -> tuple[Tape, Life]:
    """What a layer does and what lives while it does: the same whatever is computed again, and on every stage that has it."""
    tape = layer_tape(block, style, hidden=hidden, tokens=TOKENS, seq=Length(reached))
    return tape, tape.life()


def _cost(policy: Policy, block: Block, style: Style, *, hidden: int, seq: Length) -> _Block:
    tape, life = (_known if style.adapter is None else _taped)(block, style, hidden, seq.reached)  # ranks by role have no hash
    on_host = moved_bytes(tape, policy.modules, style.moved) if style.moved and policy.kind in ("none", "modules") else 0.0
    kept_of = kept(policy, tape, life, narrow=style.saved_inputs > 0, scans=style.scans)
    return _Block(life=life, kept=kept_of, moved=on_host)


def kept(policy: Policy, tape: Tape, life: Life, *, narrow: bool = False, scans: bool = False) -> Amount:
    """Bytes one layer keeps for backward; ``narrow``: its matmuls make narrow copies of what they read.

    ``scans``: an operation before each matmul takes the absolute values of what it reads, and its result is kept.
    """
    whole, boundary = life.saved + life.input_saved, tape.sizes[0]
    if policy.kind in ("full", "uniform"):
        return boundary
    if policy.kind == "offloaded":
        return 0.0
    if policy.kind == "modules":
        return module_bytes(tape, policy.modules)
    if policy.kind == "op":
        return boundary + selected(tape, narrow=narrow) + (scanned(tape) if scans else 0)
    if policy.kind == "core_attention":
        return whole - attention_scores(tape)
    if policy.kind == "layer":
        return boundary / policy.layers + whole * (policy.layers - 1) / policy.layers
    return whole
