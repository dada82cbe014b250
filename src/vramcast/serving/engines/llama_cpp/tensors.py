"""The tensors of the GGUF file that a model is converted to: names, rows, layers. Same elements, other names and groupings.

Experts become one three-dimensional tensor per projection; DeepSeek's key-value up-projection is split in two (or, by
ik_llama.cpp's converter, kept beside its halves). Names: llama.cpp, src/llama-arch.cpp; what converters do: conversion/*.py.
"""

from collections.abc import Iterator

import msgspec

from vramcast.models.classes import model_class
from vramcast.models.inventory import Block, Model, Tensor
from vramcast.models.layers import LatentAttention


class GgufTensor(msgspec.Struct, frozen=True):
    """One tensor: ``row`` elements in each of ``rows`` rows. ``layer`` is None outside the blocks; ``axes`` counts dimensions."""

    name: str
    row: int
    rows: int
    axes: int
    layer: int | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return self.row * self.rows


_BY_LEAF = {
    "q_a_proj": "attn_q_a", "q_b_proj": "attn_q_b", "kv_a_proj_with_mqa": "attn_kv_a_mqa", "kv_b_proj": "attn_kv_b",
    "q_a_layernorm": "attn_q_a_norm", "kv_a_layernorm": "attn_kv_a_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm",
    "q_layernorm": "attn_q_norm", "k_layernorm": "attn_k_norm", "query_layernorm": "attn_q_norm",
    "key_layernorm": "attn_k_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "post_mlp_layernorm": "post_ffw_norm", "sinks": "attn_sinks",
    "in_proj": "ssm_in", "conv1d": "ssm_conv1d", "x_proj": "ssm_x", "dt_proj": "ssm_dt", "A_log": "ssm_a", "D": "ssm_d",
    "dt_bias": "ssm_dt_b", "in_proj_qkv": "attn_qkv", "in_proj_z": "attn_gate", "in_proj_b": "ssm_beta",
    "in_proj_a": "ssm_alpha", "in_proj_ba": "ssm_ba", "in_proj_qkvz": "ssm_in", "shared_expert_gate": "ffn_gate_inp_shexp",
    "e_score_correction_bias": "exp_probs_b", "gate_up_proj": "ffn_up",
    "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
}  # fmt: skip
_BY_ROLE = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "qkv": "attn_qkv", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up",
    "gate_up": "ffn_up", "down": "ffn_down", "router": "ffn_gate_inp", "expert.gate": "ffn_gate_exps",
    "expert.up": "ffn_up_exps", "expert.down": "ffn_down_exps", "expert.gate_up": "ffn_gate_up_exps",
    "shared.gate": "ffn_gate_shexp", "shared.up": "ffn_up_shexp", "shared.down": "ffn_down_shexp", "embedding": "token_embd",
    "head": "output", "position": "position_embd",
}  # fmt: skip
_AFTER_ATTENTION = ("post_attention_layernorm", "post_self_attn_layernorm")
"""A norm after attention, in families that also have one before the MLP under another name (Gemma 2 and 3)."""
_MIXER_LEAVES = {"out_proj": "ssm_out", "norm": "ssm_norm"}


def tensors_of(model: Model, *, latent: str = "split") -> tuple[GgufTensor, ...]:
    """Every tensor of the file, in the order of its layers, those outside the blocks first.

    ``latent``: the key-value up-projection of latent attention is "split" in two (llama.cpp since April 2025), stored "whole"
    (before), or "both" (ik_llama.cpp).
    """
    limit = model_class(model.text_class).served.gguf_rows
    outer = (_outer(t, limit) for t in model.tensors if t.kind != "buffer")
    inner = (one for i, block in enumerate(model.layer_list()) for one in _block(block, i, latent))
    return (*outer, *inner)


def _outer(tensor: Tensor, limit: int | None) -> GgufTensor:
    name = _BY_ROLE.get(tensor.role, "output_norm" if tensor.role == "norm" else _leaf(tensor.name)[0])
    name = _BY_LEAF.get(_leaf(tensor.name)[0], name) if tensor.role not in ("head", "norm") else name
    vocabulary = limit and tensor.role in ("embedding", "head") and len(tensor.shape) > 1
    shape = (min(tensor.shape[0], limit), *tensor.shape[1:]) if vocabulary and limit else tensor.shape
    return _made(f"{name}.{_leaf(tensor.name)[1]}", shape, 1, None)


def _block(block: Block, layer: int, latent: str) -> Iterator[GgufTensor]:
    sandwich = any("pre_feedforward_layernorm" in t.name or "post_self_attn" in t.name for t in block.tensors)
    recurrent = any(hasattr(m, "state_elements") for m in block.mixers)
    for tensor in block.tensors:
        if tensor.kind == "buffer" and "correction" not in tensor.name:
            continue
        leaf, suffix = _leaf(tensor.name)
        name = _name_of(tensor, leaf, recurrent=recurrent)
        name = "post_attention_norm" if sandwich and leaf in _AFTER_ATTENTION else name
        if name == "attn_kv_b" and latent != "whole":
            yield from _halves(block, layer, tensor, keep=latent == "both")
        elif name == "ffn_gate_up_exps":
            yield from _split_experts(tensor, layer, suffix)
        else:
            yield _made(f"blk.{layer}.{name}.{suffix}", tensor.shape, tensor.copies, layer)


def _name_of(tensor: Tensor, leaf: str, *, recurrent: bool) -> str:
    if leaf in _BY_LEAF and not tensor.role.startswith("expert."):
        return _BY_LEAF[leaf]
    if recurrent and leaf in _MIXER_LEAVES and tensor.role not in _BY_ROLE:
        return _MIXER_LEAVES[leaf]
    role = tensor.role if tensor.role != "bias" else _role_of_bias(leaf)
    return _BY_ROLE.get(role, leaf)


_BIASED = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o", "qkv_proj": "qkv", "query_key_value": "qkv", "dense": "o"}
_BIASED |= {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "fc1": "up", "fc2": "down", "gate": "router"}


def _role_of_bias(leaf: str) -> str:
    return _BIASED.get(leaf, leaf)


def _leaf(name: str) -> tuple[str, str]:
    """The module a tensor belongs to and what it is there: ("q_proj", "weight")."""
    parts = name.split(".")
    if parts[-1] in ("weight", "bias") and len(parts) > 1:
        return parts[-2], parts[-1]
    return parts[-1], "bias" if parts[-1].endswith("bias") else "weight"


def _made(name: str, shape: tuple[int, ...], copies: int, layer: int | None) -> GgufTensor:
    shape, total = shape or (1,), copies
    for length in shape:
        total *= length
    axes = sum(1 for length in shape if length > 1) + (copies > 1)
    return GgufTensor(name, shape[-1], total // shape[-1], max(1, axes), layer)


def _halves(block: Block, layer: int, tensor: Tensor, *, keep: bool) -> Iterator[GgufTensor]:
    kind = next(m for m in block.mixers if isinstance(m, LatentAttention))
    if keep:
        yield _made(f"blk.{layer}.attn_kv_b.weight", tensor.shape, 1, layer)
    yield _made(f"blk.{layer}.attn_k_b.weight", (kind.kv_rank, kind.nope_dim), kind.heads, layer)
    yield _made(f"blk.{layer}.attn_v_b.weight", (kind.value_dim, kind.kv_rank), kind.heads, layer)


def _split_experts(tensor: Tensor, layer: int, suffix: str) -> Iterator[GgufTensor]:
    """Checkpoints that store gate and up of all experts as one tensor (gpt-oss) become two."""
    *outer, inner = tensor.shape
    half = (*outer[:-1], outer[-1] // 2, inner) if len(tensor.shape) > 1 else (inner // 2,)
    for name in ("ffn_gate_exps", "ffn_up_exps"):
        yield _made(f"blk.{layer}.{name}.{suffix}", half, tensor.copies, layer)
