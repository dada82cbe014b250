"""Inkling: short convolutions after keys, values and both halves of a layer, relative positions, shared experts that are routed.

Its images pass a few linear layers that fold patches together, its sounds are looked up. Source of names and shapes:
transformers 5.23, modeling_inkling.py.
"""

from itertools import combinations, pairwise
from math import ceil, log, prod

from vramcast.models.config import Config
from vramcast.models.families import inkling_text, parts, wrapper
from vramcast.models.inventory import Model, Tensor, Tower

_Scale = tuple[int, int, int]


def read(config: Config, *, prefix: str = "model.") -> Model:
    """An Inkling model, or its decoder alone."""
    if config.text("model_type") == "inkling_text":
        return inkling_text.read(config, prefix=prefix)
    text = wrapper.text_of(config, "inkling_text")
    hidden = text.size("hidden_size")
    seen, heard = (wrapper.part(config, f"{each}_config", f"inkling_{each}") for each in ("vision", "audio"))
    towers = (_vision(seen, hidden, "model.vision_tower."), _audio(heard, hidden, "model.audio_tower."))
    return wrapper.wrap(config, text, prefix="model.language_model.", towers=towers, tied=False)


def _audio(config: Config, hidden: int, name: str) -> Tower:
    """One row for every level of every mel band, and a norm."""
    rows = config.size("num_codebooks", "n_mel_bins", default=80) * config.size("codebook_size", "mel_vocab_size", default=256)
    table = Tensor(name=f"{name}embed_audio_tokens.embed_audio_tokens.weight", shape=(rows, hidden), role="embedding")
    return Tower(name=name, kind="audio", hidden=hidden, tensors=(table, *parts.norms(hidden, f"{name}norm")))


def _vision(config: Config, hidden: int, name: str) -> Tower:
    """Layers between scales of (frames, side, channels): each joins what it folds, all but the last are normed."""
    scales = _scales(config)
    last = len(scales) - 2
    tensors: list[Tensor] = []
    for place, (start, end) in enumerate(pairwise(scales)):
        joined = start[2] * (end[0] // start[0]) * (end[1] // start[1]) ** 2
        out = hidden if place == last else end[2]
        tensors += parts.linear(f"{name}encoder_layers.{place}.projection", out, joined, "patch", shard=None)
        tensors += parts.norms(out, f"{name}encoder_layers.{place}.layer_norm") if place < last else ()
    facts: dict[str, float] = {"patch_size": config.size("patch_size", default=40)}
    own = (*tensors, *parts.norms(hidden, f"{name}final_norm"))
    return Tower(name=name, kind="vision", hidden=hidden, tensors=own, facts=facts)


def _scales(config: Config) -> list[_Scale]:
    """The scale before each layer and after the last, nearest to equal steps of the logarithm (plan_out_scales)."""
    depth, channels = config.size("num_hidden_layers", "n_layers", default=24), config.size("num_channels", default=3)
    patch, frames = config.size("patch_size", default=40), config.size("temporal_patch_size", default=2)
    sides, times = _products(patch), _products(frames)
    grown = [
        (1, 1, channels),
        *((1, side, 64 * ceil(side**2 * channels / 64)) for side in sides),
        *((time, sides[-1], 64 * sides[-1] ** 2 * channels * time) for time in times),
    ]
    reduced = [log(time * side**2) for time, side, _ in grown]
    step = log(patch * patch * frames * channels) / depth
    costs = [[abs(step * place - each) for each in reduced] for place in range(depth + 1)]
    chosen = _nearest(costs) if depth >= len(grown) else _assigned(costs)
    return [grown[0], *(grown[i] for i in chosen[1:-1]), grown[-1]]


def _nearest(costs: list[list[float]]) -> list[int]:
    return [row.index(min(row)) for row in costs]


def _assigned(costs: list[list[float]]) -> list[int]:
    """Fewer layers than scales: each scale at most once, in order, at the least cost."""
    places = combinations(range(len(costs[0])), min(len(costs), len(costs[0])))
    return [*min(places, key=lambda chosen: sum(row[i] for row, i in zip(costs, chosen, strict=False)))]


def _products(number: int) -> list[int]:
    """The running products of the prime factors, largest first."""
    factors: list[int] = []
    rest, divisor = number, 2
    while rest > 1:
        while rest % divisor == 0:
            factors.append(divisor)
            rest //= divisor
        divisor += 1
    factors.reverse()
    return [prod(factors[: i + 1]) for i in range(len(factors))] or [1]
