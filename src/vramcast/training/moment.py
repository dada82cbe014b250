"""One moment of a training step as a ledger: what stays from step to step, and what is alive beside it, in named terms."""

import msgspec

from vramcast.ledger import Instant, Term
from vramcast.quantity import Number, Quantity, bytes_, is_array, is_there, named, summed, whole
from vramcast.training.counts import between_stages
from vramcast.training.gathers import secondary
from vramcast.training.optimizers.rules import optimizer
from vramcast.training.recipe.parts import Recipe, width
from vramcast.training.states import NOTHING, placeholders
from vramcast.training.structure import Rank
from vramcast.training.towers import opened_by

LOAD, FORWARD, LOSS, LOSS_BACKWARD = "load", "end of forward", "loss", "backward of the loss"
LAST_BLOCK, EMBEDDING, STEP = "backward of the last block", "backward of the embedding", "optimizer step"
EVALUATION = "evaluation"
OVERFLOW = "overflow check"  # DeepSpeed's step looks at gradients before it updates
SEEING = "forward of the"  # a tower
_BEFORE_BACKWARD = (FORWARD, LOSS, LOSS_BACKWARD, LAST_BLOCK)  # of the blocks: the head's own is not counted

SOURCES = {
    "weights": "models/inventory: exact tensors; PEFT and bitsandbytes for what is frozen or quantised",
    "gradients": "torch autograd; ZeRO, arXiv 1910.02054, table 1",
    "activations": "torch/csrc/autograd: what each operation saves",
    "loss": "the framework's loss function",
    "gathered": "torch 2.13, distributed/fsdp; DeepSpeed 0.18, runtime/zero/partition_parameters.py",
    "gathered_ahead": "torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param_group.py",
    "temporaries": "torch/csrc/autograd/engine.cpp: order and life of gradients",
    "gradient_copy": "DeepSpeed 0.6.0, runtime/zero/stage_1_and_2.py: step, get_grad_norm_direct; bf16_optimizer.py",
    "secondary_weights": "DeepSpeed 0.18, runtime/zero/partition_parameters.py: _partition_param_sec; arXiv 2306.10209",
    "overflow_check": "DeepSpeed 0.6.0, runtime/zero/stage_1_and_2.py: _has_inf_or_nan",
    "communication": "DeepSpeed 0.6.0, runtime/zero/constants.py (buckets of 5e8); torch 2.13, nn/parallel/distributed.py",
}
"""Where each term's rule was read."""


class LiveBytes(msgspec.Struct, frozen=True, kw_only=True):
    """What is alive at one moment beside what stays from step to step.

    ``gradients``: None where they are those that the micro-batch began with. ``activations`` of the decoder's layers and
    ``tower``: bytes that wait for backward. ``ahead``: in a buffer from which the next unit will be whole. ``source``: of the
    temporaries' rule, where they are not a layer's.
    ``between_steps``: no step is under way.
    """

    between_steps: bool = False
    gradients: Quantity | None = None
    activations: Number = 0.0
    tower: Number = 0.0
    loss: Quantity = NOTHING
    gathered: Quantity = NOTHING
    ahead: Quantity = NOTHING
    temporaries: Quantity = NOTHING
    gradient_copy: Quantity = NOTHING
    overflow_check: Quantity = NOTHING
    source: str = SOURCES["temporaries"]


class Moments:
    """The ledgers of one rank's moments, which share the terms that stay."""

    def __init__(self, rank: Rank) -> None:
        recipe, states = rank.recipe, rank.states
        source = optimizer(recipe.update.optimizer).source
        self.rank = rank
        self.weights = _term("weights", states.weights)
        self.optimizer = (*_term("optimizer", states.optimizer, source), *_term("master_weights", states.master, source))
        self.beside = (*_term("secondary_weights", secondary(recipe, rank.kind.held, rank.structure.parallel.hpz)),)
        self.buckets = {since: _term("communication", _communication(rank, buckets=since)) for since in (True, False)}
        self.placeholders = placeholders(recipe, rank.kind.placeholders)
        self.all_saved: tuple[Term, ...] | None = None

    def loading(self) -> Instant:
        """While a model is loaded whole, before any step: a quantised one, or one that DeepSpeed's engine cuts up itself."""
        cut = self.rank.recipe.sharding.kind == "zero3"
        source = "DeepSpeed 0.19.8, runtime/engine.py: module.to(device)" if cut else "transformers, quantizers/base.py"
        return Instant(name=LOAD, terms=_term("weights", self.rank.states.loaded, source))

    def at(self, name: str, alive: LiveBytes) -> Instant:
        """The instant: what stays, and what is alive beside it, in the order of the ledger."""
        terms = (
            *self.weights,
            *_term("gradients", summed(self._gradients(name, alive), self.placeholders)),
            *(() if self.rank.recipe.update.visits and name != STEP else self.optimizer),
            *self.beside,
            *self.buckets[self._reduces(name, alive)],
            *self._activations(alive),
            *_term("loss", alive.loss),
            *_term("gathered", alive.gathered),
            *_term("gathered_ahead", alive.ahead),
            *_term("temporaries", alive.temporaries, alive.source),
            *_term("gradient_copy", alive.gradient_copy),
            *_term("overflow_check", alive.overflow_check),
        )
        return Instant(name=name, terms=terms)

    def _reduces(self, name: str, alive: LiveBytes) -> bool:
        """Whether the buckets that gradients are reduced in exist."""
        since = self.rank.recipe.sharding.buckets_from
        if since == "start":
            return True
        without = alive.between_steps or name in (FORWARD, LOSS, OVERFLOW, STEP) or name.startswith(SEEING)
        return not without and (name != LOSS_BACKWARD or since == "loss")

    def _gradients(self, name: str, alive: LiveBytes) -> Quantity:
        """Gradients at a moment: those it says, narrow ones of this backward beside them, or whole ones while accumulating."""
        rank, recipe = self.rank, self.rank.recipe
        gradients = rank.starting_gradients if alive.gradients is None else alive.gradients
        if name == STEP or alive.between_steps:
            return gradients
        if recipe.precision.low_gradients and not (recipe.precision.frees_low and name in _BEFORE_BACKWARD):
            narrow = bytes_(width(recipe.precision.low_gradients), "(of this backward)")
            gradients = summed(gradients, named(rank.kind.held.trained.total, "trained") * narrow)
        keeps_whole = recipe.sharding.whole_accumulation != "none" and rank.accumulates
        if keeps_whole and (is_there(gradients) or not recipe.task.longest_first):
            return self.rank.states.whole_gradients
        return gradients

    def _activations(self, alive: LiveBytes) -> tuple[Term, ...]:
        """What waits for backward, opened by the operation that made it while all of it waits."""
        if alive.activations is not self.rank.layers.waiting:
            return self._saved(alive, waiting=False)
        if self.all_saved is None:
            self.all_saved = self._saved(alive, waiting=True)
        return self.all_saved

    def _saved(self, alive: LiveBytes, *, waiting: bool) -> tuple[Term, ...]:
        size = bytes_(alive.activations + alive.tower)
        if not is_there(size):
            return ()
        opened = () if is_array(size.value) else self._opened(alive, waiting=waiting)
        term = Term(
            name="activations",
            bytes=whole(size.value),
            why=lambda: _saved_text(self.rank, size),
            source=SOURCES["activations"],
            terms=opened,
        )
        return (term,)

    def _opened(self, alive: LiveBytes, *, waiting: bool) -> tuple[Term, ...]:
        """Its parts; what images left stands beside them. Rounded so that they sum to the whole."""
        every, each = whole(alive.activations + alive.tower), self.rank.kind.stage.layers * self.rank.tokens
        text, parts, start = whole(alive.activations), list[Term](), 0.0
        for name, size in self.rank.layers.parts() if waiting else ():
            rounded = whole(start + size) - whole(start)
            why = f"{size / each:,.0f} B per token and layer on average"
            parts.append(Term(name=f"saved.{name}", bytes=rounded, why=why))
            start += size
        return opened_by(self.rank.tower, tuple(parts), text=text, tower=every - text) if every > text else tuple(parts)


def _term(name: str, size: Quantity, source: str = "") -> tuple[Term, ...]:
    """The term of that size; none where there is nothing."""
    return (Term(name=name, amount=size, source=source or SOURCES.get(name, "")),) if is_there(size) else ()


def _saved_text(rank: Rank, size: Quantity) -> str:
    """What waits for backward, by policy, and how much of it a token and layer leave on average."""
    recipe, depth = rank.recipe, rank.kind.stage.layers
    each = size.value / (rank.tokens * depth * rank.in_flight)
    passes = f" x {rank.in_flight:g} passes in flight" if rank.in_flight > 1 else ""
    return f"{rank.tokens:,.0f} tokens x {depth} layers{passes} x {each:,.6g} B of {_kept_text(recipe)}"


def _kept_text(recipe: Recipe) -> str:
    policy, kernels = recipe.recomputation.policy, recipe.kernels
    words = {
        "full": "each layer's input",
        "offloaded": "nothing but masks: inputs are moved to the host",
        "op": "each layer's input and chosen outputs",
        "uniform": f"the input of every {policy.layers} layers",
        "block": f"the input of {policy.layers} layers, and all that the others save",
        "modules": f"what a layer saves outside {', '.join(policy.modules)}",
    }
    saved = f"what {kernels.attention} attention, {kernels.norm} norms and {kernels.glu} MLPs save"
    return words.get(policy.kind, saved)


def _communication(rank: Rank, *, buckets: bool) -> Quantity:
    """Flat buffers: DDP's own copy of the gradients, DeepSpeed's buckets, hidden states between pipeline stages."""
    recipe, structure = rank.recipe, rank.structure
    outputs = between_stages(
        recipe, rank.kind.stage, structure.parallel, micro_batches=rank.micro_batches, in_flight=rank.in_flight
    )
    elements = named(recipe.sharding.buckets if buckets else 0, "elements of buckets")
    return summed(
        rank.states.gradients if recipe.sharding.ddp_buckets else NOTHING,
        elements * bytes_(width(recipe.precision.compute)),
        named(outputs, "hidden states between stages") * bytes_(rank.layers.boundary, "each"),
    )
