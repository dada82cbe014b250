"""Exact storage from file headers: what a checkpoint's tensors and their sidecars really take, module by module.

A stored name is cut at the part that says what it holds (``weight``, ``qweight``, ``scales`` ...), layers keep their number and
experts are summed, so that scales, zero points and packed values of one module come together whatever the scheme calls them.
GGUF files have names of their own; there the layer and the tensor's role find the type.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from vramcast.models.inventory import Stored, Tensor
from vramcast.models.quantization.formats import GGML_TYPES
from vramcast.models.quantization.patterns import canonical
from vramcast.models.quantization.plan import PLAIN, Format
from vramcast.units import HEADER_FLOATS

_SIDES = frozenset({
    "weight", "qweight", "qzeros", "scales", "g_idx", "biases", "perm", "meta", "codes", "codebooks", "SCB", "weight_format",
    "weight_scale", "weight_scale_inv", "weight_scale_2", "weight_global_scale", "weight_packed", "weight_shape",
    "weight_zero_point", "weight_chunk_scale", "input_scale", "input_global_scale", "k_scale", "v_scale",
    "q_weight", "q_scale", "q_scale_max", "q_groups", "q_group_map", "q_invperm", "q_perm", "suh", "svh", "trellis", "mcg",
    "mul1",
})  # fmt: skip
_TAILS = ("_blocks", "_scales", "_scale_inv", "_packed", "_scale")

#: GGUF tensor names (after "blk.N." and before ".weight") by role; src/llama-arch.cpp of llama.cpp.
_GGUF_ROLES = {
    "token_embd": "embedding", "output": "head", "attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_qkv": "qkv",
    "attn_output": "o", "attn_q_a": "q_a", "attn_q_b": "q_b", "attn_kv_a_mqa": "kv_a", "attn_kv_b": "kv_b",
    "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down", "ffn_gate_inp": "router", "ffn_gate_exps": "expert.gate",
    "ffn_up_exps": "expert.up", "ffn_down_exps": "expert.down", "ffn_gate_up_exps": "expert.gate_up",
    "ffn_gate_shexp": "shared.gate", "ffn_up_shexp": "shared.up", "ffn_down_shexp": "shared.down",
    "ssm_in": "mixer", "ssm_out": "mixer", "ssm_conv1d": "conv",
}  # fmt: skip
_STAND_IN = {
    "gate_up": ("up", "gate"), "expert.gate_up": ("expert.up",), "shared.gate_up": ("shared.up",), "qkv": ("q",), "q": ("qkv",),
    "k": ("qkv",), "v": ("qkv",), "kv_b": ("q_b", "q"), "q_a": ("q",), "mixer": ("q", "qkv"),
}  # fmt: skip


class _Module(msgspec.Struct):
    """The sum of what is stored for one module."""

    bytes: int = 0
    largest: int = -1
    dtype: str = ""
    parts: int = 0


class Exact:
    """Formats read off file headers; ``format`` answers None where they do not tell. ``label``: what to call a GGUF file's."""

    __slots__ = ("_base", "_modules", "_types", "label")

    def __init__(self, stored: Collection[Stored], base: Format) -> None:
        self._base = base
        self._modules: dict[str, _Module] = {}
        self._types: dict[tuple[int, str], str] = {}
        self.label = _gguf_label(stored)
        for one in stored:
            if one.dtype in GGML_TYPES:
                self._add_gguf(one)
            else:
                self._add(one)

    def format(self, tensor: Tensor, prefix: str, index: int) -> Format | None:
        """The format of that tensor in layer ``index`` (``prefix`` holds "{}" for it)."""
        if self._types:
            return self._gguf(tensor.role, index)
        name = f"{prefix.replace('{}', str(index), 1)}{tensor.name}"
        found = self._modules.get(module_of(name))
        if found is None:
            return None
        if found.dtype in HEADER_FLOATS and found.parts == tensor.copies:
            return self._base if tensor.dtype is None else PLAIN.get(tensor.dtype, self._base)
        return Format(name=found.dtype, bits=found.bytes * 8 / max(1, tensor.elements), source="the files' own headers")

    def _add(self, one: Stored) -> None:
        module = self._modules.setdefault(module_of(one.name), _Module())
        module.bytes += one.bytes
        module.parts += 1
        if one.bytes > module.largest:
            module.largest, module.dtype = one.bytes, one.dtype

    def _add_gguf(self, one: Stored) -> None:
        parts = one.name.split(".")
        blocked = parts[0] == "blk" and len(parts) > 2 and parts[1].isdigit()
        role = _GGUF_ROLES.get(parts[2] if blocked else parts[0])
        if role and parts[-1] == "weight":
            self._types[(int(parts[1]) if blocked else -1, role)] = one.dtype

    def _gguf(self, role: str, index: int) -> Format | None:
        dtype = next((self._types[(index, r)] for r in (role, *_STAND_IN.get(role, ())) if (index, r) in self._types), None)
        return GGML_TYPES[dtype].format if dtype else PLAIN["float32"]


def _gguf_label(stored: Collection[Stored]) -> str:
    """``gguf-q4_k``: the type that most bytes of a GGUF file are in; "" for other files."""
    sizes: dict[str, int] = {}
    for one in stored:
        if one.dtype in GGML_TYPES:
            sizes[one.dtype] = sizes.get(one.dtype, 0) + one.bytes
    return f"gguf-{max(sizes, key=lambda name: sizes[name])}" if sizes else ""


def module_of(name: str) -> str:
    """The module a stored tensor belongs to, wrappers dropped and expert numbers folded; biases stay by themselves."""
    parts = canonical(name).split(".")
    cut = next((i for i, part in enumerate(parts) if part in _SIDES and i), len(parts))
    bare = ".".join(_folded(parts[:cut]))
    return next((bare.removesuffix(tail) for tail in _TAILS if bare.endswith(tail)), bare)


def _folded(parts: list[str]) -> list[str]:
    seen, out = False, list[str]()
    for part in parts:
        number = part.isdigit()
        out.append("{}" if number and seen else part)
        seen = seen or number
    return out


def strangers(stored: Iterable[Stored], known: Mapping[str, object]) -> list[Stored]:
    """Those stored tensors whose module is not among the ``known`` ones."""
    return [s for s in stored if module_of(s.name) not in known]
