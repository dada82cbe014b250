"""The changes people can make to a training question, from what costs nothing but a flag to what changes the method."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.planning.changes import Change
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Adapter, Parallel, Training

_LEAN_LOSSES = frozenset({"linear", "chunked", "chunked_head", "none"})


def training_changes(question: Training, recipe: Recipe) -> Iterator[Change]:
    """Changes worth trying, in the order to consider them: kernels, recomputation, optimizer, sharding, then less work."""
    if recipe.loss.kind not in _LEAN_LOSSES:
        yield _set(
            "loss", "--loss linear (fused linear cross-entropy)", "nothing: as fast, needs Liger or the like", loss="linear"
        )
    if recipe.kernels.attention == "eager":
        yield _set("attention", "FlashAttention (--attention sdpa)", "nothing on most cards", attention="sdpa")
    if recipe.recomputation.policy.kind == "none":
        yield _set("checkpointing", "--checkpointing full", "about a third more time per step", checkpointing="full")
    if question.method == "full" and "8bit" not in recipe.update.optimizer and recipe.update.optimizer.startswith("adam"):
        yield _set("optimizer", "--optimizer adamw_8bit", "small loss of precision in the states", optimizer="adamw_8bit")
    yield from _smaller_batch(question)
    yield from _sharding(question)
    if question.method == "full":
        yield _set("method", "--method lora --rank 16", "trains adapters only", method="lora", adapter=Adapter(rank=16))
    if question.method in ("full", "lora"):
        quantised = {"method": "qlora", "adapter": question.adapter or Adapter(rank=16)}
        yield _set("method", "--method qlora", "frozen weights in 4 bits; slower steps", **quantised)
    yield from _shorter(question)
    if question.method == "full" and not question.offload:
        yield _set("offload", "--offload optimizer", "states in host memory; much slower optimizer step", offload=("optimizer",))


def _set(kind: str, text: str, costs: str, **fields: Any) -> Change:
    return Change(kind=kind, text=text, costs=costs, apply=lambda question: msgspec.structs.replace(question, **fields))


def _smaller_batch(question: Training) -> Iterator[Change]:
    batch = question.micro_batch
    while batch > 1:
        batch //= 2
        accumulate = question.accumulate * question.micro_batch // batch
        fields = {"micro_batch": batch, "accumulate": accumulate}
        yield _set("batch", f"micro-batch {batch}, accumulated {accumulate} times", "smaller matmuls: somewhat slower", **fields)


def _shorter(question: Training) -> Iterator[Change]:
    seq = question.seq
    while seq > 512:
        seq //= 2
        yield _set("seq", f"--seq {seq}", "longer samples are cut", seq=seq)


def _sharding(question: Training) -> Iterator[Change]:
    if question.gpus > 1 and not question.zero and not question.fsdp and question.parallel == Parallel(dp=question.gpus):
        yield _set("sharding", "--fsdp", "weights gathered layer by layer over the links", fsdp=2)
    for factor in (2, 4, 8):
        gpus = question.gpus * factor
        layout = msgspec.structs.replace(question.parallel, dp=question.parallel.dp * factor)
        fields: dict[str, Any] = {"gpus": gpus, "parallel": layout}
        if not question.zero and not question.fsdp:
            fields["fsdp"] = 2
        yield _set("cards", f"{gpus} cards, fully sharded", f"{factor} x the price; faster", **fields)
