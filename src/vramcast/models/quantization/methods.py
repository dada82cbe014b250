"""quantization_config -> Plan: one function per ``quant_method``, in a table.

Field names are those that the exporting libraries write into config.json (transformers, AutoGPTQ, AutoAWQ, AutoRound, HQQ, AQLM,
torchao, quanto, EXL2/3, MLX); compressed-tensors and modelopt have a module of their own.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.quantization import compressed, formats, modelopt, quark
from vramcast.models.quantization.patterns import compact
from vramcast.models.quantization.plan import Format, Plan, Rule

_LISTS = ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "exclude_modules", "ignore", "exclude")


def names(config: Config, *fields: str) -> tuple[str, ...]:
    """The module names under the first of ``fields`` that is there."""
    return tuple(config.list(*fields, default=[]))


def _one(format_: Format, config: Config, *, towers: bool = False, head: Format | None = None) -> Plan:
    ignore = names(
        config, "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "exclude_modules", "skip_modules", "ignore"
    )
    return Plan(name=format_.name, rules=(Rule(format=format_),), ignore=ignore, towers=towers, head=head)


def _fp8(config: Config) -> Plan:
    """fp8 throughout, unless DeepSeek-V4's experts have a type of their own.

    Its makers' are packed FP4 with an e8m0 scale for 32 inputs (``expert_dtype``). NVIDIA's copy has them in NVFP4
    (``moe_quant_algo``); its list of what was left alone means: as it was, in fp8.
    """
    plan, nvidia = _plain_fp8(config), config.text("moe_quant_algo", default="") == "NVFP4"
    if not nvidia and config.text("expert_dtype", default="") != "fp4":
        return plan
    own = formats.nvfp4() if nvidia else formats.MXFP4
    rules = (Rule(format=own, roles=("expert.",)), *plan.rules)
    return msgspec.structs.replace(
        plan, name=f"{plan.name}+{own.name}-experts", rules=rules, ignore=() if nvidia else plan.ignore
    )


def _plain_fp8(config: Config) -> Plan:
    block = config.list("weight_block_size", default=[])
    static = config.text("activation_scheme", default="dynamic") == "static"
    if block:
        high, wide = (Config({"weight_block_size": v}, config.path).size("weight_block_size") for v in (block * 2)[:2])
        return _one(formats.fp8((high, wide)), config)
    return _one(formats.fp8(static=static), config)


def _gptq(config: Config) -> Plan:
    bits, group = config.size("bits", "w_bit", default=4), config.integer("group_size", "q_group_size", default=128, least=-1)
    indexed = config.text("checkpoint_format", default="gptq") in {"gptq", "gptq_v2"}
    main = formats.gptq(bits, group, index=indexed)
    inside = _names_of_lists(config)
    rules = (*_dynamic(config, bits, group), Rule(format=main, targets=inside))
    head = main if config.flag("lm_head", default=False) else None
    return Plan(name=main.name, rules=rules, ignore=names(config, "modules_to_not_convert"), head=head)


def _names_of_lists(config: Config) -> tuple[str, ...]:
    """GPTQ's modules_in_block_to_quantize, a list of lists, inside every layer: the only number in a name is an expert's.

    Experts are named one by one; the first stands for all of them, in all layers.
    """
    lists = config.list("modules_in_block_to_quantize", default=[])
    flat = [n for entry in lists for n in (entry if isinstance(entry, list) else [entry]) if isinstance(n, str)]
    return tuple(n.replace(".experts.0.", ".experts.*.") for n in flat if ".experts." not in n or ".experts.0." in n)


def _dynamic(config: Config, bits: int, group: int) -> tuple[Rule, ...]:
    """GPTQModel's per-module overrides: "-:expression" leaves modules alone, "+:expression" changes bits or group."""
    overrides = config.optional_child("dynamic")
    rules = []
    for text in overrides.raw if overrides else ():
        entry = overrides.optional_child(text) if overrides else None
        if text.startswith("-:"):
            rules.append(Rule(format=None, targets=("re:" + text[2:],)))
        elif entry:
            own = formats.gptq(entry.size("bits", default=bits), entry.integer("group_size", default=group, least=-1))
            rules.append(Rule(format=own, targets=("re:" + text.removeprefix("+:"),)))
    return tuple(rules)


def _awq(config: Config) -> Plan:
    bits, group = config.size("bits", "w_bit", default=4), config.integer("group_size", "q_group_size", default=128, least=-1)
    return _one(formats.awq(bits, group, zero=config.flag("zero_point", default=True)), config)


def _auto_round(config: Config) -> Plan:
    bits, group = config.size("bits", default=4), config.integer("group_size", default=128, least=-1)
    awq = "awq" in config.text("packing_format", default="")
    main = formats.awq(bits, group) if awq else formats.gptq(bits, group, index=False)
    extra = config.optional_child("extra_config")
    rules = [_round_rule(extra.child(name), name, bits, group) for name in (extra.raw if extra else ()) if extra]
    return Plan(name=f"auto-round-{main.name}", rules=(*rules, Rule(format=main)), ignore=names(config, "modules_to_not_convert"))


def _round_rule(entry: Config, name: str, bits: int, group: int) -> Rule:
    own = entry.size("bits", default=bits)
    kept = own >= 16
    return Rule(
        format=None if kept else formats.gptq(own, entry.integer("group_size", default=group, least=-1), index=False),
        targets=(name,),
    )


def _bitsandbytes(config: Config) -> Plan:
    if config.flag("load_in_8bit", "_load_in_8bit", default=False):
        return _one(formats.LLM_INT8, config, towers=True)
    kind = config.text("bnb_4bit_quant_type", default="fp4")
    return _one(formats.bnb4(kind, double=config.flag("bnb_4bit_use_double_quant", default=False)), config, towers=True)


def _mxfp4(config: Config) -> Plan:
    rule = Rule(format=formats.MXFP4, roles=("expert.",))
    return Plan(name="mxfp4", rules=(rule,), ignore=names(config, "modules_to_not_convert"))


def _hqq(config: Config) -> Plan:
    """One setting for all, or a setting for each module that is named, the others left alone."""
    inner = config.optional_child("quant_config") or config
    if inner.has("weight_quant_params") or not any("." in name for name in inner.raw):
        return _one(_hqq_format(inner.optional_child("weight_quant_params") or config), config)
    named = [name for name, setting in inner.raw.items() if isinstance(setting, dict)]
    own = tuple(Rule(format=_hqq_format(_weights_of(inner.child(name))), targets=(f"*{name}",)) for name in named)
    return Plan(name="hqq-mixed", rules=own, ignore=names(config, "skip_modules"))


def _weights_of(setting: Config) -> Config:
    return setting.optional_child("weight_quant_params") or setting


def _hqq_format(weights: Config) -> Format:
    return formats.hqq(weights.size("nbits", default=4), weights.size("group_size", default=64))


def _higgs(config: Config) -> Plan:
    return _one(formats.higgs(config.size("bits", default=4), config.size("group_size", default=256)), config)


def _fp_quant(config: Config) -> Plan:
    forms = {"mxfp4": formats.MXFP4, "nvfp4": formats.nvfp4()}
    return _one(forms[_known(config, "forward_dtype", "nvfp4", {name: name for name in forms})], config)


def _sinq(config: Config) -> Plan:
    return _one(formats.sinq(config.size("nbits", default=4), config.size("group_size", default=64)), config)


def _experts(config: Config) -> Plan:
    """Only the experts are 8-bit integers (vLLM)."""
    rule = Rule(format=formats.NAMED["int8"], roles=("expert.",))
    return Plan(name="experts-int8", rules=(rule,), ignore=names(config, "modules_to_not_convert"))


def _grouped(config: Config) -> Plan:
    """GPTQ or AWQ, as its zero points say (vLLM's kernels for mixtures)."""
    awq = config.has("zero_point") or config.text("linear_quant_method", default="") == "awq"
    return _awq(config) if awq else _gptq(config)


def _aqlm(config: Config) -> Plan:
    inputs, outputs = config.size("in_group_size", default=8), config.size("out_group_size", default=1)
    form = formats.aqlm(
        config.integer("num_codebooks", default=1, least=1, most=64),
        config.integer("nbits_per_codebook", default=16, least=1, most=24),
        inputs, outputs,
    )  # fmt: skip
    return Plan(name=form.name, rules=(Rule(format=form),), ignore=names(config, "linear_weights_not_to_quantize"))


def _quanto(config: Config) -> Plan:
    kinds = {"int8": "quanto-int8", "float8": "fp8-channel", "int4": "quanto-int4", "int2": "quanto-int2"}
    return _one(formats.NAMED[_known(config, "weights", "int8", kinds)], config)


def _torchao(config: Config) -> Plan:
    kind = config.raw.get("quant_type")
    if isinstance(kind, dict):
        kind = (Config(kind, config.path).optional_child("default") or Config(kind, config.path)).raw.get("_type", "")
    spoken = str(kind).lower().replace("_", "")
    form = next((f for word, f in _TORCHAO if word in spoken), None)
    if form is None:
        raise UnmodelledError(f"{config.path}: torchao type {str(kind)[:60]!r} has no storage rule here: name one with --quant")
    return _one(form, config)


_TORCHAO = (
    ("int4", formats.TORCHAO_INT4),
    ("int8", formats.TORCHAO_INT8),
    ("float8", formats.fp8((1, 0))),
    ("fp6", formats.per_weight("fp6", 6, "")),
)


def _exl(config: Config) -> Plan:
    """EXL2/3 store whatever mix reaches the average they state; the head has an average of its own."""
    bits, head = config.number("bits"), config.number("head_bits", default=6)
    name = config.text("quant_method")
    source = f"{name}: average bits per weight stated by the checkpoint"
    return Plan(
        name=f"{name}-{bits:g}",
        rules=(Rule(format=formats.per_weight(f"{name}-{bits:g}", bits, source)),),
        head=formats.per_weight(f"{name}-head-{head:g}", head, source),
    )


def _mlx(config: Config) -> Plan:
    bits, group = config.size("bits"), config.size("group_size", default=64)
    form = Format(
        name=f"mlx-int{bits}-g{group}", bits=bits, block=(1, group), scale_bytes=4, source=formats.NAMED["mlx-4bit"].source
    )
    own = tuple(
        Rule(format=_mlx(config.child(n)).rules[-1].format if config.raw[n] else None, targets=(n,))
        for n in config.raw
        if "." in n and isinstance(config.raw[n], dict | bool)
    )
    return Plan(name=form.name, rules=(*own, Rule(format=form)), everywhere=True)


def _named(name: str) -> Callable[[Config], Plan]:
    return lambda config: _one(formats.NAMED[name], config)


def _known(config: Config, field: str, default: str, table: dict[str, str]) -> str:
    value = config.text(field, default=default)
    if value not in table:
        raise UnmodelledError(f"{config.path}: {field} {value!r} has no storage rule here: known are {', '.join(table)}")
    return table[value]


METHODS: dict[str, Callable[[Config], Plan]] = {
    "aqlm": _aqlm,
    "auto-round": _auto_round,
    "autoround": _auto_round,
    "awq": _awq,
    "awq_marlin": _awq,
    "bitnet": _named("bitnet"),
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": compressed.plan,
    "eetq": _named("eetq"),
    "experts_int8": _experts,
    "exl2": _exl,
    "exl3": _exl,
    "fbgemm_fp8": _named("fp8-channel"),
    "fouroversix": _named("nvfp4"),
    "fp8": _fp8,
    "fp_quant": _fp_quant,
    "gptq": _gptq,
    "gptq_marlin": _gptq,
    "higgs": _higgs,
    "hqq": _hqq,
    "inc": _auto_round,
    "intel/auto-round": _auto_round,
    "metal": _mlx,
    "mlx": _mlx,
    "modelopt": modelopt.plan,
    "modelopt_fp4": modelopt.plan,
    "modelopt_mixed": modelopt.plan,
    "moe_wna16": _grouped,
    "mxfp4": _mxfp4,
    "mxfp8": _named("mxfp8"),
    "nvfp4": modelopt.plan,
    "ptpc_fp8": _named("fp8-channel"),
    "quanto": _quanto,
    "quark": quark.plan,
    "quip": _named("quip#"),
    "sinq": _sinq,
    "torchao": _torchao,
    "tpu_int8": _named("int8"),
    "vptq": _named("vptq"),
    "w8a8_fp8": _named("fp8-channel"),
    "w8a8_int8": _named("int8"),
}


def plan_of(config: Config) -> Plan:
    """The plan of a quantization_config. Raises UnmodelledError for a method without a storage rule."""
    method = method_of(config)
    found = METHODS.get(method)
    if found is None:
        raise UnmodelledError(
            f"{config.path}: quant_method {method!r} has no storage rule here: name the nearest with --quant (known: "
            f"{', '.join(sorted(METHODS))}), or point at the safetensors files, whose headers are exact"
        )
    return found(config)


def method_of(config: Config) -> str:
    """The config's method; exporters that leave it out are told apart by their other fields."""
    method = config.text("quant_method", default="").lower()
    if method in METHODS or method:
        return method if method in METHODS or "quant_algo" not in config.raw else "modelopt"
    if "quant_algo" in config.raw or "quantized_layers" in config.raw:
        return "modelopt"
    if config.has("load_in_4bit") or config.has("load_in_8bit"):
        return "bitsandbytes"
    if config.has("config_groups"):
        return "compressed-tensors"
    return "mlx" if config.has("group_size") and config.has("bits") else "unnamed"


def checkpoint_config(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The quantization_config in a config.json (in its text_config, or MLX's ``quantization``), lists folded; None if plain."""
    inner = raw.get("text_config")
    for holder in (raw, inner if isinstance(inner, Mapping) else {}):
        for field in ("quantization_config", "compression_config", "quantization"):
            if isinstance(holder.get(field), Mapping):
                return compact_config(_with_experts(holder[field], raw, inner))
    return None


def _with_experts(scheme: Mapping[str, Any], *holders: Any) -> Mapping[str, Any]:
    """The scheme with the experts' type, which DeepSeek-V4 names beside it (V4.1 within it)."""
    told = next((part["expert_dtype"] for part in holders if isinstance(part, Mapping) and part.get("expert_dtype")), None)
    return {"expert_dtype": told, **scheme} if told and scheme.get("quant_method") == "fp8" else scheme


def compact_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The same quantization_config with its lists of numbered module names folded (``layers.{0-47}.mlp.gate``)."""
    return {key: _compacted(key, value) for key, value in raw.items()}


def _compacted(key: str, value: Any) -> Any:
    if key in _LISTS and isinstance(value, list):
        return compact(value)
    if key == "config_groups" and isinstance(value, Mapping):
        return {group: _compact_targets(rule) for group, rule in value.items()}
    if key == "quantized_layers" and isinstance(value, Mapping):
        alike: dict[str, tuple[Any, list[str]]] = {}
        for name, how in value.items():
            alike.setdefault(repr(how), (how, []))[1].append(name)
        return {name: how for how, names in alike.values() for name in compact(names)}
    return value


def _compact_targets(rule: Any) -> Any:
    if isinstance(rule, Mapping) and isinstance(rule.get("targets"), list):
        return {**rule, "targets": compact(rule["targets"])}
    return rule
