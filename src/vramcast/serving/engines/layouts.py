"""How an engine spreads a model over ranks, and the layouts it refuses to start with, for its own reason.

What ``--dp`` and ``--ep`` mean:

* vLLM: data-parallel ranks are copies of all but the experts. Experts form one group of tp x dp ranks: each is cut over all of
  them, or, with expert parallelism, dealt out over all of them. vLLM has no size of its own for that: any ``--ep`` above 1
  switches it on (docs, data parallel deployment; fused_moe/config.py FusedMoEParallelConfig.make).
* SGLang: data-parallel ranks are whole replicas of tp ranks; only attention is repeated within them under data-parallel
  attention. ``--ep`` ranks are part of the tp ranks and tp / ep of them cut each expert (server_args.py, ep_size).
* TensorRT-LLM: as SGLang, moe_tensor_parallel_size x moe_expert_parallel_size is tp (mapping.py).

llama.cpp and transformers lay whole layers on cards: nothing is cut.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.memo import by_identity
from vramcast.models.inventory import Model
from vramcast.models.layers import Attention, Dense, Experts, LatentAttention
from vramcast.workload import Parallel

WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """Where an engine asserts something of a layout: heads, KV heads, widths, blocks of fp8 scales, experts to spread.

    An empty text: the engine does not assert it.
    """

    heads: str
    kv_heads: str
    widths: str = ""
    blocks: str = ""
    experts: str = ""


REASONS = {
    "vllm": Reasons(
        heads="vllm/config/model.py, verify_with_parallel_config",
        kv_heads="model_executor/layers/linear.py, QKVParallelLinear; the model's attention asserts the same",
        widths="distributed/utils.py, divide",
        blocks="model_executor/layers/quantization/fp8.py, create_weights",
        experts="vllm/config/model.py, verify_with_parallel_config",
    ),
    "sglang": Reasons(
        heads="sglang/srt/layers/linear.py, divide",
        kv_heads="sglang/srt/layers/linear.py, QKVParallelLinear; the model's attention asserts the same",
        widths="sglang/srt/distributed/utils.py, divide",
        blocks="sglang/srt/layers/quantization/fp8.py, create_weights",
    ),
    "tensorrt_llm": Reasons(
        heads="tensorrt_llm/_torch/modules/attention.py", kv_heads="tensorrt_llm/models/convert_utils.py, dup_kv_weight"
    ),
}


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that cut attention, ranks over which experts are dealt out, and ranks that cut each expert."""

    attention: int
    experts: int = 1
    each_expert: int = 1


def spread_of(engine: str, parallel: Parallel, options: Mapping[str, Any]) -> Spread:
    """How the engine spreads experts under these flags. Raises QuestionError where ep does not divide what it has to."""
    spreads = bool(options.get("enable_expert_parallel")) or parallel.ep > 1
    if engine == "vllm":
        group = expert_group(parallel, options)
        return Spread(attention=parallel.tp, experts=group if spreads else 1, each_expert=1 if spreads else group)
    repeats = (options.get("dp_size") or 1) if options.get("enable_dp_attention") else 1
    return _of_tp_ranks(engine, parallel, spreads=spreads, attention=max(1, parallel.tp // repeats))


def expert_group(parallel: Parallel, options: Mapping[str, Any]) -> int:
    """Ranks that vLLM's experts belong to: tp x dp."""
    return parallel.tp * max(options.get("data_parallel_size") or 1, parallel.dp)


def _of_tp_ranks(engine: str, parallel: Parallel, *, spreads: bool, attention: int) -> Spread:
    """Experts belong to the tp ranks: ``ep`` shares of them, each cut over tp / ep ranks; a flag without a number means all."""
    tp = parallel.tp
    shares = parallel.ep if parallel.ep > 1 else tp if spreads else 1
    if tp % shares:
        raise QuestionError(
            f"{engine} spreads experts over its tensor parallel ranks, so ep has to divide tp: ep={shares}, tp={tp}; "
            f"use --tp {shares} --ep {shares}"
        )
    return Spread(attention=attention, experts=shares, each_expert=tp // shares)


def check_layout(engine: str, version: str, model: Model, spread: Spread) -> None:
    """Raises QuestionError for what the engine refuses to cut, with its reason and the sizes that would do."""
    reasons = REASONS[engine]
    named = f"{engine} {version}"
    if reasons.experts and spread.experts > 1 and not has_experts(model):
        raise QuestionError(f"{named} spreads experts, and this model has none ({reasons.experts}): leave --ep out")
    _check_heads(named, reasons, model, spread.attention)
    scales = _scale_block(model)
    for what, width, ranks in _widths(model, spread):
        if reasons.widths and width % ranks:
            raise QuestionError(
                f"{named} needs {what} widths divisible by the ranks that cut them: {width}, {ranks} ranks ({reasons.widths})"
            )
        if reasons.blocks and ranks > 1 and scales and (width // ranks) % scales:
            more = "; deal experts out instead: --enable-expert-parallel" if what == "expert" else ""
            raise QuestionError(
                f"{named} needs each rank's part of a matrix to be whole blocks of fp8 scales: {what} width {width} / {ranks} "
                f"ranks = {width // ranks}, blocks of {scales} ({reasons.blocks}){more}"
            )


def _widths(model: Model, spread: Spread) -> Iterator[tuple[str, int, int]]:
    """What is cut besides heads: its name, its width, and over how many ranks."""
    for block in model.blocks:
        kind = block.feedforward
        if isinstance(kind, Experts):
            yield "expert", kind.intermediate, spread.each_expert
        elif isinstance(kind, Dense):
            yield "MLP", kind.intermediate, spread.attention


def has_experts(model: Model) -> bool:
    """Whether any layer is a mixture of experts."""
    return any(isinstance(block.feedforward, Experts) for block in model.blocks)


def _check_heads(named: str, reasons: Reasons, model: Model, tp: int) -> None:
    heads, keys = _units(model)
    for count in heads:
        if count % tp:
            raise QuestionError(
                f"{named} needs attention heads divisible by tensor parallel size: {count} heads, tp={tp} ({reasons.heads}); "
                f"use tp of {_usable(model)}"
            )
    for count in keys:
        if not _cuts(count, tp):
            raise QuestionError(
                f"{named} needs key-value heads divisible by tensor parallel size, or it by them: {count} heads, tp={tp} "
                f"({reasons.kv_heads}); use tp of {_usable(model)}"
            )


@by_identity()
def _units(model: Model) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The numbers of query heads and of key-value heads that its layers have, each ascending."""
    mixers = [m for block in model.blocks for m in block.mixers]
    heads = {m.heads for m in mixers if isinstance(m, Attention | LatentAttention)}
    return tuple(sorted(heads)), tuple(sorted({m.kv_heads for m in mixers if isinstance(m, Attention)}))


def _usable(model: Model) -> str:
    heads, keys = _units(model)
    return ", ".join(str(n) for n in WIDTHS if all(h % n == 0 for h in heads) and all(_cuts(k, n) for k in keys))


def _cuts(units: int, ranks: int) -> bool:
    """Whether units are dealt out evenly, or each is repeated on equally many ranks."""
    return units % ranks == 0 or ranks % units == 0


def _scale_block(model: Model) -> int:
    """Rows that share a scale in a checkpoint of fp8 blocks, 0 in any other."""
    config = model.quantization or {}
    blocks = config.get("weight_block_size") if config.get("quant_method") == "fp8" else None
    return int(blocks[0]) if isinstance(blocks, list | tuple) and blocks else 0
