"""What an engine has at a release: model classes, and quantised weights that it loads. What it has not is refused at its start.

Source: the engines' own lists, release by release (tools/build_registries.py); classes that an engine lacks may be run by
transformers' code inside it (its Transformers backend).
"""

import re
from functools import cache
from pathlib import Path
from typing import TypeAlias

import msgspec

from vramcast.ledger import Assumption, Unmodelled
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.serving.engines.base import Version, parse_version
from vramcast.serving.engines.layouts import has_experts
from vramcast.serving.layers import encodes_only

FILE = Path(__file__).parent / "registries.json"
Span: TypeAlias = tuple[str, str]
"""The first and the last release that had something; "" where the oldest read, or the newest, has it."""
# Endings that an engine reads as each other's: vllm/config/model.py _SUFFIX_TO_DEFAULTS, registry.py _normalize_arch
_ENDINGS = (
    "ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel", "ForTextEncoding", "EmbeddingModel",
    "ForSequenceClassification", "ForTokenClassification", "ForRewardModeling", "RewardModel", "Model",
)  # fmt: skip
_BEFORE_RELEASE = re.compile(r"rc|dev|nightly|\+")
_TYPED = ("documented", "from-docs", "class-default")  # the catalogue's own name of the class may not be the published file's
_RELEASED = ("vllm", "sglang", "lmdeploy")  # engines whose lists were read release by release
# A method's name in checkpoints and in --quant, and what engines call it; names that are not here are not judged
_METHODS = {
    "awq": ("awq", "awq_marlin", "auto_awq"), "gptq": ("gptq", "gptq_marlin", "auto_gptq"), "aqlm": ("aqlm",), "hqq": ("hqq",),
    "bitsandbytes": ("bitsandbytes",), "auto-round": ("auto-round", "inc"), "torchao": ("torchao",), "quanto": ("quanto",),
    "eetq": ("eetq",), "quip#": ("quip",), "vptq": ("vptq",), "bitnet": ("bitnet", "bitblas"), "higgs": ("higgs",),
    "spqr": ("spqr",), "fp_quant": ("fp_quant",), "exl2": ("exl2",), "exl3": ("exl3",), "mlx": ("mlx", "metal"),
    "quark": ("quark",), "modelopt": ("modelopt", "modelopt_fp8", "modelopt_fp4"), "compressed-tensors": ("compressed-tensors",),
}  # fmt: skip
_OF_BITSANDBYTES = ("nf4", "nf4-dq", "fp4", "fp4-dq", "llm.int8")


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine has, up to ``release``, the newest that was read.

    ``classes``: architectures, those of its Transformers backend among them; ``methods``: quantised weights by its own names;
    ``backend``: words of ``Served.backend`` that its Transformers backend takes, empty where it has none. ``like_endings``: it
    reads endings of a class's name as each other's.
    """

    release: str
    classes: dict[str, Span] = {}
    methods: dict[str, Span] = {}
    backend: tuple[str, ...] = ()
    like_endings: bool = False


@cache
def registry_of(engine: str) -> Registry | None:
    """The lists of one engine, None where none were read."""
    tables = msgspec.json.decode(FILE.read_bytes(), type=dict[str, msgspec.Raw])
    return msgspec.json.decode(tables[engine], type=Registry) if engine in tables else None


def lacking(engine: str, version: str, model: Model) -> tuple[tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """What an answer says of a class that the engine has not: that it is refused, what runs it instead, or that nobody knows.

    Nothing for engines whose lists were not read, for models without an architecture, and for releases newer than the lists.
    """
    registry = registry_of(engine)
    if registry is None or not registry.classes or not model.architecture:
        return (), ()
    number, span = _number(version, engine), _span(registry, model.architecture)
    early = span is not None and not span[1] and _BEFORE_RELEASE.search(version)  # a build on the way to a later release
    if early or _within(number, span, engine) or number > _number(registry.release, engine):
        return (), ()
    said = f"{_named(engine)} {version} has no {model.architecture}"
    takes = _backend(model) in registry.backend and any(
        _within(number, registry.classes.get(word), engine) for word in _kinds(model)
    )
    if takes and span is not None and span[0] and number < _number(span[0], engine):
        return (), (Unmodelled(f"{said}, which came with {span[0]}: transformers' code may run in it"),)
    if takes:
        return (Assumption("model_class", "transformers", f"{said} of its own: transformers' code runs in it"),), ()
    if span is None and (why := _nobody_knows(engine, registry, model)):
        return (), (Unmodelled(f"{said}: {why}"),)
    return (_refused(engine, f"{said}: {_instead(engine, number, span)}"),), ()


def _nobody_knows(engine: str, registry: Registry, model: Model) -> str:
    """Why a class that no release had is not refused; "" where it is."""
    if engine not in _RELEASED:
        return "" if _writes_from_an_encoder(model) else "its table of supported models does not name it"
    if model.trust in _TYPED and _backend(model) != "none":
        return "the name is the catalogue's own, the published file may have another"
    return "only the checkpoint's own code could run" if registry.backend and not _backend(model) else ""


def unloadable(engine: str, version: str, method: str, model: Model) -> tuple[Assumption, ...]:
    """That the release loads no weights of that method: a checkpoint's ``quant_method`` or a name of ``--quant``."""
    registry, words = registry_of(engine), _METHODS.get(method_word(method), ())
    if registry is None or not registry.methods or not words:
        return ()
    dated = bool(registry.backend)  # the others' kinds are typed from one release
    number = _number(version, engine) if dated else (0, 0, 0)
    held = _held(registry, method)
    if any(_within(number, span, engine) for span in held) or number > _number(registry.release, engine):
        return ()
    last = max(held, key=lambda span: (not span[1], _number(span[1] or "0", engine)), default=None)
    instead = _instead(engine, number, last) if last else "use weights of another scheme"
    span = _span(registry, model.architecture)
    if last and last[1] and span and not _within(_number(last[1], engine), span, engine):
        instead = f"no release loads them and has {model.architecture}"
    return (
        _refused(engine, f"{_named(engine)}{f' {version}' if dated else ''} loads no {method_word(method)} weights: {instead}"),
    )


def newest_with(engine: str, model: Model, method: str = "") -> tuple[str, str]:
    """The last release that has the model's class and loads its weights, and what left with it; "" where the newest does.

    Nothing where the newest lacks either for another reason: no release had it or both, or transformers' code runs it.
    """
    registry = registry_of(engine)
    if registry is None:
        return "", ""
    span, held = _span(registry, model.architecture), _held(registry, method)
    ends: list[tuple[str, str]] = []
    if span and span[1] and _backend(model) not in registry.backend:
        ends.append((span[1], f"has {model.architecture}"))
    if held and all(end for _, end in held):
        ends.append((max((end for _, end in held), key=lambda end: _number(end, engine)), f"loads {method_word(method)} weights"))
    last, what = min(ends, key=lambda end: _number(end[0], engine), default=("", ""))
    both = last and (span is None or _within(_number(last, engine), span, engine))
    return (last, what) if both else ("", "")


def _held(registry: Registry, method: str) -> list[Span]:
    return [registry.methods[word] for word in _METHODS.get(method_word(method), ()) if word in registry.methods]


def method_word(name: str) -> str:
    """The method of a name of ``--quant``: ``nf4`` is bitsandbytes', ``gptq-int8`` GPTQ's."""
    if name in _OF_BITSANDBYTES:
        return "bitsandbytes"
    return name if name in _METHODS else next((word for word in _METHODS if name.startswith(f"{word}-")), "")


def _backend(model: Model) -> str:
    """How far a Transformers backend takes the class; attention to what an encoder read has no place in its cache."""
    return "none" if any(block.cross for block in model.blocks) else model_class(model.family).served.backend


def _writes_from_an_encoder(model: Model) -> bool:
    """Whether text goes in by an encoder (T5, BART): no row of TensorRT-LLM's docs/source/models/supported-models.md is such."""
    text = model_class(model.family).served.backend == "none"
    return text and any(block.cross for block in model.blocks)


def _named(engine: str) -> str:
    """As its makers call it; the catalogue of languages is loaded only where something is said."""
    from vramcast.language import program_name

    return program_name(engine)


def _refused(engine: str, because: str) -> Assumption:
    return Assumption(engine, "refused", because)


def _instead(engine: str, number: Version, span: Span | None) -> str:
    """What to ask instead: a release that has it, or another engine."""
    if span is None:
        return "use --engine transformers"
    first, last = span
    if first and number < _number(first, engine):
        return f"it came with {first}, use --engine {engine}=={first}"
    return f"it was there up to {last}, use --engine {engine}=={last}"


def _number(version: str, engine: str) -> Version:
    """The release as three numbers; builds of one release and what came after it count as that release."""
    return (*parse_version(version, engine), 0, 0)[:3]


def _within(number: Version, span: Span | None, engine: str) -> bool:
    """Whether a release lies in the span; builds before a release have what it has."""
    if span is None:
        return False
    first, last = span
    return (not first or number >= _number(first, engine)) and (not last or number <= _number(last, engine))


def _kinds(model: Model) -> tuple[str, ...]:
    """The classes of a Transformers backend that would run the model (vllm/config/model.py _get_transformers_backend_cls)."""
    sees = any(tower.kind in ("vision", "audio") for tower in model.towers)
    routes = "MoE" if has_experts(model) else ""
    if encodes_only(model):
        return (f"Transformers{routes}EmbeddingModel",)
    if sees:
        return (f"TransformersMultiModal{routes}ForCausalLM", *(() if routes else ("TransformersForMultimodalLM",)))
    return (f"Transformers{routes}ForCausalLM", *(() if routes else ("TransformersModel",)))


def _span(registry: Registry, architecture: str) -> Span | None:
    if architecture in registry.classes or not registry.like_endings:
        return registry.classes.get(architecture)
    stem = next((architecture.removesuffix(ending) for ending in _ENDINGS if architecture.endswith(ending)), "")
    found = [registry.classes[f"{stem}{ending}"] for ending in _ENDINGS if stem and f"{stem}{ending}" in registry.classes]
    return min(found, key=lambda span: bool(span[1]), default=None)
