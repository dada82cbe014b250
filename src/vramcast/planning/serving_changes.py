"""The changes people can make to a serving question, each as the flag to type."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.layers import Experts
from vramcast.planning.changes import (
    CACHE_TYPE,
    DOUBLED,
    FREE,
    LESS_SERVED,
    LIGHTER,
    MORE_CARDS,
    MUCH_LIGHTER,
    ON_HOST,
    OTHER_PROGRAM,
    READ_FROM_HOST,
    SLOWER,
    Change,
    cards_flag,
    set_fields,
    set_option,
)
from vramcast.serving.engines.base import GGUF_ENGINES, Resolved
from vramcast.units import GiB
from vramcast.workload import Parallel, Serving

if TYPE_CHECKING:
    from vramcast.models.quantization import Format
    from vramcast.planning.plans.layouts import Layout

_SIXTEEN_BIT_CACHE = frozenset({None, "auto", "bfloat16", "float16", "f16", "bf16"})
_PCIE4_BYTES_PER_S = 25e9  # what a x16 slot copies from pinned memory (HARDWARE C5: PIX 20-27 GB/s on PCIe 4)
_MOST_UTILIZATION = 95  # per cent: above it other processes and fragmentation have nowhere to go
_CONTEXT_STEP = 256
LEAST_BITS = 6  # bits of a weight: a checkpoint of fewer is not made smaller by a scheme of four
_LEAST_CONTEXT = 512
_ONE_BY_ONE = 2048  # sequences: no engine of the tables runs more at once by default
# Endings of published uploads by scheme, and others than the maker who publish many.
_UPLOADS = {
    "fp8": ("{id}-fp8", "{id}-fp8-dynamic", "nvidia/{name}-fp8", "redhatai/{name}-fp8-dynamic"),
    "awq": ("{id}-awq", "{id}-gptq-int4", "redhatai/{name}-quantized.w4a16", "nvidia/{name}-nvfp4", "thebloke/{name}-awq"),
}
_SHORT = 8192  # tokens: a context below it is not offered with another program
_SHORTER = "longer requests are refused"
_OTHER_FOUR_BITS = ("nvfp4", "gptq-int4")


def serving_changes(resolved: Resolved, card: Accelerator) -> Iterator[Change]:
    """Changes worth trying, the steps of each kind from the least to the most."""
    question, model = resolved.question, resolved.model
    yield from _SETTINGS.get(question.engine, _no_settings)(resolved)
    yield from _cache_type(question, card)
    yield from _lighter_weights(question, model, card)
    yield from _other_layout(resolved, card)
    yield from _offload(question, model)
    yield from _shorter_context(resolved)
    yield from _fewer_sequences(resolved)
    yield from _other_engine(resolved, card)
    yield from _more_cards(resolved, card)


def _vllm(resolved: Resolved) -> Iterator[Change]:
    options = resolved.options
    yield from _more_of_the_card("gpu_memory_utilization", "--gpu-memory-utilization", options)
    for seqs in (128, 64, 32, 16):
        if resolved.concurrency <= seqs < int(options["max_num_seqs"]):
            yield set_option("seqs", f"--max-num-seqs {seqs}", "fewer sequences decoded at once", FREE, max_num_seqs=seqs)
    if options["max_num_batched_tokens"] > 2048:
        text, costs = "--max-num-batched-tokens 2048", "slower prefill of long prompts"
        yield set_option("batched tokens", text, costs, SLOWER, max_num_batched_tokens=2048)
    if not options.get("enforce_eager"):
        yield set_option("eager", "--enforce-eager", "no CUDA graphs: slower decode", SLOWER, enforce_eager=True)


def _sglang(resolved: Resolved) -> Iterator[Change]:
    options = resolved.options
    yield from _more_of_the_card("mem_fraction_static", "--mem-fraction-static", options)
    if options["chunked_prefill_size"] > 2048:
        text, costs = "--chunked-prefill-size 2048", "slower prefill of long prompts"
        yield set_option("chunk", text, costs, SLOWER, chunked_prefill_size=2048)
    if not options.get("disable_cuda_graph"):
        text = "--disable-cuda-graph"
        yield set_option("eager", text, "no CUDA graphs: slower decode", SLOWER, disable_cuda_graph=True)


def _tensorrt_llm(resolved: Resolved) -> Iterator[Change]:
    yield from _more_of_the_card("free_gpu_memory_fraction", "--free_gpu_memory_fraction", resolved.options)


def _more_of_the_card(name: str, flag: str, options: dict[str, object]) -> Iterator[Change]:
    """A larger share of the card for the engine, one per cent after the other."""
    share = options.get(name)
    now = round(100 * share) if isinstance(share, float | int) else _MOST_UTILIZATION
    for percent in range(now + 1, _MOST_UTILIZATION + 1):
        text, costs = f"{flag} {percent / 100:g}", "less room for other processes on the card"
        yield msgspec.structs.replace(set_option("share", text, costs, FREE, **{name: percent / 100}), widens=True)


def _llama_cpp(resolved: Resolved) -> Iterator[Change]:
    if not resolved.options.get("flash_attn"):
        yield set_option("flash attention", "-fa on", "nothing on most cards", FREE, flash_attn=True)
    if int(resolved.options.get("n_ubatch") or 512) > 256:
        yield set_option("micro-batch", "-ub 256", "slower prompt processing", SLOWER, n_ubatch=256)


def _no_settings(_: Resolved) -> Iterator[Change]:
    return iter(())


_SETTINGS = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt_llm": _tensorrt_llm,
    **dict.fromkeys(GGUF_ENGINES, _llama_cpp),
}


def _cache_type(question: Serving, card: Accelerator) -> Iterator[Change]:
    if question.kv_dtype not in _SIXTEEN_BIT_CACHE or question.engine == "transformers":
        return
    dtype, flag = ("q8_0", "-ctk q8_0 -ctv q8_0") if question.engine in GGUF_ENGINES else ("fp8", "--kv-cache-dtype fp8")
    converted = "" if dtype == "q8_0" or _has_fp8(card) else ", converted in software on this card"
    yield set_fields("cache", flag, f"small loss of quality on long contexts{converted}", CACHE_TYPE, kv_dtype=dtype)


def _has_fp8(card: Accelerator) -> bool:
    return card.capability is None or card.capability >= (8, 9)


def _lighter_weights(question: Serving, model: Model, card: Accelerator) -> Iterator[Change]:
    """Fewer bits for weights: from 16 to 8 and 4, from a checkpoint's 8 to 4; with the upload that has them, if one is known."""
    if question.quant and question.engine not in GGUF_ENGINES:
        return
    if question.engine in GGUF_ENGINES:
        yield from _smaller_file(question.quant, model)
        return
    eight = ("fp8", "faster", LIGHTER) if _has_fp8(card) else ("w8a8", "int8 tensor cores", LIGHTER)
    four = ("awq", "4-bit weights", MUCH_LIGHTER)
    if (own := stored_format(model)) and own.bits < LEAST_BITS:
        return
    for scheme, what, price in (four,) if model.quantization else (eight, four):
        costs = f"{what}; {_loss(model, scheme)}{_upload(model, scheme)}"
        yield set_fields("weights", f"--quant {scheme}", costs, price, quant=scheme)


def stored_format(model: Model) -> "Format | None":
    """The narrowest format that the checkpoint itself stores weights in; None where it quantises nothing."""
    from vramcast.models.quantization import scheme_for

    plan = scheme_for(model).plan if model.quantization else None
    return min((rule.format for rule in plan.rules if rule.format), key=lambda form: form.bits, default=None) if plan else None


_FILES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q3_K_M")


def _smaller_file(now: str | None, model: Model) -> Iterator[Change]:
    for name in _FILES[_FILES.index(now.upper()) + 1 if now and now.upper() in _FILES else 0 :]:
        price = MUCH_LIGHTER if name in _FILES[3:] else LIGHTER
        yield set_fields("weights", f"--quant {name}", _loss(model, name), price, quant=name)


def _loss(model: Model, scheme: str) -> str:
    """What the scheme costs in quality, as published for the model nearest in size."""
    from vramcast.models.quantization.quality import published_quality

    found = published_quality(scheme, parameters=model.parameters)
    return found.text if found else "what it loses in quality is not known here"


def _upload(model: Model, scheme: str) -> str:
    """The published upload in that scheme, where the catalogue holds one."""
    from vramcast.models import reading

    known, key = reading.read_index(), model.id.lower()
    spelt = (form.format(id=key, name=key.rpartition("/")[2]) for form in _UPLOADS.get(scheme, ()))
    found = next((name for name in spelt if name in known.models or name in known.aliases), None)
    if found is None:
        return ""
    written = reading.row_at(known.models[found]).id if found in known.models else found
    other = next((kind for kind in _OTHER_FOUR_BITS if found.endswith(kind)), "") if scheme == "awq" else ""
    return f" (in {other.upper()}: {written} is published)" if other else f" ({written} is published)"


def _shorter_context(resolved: Resolved) -> Iterator[Change]:
    """Every multiple of 256 tokens below what was asked, the longest first; none that the prompt and output asked outgrow."""
    costs = _SHORTER
    longest = (resolved.context - 1) // _CONTEXT_STEP * _CONTEXT_STEP
    least = _LEAST_CONTEXT if resolved.typical_tokens == resolved.context else max(_LEAST_CONTEXT, resolved.typical_tokens)
    for tokens in range(longest, least - 1, -_CONTEXT_STEP * max(1, longest // (_CONTEXT_STEP * 1024))):
        yield set_fields("context", f"--context {tokens}", costs, LESS_SERVED, context=tokens)


def _fewer_sequences(resolved: Resolved) -> Iterator[Change]:
    """One sequence less and less; above some thousands in steps of a hundredth, which nobody can tell apart."""
    if resolved.question.engine in GGUF_ENGINES:
        return
    sequences = resolved.requests - 1
    while sequences > 0:
        yield set_fields(
            "sequences", f"--concurrency {sequences}", "the others wait in the queue", LESS_SERVED, concurrency=sequences
        )
        sequences -= max(1, sequences // 100 if sequences > _ONE_BY_ONE else 1)


def _other_engine(resolved: Resolved, card: Accelerator) -> Iterator[Change]:
    """llama.cpp with 4-bit files, for the whole load: its context is shared by all sequences.

    One sequence may be shorter, then some layers on the CPU: how most people run what their card does not hold.
    """
    from vramcast.serving.engines.base import why_not

    question = resolved.question
    if question.engine in GGUF_ENGINES or why_not("llama_cpp", card):
        return
    total = resolved.live_tokens * resolved.requests
    served = f" -c {total} --parallel {resolved.requests}" if resolved.requests > 1 else ""
    file_type = "MXFP4_MOE" if (own := stored_format(resolved.model)) and own.name.startswith("mxfp4") else "Q4_K_M"
    fields: dict[str, Any] = {
        "engine": "llama_cpp",
        "engine_version": None,
        "quant": file_type,
        "kv_dtype": None,
        "dtype": None,
        "options": {},
    }
    fields |= {"context": total, "concurrency": resolved.requests, "parallel": Parallel(pp=question.gpus)}
    text, costs = f"--engine llama.cpp --quant {file_type}{served}", "4-bit GGUF file; fewer tokens per second with many users"
    costs += f"; leave out {question.engine}'s own flags" if question.options else ""
    yield msgspec.structs.replace(set_fields("engine", text, costs, OTHER_PROGRAM, **fields), alone=True)
    if resolved.requests > 1:
        return
    shortest = total
    while shortest > _SHORT:
        shortest //= 2
        told, less = f"{text} -c {shortest}", {**fields, "context": shortest}
        change = set_fields("engine", told, f"{costs}; {_SHORTER}", OTHER_PROGRAM + LESS_SERVED, **less)
        yield msgspec.structs.replace(change, alone=True)
    yield from _partly_on_the_cpu(text, costs, {**fields, "context": min(total, _SHORT)}, resolved.model)


def _partly_on_the_cpu(text: str, costs: str, fields: dict[str, Any], model: Model) -> Iterator[Change]:
    """The same with fewer and fewer layers on the card, in eighths."""
    for eighths in range(7, 0, -1):
        layers = max(1, model.layers * eighths // 8)
        told = f"{text} -c {fields['context']} -ngl {layers}"
        slower = f"{costs}; {model.layers - layers} of {model.layers} layers are computed by the CPU: slower"
        options = {"n_gpu_layers": layers}
        change = set_fields("engine", told, slower, OTHER_PROGRAM + LESS_SERVED + ON_HOST, **{**fields, "options": options})
        yield msgspec.structs.replace(change, alone=True)


def _other_layout(resolved: Resolved, card: Accelerator) -> Iterator[Change]:
    """The planner's other layouts of as many cards: those without stages first, then the widest in tensor parallelism."""
    question = resolved.question
    if question.gpus == 1 or question.engine in GGUF_ENGINES or question.engine == "transformers":
        return
    from vramcast.planning.plans.layouts import Layout, layouts

    now = Layout(parallel=question.parallel, options=dict(question.options))
    others = [one for one in layouts(question.engine, resolved.model, card, most=question.gpus) if one.ranks == question.gpus]
    for one in sorted(others, key=lambda one: (one.parallel.pp, -one.parallel.tp, len(one.options))):
        if one.parallel == now.parallel and one.options.items() <= now.options.items():
            continue
        change = set_fields("layout", _layout_flags(one, question.parallel), _cost_of_layout(one.parallel), SLOWER)
        yield msgspec.structs.replace(change, unordered=True, apply=partial(_laid_out, one))


def _layout_flags(layout: "Layout", now: Parallel) -> str:
    """The words that make the layout of what was asked, those that are taken back included."""
    own = layout.parallel
    sizes = {
        name: getattr(own, name) for name in ("tp", "pp", "dp", "ep") if name == "tp" or getattr(own, name) != getattr(now, name)
    }
    words = [f"--{name} {size}" for name, size in sizes.items()]
    words += [f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}") for name, value in layout.options.items()]
    return " ".join(words)


def _laid_out(layout: "Layout", question: Serving) -> Serving:
    return msgspec.structs.replace(question, parallel=layout.parallel, options={**question.options, **layout.options})


def _cost_of_layout(layout: Parallel) -> str:
    if layout.pp > 1:
        return "stages take turns: a single request is slower"
    return "ranks hold requests of their own" if layout.dp > 1 else "more traffic between the cards"


def _offload(question: Serving, model: Model) -> Iterator[Change]:
    if question.engine == "vllm" and "cpu_offload_gb" not in question.options:
        yield from _weights_on_host()
    elif question.engine in GGUF_ENGINES:
        yield from _layers_on_host(question, model)


def _weights_on_host() -> Iterator[Change]:
    for gibibytes in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
        delay_ms = gibibytes * GiB / _PCIE4_BYTES_PER_S * 1e3
        text, costs = f"--cpu-offload-gb {gibibytes}", f"about {delay_ms:.0f} ms more for every step, over PCIe 4"
        yield set_option("offload", text, costs, READ_FROM_HOST, cpu_offload_gb=gibibytes)


def _layers_on_host(question: Serving, model: Model) -> Iterator[Change]:
    """Experts first, which are large and seldom read; else whole layers, one after the other."""
    if any(isinstance(block.feedforward, Experts) for block in model.blocks) and not question.options.get("cpu_moe"):
        yield set_option("experts on the host", "--cpu-moe", "experts are computed by the CPU: slower", ON_HOST, cpu_moe=True)
    for layers in range(min(model.layers, int(question.options.get("n_gpu_layers") or model.layers)) - 1, 0, -1):
        costs = f"{model.layers - layers} of {model.layers} layers are computed by the CPU: slower"
        yield set_option("offload", f"-ngl {layers}", costs, ON_HOST, n_gpu_layers=layers)


def _more_cards(resolved: Resolved, card: Accelerator) -> Iterator[Change]:
    """Twice, four and eight times the cards; nobody puts a second GPU into memory that the host shares."""
    question, model = resolved.question, resolved.model
    if card.unified:
        return
    heads = {m.heads for b in model.blocks for m in b.mixers if hasattr(m, "heads")}
    for doublings in (1, 2, 3):
        factor = 2**doublings
        layout = _wider(question, factor)
        if any(h % layout.tp for h in heads):
            continue
        gpus = question.gpus * factor
        text = cards_flag(question.gpu, gpus)
        if question.engine not in GGUF_ENGINES and layout.pp * layout.dp > 1:
            text += f" --tp {layout.tp}"
        price = MORE_CARDS + DOUBLED * doublings
        kept = {"context": resolved.context} if question.engine == "ollama" else {}  # its own grows with the memory of all cards
        text += f" --context {resolved.context}" if kept and question.context is None else ""
        yield set_fields("cards", text, f"{factor} x the price; faster", price, parallel=layout, gpus=gpus, **kept)


def _wider(question: Serving, factor: int) -> Parallel:
    if question.engine in GGUF_ENGINES:
        return msgspec.structs.replace(question.parallel, pp=question.parallel.pp * factor)
    return msgspec.structs.replace(question.parallel, tp=question.parallel.tp * factor)
