"""NVIDIA Model Optimizer: config.json's quantization_config or the older hf_quant_config.json beside it.

Source: TensorRT Model Optimizer's export (quant_algo, exclude_modules, quantized_layers) and vLLM's reader of it.
"""

from vramcast.errors import UnmodelledError
from vramcast.models.config import Config
from vramcast.models.quantization import compressed, formats
from vramcast.models.quantization.plan import Format, Plan, Rule

ALGORITHMS: dict[str, Format] = {
    "FP8": formats.fp8(static=True),
    "FP8_PER_CHANNEL_PER_TOKEN": formats.fp8((1, 0)),
    "FP8_PB_WO": formats.fp8((128, 128)),
    "FP8_PB_REAL": formats.fp8((128, 128)),
    "MXFP8": formats.MXFP8,
    "NVFP4": formats.nvfp4(),
    "NVFP4_AWQ": formats.nvfp4(),
    "NVFP4_SVDQUANT": formats.nvfp4(),
    "W4A16_NVFP4": formats.nvfp4(static=False),
    "MXFP4": formats.MXFP4,
    "W4A16_AWQ": formats.awq(4, 128, zero=False),
    "W4A8_AWQ": formats.awq(4, 128, zero=False),
    "W8A8_SQ_PER_CHANNEL": formats.integer(8, (1, 0)),
    "W8A16": formats.integer(8, (1, 0)),
    "W4A16": formats.integer(4, (1, 128)),
}


def plan(config: Config) -> Plan:
    """The plan of a modelopt config in either spelling."""
    inner = config.optional_child("quantization") or config
    ignore = tuple(inner.list("ignore", "exclude_modules", default=[]))
    layers = inner.optional_child("quantized_layers")
    cache = inner.raw.get("kv_cache_quant_algo") or inner.raw.get("kv_cache_scheme")
    kv_cache = _cache(cache)
    if layers is not None:
        return Plan(name="modelopt-mixed", rules=_mixed(layers), ignore=ignore, kv_cache=kv_cache)
    if inner.has("quant_algo") and inner.text("quant_algo") != "MIXED_PRECISION":
        form = _format(inner)
        return Plan(name=f"modelopt-{form.name}", rules=(Rule(format=form),), ignore=ignore, kv_cache=kv_cache)
    found = compressed.plan(inner)
    return Plan(name=f"modelopt-{found.name}", rules=found.rules, ignore=ignore, kv_cache=kv_cache)


def _cache(told: object) -> str | None:
    """The cache's type: a name, or compressed-tensors' description of its numbers."""
    if isinstance(told, dict):
        bits = told.get("num_bits")
        return {8: "fp8", 4: "nvfp4"}.get(bits) if told.get("type") == "float" and isinstance(bits, int) else None
    return next((name for name in ("nvfp4", "fp8") if str(told or "").lower().startswith(name)), None)


def _mixed(layers: Config) -> tuple[Rule, ...]:
    named: dict[str, list[str]] = {}
    for module in layers.raw:
        named.setdefault(layers.child(module).text("quant_algo"), []).append(module)
    return tuple(Rule(format=_by_name(algorithm, layers.path), targets=tuple(modules)) for algorithm, modules in named.items())


def _format(config: Config) -> Format:
    return _by_name(config.text("quant_algo"), config.path)


def _by_name(name: str, path: str) -> Format:
    found = ALGORITHMS.get(name.upper())
    if found is None:
        raise UnmodelledError(f"{path}: quant_algo {name!r} has no storage rule here: known are {', '.join(ALGORITHMS)}")
    return found
