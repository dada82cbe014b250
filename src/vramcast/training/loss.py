"""The end of the network: final norm, output head and cross entropy, by implementation. Usually where a step peaks.

Sizes are counted per logit (V per token) and per hidden element (h per token). Read from transformers/loss/loss_utils.py,
Liger-Kernel's fused_linear_cross_entropy.py, torchtune's CEWithChunkedOutputLoss and Megatron-LM's
core/tensor_parallel/cross_entropy.py; the eager and fused rows were checked against measured slopes (14V + 6h, 10V + 4h).
"""

from collections.abc import Callable
from math import ceil

import msgspec

from vramcast.training.recipe.parts import GATHERED, Recipe, width
from vramcast.units import gib


class LossCost(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes beyond the last layer's output: highest point in forward and in backward.

    ``segments``: distinct blocks the allocator ends up with, over the higher of the two.
    """

    forward: float
    backward: float
    why: str
    segments: float = 1.0


class Logits(msgspec.Struct, frozen=True, kw_only=True):
    """The problem: ``tokens`` rows, ``vocab`` columns on this rank, ``hidden`` features.

    ``rows``: sequences in the batch; ``heads``: times the head is applied (once more per prediction head), each of which leaves
    float probabilities. ``cache``: elements of the keys and values that the model returns beside its logits.
    """

    tokens: float
    vocab: float
    cache: float = 0
    hidden: float
    rows: int
    width: int
    heads: int = 1
    head_trains: bool
    head_gradient: float


def loss_cost(recipe: Recipe, logits: Logits) -> LossCost:
    """The cost of the recipe's loss, the final norm included."""
    kept = _norm(recipe, logits) + _cast_head(recipe, logits) + _softcap(recipe, logits)
    cost = _KINDS[recipe.loss.kind](recipe, logits)
    return LossCost(
        forward=kept + cost.forward,
        backward=kept + max(cost.backward, logits.tokens * logits.hidden * logits.width + logits.head_gradient),
        why=f"{cost.why} + {gib(kept)} of the final norm and the head's input" if kept else cost.why,
        segments=_SEGMENTS.get(recipe.loss.kind, 1.0),
    )


_SEGMENTS = {"fused": 1.5, "linear": 1.0}  # a backward block of its own; two chunk sizes


_WHOLE = ("eager", "plain", "fused")  # losses that take whole logits from the model's own head


def _norm(recipe: Recipe, x: Logits) -> float:
    """What the final norm and the head save: an eager norm's float copy, the normed rows, the input of a fused one.

    A float weight makes an eager norm return float.
    """
    features = x.tokens * x.hidden
    residual = width(recipe.precision.residual)
    out = features * max(x.width, width(recipe.precision.norm_weight))
    if recipe.kernels.norm == "eager":
        return (features * 4 if residual < 4 else 0) + out + (features * x.width if x.head_trains else 0)
    return features * (residual + x.width)


def _cast_head(recipe: Recipe, x: Logits) -> float:
    """Autocast's copy of a float head in the compute dtype, saved for the head's backward (aten/autocast_mode.cpp, cached_cast).

    Traced: one copy of vocabulary x hidden alive at the loss. Gathered units come in the compute dtype already.

    A head under QLoRA is float: prepare_model_for_kbit_training casts whatever is not quantised.
    """
    held = recipe.precision.weights if x.head_trains else recipe.quantization.unquantized or recipe.precision.frozen
    whole = recipe.sharding.kind not in GATHERED
    copied = recipe.precision.autocast and whole and recipe.loss.kind != "none" and width(held) > x.width
    return x.vocab * x.hidden * x.width if copied else 0


def _softcap(recipe: Recipe, x: Logits) -> float:
    """Logits squashed by a tanh, whose output waits for backward (transformers, models/gemma2: final_logit_softcapping)."""
    return x.tokens * x.vocab * x.width if recipe.loss.logits_softcap and recipe.loss.kind in _WHOLE else 0


def _eager(recipe: Recipe, x: Logits) -> LossCost:
    """Logits in 16 bits, a float copy, a shifted copy, log-softmax; backward holds log-softmax, its gradient and nll's."""
    size = x.tokens * x.vocab
    upcast = 4 if recipe.loss.logits_upcast and x.width < 4 else 0
    work = 4 if upcast else x.width
    kept = x.width if recipe.loss.logits_kept else 0
    shifted = work if x.rows > 1 else 0
    forward = kept + (upcast or x.width) + shifted + work
    return LossCost(
        forward=size * forward,
        backward=size * 3 * work,
        why=f"tokens {x.tokens:.0f} x vocab {x.vocab:.0f} x {forward} B (logits, float copy, shifted copy, log-softmax)",
    )


def _plain(recipe: Recipe, x: Logits) -> LossCost:
    """F.cross_entropy on already aligned labels: no shifted copy.

    The 16-bit logits live until the float copy is made, or are kept; a loop whose variable still names the logits holds them
    through backward.
    """
    if recipe.loss.direct_loss:
        return _direct(recipe, x)
    size = x.tokens * x.vocab
    work = 4 if recipe.loss.logits_upcast else x.width
    kept = x.width if recipe.loss.logits_kept and work != x.width else 0
    held = width(recipe.loss.holds_logits) if recipe.loss.holds_logits else 0
    return LossCost(
        forward=size * (max(kept, held) + 2 * work),
        backward=size * (held + 3 * work),
        why=f"tokens {x.tokens:.0f} x vocab {x.vocab:.0f} x {held + 3 * work} B (log-softmax and two gradients)",
    )


def _direct(recipe: Recipe, x: Logits) -> LossCost:
    """A cross entropy on the logits as they are: encoders' and encoder-decoders' own (transformers, models/bert, models/t5).

    Autocast makes the log-softmax and one gradient float beside the narrow logits (aten/autocast_mode.h, fp32 list).
    """
    size, work = x.tokens * x.vocab, 4 if recipe.precision.autocast else x.width
    each = x.width + 2 * work
    return LossCost(
        forward=size * each,
        backward=size * each,
        why=f"tokens {x.tokens:.0f} x vocab {x.vocab:.0f} x {each} B (logits, log-softmax and its gradient)",
    )


def _fused(recipe: Recipe, x: Logits) -> LossCost:
    """A Triton cross entropy that writes the gradient over the logits: the float and shifted copies remain."""
    size = x.tokens * x.vocab
    kept = x.width if recipe.loss.logits_kept else 0
    forward = kept + (4 if recipe.loss.logits_upcast else x.width) + (4 if x.rows > 1 else 0)
    return LossCost(
        forward=size * forward,
        backward=size * 8,
        why=f"tokens {x.tokens:.0f} x vocab {x.vocab:.0f} x {forward} B (logits copies)",
    )


def _in_place(_recipe: Recipe, x: Logits) -> LossCost:
    """Unsloth's cross entropy: the gradient overwrites the 16-bit logits; nothing is shifted but the labels.

    Under the Trainer accelerate converts the model's outputs to float (utils/operations.py, convert_outputs_to_fp32), logits
    included, which live until the loss is picked out of them; so do the keys and values of a model that returns its cache.
    """
    size = x.tokens * x.vocab
    held = x.width + (4 if x.width < 4 else 0)
    why = f"(tokens {x.tokens:.0f} x vocab {x.vocab:.0f} + cache {x.cache:.0f}) x {held} B (outputs, their float copy)"
    return LossCost(forward=(size + x.cache) * held, backward=size * x.width, why=why)


def _linear(_recipe: Recipe, x: Logits) -> LossCost:
    """Head and loss in one function over chunks of rows, chunk = rows / ceil(V / h): the full logits never exist."""
    chunk = _power_of_two(ceil(x.tokens / max(1, ceil(x.vocab / x.hidden)))) if x.tokens else 0
    work = min(chunk, x.tokens) * x.vocab * (x.width + 4)
    gradient = x.tokens * x.hidden * x.width
    weight = x.head_gradient if x.head_trains else 0  # every chunk's part is added in place (torch.addmm with out)
    return LossCost(
        forward=work + gradient + weight,
        backward=2 * gradient + weight,
        why=f"chunks of {chunk} rows x vocab {x.vocab:.0f}, gradient of the hidden states",
    )


def _chunked(recipe: Recipe, x: Logits) -> LossCost:
    """Logits whole in 16 bits (torchtune), cross entropy in eight chunks: eager keeps every chunk's float log-softmax.

    The head's weight gradient is summed over the chunks: the sum and one chunk's part exist together.
    """
    size = x.tokens * x.vocab
    held = size * x.width if recipe.kernels.compiled else size * (x.width + 4 + 3 * 4 / 8)
    return LossCost(forward=held, backward=held + 2 * x.head_gradient, why="16-bit logits, float work on chunks of 1/8")


def _whole_chunked(_recipe: Recipe, x: Logits) -> LossCost:
    """litgpt, full fine-tuning: whole logits, which Fabric converts to float, cross entropy in chunks of rows.

    Source: lightning 2.6, fabric/plugins/precision (convert_output: torch's default dtype); litgpt 0.5.13, utils.py,
    chunked_cross_entropy. The loop's variable holds the float logits; the chunks' gradients are put together in a third copy.
    """
    size = x.tokens * x.vocab
    return LossCost(
        forward=size * 8,
        backward=max(size * 12, size * (4 + x.width) + x.head_gradient),
        why=f"tokens {x.tokens:.0f} x vocab {x.vocab:.0f} x 12 B (float logits, gradients of the chunks, and of them together)",
    )


def _chunked_head(_recipe: Recipe, x: Logits) -> LossCost:
    """litgpt: the head runs on 128-token chunks; Fabric converts every chunk to float, whose log-softmax waits for backward."""
    size = x.tokens * x.vocab
    chunk = min(x.tokens, 128 * x.rows) * x.vocab
    return LossCost(
        forward=size * 8, backward=size * 8 + chunk * 8, why="float logits, log-softmax, two gradients of one 128-token chunk"
    )


def _vocabulary_parallel(_recipe: Recipe, x: Logits) -> LossCost:
    """Megatron: 16-bit logits of 1/tp of the vocabulary and a float copy that the softmax, and then its gradient, overwrite."""
    size = x.tokens * x.vocab
    held = size * (x.width + 4 * x.heads)
    why = f"tokens {x.tokens:.0f} x vocab/tp {x.vocab:.0f} x {x.width + 4} B (logits, float softmax)"
    return LossCost(forward=held, backward=held, why=why)


def _chunked_linear(_recipe: Recipe, x: Logits) -> LossCost:
    """Head and loss over eight chunks of rows: one chunk's logits, float copies and gradients, the hidden states' gradient."""
    work = x.tokens / 8 * x.vocab * (x.width + 8)
    gradient = x.tokens * x.hidden * 4
    return LossCost(forward=work + gradient, backward=work + gradient, why="one eighth of the rows at a time")


def _linear_chunks(recipe: Recipe, x: Logits) -> LossCost:
    """The head on eighths of the sequence, none computed again (torchtune after 0.6.1): every chunk's log-softmax waits.

    Source: torchtune/modules/loss/cross_entropy_loss.py at 02b12d362, LinearCrossEntropyLoss (ignored tokens are dropped
    first; here none are). Compiled, a chunk keeps its 16-bit logits instead.
    """
    size, chunk = x.tokens * x.vocab, x.tokens * x.vocab / 8
    kept = size * (x.width if recipe.kernels.compiled else 4)
    weight = 2 * x.head_gradient if x.head_trains else 0
    return LossCost(
        forward=kept + chunk * (x.width + 4),
        backward=kept + chunk * (x.width + 4) + weight,
        why="float log-softmax of every chunk, one chunk's logits and gradient",
    )


def _row_chunks(_recipe: Recipe, x: Logits) -> LossCost:
    """TRL since 1.8: head and loss on 256 rows at a time, each chunk checkpointed and computed again in backward.

    Source: trl/trainer/sft_trainer.py, _chunked_cross_entropy_loss: 16-bit logits, float copy, log-softmax and their gradients;
    the hidden states are sorted into a copy, whose gradient is summed over the chunks.
    """
    rows = min(x.tokens, 256)
    states = x.tokens * x.hidden * x.width
    weight = 2 * x.head_gradient if x.head_trains else 0
    return LossCost(
        forward=states + rows * x.vocab * (x.width + 8),
        backward=3 * states + rows * x.vocab * (2 * x.width + 12) + weight,
        why=f"{rows:.0f} rows x vocab {x.vocab:.0f} at a time, sorted hidden states and their gradient",
    )


def _compiled(_recipe: Recipe, x: Logits) -> LossCost:
    """Inductor fuses the float copy away: 16-bit logits and their gradient remain."""
    size = x.tokens * x.vocab * x.width
    return LossCost(forward=size, backward=size * 2, why="16-bit logits and their gradient")


def _none(_recipe: Recipe, _x: Logits) -> LossCost:
    return LossCost(forward=0, backward=0, why="no head on this rank")


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
    "linear_chunks": _linear_chunks,
    "none": _none,
}
KINDS = tuple(_KINDS)


def _power_of_two(value: int) -> int:
    return 1 << max(0, (value - 1).bit_length())
