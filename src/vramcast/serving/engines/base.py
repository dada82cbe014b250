"""Engines: found by name, asked a question, each with the ledger of each rank, its cache plan and its start-up error as answer.

An engine is a frozen value with a ``name``, the ``versions`` its rules were read from, and ``resolve`` then ``forecast``:

    resolved = engine.resolve(question, model, card)     # every option has a value and a reason
    answer = engine.forecast(resolved)                   # ranks, cache plan, limits

``answer_of`` does both for a question by its names. Here too is what all engines share: versions as tuples and tables of facts by
the version they hold from, the cards an engine starts on, and what the host keeps where card and host share their memory. A card
of unknown architecture is taken to run: the answer is about memory, and a refusal must have a source.
"""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from vramcast.errors import QuestionError, UnmodelledError, unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, RankMemory, Unmodelled
from vramcast.models.inventory import Model
from vramcast.quantity import Number, element, is_nothing, maximum, minimum
from vramcast.units import GiB
from vramcast.workload import Serving

if TYPE_CHECKING:
    from vramcast.serving.engines.options import Option

Version = tuple[int, ...]
Value = TypeVar("Value")
Table = tuple[tuple[Version, Value], ...]
"""Rows of (version it holds from, value), in version order."""

_NUMBER = re.compile(r"\s*v?(\d+(?:\.\d+){0,3})")


# From so many cases on calibration learns a bar for a release from its own runs, which holds what its factors miss.
FEWEST_CASES = 20
# What libraries held outside torch in 62 starts of vLLM was within this share of their release's factor in 90 % of them
# (docs/accuracy.md, non_torch).
_SPREAD = 0.455


class Fitted(msgspec.Struct, frozen=True):
    """A number without a mechanism of its own here: fitted to measured cases, and said to be so in every answer it enters."""

    value: float
    cases: int
    source: str

    @property
    def why(self) -> str:
        """How many cases it rests on, and where they come from."""
        return f"fitted, {self.cases} case{'s' * (self.cases != 1)}, from {self.source}"

    def slack(self, amount: float) -> float:
        """How far an amount of this factor may be off for want of cases: the error of a mean of so few, which no bar holds."""
        return amount * _SPREAD / sqrt(self.cases) if self.cases < FEWEST_CASES else 0.0


@lru_cache(maxsize=256)
def parse_version(text: str, engine: str) -> Version:
    """``0.19.0``, ``v0.11.2rc1`` or ``0.8.5.post1`` as numbers; raises QuestionError when there is no number in front."""
    match = _NUMBER.match(text)
    if match is None:
        raise QuestionError(f"{engine} version {text[:40]!r} is not a version: write for example {engine}==0.19.0")
    return tuple(int(part) for part in match[1].split("."))


def at(version: Version, table: Table[Value]) -> Value:
    """The value of the last row whose version is not newer; the first row's for anything older."""
    found = table[0][1]
    for since, value in table:
        if since > version:
            break
        found = value
    return found


GB10 = (12, 1)
"""The DGX Spark's compute capability."""

HOST_GIB = Fitted(10, 2, "a DGX Spark (111 of 121.7 GiB free before a server starts) and a Jetson Orin (51 of 61.4)")


def free_bytes(card: Accelerator, shown_bytes: Number | None = None) -> Number:
    """What is free of the memory a card shows before anything is loaded."""
    return (card.visible_bytes if shown_bytes is None else shown_bytes) - (round(HOST_GIB.value * GiB) if card.unified else 0)


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """``nvidia``: the least compute capability. ``chips``: architectures of other makers that it is built for."""

    nvidia: tuple[int, int]
    chips: frozenset[str] = frozenset()
    source: str


_ROCM = frozenset({"CDNA1", "CDNA2", "CDNA3", "CDNA4", "RDNA2", "RDNA3", "RDNA3.5", "RDNA4"})
_VULKAN = frozenset({"GCN3", "GCN4", "GCN5", "RDNA1", "Xe HPG", "Xe LPG+", "Xe2", "Xe3"})
_GGML = Support(
    nvidia=(5, 0),
    chips=_ROCM | _VULKAN | {"Apple GPU", "Xe HPC", "Da Vinci", "Da Vinci 310", "MUSA 2", "MUSA 3", "MUSA 4"},
    source="llama.cpp docs/build.md: CUDA, HIP, Vulkan, Metal, SYCL, CANN and MUSA",
)
# What runs vLLM on chips that its own repository has no build for. Source: vLLM docs 0.11.2, installation, hardware plugins.
PLUGINS = {
    "Da Vinci": "vllm-ascend", "TPU": "tpu-inference", "Gaudi": "vllm-gaudi", "MetaX XCORE1000": "vllm-metax",
    "MLUarch03": "vllm-mlu", "MLUarch05": "vllm-mlu",
}  # fmt: skip
SUPPORT = {
    "vllm": Support(
        nvidia=(7, 0),
        chips=(_ROCM - {"CDNA1", "RDNA2"}) | {"Xe2", "Xe HPC", "Xe HPG", *PLUGINS},
        source="vLLM docs, installation on GPUs",
    ),
    "sglang": Support(nvidia=(7, 5), chips=frozenset({"CDNA3", "CDNA4"}), source="SGLang docs, installation and AMD GPUs"),
    "tensorrt_llm": Support(nvidia=(8, 0), source="TensorRT-LLM docs, support matrix"),
    "tgi": Support(
        nvidia=(7, 5),
        chips=frozenset({"CDNA2", "CDNA3"}),
        source="text-generation-inference docs, supported hardware",
    ),
    "lmdeploy": Support(nvidia=(7, 0), source="LMDeploy docs, supported GPUs of TurboMind"),
    "transformers": Support(
        nvidia=(5, 0),
        chips=_ROCM | {"Apple GPU", "Xe2", "Xe HPC", "Xe HPG", "Gaudi"},
        source="PyTorch builds for CUDA, ROCm, MPS, XPU and HPU",
    ),
    **dict.fromkeys(("llama_cpp", "ik_llama_cpp", "ollama"), _GGML),
}


def why_not(engine: str, card: Accelerator) -> str:
    """Why the engine does not start on that card, with the source; empty when it does or when the card is of no known kind."""
    rule = SUPPORT.get(engine)
    if rule is None:
        return ""
    if card.capability is not None and card.capability < rule.nvidia:
        least, own = (f"{a}.{b}" for a, b in (rule.nvidia, card.capability))
        return f"{engine} needs compute capability {least}, {card.name} has {own} ({rule.source})"
    if card.capability is None and card.vendor != "NVIDIA" and card.architecture and card.architecture not in rule.chips:
        return f"{engine} has no build for {card.architecture} ({rule.source})"
    return ""


def plugin_of(engine: str, card: Accelerator | None) -> str:
    """The plugin that runs the engine on this card; empty where its own build does."""
    return PLUGINS.get(card.architecture, "") if card is not None and engine == "vllm" else ""


# Engines whose cache is a pool cut from a budget: what is left is counted in the pool, not on the card.
Rank = TypeVar("Rank")
POOL_ENGINES = frozenset({"vllm", "sglang", "tensorrt_llm", "tgi", "lmdeploy"})
# Engines whose rules were read and of which no run was ever measured here: what they need beside weights and cache may be off by
# as much as the least known part of the measured ones is, on either side.
NEVER_MEASURED, UNMEASURED = frozenset({"tgi", "lmdeploy"}), _SPREAD
# Programs that run another's kernels and scheduler: Ollama starts llama.cpp's server (llm/server.go), ik_llama.cpp is a fork.
RUNS = {"ollama": "llama_cpp", "ik_llama_cpp": "llama_cpp"}
# Engines that load GGUF files through ggml.
GGUF_ENGINES = frozenset({"llama_cpp", "ollama", "ik_llama_cpp"})


class CachePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine lays out its cache on one rank.

    ``bytes_per_token``: growth per token of one long sequence. ``request_bytes``: what one request of the asked context
    takes, rounded as the engine rounds. ``pool_bytes``: what is set aside. ``blocks`` of ``block_tokens``; ``groups``: layers
    per group when layers are grouped. ``state_bytes``: fixed recurrent state of one sequence; ``state_sequences``: how many
    sequences' states an engine with a pool of its own for them runs (0: no such pool).
    """

    bytes_per_token: int
    request_bytes: int
    pool_bytes: int
    tokens: int
    concurrency: float
    block_tokens: int = 1
    blocks: int = 0
    groups: tuple[int, ...] = ()
    state_bytes: int = 0
    state_sequences: Number = 0


def request_groups(question: Serving, options: Mapping[str, Any]) -> int:
    """Groups of ranks that hold requests of their own: data-parallel ranks, or SGLang's within the tensor-parallel ones.

    Both engines deal requests out over them, so that each holds its share of those at once (vLLM ``v1/engine/core_client.py``,
    DPLBAsyncMPClient; SGLang ``managers/data_parallel_controller.py``).
    """
    if question.engine not in POOL_ENGINES:
        return 1
    return max(question.parallel.dp, *(int(options.get(name) or 1) for name in ("data_parallel_size", "dp_size")))


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A question with nothing left open.

    ``context``: tokens of the longest sequence, as asked or as the engine fills it in; ``concurrency``: sequences at once in one
    cache, the share of those asked that each of ``groups`` data-parallel ranks gets;
    ``options``: every option of the engine by its own name; ``assumed``: what was filled in, with reasons. ``limits``: whether
    the longest context is asked for too.
    """

    question: Serving
    model: Model
    card: Accelerator | None
    version: str
    context: int
    concurrency: int
    options: dict[str, Any]
    assumed: tuple[Assumption, ...] = ()
    unmodelled: tuple[Unmodelled, ...] = ()
    limits: bool = True

    @property
    def groups(self) -> int:
        """Groups of ranks that hold requests of their own, each with a cache."""
        return request_groups(self.question, self.options)

    @property
    def requests(self) -> Number:
        """Requests at once over all groups, as asked."""
        return self.concurrency if self.question.concurrency is None else self.question.concurrency

    @property
    def typical_tokens(self) -> Number:
        """Tokens of a typical request: its prompt and output where both were asked, else the whole context."""
        question = self.question
        if question.prompt is None or question.output is None or question.traffic.images:
            return self.context
        return minimum(self.context, question.prompt + question.output)

    @property
    def live_tokens(self) -> Number:
        """Tokens of each request that must find room at once: the context where it was asked for, else a typical request's."""
        return self.typical_tokens if self.question.context is None else self.context


class LeftOnHost(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine that lays a model out by itself does where the card does not hold all of it.

    ``whole_bytes``: what the worst card would need for all; ``short_bytes``: by how much that misses the room the engine uses.
    ``told``: what it does instead.
    """

    whole_bytes: int
    short_bytes: int
    told: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's answer: memory per rank, cache plan, longest context, most sequences, and its error if it would not start.

    ``max_concurrency``: sequences of the whole context that the pool holds; ``at_once``: typical requests
    (``Resolved.typical_tokens``). ``wanted_bytes``: of cache, for the requests at once, and what the engine wants to start.
    ``left``: where the engine itself keeps a part of the model off the card.
    """

    resolved: Resolved
    ranks: tuple[RankMemory, ...]
    cache: CachePlan
    max_context: int
    max_concurrency: float
    at_once: float
    wanted_bytes: int
    start_error: str = ""
    left: LeftOnHost | None = None

    @property
    def whole_bytes(self) -> Number:
        """What the worst rank needs to hold all that was asked, also where the engine leaves a part of it on the host."""
        return self.left.whole_bytes if self.left else maximum(*(rank.needed_bytes for rank in self.ranks))

    def at(self, index: Any) -> "Answer":
        """The answer of one element where the question's numbers were arrays, its start-up error apart."""
        numbers = {name: element(getattr(self.cache, name), index) for name in self.cache.__struct_fields__ if name != "groups"}
        return msgspec.structs.replace(
            self,
            ranks=tuple(rank.at(index) for rank in self.ranks),
            cache=msgspec.structs.replace(self.cache, **numbers),
            max_context=element(self.max_context, index),
            max_concurrency=element(self.max_concurrency, index),
            at_once=element(self.at_once, index),
            wanted_bytes=element(self.wanted_bytes, index),
        )


def narrowest(ranks: Sequence[Rank], room: Callable[[Rank], Number]) -> Rank:
    """The rank with the least room. Raises UnmodelledError where another rank is it for another element of arrays."""
    rooms = [room(rank) for rank in ranks]
    least = minimum(*rooms)
    for rank, own in zip(ranks, rooms, strict=True):
        if is_nothing(own - least):
            return rank
    raise UnmodelledError("which pipeline stage has the least room differs between these layouts: ask them apart")


def held_at_once(room: Number, each: Number, resolved: Resolved) -> Number:
    """Requests that take ``each`` of a pool's ``room`` (bytes or blocks); where one takes nothing, as many as were asked."""
    return resolved.concurrency / 1 if is_nothing(each) else room / each


class Engine(Protocol):
    """The questions; see the module's text."""

    @property
    def name(self) -> str:
        """Its own name, as the answer prints it."""
        ...

    @property
    def versions(self) -> tuple[str, ...]:
        """The releases its rules were read from, oldest first."""
        ...

    @property
    def options(self) -> "tuple[Option, ...]":
        """Its flags."""
        ...

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with every default filled in. Raises QuestionError for unknown options or impossible layouts."""
        ...

    def forecast(self, resolved: Resolved) -> Answer:
        """The answer by arithmetic alone."""
        ...


_MODULES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt_llm",
    "tgi": "tgi",
    "lmdeploy": "lmdeploy",
    "transformers": "transformers",
    "llama_cpp": "llama_cpp",
    "ik_llama_cpp": "llama_cpp",
    "ollama": "llama_cpp",
}
_ALIASES = {
    "text_generation_inference": "tgi", "turbomind": "lmdeploy",
    "trtllm": "tensorrt_llm", "trt_llm": "tensorrt_llm", "tensorrt": "tensorrt_llm", "hf": "transformers",
    "huggingface": "transformers", "llamacpp": "llama_cpp", "llama.cpp": "llama_cpp", "ik_llama.cpp": "ik_llama_cpp",
}  # fmt: skip


def engine_names() -> tuple[str, ...]:
    """Every engine that can be asked, by its own name."""
    return tuple(_MODULES)


def canonical_name(name: str) -> str:
    """The engine's own name for what a person typed; raises QuestionError for an unknown one, naming the nearest."""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    found = _ALIASES.get(plain, plain)
    if found not in _MODULES:
        raise unknown_name("engine", name, (*_MODULES, *_ALIASES))
    return found


def engine(name: str) -> Engine:
    """The engine of that name or alias: a module's ``ENGINES`` table, or its only ``ENGINE``."""
    found = canonical_name(name)
    module = importlib.import_module(f"vramcast.serving.engines.{_MODULES[found]}")
    answer: Engine = module.ENGINES[found] if hasattr(module, "ENGINES") else module.ENGINE
    return answer


def answer_of(question: Serving, *, model: Model | None = None, card: Accelerator | None = None, limits: bool = True) -> Answer:
    """Memory of every distinct rank, the cache plan and the limits of one serving question.

    ``model`` and ``card`` are looked up from the question when not given; without a card the answer holds what the asked
    context and concurrency need. ``limits``: whether the longest context is asked for too, where finding it takes many plans.
    Lengths, counts and shares (context, concurrency, an engine's numeric options) may be NumPy arrays, one element per layout:
    the answer's numbers are arrays then, and ``answer.at(i)`` is the answer of one. Raises QuestionError for an unknown engine,
    option or an impossible layout.
    """
    rules = engine(question.engine)
    resolved = rules.resolve(question, model or _model(question), card or _card(question))
    return rules.forecast(resolved if limits else msgspec.structs.replace(resolved, limits=False))


def _model(question: Serving) -> Model:
    from vramcast.models.reading import read_model

    return read_model(question.model)


def _card(question: Serving) -> Accelerator | None:
    if question.gpu is None:
        return None
    from vramcast.hardware.cards import least_card

    return least_card(question.gpu)
