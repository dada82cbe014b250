"""How weights are stored: formats as rows, schemes as rules, and the bytes that follow.

scheme = scheme_for(model)                  # what the checkpoint's own config says, else its dtype
scheme = scheme_for(model, quant="awq")     # as if it were quantised so
weight_bytes(model, scheme, tp=2)           # bytes on one rank
weights_term(model, scheme, tp=2)           # the same, part by part
"""

import re
from collections.abc import Mapping
from typing import Any

from vramcast.dtypes import SPOKEN, dtype_name
from vramcast.errors import ConfigError, unknown_name
from vramcast.models.config import Config
from vramcast.models.inventory import Model
from vramcast.models.quantization.formats import PLAIN, Format
from vramcast.models.quantization.ggml import GGML_TYPES, ggml_type
from vramcast.models.quantization.habits import with_habits
from vramcast.models.quantization.patterns import compact
from vramcast.models.quantization.plan import Plan, Rule
from vramcast.models.quantization.rows import ALIASES, NAMED, per_weight
from vramcast.models.quantization.scheme import Kept, Scheme
from vramcast.models.quantization.weights import weight_bytes, weights_term

__all__ = [
    "Format",
    "Kept",
    "Scheme",
    "checkpoint_config",
    "compact_config",
    "scheme_for",
    "scheme_names",
    "weight_bytes",
    "weights_term",
]

_AVERAGE = re.compile(r"(exl2|exl3|bpw)[-_]?([0-9]{1,2}(?:\.[0-9]{1,4})?)(?:bpw)?|([0-9]{1,2}(?:\.[0-9]{1,4})?)[-_]?bpw")
_LISTS = ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "exclude_modules", "ignore", "exclude")


def scheme_for(model: Model, *, dtype: str | None = None, quant: str | None = None) -> Scheme:
    """The storage of ``model``: its checkpoint's own scheme unless ``quant`` names another (``none`` for plain ``dtype``).

    Raises QuestionError for an unknown name and UnmodelledError for a checkpoint whose method has no storage rule.
    """
    base = _dtype(dtype or "auto", model)
    asked = (quant or "auto").strip().lower()
    config = model.quantization
    if asked == "auto" or (config and _same_method(asked, config)):
        return _own_scheme(model, base, given=dtype is not None)
    if config and asked != "none" and _same_format(asked, own := _own_scheme(model, base, given=dtype is not None)):
        return own
    if asked == "none" or (dtype_name(asked) in PLAIN and asked.replace("_", "-") not in ALIASES):
        return Scheme(model, dtype=base if asked == "none" else dtype_name(asked))
    return Scheme(model, dtype=base, plan=with_habits(_named_plan(asked), model))


def scheme_names() -> tuple[str, ...]:
    """Every name that ``quant`` takes, without aliases; averages (``exl2-4.5``, ``4.5bpw``) come on top."""
    return (*NAMED, *GGML_TYPES)


def checkpoint_config(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """The quantization_config in a config.json (in its text_config, or MLX's ``quantization``), lists folded; None if plain."""
    inner = raw.get("text_config")
    for holder in (raw, inner if isinstance(inner, Mapping) else {}):
        for field in ("quantization_config", "compression_config", "quantization"):
            if isinstance(holder.get(field), Mapping):
                return compact_config(holder[field])
    return None


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


def _own_scheme(model: Model, dtype: str, *, given: bool) -> Scheme:
    """The checkpoint's scheme. What a quantised one keeps is in 16 bits, also where its config leaves the type out (float32)."""
    if model.quantization is None:
        return Scheme(model, dtype=dtype, exact=True)
    from vramcast.models.quantization.methods import plan_of

    plan = plan_of(Config(model.quantization, "quantization_config"))
    plan = with_habits(plan, model) if plan.name.startswith("modelopt") else plan
    return Scheme(model, dtype="bfloat16" if dtype == "float32" and not given else dtype, plan=plan, exact=True)


def _same_method(asked: str, config: Mapping[str, Any]) -> bool:
    """Whether the name only repeats what the checkpoint is: engines have kernels' names for it (gptq_marlin, modelopt_fp4)."""
    from vramcast.models.quantization.methods import method_of

    own = method_of(Config(config, "quantization_config"))
    return asked.replace("_", "-").startswith(own.replace("_", "-")) or own.startswith(asked)


def _same_format(asked: str, own: Scheme) -> bool:
    """Whether the checkpoint is already stored so: ``fp8`` asked of one with fp8 blocks, ``w4a16`` of one with int4 groups."""
    name = ALIASES.get(asked.replace("_", "-"), asked)
    kind = NAMED[name].name.partition("-")[0] if name in NAMED and name not in PLAIN else None
    rules = own.plan.rules if own.plan else ()
    return kind is not None and any(rule.format and rule.format.name.partition("-")[0] == kind for rule in rules)


def _named_plan(asked: str) -> Plan:
    form = _format(asked)
    roles = ("expert.",) if asked == "mxfp4" else ()
    return Plan(
        name=form.name,
        rules=(Rule(format=form, roles=roles),),
        towers=asked.startswith(("nf4", "fp4", "llm", "bnb", "bitsandbytes")),
    )


def _format(asked: str) -> Format:
    name = ALIASES.get(asked.replace("_", "-"), asked)
    if name in NAMED:
        return NAMED[name]
    if name.startswith("gguf-") or name in GGML_TYPES:
        return ggml_type(name.removeprefix("gguf-")).format
    average = _AVERAGE.fullmatch(name)
    if average is None:
        raise unknown_name("quantisation scheme", asked, (*NAMED, *ALIASES, *GGML_TYPES))
    bits = float(average[2] or average[3])
    if not 0.5 <= bits <= 32:
        raise ConfigError(f"quantisation scheme {asked!r} means {bits:g} bits per weight: expected 0.5 to 32")
    return per_weight(asked, bits, "average bits per weight, as asked")


def _dtype(text: str, model: Model) -> str:
    name = dtype_name(model.dtype if text == "auto" else text)
    if name not in PLAIN:
        raise unknown_name("dtype", text if text != "auto" else model.dtype, (*SPOKEN, *PLAIN))
    return name
