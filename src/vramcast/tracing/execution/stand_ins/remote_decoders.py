"""Models whose class is code beside their weights, which is never run: a decoder of the same parameters stands for them.

Names and shapes are the inventory's, so that adapters and optimizers meet what they would. The forward pass is that of a usual
decoder (norms in float32, rotations, scaled_dot_product_attention, a gated MLP), with what the class's own does about its head.
What the decoder lacks is refused: towers, experts, ALiBi, prompts before the keys, generation, 8 and 4 bits of its own.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from vramcast.models.classes import ModelClass, Remote, model_class
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.reading import read_model
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import when_imported
from vramcast.tracing.published.remote_classes import MODEL_TYPE


def install(session: Session) -> None:
    """Let transformers' automatic classes know the stand-ins by their model type, with a note where one is built."""

    def tell(what: str) -> None:
        session.notes[what] = None

    when_imported("transformers.models.auto.configuration_auto", _register_config)
    when_imported("transformers.models.auto.modeling_auto", partial(_register, tell))


def _register_config(auto: Any) -> None:
    auto.CONFIG_MAPPING.register(MODEL_TYPE, _config_class())


def _register(tell: Callable[[str], None], auto: Any) -> None:
    made = _model_class()
    made.tell = tell
    for mapping in (auto.MODEL_MAPPING, auto.MODEL_FOR_CAUSAL_LM_MAPPING):
        mapping.register(_config_class(), made)


@cache
def _config_class() -> Any:
    from transformers.configuration_utils import PreTrainedConfig

    class RemoteConfig(PreTrainedConfig):  # type: ignore[misc, unused-ignore]
        """What the made-up config of such a model says; its own fields stay as they are called."""

        model_type = MODEL_TYPE

    return RemoteConfig


@cache
def _model_class() -> Any:
    """The model, which derives from transformers' own classes."""
    from transformers import GenerationMixin, PreTrainedModel

    class RemoteDecoder(PreTrainedModel, GenerationMixin):  # type: ignore[misc, unused-ignore]
        """A decoder with the parameters of a model whose class is not here."""

        config_class = _config_class()
        supports_gradient_checkpointing = True
        _supports_sdpa = True
        tell: ClassVar[Callable[[str], None]] = print

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self._build(config)
            self.post_init()

        def _build(self, config: Any) -> None:
            name = str(config.stands_for)
            model, kind = read_model(name, offline=True), model_class(config.remote_type)
            if getattr(config, "pre_seq_len", None):
                raise NotImplementedError(
                    f"{name}: prompts before the keys (pre_seq_len) are code of its repository and not traced"
                )
            self._float_logits, self._tied = not kind.whole.narrow_loss, model.tied
            self._no_split_modules = [_remote(kind).layer]
            self._places = _grow(self, model, kind)
            RemoteDecoder.tell(
                f"{name}'s class is code of its repository, which is never run: a usual decoder with its {model.parameters:,}"
                " parameters stands for it (attention by scaled_dot_product_attention)"
            )

        def get_input_embeddings(self) -> Any:
            return self.get_submodule(self._places["embedding"])

        def set_input_embeddings(self, value: Any) -> None:
            _put(self, self._places["embedding"], value)

        def get_output_embeddings(self) -> Any:
            return None if self._tied else self.get_submodule(self._places["head"])

        def set_output_embeddings(self, new_embeddings: Any) -> None:
            _put(self, self._places["head"], new_embeddings)

        def quantize(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError("weights quantised by the code of a model's own repository are not traced")

        def forward(self, input_ids: Any = None, attention_mask: Any = None, labels: Any = None, **more: Any) -> Any:
            return _forward(self, input_ids, attention_mask, labels, more)

        def _init_weights(self, module: nn.Module) -> None:
            """Values mean nothing here."""

    return RemoteDecoder


def _remote(kind: ModelClass) -> Remote:
    if kind.remote is None:
        raise NotImplementedError(f"no decoder stands for {kind.name}")
    return kind.remote


def _grow(root: nn.Module, model: Model, kind: ModelClass) -> dict[str, str]:
    """Put the model's modules where the names of its tensors say; the places of embedding, head, last norm and layers."""
    places: dict[str, str] = {}
    for name, module, role in _modules(model.tensors, kind):
        _put(root, name, module)
        places[role] = name
    for block in model.blocks:
        prefix = block.name.removesuffix(".{}.")
        _put(root, prefix, nn.ModuleList(_layer(block, kind) for _ in block.indices))
        places["layers"] = prefix
    return places


def _layer(block: Block, kind: ModelClass) -> nn.Module:
    layer: nn.Module = _layer_class(_remote(kind).layer)(block)
    for name, module, _ in _modules(block.tensors, kind):
        _put(layer, name, module)
    return layer


def _modules(tensors: tuple[Tensor, ...], kind: ModelClass) -> list[tuple[str, nn.Module, str]]:
    """The module of every weight, with its name and role."""
    biased = {each.name.removesuffix(".bias") for each in tensors if each.name.endswith(".bias")}
    mixed = kind.layer is not None and kind.layer.norm_form == "mixed"
    made: list[tuple[str, nn.Module, str]] = []
    for each in tensors:
        name = each.name.removesuffix(".weight")
        if name == each.name or each.kind == "buffer":
            continue
        if each.role == "embedding":
            made.append((name, nn.Embedding(*each.shape), each.role))
        elif len(each.shape) == 1:
            made.append((name, _MixedNorm(each.shape[0]) if mixed else _norm(each.shape[0]), each.role))
        else:
            linear = _NormedHead if each.role == "head" and _remote(kind).normed_head == each.shape[0] else nn.Linear
            made.append((name, linear(each.shape[1], each.shape[0], bias=name in biased), each.role))
    return made


class _NormedHead(nn.Linear):  # type: ignore[misc, unused-ignore]
    """Baichuan 2's head, whose rows are brought to length one in every pass (NormHead of modeling_baichuan.py)."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """See torch.nn.Linear."""
        return F.linear(hidden, F.normalize(self.weight))


class _MixedNorm(nn.Module):  # type: ignore[misc, unused-ignore]
    """An RMS norm whose input stays in its type where it is multiplied (RMSNorm of modeling_baichuan.py, rms_layernorm)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The normed hidden states, in the type of the weight."""
        scale = torch.rsqrt(hidden.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * (hidden * scale).to(self.weight.dtype)


def _norm(size: int) -> nn.Module:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    made: nn.Module = LlamaRMSNorm(size)
    return made


def _put(root: nn.Module, name: str, module: Any) -> None:
    """Lay a module at a dotted name, with plain modules on the way."""
    *path, last = name.split(".")
    for part in path:
        if not hasattr(root, part):
            root.add_module(part, nn.Module())
        root = getattr(root, part)
    setattr(root, last, module)


@cache
def _layer_class(name: str) -> Any:
    """A layer of that class name, by which programs wrap and checkpoint it."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    def make(self: Any, block: Block) -> None:
        GradientCheckpointingLayer.__init__(self)
        self._attention = block.mixers[0]
        named = [(each.role, each.name.removesuffix(".weight")) for each in block.tensors if each.name.endswith(".weight")]
        self._of = {role: name for role, name in named if role != "norm"}
        self._norms = [name for role, name in named if role == "norm"]

    def forward(self: Any, hidden: torch.Tensor, mask: Any, turns: Any) -> torch.Tensor:
        hidden = hidden + _attend(self, self.get_submodule(self._norms[0])(hidden), mask, turns)
        return hidden + _feed(self, self.get_submodule(self._norms[1])(hidden))

    return type(name, (GradientCheckpointingLayer,), {"__init__": make, "forward": forward})


def _attend(layer: Any, hidden: torch.Tensor, mask: Any, turns: Any) -> torch.Tensor:
    kind, of = layer._attention, layer._of
    widths = [kind.heads * kind.head_dim, kind.kv_heads * kind.head_dim, kind.kv_heads * kind.head_dim]
    if "qkv" in of:
        parts = layer.get_submodule(of["qkv"])(hidden).split(widths, dim=-1)
    else:
        parts = [layer.get_submodule(of[role])(hidden) for role in ("q", "k", "v")]
    queries, keys, values = (each.unflatten(-1, (-1, kind.head_dim)).transpose(1, 2) for each in parts)
    queries, keys = _turned(queries, turns), _turned(keys, turns)
    if kind.kv_heads < kind.heads:
        keys, values = (each.repeat_interleave(kind.heads // kind.kv_heads, dim=1) for each in (keys, values))
    given = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=mask is None)
    out: torch.Tensor = layer.get_submodule(of["o"])(given.transpose(1, 2).flatten(2))
    return out


def _turned(states: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    cosine, sine = turns
    first, second = states.chunk(2, dim=-1)
    return states * cosine + torch.cat((-second, first), dim=-1) * sine


def _feed(layer: Any, hidden: torch.Tensor) -> torch.Tensor:
    of = layer._of
    if "gate_up" in of:
        gate, up = layer.get_submodule(of["gate_up"])(hidden).chunk(2, dim=-1)
    else:
        gate, up = (layer.get_submodule(of[role])(hidden) for role in ("gate", "up"))
    out: torch.Tensor = layer.get_submodule(of["down"])(F.silu(gate) * up)
    return out


def _forward(model: Any, tokens: Any, mask: Any, labels: Any, more: dict[str, Any]) -> Any:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    if more.get("past_key_values") is not None:
        raise NotImplementedError("generation by a model whose class is code of its repository is not traced")
    embedded = more.get("inputs_embeds")
    hidden = model.get_input_embeddings()(tokens) if embedded is None else embedded
    layers = model.get_submodule(model._places["layers"])
    turns = _turns(hidden, layers[0]._attention.head_dim)
    seen = None if mask is None else _seen(mask, hidden)
    for layer in layers:
        hidden = layer(hidden, seen, turns)
    hidden = model.get_submodule(model._places["norm"])(hidden)
    weight = model.get_input_embeddings().weight if model._tied else None
    logits = F.linear(hidden, weight) if weight is not None else model.get_output_embeddings()(hidden)
    if model._float_logits:
        logits = logits.float()
    return CausalLMOutputWithPast(loss=None if labels is None else _loss(logits, labels), logits=logits)


def _turns(hidden: torch.Tensor, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    places = torch.arange(hidden.shape[1], device=hidden.device, dtype=torch.float32)
    rates = torch.exp(torch.arange(0, size, 2, device=hidden.device, dtype=torch.float32) * (-math.log(10_000.0) / size))
    angles = torch.outer(places, rates).repeat(1, 2)
    return angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)


_OF_TOKENS = 2  # dimensions of a mask that says which tokens are padding


def _seen(mask: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Which keys each token sees: those before it that are no padding."""
    length = hidden.shape[1]
    before = torch.ones(length, length, dtype=torch.bool, device=hidden.device).tril()
    if mask.dim() > _OF_TOKENS:  # of pairs already
        return mask
    return before & mask[:, None, None, :].bool()


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    shifted = logits[..., :-1, :].contiguous()
    return F.cross_entropy(shifted.view(-1, shifted.shape[-1]), labels[..., 1:].contiguous().view(-1).to(logits.device))
