"""What transformers says of a model class when a small one is built and run: the fields that ``build_classes.py`` writes.

Two layers of the class run eight tokens in bfloat16 on the CPU. Every operation is logged with the module it ran in, the types
of its tensors and their identity: the log shows where a norm casts back, whether it stands before or after a branch, what a
router runs through softmax, and in which type. Nothing is read from names of classes.
"""

import inspect
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM
from transformers.pytorch_utils import Conv1D

logging.getLogger("transformers").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")

TOKENS = 8
HALF, FLOAT = torch.bfloat16, torch.float32
_SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 128, "moe_intermediate_size": 32, "num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8,
    "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "shared_expert_intermediate_size": 32, "pad_token_id": 0,
    "max_position_embeddings": 64, "shared_intermediate_size": 32, "moe_num_experts": 8, "moe_topk": 2, "moe_k": 2,
    "first_k_dense_replace": 0, "moe_layer_start_index": 0, "num_dense_layers": 0, "intermediate_size_mlp": 96,
    "interleave_moe_layer_step": 1, "moe_intermediate_size_list": None, "head_dim": 16, "q_lora_rank": 32, "kv_lora_rank": 32,
    "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16, "rope_scaling": None, "n_shared_experts": 1,
    "d_model": 64, "d_ff": 96, "n_embd": 64, "n_layer": 2, "n_head": 4, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "dff": 96,
    "num_shared_experts": 1, "num_shared_expert": 1, "moe_num_shared_experts": 1, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def _sections(*parts: int) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": sum(parts) / 8, "mrope_section": list(parts)}


_OWN: dict[str, dict[str, Any]] = {
    **{k: {"num_key_value_heads": 4} for k in ("axk1", "deepseek_v32", "glm_moe_dsa", "dots3_note_text",
       "hy_v4", "mistral4")},
    "gemma3n_text": {"num_kv_shared_layers": 0, "layer_types": ["full_attention", "full_attention"], "laurel_rank": 8,
                     "activation_sparsity_pattern": [0.0, 0.0], "vocab_size_per_layer_input": 128},
    **{k: {"rope_parameters": _sections(2, 3, 3)} for k in ("qwen2_vl_text", "qwen2_5_vl_text")},
    **{k: {"rope_parameters": _sections(1, 1, 2)} for k in ("glm4v_text", "glm4v_moe_text", "glm_ocr_text")},
    "longcat_flash": {"num_key_value_heads": 4, "num_layers": 1, "ffn_hidden_size": 96, "expert_ffn_hidden_size": 32,
                      "moe_topk": 2, "zero_expert_num": 2},
    "whisper": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2},
}  # fmt: skip
_DROPS_STREAM = (
    "hidden_dropout",
    "hidden_dropout_prob",
    "resid_pdrop",
    "resid_dropout",
    "residual_dropout",
    "dropout",
    "dropout_rate",
)
_DROPS_SCORES = ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "attn_dropout", "dropout_rate")


@dataclass
class Op:
    """One operation: the module it ran in, its name, and the types, last lengths and identities of what it took and made."""

    where: str
    name: str
    takes: list[tuple[torch.dtype, tuple[int, ...], int]]
    makes: list[tuple[torch.dtype, tuple[int, ...], int]]


@dataclass
class Call:
    """One module's forward: what it was given first and what it returned first, by identity, and when it began."""

    where: str
    module: torch.nn.Module
    began: int
    given: list[torch.Tensor]
    returned: list[torch.Tensor]
    ended: int = 0


class Log(TorchDispatchMode):
    """Operations and module calls of one forward; tensors are kept, so that no identity is used twice."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.calls: list[Call] = []
        self._kept: list[Any] = []
        self._open: list[Call] = []
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self._enter(name), with_kwargs=True)
            module.register_forward_hook(self._leave)

    def _enter(self, name: str) -> Any:
        def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            call = Call(name, module, len(self.ops), [*_tensors((args, kwargs))], [])
            self.calls.append(call)
            self._open.append(call)

        return hook

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        call = self._open.pop()
        call.returned, call.ended = [*_tensors(output)], len(self.ops)
        self._kept.append(output)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self._kept += [args, out]
        where = self._open[-1].where if self._open else ""
        self.ops.append(Op(where, func.overloadpacket.__name__, _facts((args, kwargs)), _facts(out)))
        return out


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict) or hasattr(value, "items"):
        for one in value.values():
            yield from _tensors(one)


def _facts(value: Any) -> list[tuple[torch.dtype, tuple[int, ...], int]]:
    return [(t.dtype, tuple(t.shape), id(t)) for t in _tensors(value)]


def small_config(kind: str, given: dict[str, Any] | None = None) -> Any:
    """A config of that class with two narrow layers: ``given`` fields, else those of ``_SMALL`` that the class has."""
    if given:
        return AutoConfig.for_model(**given)
    cls = CONFIG_MAPPING[kind]
    fields = set(getattr(cls, "__dataclass_fields__", {})) | set(inspect.signature(cls.__init__).parameters)
    return cls(**{name: value for name, value in (_SMALL | _OWN.get(kind, {})).items() if name in fields})


def is_text(kind: str) -> bool:
    """Whether transformers has that class, and it is a text model rather than a wrapper around one."""
    if kind not in CONFIG_MAPPING:
        return False
    return not any(part in name for name in CONFIG_MAPPING[kind].sub_configs for part in ("text", "vision", "audio", "decoder"))


def small_model(config: Any) -> torch.nn.Module:
    """That model in bfloat16, its scores written out."""
    torch.manual_seed(0)
    tried = (AutoModelForMaskedLM, AutoModelForCausalLM, AutoModel)
    for auto in (AutoModelForSeq2SeqLM, *tried) if config.is_encoder_decoder else tried:
        if type(config) in auto._model_mapping:
            return auto.from_config(config, dtype=HALF, attn_implementation="eager").eval()
    raise LookupError(f"transformers has no model of {type(config).__name__}")


def run(model: torch.nn.Module) -> Log:
    """The log of one forward."""
    log = Log(model)
    ids = torch.arange(TOKENS)[None] + 3
    extra = {"decoder_input_ids": ids} if model.config.is_encoder_decoder else {}
    with torch.no_grad(), log:
        model(input_ids=ids, use_cache=False, **extra)
    return log


def layer_path(log: Log) -> str:
    """The path of the last decoder layer: the numbered module in which most operations ran, later ones first."""
    found = [c.where for c in log.calls if re.search(r"\.\d+$", c.where)]
    outer = [p for p in found if not any(p.startswith(q + ".") for q in found)]
    ran = {p: sum(op.where.startswith(p + ".") for op in log.ops) for p in outer}
    decoder = [p for p in outer if "encoder" not in p] or outer
    most = max(ran[p] for p in decoder)
    return [p for p in decoder if ran[p] > most / 2][-1]


def answers(kind: str, given: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Fields of the groups ``layer`` and ``whole`` that can be asked, defaults included."""
    config = small_config(kind, given)
    model = small_model(config)
    log = run(model)
    path = layer_path(log)
    inside = lambda p: p == path or p.startswith(path + ".")  # noqa: E731
    ops = [op for op in log.ops if inside(op.where)]
    calls = [call for call in log.calls if inside(call.where)]
    layer = _norm_fields(log, calls) | _order(ops, calls) | _attention(ops, model) | _router(ops, calls)
    layer |= {"value_norm": any(c.where.endswith(".v_norm") for c in calls)}
    return {"layer": layer | _scaled(config), "whole": _whole(kind, model)}


def _is_norm(call: Call) -> bool:
    return "norm" in type(call.module).__name__.lower() and not list(call.module.children()) and bool(call.given)


def _norm_fields(log: Log, calls: list[Call]) -> dict[str, Any]:
    """How the layer's first norm over the stream's width is written."""
    first = next((c for c in calls if _is_norm(c) and c.given[0].shape[-1] == calls[0].given[0].shape[-1]), None)
    if first is None:
        return {}
    mine = log.ops[first.began : first.ended]
    names = [op.name for op in mine]
    fused = next((op for op in mine if op.name in ("native_layer_norm", "_fused_rms_norm", "rms_norm")), None)
    if fused:
        bias = getattr(first.module, "bias", None) is not None
        return {"layer_norm": not bias, "float_norm": fused.takes[0][0] == FLOAT, "norm_form": "narrow"}
    return {"layer_norm": False, "float_norm": False, "norm_form": _norm_form(mine, names)}


def _norm_form(mine: list[Op], names: list[str]) -> str:
    if names.count("mean") > 1:
        return "centred"
    scale = next(i for i, n in enumerate(names) if n in ("rsqrt", "reciprocal", "pow") and i > names.index("mean"))
    products = [op for op in mine[scale + 1 :] if op.name == "mul"]
    if products[0].takes[0][0] == HALF or products[0].takes[1][0] == HALF:
        return "mixed"
    if len(products) < 2 or products[1].makes[0][0] == HALF:
        return "narrow"
    added = any(op.name == "add" and len(op.makes[0][1]) == 1 for op in mine)
    return "offset" if added else "wide"


def _order(ops: list[Op], calls: list[Call]) -> dict[str, Any]:
    """Where norms stand, by the identity of what attention (else the first mixer) takes and gives."""
    norms = [c for c in calls if _is_norm(c)]
    softmax = next((op for op in ops if op.name in ("_softmax", "_safe_softmax")), None)
    if softmax is None or not norms:
        return {}
    attention = next(c for c in calls if c.where == softmax.where)
    inputs, outputs = {id(t) for t in attention.given}, {id(t) for t in attention.returned}
    made, taken = {id(c.returned[0]) for c in norms}, {id(c.given[0]) for c in norms}
    if inputs & made:
        return {"norms": "pre"}
    if outputs & taken:
        return {"norms": "post"}
    return {"norms": "sum" if {id(t) for t in calls[0].returned} & made else "pre"}


def _attention(ops: list[Op], model: torch.nn.Module) -> dict[str, Any]:
    softmax = [op for op in ops if op.name in ("_softmax", "_safe_softmax") and len(op.takes[0][1]) == 4]
    if not softmax:
        return {}
    return {"eager": not model._supports_sdpa, "softmax_as_is": softmax[0].takes[0][0] == softmax[0].makes[0][0] == HALF}


def _router(ops: list[Op], calls: list[Call]) -> dict[str, Any]:
    tops = [i for i, op in enumerate(ops) if op.name == "topk"]
    if not tops:
        return {}
    experts = next((c for c in calls if re.search(r"\.experts$", c.where)), None)
    block = experts.where.rpartition(".")[0] if experts else ops[tops[-1]].where
    own = [op for op in ops if op.where.startswith(block) and not re.search(r"(^|[._])(shared|experts)", op.where[len(block) :])]
    names = [op.name for op in own]
    top = max(i for i, n in enumerate(names) if n == "topk")
    before = names[:top]
    if "sigmoid" in before:
        router = "groups" if names.count("topk") > 1 else "sigmoid"
    else:
        router = "softmax" if "_softmax" in before else "top"
    gate = next((op for op in own if op.name in ("mm", "addmm", "linear") and op.makes[0][1][-1] == _routed(own)), None)
    found = {"router": router, "float_router": bool(gate and FLOAT in {d for d, _, _ in gate.takes})}
    if experts:
        floats = [t for t in experts.given[1:] if t.is_floating_point()]
        found["float_routes"] = bool(floats) and floats[-1].dtype == FLOAT
        mine = [op for op in ops if op.where.startswith(experts.where)]
        found["clamped_glu"] = any(op.name.startswith("clamp") for op in mine)
        found["every_expert"] = experts.given[0].shape[0] >= TOKENS * 2
        shared = next((c for c in calls if re.search(r"shared", c.where[len(block) :])), None)
        found["shared_first"] = bool(shared) and shared.began < experts.began
    return found


def _routed(own: list[Op]) -> int:
    return next(op.takes[0][1][-1] for op in reversed(own) if op.name == "topk")


def _scaled(config: Any) -> dict[str, Any]:
    return {"scaled_branches": getattr(config, "residual_multiplier", None) is not None}


def _whole(kind: str, model: torch.nn.Module) -> dict[str, Any]:
    defaults = CONFIG_MAPPING[kind]()
    said = {name: value for name, value in vars(defaults).items() if isinstance(value, float)}
    written = inspect.getsource(type(model).forward)
    return {
        "hidden_dropout": max((said.get(name, 0.0) for name in _DROPS_STREAM), default=0.0),
        "attention_dropout": max((said.get(name, 0.0) for name in _DROPS_SCORES), default=0.0),
        "own_loss": any(isinstance(m, torch.nn.CrossEntropyLoss) for m in model.modules()) or "CrossEntropyLoss(" in written,
        "capped_logits": any(getattr(defaults, name, None) for name in ("final_logit_softcapping", "logits_soft_cap")),
        "transposed": any(isinstance(m, Conv1D) for m in model.modules()),
    }


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(name, answers(name))
