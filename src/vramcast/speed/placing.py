"""From an engine's answer about memory to what its speed depends on: split, storage, scheduler limits, cache room, places."""

import re
from collections.abc import Mapping
from typing import Any

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator, rails_of, with_link
from vramcast.models.operations import Split
from vramcast.models.quantization.scheme import Scheme
from vramcast.quantity import Number, is_array, where
from vramcast.serving.engines.base import GGUF_ENGINES, POOL_ENGINES, Answer, Resolved
from vramcast.serving.weights import same_as_model, storage_of
from vramcast.speed.deployment import Deployment
from vramcast.speed.engines import EngineSpeed, engine_speed
from vramcast.speed.kernels.collectives import Fabric
from vramcast.speed.streams import HostShares

# The scheduler's options by engine: (tokens of a step, sequences of a step).
SCHEDULER = {
    "vllm": ("max_num_batched_tokens", "max_num_seqs"),
    "sglang": ("chunked_prefill_size", "max_running_requests"),
    "tensorrt_llm": ("max_num_tokens", "max_batch_size"),
    **dict.fromkeys(GGUF_ENGINES, ("n_batch", "n_parallel")),
}
_KV = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "q8_0": "int8", "int8": "int8", "nvfp4": "nvfp4", "float32": "fp32"}
# Rated bandwidth of host memory when nothing else is known: two channels of DDR5-4800.
HOST_BANDWIDTH = 76.8e9


def deployment_of(
    answer: Answer, *, link_bytes_per_s: float = 0, host_bandwidth_bytes_per_s: float = HOST_BANDWIDTH
) -> Deployment:
    """One replica of the server that the answer is about.

    Raises UnmodelledError where no card is named, or the engine or the card has no law.
    """
    resolved = answer.resolved
    if resolved.card is None:
        raise UnmodelledError("speed needs a card: name one with --gpu")
    version = _version(resolved.version)
    rules = engine_speed(resolved.question.engine, version)
    chunk, seats = _limits(resolved, rules)
    card = with_link(resolved.card, link_bytes_per_s)
    pool: dict[str, Any] = _pool(answer)
    scheme, bits, places = _stored(answer, host_bandwidth_bytes_per_s)
    return Deployment(
        model=resolved.model, card=card, engine=rules, version=version,
        scheme=scheme, split=_split(resolved), pp=resolved.question.parallel.pp, kv_dtype=_kv(resolved),
        state_bytes=_state(resolved),
        chunk_tokens=chunk, max_seqs=seats, poll_steps=_polls(resolved),
        part_bits=bits, hops=_hops(resolved), places=places, fabric=_fabric(card),
        micro_rows=int(resolved.options.get("n_ubatch") or 0), eager=bool(resolved.options.get("enforce_eager")),
        streamed_bytes=_streamed(answer, card), **pool,
    )  # fmt: skip


def _streamed(answer: Answer, card: Accelerator) -> int:
    """Weights that vLLM keeps in host memory and reads over the card's link in every step (vllm/model_executor/offloader, UVA).

    Raises UnmodelledError for a card whose link to the host is not known, and where processors compute on the host.
    """
    if answer.resolved.options.get("kt_num_gpu_experts") is not None:
        raise UnmodelledError("no law says how fast a host's processors compute experts (--kt-num-gpu-experts)")
    if not answer.resolved.options.get("cpu_offload_gb"):
        return 0
    if not card.host_link_bytes_per_s:
        raise UnmodelledError(
            f"weights are read from host memory (--cpu-offload-gb), and how {card.name} is linked to it is not known"
        )
    terms = (part for rank in answer.ranks for term in rank.instants[0].terms for part in term.terms)
    return max((-int(part.bytes) for part in terms if part.name == "offloaded"), default=0)


def _fabric(card: Accelerator) -> Fabric:
    """What usually joins machines of that card."""
    rate, rails = rails_of(card)
    return Fabric(rail_bytes_per_s=rate, rails=rails)


def _version(text: str) -> tuple[int, ...]:
    """Numbers of a release: (0, 19, 0) of 0.19.0rc1, (9900,) of a llama.cpp build b9900."""
    return tuple(int(number) for number in re.findall(r"\d+", re.split(r"rc|post|dev", text)[0])[:3])


def _limits(resolved: Resolved, rules: EngineSpeed) -> tuple[Number, Number]:
    tokens, seqs = SCHEDULER.get(resolved.question.engine, ("", ""))
    options = resolved.options
    return _count(options.get(tokens), rules.chunk_tokens), _count(options.get(seqs), rules.max_seqs)


def _count(given: Number | None, usual: int) -> Number:
    return given if is_array(given) else int(given or usual)


def _hops(resolved: Resolved) -> int:
    """Further cards of engines that lay layers out one card after the other."""
    return 0 if resolved.question.engine in POOL_ENGINES else resolved.question.gpus - 1


def _polls(resolved: Resolved) -> int:
    """Decode steps between SGLang's looks at its queue (--scheduler-recv-interval); 0 where it looks at every step."""
    every = int(resolved.options.get("scheduler_recv_interval") or 1)
    return every if every > 1 else 0


def _split(resolved: Resolved) -> Split:
    """VLLM's data parallelism with expert parallelism, SGLang's attention data parallelism: ranks that share experts."""
    parallel, options = resolved.question.parallel, resolved.options
    if resolved.question.engine not in POOL_ENGINES:
        return Split()
    spread = bool(options.get("enable_expert_parallel")) or parallel.ep > 1
    attention_dp = int(options.get("dp_size") or 1) if options.get("enable_dp_attention") else 1
    if attention_dp > 1:
        return Split(tp=parallel.tp // attention_dp, attention_dp=attention_dp, moe_tp=1 if spread else parallel.tp,
                     moe_ep=parallel.tp if spread else 1)  # fmt: skip
    if spread:
        return Split.of(tp=parallel.tp, dp=parallel.dp, ep=parallel.tp * parallel.dp)
    return Split(tp=parallel.tp, moe_tp=parallel.tp)


def replicas_of(resolved: Resolved) -> int:
    """Independent copies of the server: data parallelism that shares nothing."""
    parallel, options = resolved.question.parallel, resolved.options
    shares = bool(options.get("enable_expert_parallel")) or parallel.ep > 1
    return 1 if shares else max(parallel.dp, int(options.get("data_parallel_size") or 1))


def _kv(resolved: Resolved) -> str:
    asked = resolved.question.kv_dtype or resolved.options.get("cache_type_k")
    if same_as_model(asked) or str(asked).lower() in ("f16", "bf16", "fp16", "float16", "bfloat16"):
        return "bf16"
    name = _KV.get(str(asked).lower())
    return name or ("int8" if str(asked).lower().startswith("q") else "fp8")


def _state(resolved: Resolved) -> float:
    asked = resolved.options.get("mamba_ssm_dtype") or resolved.options.get("mamba_ssm_cache_dtype")
    return 2.0 if asked in ("bfloat16", "float16") else 4.0


def _pool(answer: Answer) -> dict[str, float]:
    cache = answer.cache
    if answer.resolved.question.engine not in (*POOL_ENGINES, *GGUF_ENGINES):
        return {}
    tokens = cache.pool_bytes / cache.bytes_per_token if cache.bytes_per_token else 0
    alone = cache.pool_bytes / cache.state_bytes if cache.state_bytes and not cache.bytes_per_token else 0
    return {"pool_tokens": tokens, "pool_sequences": where(cache.state_sequences > 0, cache.state_sequences, alone)}


def _stored(answer: Answer, host_bandwidth: float) -> tuple[Scheme, dict[str, float], HostShares]:
    resolved = answer.resolved
    model, question = resolved.model, resolved.question
    if question.engine in GGUF_ENGINES:
        bits, places = _of_file(answer, host_bandwidth)
        return Scheme(model, dtype="float16"), bits, places
    dtype = question.dtype or ("bfloat16" if model.dtype == "float32" else model.dtype)
    return storage_of(model, quant=question.quant, dtype=dtype).scheme, {}, HostShares()


def _of_file(answer: Answer, host_bandwidth: float) -> tuple[dict[str, float], HostShares]:
    """Mean bits of each part of a GGUF file, and what of layers and experts lies on the host."""
    from vramcast.serving.engines.llama_cpp.answer import process_of
    from vramcast.serving.engines.llama_cpp.loading import held_tensors, part_of

    process = process_of(answer.resolved, answer.resolved.question.engine)
    placement = process.settings.placement
    sizes: dict[str, list[float]] = {}
    for home, part, size in held_tensors(process.parts, placement):
        own = sizes.setdefault(part_of(part.name), [0.0, 0.0, 0.0])
        own[0] += size
        own[1] += part.elements
        own[2] += size if home == placement.host else 0
    bits = {name: 8 * size / elements for name, (size, elements, _) in sizes.items() if elements}
    bits.setdefault("head", bits.get("embedding", 16.0))
    return bits, _places(sizes, host_bandwidth)


def _places(sizes: Mapping[str, list[float]], host_bandwidth: float) -> HostShares:
    layers = [sizes[name] for name in ("attention", "feed_forward", "recurrent") if name in sizes]
    whole, away = sum(s[0] for s in layers), sum(s[2] for s in layers)
    experts = sizes.get("experts", [0.0, 0.0, 0.0])
    return HostShares(
        layers=away / whole if whole else 0.0,
        experts=experts[2] / experts[0] if experts[0] else 0.0,
        host_bandwidth_bytes_per_s=host_bandwidth,
    )
