"""What prompt methods train: virtual tokens, prefixes of every layer's cache, norms, single tokens. Exact, from the model.

Sources: peft 0.21.2, tuners/prompt_tuning, prefix_tuning and p_tuning (model.py), ln_tuning/layer.py, trainable_tokens/layer.py,
xlora/classifier.py, utils/other.py (_prepare_prompt_learning_config: a prefix is as wide as the cache) and utils/constants.py.
"""

from collections.abc import Callable

from vramcast.models.classes import model_class
from vramcast.models.inventory import Model, Tensor
from vramcast.models.layers import Attention
from vramcast.training.adapters.kinds import Shapes, Sizes

_PREPENDED = ("prompt", "prompt_tuning", "p_tuning", "ptuning")
DEFAULTS = {"num_virtual_tokens": 20, "encoder_hidden_size": 0, "projection": 0, "tokens": 1, "adapters": 2}


def _prompt(model: Model, s: Sizes) -> Shapes:
    return ((s["num_virtual_tokens"], model.hidden),)


def _prefix(model: Model, s: Sizes) -> Shapes:
    kinds = [m for b in model.blocks for m in b.mixers if isinstance(m, Attention)]
    width = max((k.kv_heads * k.head_dim for k in kinds), default=model.hidden)
    whole = 2 * model.layers * width
    if not s["projection"]:
        return ((s["num_virtual_tokens"], whole),)
    inner = s["encoder_hidden_size"] or width
    return (s["num_virtual_tokens"], width), (inner, width), (inner,), (whole, inner), (whole,)


def _p_tuning(model: Model, s: Sizes) -> Shapes:
    hidden = model.hidden
    inner = s["encoder_hidden_size"] or hidden
    mlp = ((inner, hidden), (inner,), (inner, inner), (inner,), (hidden, inner), (hidden,))
    return ((s["num_virtual_tokens"], hidden), *mlp)


def _tokens(model: Model, s: Sizes) -> Shapes:
    return ((s["tokens"], model.hidden),)


def _xlora(model: Model, s: Sizes) -> Shapes:
    return (s["adapters"], model.hidden), (s["adapters"],)


def _norms(model: Model, _s: Sizes) -> Shapes:
    wanted = model_class(model.text_class).whole.tuned_norms
    layers = [t for b in model.blocks for t in b.tensors for _ in range(b.count) if _is_norm(t, wanted)]
    return tuple(t.shape for t in [*layers, *(t for t in model.tensors if wanted is None and _is_norm(t, wanted))])


def _is_norm(tensor: Tensor, wanted: tuple[str, ...] | None) -> bool:
    return tensor.role == "norm" and (wanted is None or any(name in tensor.name for name in wanted))


PROMPT_KINDS: dict[str, Callable[[Model, Sizes], Shapes]] = {
    "prompt": _prompt,
    "prompt_tuning": _prompt,
    "prefix": _prefix,
    "prefixtuning": _prefix,
    "prefix_tuning": _prefix,
    "p_tuning": _p_tuning,
    "ptuning": _p_tuning,
    "trainable_tokens": _tokens,
    "ln_tuning": _norms,
    "xlora": _xlora,
}


def virtual_tokens(kind: str, sizes: Sizes) -> int:
    """Tokens that a method puts before every sequence, read by all layers (peft_model.py, PeftModelForCausalLM.forward)."""
    return {**DEFAULTS, **sizes}["num_virtual_tokens"] if kind in _PREPENDED else 0


def prompt_shapes(model: Model, kind: str, sizes: Sizes) -> Shapes:
    """Shapes that a prompt method trains in the whole model; ``sizes`` beside the defaults."""
    return PROMPT_KINDS[kind](model, {**DEFAULTS, **sizes})
