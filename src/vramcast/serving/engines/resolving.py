"""A question is resolved: what it left open is filled, what was assumed on the way is told, what no rule covers is named.

Every engine does this with a question before its own rules: options, context and layout checked, defaults listed.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator, Capability, capability
from vramcast.hardware.runtime import assumed_class
from vramcast.ledger import Assumption, Unmodelled
from vramcast.models.inventory import Model
from vramcast.models.quantization.scheme import spoken_scheme
from vramcast.quantity import Number, extent, is_array
from vramcast.serving.engines.base import (
    GB10,
    Engine,
    Resolved,
    Table,
    Version,
    at,
    parse_version,
    plugin_of,
    request_groups,
    why_not,
)
from vramcast.serving.engines.layouts import REASONS, check_layout, spread_of
from vramcast.serving.engines.options import checked
from vramcast.serving.engines.registries import lacking, newest_with, unloadable
from vramcast.serving.weights import same_as_model, storage_of
from vramcast.units import GiB, element_bytes
from vramcast.workload import Serving

STRETCHING = ("vllm", "sglang")  # engines whose words for a longer rope are read
_POSITIONS = "max_position_embeddings of the model"


class Defaults:
    """Fills what a question left open and remembers each filling as an assumption."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.values = dict(given)
        self.assumed: list[Assumption] = []

    def take(self, name: str, value: Any, because: str) -> Any:
        """The given value of an option, or ``value`` with the reason noted."""
        if self.values.get(name) is None:
            self.values[name] = value
            self.assumed.append(Assumption(name, value, because))
        return self.values[name]

    def note(self, name: str, value: Any, because: str) -> Any:
        """``value``, noted as assumed."""
        self.assumed.append(Assumption(name, value, because))
        return value


def opened(engine: Engine, question: Serving, model: Model) -> tuple[Defaults, str, Version]:
    """What every resolving begins with: options and layout checked, and the release whose rules hold, as text and as numbers.

    Raises QuestionError for unknown options, a layout that the engine refuses, and a version that no release can have.
    """
    given = checked(question.options, engine.options, engine.name)
    defaults = Defaults(given)
    text, number = _release(engine, question, defaults, model)
    if engine.name in REASONS:
        check_layout(engine.name, text, model, spread_of(engine.name, question.parallel, given))
    return defaults, text, number


def _release(engine: Engine, question: Serving, defaults: Defaults, model: Model) -> tuple[str, Version]:
    """A release beyond those read is answered by the nearest one's rules, and the answer says so; another major is refused.

    Where none is asked, the newest that runs the model answers.
    """
    oldest, newest, asked = engine.versions[0], engine.versions[-1], question.engine_version
    if asked is None:
        last, what = newest_with(engine.name, model, _method(question, model))
        if last and parse_version(last, engine.name) < parse_version(newest, engine.name):
            return defaults.note("engine_version", last, f"newest release that {what}"), parse_version(last, engine.name)
        text = defaults.note("engine_version", newest, "newest release whose rules are known")
        return text, parse_version(text, engine.name)
    number = parse_version(asked, engine.name)
    if number[0] > parse_version(newest, engine.name)[0]:
        raise QuestionError(
            f"{engine.name} {asked[:40]} is no known release: rules are known from {oldest} to {newest}; "
            f"ask for one of those or leave the version out"
        )
    if number > parse_version(newest, engine.name):
        defaults.note("engine_version", asked, f"newer than the releases read: the rules of {newest} are used")
    elif number < parse_version(oldest, engine.name)[: len(number)]:
        defaults.note("engine_version", asked, f"older than the releases read: the rules of {oldest} are used")
    return asked, number


def context_of(question: Serving, model: Model, defaults: Defaults, *, cap: int | None = None) -> Number:
    """Tokens of the longest sequence: asked, or the model's; raises QuestionError beyond what the model can address.

    A longer rope (``max_positions``) moves that border, and an engine's own switch (``allow_longer_context``) takes it away.
    """
    positions = int(defaults.values.get("max_positions") or model.positions or 0)
    if question.context is None:
        longest = positions or 4096
        length = min(longest, cap or longest)
        return int(
            defaults.note(
                "context", length, _POSITIONS if positions == (model.positions or 0) else "positions of its longer rope"
            )
        )
    _, longest = extent(question.context)
    if positions and longest > positions and not defaults.values.get("allow_longer_context"):
        stretched = question.engine in STRETCHING
        raise QuestionError(
            f"context {longest:,} is beyond {model.id or model.family}'s {positions:,} positions: "
            f"ask for at most {positions:,}{', or say the positions of a longer rope with --max-positions N' * stretched}"
        )
    return question.context


def resolved(
    question: Serving, model: Model, card: Accelerator | None, defaults: Defaults, *, version: str, context: Number
) -> Resolved:
    """The question with nothing left open, what was assumed on the way, and what no rule covers."""
    concurrency = question.concurrency
    if concurrency is None:
        concurrency = defaults.note("concurrency", 1, "one request of the whole context")
    if question.concurrency is not None and (groups := request_groups(question, defaults.values)) > 1:
        concurrency = -(-concurrency // groups)
        if not is_array(concurrency):
            defaults.note(
                "concurrency", concurrency, f"of {question.concurrency} requests, on each of {groups} data-parallel ranks"
            )
    question, followed = cache_followed(question, model, version)
    classes, unknown = lacking(question.engine, version, model)
    return Resolved(
        question=question,
        model=model,
        card=card,
        version=version,
        context=context,
        concurrency=concurrency,
        options=defaults.values,
        assumed=(
            *_not_native(question, model, card),
            *classes,
            *unloadable(question.engine, version, _method(question, model), model),
            *assumed_class(card),
            *_shown_memory(card, defaults.values),
            *model.assumed,
            *followed,
            *defaults.assumed,
        ),
        unmodelled=(
            *(Unmodelled(what) for what in model.unmodelled),
            *unknown,
            *crossed(question, model, concurrency),
            *_through_plugin(question, card),
        ),
    )


def _method(question: Serving, model: Model) -> str:
    """How the weights are quantised: as asked, or as the checkpoint says."""
    if question.quant:
        return spoken_scheme(question.quant)
    return str((model.quantization or {}).get("quant_method") or "").lower()


def _through_plugin(question: Serving, card: Accelerator | None) -> tuple[Unmodelled, ...]:
    """What is not known of an engine on a chip that only a plugin knows."""
    plugin = plugin_of(question.engine, card)
    if not plugin or card is None:
        return ()
    return (
        Unmodelled(
            f"{plugin} runs vLLM on {card.name}: what it needs beside weights and cache, and its time, are taken as on other "
            "cards and were never measured here"
        ),
    )


def crossed(question: Serving, model: Model, concurrency: Number) -> tuple[Unmodelled, ...]:
    """Keys and values that layers keep of what an ear or an eye read, where the engine's pool has no rule for them here.

    transformers' EncoderDecoderCache has one, but no images are asked of it: only an image's are told.
    """
    layers = [(block.cross, block.count) for block in model.blocks if block.cross]
    sizes = {"audio": "positions", "vision": "tokens_per_image"}
    told = [t for t in model.towers if t.kind in sizes and (t.kind == "vision" or question.engine != "transformers")]
    tokens = round(sum(tower.facts.get(sizes[tower.kind], 0) for tower in told))
    if not layers or not tokens or is_array(concurrency):
        return ()
    elements = sum(kind.cache_elements * count for kind, count in layers)
    size = round(concurrency * tokens * elements * element_bytes(_narrow(model)))
    what = f"keys and values of {tokens:,} encoded tokens a request, which {sum(count for _, count in layers)} layers attend to"
    return (Unmodelled(what, size),)


def _narrow(model: Model) -> str:
    return "bfloat16" if model.dtype == "float32" else model.dtype


def _shown_memory(card: Accelerator | None, options: Mapping[str, Any]) -> tuple[Assumption, ...]:
    """What a DGX Spark shows depends on its system: logs to April 2026 print 119.70 GiB, with driver 580.142 and later 121.69."""
    if card is None or card.capability != GB10 or options.get("gpu_total_bytes") is not None:
        return ()
    because = "as its systems since May 2026 show; logs of older ones print 119.70 GiB"
    return (Assumption("visible_memory", f"{card.visible_bytes / GiB:.2f} GiB", because),)


def _not_native(question: Serving, model: Model, card: Accelerator | None) -> list[Assumption]:
    """What the card does not do by itself: the engine, or formats of the question; and what happens instead."""
    if card is None:
        return []
    refused = why_not(question.engine, card)
    found = [Assumption(question.engine, "refused", refused)] if refused else []
    said = model.quantization or {}
    method = next((m for m in (said.get("quant_algo"), said.get("quant_method")) if isinstance(m, str) and m), None)
    wanted = {question.dtype or model.dtype, question.quant or method, f"{question.kv_dtype}_kv" if question.kv_dtype else None}
    for feature in sorted(str(name).lower() for name in wanted if name):
        try:
            answer = capability(card, feature)
        except QuestionError:
            continue
        if answer.verdict in ("emulated", "refused"):
            found.append(_instead(question, feature, answer))
    return found


# Formats that TensorRT-LLM computes natively or not at all: FP8 from Ada, NVFP4 from Blackwell.
# Source: TensorRT-LLM docs, reference/support-matrix, Precision; TensorRT Model Optimizer docs, support matrix
_NOT_UNPACKED = frozenset({"fp8", "nvfp4"})


def _instead(question: Serving, feature: str, answer: Capability) -> Assumption:
    """What happens where the card lacks a feature: emulated, refused, or, for bfloat16 nobody asked for, computed in fp16."""
    if question.engine == "tensorrt_llm" and feature.removeprefix("modelopt-") in _NOT_UNPACKED:
        own = answer.because.partition(": ")[0]
        return Assumption(feature, "refused", f"{own}; TensorRT-LLM unpacks it in no kernel (support matrix, precision)")
    if feature not in ("bfloat16", "bf16") or question.engine not in ("vllm", "sglang") or answer.verdict != "emulated":
        return Assumption(feature, answer.verdict, answer.because)
    if (question.dtype or "").lower() == feature:
        return Assumption(feature, "refused", f"{answer.because}; asked for by name it is refused: use --dtype float16")
    return Assumption("dtype", "float16", f"{answer.because}; --dtype auto")


# The cache's type where nobody asks for one: a checkpoint's own scheme may name it, and then ``auto`` is not the model's type.
# Model Optimizer writes ``kv_cache_quant_algo`` and llm-compressor ``kv_cache_scheme`` beside the weights' scheme. vLLM follows
# both (utils/torch_utils.py resolve_kv_cache_dtype_string, model_executor/layers/attention/attention.py), SGLang the first alone
# (srt/model_executor/model_runner.py configure_kv_cache_dtype), TensorRT-LLM the first (_torch/model_config.py).
# vllm-project/vllm#29980; SGLang's rule stands in the report of sgl-project/sglang#12298, of October 2025
FOLLOWS: dict[str, Table[bool]] = {
    "vllm": (((0,), False), ((0, 14), True)),
    "sglang": (((0,), False), ((0, 5, 4), True)),
    "tensorrt_llm": (((0,), True),),
}
_LISTS_ONLY_MODELOPT = frozenset({"sglang", "tensorrt_llm"})


def cache_followed(question: Serving, model: Model, version: str) -> tuple[Serving, tuple[Assumption, ...]]:
    """The question with the cache's type that the checkpoint names, where none was asked for and the release follows it."""
    table = FOLLOWS.get(question.engine)
    if table is None or not model.quantization or not same_as_model(question.kv_dtype):
        return question, ()
    plan = storage_of(model, quant=question.quant, dtype=question.dtype or "auto").scheme.plan
    if plan is None or plan.kv_cache is None or not at(parse_version(version, question.engine), table):
        return question, ()
    if question.engine in _LISTS_ONLY_MODELOPT and not plan.name.startswith("modelopt"):
        return question, ()
    said = Assumption("kv_dtype", plan.kv_cache, "the checkpoint's own scheme names the cache's type; auto follows it")
    return msgspec.structs.replace(question, kv_dtype=plan.kv_cache), (said,)
