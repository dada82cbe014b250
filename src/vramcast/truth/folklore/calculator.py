"""The rules of thumb with one's own numbers: what the rule says, the exact answer for one's own model, and why they differ."""

from collections.abc import Callable
from typing import Any

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.models.describe import cache_bytes
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention
from vramcast.models.operations.counts import forward_flops
from vramcast.models.quantization import scheme_for, weight_bytes
from vramcast.models.reading import read_model
from vramcast.quantity import Quantity, bytes_, named
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import serving_speed
from vramcast.truth.folklore import Entry, Exact, Measured, entries, rules
from vramcast.truth.folklore.rules import Numbers
from vramcast.truth.folklore.training import largest_term, peak
from vramcast.units import GiB
from vramcast.workload import Serving

Said = tuple[str, Quantity]
_CONTEXT_BYTES = 1.3e9  # what the rules of F7 and F17 add


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the exact answer is asked with: a model and, for times, a card."""

    model: Model
    name: str
    numbers: Numbers
    card: Accelerator | None = None


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that can be asked. ``entry``: its folklore; ``asks``: the numbers it takes; ``says``: what it makes of them.

    ``exact``: the answer of this program to the question that the rule is used for.
    """

    entry: str
    name: str
    asks: tuple[str, ...]
    says: Callable[[Numbers], tuple[Said, ...]]
    exact: Callable[[Question], tuple[Exact, ...]] | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the rule: ``value`` in ``unit`` (bytes, seconds, FLOP or none), and its formula with the numbers in it."""

    label: str
    value: float
    unit: str
    why: str


class Reckoning(msgspec.Struct, frozen=True, kw_only=True):
    """The rule asked: its figures, the exact ones, measured ones, and why the rule is off.

    ``takes``: the flags of its numbers. ``of_reference``: the exact figures are those of the folklore page's own model, because
    no model was named.
    """

    id: str
    name: str
    rule: str
    asked: dict[str, float]
    takes: tuple[str, ...]
    said: tuple[Line, ...]
    exact: tuple[Exact, ...]
    of_reference: bool
    measured: tuple[Measured, ...]
    why: str


def reckon(name: str, *, model: str | None = None, card: Accelerator | None = None, **given: float) -> Reckoning:
    """The rule of that name or number, with these numbers; a model fills in its own shape.

    Raises QuestionError for an unknown rule or for a number that the rule does not ask.
    """
    rule = find_rule(name)
    for word in given:
        if word not in rule.asks:
            told = ", ".join(takes(rule)) or "no number"
            raise QuestionError(f"the rule {rule.name!r} does not ask {_flag(word)}: it takes {told}")
    found = read_model(model) if model else None
    numbers = _numbers(found, card, given)
    entry = _entry(rule.entry)
    question = Question(model=found, name=str(model), numbers=numbers, card=card) if found else None
    own = rule.exact(question) if question and rule.exact else ()
    return Reckoning(
        id=rule.entry,
        name=rule.name,
        rule=entry.rule,
        asked={word: getattr(numbers, word) for word in rule.asks},
        takes=takes(rule),
        said=tuple(Line(label=label, value=float(q.value), unit=q.unit_name, why=q.why) for label, q in rule.says(numbers)),
        exact=own or entry.exact,
        of_reference=not own,
        measured=entry.measured,
        why=entry.why,
    )


def find_rule(name: str) -> Rule:
    """By its name or its number in the folklore (F9). Raises QuestionError with the nearest."""
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-")
    for rule in RULES:
        if wanted in (rule.name, rule.entry.lower()):
            return rule
    raise unknown_name("rule", name, tuple(rule.name for rule in RULES))


def takes(rule: Rule) -> tuple[str, ...]:
    """The flags of the numbers that a rule asks."""
    return tuple(_FLAGS.get(word, f"--{word}") for word in rule.asks)


def _entry(number: str) -> Entry:
    return next(entry for entry in entries() if entry.id == number)


def _numbers(model: Model | None, card: Accelerator | None, given: dict[str, float]) -> Numbers:
    own: dict[str, Any] = {}
    if model is not None:
        mixer = next((m for b in model.blocks for m in b.mixers if isinstance(m, Attention)), None)
        widest = max((t.shape[-1] for b in model.blocks for t in b.tensors if t.role == "down"), default=Numbers().ffn)
        own = {"parameters": model.parameters, "hidden": model.hidden, "layers": model.layers, "ffn": widest}
        own |= {"heads": mixer.heads} if mixer else {}
    if card is not None:
        own |= {
            "card_bytes": card.visible_bytes,
            "bandwidth": card.bandwidth_bytes_per_s,
            "peak_flops": card.flops.get("bf16", 0),
        }
        if missing := [word for word in ("peak_flops", "bandwidth") if not (own[word] or word in given)]:
            flags = " and ".join({"peak_flops": "--peak-tflops", "bandwidth": "--bandwidth"}[word] for word in missing)
            raise QuestionError(f"{card.name} has no known dense bf16 rate or no bandwidth: give {flags} beside it")
    return msgspec.structs.replace(Numbers(), **(own | given))


_FLAGS = {
    "parameters": "--params", "bytes_each": "--bytes", "samples_per_s": "--samples-per-second", "paper_tokens_per_s": "--paper",
    "peak_flops": "--gpu or --peak-tflops", "bandwidth": "--gpu or --bandwidth", "card_bytes": "--gpu",
}  # fmt: skip


def _flag(word: str) -> str:
    return _FLAGS.get(word, f"--{word}")


def _weights(asked: Question) -> tuple[Exact, ...]:
    return tuple(
        Exact(label=f"weights in {q}", value=weight_bytes(asked.model, scheme_for(asked.model, quant=q)) / GiB)
        for q in ("fp32", "bf16", "llm.int8", "awq", "nf4")
    )


def _cache(asked: Question) -> tuple[Exact, ...]:
    n = asked.numbers
    size = n.batch * cache_bytes(asked.model, n.tokens) * n.bytes_each / 2
    return (Exact(label=f"cache of {n.batch} x {n.tokens:,} tokens", value=size / GiB),)


def _inference(asked: Question) -> tuple[Exact, ...]:
    n = asked.numbers
    dtype = "float32" if n.bytes_each == 4 else "bfloat16"
    answer = answer_of(
        Serving(model=asked.name, engine="transformers", dtype=dtype, context=n.tokens, concurrency=n.batch), model=asked.model
    )
    worst = max(answer.ranks, key=lambda r: r.needed_bytes)
    weights = sum(t.bytes for t in worst.peak.terms if t.name == "weights")
    return (
        Exact(label=f"transformers, {n.batch} x {n.tokens:,} tokens: allocated", value=worst.allocated_bytes / GiB),
        Exact(label="on top of the weights", value=100 * (worst.allocated_bytes / weights - 1), unit="%"),
    )


def _step(*recipes: tuple[str, dict[str, Any]]) -> Callable[[Question], tuple[Exact, ...]]:
    def exact(asked: Question) -> tuple[Exact, ...]:
        shape = {"seq": asked.numbers.tokens, "micro_batch": asked.numbers.batch}
        return tuple(peak(label, asked.name, **(shape | recipe)) for label, recipe in recipes)

    return exact


def _saved(asked: Question) -> tuple[Exact, ...]:
    shape: dict[str, Any] = {"seq": asked.numbers.tokens, "micro_batch": asked.numbers.batch}
    return (
        largest_term("saved by all layers, FlashAttention", "activations", asked.name, **shape, attention="flash"),
        largest_term("with eager attention", "activations", asked.name, **shape, attention="eager"),
        largest_term("with full checkpointing", "activations", asked.name, **shape, checkpointing="full"),
    )


def _states(asked: Question) -> tuple[Exact, ...]:
    return tuple(
        largest_term(f"{name} over fp32 weights", "optimizer", asked.name, optimizer=name, param_dtype="float32")
        for name in ("adamw", "adamw_8bit", "sgd_momentum")
    )


def _operations(asked: Question) -> tuple[Exact, ...]:
    n = asked.numbers
    prompt, token = (n.batch * forward_flops(asked.model, seq=seq) for seq in (n.tokens, 1))
    return (
        Exact(label=f"one pass over {n.tokens:,} tokens", value=prompt / 1e12, unit="TFLOP"),
        Exact(label="one token", value=token / 1e9, unit="GFLOP"),
    )


def _times(asked: Question) -> tuple[Exact, ...]:
    if asked.card is None:
        return ()
    n = asked.numbers
    question = Serving(
        model=asked.name, gpu=asked.card.name, context=2 * n.tokens, prompt=n.tokens, output=128, concurrency=n.batch
    )
    found = serving_speed(answer_of(question, model=asked.model, card=asked.card))
    return (
        Exact(label=f"vLLM on one {asked.card.name}: TTFT", value=found.ttft.seconds * 1e3, unit="ms"),
        Exact(label="TPOT", value=found.tpot.seconds * 1e3, unit="ms"),
    )


def _streams(asked: Numbers) -> Quantity:
    return named(asked.layers, "layers") * rules.stream(asked)


_SHAPE = ("hidden", "layers", "heads", "tokens", "batch")
_HF = ("HF Trainer over fp32 weights", {"param_dtype": "float32"})
_MEGATRON = ("Megatron", {"framework": "megatron"})
_BF16 = ("all in bf16", {"framework": "pytorch", "param_dtype": "bfloat16", "compute_dtype": "bfloat16"})
_FP32 = ("all in fp32", {"framework": "pytorch", "param_dtype": "float32", "compute_dtype": "float32"})


def _by_bytes(*told: tuple[str, float]) -> Callable[[Numbers], tuple[Said, ...]]:
    return lambda n: tuple((label, rules.weights(n, each)) for label, each in told)


RULES = (
    Rule(entry="F1", name="bytes-per-parameter", asks=("parameters",), exact=_weights,
         says=_by_bytes(("fp32", 4), ("fp16", 2), ("int8", 1), ("int4", 0.5))),
    Rule(entry="F2", name="two-tensors", asks=("parameters", "hidden", "tokens", "batch", "bytes_each"), exact=_inference,
         says=lambda n: (("weights and two tensors", rules.inputs_and_activations(n)),)),
    Rule(entry="F3", name="twenty-percent", asks=("parameters", "tokens", "batch", "bytes_each"), exact=_inference,
         says=lambda n: (("weights x 1.2", 1.2 * rules.weights(n)),)),
    Rule(entry="F4", name="model-memory-calculator", asks=("parameters", "bytes_each"), exact=_weights,
         says=lambda n: (("total", rules.weights(n)), ("training with Adam", 4 * rules.weights(n)))),
    Rule(entry="F5", name="kv-cache", asks=("hidden", "layers", "tokens", "batch", "bytes_each"), exact=_cache,
         says=lambda n: (("cache", rules.cache(n)),)),
    Rule(entry="F6", name="two-n", asks=("parameters",), exact=_weights, says=_by_bytes(("file", 2))),
    Rule(entry="F7", name="context", asks=(), says=lambda _: (("context and kernels", bytes_(_CONTEXT_BYTES)),)),
    Rule(entry="F8", name="which-card", asks=("parameters",), exact=_weights,
         says=_by_bytes(("fp32", 4), ("fp16", 2), ("int8", 1), ("int4", 0.5))),
    Rule(entry="F9", name="16-phi", asks=("parameters", "tokens", "batch"), exact=_step(_FP32, _BF16),
         says=_by_bytes(("all in fp32", 16), ("all in fp16", 8))),
    Rule(entry="F10", name="16-bytes", asks=("parameters", "tokens", "batch"), exact=_step(_HF, _MEGATRON, _BF16),
         says=_by_bytes(("mixed precision", 16), ("in practice", 20))),
    Rule(entry="F11", name="14-bytes", asks=("parameters", "hidden", "layers", "tokens", "batch", "bytes_each"),
         exact=_step(_MEGATRON),
         says=lambda n: (("states", rules.weights(n, 14)), ("with the residual stream", rules.weights(n, 14) + _streams(n)))),
    Rule(entry="F12", name="mixed-precision", asks=("parameters", *_SHAPE), exact=_step(_HF, _MEGATRON, _BF16),
         says=lambda n: (("total", rules.mixed_precision(n)),)),
    Rule(entry="F13", name="activations", asks=_SHAPE, exact=_saved,
         says=lambda n: (("4 s b h L (34 + s a / h)", rules.doubled_paper_activations(n)),
                         ("as published", rules.paper_activations(n)))),
    Rule(entry="F14", name="two-widths", asks=("hidden", "ffn", "tokens", "layers", "bytes_each"), exact=_saved,
         says=lambda n: (("one sequence", rules.two_widths(n)),)),
    Rule(entry="F15", name="residual-stream", asks=("hidden", "layers", "tokens", "batch", "bytes_each"), exact=_saved,
         says=lambda n: (("one layer", rules.stream(n)), ("all layers", _streams(n)))),
    Rule(entry="F16", name="optimizer-bytes", asks=("parameters",), exact=_states,
         says=_by_bytes(("AdamW", 8), ("8-bit AdamW", 2), ("SGD with momentum", 4))),
    Rule(entry="F17", name="int8-training", asks=("parameters", "tokens", "batch"),
         exact=_step(("LLM.int8 with LoRA", {"method": "lora", "quant": "llm.int8"})),
         says=lambda n: (("total", rules.weights(n, 4) + bytes_(_CONTEXT_BYTES, "of context")),)),
    Rule(entry="F18", name="lora-gradients", asks=("parameters", "tokens", "batch"),
         exact=_step(("LoRA", {"method": "lora"})), says=_by_bytes(("weights and gradients", 4))),
    Rule(entry="F20", name="cards-for-weights", asks=("parameters", "card_bytes"), exact=_weights,
         says=lambda n: (("cards", rules.weights(n, 2) / bytes_(n.card_bytes, "of a card")),)),
    Rule(entry="F22", name="divide-by-workers", asks=("parameters", "gpus"), exact=_step(_MEGATRON),
         says=lambda n: (("16 bytes, divided", rules.weights(n, 16) / named(n.gpus, "workers")),)),
    Rule(entry="F23", name="two-n-flops", asks=("parameters", "tokens", "batch"), exact=_operations,
         says=lambda n: (("prefill", rules.prefill_flops(n)), ("one token", rules.decode_flops(n)))),
    Rule(entry="F24", name="ttft-tpot", exact=_times,
         asks=("parameters", "tokens", "batch", "bytes_each", "peak_flops", "bandwidth"),
         says=lambda n: (("TTFT", rules.first_token_s(n)), ("TPOT", rules.next_token_s(n)))),
    Rule(entry="F25", name="flops-ratio", asks=("tflops", "peak_flops"),
         says=lambda n: (("share of the peak", rules.share_of_peak(n)),)),
    Rule(entry="F26", name="throughput-ratio", asks=("samples_per_s", "tokens", "gpus", "paper_tokens_per_s"),
         says=lambda n: (("tokens/s of one card", rules.tokens_per_card(n)), ("share of the paper's", rules.share_of_paper(n)))),
)  # fmt: skip
"""The rules that take numbers. F19, F21 and F27 to F29 are quoted without a formula: the folklore page has them."""
