"""A resolved question as the numbers vLLM's rules take, and which of its two model runners a start takes.

The second runner draws in its profile run from one fp32 copy of the logits, or from the logits themselves
(vllm/config/vllm.py use_v2_model_runner, v1/worker/gpu/model_runner.py _dummy_sampler_run, v1/worker/gpu/sample/sampler.py).
"""

import re
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Unmodelled
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.models.quantization import scheme_for
from vramcast.serving.engines.base import Resolved, Version, at, parse_version
from vramcast.serving.engines.drafts import Draft, is_target, known_draft, uncounted
from vramcast.serving.engines.layouts import ExpertKernel, has_experts, spread_of, vllm_kernel
from vramcast.serving.engines.vllm import versions
from vramcast.serving.engines.vllm.pages import CacheTypes, Demand
from vramcast.serving.engines.vllm.profile import dequantizes
from vramcast.serving.layers import SPARSE_LATENT_BYTES, encodes_only, has_states
from vramcast.serving.weights import loaded_dtype, same_as_model, scaled_bytes, storage_of
from vramcast.units import element_bytes


class VllmSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules need, by vLLM's own names.

    ``core``: the engine, "V0" or "V1". ``ep``: ranks over which experts are dealt; ``expert_tp``: ranks that cut each of them;
    ``world``: ranks that share communicators. ``dtype``: the type of plain weights; ``element``: bytes of one activation.
    ``total_bytes``: memory that the card shows, of which ``utilization`` is the engine's. ``eager``: without graphs.
    ``block_tokens``: of one block of the cache; ``types``: bytes of its elements; ``demand``: what decides the blocks of a
    request. ``hybrid_manager``: layers of different kinds have block tables of their own. ``mtp``: the checkpoint's own draft
    layers are loaded; ``draft``: a draft model. ``towers``: those of images and sounds are loaded; ``profiles_towers``: the
    profile run encodes by them too. ``second_runner``, ``sampler``: see the module's text and profile.SAMPLER_BYTES.
    ``dequantizes``: bitsandbytes unpacks slices of 4-bit weights. ``flashinfer``: what attends is its. ``expert_kernel``: what
    multiplies the routed experts. ``pool_override``, ``blocks_override``: the cache's size where it was given. ``pools_only``: an
    encoder; ``pools``: vectors or scores are made and no token is drawn.
    """

    version: Version
    core: str
    tp: int
    pp: int
    ep: int
    expert_tp: int
    world: int
    dtype: str
    element: float
    utilization: float
    max_seqs: int
    max_tokens: int
    eager: bool
    block_tokens: int
    types: CacheTypes
    demand: Demand
    hybrid_manager: bool
    mtp: bool
    draft: Model | None
    towers: bool
    profiles_towers: bool
    second_runner: bool
    sampler: str
    dequantizes: bool
    flashinfer: bool
    total_bytes: int
    expert_kernel: ExpertKernel | None = None
    pool_override: int | None = None
    blocks_override: int | None = None
    pools_only: bool = False
    pools: bool = False
    caches_latent: bool = True

    @property
    def caches(self) -> bool:
        """Whether keys and values are kept at all: of encoders V1 keeps none (vllm-project/vllm#21270)."""
        return not (self.pools_only and self.core == "V1" and at(self.version, versions.ENCODERS_UNCACHED))


def settings_of(resolved: Resolved) -> VllmSettings:
    """The settings of a resolved question."""
    options, model = resolved.options, resolved.model
    version, parallel = parse_version(resolved.version, "vllm"), resolved.question.parallel
    second = _runs_second(resolved, version)
    dtype = loaded_dtype(model, resolved.question.dtype, resolved.card)
    spread = spread_of("vllm", parallel, options)
    return VllmSettings(
        version=version,
        core=options["engine_core"],
        tp=parallel.tp,
        pp=parallel.pp,
        ep=spread.experts,
        expert_tp=spread.each_expert,
        world=parallel.pp * (spread.experts * spread.each_expert if has_experts(model) else parallel.tp),
        dtype=dtype,
        element=element_bytes(dtype),
        utilization=options["gpu_memory_utilization"],
        max_seqs=options["max_num_seqs"],
        max_tokens=options["max_num_batched_tokens"],
        eager=bool(options.get("enforce_eager")),
        block_tokens=options["block_size"],
        types=cache_types(model, resolved.question.kv_dtype, dtype, options, version),
        demand=_demand(version, options, parallel.pp),
        hybrid_manager=at(version, versions.HYBRID_MANAGER) and not options.get("disable_hybrid_kv_cache_manager"),
        mtp=str(options.get("speculative_method")).endswith("mtp"),
        draft=draft.model if (draft := draft_beside(model, options)) else None,
        towers=not options.get("language_model_only"),
        profiles_towers=not (options.get("language_model_only") or options.get("skip_mm_profiling")),
        second_runner=second,
        sampler=_sampler(version, options, second=second),
        dequantizes=dequantizes(model, resolved.question.quant),
        flashinfer=_takes_flashinfer(resolved, version),
        total_bytes=total_bytes(resolved.card, options),
        expert_kernel=_expert_kernel(resolved, version, dtype),
        pool_override=options.get("kv_cache_memory_bytes"),
        blocks_override=options.get("num_gpu_blocks_override"),
        pools_only=encodes_only(model),
        pools=pools(model, options),
        caches_latent=_caches_latent(resolved, version),
    )


def _caches_latent(resolved: Resolved, version: Version) -> bool:
    """Whether that release caches a latent under these weights, rather than the keys and values of all heads."""
    if resolved.model.text_class in versions.CACHED_AS_HEADS:
        return False
    plan = scheme_for(resolved.model, quant=resolved.question.quant).plan
    plain = plan is None or plan.name.startswith("fp8")
    return at(version, versions.CACHES_LATENT if plain else versions.CACHES_LATENT_OF_QUANTIZED)


def _runs_second(resolved: Resolved, version: Version) -> bool:
    """Whether this start takes the second model runner."""
    model, options = resolved.model, resolved.options
    return second_runner(
        version,
        model,
        quantized=bool(resolved.question.quant or model.quantization),
        pools=pools(model, options),
        drafts=str(options.get("speculative_method") or ""),
    )


# the widths of a head that FlashInfer's wrappers are built for (v1/attention/backends/flashinfer.py get_supported_head_sizes)
_FLASHINFER_HEADS = frozenset({64, 128, 256})
_FLASHINFER_SINCE = (7, 5)


def _takes_flashinfer(resolved: Resolved, version: Version) -> bool:
    """Whether FlashInfer's wrappers attend: asked for, or since the cache is in fp8 and the card none of Hopper's.

    Data-centre Blackwell takes TensorRT-LLM's kernels, which have no wrappers; latent attention, sinks and heads of other widths
    have backends of their own.
    """
    asked, card = resolved.options.get("attention_backend"), resolved.card
    if asked:
        return bool(asked == "flashinfer")
    if card is None or card.capability is None or card.capability < _FLASHINFER_SINCE or card.capability[0] in (9, 10):
        return False
    mixers = [mixer for block in resolved.model.blocks for mixer in block.mixers]
    attention = [mixer for mixer in mixers if isinstance(mixer, Attention)]
    fits = all({m.head_dim, m.values} <= _FLASHINFER_HEADS and not (m.sinks or m.indexer) for m in attention)
    latent = any(isinstance(mixer, LatentAttention) for mixer in mixers)
    fp8 = str(resolved.question.kv_dtype).lower().startswith("fp8")
    return at(version, versions.FLASHINFER_READS_FP8) and fp8 and fits and bool(attention) and not latent


def _expert_kernel(resolved: Resolved, version: Version, dtype: str) -> ExpertKernel | None:
    """What multiplies the routed experts, None without any."""
    storage = storage_of(resolved.model, quant=resolved.question.quant, dtype=dtype)
    return vllm_kernel(resolved.model, storage, resolved.card, version, resolved.options)[0]


_POOLED = re.compile(r"(?:For(?:Sequence|Token)Classification|ForTextEncoding|EmbeddingModel|RewardModel|ClassificationModel)$")
_EMBEDS = re.compile(r"embed", re.IGNORECASE)


def pools(model: Model, options: dict[str, Any]) -> bool:
    """Whether vectors or scores are made and no token is drawn: an encoder, or a decoder run so.

    ``--runner auto`` looks at the class's ending and at a repository's pooling file (config/model.py _get_default_runner_type);
    that file is not among what is read here, so that a name that says embedding stands for it.
    """
    runner = options.get("runner")
    if runner in ("pooling", "generate"):
        return bool(runner == "pooling")
    return encodes_only(model) or bool(_POOLED.search(model.architecture or "") or _EMBEDS.search(model.id))


def _sampler(version: Version, options: dict[str, Any], *, second: bool) -> str:
    """What the profile run samples with: see profile.SAMPLER_BYTES."""
    if second:
        return at(version, versions.SECOND_SAMPLER)
    asked = options.get("flashinfer_sampler")
    flashinfer = at(version, versions.FLASHINFER_SAMPLER) if asked is None else asked
    return "flashinfer" if flashinfer else at(version, versions.SAMPLER)


def cache_types(model: Model, kv_dtype: str | None, dtype: str, options: dict[str, Any], version: Version) -> CacheTypes:
    """Bytes per element of every kind of cache (v1/kv_cache_interface.py; mamba_utils.py get_mamba_state_dtype)."""
    plain = element_bytes(dtype)
    conv = _type_bytes(options.get("mamba_cache_dtype"), plain)
    state = _type_bytes(options.get("mamba_ssm_cache_dtype"), 4 if model_class(model.text_class).served.float_state else conv)
    drafted = options.get("num_speculative_tokens") or 0
    latent_multiple = at(version, versions.LATENT_MULTIPLE)
    if same_as_model(kv_dtype):
        return CacheTypes(kv=plain, conv=conv, state=state, latent_multiple=latent_multiple, drafted=drafted)
    name = str(kv_dtype).lower()
    if name == "nvfp4":
        return CacheTypes(kv=scaled_bytes("nvfp4"), conv=conv, state=state, drafted=drafted)
    if name.endswith("_per_token_head"):
        return CacheTypes(kv=0.5 if name.startswith("int4") else 1, conv=conv, state=state, head_extra=4, drafted=drafted)
    packed = SPARSE_LATENT_BYTES if element_bytes(name) == 1 and _sparse(model) else 0
    return CacheTypes(
        kv=element_bytes(name), conv=conv, state=state, latent_token=packed, latent_multiple=latent_multiple, drafted=drafted
    )


def total_bytes(card: Accelerator | None, options: dict[str, Any]) -> int:
    """Memory the card shows to a program: given, or the catalogue's."""
    given = options.get("gpu_total_bytes")
    return given if given is not None else (card.visible_bytes if card else 0)


def draft_beside(model: Model, options: dict[str, Any]) -> Draft | None:
    """The draft model, whose weights and cache stand beside the target's on the last stage; None for one that nothing knows."""
    name = _draft_named(model, options)
    return known_draft(name, options.get("speculative_method"), model, option="speculative_model") if name else None


def uncounted_draft(model: Model, options: dict[str, Any]) -> tuple[Unmodelled, ...]:
    """What the answer says of a draft model that is named and that nothing knows."""
    name = _draft_named(model, options)
    return (uncounted(name),) if name and draft_beside(model, options) is None else ()


def _draft_named(model: Model, options: dict[str, Any]) -> str:
    """The draft's name; "" for the target's own draft layers, as where none is named, and for "ngram", which is a method."""
    name, method = options.get("speculative_model") or "", options.get("speculative_method")
    own = str(method).endswith("mtp") and is_target(name, model)  # vllm/config/speculative.py
    return "" if own or name.strip("[]") == "ngram" else name


def _demand(version: Version, options: dict[str, Any], pp: int) -> Demand:
    batches = at(version, versions.BATCHES_IN_FLIGHT) if pp == 1 else pp
    caches = options.get("enable_prefix_caching", at(version, versions.CACHES_HYBRID_PREFIXES))
    aligned = caches and at(version, versions.ALIGNS_STATES)
    return Demand(
        in_flight=options["max_num_batched_tokens"] * batches,
        speculative=options.get("num_speculative_tokens") or 0,
        state_blocks=2 if aligned else 1,
        context_ranks=options.get("decode_context_parallel_size") or 1,
    )


def _type_bytes(name: str | None, otherwise: float) -> float:
    return otherwise if same_as_model(name) else element_bytes(str(name))


def _sparse(model: Model) -> bool:
    return any(isinstance(m, LatentAttention) and m.indexer for b in model.blocks for m in b.mixers)


# drafts the second runner cannot make (config/vllm.py _get_v2_model_runner_unsupported_features)
_FIRST_RUNNERS_DRAFTS = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator", "custom_class"})


def second_runner(version: Version, model: Model, *, quantized: bool, pools: bool = False, drafts: str = "") -> bool:
    """Whether the second model runner is the default for that model.

    Until it runs all, models with recurrent states stay with the first unless their class is named, and so do vectors
    (config/vllm.py _is_default_v2_model_runner_model).
    """
    if drafts in _FIRST_RUNNERS_DRAFTS:
        return False
    if at(version, versions.SECOND_RUNS_ALL):
        return True
    if pools or (quantized and not at(version, versions.SECOND_RUNS_QUANTIZED)):
        return False
    if _named(version, model.family):
        return True
    dense = not any(isinstance(block.feedforward, Experts) for block in model.blocks)
    return dense and not has_states(model) and at(version, versions.SECOND_RUNS_DENSE)


def _named(version: Version, family: str) -> bool:
    """Whether that release takes it for the class by name, before all dense models and at last all models did."""
    since = model_class(family).served.second_runner
    return bool(since) and version >= parse_version(since, "vllm")


def subtracts_graphs(settings: VllmSettings) -> bool:
    """Whether the memory of CUDA graphs is taken off the budget before they are captured."""
    return at(settings.version, versions.SUBTRACTS_GRAPHS) and reserves_graphs(settings.version, second=settings.second_runner)


def reserves_graphs(version: Version, *, second: bool) -> bool:
    """Whether the runner estimates the memory of its graphs before the cache is sized."""
    return not second or at(version, versions.SECOND_RESERVES_GRAPHS)
