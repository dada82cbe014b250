"""Which ggml type llama-quantize gives each tensor of a file of some type: the mixes behind "Q4_K_M" and its kin.

Rules of ``llama_tensor_get_type`` (src/llama-quant.cpp, read at 0c1e57098). The first layers, the last and every third between
get more bits; values more than keys; outputs more than both; eight-expert models and grouped queries have cases of their own; a
row that is not a whole number of blocks falls back to a type with smaller blocks. An importance matrix changes a few choices.
"""

import re
from collections.abc import Iterable

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.models.quantization.formats import ALIASES, GGML_TYPES, NAMED
from vramcast.serving.engines.llama_cpp.tensors import GgufTensor

BASE = {
    "F32": "f32", "F16": "f16", "BF16": "bf16", "Q4_0": "q4_0", "Q4_1": "q4_1", "Q5_0": "q5_0", "Q5_1": "q5_1",
    "Q8_0": "q8_0", "Q2_K": "q2_k", "Q2_K_S": "q2_k", "Q3_K_S": "q3_k", "Q3_K_M": "q3_k", "Q3_K_L": "q3_k",
    "Q4_K_S": "q4_k", "Q4_K_M": "q4_k", "Q5_K_S": "q5_k", "Q5_K_M": "q5_k", "Q6_K": "q6_k", "TQ1_0": "tq1_0",
    "TQ2_0": "tq2_0", "IQ1_S": "iq1_s", "IQ1_M": "iq1_m", "IQ2_XXS": "iq2_xxs", "IQ2_XS": "iq2_xs", "IQ2_S": "iq2_xs",
    "IQ2_M": "iq2_s", "IQ3_XXS": "iq3_xxs", "IQ3_XS": "iq3_s", "IQ3_S": "iq3_s", "IQ3_M": "iq3_s", "IQ4_NL": "iq4_nl",
    "IQ4_XS": "iq4_xs", "MXFP4_MOE": "mxfp4",
}  # fmt: skip
"""File type -> the type of its ordinary tensors (llama_ftype_get_default_type)."""

_ALIASES = {"Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "Q3_K": "Q3_K_M", "MXFP4": "MXFP4_MOE", "ALL_F32": "F32"}
_WORDS = {"MEDIUM": "M", "SMALL": "S", "LARGE": "L"}
_NOT_QUANTISED = (
    "_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight",
    "indexer.k_proj.weight", "indexer.q_proj.weight", "attn_rel_b.weight", "position_embd", "token_types", "time_mix_",
)  # fmt: skip
_KEPT_HALF = re.compile(r"per_layer_model_proj|altup_proj|altup_unembd_proj|laurel")
"""Matrices that are left as the converter wrote them, in 16 bits; the other exceptions it writes in f32."""
_SMALLER_BLOCKS = {
    "q4_k": "q5_0",
    "q5_k": "q5_1",
    "q6_k": "q8_0",
    "q2_k": "q4_0",
    "q3_k": "q4_0",
    "tq1_0": "q4_0",
    "tq2_0": "q4_0",
}
_TINY = ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M")


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the mixes ask about a model: query heads per KV head, experts, layers, whether it is the 80-layer Llama.

    ``experts_in_mxfp4``: the checkpoint stores its experts so. The converter repacks them bit for bit whatever the file's type
    (convert_hf_to_gguf.py GptOssModel.repack_mxfp4), and types of 16 bits and more leave what is already quantised.
    """

    queries_per_kv: int = 1
    experts: int = 0
    layers: int = 1
    seventy: bool = False
    falcon: bool = False
    importance: bool = False
    experts_in_mxfp4: bool = False


def file_type(name: str) -> str:
    """``Q4_K_M`` from what people and logs write: "Q4_K - Medium", "q4_k_m", "IQ4_XS - 4.25 bpw", "gguf Q4_K".

    A type of ik_llama.cpp ("IQ4_KS_R4") gives its ggml type: hand-made mixes are named after what most of their experts have.
    Raises QuestionError for a type that has no published mix.
    """
    text = re.sub(r"^gguf\s+", "", name.strip(), flags=re.IGNORECASE).upper()
    text = re.sub(r"\s*\(.*|\s*-?\s*[0-9.]+\s*BPW.*", "", text)
    for word, letter in _WORDS.items():
        text = text.replace(f" - {word}", f"_{letter}")
    text = _ALIASES.get(text.strip(), text.strip())
    if text.lower() in GGML_TYPES and text not in BASE:
        return text.lower()
    if text == "Q2_K_M":
        return "Q2_K"
    if text not in BASE and text.lower().replace("_", "-") in {*NAMED, *ALIASES}:
        raise QuestionError(
            f"{name} is no type of GGUF files: it takes Q4_K_M, Q6_K, Q8_0 ...; --engine vllm or sglang takes {name}"
        )
    if text not in BASE:
        raise unknown_name("GGUF file type", name, BASE, hint="(a custom mix is known only by its tensor types)")
    return text


def tensor_types(tensors: Iterable[GgufTensor], kind: str, facts: Facts) -> dict[str, str]:
    """The ggml type of each tensor, by name, in a file of type ``kind``."""
    listed = sorted(tensors, key=lambda t: (-1 if t.layer is None else t.layer, t.name))
    counter = _Counter(kind, facts, listed)
    return {t.name: counter.type_of(t) for t in listed}


class _Counter:
    """The state llama-quantize carries from tensor to tensor: how many value and down projections it has met."""

    def __init__(self, kind: str, facts: Facts, tensors: list[GgufTensor]) -> None:
        self.kind, self.facts, self.base = kind, facts, BASE.get(kind, kind)
        self.values = sum(_category(t.name) in ("v", "qkv", "kv_b") for t in tensors)
        self.tied = all(t.name != "output.weight" for t in tensors)
        self.value = self.down = 0

    def type_of(self, tensor: GgufTensor) -> str:
        if tensor.axes < 2 or not tensor.name.endswith("weight") or any(part in tensor.name for part in _NOT_QUANTISED):
            return "f32" if tensor.axes < 2 or self.base == "f32" or not _KEPT_HALF.search(tensor.name) else "bf16"
        if self.facts.experts_in_mxfp4 and "_exps." in tensor.name:
            return "mxfp4"
        if self.base in ("f32", "f16", "bf16"):
            return self.base
        return _fitting(self._chosen(tensor), tensor.row)

    def _chosen(self, tensor: GgufTensor) -> str:
        category = _category(tensor.name)
        if category == "output" or (self.tied and category == "embedding"):
            return self._output(tensor)
        if self.kind == "MXFP4_MOE":
            return "mxfp4" if "_exps." in tensor.name else "q8_0"
        if category == "embedding":
            return _EMBEDDING.get(self.kind, self.base)
        if self.kind in _TINY:
            return self._tiny(category)
        rule = {"v": self._values, "qkv": self._values, "kv_b": self._values, "k": self._keys, "q": self._keys}
        rule |= {"down": self._downs, "o": self._outputs, "gate": self._raises, "up": self._raises}
        return rule[category](category, tensor.layer or 0) if category in rule else self.base

    def _output(self, tensor: GgufTensor) -> str:
        if self.kind == "MXFP4_MOE" or self.facts.falcon or tensor.row % GGML_TYPES[self.base].elements:
            return "q8_0"
        if self.kind in _TINY or self.kind == "IQ3_XXS":
            return "q5_k"
        return self.base if self.base == "q8_0" else "q6_k"

    def _tiny(self, category: str) -> str:
        """File types below 3 bits."""
        richer = "iq3_s" if self.kind in ("IQ2_S", "IQ2_M") else "q2_k"
        if category in ("v", "qkv", "kv_b"):
            return "q4_k" if self.facts.queries_per_kv >= 4 or self.facts.experts >= 4 else richer
        if category == "k" and self.facts.experts == 8:
            return "q4_k"
        if category == "down":
            self.down += 1
            return richer if self.down <= self.facts.layers // 8 else self.base
        if category == "o":
            if self.facts.experts == 8:
                return "q5_k"
            return {"IQ1_S": "iq2_xxs", "IQ1_M": "iq2_xxs", "IQ2_S": "iq3_s", "IQ2_M": "iq3_s"}.get(self.kind, self.base)
        return self.base

    def _values(self, category: str, layer: int) -> str:
        del category, layer
        seen, self.value = self.value, self.value + 1
        if self.facts.experts == 8:
            return "q8_0"
        chosen = self._plain_values(seen)
        return "q5_k" if self.facts.seventy and chosen in ("q3_k", "q4_k") else chosen

    def _plain_values(self, seen: int) -> str:
        kind, grouped = self.kind, self.facts.queries_per_kv >= 4
        if kind in ("Q2_K", "Q2_K_S", "IQ3_XS", "IQ3_S", "IQ4_NL", "IQ4_XS") and grouped:
            return "q5_k" if kind in ("IQ4_NL", "IQ4_XS") else "q4_k"
        if kind == "IQ3_XXS":
            return "q4_k" if grouped else ("iq3_xxs" if self.facts.importance else "iq3_s")
        if kind in ("Q4_K_M", "Q5_K_M"):
            return "q6_k" if more_bits(seen, self.values) else self.base
        if kind == "Q4_K_S":
            return "q5_k" if seen < 4 else self.base
        if kind == "Q3_K_M":
            return "q5_k" if seen < 2 else "q4_k"
        return {"Q2_K": "q3_k", "IQ3_M": "q4_k", "Q3_K_L": "q5_k"}.get(kind, self.base)

    def _keys(self, category: str, layer: int) -> str:
        del layer
        if category == "k" and self.facts.experts == 8:
            return "q8_0"
        return {"IQ3_XS": "iq3_xxs", "IQ3_XXS": "iq2_s"}.get(self.kind, self.base)

    def _outputs(self, category: str, layer: int) -> str:
        del category, layer
        if self.facts.falcon:
            return "q4_k" if self.kind == "Q3_K_L" else self.base
        if self.facts.experts == 8:
            return "q5_k" if self.kind in _FIVE_BIT_OUTPUTS else self.base
        return {"Q2_K": "q3_k", "IQ3_XXS": "iq3_s", "Q3_K_M": "q4_k", "Q3_K_L": "q5_k", "IQ3_M": "q4_k"}.get(self.kind, self.base)

    def _downs(self, category: str, layer: int) -> str:
        del category
        seen, self.down = self.down, self.down + 1
        index, count = (layer if self.facts.experts > 1 else seen), self.facts.layers
        early, more, kind = index < count // 8, more_bits(index, count), self.kind
        if kind in ("Q4_K_M", "Q5_K_M"):
            return self._rich_downs(index, more=more)
        if kind == "Q3_K_M":
            rest = "q4_k" if not self.facts.falcon or more else "q3_k"
            return "q5_k" if index < count // 16 else rest
        if kind == "IQ3_XXS" and not self.facts.importance:
            return "q4_k" if early else "q3_k"
        if kind == "IQ3_M" and (early or (self.facts.experts == 8 and more)):
            return "q4_k"
        if kind in ("Q2_K", "Q3_K_L"):
            return "q3_k" if kind == "Q2_K" else ("q4_k" if self.facts.falcon else "q5_k")
        return self._early_downs() if early else self.base

    def _rich_downs(self, index: int, *, more: bool) -> str:
        if self.facts.falcon and self.kind == "Q4_K_M":
            return "q6_k" if index < self.facts.layers // 16 else ("q5_k" if more else "q4_k")
        return "q6_k" if more else self.base

    def _early_downs(self) -> str:
        """The first eighth of the layers, in types whose other layers keep the base."""
        if self.kind in ("Q4_0", "Q5_0"):
            return {"Q4_0": "q4_1", "Q5_0": "q5_1"}[self.kind] if self.facts.importance else self.base
        if self.kind in ("IQ4_NL", "IQ4_XS"):
            return self.base if self.facts.importance else "q5_k"
        return {"Q2_K_S": "q4_k", "Q4_K_S": self.base if self.facts.falcon else "q5_k"}.get(self.kind, self.base)

    def _raises(self, category: str, layer: int) -> str:
        del category
        count = self.facts.layers
        return "iq3_xxs" if self.kind == "IQ3_XS" and count // 8 <= layer < 7 * count // 8 else self.base


_EMBEDDING = {"IQ2_XXS": "q2_k", "IQ2_XS": "q2_k", "IQ1_S": "q2_k", "IQ1_M": "q2_k", "IQ2_S": "iq3_s", "IQ2_M": "iq3_s"}
_EMBEDDING |= {"IQ3_XXS": "iq3_s", "TQ1_0": "q4_k", "TQ2_0": "q4_k"}
_FIVE_BIT_OUTPUTS = {"Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"}
_PARTS = (
    ("attn_qkv.weight", "qkv"), ("attn_kv_b.weight", "kv_b"), ("attn_v.weight", "v"), ("attn_k.weight", "k"),
    ("attn_q.weight", "q"), ("attn_output.weight", "o"), ("ffn_up", "up"), ("ffn_gate", "gate"), ("ffn_down", "down"),
)  # fmt: skip


def more_bits(index: int, count: int) -> bool:
    """Whether the ``index``-th of ``count`` layers is among those given more bits: both ends, and every third between."""
    return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2


def _category(name: str) -> str:
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((category for part, category in _PARTS if part in name), "other")


def _fitting(chosen: str, row: int) -> str:
    """``chosen``, or a type whose blocks divide a row of that length."""
    if row % GGML_TYPES[chosen].elements == 0:
        return chosen
    smaller = _SMALLER_BLOCKS.get(chosen, "iq4_nl" if chosen.startswith("iq") else chosen)
    return smaller if row % GGML_TYPES[smaller].elements == 0 else "f16"
