"""What every engine answers: its options and defaults by version, the ledger of each rank, its cache plan, its start-up error.

An engine is a frozen value with a ``name``, the ``versions`` its rules were read from, and ``resolve`` then ``forecast``:

    resolved = engine.resolve(question, model, card)     # every option has a value and a reason
    answer = engine.forecast(resolved)                   # ranks, cache plan, limits
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.hardware.accelerator import Accelerator
from vramcast.ledger import Assumption, RankMemory, Unmodelled
from vramcast.models.inventory import Model
from vramcast.quantity import Number, element, is_nothing, minimum
from vramcast.serving.engines.options import Option
from vramcast.workload import Serving

# Engines whose cache is a pool cut from a budget: what is left is counted in the pool, not on the card.
Rank = TypeVar("Rank")
POOL_ENGINES = frozenset({"vllm", "sglang", "tensorrt_llm"})
# Engines that load GGUF files through ggml.
GGUF_ENGINES = frozenset({"llama_cpp", "ollama", "ik_llama_cpp"})


class CachePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine lays out its cache on one rank.

    ``bytes_per_token``: growth per token of one long sequence. ``request_bytes``: what one request of the asked context
    takes, rounded as the engine rounds. ``pool_bytes``: what is set aside. ``blocks`` of ``block_tokens``; ``groups``: layers
    per group when layers are grouped. ``state_bytes``: fixed recurrent state of one sequence.
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


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A question with nothing left open; ``limits``: whether the longest context is asked for too."""

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


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's answer: memory per rank, cache plan, longest context, most sequences, and its error if it would not start."""

    resolved: Resolved
    ranks: tuple[RankMemory, ...]
    cache: CachePlan
    max_context: int
    max_concurrency: float
    start_error: str = ""

    def at(self, index: Any) -> "Answer":
        """The answer of one element where the question's numbers were arrays, its start-up error apart."""
        numbers = {name: element(getattr(self.cache, name), index) for name in self.cache.__struct_fields__ if name != "groups"}
        return msgspec.structs.replace(
            self,
            ranks=tuple(rank.at(index) for rank in self.ranks),
            cache=msgspec.structs.replace(self.cache, **numbers),
            max_context=element(self.max_context, index),
            max_concurrency=element(self.max_concurrency, index),
        )


def narrowest(ranks: Sequence[Rank], room: Callable[[Rank], Number]) -> Rank:
    """The rank with the least room. Raises UnmodelledError where another rank is it for another element of arrays."""
    rooms = [room(rank) for rank in ranks]
    least = minimum(*rooms)
    for rank, own in zip(ranks, rooms, strict=True):
        if is_nothing(own - least):
            return rank
    raise UnmodelledError("which pipeline stage has the least room differs between these layouts: ask them apart")


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
    def options(self) -> tuple[Option, ...]:
        """Its flags."""
        ...

    def resolve(self, question: Serving, model: Model, card: Accelerator | None) -> Resolved:
        """The question with every default filled in. Raises QuestionError for unknown options or impossible layouts."""
        ...

    def forecast(self, resolved: Resolved) -> Answer:
        """The answer by arithmetic alone."""
        ...
