"""What publishers leave alone without it being asked: assumed only where neither a config nor its lists of modules are at hand.

NVFP4 by NVIDIA's Model Optimizer, from the lists of its published checkpoints. Attention in 4 bits: Llama 3.1, Qwen3 dense and
mixture. Attention, linear attention and shared experts in 16 bits: DeepSeek V3 to V4, Kimi K2.5 to K2.7, GLM-5 to 5.2, MiniMax
M2.5 and M2.7, Gemma 4, Qwen3.5; everything newer than the first group is taken to follow the second. Qwen3.6 and after are mixed:
attention and linear attention in fp8, all the rest and the output head in 4 bits (its list for Qwen3.6-27B).

A checkpoint of another publisher is not NVIDIA's: llm-compressor's examples leave linear attention, towers, gates and the output
head in 16 bits and quantise attention, but for Llama 4 and Kimi K2 (vllm-project/llm-compressor, examples/quantization_w4a4_fp4
qwen3_5, qwen3_6, qwen3_next, llama4; examples/disk_offloading kimi_k26). Its copies in 4-bit integers leave the same; AutoAWQ
never stored such a model. Of one publisher (cyankiwi) they have groups of 32 and shared experts in 16 bits, as vLLM's start-up
line "WNA16 MoE (group_size=32, num_bits=4)" and 22.05 GiB of Qwen3.5-35B-A3B say.

bitsandbytes in transformers leaves what a class keeps in float32 as it is (``_keep_in_fp32_modules``): the second layer of T5's
MLPs. FLUX's text encoder in nf4 is 6,328,582,592 bytes by its index, 2.9 GB if that layer were in 4 bits too.
"""

import re

import msgspec

from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.models.layers import GatedDeltaNet
from vramcast.models.quantization.formats import fp8, integer, nvfp4
from vramcast.models.quantization.plan import PLAIN, Plan, Rule

_PLANS = frozenset({"nvfp4", "modelopt-nvfp4"})
_KEPT = ("*self_attn*", "*linear_attn*", "*shared_expert*", "lm_head")


_MIXED_IDS = re.compile(r"qwen3\.[6-9]", re.IGNORECASE)
_MIXED = (
    Rule(format=fp8(static=True), targets=("*self_attn*", "*linear_attn*")),
    Rule(format=nvfp4(static=False), targets=("lm_head",)),
    Rule(format=nvfp4(static=False)),
)


_COMPRESSOR_KEPT = ("*linear_attn*", "*visual*", "*vision*", "*mlp.gate", "*shared_expert_gate", "mtp*", "lm_head")


_ATTENTION_KEPT = re.compile(r"llama-?4|kimi-k2", re.IGNORECASE)


_INTEGERS = re.compile(r"(awq-)?int4-")
_GROUPS_OF_32 = re.compile(r"cyankiwi/", re.IGNORECASE)


def _in_integers(plan: Plan, model: Model) -> Plan:
    """A plan in 4-bit integers of one of Qwen's hybrids: recurrent layers, towers, gates and the head stay in 16 bits.

    Kimi Linear's copy is not so: the pool that was logged on two 24 GiB cards leaves no room for it.
    """
    recurrent = any(isinstance(mixer, GatedDeltaNet) for block in model.blocks for mixer in block.mixers)
    if not recurrent or not model.family.startswith("qwen3"):
        return plan
    if _GROUPS_OF_32.match(model.id):
        return Plan(name=plan.name, rules=(Rule(format=integer(4, (1, 32))),), ignore=(*_COMPRESSOR_KEPT, "*shared_expert*"))
    return msgspec.structs.replace(plan, ignore=_COMPRESSOR_KEPT)


# publishers whose copies are Model Optimizer's, as vLLM's start-up line of theirs says ("Detected ModelOpt NVFP4 checkpoint"):
# its recipes are NVIDIA's
_BY_MODEL_OPTIMIZER = frozenset({"nvidia", "radixark"})


def _by_another(name: str) -> bool:
    """Whether the id is that of a quantised checkpoint that is not made as NVIDIA makes its own."""
    publisher, _, rest = name.lower().partition("/")
    return "nvfp4" in rest and publisher not in _BY_MODEL_OPTIMIZER


_KEEP_WO = frozenset({"t5", "mt5", "umt5", "pop2piano", "udop"})
_BITSANDBYTES = ("nf4", "fp4", "llm.int8")


def with_habits(plan: Plan, model: Model) -> Plan:
    """The plan with what its publisher's tool leaves alone in such a model, where the plan has no list of its own."""
    if plan.name.startswith(_BITSANDBYTES) and model.family in _KEEP_WO:
        return msgspec.structs.replace(plan, rules=(Rule(format=PLAIN["float32"], targets=("*.wo",)), *plan.rules))
    named = [name for name in plan.ignore if name != "lm_head"]
    if _INTEGERS.match(plan.name) and not named:
        return _in_integers(plan, model)
    if plan.name not in _PLANS or named or model_class(model.family).served.nvfp4_attention:
        return plan
    if _by_another(model.id):
        attention = ("*self_attn*",) if _ATTENTION_KEPT.search(model.id) else ()
        return msgspec.structs.replace(plan, ignore=(*attention, *_COMPRESSOR_KEPT))
    if _MIXED_IDS.search(model.id):
        return Plan(name="modelopt-mixed", rules=_MIXED, ignore=("mtp*",), kv_cache=plan.kv_cache)
    return msgspec.structs.replace(plan, ignore=_KEPT)
