"""Layouts of one replica that an engine may run: tensor, pipeline and expert parallel ranks, attention repeated or cut."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.hardware.accelerator import Accelerator
from vramcast.models.inventory import Model
from vramcast.models.layers import LatentAttention
from vramcast.serving.engines.layouts import has_experts
from vramcast.workload import Parallel

_WIDTHS = (1, 2, 4, 8, 16)
_STAGES = (1, 2, 3, 4, 8)
_NODE = 8
_RACK = {"gb200": 64, "gb300": 64}  # cards of an NVLink domain that powers of two use (NVL72)


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
    def words(self) -> str:
        """``tp 4``, ``tp 2 pp 2``, ``tp 8 ep``, ``dp 8 ep 8``."""
        own = self.parallel
        named = [f"{name} {getattr(own, name)}" for name in ("tp", "pp", "dp") if getattr(own, name) > 1]
        named += ["ep"] if own.ep > 1 or self.options.get("enable_expert_parallel") else []
        named += [f"attention dp {self.attention_ranks}"] if self.options.get("enable_dp_attention") else []
        return " ".join(named) or "one card"


def attention_ranks(parallel: Parallel, options: Mapping[str, Any]) -> int:
    """Groups of ranks that hold different sequences: data-parallel ranks, or SGLang's within the tensor-parallel ones."""
    return int(options.get("dp_size") or 1) if options.get("enable_dp_attention") else parallel.dp


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
    if engine == "sglang" and tp > 1 and _is_latent(model):
        options = {"enable_dp_attention": True, "dp_size": tp}
        yield Layout(parallel=Parallel(tp=tp, ep=tp), options=options, attention_ranks=tp)


def _is_latent(model: Model) -> bool:
    """SGLang's data-parallel attention was made for latent attention, whose cache tensor parallelism repeats."""
    return any(isinstance(mixer, LatentAttention) for block in model.blocks for mixer in block.mixers)
