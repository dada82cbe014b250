"""The changes people can make to a training question, each as the flag to type."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramcast.models.inventory import Model
from vramcast.planning.changes import (
    DOUBLED,
    FREE,
    LESS_SERVED,
    LIGHTER,
    MORE_CARDS,
    MUCH_LIGHTER,
    ON_HOST,
    OTHER_PROGRAM,
    SLOWER,
    Change,
    cards_flag,
    set_fields,
)
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Adapter, Parallel, Training

_LEAN_LOSSES = frozenset({"linear", "chunked", "chunked_head", "none"})
_TRAINERS = frozenset({"hf_trainer", "trl", "accelerate", "axolotl", "llama_factory"})
_LEAST_SEQ = 512
_PARTITIONED = 3  # the ZeRO stage that shards weights
_MOST_MODEL_RANKS = 16  # of a layout that is advised: further cuts are the planner's to weigh, by time


def training_changes(question: Training, recipe: Recipe, model: Model) -> Iterator[Change]:
    """Changes worth trying, the steps of each kind from the least to the most."""
    yield from _kernels(question, recipe)
    yield from _sequence_parallel(question, recipe.framework)
    yield from _smaller_batch(question)
    yield from _sharding(question)
    yield from _other_layout(question, recipe, model)
    yield from _other_framework(question)
    yield from _lighter_method(question)
    yield from _shorter(question)
    yield from _offload(question)
    yield from _more_cards_under_megatron(question) if recipe.framework == "megatron" else _more_cards(question)


def _kernels(question: Training, recipe: Recipe) -> Iterator[Change]:
    if recipe.loss.kind not in _LEAN_LOSSES:
        text, costs = "--loss linear", "nothing: fused linear cross-entropy is as fast; needs Liger or the like"
        yield set_fields("loss", text, costs, FREE, loss="linear")
    if recipe.kernels.attention == "eager":
        yield set_fields("attention", "--attention sdpa", "nothing on most cards", FREE, attention="sdpa")
    if recipe.recomputation.policy.kind == "none":
        text, costs = "--checkpointing full", "about a third more time per step"
        yield set_fields("checkpointing", text, costs, SLOWER, checkpointing="full")
    if question.method == "full" and "8bit" not in recipe.update.optimizer and recipe.update.optimizer.startswith("adam"):
        text, costs = "--optimizer adamw_8bit", "small loss of precision in the states"
        yield set_fields("optimizer", text, costs, LIGHTER, optimizer="adamw_8bit")


def _sequence_parallel(question: Training, framework: str) -> Iterator[Change]:
    """Norms and dropouts cut over the tensor-parallel ranks too: as many bytes cross the links (arXiv 2205.05198, 4.2.2)."""
    if framework == "megatron" and question.parallel.tp > 1 and not question.parallel.sp:
        cut = msgspec.structs.replace(question.parallel, sp=True)
        yield set_fields("sp", "--sp", "nothing: as many bytes cross the links", FREE, parallel=cut)


def _smaller_batch(question: Training) -> Iterator[Change]:
    batch = question.micro_batch
    while batch > 1:
        batch //= 2
        accumulate = question.accumulate * question.micro_batch // batch
        text, fields = f"--micro-batch {batch} --accumulate {accumulate}", {"micro_batch": batch, "accumulate": accumulate}
        yield set_fields("batch", text, "smaller matmuls: somewhat slower", SLOWER, **fields)


def _sharding(question: Training) -> Iterator[Change]:
    if question.gpus > 1 and _is_plain(question):
        yield set_fields("sharding", "--fsdp", "weights gathered layer by layer over the links", SLOWER, fsdp=2)


def _other_layout(question: Training, recipe: Recipe, model: Model) -> Iterator[Change]:
    """The planner's layouts of as many cards under the same framework that cut the model further, the least cut first.

    The batch of an optimizer step stays as it is: fewer data-parallel ranks accumulate more.
    """
    from vramcast.planning.plans.training_layouts import PIPELINED, Task, parallel_layouts

    own, framework = question.parallel, recipe.framework
    if question.gpus == 1 or framework not in PIPELINED or question.method not in ("full", "pretrain"):
        return
    sequences = question.micro_batch * question.accumulate * own.dp
    task = Task(model=question.model, offers=(), frameworks=(framework,), seq=question.seq, batch=sequences)
    cuts = (one for one in parallel_layouts(task, model, framework, question.gpus) if (one.cp, one.ep) == (own.cp, own.ep))
    further = [one for one in cuts if own.model_ranks < one.model_ranks <= _MOST_MODEL_RANKS and one.vpp == 1]
    for one in sorted(further, key=lambda one: (one.model_ranks, one.pp)):
        dp, rest = divmod(question.gpus, one.model_ranks)
        if rest or sequences % (dp * question.micro_batch) or own.sp > one.sp or own.vpp > 1:
            continue
        accumulate = sequences // (dp * question.micro_batch)
        words = _flags(one, own)
        words += [f"--accumulate {accumulate}"] if accumulate != question.accumulate else []
        fields: dict[str, Any] = {"parallel": msgspec.structs.replace(one, dp=dp), "accumulate": accumulate}
        costs = "stages wait for each other" if one.pp > 1 else "activations cross the links in every layer"
        yield msgspec.structs.replace(set_fields("layout", " ".join(words), costs, SLOWER, **fields), unordered=True)


def _flags(layout: Parallel, own: Parallel) -> list[str]:
    """The flags of a layout that cuts the model otherwise."""
    words = [f"--{name} {getattr(layout, name)}" for name in ("tp", "pp") if getattr(layout, name) != getattr(own, name)]
    return [*words, "--sp"] if layout.sp and not own.sp else words


def _is_plain(question: Training) -> bool:
    """Copies on every card, nothing shared."""
    return not question.zero and not question.fsdp and question.parallel == Parallel(dp=question.gpus)


def _other_framework(question: Training) -> Iterator[Change]:
    if question.framework in _TRAINERS and question.method in ("lora", "qlora") and question.gpus == 1:
        costs = "another program, whose kernels keep fewer activations"
        fields: dict[str, Any] = {"framework": "unsloth", "framework_version": None, "checkpointing": None, "loss": None}
        yield set_fields("framework", "--framework unsloth", costs, OTHER_PROGRAM, **fields)


def _lighter_method(question: Training) -> Iterator[Change]:
    adapter = question.adapter or Adapter(rank=16)
    if question.method == "full":
        text = f"--method lora --rank {adapter.rank}"
        yield set_fields("method", text, "trains adapters only", MUCH_LIGHTER, method="lora", adapter=adapter)
    if question.method in ("full", "lora"):
        text, costs = f"--method qlora --rank {adapter.rank}", "frozen weights in 4 bits: slower steps; trains adapters only"
        yield set_fields("method", text, costs, MUCH_LIGHTER + 1, method="qlora", adapter=adapter)


def _shorter(question: Training) -> Iterator[Change]:
    step = max(256, question.seq // 16 // 256 * 256)
    for seq in range((question.seq - 1) // step * step, _LEAST_SEQ - 1, -step):
        yield set_fields("seq", f"--seq {seq}", "longer samples are cut", LESS_SERVED, seq=seq)


def _offload(question: Training) -> Iterator[Change]:
    """States in host memory; with shards that are gathered for each layer the weights too, which FSDP moves together."""
    if question.offload:
        return
    states = ("optimizer",) if question.method == "full" and not question.fsdp else ()
    if states:
        text, costs = "--offload optimizer", "states in host memory; much slower optimizer step"
        yield set_fields("offload", text, costs, ON_HOST, offload=states)
    if question.gpus > 1 and (question.fsdp or question.zero == _PARTITIONED):
        parts = (*states, "parameters")
        text, costs = " ".join(f"--offload {part}" for part in parts), "weights and states in host memory: much slower steps"
        yield set_fields("offload", text, costs, ON_HOST, offload=parts)


def _more_cards(question: Training) -> Iterator[Change]:
    """Twice the cards and more, whose ranks share the states."""
    for doublings in range(1, 7):
        factor = 2**doublings
        gpus, layout = question.gpus * factor, msgspec.structs.replace(question.parallel, dp=question.parallel.dp * factor)
        fields: dict[str, Any] = {"gpus": gpus, "parallel": layout}
        shared = "" if question.zero or question.fsdp else " --fsdp"
        if shared:
            fields["fsdp"] = 2
        text = f"{cards_flag(question.gpu, gpus)}{shared}"
        yield set_fields("cards", text, f"{factor} x the price; faster", MORE_CARDS + DOUBLED * doublings, **fields)


def _more_cards_under_megatron(question: Training) -> Iterator[Change]:
    """Twice the cards and more, the model cut over them at least as far as it is, the least cut first."""
    from vramcast.planning.layouts import layouts

    own = question.parallel
    for doublings in range(1, 7):
        gpus, price = question.gpus * 2**doublings, MORE_CARDS + DOUBLED * doublings
        for one in layouts(question, gpus):
            cut: Parallel = one.fields["parallel"]
            if cut.tp >= own.tp and cut.pp >= own.pp:
                text = " ".join((cards_flag(question.gpu, gpus), *_flags(cut, own)))
                change = set_fields("cards", text, f"{2**doublings} x the price; faster", price, gpus=gpus, parallel=cut)
                yield msgspec.structs.replace(change, unordered=True)
