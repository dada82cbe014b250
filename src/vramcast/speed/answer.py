"""Speed of a serving question: times to and per token, tokens per second, what binds, each opened to its formulas."""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.ledger import Assumption, Term
from vramcast.models.inventory import by_identity
from vramcast.models.operations import Batch
from vramcast.serving.engines.base import RUNS, Answer, Resolved
from vramcast.serving.layers import encodes_only
from vramcast.speed.closed_form import Steady, steady
from vramcast.speed.load import ACCEPTANCE, Drafting, Load
from vramcast.speed.placing import HOST_BANDWIDTH, deployment_of, replicas_of
from vramcast.speed.scales import Scales
from vramcast.speed.scales import load as load_profile
from vramcast.speed.step import Step
from vramcast.units import time_text
from vramcast.workload import Serving, Traffic

PROMPT, OUTPUT = 1024, 256
# Lengths of a closed loop vary so far to either side where nobody says otherwise, as InferenceX draws them
# (--random-range-ratio 0.8). Clients who all send one length are another case: they move in waves.
LENGTH_SPREAD = 0.1
# From this share of the largest rate on, an error of a tenth in a step's time decides whether a queue grows.
NEAR = 0.9
_DRAFTING = 8  # sequences that draft together where a load tells a rate and not how many


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """A server's steady state under a load: figures of one user and of all, and the ledgers of its two kinds of step.

    ``tokens_per_s``: output tokens of all users on all cards; ``user_tokens_per_s``: of one, 1 / TPOT.
    ``prefill_tokens_per_s``: of one prompt alone. ``most_per_s``: the largest rate of requests that keeps up. ``waves``: of a
    closed loop whose requests vary in length, what the same clients would see if all were alike. ``generates``: False for a model
    that makes a vector of a text; ``ttft`` is the time to it then, and figures of tokens mean nothing.
    """

    ttft: Term
    tpot: Term
    tokens_per_s: float
    prefill_tokens_per_s: float
    requests_per_s: float
    most_per_s: float
    batch: float
    cards: int
    bound: str
    load: Load
    waves: Steady | None = None
    generates: bool = True
    assumed: tuple[Assumption, ...] = ()

    @property
    def user_tokens_per_s(self) -> float:
        """Tokens a second that one user sees."""
        return 1 / self.tpot.seconds

    @property
    def state(self) -> str:
        """``saturated``: more requests come than leave; ``near saturation``: so close to it that the forecast cannot tell."""
        share = self.load.rate_per_s / self.most_per_s
        return "saturated" if share > 1 else "near saturation" if share >= NEAR else "steady"

    @property
    def e2e_s(self) -> float:
        """Seconds from a request to its last token."""
        return self.ttft.seconds + self.tpot.seconds * max(0.0, self.load.output - 1)


_LONGEST = 2**24  # tokens of a request to a model without positions of its own; planning.serving searches as far


_ALL = "what the model's positions or the context leave"


def load_of(question: Serving, concurrency: int, *, most: int = _LONGEST) -> tuple[Load, tuple[Assumption, ...]]:
    """The load a question describes, and the lengths that were assumed for it, which are together at most ``most`` tokens."""
    traffic, options = question.traffic, question.options
    prompt, output = _lengths(question, most)
    assumed = tuple(
        Assumption(name, value, f"{'a typical length' if value == usual else _ALL}: the answer depends on it, say yours")
        for name, value, usual in (("prompt", prompt, PROMPT), ("output", output, OUTPUT))
        if getattr(question, name) is None
    )
    if traffic.profile:
        known = load_profile(traffic.profile)
        errors = f"median error {known.error_before:.0%} before, {known.error_after:.0%} after"
        said = f"{known.runs} figures measured on {known.card}: {errors}"
        assumed += (Assumption("profile", known.name, said),)
    drafted = int(options.get("num_speculative_tokens") or 0)
    drafting = (
        Drafting(tokens=drafted, acceptance=ACCEPTANCE if traffic.acceptance is None else traffic.acceptance) if drafted else None
    )
    if drafted and traffic.acceptance is None:
        assumed += (Assumption("acceptance", ACCEPTANCE, "share of drafted tokens accepted: depends on the text, say yours"),)
    load = Load(
        prompt=prompt,
        output=output,
        concurrency=0 if traffic.rate else concurrency,
        rate_per_s=traffic.rate or 0.0,
        cached=min(0.999, traffic.cached),
        spread=0.0 if traffic.rate else LENGTH_SPREAD if traffic.spread is None else traffic.spread,
        drafting=drafting,
    )
    return load, assumed


def _lengths(question: Serving, most: int) -> tuple[int, int]:
    """Prompt and output as asked; a length that nobody told is the usual one, or what ``most`` leaves for it."""
    prompt, output = question.prompt, question.output
    if output is None:
        output = min(OUTPUT, max(1, most - prompt if prompt is not None else most * OUTPUT // (PROMPT + OUTPUT)))
    return min(PROMPT, max(1, most - output)) if prompt is None else prompt, output


def checked_load(answer: Answer, concurrency: int) -> tuple[Load, tuple[Assumption, ...]]:
    """The load as ``load_of``. Raises QuestionError for lengths beyond the context."""
    resolved, more, seen = answer.resolved, tuple[Assumption, ...](), 0
    if resolved.question.traffic.images:
        from vramcast.speed.towers import images_in

        images, more = images_in(resolved.model, resolved.question.traffic)
        seen = images.count * images.tokens if images else 0
    load, assumed = load_of(_of_vectors(resolved), concurrency, most=max(1, longest(resolved) - seen))
    load = msgspec.structs.replace(load, prompt=load.prompt + seen)
    check_lengths(resolved, load.prompt, load.output)
    return load, assumed + more


def longest(resolved: Resolved) -> int:
    """Tokens of the longest request; the one token in whose place an encoder makes its vector is none of the model's own."""
    told = resolved.question.context is not None
    return (resolved.context if told else resolved.model.positions or _LONGEST) + encodes_only(resolved.model)


def check_lengths(resolved: Resolved, prompt: float, output: float) -> None:
    """Raises QuestionError for a request longer than the context asked for, or than the model's positions."""
    most, encodes = longest(resolved), encodes_only(resolved.model)
    if prompt + output <= most:
        return
    asked = f"prompt {prompt:,.0f} is" if encodes else f"prompt {prompt:,.0f} and output {output:,.0f} are"
    context = f"the context of {most - encodes:,}: raise --context, or shorten them"
    told = resolved.question.context is not None
    raise QuestionError(f"{asked} longer than " + (context if told else f"the {most - encodes:,} tokens that the model takes"))


def _of_vectors(resolved: Resolved) -> Serving:
    """The question; an encoder's vector comes with the last step of the text. Raises QuestionError for more output of one."""
    if not encodes_only(resolved.model):
        return resolved.question
    if (resolved.question.output or 1) > 1:
        raise QuestionError(f"{resolved.model.id or resolved.model.family} makes a vector and no tokens: leave --output out")
    return msgspec.structs.replace(resolved.question, output=1)


def step_of(answer: Answer, *, scales: Scales | None = None) -> Step:
    """The steps of one replica of the server that the answer is about.

    ``scales``: the machine's own factors; those of the profile that the question names when None.
    """
    traffic = answer.resolved.question.traffic
    own = (load_profile(traffic.profile).scales if traffic.profile else Scales()) if scales is None else scales
    factors = (own.host, own.bandwidth, own.compute)
    return _step(answer, traffic.link_bytes_per_s or 0.0, traffic.host_bandwidth_bytes_per_s or HOST_BANDWIDTH, factors)


@by_identity(most=64)
def _step(answer: Answer, link: float, host: float, factors: tuple[float, float, float]) -> Step:
    made = deployment_of(answer, link_bytes_per_s=link, host_bandwidth_bytes_per_s=host)
    scales = Scales(host=factors[0], bandwidth=factors[1], compute=factors[2])
    return Step(msgspec.structs.replace(made, scales=scales))


def serving_speed(answer: Answer, *, scales: Scales | None = None) -> Speed:
    """The speed of a server by the closed form; ``scales`` as for step_of.

    Raises UnmodelledError where no card is named or the engine or card has no law, QuestionError for lengths beyond the context.
    """
    resolved = answer.resolved
    load, assumed = checked_load(answer, resolved.question.concurrency or 1)
    step = step_of(answer, scales=scales)
    assumed += (*_of_another(resolved.question.engine), *_of_host(step, resolved.question))
    load, untimed = with_drafting(step, load, resolved.question.options)
    load, encoded = with_images(step, load, resolved.question.traffic)
    assumed += untimed
    copies = replicas_of(resolved) * resolved.question.parallel.pp
    found = steady(step, load, replicas=copies)
    busy = copies if load.rate_per_s else min(copies, max(1.0, load.concurrency))  # one client keeps one stage or copy busy
    requests = found.requests_per_s * busy
    generates = not encodes_only(resolved.model)
    waves = generates and load.concurrency > copies and load.spread
    alike = msgspec.structs.replace(load, spread=0.0) if waves else None
    decode = Batch(decodes=max(1.0, found.batch), decode_past=load.prompt + load.output / 2, decode_tokens=load.verified)
    return Speed(
        ttft=_ttft_term(step, load, found, encoded),
        tpot=_tpot_term(step, decode, found, load),
        tokens_per_s=requests * load.output,
        prefill_tokens_per_s=load.prompt * (1 - load.cached) / found.prefill_s,
        requests_per_s=requests,
        most_per_s=found.most_per_s * copies,
        batch=found.batch * busy if generates or not load.rate_per_s else requests * found.ttft_s,  # a vector is never decoded
        cards=step.on.split.ranks * copies,
        bound=bound(step, decode, found),
        load=load,
        waves=steady(step, alike, replicas=copies, largest=False) if alike else None,
        generates=generates,
        assumed=assumed,
    )


def _of_another(engine: str) -> tuple[Assumption, ...]:
    """A program that runs another's kernels takes its times."""
    return (Assumption("speed", RUNS[engine], f"whose kernels {engine} runs"),) if engine in RUNS else ()


def _of_host(step: Step, question: Serving) -> tuple[Assumption, ...]:
    """The host's memory, where part of the model lies in it and nobody said how fast it is."""
    places = step.on.places
    if question.traffic.host_bandwidth_bytes_per_s or not (places.layers or places.experts):
        return ()
    said = "two channels of DDR5-4800; weights on the host are read at about 60 % of it"
    return (Assumption("host_bandwidth", f"{HOST_BANDWIDTH / 1e9:g} GB/s", said),)


def with_drafting(step: Step, load: Load, options: Mapping[str, Any]) -> tuple[Load, tuple[Assumption, ...]]:
    """The load with the seconds of a drafted token: one layer and the head for draft layers (MTP, EAGLE, Medusa).

    Nothing for tokens looked up in the prompt; a draft model of its own is not timed, which the answer says.
    """
    if load.drafting is None:
        return load, ()
    method = str(options.get("speculative_method") or "")
    if method.startswith(("ngram", "suffix")):
        return load, ()
    if "draft_model" in method:
        return load, (Assumption("drafting", 0.0, "the draft model's own steps are not timed: times are lower ends"),)
    one = Batch(decodes=max(1.0, float(load.concurrency or _DRAFTING)), decode_past=load.prompt + load.output / 2)
    ledger = step.ledger(one)
    apart = sum(term.seconds for term in ledger.terms if term.name in ("head", "host", "launch"))
    head = sum(term.seconds for term in ledger.terms if term.name == "head")
    seconds = head + (ledger.seconds - apart) / step.on.model.layers
    return msgspec.structs.replace(load, drafting=msgspec.structs.replace(load.drafting, draft_s=seconds)), ()


def with_images(step: Step, load: Load, traffic: Traffic) -> tuple[Load, tuple[Term, ...]]:
    """The load with the seconds that a prompt's images take in their tower, and the term that says so."""
    if not traffic.images:
        return load, ()
    from vramcast.speed.towers import images_in, tower_term

    images, _ = images_in(step.on.model, traffic)
    assert images is not None
    term = tower_term(step, images)
    return msgspec.structs.replace(load, encode_s=term.seconds), (term,)


def bound(step: Step, decode: Batch, found: Steady) -> str:
    """What most of the time goes to: bandwidth, compute, launch, unit, link or host; prompts count as their own step's."""
    shares = {name: seconds * (1 - found.busy) for name, seconds in step.binding(decode).items()}
    if found.busy > 0:
        prompt = step.binding(Batch(prefills=1, prefill_tokens=min(1024, step.on.chunk_tokens)))
        whole, own = sum(prompt.values()), sum(shares.values())
        for name, seconds in prompt.items():
            shares[name] = shares.get(name, 0.0) + seconds / whole * own * found.busy / (1 - found.busy)
    return max(shares, key=lambda name: shares[name])


def _ttft_term(step: Step, load: Load, found: Steady, encoded: tuple[Term, ...]) -> Term:
    """Way in, waiting, and the prompt's own steps opened to their operators."""
    rule = step.on.engine
    new = load.prompt * (1 - load.cached)
    prefill = step.ledger(Batch(prefills=1, prefill_tokens=max(1.0, new), prefill_past=load.prompt * load.cached))
    way_in = rule.ingest_s + rule.ingest_token_s * new
    why = f"{time_text(rule.ingest_s)} + {new:,.0f} tokens x {time_text(rule.ingest_token_s)} ({rule.engine})"
    parts = [
        Term(name="ingestion", seconds=way_in, why=why, source=rule.source),
        *encoded,
        prefill.renamed("prefill"),
    ]
    waiting = found.ttft_s - sum(part.seconds for part in parts)
    if waiting > 1e-9:
        why_waits = f"for the running step, decodes in the same step and other prompts, which take {found.busy:.0%} of the time"
        parts.insert(1, Term(name="waiting", seconds=waiting, why=why_waits, source="speed/closed_form.py"))
    return Term.total("ttft", parts, why=lambda: textbook(step, Batch(prefills=1, prefill_tokens=max(1.0, new)), found.ttft_s))


def _tpot_term(step: Step, decode: Batch, found: Steady, load: Load) -> Term:
    """A step of decodes opened to its operators, and what other users' prompts add to it."""
    ledger = step.ledger(decode).renamed("decode_step")
    parts = [ledger]
    if load.per_step > 1:
        why = f"a step yields {load.per_step:.2f} tokens of each sequence"
        parts.append(Term(name="drafting", seconds=found.decode_s - ledger.seconds, why=why, source="arXiv 2211.17192"))
    prompts = found.tpot_s - sum(t.seconds for t in parts)
    if prompts > 1e-9:
        why = f"prompts of other users take {found.busy:.0%} of the time, {time_text(found.prompt_s)} each"
        parts.append(Term(name="prompts", seconds=prompts, why=why, source="speed/closed_form.py"))
    return Term.total("tpot", parts, why=lambda: textbook(step, decode, found.tpot_s))


def textbook(step: Step, batch: Batch, seconds: float) -> str:
    """The rule of thumb beside the answer: FLOPs over the peak, bytes over the bandwidth, of one rank."""
    found = step.on.operations
    own = batch.times(1 / step.ranks)
    flops = sum(float(one.count * one.flops(own)) for one in found)
    moved = sum(float(one.count * one.read_bytes(own)) for one in found)
    card = step.on.card
    peak = card.flops.get("bf16") or card.flops.get("fp16") or max(card.flops.values(), default=1.0)
    rule = flops / peak + moved / card.bandwidth_bytes_per_s
    return (
        f"textbook: {flops / 1e12:,.3g} TFLOP / {peak / 1e12:,.0f} TFLOP/s + {moved / 1e9:,.3g} GB / "
        f"{card.bandwidth_bytes_per_s / 1e9:,.0f} GB/s = {time_text(rule)}, {rule / seconds:.0%} of the answer"
    )


def as_block(speed: Speed, intervals: dict[str, Any]) -> dict[str, Any]:
    """The contract's ``speed`` object; ``terms`` are values, turned to JSON with all others. No figure of tokens for vectors."""
    waves = {"waves": {"ttft_s": speed.waves.ttft_s, "tpot_s": speed.waves.tpot_s}} if speed.waves else {}
    tokens = {
        "tpot_s": speed.tpot.seconds,
        "e2e_s": speed.e2e_s,
        "tokens_per_s": speed.tokens_per_s,
        "tokens_per_s_per_gpu": speed.tokens_per_s / speed.cards,
        "tokens_per_s_per_user": speed.user_tokens_per_s,
    }
    return {
        "ttft_s": speed.ttft.seconds,
        **(tokens if speed.generates else {}),
        "prefill_tokens_per_s": speed.prefill_tokens_per_s,
        "requests_per_s": speed.requests_per_s,
        "largest_rate_per_s": speed.most_per_s,
        "batch": speed.batch,
        "state": speed.state,
        "bound": speed.bound,
        **waves,
        "intervals": {name: bar for name, bar in intervals.items() if speed.generates or name == "ttft_s"},
        "terms": (speed.ttft, speed.tpot) if speed.generates else (speed.ttft,),
    }
