"""A request's cache on its way from the worker that prefilled it to the one that decodes it.

``seconds = bytes of a decoding rank * ranks that share a sender / (rate of its link * share)``. Every decoding rank fetches its
own part, all at once, each over its own rail; where there are more decoding ranks than prefilling ones, one of those sends to
several.
"""

from collections.abc import Iterable

import msgspec

from vramcast.hardware.accelerator import island_cards, rails_of
from vramcast.models.layers import smaller
from vramcast.models.operations import Indexing, LatentScores, Operation, Recurrence, Scores
from vramcast.speed.deployment import Deployment
from vramcast.speed.kernels.machine import link

# Of four 200 Gb/s rails 87 GB/s are reached (kvcache-ai/Mooncake, README, transfer engine over RoCE).
REACHED = 0.87


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine hands a prefilled request over.

    ``by_chunk``: each chunk of a prompt leaves while the next is computed, so that the last one alone is waited for.
    ``relayed``: a router sends the request to the decoding worker once the prefill is done, not at once. ``again``: the decoding
    worker computes the first token itself, from all but the prompt's last token.
    """

    by_chunk: bool = False
    relayed: bool = True
    again: bool = False
    source: str


HANDOVERS = {
    "vllm": Handover(again=True, source="vLLM v1/core/sched/scheduler.py _update_waiting_for_remote_kv: the last token is run"),
    "sglang": Handover(by_chunk=True, relayed=False, source="SGLang srt/disaggregation/prefill.py send_kv_chunk"),
    "tensorrt_llm": Handover(source="TensorRT-LLM _torch/pyexecutor/py_executor.py _handle_first_token_response"),
}  # fmt: skip


def rank_bytes(found: Iterable[Operation], tokens: float) -> float:
    """Cache and state bytes of one rank with these operations for a sequence of so many tokens: what it has to receive."""
    total = 0.0
    for one in found:
        if isinstance(one, Scores):
            window = one.attention.window or one.attention.chunk
            total += one.count * one.token_bytes * (smaller(tokens, window) if window else tokens)
        elif isinstance(one, LatentScores):
            kept = smaller(tokens, one.attention.window) if one.attention.window and not one.attention.compression else tokens
            total += one.count * one.token_bytes * kept / (one.attention.compression or 1)
        elif isinstance(one, Indexing):
            total += one.count * tokens / one.rate * one.indexer.head_dim * one.key_bytes
        elif isinstance(one, Recurrence):
            total += one.count * one.sequence_bytes
    return total


def fan_out(prefill: Deployment, decode: Deployment) -> float:
    """Decoding ranks that one prefilling rank sends to."""
    return max(1.0, decode.split.tp / prefill.split.tp)


def usual_rate(prefill: Deployment, decode: Deployment, cards: int) -> tuple[float, str]:
    """Bytes per second between two workers and its name: the cards' own links while all fit one island, else a network rail."""
    card = decode.card
    if card.link_bytes_per_s and cards <= island_cards(card):
        return link(card), "the cards' own links: all workers are in one machine"
    return rails_of(prefill.card)[0], "one network rail for each card"
