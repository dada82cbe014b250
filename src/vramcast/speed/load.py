"""What users send to a server: lengths, how many at once or how often, what repeats, what is drafted."""

import math
import random
from collections.abc import Iterator

import msgspec

from vramcast.errors import QuestionError

ACCEPTANCE = 0.7
"""Chance of a drafted token where nobody says."""


class Request(msgspec.Struct, frozen=True, array_like=True):
    """One request: when it arrives (seconds), its prompt and output lengths, and prompt tokens that are cached already."""

    arrival_s: float
    prompt: int
    output: int
    cached: int = 0


class Drafting(msgspec.Struct, frozen=True, kw_only=True):
    """Speculative decoding: ``tokens`` drafted each step, each accepted with probability ``acceptance`` after those before it.

    ``draft_s``: seconds of drafting one token.
    """

    tokens: int
    acceptance: float
    draft_s: float = 0.0

    @property
    def per_step(self) -> float:
        """Mean tokens of one step: (1 - a^(k+1)) / (1 - a) (Leviathan et al., arXiv 2211.17192, equation 1)."""
        a, k = self.acceptance, self.tokens
        return k + 1 if a >= 1 else (1 - a ** (k + 1)) / (1 - a)


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stream of requests: exactly one of ``concurrency`` (closed loop), ``rate_per_s`` (open loop) and ``trace``.

    ``prompt``, ``output``: mean lengths; ``spread``: half width of their uniform distribution as a share of the mean (0: fixed;
    0.11 is a random-range ratio of 0.8 around 0.9 of nominal). ``arrivals``: poisson or constant. ``cached``: share of each
    prompt that is in the prefix cache. ``drafting``: speculative decoding, where there is any. ``encode_s``: seconds of
    encoding one prompt's images before its first step.
    """

    prompt: float
    output: float
    concurrency: int = 0
    rate_per_s: float = 0.0
    trace: tuple[Request, ...] = ()
    arrivals: str = "poisson"
    spread: float = 0.0
    cached: float = 0.0
    drafting: Drafting | None = None
    encode_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.trace and (self.concurrency > 0) == (self.rate_per_s > 0):
            raise QuestionError("a load is either so many at once or so many a second: give --concurrency or --rate, not both")
        for name, value in (("prompt", self.prompt), ("output", self.output), ("rate", self.rate_per_s)):
            if not math.isfinite(value) or value < 0:
                raise QuestionError(f"{name} is {value}: expected a number of at least 0")
        if not 0 <= self.cached < 1:
            raise QuestionError(f"the cached share of prompts is {self.cached}: expected at least 0, below 1")

    @property
    def per_step(self) -> float:
        """Mean tokens a sequence gains in one decode step."""
        return self.drafting.per_step if self.drafting else 1.0

    @property
    def verified(self) -> int:
        """Tokens a sequence brings to one decode step."""
        return 1 + self.drafting.tokens if self.drafting else 1


def drawn(load: Load, count: int, *, seed: int = 0, replicas: int = 1) -> Iterator[Request]:
    """``count`` requests of the load as one of ``replicas`` receives it; those of a closed loop arrive at 0.

    A trace is dealt out in turn. The same seed draws the same requests.
    """
    if load.trace:
        yield from load.trace[:count:replicas]
        return
    chance, now = random.Random(seed), 0.0
    for _ in range(count):
        if load.rate_per_s:
            gap = replicas / load.rate_per_s
            now += chance.expovariate(1 / gap) if load.arrivals == "poisson" else gap
        prompt = max(1, round(load.prompt * (1 + load.spread * (2 * chance.random() - 1))))
        output = max(1, round(load.output * (1 + load.spread * (2 * chance.random() - 1))))
        yield Request(now, prompt, output, int(prompt * load.cached))
