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

FILE = Path(__file__).parent / "registries.json"
Span: TypeAlias = tuple[str, str]
"""The first and the last release that had something; "" where the oldest read, or the newest, has it."""
# Endings that an engine reads as each other's: vllm/config/model.py _SUFFIX_TO_DEFAULTS, registry.py _normalize_arch
_ENDINGS = (
    "ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel", "ForTextEncoding", "EmbeddingModel",
    "ForSequenceClassification", "ForTokenClassification", "ForRewardModeling", "RewardModel", "Model",
)  # fmt: skip
_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "lmdeploy": "LMDeploy", "tgi": "TGI", "transformers": "transformers"}
_BEFORE_RELEASE = re.compile(r"rc|dev|nightly|\+")
_TYPED = ("documented", "from-docs", "class-default")  # the catalogue's own name of the class may not be the published file's
_BACKEND_SINCE = {"vllm": (0, 7), "sglang": (0, 4, 5)}  # model_impl of vllm/config.py; srt/models/transformers.py
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

    ``classes``: architectures; ``methods``: quantised weights by its own names; ``backend``: words of ``Served.backend`` that its
    Transformers backend takes, empty where it has none.
    """

    release: str
    classes: dict[str, Span] = {}
    methods: dict[str, Span] = {}
    backend: tuple[str, ...] = ()


@cache
def registry_of(engine: str) -> Registry | None:
    """The lists of one engine, None where none were read."""
    tables = msgspec.json.decode(FILE.read_bytes(), type=dict[str, msgspec.Raw])
    return msgspec.json.decode(tables[engine], type=Registry) if engine in tables else None


def lacking(engine: str, version: str, model: Model) -> tuple[tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """What an answer says of a class that the engine has not: that it is refused, what runs it instead, or that nobody knows.

    Nothing for engines whose lists were not read, for models without an architecture, and for releases newer than the lists.
    """
    if engine == "tensorrt_llm" and _writes_from_an_encoder(model):
        return (_refused(engine, "trtllm-serve's PyTorch backend runs no encoder-decoder: use --engine transformers"),), ()
    registry = registry_of(engine)
    if registry is None or not registry.classes or not model.architecture:
        return (), ()
    number, span = parse_version(version, engine), _span(registry, model.architecture)
    early = span is not None and not span[1] and _BEFORE_RELEASE.search(version)  # a build on the way to a later release
    if early or _within(number, span, engine) or number > parse_version(registry.release, engine):
        return (), ()
    name, backend = f"{_NAMES[engine]} {version}", _backend(model)
    if model.trust in _TYPED and span is None and backend != "none":
        return (), ()
    if backend in registry.backend and number >= _BACKEND_SINCE[engine]:
        said = f"{name} has no {model.architecture} of its own: transformers' code runs in it"
        return (Assumption("model_class", "transformers", said),), ()
    if span is None and not backend and registry.backend:
        return (), (Unmodelled(f"{name} has no {model.architecture}: only the checkpoint's own code could run"),)
    return (_refused(engine, f"{name} has no {model.architecture}: {_instead(engine, number, span)}"),), ()


def unloadable(engine: str, version: str, method: str) -> tuple[Assumption, ...]:
    """That the release loads no weights of that method: a checkpoint's ``quant_method`` or a name of ``--quant``."""
    registry, words = registry_of(engine), _METHODS.get(method_word(method), ())
    if registry is None or not registry.methods or not words:
        return ()
    number = (0,) if engine not in _BACKEND_SINCE else parse_version(version, engine)
    held = [registry.methods[word] for word in words if word in registry.methods]
    if any(_within(number, span, engine) for span in held) or number > parse_version(registry.release, engine):
        return ()
    release = f" {version}" if engine in _BACKEND_SINCE else ""
    last = max(held, key=lambda span: (not span[1], parse_version(span[1] or "0", engine)), default=None)
    instead = _instead(engine, number, last) if last else "use weights of another scheme"
    return (_refused(engine, f"{_NAMES[engine]}{release} loads no {method_word(method)} weights: {instead}"),)


def newest_with(engine: str, model: Model, method: str = "") -> tuple[str, str]:
    """The last release that has the model's class and loads its weights, and what left with it; "" where the newest does.

    Nothing where the newest lacks either for another reason: no release had it, or transformers' code runs it.
    """
    registry = registry_of(engine)
    if registry is None:
        return "", ""
    ends: list[tuple[str, str]] = []
    if (span := _span(registry, model.architecture)) and span[1] and _backend(model) not in registry.backend:
        ends.append((span[1], f"has {model.architecture}"))
    held = [registry.methods[word][1] for word in _METHODS.get(method_word(method), ()) if word in registry.methods]
    if held and all(held):
        ends.append((max(held, key=lambda end: parse_version(end, engine)), f"loads {method_word(method)} weights"))
    return min(ends, key=lambda end: parse_version(end[0], engine), default=("", ""))


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


def _refused(engine: str, because: str) -> Assumption:
    return Assumption(engine, "refused", because)


def _instead(engine: str, number: Version, span: Span | None) -> str:
    """What to ask instead: a release that has it, or another engine."""
    if span is None:
        return "use --engine transformers"
    first, last = span
    if first and number < parse_version(first, engine):
        return f"it came with {first}, use --engine {engine}=={first}"
    return f"it was there up to {last}, use --engine {engine}=={last}"


def _within(number: Version, span: Span | None, engine: str) -> bool:
    """Whether a release lies in the span; builds before a release have what it has."""
    if span is None:
        return False
    first, last = span
    return (not first or number[:3] >= parse_version(first, engine)[:3]) and (not last or number <= parse_version(last, engine))


def _span(registry: Registry, architecture: str) -> Span | None:
    if architecture in registry.classes:
        return registry.classes[architecture]
    stem = next((architecture.removesuffix(ending) for ending in _ENDINGS if architecture.endswith(ending)), "")
    found = [registry.classes[f"{stem}{ending}"] for ending in _ENDINGS if stem and f"{stem}{ending}" in registry.classes]
    return min(found, key=lambda span: bool(span[1]), default=None)
