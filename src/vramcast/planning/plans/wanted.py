"""What a serving plan has to do, and one way of doing it."""

from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.hardware.accelerator import Accelerator
from vramcast.planning.plans.layouts import LOOKED_UP, Layout
from vramcast.planning.plans.offers import Offer
from vramcast.planning.plans.weights import Weights

ORDERS = ("cost", "speed", "cards")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The service: ``users`` at once, or ``rate`` requests a second; lengths in tokens, a service level in seconds (None: none).

    ``context``: longest sequence to allow; each user's cache is held at that length. ``least_bits``: of weights and cache.
    ``acceptance``: share of the tokens of the model's own draft layers that are accepted, ``looked_up``: of tokens looked up
    in the text (n-grams); None where no server may draft so. ``apart``: whether
    prefill and decode on workers of their own are asked too. ``rented``: no card was named, so that the offers are what one
    may rent: whole models only, and beyond a node whole nodes.
    """

    model: str
    offers: tuple[Offer, ...]
    engines: tuple[str, ...]
    prompt: int
    output: int
    context: int
    users: int | None = None
    rate: float | None = None
    cached: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    least_bits: float = 4
    acceptance: float | None = None
    looked_up: float | None = None
    apart: bool = False
    rented: bool = False
    any_engine: bool = False
    order: str = "cost"

    def __post_init__(self) -> None:
        if (self.users is None) == (self.rate is None):
            raise QuestionError("a plan is for so many users at once or so many requests a second: give --users or --rate")
        if self.prompt + self.output > self.context:
            raise QuestionError(
                f"prompt {self.prompt:,} and output {self.output:,} are longer than the context of {self.context:,}: "
                "raise --context, or shorten them"
            )

    @property
    def drafts(self) -> dict[str, bool]:
        """Which ways of drafting are asked, in the words of ``layouts.drafting``."""
        return {"own": self.acceptance is not None, "looked_up": self.looked_up is not None}

    def accepted(self, layout: Layout) -> float | None:
        """The share of its drafted tokens that is accepted."""
        return self.looked_up if layout.options.get("speculative_method") == LOOKED_UP else self.acceptance

    def meets(self, ttft_s: Any, tpot_s: Any) -> Any:
        """Whether times keep the service level; arrays element by element."""
        met = (ttft_s > 0) & (tpot_s > 0)
        if self.ttft_s:
            met = met & (ttft_s <= self.ttft_s)
        return met & (tpot_s <= self.tpot_s) if self.tpot_s else met


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One structure: weights, engine, card and layout. Batches, chunks and replicas are numbers on top of it."""

    weights: Weights
    engine: str
    offer: Offer
    layout: Layout
    kv_dtype: str | None

    @property
    def card(self) -> Accelerator:
        """The card of each rank."""
        return self.offer.card

    @property
    def cache(self) -> str:
        """The type of the cache in the engine's own word, empty for the model's: llama.cpp keeps 8 bits as q8_0."""
        return "q8_0" if self.kv_dtype == "fp8" and self.engine == "llama_cpp" else self.kv_dtype or ""

    @property
    def words(self) -> str:
        """``vllm fp8 tp 4, cache fp8``."""
        cache = f", cache {self.cache}" if self.cache else ""
        return f"{self.engine} {self.weights.name} {self.layout.words}{cache}"
