"""Rows of measured speed: a closed loop of clients, one static batch, one user, or a saturated server, beside their forecast.

A closed loop is simulated as its benchmark runs it: all clients start together and send ten requests each, or as many as the row
tells, so the first wave's queue is part of the mean (InferenceX: --num-prompts 10 x --max-concurrency). What a source's own
public scripts set and its table leaves out is in ``speed_recipes``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from vramcast.errors import VramcastError
from vramcast.models.inventory import Block, Model
from vramcast.models.layers import GatedDeltaNet, Mamba2
from vramcast.models.operations import Batch, Split
from vramcast.models.quantization import scheme_for
from vramcast.models.quantization.scheme import Scheme
from vramcast.serving.engines.base import answer_of
from vramcast.speed.answer import with_drafting
from vramcast.speed.closed_form import steady
from vramcast.speed.deployment import Deployment
from vramcast.speed.disaggregation import Pools, simulate_pools
from vramcast.speed.engines import EngineSpeed, engine_speed
from vramcast.speed.load import ACCEPTANCE, Drafting, Load, Request, drawn
from vramcast.speed.placing import deployment_of
from vramcast.speed.simulation import Server
from vramcast.speed.step import Step
from vramcast.speed.streams import stream
from vramcast.speed.transfer import usual_rate
from vramcast.truth.judgement import Judgement, Pair, Unexpressed
from vramcast.truth.rows import speed_words as words
from vramcast.truth.rows.speed_recipes import SERVED, cache_dtype, drafted, inference_x, mixes_chunks, recipe
from vramcast.truth.speed_bars import FEW, speed_interval, users
from vramcast.workload import Parallel, Serving

Row = dict[str, Any]

# Engines beside those that cut layers over cards; others put layers on one card after the other.
_CUT = ("fastertransformer", "gpt_fast", "gpt_fast_eager", "lmdeploy")
_SIMULATED, _ALONE, _FEW = 10, 200, 512
_TOLD = (("eager", "enforce_eager"), ("chunk_tokens", "max_num_batched_tokens"), ("max_seqs", "max_num_seqs"))
_BLOCK_TOKENS = 16  # of a cache: a prompt's last one is always computed
_OTHER = {"prefill": "decode_", "decode": "prefill_"}
_STEPS: dict[bytes, Step] = {}


def judge(row: Row) -> Judgement:
    """The row beside its forecast. Raises Unexpressed with the reason when it cannot be asked."""
    settings, measured = row["settings"], row["measured"]
    if settings.get("scenario"):
        raise Unexpressed("MLPerf: the mean length of prompts is not printed")
    if settings.get("offload"):
        raise Unexpressed("weights or cache on disk and host: no rule of that engine's transfers")
    try:
        pools = _pools(row) if settings.get("mode") == "disagg" else None
        step = pools.decode if pools else _step(row)
        figures = tuple(_in_pools(row, pools) if pools else figures_of(row, step, measured, settings))
    except VramcastError as error:
        raise Unexpressed(str(error)) from error
    if not figures:
        raise Unexpressed(f"no forecast of {', '.join(sorted(measured))} from these settings")
    keys = _keys(row, step)
    barred = tuple(_barred(pair, step.on.engine.engine, keys["load"]) for pair in figures)
    return Judgement(id=row["id"], keys=keys, pairs=barred)


def _barred(pair: Pair, engine: str, load: str) -> Pair:
    """The pair with the bar that an answer of its kind prints."""
    bar = speed_interval(pair.measure, pair.predicted, engine, load)
    return replace(pair, low=bar.low, high=bar.high) if bar else pair


def figures_of(row: Row, step: Step, measured: Row, settings: Row) -> Any:
    """Pairs of forecast and measured figures that the row holds, for a step of its deployment."""
    clients = settings.get("concurrency")
    served = measured.keys() & {"ttft_ms", "tpot_ms"}
    if isinstance(clients, int) and settings.get("osl") and (served or _counted(row, step)):
        yield from _closed_loop(row, step, clients)
    elif settings.get("request_rate") and served and settings.get("osl"):
        yield from _open_loop(row, step)
    elif "decode_tokens_per_s" in measured:
        yield from _one_user(step, measured, settings)
    elif settings.get("isl") and settings.get("osl") and isinstance(settings.get("batch_size"), int):
        yield from _static(step, measured, settings)
    elif "offline" in str(clients) or "max batch" in str(clients):
        yield from _saturated(step, measured, settings)
    elif "ttft_ms" in measured and settings.get("isl"):
        batch = Batch(prefills=settings.get("batch_size") or 1, prefill_tokens=settings["isl"])
        yield Pair(measure="ttft", predicted=step.seconds(batch), measured=measured["ttft_ms"] / 1e3)


def _counted(row: Row, step: Step) -> bool:
    """Whether the row has a server's output tokens a second alone, of clients whose requests are so many as it tells."""
    settings = row["settings"]
    told = bool(settings.get("isl")) and not settings.get("batch_size")
    return "output_tokens_per_s" in row["measured"] and told and step.on.engine.engine in SERVED


def _closed_loop(row: Row, step: Step, clients: int) -> Any:
    """Means over the requests that the benchmark sends; one client's are many, so that their mean lengths are the row's."""
    load, _ = with_drafting(step, _load(row, clients, mixes=step.on.engine.mixes), {})
    count = _ALONE if clients == 1 else row["settings"].get("num_requests") or _SIMULATED * clients
    load = replace(load, cached=_cached(row, step, count))
    served = Server(step, load).run(_sent(row, load, count), clients=clients)
    yield from _means(served, row["measured"])
    if _counted(row, step):
        rate = sum(one.output for one in served) / max(one.arrival_s + one.e2e_s for one in served)
        yield Pair(measure="tokens_per_s", predicted=rate, measured=row["measured"]["output_tokens_per_s"])


def _means(served: Sequence[Any], measured: Row) -> Iterator[Pair]:
    """Mean times over the requests of a run, beside those that the row holds."""
    for name, key in (("ttft", "ttft_ms"), ("tpot", "tpot_ms")):
        if key in measured:
            value = sum(getattr(one, f"{name}_s") for one in served) / len(served)
            yield Pair(measure=name, predicted=value, measured=measured[key] / 1e3)


def _open_loop(row: Row, step: Step) -> Any:
    """Means over the requests that arrive at random (Poisson) at the row's rate, as many as it tells."""
    settings = row["settings"]
    count = settings.get("num_requests") or _ALONE
    load = Load(
        prompt=settings["isl"], output=settings["osl"], rate_per_s=settings["request_rate"], spread=settings.get("spread", 0.0),
        cached=_cached(row, step, count),
    )  # fmt: skip
    yield from _means(Server(step, load).run(drawn(load, count)), row["measured"])


def _cached(row: Row, step: Step, count: int) -> float:
    """Share of each prompt that a pass of the same prompts left in the prefix cache, where the row tells of one (``repeated``).

    ``prompts``: how many different prompts were sent, where the row tells that they are fewer than its requests.

    Benchmarks draw their prompts from a fixed seed, so that each level of a sweep but the first sends prompts that were sent
    before. The least recently used blocks go first: a pass that the cache does not hold whole leaves nothing to its successor.
    """
    settings = row["settings"]
    kept = min(count, settings.get("prompts") or count)
    warm = settings.get("repeated") or kept < count
    if not warm or step.on.pool_tokens < kept * (settings["isl"] + settings["osl"]):
        return 0.0
    return max(0.0, 1 - _BLOCK_TOKENS / float(settings["isl"]))


def _sent(row: Row, load: Load, count: int) -> Iterator[Request]:
    """The load's requests, in whose prompts is cached what earlier runs of the row's source sent to the same server.

    ``sent_before``: so many of them, from the first on, were sent whole; ``prefix``: tokens that the others share with prompts
    sent before. sglang.bench_serving draws its prompts from one seed, each a text repeated or cut to its length
    (sample_random_requests, v0.5): a longer run of the same lengths begins with the prompts of the shorter one, and one of
    other lengths with their texts.
    """
    whole, prefix = row["settings"].get("sent_before", 0), row["settings"].get("prefix", 0)
    one_run = row["settings"].get("num_requests") or count
    for index, request in enumerate(drawn(load, count)):
        held = request.prompt - 1 if index % one_run < whole else min(prefix, request.prompt - 1)
        yield replace(request, cached=max(request.cached, held))


def _pools(row: Row) -> Pools:
    """Prefill and decode workers of a row: each side's settings are those of a server."""
    if not row["settings"].get("decode_num_workers"):
        raise Unexpressed("prefill and decode pools apart: the row does not say how many workers each has")
    sides = {}
    for side in ("prefill", "decode"):
        own = {k.removeprefix(f"{side}_"): v for k, v in row["settings"].items() if not k.startswith(_OTHER[side])}
        sides[side] = (_step(row | {"settings": own, "n_gpus": None}), int(own.get("num_workers") or 1))
    (prefill, first), (decode, then) = sides["prefill"], sides["decode"]
    rate, _ = usual_rate(prefill.on, decode.on, first * prefill.on.ranks + then * decode.on.ranks)
    return Pools(prefill=prefill, decode=decode, prefill_workers=first, decode_workers=then, rate_bytes_per_s=rate)


def _in_pools(row: Row, pools: Pools) -> Any:
    clients = row["settings"]["concurrency"]
    load = _load(row, clients, mixes=True)
    load = replace(load, cached=_cached(row, pools.prefill, row["settings"].get("num_requests") or _SIMULATED * clients))
    yield from _means(simulate_pools(pools, load, count=_SIMULATED * clients, all_of_it=True), row["measured"])


def _load(row: Row, clients: int, *, mixes: bool) -> Load:
    """Lengths of InferenceX are drawn from 0.8 to 1 of the nominal ones (--random-range-ratio 0.8).

    A row that tells its spread has it. Others state one length. An engine that runs prompts first brings its clients back into
    step with every batch of prompts; in one that ``mixes`` prompts with decodes they drift apart (real clients jitter), as 5 %
    of length to either side makes them. SGLang under --enable-mixed-chunk keeps the step of equal lengths.
    """
    prompt, output = row["settings"]["isl"], row["settings"]["osl"]
    if inference_x(row):
        tokens = drafted(row)
        drafting = Drafting(tokens=tokens, acceptance=ACCEPTANCE) if tokens else None
        return Load(prompt=prompt * 0.9, output=output * 0.9, concurrency=clients, spread=0.111, drafting=drafting)
    spread = row["settings"].get("spread", 0.05 if mixes and not mixes_chunks(row) else 0.0)
    return Load(prompt=prompt, output=output, concurrency=clients, spread=spread)


def _one_user(step: Step, measured: Row, settings: Row) -> Any:
    """llama-bench and its like: tokens generated after nothing or a short prompt, and a prompt's tokens over its time."""
    tokens = _length(settings.get("tokens") or settings.get("osl")) or 128
    past = _length(settings.get("isl")) + tokens / 2
    count = settings.get("batch_size") or 1
    seconds = step.seconds(Batch(decodes=count, decode_past=past))
    yield Pair(measure="tokens_per_s", predicted=count / seconds, measured=measured["decode_tokens_per_s"])
    if measured.get("prefill_tokens_per_s"):
        new = _length(settings.get("isl") or settings.get("tokens")) or 512
        prompt = step.seconds(Batch(prefills=1, prefill_tokens=new))
        yield Pair(measure="prefill_tokens_per_s", predicted=new / prompt, measured=measured["prefill_tokens_per_s"])


def _length(value: Any) -> int:
    """A number of tokens; 0 where the row has words."""
    return value if isinstance(value, int) else 0


def _static(step: Step, measured: Row, settings: Row) -> Any:
    """One batch, prefilled and decoded together: its output tokens over the whole time."""
    count, prompt, output = settings["batch_size"], settings["isl"], settings["osl"]
    whole = _static_s(step, count, prompt, output)
    value = measured.get("output_tokens_per_s")
    if value is None and measured.get("tpot_ms_incl_prefill"):
        value = count * 1e3 / measured["tpot_ms_incl_prefill"]
    if value is None and measured.get("e2e_latency_ms"):
        value = count * output * 1e3 / measured["e2e_latency_ms"]
    if value is not None:
        yield Pair(measure="tokens_per_s", predicted=count * output / whole, measured=value)


def _static_s(step: Step, count: int, prompt: float, output: float) -> float:
    prefill = step.seconds(Batch(prefills=count, prefill_tokens=max(1, prompt)))
    return float(prefill + max(0, output - 1) * step.seconds(Batch(decodes=count, decode_past=prompt + output / 2)))


def _saturated(step: Step, measured: Row, settings: Row) -> Any:
    """A server with a queue that never empties: the largest rate of the closed form; few requests that come at once are run."""
    if "output_tokens_per_s" not in measured:
        return
    count, load = settings.get("num_requests"), Load(prompt=settings["isl"], output=settings["osl"], concurrency=1)
    if isinstance(count, int) and count <= _FEW and step.on.pp == 1:
        served = Server(step, load).run(drawn(load, count), clients=count)
        rate = sum(one.output for one in served) / max(one.arrival_s + one.e2e_s for one in served)
    else:
        rate = steady(step, load).most_per_s * settings["osl"] * step.on.pp
    yield Pair(measure="tokens_per_s", predicted=rate, measured=measured["output_tokens_per_s"])


def _step(row: Row) -> Step:
    """Steps of the row's deployment, kept between rows that share it."""
    made = deployment_of_row(row)
    names = {
        name: getattr(made, name) for name in ("version", "split", "pp", "kv_dtype", "state_bytes", "backends", "chunk_tokens")
    }
    more = (
        made.max_seqs,
        made.eager,
        made.poll_steps,
        made.hops,
        made.pool_tokens,
        made.model.id,
        made.card.id,
        made.engine.engine,
        made.engine.mixes,
        made.scheme.name,
    )
    key = msgspec.json.encode((names, more, made.part_bits))
    if key not in _STEPS:
        if len(_STEPS) > 64:
            _STEPS.clear()
        _STEPS[key] = Step(made)
    return _STEPS[key]


def deployment_of_row(row: Row) -> Deployment:
    """What the row ran on. Raises Unexpressed or a VramcastError where no rule covers it."""
    engine, model, card = words.engine(row), words.model(row), words.card(row)
    version, stored = words.version(row, engine), words.quant(row, model)
    found = recipe(row, engine)
    if engine not in SERVED and engine != "llama_cpp":
        stream(engine, card)
        return Deployment(
            model=model, card=card, engine=_bare(engine), version=version, scheme=_scheme(model, stored),
            split=_split(row["settings"], row.get("n_gpus") or 1) if engine in _CUT else Split(),
        )  # fmt: skip
    split = _split(row["settings"], row.get("n_gpus") or 1) if engine in SERVED else Split()
    answered = _answered(row, engine, model=model, stored=stored, split=split)
    if answered is not None:
        if engine == "llama_cpp":
            found["hops"] = (row.get("n_gpus") or 1) - 1
        found |= {name: row["settings"][word] for name, word in _TOLD if row["settings"].get(word)}
        changes = {k: v for k, v in found.items() if v is not None}
        rules = _rules(row, engine, version)
        return replace(answered, split=split, version=version, engine=rules, **changes)
    return Deployment(
        model=model, card=card, engine=_rules(row, engine, version), version=version, scheme=_scheme(model, stored), split=split,
        pp=_pp(row["settings"]), **{"chunk_tokens": 8192, "max_seqs": 1024, **{k: v for k, v in found.items() if v is not None}},
    )  # fmt: skip


def _rules(row: Row, engine: str, version: tuple[int, ...]) -> EngineSpeed:
    found = engine_speed(engine, version)
    return replace(found, mixes=True) if mixes_chunks(row) else found


def _bare(engine: str) -> EngineSpeed:
    return EngineSpeed(engine=engine, host_s=0.0, sequence_s=0.0, ingest_s=0.0, mixes=False, chunk_tokens=2**20, pads=False)


def _answered(row: Row, engine: str, *, model: Model, stored: str | None, split: Split) -> Deployment | None:
    """The deployment by way of the memory side, which knows the cache's room; None where it refuses the question."""
    settings = row["settings"]
    lengths = [settings.get(k) for k in ("isl", "osl", "tokens") if isinstance(settings.get(k), int)]
    keeps_states = engine == "sglang" and not inference_x(row) and any(_holds_state(one) for one in model.blocks)
    question = Serving(
        model=model.id, gpu=words.card(row).id, gpus=split.ranks * _pp(settings), engine=engine,
        engine_version=".".join(map(str, words.version(row, engine))) if keeps_states else None,
        context=max(512, min(model.positions or 10**9, sum(lengths) + 64)), quant=None if stored == "none" else stored,
        kv_dtype="fp8" if cache_dtype(row, engine) == "fp8" else None,
        parallel=Parallel(tp=split.ranks, pp=_pp(settings), ep=split.ranks if split.moe_ep > 1 else 1),
    )  # fmt: skip
    if stored == "none":
        return None
    try:
        made = deployment_of(answer_of(question, model=model, card=words.card(row), limits=False))
    except VramcastError:
        return None
    if engine in SERVED and made.pool_tokens <= 0 and not made.pool_sequences:
        raise Unexpressed("the weights leave no room for a cache on the cards that the row names")
    return made


def _holds_state(block: Block) -> bool:
    """Whether a layer keeps a recurrent state, of which SGLang's releases give a request one to five slots."""
    return any(isinstance(mixer, GatedDeltaNet | Mamba2) for mixer in block.mixers)


def _scheme(model: Model, stored: str | None) -> Scheme:
    dtype = None if model.dtype != "float32" else "bfloat16"
    return scheme_for(model, quant=stored, dtype=dtype)


def _pp(settings: Row) -> int:
    return int(settings.get("pp_size") or settings.get("pp") or 1)


def _split(settings: Row, cards: int) -> Split:
    """The row's layout. InferenceX writes tp n and ep n for n cards; its importer multiplied both, which is undone here."""
    named = re.match(r"TP(\d+)$", str(settings.get("parallelism") or ""))
    tp = int(settings.get("tp_size") or settings.get("tp") or (named[1] if named else 0) or max(1, cards // _pp(settings)))
    if found := _shared_attention(settings, tp):
        settings, tp = settings | found, 1
    shared, cut, spread = (int(settings.get(k) or 1) for k in ("attention_dp_size", "moe_tp_size", "moe_ep_size"))
    if spread > 1 and cut == spread and tp * shared == cut * spread:
        return Split(tp=1, attention_dp=spread, moe_ep=spread) if shared > 1 else Split(tp=spread, moe_ep=spread)
    if shared > 1 and tp == shared and spread == tp * shared:
        return Split(tp=1, attention_dp=tp, moe_ep=tp)
    if settings.get("moe_tp_size"):
        return Split(tp=tp, attention_dp=shared, moe_tp=max(1, tp * shared // spread), moe_ep=spread)
    return Split(tp=tp, moe_tp=tp)


def _shared_attention(settings: Row, tp: int) -> Row:
    """Attention data parallelism that a row tells by its batch alone: a batch is a rank's, so tp of them make the clients."""
    batch, clients = settings.get("batch_size"), settings.get("concurrency")
    if settings.get("attention_dp_size") or not isinstance(batch, int) or tp == 1 or clients != batch * tp:
        return {}
    return {"attention_dp_size": tp, "tp_size": 1}


def _keys(row: Row, step: Step) -> dict[str, str]:
    from vramcast.truth.bars import model_keys

    keys = model_keys(step.on.model, str(row["settings"].get("precision") or "none"))
    return {
        "engine": step.on.engine.engine, "version": str(row.get("version") or ""), "source": str(row.get("source") or ""),
        "card": step.on.card.name, "model": str(row["model_id"]), "load": _users(row),
        "group": f"{step.on.engine.engine} {step.on.card.name} {row['model_id']}", "kind": keys["kind"], "quant": keys["quant"],
    }  # fmt: skip


def _users(row: Row) -> str:
    """The kind of load: by clients, by requests alive at the row's rate (Little), or by its batch."""
    settings, measured = row["settings"], row["measured"]
    clients = settings.get("concurrency")
    if clients is None and settings.get("request_rate"):
        whole_ms = measured.get("ttft_ms", 0.0) + measured.get("tpot_ms", 0.0) * settings.get("osl", 0)
        clients = settings["request_rate"] * whole_ms / 1e3
    clients = clients if isinstance(clients, int | float) else FEW + 1 if clients else settings.get("batch_size") or 1
    return users(clients if isinstance(clients, int | float) else 1, apart=settings.get("mode") == "disagg")
