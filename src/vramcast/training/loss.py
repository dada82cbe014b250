"""The end of the network: final norm, output head and cross entropy, by implementation. Usually where a step peaks.

Sizes are counted per logit (V per token) and per hidden element (h per token). Read from transformers/loss/loss_utils.py,
torchtune's CEWithChunkedOutputLoss, Liger-Kernel's fused_linear_cross_entropy.py, Megatron-LM's core/tensor_parallel/
cross_entropy.py. The eager and fused rows were checked against measured slopes (14V + 6h, 10V + 4h).
"""

from collections.abc import Callable
from functools import partial

import msgspec

from vramcast.quantity import (
    Number,
    Quantity,
    binding,
    bytes_,
    ceiling,
    is_there,
    maximum,
    minimum,
    named,
    next_power_of_two,
    smallest,
    summed,
    where,
)
from vramcast.training.recipe.parts import GATHERED, Recipe, width
from vramcast.training.states import NOTHING


class LossCost(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes beyond the last layer's output: highest point in forward and in backward.

    ``held``: logits that a variable of the loop names until backward is over; ``segments``: distinct blocks the allocator ends
    up with, over the higher of the two.
    """

    forward: Quantity
    backward: Quantity
    held: Quantity = NOTHING
    segments: float = 1.0


NO_HEAD = LossCost(forward=NOTHING, backward=NOTHING)
WHOLE_LOGITS = ("eager", "plain")  # losses that convert all logits to float


class Logits(msgspec.Struct, frozen=True, kw_only=True):
    """The problem: ``tokens`` rows, ``vocab`` columns on this rank, ``hidden`` features; rows may be an array.

    ``transformed``: a dense layer, its activation and a norm stand before the head (encoders);
    ``rows``: sequences in the batch; ``heads``: times the head is applied (once more per prediction head), each of which leaves
    float probabilities, or a gradient. ``cache``: elements of the keys and values that the model returns beside its logits;
    ``outputs``: micro-batches whose logits a pipeline hands back together.
    """

    tokens: Number
    vocab: float
    cache: Number = 0
    outputs: Number = 0
    hidden: float
    rows: Number
    width: int
    heads: int = 1
    head_trains: bool
    head_gradient: float
    transformed: bool = False

    def logits(self, each: Number, what: str) -> Quantity:
        """``each`` bytes for every logit."""
        return named(self.tokens, "tokens") * named(self.vocab, "vocabulary") * bytes_(each, f"({what})")

    def states(self, each: Number, what: str) -> Quantity:
        """``each`` bytes for every element of the hidden states."""
        return named(self.tokens, "tokens") * named(self.hidden, "features") * bytes_(each, f"({what})")

    def head_sum(self, copies: int) -> Quantity:
        """So many gradients of the head's weight, where it is trained."""
        return named(copies, f"gradient{'s' if copies > 1 else ''} of the head") * bytes_(self.head_gradient)


def loss_cost(recipe: Recipe, logits: Logits) -> LossCost:
    """The cost of the recipe's loss, the final norm included."""
    kept = summed(_norm(recipe, logits), _cast_head(recipe, logits), _softcap(recipe, logits))
    cost = _KINDS[recipe.loss.kind](recipe, logits)
    one_gradient = summed(logits.states(logits.width, "gradient of the hidden states"), logits.head_sum(1))
    outputs = _outputs(logits)
    return LossCost(
        forward=summed(kept, cost.forward, outputs),
        backward=summed(kept, binding(cost.backward, one_gradient), outputs),
        held=summed(cost.held, outputs) if is_there(outputs) else cost.held,
        segments=_SEGMENTS.get(recipe.loss.kind, 1.0),
    )


# Distinct blocks that the allocator ends up with, over the loss's own peak: the gradient's block (4 B a logit) fits into none of
# those that forward freed (2 and 4 B), so half as much again. Assumed: no measured run that reports reserved bytes has this loss.
_SEGMENTS = {"fused": 1.5}
FROM_HEAD = (*WHOLE_LOGITS, "fused")  # losses that take whole logits from the model's own head


def _outputs(x: Logits) -> Quantity:
    """Logits of the micro-batches before this one, which the last stage merges for its caller when the step is over.

    Source: torch 2.13, distributed/pipelining/stage.py, output_chunks (detached after their backward, not freed).
    """
    earlier = maximum(x.outputs - 1, 0)
    if not is_there(bytes_(x.outputs)):
        return NOTHING
    return named(earlier, "earlier micro-batches") * x.logits(x.width, "handed back at the end")


def _norm(recipe: Recipe, x: Logits) -> Quantity:
    """What the final norm and the head save: an eager norm's float copy, the normed rows, the input of a fused one.

    A float weight makes an eager norm return float.
    """
    residual = width(recipe.precision.residual)
    if x.transformed:
        wide = recipe.precision.autocast and x.width < 4
        each = (x.width if residual > x.width else 0) + x.width + (4 if wide else x.width) + x.width
        return x.states(each, "the dense layer before the head, its activation, the norm's input, the head's input")
    if recipe.kernels.norm != "eager":
        return x.states(residual + x.width, "the final norm's input, the head's input")
    out = max(x.width, width(recipe.precision.norm_weight))
    each = (4 if residual < 4 else 0) + out + (x.width if x.head_trains else 0)
    return x.states(each, "the final norm and the head's input")


def _cast_head(recipe: Recipe, x: Logits) -> Quantity:
    """Autocast's copy of a float head in the compute dtype, saved for the head's backward (aten/autocast_mode.cpp, cached_cast).

    Traced: one copy of vocabulary x hidden alive at the loss. Gathered units come in the compute dtype already.

    A head under QLoRA is float: prepare_model_for_kbit_training casts whatever is not quantised.
    """
    held = recipe.precision.weights if x.head_trains else recipe.quantization.unquantized or recipe.precision.frozen
    whole = recipe.sharding.kind not in GATHERED
    copied = recipe.precision.autocast and whole and recipe.loss.kind != "none" and width(held) > x.width
    return named(x.vocab * x.hidden if copied else 0, "elements of the head") * bytes_(x.width, "(autocast's copy)")


def _softcap(recipe: Recipe, x: Logits) -> Quantity:
    """Logits squashed by a tanh, whose output waits for backward (transformers, models/gemma2: final_logit_softcapping)."""
    capped = recipe.loss.logits_softcap and recipe.loss.kind in FROM_HEAD
    return x.logits(x.width, "squashed by a tanh") if capped else NOTHING


def _eager(recipe: Recipe, x: Logits) -> LossCost:
    """Logits in 16 bits, a float copy, a shifted copy, log-softmax; backward holds log-softmax, its gradient and nll's."""
    if not recipe.loss.logits_upcast and x.width < 4:
        return _narrow(recipe, x)
    upcast = 4 if recipe.loss.logits_upcast and x.width < 4 else 0
    work = 4 if upcast else x.width
    kept = x.width if recipe.loss.logits_kept else 0
    each = kept + (upcast or x.width) + where(x.rows > 1, work, 0) + work
    held = _named(recipe)
    return LossCost(
        forward=x.logits(each, "logits, float copy, shifted copy, log-softmax"),
        backward=x.logits(held + 3 * work, "log-softmax and two gradients"),
        held=x.logits(held, _NAMED) if held else NOTHING,
    )


def _narrow(recipe: Recipe, x: Logits) -> LossCost:
    """16-bit logits and a shifted copy of them; autocast makes a float copy and a float log-softmax (aten/autocast_mode.h)."""
    work = 4 if recipe.precision.autocast else x.width
    each = x.width + where(x.rows > 1, x.width, 0) + (4 if recipe.precision.autocast else 0) + work
    return LossCost(
        forward=x.logits(each, "logits, shifted copy, log-softmax"), backward=x.logits(3 * work, "log-softmax and two gradients")
    )


_NAMED = "that a variable of the loop names"


def _named(recipe: Recipe) -> int:
    """Bytes of each logit that a variable of the loop names until backward is over."""
    return width(recipe.loss.holds_logits) if recipe.loss.holds_logits else 0


def _plain(recipe: Recipe, x: Logits) -> LossCost:
    """F.cross_entropy on already aligned labels: no shifted copy.

    The 16-bit logits live until the float copy is made, or are kept; a loop whose variable still names the logits holds them
    through backward. Torch's loss_parallel, on a float copy of local logits, makes one copy more in each direction (torch 2.13,
    distributed/tensor/parallel/loss.py: _log_softmax, _nll_loss_and_log_softmax_backward).
    """
    if recipe.loss.direct_loss:
        return _direct(recipe, x)
    work = 4 if recipe.loss.logits_upcast else x.width
    kept = x.width if recipe.loss.logits_kept and work != x.width else 0
    held, copies = _named(recipe), 2
    forward, backward = "logits, float copy, log-softmax", "log-softmax and two gradients"
    if recipe.model_parallel.vocab_parallel:
        copies, forward = 3, "logits, float copy, shifted copy, log-softmax"
        backward = "log-softmax, a gradient, exponentials, their sum"
    return LossCost(
        forward=x.logits(max(kept, held) + copies * work, forward),
        backward=x.logits(held + (copies + 1) * work, backward),
        held=x.logits(held, _NAMED) if held else NOTHING,
    )


def _direct(recipe: Recipe, x: Logits) -> LossCost:
    """A cross entropy on the logits as they are: encoders' and encoder-decoders' own (transformers, models/bert, models/t5).

    Autocast makes a float copy of the narrow log-softmax, and its gradient float (aten/autocast_mode.h, fp32 list: nll_loss).
    """
    copy = 4 if recipe.precision.autocast else 0
    held = _named(recipe)
    return LossCost(
        forward=x.logits(2 * x.width + copy, "logits, log-softmax" + ", its float copy" * bool(copy)),
        backward=x.logits(held + x.width + 2 * (copy or x.width), "log-softmax, its float copy and gradient"),
        held=x.logits(held, _NAMED) if held else NOTHING,
    )


def _fused(recipe: Recipe, x: Logits) -> LossCost:
    """A Triton cross entropy that writes the gradient over the logits: the float and shifted copies remain."""
    kept = x.width if recipe.loss.logits_kept else 0
    each = kept + (4 if recipe.loss.logits_upcast else x.width) + where(x.rows > 1, 4, 0)
    return LossCost(forward=x.logits(each, "logits and their copies"), backward=x.logits(8, "logits and their gradient"))


def _in_place(_recipe: Recipe, x: Logits) -> LossCost:
    """Unsloth's cross entropy: the gradient overwrites the 16-bit logits; nothing is shifted but the labels.

    Under the Trainer accelerate converts the model's outputs to float (utils/operations.py, convert_outputs_to_fp32), logits
    included, which live until the loss is picked out of them; so do the keys and values of a model that returns its cache.
    """
    held = x.width + (4 if x.width < 4 else 0)
    returned = named(x.cache, "elements of the returned cache") * bytes_(held)
    return LossCost(
        forward=summed(x.logits(held, "logits, their float copy"), returned),
        backward=x.logits(x.width, "logits that become their gradient"),
    )


def _linear(_recipe: Recipe, x: Logits) -> LossCost:
    """Head and loss in one function over chunks of rows, chunk = rows / ceil(V / h): the full logits never exist."""
    chunk = minimum(next_power_of_two(ceiling(x.tokens / max(1, ceiling(x.vocab / x.hidden)))), x.tokens)
    work = named(chunk, "rows of a chunk") * named(x.vocab, "vocabulary") * bytes_(x.width + 4, "(logits and their gradient)")
    weight = x.head_sum(1 if x.head_trains else 0)  # every chunk's part is added in place (torch.addmm with out)
    return LossCost(
        forward=summed(work, x.states(x.width, "gradient of the hidden states"), weight),
        backward=summed(x.states(2 * x.width, "gradients of the hidden states"), weight),
    )


def _chunked(recipe: Recipe, x: Logits) -> LossCost:
    """Logits whole in 16 bits (torchtune), cross entropy in eight chunks: eager keeps every chunk's float log-softmax.

    Recipes delete the 16-bit logits before backward (torchtune 1235 of July 2024, older than this loss); a compiled chunk has
    saved them. The head's weight gradient is summed over the chunks: the sum and one chunk's part exist together.
    """
    waits = x.width if recipe.kernels.compiled else 4
    copies = 0.0 if recipe.kernels.compiled else 3 * 4 / 8
    whole = x.logits(max(waits, x.width + waits + copies if copies else 0), "16-bit logits, log-softmax, copies of one eighth")
    later = x.logits(waits + copies, "log-softmax of every chunk, three float copies of one eighth")
    return LossCost(forward=whole, backward=summed(later, x.head_sum(2)))


def _whole_chunked(_recipe: Recipe, x: Logits) -> LossCost:
    """litgpt, full fine-tuning: whole logits, which Fabric converts to float, cross entropy in chunks of rows.

    Source: lightning 2.6, fabric/plugins/precision (convert_output: torch's default dtype); litgpt 0.5.13, utils.py,
    chunked_cross_entropy. The loop's variable holds the float logits; the chunks' gradients are put together in a third copy.
    """
    together = x.logits(12, "float logits, gradients of the chunks, and of them together")
    through_head = summed(x.logits(4 + x.width, "float logits, narrow gradient"), x.head_sum(1))
    return LossCost(forward=x.logits(8, "float logits, log-softmax"), backward=binding(together, through_head))


def _chunked_head(_recipe: Recipe, x: Logits) -> LossCost:
    """litgpt: the head runs on 128-token chunks; Fabric converts every chunk to float, whose log-softmax waits for backward."""
    kept = x.logits(8, "float logits, log-softmax")
    rows = smallest(named(x.tokens, "tokens"), named(128 * x.rows, "rows of a chunk"))
    chunk = rows * named(x.vocab, "vocabulary") * bytes_(8, "(two gradients of one chunk)")
    return LossCost(forward=kept, backward=summed(kept, chunk))


def _vocabulary_parallel(_recipe: Recipe, x: Logits) -> LossCost:
    """Megatron: 16-bit logits of 1/tp of the vocabulary and a float copy that the softmax, and then its gradient, overwrite."""
    held = x.logits(x.width + 4 * x.heads, "logits, float softmax of each head")
    return LossCost(forward=held, backward=held)


def _vocabulary_parallel_copy(_recipe: Recipe, x: Logits) -> LossCost:
    """nanotron: the same, its exponentials in a second float copy, less each row's maximum (tensor_parallel/functional.py)."""
    earlier = 4 * (x.heads - 1)
    return LossCost(
        forward=x.logits(earlier + x.width + 8, "16-bit logits, float copy, exponentials" + ", earlier heads'" * bool(earlier)),
        backward=x.logits(earlier + x.width + 4, "float softmax that becomes its gradient, its 16-bit copy"),
    )


def _overwritten(_recipe: Recipe, x: Logits) -> LossCost:
    """The gradient over the 16-bit logits: flash-attention, ops/triton/cross_entropy.py; Transformer Engine up to July 2026."""
    held = x.logits(x.width * x.heads, "logits that become their gradient")
    return LossCost(forward=held, backward=held)


def _float_gradient(_recipe: Recipe, x: Logits) -> LossCost:
    """A Triton kernel whose forward writes a float32 gradient beside the 16-bit logits; autograd casts it for the head.

    Source: Transformer Engine since #3193 of July 2026, pytorch/cross_entropy.py and common/triton/cross_entropy.py.
    """
    return LossCost(
        forward=x.logits(x.width + 4 * x.heads, "logits, the float gradient of each head"),
        backward=x.logits(x.width + 4 * x.heads, "the float gradients, a narrow copy of one"),
    )


def _chunked_linear(_recipe: Recipe, x: Logits) -> LossCost:
    """Head and loss over eight chunks of rows: one chunk's logits, float copies and gradients, the hidden states' gradient."""
    size = summed(
        x.logits((x.width + 8) / 8, "one eighth of the rows: logits, float copy, gradient"),
        x.states(4, "float gradient of the hidden states"),
    )
    return LossCost(forward=size, backward=size)


def _linear_chunks(recipe: Recipe, x: Logits) -> LossCost:
    """The head on eighths of the sequence, none computed again (torchtune after 0.6.1): every chunk's log-softmax waits.

    Source: torchtune/modules/loss/cross_entropy_loss.py at 02b12d362, LinearCrossEntropyLoss (ignored tokens are dropped
    first; here none are). Compiled, a chunk keeps its 16-bit logits instead.
    """
    kept = x.logits(x.width if recipe.kernels.compiled else 4, "log-softmax of every chunk")
    chunk = x.logits((x.width + 4) / 8, "one chunk's logits and gradient")
    weight = x.head_sum(2 if x.head_trains else 0)
    return LossCost(forward=summed(kept, chunk), backward=summed(kept, chunk, weight))


def _row_chunks(_recipe: Recipe, x: Logits, rows: int = 256, columns: int = 0) -> LossCost:
    """Head and loss on ``rows`` rows and ``columns`` of the vocabulary (0 = all) at a time, computed again in backward.

    Source: trl/trainer/sft_trainer.py since 1.8, _chunked_cross_entropy_loss (256 rows): 16-bit logits, float copy, log-softmax
    and their gradients; the hidden states are sorted into a copy, whose gradient is summed over the chunks. prime-rl since
    January 2026 (559b44772, trainer/models/layers/lm_head.py, _SequenceChunkedLogProbEntropyFn: 8,192 of both).
    """
    width = named(minimum(x.vocab, columns) if columns else x.vocab, "vocabulary")
    chunk = smallest(named(x.tokens, "tokens"), named(rows, "rows of a chunk")) * width
    weight = x.head_sum(2 if x.head_trains else 0)
    return LossCost(
        forward=summed(
            x.states(x.width, "sorted hidden states"), chunk * bytes_(x.width + 8, "(logits, float copy, log-softmax)")
        ),
        backward=summed(
            x.states(3 * x.width, "sorted hidden states and their gradients"),
            chunk * bytes_(2 * x.width + 12, "(logits, copies and their gradients)"),
            weight,
        ),
    )


def _token_logps(recipe: Recipe, x: Logits, copies: int = 0) -> LossCost:
    """TRL's GRPO: logits less the logsumexp of their row, sequence by sequence; ``copies`` of them, over the temperature.

    Sources: trl 0.17 to 1.9, grpo_trainer.py (_get_per_token_logps), utils.py (selective_log_softmax); torch 2.13,
    FunctionsManual.cpp, logsumexp_backward; accelerate 1.14, utils/operations.py, convert_outputs_to_fp32.
    """
    w, one = x.width, 8 / x.rows
    if w < 4 and not recipe.precision.autocast:
        return LossCost(forward=x.logits((2 + copies) * w, "and log-softmax"), backward=x.logits(4 * w, "and three gradients"))
    forward, what = maximum(w % 4 + 4, 4 * (1 + copies) + one), "in float, a difference and its exponential of one sequence"
    return LossCost(forward=x.logits(forward, what), backward=x.logits(8 + one, f"and their gradients {what}"))


def _compiled(_recipe: Recipe, x: Logits) -> LossCost:
    """Inductor fuses the float copy away: 16-bit logits and their gradient remain."""
    return LossCost(forward=x.logits(x.width, "16-bit logits"), backward=x.logits(2 * x.width, "16-bit logits, their gradient"))


_KINDS: dict[str, Callable[[Recipe, Logits], LossCost]] = {
    "eager": _eager,
    "plain": _plain,
    "fused": _fused,
    "in_place": _in_place,
    "linear": _linear,
    "chunked": _chunked,
    "chunked_head": _chunked_head,
    "whole_chunked": _whole_chunked,
    "vocab_parallel": _vocabulary_parallel,
    "compiled": _compiled,
    "chunked_linear": _chunked_linear,
    "row_chunks": _row_chunks,
    "blocks": partial(_row_chunks, rows=8192, columns=8192),
    "linear_chunks": _linear_chunks,
    "token_logps": _token_logps,
    "token_logps_copied": partial(_token_logps, copies=1),
    "overwritten": _overwritten,
    "float_gradient": _float_gradient,
    "vocab_parallel_copy": _vocabulary_parallel_copy,
    "none": lambda _recipe, _x: NO_HEAD,
}
KINDS = tuple(_KINDS)
