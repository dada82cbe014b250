"""The rules as people compute them: plain formulas over what they are asked with, nothing corrected.

Each takes ``Numbers`` and gives a quantity, which writes its own formula; the folklore page and ``vramcast rules`` read the same.
"""

import msgspec

from vramcast.quantity import FLOPS, Quantity, bytes_, flops, named, rate

_PAPER = 34  # Korthikanti et al., arXiv 2205.05198: bytes of a GPT block per token and feature, scores apart


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule is asked with. ``parameters`` 7e9 and a 7B's shape where nobody says else.

    ``hidden``, ``layers``, ``heads``, ``ffn``: the model's shape. ``tokens``, ``batch``: of the pass. ``peak_flops`` in FLOP/s,
    ``bandwidth`` in bytes/s, ``card_bytes``: of one card; ``gpus``: how many. ``tflops``: what a program printed, of one card;
    ``samples_per_s``: sequences a second of all cards; ``paper_tokens_per_s``: a paper's tokens a second of one card.
    """

    parameters: float = 7.0e9
    hidden: int = 4096
    layers: int = 32
    heads: int = 32
    ffn: int = 11008
    tokens: int = 2048
    batch: int = 1
    bytes_each: float = 2
    gpus: int = 1
    peak_flops: float = 312e12
    bandwidth: float = 1.515e12
    card_bytes: float = 32e9
    tflops: float = 100.0
    samples_per_s: float = 3.0
    paper_tokens_per_s: float = 3300.0


def weights(asked: Numbers, bytes_each: float | None = None) -> Quantity:
    """F1, F6, F9 to F11, F16: parameters times bytes."""
    return named(asked.parameters, "parameters") * bytes_(asked.bytes_each if bytes_each is None else bytes_each)


def stream(asked: Numbers) -> Quantity:
    """F15: batch x tokens x hidden x bytes, of one layer."""
    return (
        named(asked.batch, "sequences") * named(asked.tokens, "tokens") * named(asked.hidden, "wide") * bytes_(asked.bytes_each)
    )


def inputs_and_activations(asked: Numbers) -> Quantity:
    """F2: weights plus two tensors of batch x tokens x hidden."""
    return weights(asked) + 2 * stream(asked)


def calculator(parameters: int, *, head: int, layers: int, buffers: int, bytes_each: int) -> Quantity:
    """F4: the model-memory calculator: the bare model without its head, rotary tables of every layer counted as weights."""
    held = named(parameters, "parameters") - named(head, "of the head") + named(layers, "layers") * named(buffers, "in tables")
    return held * bytes_(bytes_each)


def layer(parameters: int, *, buffers: int, bytes_each: int) -> Quantity:
    """F4: one layer of that calculator."""
    return (named(parameters, "parameters") + named(buffers, "in tables")) * bytes_(bytes_each)


def cache(asked: Numbers) -> Quantity:
    """F5: two tensors of hidden width per layer and token."""
    width = 2 * named(asked.hidden, "wide") * named(asked.layers, "layers")
    return width * named(asked.batch, "sequences") * named(asked.tokens, "tokens") * bytes_(asked.bytes_each)


def doubled_paper_activations(asked: Numbers) -> Quantity:
    """F13: 4 s b h L (34 + s a / h): the paper's bytes multiplied by 4 again, its factor 5 lost."""
    scores = named(asked.tokens, "tokens") * named(asked.heads, "heads") / named(asked.hidden, "wide")
    return bytes_(4) * _area(asked) * (named(_PAPER, "") + scores)


def paper_activations(asked: Numbers) -> Quantity:
    """Korthikanti et al., arXiv 2205.05198, equation 2: s b h (34 + 5 a s / h) bytes per layer, 16-bit GPT blocks."""
    scores = 5 * named(asked.heads, "heads") * named(asked.tokens, "tokens") / named(asked.hidden, "wide")
    return bytes_(1) * _area(asked) * (named(_PAPER, "") + scores)


def two_widths(asked: Numbers) -> Quantity:
    """F14: (hidden + ffn) x tokens x layers x bytes."""
    widths = named(asked.hidden, "wide") + named(asked.ffn, "of the MLP")
    return widths * named(asked.tokens, "tokens") * named(asked.layers, "layers") * bytes_(asked.bytes_each)


def mixed_precision(asked: Numbers) -> Quantity:
    """F12: 2 + 12 + 2 bytes per parameter, the paper's activations and two 16-bit tensors in and out."""
    return weights(asked, 2) + weights(asked, 12) + weights(asked, 2) + paper_activations(asked) + ends(asked)


def ends(asked: Numbers) -> Quantity:
    """F12: what goes in and comes out, two 16-bit tensors of batch x tokens x hidden."""
    return bytes_(4, "in and out") * named(asked.batch, "sequences") * named(asked.tokens, "tokens") * named(asked.hidden, "wide")


def prefill_flops(asked: Numbers) -> Quantity:
    """F23: two operations per parameter and token."""
    return decode_flops(asked) * named(asked.tokens, "tokens")


def decode_flops(asked: Numbers) -> Quantity:
    """F23: two operations per parameter, for one token of each sequence."""
    return flops(2, "each") * named(asked.parameters, "parameters") * named(asked.batch, "sequences")


def first_token_s(asked: Numbers) -> Quantity:
    """F24: FLOPs / peak + weights / bandwidth."""
    return prefill_flops(asked) / rate(asked.peak_flops, of=FLOPS) + weights(asked) / rate(asked.bandwidth)


def next_token_s(asked: Numbers) -> Quantity:
    """F24: the same for one token."""
    return decode_flops(asked) / rate(asked.peak_flops, of=FLOPS) + weights(asked) / rate(asked.bandwidth)


def share_of_peak(asked: Numbers) -> Quantity:
    """F25: what a program printed over the card's rate."""
    return rate(asked.tflops * 1e12, of=FLOPS) / rate(asked.peak_flops, of=FLOPS)


def tokens_per_card(asked: Numbers) -> Quantity:
    """F26: sequences per second x length / cards."""
    return named(asked.samples_per_s, "sequences/s") * named(asked.tokens, "tokens") / named(asked.gpus, "cards")


def share_of_paper(asked: Numbers) -> Quantity:
    """F26: that over a paper's tokens per second and card, as if those were 100 %."""
    return tokens_per_card(asked) / named(asked.paper_tokens_per_s, "of the paper")


def _area(asked: Numbers) -> Quantity:
    return (
        named(asked.tokens, "tokens")
        * named(asked.batch, "sequences")
        * named(asked.hidden, "wide")
        * named(asked.layers, "layers")
    )
