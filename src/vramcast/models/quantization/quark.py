"""AMD Quark: a global weight spec, specs for named layers, and a list of what is excluded.

Source: AMD Quark's export to config.json (global_quant_config, layer_quant_config, exclude).
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.quantization import formats
from vramcast.models.quantization.plan import Format, Plan, Rule


def plan(config: Config) -> Plan:
    """The plan of a Quark config."""
    main = _format(config.child("global_quant_config"))
    named = config.optional_child("layer_quant_config")
    own = tuple(Rule(format=_format(named.child(n)), targets=(n,)) for n in (named.raw if named else ()) if named)
    return Plan(name=f"quark-{main.name}", rules=(*own, Rule(format=main)), ignore=tuple(config.list("exclude", default=[])))


def _format(spec: Config) -> Format:
    raw = spec.raw.get("weight")
    weight = Config(raw[0] if isinstance(raw, list) and raw else raw or {}, f"{spec.path}: weight")
    kind, group = weight.text("dtype", default=""), weight.integer("group_size", default=0)
    if kind.startswith("fp8"):
        return formats.fp8((1, 0) if weight.text("qscheme", default="") == "per_channel" else (0, 0), static=True)
    if kind in {"fp4", "mxfp4"}:
        return formats.nvfp4() if group == 16 else formats.MXFP4
    if kind.startswith(("fp6", "mxfp6")):
        return formats.MXFP6
    if kind in {"int8", "uint8", "int4", "uint4"}:
        return formats.integer(int(kind[-1]), (1, group), symmetric=kind[0] == "i")
    raise UnmodelledError(f"{weight.path}: dtype {kind!r} has no storage rule here: name the nearest with --quant")
