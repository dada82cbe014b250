"""A resolved question as settings: llama.cpp's, ik_llama.cpp's or Ollama's defaults, then what was asked."""

import msgspec

from vramcast.errors import QuestionError
from vramcast.serving.engines.base import Resolved, at
from vramcast.serving.engines.llama_cpp import ollama
from vramcast.serving.engines.llama_cpp.cache import CacheRules
from vramcast.serving.engines.llama_cpp.generations import AUTO_SLOTS, FLASH_BY_DEFAULT, Generation, build_number, generation
from vramcast.serving.engines.llama_cpp.placement import Placement, expert_overrides, place
from vramcast.serving.engines.llama_cpp.scheduler import PIPELINE_COPIES
from vramcast.serving.engines.resolving import Defaults
from vramcast.workload import Serving


class LlamaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides memory, resolved.

    ``micro_batch``: tokens of one graph (-ub); ``flash``: flash attention; ``cache_on_host``: -nkvo; ``op_offload``: large
    batches travel to GPU 0 for weights on the host. ``latent_mode``: ik_llama.cpp's -mla, ``attention_limit_mib`` its -amb (0:
    none), ``fused_experts`` its -fmoe, ``repacked`` its -rtr. ``mode``: -sm, "layer", "row" or "none"; ``overridden``: tensors
    were placed by name (-ot, --n-cpu-moe). ``copies``: of a split's inputs in a pipeline; ``gathers``: Vulkan's order of nodes.
    """

    generation: Generation
    cache: CacheRules
    placement: Placement
    micro_batch: int = 512
    flash: bool = True
    cache_on_host: bool = False
    op_offload: bool = True
    latent_mode: int = 0
    attention_limit_mib: int = 0
    fused_experts: bool = True
    repacked: bool = False
    mode: str = "layer"
    overridden: bool = False
    copies: int = PIPELINE_COPIES
    gathers: bool = False


def fill(defaults: Defaults, name: str, question: Serving, layers: int) -> None:
    """Every option gets a value and a reason. Source of defaults: common/common.h, tools/server/server.cpp."""
    fork = name == "ik_llama_cpp"
    build = build_number(question.engine_version, name)
    take = defaults.take
    opens = at((build,), AUTO_SLOTS)
    slots = 4 if name == "llama_cpp" and opens else 1
    asked = question.concurrency
    take("n_parallel", slots if asked is None else asked, "server default" if asked is None else "concurrency asked")
    take("kv_unified", fork or not opens or asked is None, "server default")
    take("n_gpu_layers", layers + 1, "all layers and the output on the GPU")
    take("n_ubatch", ollama.batch_tokens(question.context) if name == "ollama" else 512, "engine default")
    take("n_batch", max(2048, int(defaults.values["n_ubatch"])), "engine default")
    take("flash_attn", not fork and (at((build,), FLASH_BY_DEFAULT) or name == "ollama"), "engine default")
    kv = question.kv_dtype or "f16"
    take("cache_type_k", _ggml_name(kv), "kv_dtype asked" if question.kv_dtype else "engine default")
    take("cache_type_v", _ggml_name(kv), "kv_dtype asked" if question.kv_dtype else "engine default")
    take("split_mode", "layer", "engine default")
    if fork:
        take("mla", 0, "engine default")
        take("attn_max_batch", 0, "engine default")
        take("fused_moe", False, "engine default")


_NAMES = {"auto": "f16", "float16": "f16", "fp16": "f16", "bfloat16": "bf16", "fp8": "q8_0", "int8": "q8_0", "float32": "f32"}


def _ggml_name(kind: str) -> str:
    return _NAMES.get(kind.lower(), kind.lower())


def settings_of(resolved: Resolved, name: str) -> LlamaSettings:
    """The settings of a resolved question.

    Raises QuestionError for quantised values without flash attention, as llama.cpp refuses them.
    """
    o, fork = resolved.options, name == "ik_llama_cpp"
    flash = bool(o["flash_attn"])
    if not flash and not fork and o["cache_type_v"] not in ("f16", "f32", "bf16"):
        raise QuestionError(f"cache_type_v {o['cache_type_v']} needs flash attention: add flash_attn=true or keep f16 values")
    rules = generation(build_number(resolved.question.engine_version, name), fork=fork, flash=flash)
    return LlamaSettings(
        generation=rules,
        cache=_cache(resolved, rules),
        placement=_placement(resolved),
        micro_batch=int(o["n_ubatch"]),
        flash=flash,
        cache_on_host=bool(o.get("no_kv_offload")),
        op_offload=not o.get("no_op_offload"),
        latent_mode=int(o.get("mla") or 0),
        attention_limit_mib=int(o.get("attn_max_batch") or 0),
        fused_experts=bool(o.get("fused_moe")),
        repacked=bool(o.get("run_time_repack")),
        mode=o["split_mode"],
        overridden=bool(_overrides(resolved)),
        gathers=o.get("devices") == "vulkan" and rules.gathers,
        copies=int(o.get("pipeline_copies") or PIPELINE_COPIES),
    )


def _cache(resolved: Resolved, rules: Generation) -> CacheRules:
    o = resolved.options
    return CacheRules(
        context=resolved.context,
        sequences=o["n_parallel"],
        unified=bool(o["kv_unified"]),
        micro_batch=int(o["n_ubatch"]),
        full_windows=bool(o.get("swa_full")),
        window_caches=rules.window_caches,
        padding=rules.padding,
        key_type=o["cache_type_k"],
        value_type=o["cache_type_v"],
        latent=_latent(rules, int(o.get("mla") or 0), flash=bool(o["flash_attn"])),
        indexer_keys=rules.indexer_keys,
        draft_tokens=int(o.get("draft_tokens") or 0),
    )


def _placement(resolved: Resolved) -> Placement:
    o = resolved.options
    return place(
        resolved.model.layers,
        gpus=0 if o.get("devices") == "none" else devices_of(resolved.question),
        offloaded=int(o["n_gpu_layers"]),
        split=tuple(float(x) for x in o.get("tensor_split") or ()),
        mode=o["split_mode"],
        overrides=tuple(_overrides(resolved)),
    )


def _overrides(resolved: Resolved) -> list[str]:
    o, layers = resolved.options, resolved.model.layers
    on_host = expert_overrides(o.get("n_cpu_moe"), layers=layers, every=bool(o.get("cpu_moe")))
    return [*(o.get("override_tensor") or ()), *on_host]


def devices_of(question: Serving) -> int:
    """GPUs asked for, however the layout was written."""
    return max(question.gpus, question.parallel.pp * question.parallel.tp)


def _latent(rules: Generation, mode: int, *, flash: bool) -> str:
    if mode == 0 and not rules.absorbed_latent:
        return "expanded"
    return "transposed" if rules.latent_values or (mode == 1 and not flash) else "absorbed"


def latent_layout(name: str, given: str | None) -> str:
    """How the file stores latent attention's up-projection: what was said, else what each converter writes."""
    return given or ("both" if name == "ik_llama_cpp" else "split")
