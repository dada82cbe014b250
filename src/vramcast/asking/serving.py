"""A serving question from words: names, suffix strings ("128k", "H100x4"), traffic as people write it, an engine's own flags."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from vramcast.asking.artefact import USUAL_TYPE, Artefact, artefact_of, names_no_type, usual_mix
from vramcast.asking.asked import IMAGES, Asked, check_words, count_of, flag_of, named_cards
from vramcast.asking.launched import launched, question_of_launch
from vramcast.asking.links import link_of, rate_of
from vramcast.asking.pools import WORDS as POOL_WORDS
from vramcast.asking.pools import cards_of_a_worker, of_one_worker, pools_of
from vramcast.errors import QuestionError
from vramcast.ledger import Assumption, Unmodelled
from vramcast.workload import USUAL_TRAFFIC, Parallel, Serving, Traffic

if TYPE_CHECKING:
    from vramcast.serving.engines.base import Engine

_COUNTS = ("context", "concurrency", "prompt", "output")
_TEXTS = ("dtype", "quant", "kv_dtype")


_TRAFFIC = (
    "rate",
    "cached",
    "length_spread",
    "acceptance",
    "slo",
    "link",
    "host_bandwidth",
    "workload",
    "profile",
    *IMAGES,
    *POOL_WORDS,
)
_TIMES = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


class ServingWords(TypedDict, total=False):
    """What can be asked about serving, in Python and as ``--words`` of ``vramcast serve``; None leaves it to the engine."""

    gpu: str | None
    engine: str | None
    context: int | str | None
    concurrency: int | str | None
    prompt: int | str | None
    output: int | str | None
    dtype: str | None
    quant: str | None
    kv_dtype: str | None
    rate: float | str | None
    cached: float | str | None
    length_spread: float | str | None
    acceptance: float | str | None
    slo: str | None
    link: str | None
    host_bandwidth: str | None
    workload: str | None
    profile: str | None
    images: int | str | None
    image_patches: int | str | None
    disagg: str | None
    prefill_tp: int | str | None
    transfer_link: str | None
    tp: int | str | None
    pp: int | str | None
    dp: int | str | None
    ep: int | str | None


_Options = tuple[dict[str, Any], tuple[Assumption, ...], tuple[Unmodelled, ...]]
"""An engine's options, and what an answer lists of typed flags that no rule counts."""


def serving_question(
    model: str | None = None,
    *,
    flags: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    files: Sequence[str | PathLike[str]] = (),
    variables: Mapping[str, str] | None = None,
    only: str | None = None,
    **words: Unpack[ServingWords],
) -> Asked[Serving]:
    """The question that these words ask, on top of what artefacts say.

    ``model``: as for ``read_model``, or what starts an engine: a pasted line, a script, a compose file, a Modelfile. ``flags``:
    an engine's own as typed (``["-c", "32k", "--max-num-seqs", "64"]``), which win over words. ``options``: the same by their
    Python names (``{"max_num_seqs": 64}``). ``files``: artefacts that start an engine (``-``: standard input), and .env files
    beside them; ``variables``: what they leave open; ``only``: which of several engines, by its name. Raises QuestionError for a
    word, flag, number, name or file that cannot be.
    """
    check_words(words, ServingWords.__annotations__, what="serving word")
    plain = model is not None and not flags and not files and _is_catalogued(model)
    named = [fspath(file) for file in files]
    if not plain and (held := launched(model, flags, files=named, variables=variables, only=only)):
        return question_of_launch(*held, options or {}, words, serving_question)
    if model is None:
        raise QuestionError("no model: give an id, a path, or a file that starts an engine (--from compose.yml)")
    said, rest = _engine_fields(flags)
    asked: dict[str, Any] = {name: value for name, value in {**words, **said}.items() if value is not None}
    artefact = Artefact(model=model) if plain else artefact_of(model)
    return _asked(asked, artefact, lambda engine: _engine_options(options or {}, rest, engine))


def _asked(asked: dict[str, Any], artefact: Artefact, options_of: Callable[["Engine"], _Options]) -> Asked[Serving]:
    """The question of these words about this artefact; ``options_of`` reads the engine's own flags once the engine is known."""
    from vramcast.serving.engines import engine as engine_named

    auto = str(asked.get("context", "")).lower() in ("auto", "max", "-1") and asked.pop("context")
    cards = named_cards(asked.get("gpu"))
    asked, understood = _engine_fills(asked, artefact, cards.gpu)
    name, version = _engine(asked["engine"])
    engine = engine_named(name)
    traffic, count = traffic_of(asked), cards.count
    if traffic.pools:
        count = cards_of_a_worker(traffic.pools, asked, count)
        asked |= of_one_worker(traffic.pools, asked)
    parallel, ranks = _layout(asked, count)
    options, told, uncounted = options_of(engine)
    fields: dict[str, Any] = {name: count_of(asked[name], name) for name in _COUNTS if name in asked}
    fields |= {name: asked[name] for name in _TEXTS if name in asked}
    question = Serving(
        model=artefact.model,
        gpu=cards.gpu,
        gpus=max(1, count, ranks),
        engine=engine.name,
        engine_version=version,
        parallel=parallel,
        traffic=traffic,
        options=options,
        **fields,
    )
    if auto:
        from vramcast.asking.best import longest_sure

        question, found = longest_sure(question)
        understood = (*understood, found)
    assumed = (*cards.assumed, *understood, *_unused_cards(question), *told)
    return Asked(question=question, assumed=assumed, unmodelled=uncounted)


def _is_catalogued(model: str) -> bool:
    """Whether the text is a bundled model's own id, which nothing but that model can be meant by."""
    from vramcast.models.reading import read_index

    name = model.lower()
    return name in read_index().models and not name.endswith("gguf")


def _engine_fields(flags: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    if not flags:
        return {}, []
    from vramcast.asking.engine_line import fields

    return fields(flags)


def _engine_options(options: Mapping[str, Any], flags: list[str], engine: "Engine") -> _Options:
    """The engine's options, those by Python name and those typed as flags, which win; what is told of flags without a rule."""
    if not options and not flags:
        return {}, (), ()
    from vramcast.asking.engine_line import read_flags, read_options

    named = read_options(options, engine.options)
    try:
        return named | read_flags(flags, engine.options, engine=engine.name), (), ()
    except QuestionError:
        from vramcast.asking.sorted_flags import without_rule

        left = without_rule(flags, engine.name, engine.options)
    return named | read_flags(list(left.known), engine.options, engine=engine.name), left.assumed, left.unmodelled


def _engine_fills(asked: dict[str, Any], artefact: Artefact, gpu: str | None) -> tuple[dict[str, Any], tuple[Assumption, ...]]:
    """The words, with engine and type as the artefact says or as the card allows where none was typed; and what that assumed."""
    from vramcast.serving.engines import canonical_name
    from vramcast.serving.engines.base import GGUF_ENGINES

    typed = asked.get("engine")
    wanted = artefact if artefact.engine or typed else _fitting_the_card(artefact, gpu)
    filled = {"engine": wanted.engine or "vllm", **asked}
    loads = canonical_name(filled["engine"].partition("==")[0]) in GGUF_ENGINES
    if wanted.quant and loads and "quant" not in asked:
        filled["quant"] = wanted.quant
    said = wanted.assumed() if wanted.because else ()
    mix = str(asked.get("quant") or "")
    if loads and (usual := usual_mix(mix)):
        filled["quant"] = usual
        because = f"{mix} is Unsloth's own mix: the usual mix of its bits is taken, its file differs by some percent"
        return filled, (*_told(said, asked, filled), Assumption("quant", filled["quant"], because))
    if loads and "quant" not in filled and "dtype" not in filled and names_no_type(artefact.model):
        filled["quant"] = USUAL_TYPE
        said = (*said, Assumption("quant", USUAL_TYPE, "what llama.cpp's -hf and Ollama's library take where no type is named"))
    return filled, _told(said, asked, filled)


def _told(said: tuple[Assumption, ...], asked: Mapping[str, Any], filled: Mapping[str, Any]) -> tuple[Assumption, ...]:
    return tuple(a for a in said if a.name not in asked and filled.get(a.name) == a.value)


def _fitting_the_card(artefact: Artefact, gpu: str | None) -> Artefact:
    """llama.cpp with its usual type where vLLM does not start on the card (a Mac, a GTX 1080)."""
    from vramcast.hardware.cards import least_card
    from vramcast.serving.engines.base import why_not

    reason = why_not("vllm", least_card(gpu)) if gpu and gpu != "local" else ""
    if not reason:
        return artefact
    because = f"{reason}; llama.cpp takes {USUAL_TYPE} where none is named"
    return msgspec.structs.replace(artefact, engine="llama_cpp", quant=USUAL_TYPE, because=because)


def _engine(text: str) -> tuple[str, str | None]:
    name, named, version = text.partition("==")
    if named and not version:
        raise QuestionError(f"--engine {text} names no version: write for example {name}==0.19.0, or {name} for the newest known")
    return name, version or None


def _layout(asked: Mapping[str, Any], gpus: int) -> tuple[Parallel, int]:
    """The layout and the cards it takes; tensor parallelism spreads over the cards that nothing else uses."""
    axes: dict[str, Any] = {name: count_of(asked[name], name) for name in ("tp", "pp", "dp", "ep") if name in asked}
    rest = max(1, axes.get("pp", 1) * axes.get("dp", 1))
    parallel = Parallel(**{"tp": max(1, gpus // rest), **axes})
    ranks = parallel.tp * rest
    if 1 < gpus < ranks:
        taken = f"tp {parallel.tp} x pp {parallel.pp} x dp {parallel.dp}"
        raise QuestionError(f"{taken} needs {ranks} cards, --gpu names {gpus}: name {ranks}, or use fewer ranks")
    return parallel, ranks


def _unused_cards(question: Serving) -> tuple[Assumption, ...]:
    """Cards that were named and that the layout leaves alone; llama.cpp and transformers spread over all they see."""
    from vramcast.serving.engines.base import POOL_ENGINES

    layout = question.parallel
    used, rest = layout.tp * layout.pp * layout.dp, max(1, layout.pp * layout.dp)
    if question.engine not in POOL_ENGINES or question.gpu is None or used >= question.gpus:
        return ()
    idle, more = question.gpus - used, question.gpus // rest
    because = f"{used} of {question.gpus} cards do the work: --tp {more}, or more replicas with --dp, would use the others"
    return (Assumption("unused_cards", idle, because),)


def traffic_of(words: Mapping[str, Any]) -> Traffic:
    """The traffic that these words describe. Raises QuestionError for one that cannot be."""
    if all(words.get(name) is None for name in _TRAFFIC):
        return USUAL_TRAFFIC
    ttft, tpot = service_level(words["slo"]) if words.get("slo") else (None, None)
    return Traffic(
        rate=number_of(words, "rate"),
        cached=share_of(words, "cached") or 0.0,
        spread=share_of(words, "length_spread"),
        acceptance=share_of(words, "acceptance"),
        ttft_s=ttft,
        tpot_s=tpot,
        link_bytes_per_s=link_of(str(words["link"])) if words.get("link") else None,
        host_bandwidth_bytes_per_s=rate_of(str(words["host_bandwidth"])) if words.get("host_bandwidth") else None,
        requests=words.get("workload"),
        profile=words.get("profile"),
        **{name: count_of(words[name], name) for name in IMAGES if words.get(name) is not None},
        pools=pools_of(words, link_of(str(words["transfer_link"])) if words.get("transfer_link") else None),
    )


def number_of(words: Mapping[str, Any], name: str) -> float | None:
    given = words.get(name)
    if given is None:
        return None
    try:
        return float(str(given).removesuffix("/s"))
    except ValueError:
        raise QuestionError(f"--{name} is {given!r}: expected a number, for example --{name} 4") from None


def share_of(words: Mapping[str, Any], name: str) -> float | None:
    text = str(words[name]) if words.get(name) is not None else None
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise QuestionError(f"{flag_of(name)} is {text[:40]!r}: expected a share, for example 0.8 or 80%") from None


def service_level(text: str) -> tuple[float | None, float | None]:
    """``ttft=1s,tpot=50ms`` as seconds. Raises QuestionError for other names or units."""
    found: dict[str, float] = {}
    for part in str(text).split(","):
        name, _, value = part.strip().lower().partition("=")
        if name not in ("ttft", "tpot"):
            raise QuestionError(f"--slo {text!r}: expected ttft=TIME and tpot=TIME, for example ttft=1s,tpot=50ms")
        found[name] = time_of(value, text)
    return found.get("ttft"), found.get("tpot")


def time_of(value: str, text: str) -> float:
    for unit, size in _TIMES.items():
        number = value.removesuffix(unit)
        if number != value and number.replace(".", "", 1).isdigit():
            return float(number) * size
    raise QuestionError(f"--slo {text!r}: {value!r} is no time; write for example 50ms or 1.5s")
