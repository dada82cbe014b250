"""Layouts of one replica that an engine may run: tensor, pipeline and expert parallel ranks, attention repeated or cut."""

from collections.abc import Iterator
from math import ceil, floor
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.layers import Experts
from vramcast.serving.engines.layouts import has_experts
from vramcast.serving.engines.sglang.fraction import is_latent
from vramcast.units import GiB
from vramcast.workload import Parallel

_WIDTHS = (1, 2, 4, 8, 16)
_STAGES = (1, 2, 3, 4, 8)
_NODE = 8
_RACK = {"gb200": 64, "gb300": 64}  # cards of an NVLink domain that powers of two use (NVL72)


# What of the weights lies in host memory, as an engine's option says it, and in words.
_AWAY = {
    "cpu_offload_gb": "{:g} GiB on the host",
    "n_gpu_layers": "{} layers on the card",
    "n_cpu_moe": "experts of {} layers on the host",
}
LOOKED_UP = "ngram"  # vLLM's name for tokens copied from where the last ones stood before in the text
_ON_HOST = ("cpu_offload_gb", "n_gpu_layers", "n_cpu_moe")
# Shares of a card that weights on it may take when others are on the host: the rest is for cache, peaks and graphs.
_FILLED = (0.75, 0.5)
_MOST_AWAY = 0.8  # of the weights: more is a CPU's server


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """``attention_ranks``: groups of ranks that hold different sequences and share experts."""

    parallel: Parallel
    options: dict[str, Any] = {}
    attention_ranks: int = 1

    @property
    def ranks(self) -> int:
        """Cards of a replica."""
        return self.parallel.tp * self.parallel.pp * self.parallel.dp

    @property
    def on_host(self) -> bool:
        """Whether a part of the weights lies in host memory."""
        return any(name in self.options for name in _ON_HOST)

    @property
    def words(self) -> str:
        """``tp 4``, ``tp 2 pp 2``, ``tp 8 ep``, ``dp 8 ep 8``."""
        own = self.parallel
        named = [f"{name} {getattr(own, name)}" for name in ("tp", "pp", "dp") if getattr(own, name) > 1]
        named += ["ep"] if own.ep > 1 or self.options.get("enable_expert_parallel") else []
        named += [f"attention dp {self.attention_ranks}"] if self.options.get("enable_dp_attention") else []
        named += [text.format(self.options[name]) for name, text in _AWAY.items() if name in self.options]
        if drafted := self.options.get("num_speculative_tokens"):
            named.append(f"{'looks up' if self.options.get('speculative_method') == LOOKED_UP else 'drafts'} {drafted}")
        return " ".join(named) or "one card"


def layouts(engine: str, model: Model, card: Accelerator, *, most: int) -> Iterator[Layout]:
    """Every layout of at most ``most`` cards; what the engine refuses for this model is refused when it is asked."""
    if engine == "llama_cpp":
        yield from (Layout(parallel=Parallel(pp=gpus)) for gpus in (1, 2, 4, 8) if gpus <= most)
        return
    island = next((size for name, size in _RACK.items() if card.id.startswith(name)), _NODE)
    experts = has_experts(model)
    for tp in (width for width in _WIDTHS if width <= min(most, max(island, 2 * _NODE))):
        for pp in (stages for stages in _STAGES if tp * stages <= most and stages <= model.layers):
            yield Layout(parallel=Parallel(tp=tp, pp=pp))
        if experts:
            yield from _with_experts(engine, model, tp, most)


def _with_experts(engine: str, model: Model, tp: int, most: int) -> Iterator[Layout]:
    """Experts dealt out, with attention cut or repeated on ranks of their own sequences."""
    if engine == "vllm":
        for dp in (1, 2, 4, 8, 16, 32, 64):
            if 1 < tp * dp <= most:
                yield Layout(parallel=Parallel(tp=tp, dp=dp), options={"enable_expert_parallel": True}, attention_ranks=dp)
    elif tp > 1:
        yield Layout(parallel=Parallel(tp=tp, ep=tp))
    if engine == "sglang" and tp > 1 and is_latent(model):  # made for latent attention, whose cache tensor parallelism repeats
        options = {"enable_dp_attention": True, "dp_size": tp}
        yield Layout(parallel=Parallel(tp=tp, ep=tp), options=options, attention_ranks=tp)


def on_host(engine: str, model: Model, bits: float, layout: Layout, card: Accelerator) -> Iterator[Layout]:
    """The layout with a part of the weights in host memory, where they alone would take more than three quarters of a card.

    vLLM reads whole GiB of them over the link in every step; llama.cpp keeps routed experts of the first layers, or whole last
    layers, where the host's processors compute them. ``bits``: of a weight.
    """
    held = model.parameters * bits / 8 / layout.ranks
    if layout.options or card.unified or held <= _FILLED[0] * card.visible_bytes:
        return
    for share in _FILLED:
        away = held - share * card.visible_bytes
        if away > _MOST_AWAY * held:
            continue
        for options in _options_on_host(engine, model, away / held, away):
            yield msgspec.structs.replace(layout, options=options)


def drafting(engine: str, model: Model, layout: Layout, *, own: bool, looked_up: bool) -> Iterator[Layout]:
    """The layout drafting: the model's own layers (multi-token prediction) one to three tokens a step, or two or four looked up.

    ``own``, ``looked_up``: whether each is asked. SGLang's one way is that of the model's own layers.
    """
    if engine not in ("vllm", "sglang") or layout.parallel.pp > 1:
        return
    if own and any(tower.kind == "mtp" for tower in model.towers):
        method = {"speculative_method": "mtp"} if engine == "vllm" else {}
        for tokens in (1, 2, 3):
            yield msgspec.structs.replace(layout, options={**layout.options, **method, "num_speculative_tokens": tokens})
    if looked_up and engine == "vllm":
        for tokens in (2, 4):
            options = {**layout.options, "speculative_method": LOOKED_UP, "num_speculative_tokens": tokens}
            yield msgspec.structs.replace(layout, options=options)


def _options_on_host(engine: str, model: Model, share: float, away_bytes: float) -> Iterator[dict[str, Any]]:
    if engine == "vllm":
        yield {"cpu_offload_gb": ceil(away_bytes / GiB)}
    elif engine == "llama_cpp":
        sparse = sum(block.count for block in model.blocks if isinstance(block.feedforward, Experts))
        if sparse:
            yield {"n_cpu_moe": min(model.layers, ceil(1.1 * share * model.layers))}
        else:
            yield {"n_gpu_layers": max(1, floor((1 - share) * model.layers))}
