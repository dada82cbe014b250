"""The changes people can make to a serving question, from the cheapest to the dearest; each turns a question into another."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.feedforward import Experts
from vramcast.models.inventory import Model
from vramcast.serving.engines.base import GGUF_ENGINES
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

_GIVES_SOMETHING_UP = frozenset({"context", "sequences", "cards", "offload", "experts on the host", "method", "seq"})
_SIXTEEN_BIT_CACHE = frozenset({None, "auto", "bfloat16", "float16", "f16", "bf16"})
_PCIE4_BYTES_PER_S = 25e9  # what a x16 slot copies from pinned memory (HARDWARE C5: PIX 20-27 GB/s on PCIe 4)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One change: its kind (of a kind one is enough), its words, what it costs, and the question it makes of another."""

    kind: str
    text: str
    costs: str
    apply: Callable[[Any], Any]

    @property
    def keeps_the_job(self) -> bool:
        """Whether the same requests are still served, on the same cards and from their own memory."""
        return self.kind not in _GIVES_SOMETHING_UP

    def then(self, other: "Change") -> "Change":
        """Both changes, one after the other."""
        return Change(
            kind=f"{self.kind} and {other.kind}",
            text=f"{self.text} and {other.text}",
            costs=f"{self.costs}; {other.costs}",
            apply=lambda question: other.apply(self.apply(question)),
        )


def serving_changes(question: Serving, model: Model, card: Accelerator, *, context: int, max_context: int) -> Iterator[Change]:
    """Changes worth trying, in the order they should be considered: settings, cache, weights, then what gives something up."""
    yield from _ENGINE_SETTINGS.get(question.engine, _no_settings)(question)
    yield from _cache_dtype(question, card)
    yield from _lighter_weights(question, model, card)
    yield from _shorter_context(context, max_context)
    yield from _fewer_sequences(question)
    yield from _more_cards(question, model)
    yield from _offload(question, model)


def _set(kind: str, text: str, costs: str, **fields: Any) -> Change:
    return Change(kind=kind, text=text, costs=costs, apply=lambda question: msgspec.structs.replace(question, **fields))


def _option(name: str, value: Any, text: str, costs: str, *, kind: str = "") -> Change:
    return Change(
        kind=kind or name,
        text=text,
        costs=costs,
        apply=lambda question: msgspec.structs.replace(question, options={**question.options, name: value}),
    )


def _vllm_settings(question: Serving) -> Iterator[Change]:
    options = question.options
    if options.get("gpu_memory_utilization", 0) < 0.95:
        yield _option(
            "gpu_memory_utilization", 0.95, "--gpu-memory-utilization 0.95", "less room for other processes on the card"
        )
    if "max_num_seqs" not in options:
        seqs = max(question.concurrency or 1, 16)
        yield _option("max_num_seqs", seqs, f"--max-num-seqs {seqs}", "fewer sequences decoded at once")
    if options.get("max_num_batched_tokens", 10**9) > 2048:
        yield _option("max_num_batched_tokens", 2048, "--max-num-batched-tokens 2048", "slower prefill of long prompts")
    if not options.get("enforce_eager"):
        yield _option("enforce_eager", True, "--enforce-eager", "no CUDA graphs: slower decode")


def _sglang_settings(question: Serving) -> Iterator[Change]:
    if question.options.get("chunked_prefill_size", 10**9) > 2048:
        yield _option("chunked_prefill_size", 2048, "--chunked-prefill-size 2048", "slower prefill of long prompts")


def _llama_cpp_settings(question: Serving) -> Iterator[Change]:
    if not question.options.get("flash_attn"):
        yield _option("flash_attn", True, "-fa on", "nothing on most cards")
    if question.options.get("n_ubatch", 512) > 256:
        yield _option("n_ubatch", 256, "-ub 256", "slower prompt processing")


def _no_settings(_: Serving) -> Iterator[Change]:
    return iter(())


_ENGINE_SETTINGS = {
    "vllm": _vllm_settings,
    "sglang": _sglang_settings,
    **dict.fromkeys(GGUF_ENGINES, _llama_cpp_settings),
}


def _cache_dtype(question: Serving, card: Accelerator) -> Iterator[Change]:
    if question.kv_dtype not in _SIXTEEN_BIT_CACHE or question.engine == "transformers":
        return
    dtype, flag = ("q8_0", "-ctk q8_0 -ctv q8_0") if question.engine in GGUF_ENGINES else ("fp8", "--kv-cache-dtype fp8")
    converted = "" if _has_fp8(card) else ", converted in software on this card"
    yield _set("cache", flag, f"small loss of quality on long contexts{converted}", kv_dtype=dtype)


def _has_fp8(card: Accelerator) -> bool:
    return card.capability is None or card.capability >= (8, 9)


def _shorter_context(context: int, max_context: int) -> Iterator[Change]:
    """The longest context that there is room for, shorter ones that fit for sure, halves of what was asked (several share)."""
    surer = (max_context * eighths // 8 // 256 * 256 for eighths in (7, 6, 4))
    halves = (context // 2, context // 4, context // 8)
    for tokens in sorted({max_context, *surer, *halves}, reverse=True):
        if 256 <= tokens < context:
            yield _set("context", f"context {tokens:,} tokens", "longer requests are refused", context=tokens)


def _fewer_sequences(question: Serving) -> Iterator[Change]:
    sequences = question.concurrency or 1
    while sequences > 1:
        sequences //= 2
        yield _set("sequences", f"{sequences} at once", "the others wait in the queue", concurrency=sequences)


def _lighter_weights(question: Serving, model: Model, card: Accelerator) -> Iterator[Change]:
    if question.quant or model.quantization:
        return
    if question.engine in GGUF_ENGINES:
        schemes = [("Q8_0", "hardly any loss"), ("Q5_K_M", "small loss"), ("Q4_K_M", "some loss of quality")]
    else:
        eight = ("fp8", "hardly any loss; faster") if _has_fp8(card) else ("w8a8", "small loss; int8 tensor cores")
        schemes = [eight, ("awq", "some loss of quality; 4-bit weights")]
    for scheme, costs in schemes:
        yield _set("weights", f"{scheme} weights", costs, quant=scheme)


def _offload(question: Serving, model: Model) -> Iterator[Change]:
    if question.engine == "vllm" and "cpu_offload_gb" not in question.options:
        yield from _weights_on_host()
    elif question.engine in GGUF_ENGINES:
        yield from _layers_on_host(question, model)


def _weights_on_host() -> Iterator[Change]:
    for gibibytes in (2, 4, 8, 16, 32):
        delay_ms = gibibytes * GiB / _PCIE4_BYTES_PER_S * 1e3
        text, costs = f"--cpu-offload-gb {gibibytes}", f"about {delay_ms:.0f} ms more for every step, over PCIe 4"
        yield _option("cpu_offload_gb", gibibytes, text, costs, kind="offload")


def _layers_on_host(question: Serving, model: Model) -> Iterator[Change]:
    """Experts first, which are large and seldom read; then whole layers, an eighth of them at a time."""
    if any(isinstance(block.feedforward, Experts) for block in model.blocks) and not question.options.get("cpu_moe"):
        yield _option("cpu_moe", True, "--cpu-moe", "experts are computed by the CPU: slower", kind="experts on the host")
    for eighths in range(7, 0, -1):
        layers = model.layers * eighths // 8
        if 0 < layers < question.options.get("n_gpu_layers", model.layers):
            costs = f"{model.layers - layers} of {model.layers} layers are computed by the CPU: slower"
            yield _option("n_gpu_layers", layers, f"-ngl {layers}", costs, kind="offload")


def _more_cards(question: Serving, model: Model) -> Iterator[Change]:
    heads = {m.heads for b in model.blocks for m in b.mixers if hasattr(m, "heads")}
    for factor in (2, 4, 8):
        layout = _wider(question, factor)
        if any(h % layout.tp for h in heads):
            continue
        gpus = question.gpus * factor
        text = f"{gpus} cards" if question.engine in GGUF_ENGINES else f"{gpus} cards (--tp {layout.tp})"
        yield _set("cards", text, f"{factor} x the price; faster", parallel=layout, gpus=gpus)


def _wider(question: Serving, factor: int) -> Parallel:
    if question.engine in GGUF_ENGINES:
        return msgspec.structs.replace(question.parallel, pp=question.parallel.pp * factor)
    return msgspec.structs.replace(question.parallel, tp=question.parallel.tp * factor)
