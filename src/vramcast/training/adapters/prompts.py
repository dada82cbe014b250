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
DEFAULTS = {
    "num_virtual_tokens": 20,
    "prompt_length": 10,
    "start_layer": 2,
    "encoder_hidden_size": 0,
    "projection": 0,
    "tokens": 1,
    "adapters": 2,
}


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


def _llama_adapter(model: Model, s: Sizes) -> Shapes:
    """LLaMA-Adapter (arXiv 2303.16199): a prompt and a gate for each head of every layer from the third on.

    Source: litgpt 0.5.12, adapter.py: adapter_prompt_length 10, adapter_start_layer 2, adapter_wte, gating_factor.
    """
    heads = [m.heads for b in model.blocks for m in b.mixers if isinstance(m, Attention) for _ in range(b.count)]
    return tuple(shape for n in heads[s["start_layer"] :] for shape in ((s["prompt_length"], model.hidden), (n,)))


def _llama_adapter_v2(model: Model, s: Sizes) -> Shapes:
    """Version 2 (arXiv 2304.15010): those, a bias and a scale for every linear layer, the head among them, and the norms.

    Source: litgpt 0.5.12, adapter_v2.py: AdapterV2Linear, adapter_filter.
    """
    linear = [t for b in model.blocks for t in b.tensors if len(t.shape) == 2 for _ in range(b.count * t.copies)]
    linear += [t for t in model.tensors if t.role == "head" or (model.tied and t.role == "embedding")]
    vectors = tuple((t.shape[0],) for t in linear for _ in ("bias", "scale"))
    layers = [t for b in model.blocks for t in b.tensors if t.role == "norm" for _ in range(b.count)]
    norms = tuple(t.shape for t in [*layers, *(t for t in model.tensors if t.role == "norm")])
    return (*_llama_adapter(model, s), *vectors, *norms)


PREFIXES = ("adapter", "adapter_v2")  # litgpt's names of the method
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
    "adapter": _llama_adapter,
    "adapter_v2": _llama_adapter_v2,
}


def virtual_tokens(kind: str, sizes: Sizes) -> int:
    """Tokens that a method puts before every sequence, read by all layers (peft_model.py, PeftModelForCausalLM.forward)."""
    return {**DEFAULTS, **sizes}["num_virtual_tokens"] if kind in _PREPENDED else 0


def prompt_shapes(model: Model, kind: str, sizes: Sizes) -> Shapes:
    """Shapes that a prompt method trains in the whole model; ``sizes`` beside the defaults."""
    return PROMPT_KINDS[kind](model, {**DEFAULTS, **sizes})
