"""Which model classes an engine has: one that it has not is refused at start, or run by transformers' code inside it.

Source: the engines' own lists at the releases named in ``classes.json`` (tools/build_engine_classes.py).
"""

from functools import cache
from pathlib import Path

import msgspec

from vramcast.ledger import Assumption, Unmodelled
from vramcast.models.classes import model_class
from vramcast.models.inventory import Model
from vramcast.serving.engines.base import parse_version

FILE = Path(__file__).parent / "classes.json"
# Endings that an engine reads as each other's: vllm/config/model.py _SUFFIX_TO_DEFAULTS, registry.py _normalize_arch
_ENDINGS = (
    "ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel", "ForTextEncoding", "EmbeddingModel",
    "ForSequenceClassification", "ForTokenClassification", "ForRewardModeling", "RewardModel", "Model",
)  # fmt: skip


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """The classes of one engine.

    ``classes``: architectures that the ``release`` has; ``until``: the last release that had one; ``backend``: words of
    ``Served.backend`` that its Transformers backend takes, empty where it has none.
    """

    release: str
    source: str
    classes: frozenset[str]
    until: dict[str, str] = {}
    backend: tuple[str, ...] = ()


@cache
def registries() -> dict[str, Registry]:
    """The lists that were read, by engine."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Registry])


def lacking(engine: str, version: str, model: Model) -> tuple[tuple[Assumption, ...], tuple[Unmodelled, ...]]:
    """What an answer says of a class that the engine has not: that it is refused, what runs it instead, or that nobody knows.

    Nothing for engines whose lists were not read, for models without an architecture, and for releases that may have had it.
    """
    if engine == "tensorrt_llm" and _writes_from_an_encoder(model):
        return (_refused(engine, "trtllm-serve's PyTorch backend runs no encoder-decoder: use --engine transformers"),), ()
    registry, architecture = registries().get(engine), model.architecture
    if registry is None or not architecture or _has(registry, architecture):
        return (), ()
    number, name, last = parse_version(version, engine), _NAMES[engine], registry.until.get(architecture)
    if number > parse_version(registry.release, engine) or (last and number[:3] <= parse_version(last, engine)[:3]):
        return (), ()
    backend = _backend(model)
    if model.trust in _TYPED and not last and backend != "none":
        return (), ()
    if backend in registry.backend:
        said = f"{name} has no {architecture} of its own: transformers' code runs in it"
        return (Assumption("model_class", "transformers", said),), ()
    if last:
        return (_refused(engine, f"{name} had {architecture} up to {last}: use --engine {engine}=={last}"),), ()
    if backend or not registry.backend:
        return (_refused(engine, f"{name} has no {architecture}: use --engine transformers"),), ()
    return (), (Unmodelled(f"{name} {registry.release} has no {architecture}: only the checkpoint's own code could run"),)


def newest_with(engine: str, model: Model) -> str:
    """The last release that had the model's class, where the newest has it no more and nothing else in it runs the class."""
    registry, architecture = registries().get(engine), model.architecture
    if registry is None or _has(registry, architecture) or _backend(model) in registry.backend:
        return ""
    return registry.until.get(architecture, "")


def _backend(model: Model) -> str:
    """How far a Transformers backend takes the class; attention to what an encoder read has no place in its cache."""
    return "none" if any(block.cross for block in model.blocks) else model_class(model.family).served.backend


_TYPED = ("documented", "from-docs", "class-default")  # the catalogue's own name of the class may not be the published file's
_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "lmdeploy": "LMDeploy"}


def _writes_from_an_encoder(model: Model) -> bool:
    """Whether text goes in by an encoder (T5, BART): no row of TensorRT-LLM's docs/source/models/supported-models.md is such."""
    text = model_class(model.family).served.backend == "none"
    return text and any(block.cross for block in model.blocks)


def _refused(engine: str, because: str) -> Assumption:
    return Assumption(engine, "refused", because)


def _has(registry: Registry, architecture: str) -> bool:
    if architecture in registry.classes:
        return True
    stem = next((architecture.removesuffix(ending) for ending in _ENDINGS if architecture.endswith(ending)), None)
    return stem is not None and any(f"{stem}{ending}" in registry.classes for ending in _ENDINGS)
