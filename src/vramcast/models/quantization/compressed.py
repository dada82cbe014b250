"""compressed-tensors: groups of targets, each with its own weight format, and a list of what is ignored.

Source: vllm-project/compressed-tensors, QuantizationConfig and the compressors of each ``format``.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.quantization import formats
from vramcast.models.quantization.plan import Format, Plan, Rule

_CLASSES = frozenset({"Linear", "LinearBase", "FusedMoE", "MoEGPTQLinear"})


def plan(config: Config) -> Plan:
    """The plan of a compressed-tensors config; several groups are tried in order."""
    groups = config.optional_child("config_groups")
    ignore = tuple(config.list("ignore", default=[]))
    if groups is None:
        return _sparse_only(config)
    rules = tuple(_rule(groups.child(name), config) for name in groups.raw)
    cache = config.optional_child("kv_cache_scheme")
    named = "+".join(dict.fromkeys(r.format.name for r in rules if r.format))
    return Plan(
        name=named or "compressed-tensors",
        rules=rules,
        ignore=ignore,
        kv_cache="fp8" if cache and cache.integer("num_bits", default=8) == 8 else None,
    )


def weight_format(weights: Config, *, static: bool, packing: str = "") -> Format:
    """The format of a group's ``weights`` entry: num_bits, type (int or float), strategy, group_size, block_structure."""
    bits, kind = weights.integer("num_bits", default=8, least=1, most=16), weights.text("type", default="int")
    block = _block(weights)
    if kind == "float":
        return _float(bits, block, weights, static=static, packing=packing)
    return formats.integer(bits, block, symmetric=weights.flag("symmetric", default=True))


def _float(bits: int, block: tuple[int, int], weights: Config, *, static: bool, packing: str) -> Format:
    if bits == 8:
        return (
            formats.MXFP8
            if "mxfp8" in packing or block == (1, 32)
            else formats.fp8(block, scale_bytes=4 if block == (0, 0) else 2, static=static)
        )
    if bits == 4:
        is_mx = "mxfp4" in packing or weights.integer("group_size", default=16) == 32
        return formats.MXFP4 if is_mx else formats.nvfp4(static=static)
    raise UnmodelledError(f"{weights.path}: {bits}-bit floats have no storage rule here: name the nearest with --quant")


def _block(weights: Config) -> tuple[int, int]:
    strategy = weights.text("strategy", default="")
    structure, group = weights.list("block_structure", default=[]), weights.integer("group_size", default=0, least=-1)
    if structure:
        high, wide = (Config({"block_structure": v}, weights.path).size("block_structure") for v in (structure * 2)[:2])
        return high, wide
    if group > 0:
        return 1, group
    return (1, 0) if strategy in {"channel", "token"} or group == -1 else (0, 0)


def _rule(group: Config, config: Config) -> Rule:
    targets = tuple(t for t in group.list("targets", default=[]) if t not in _CLASSES)
    weights, inputs = group.optional_child("weights"), group.optional_child("input_activations")
    packing = group.text("format", default=config.text("format", default=""))
    static = inputs is not None and inputs.raw.get("dynamic") in [False, "local"]
    return Rule(format=weight_format(weights, static=static, packing=packing) if weights else None, targets=targets)


def _sparse_only(config: Config) -> Plan:
    """2:4 sparsity without quantisation: half of the values in 16 bits and one bit per place."""
    sparsity = config.optional_child("sparsity_config")
    if sparsity is None:
        raise UnmodelledError(f"{config.path}: compressed-tensors without config_groups: name the scheme with --quant")
    form = formats.per_weight("sparse-24", 16 / 2 + 1, "compressed-tensors sparse-24-bitmask: half the values, one bit per place")
    return Plan(name=form.name, rules=(Rule(format=form),), ignore=tuple(sparsity.list("ignore", default=[])))
