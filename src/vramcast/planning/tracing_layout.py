"""From a training question's layout to the ranks a trace pretends, and what the tracer refuses of it by name."""

import msgspec

from vramcast.errors import UnmodelledError
from vramcast.tracing.distribution import Distribution
from vramcast.training.recipe import Recipe
from vramcast.workload import Training

TRAINERS = ("hf_trainer", "trl", "axolotl", "llama_factory", "unsloth")
_DEEPSPEED = (
    "vramcast train answers it; the trace does not yet, because DeepSpeed's engine asks for its own compiled kernels and a real"
    " device: trace the same layout with --fsdp, whose shards are ZeRO-3's"
)
_INSTEAD = {
    "zero1": _DEEPSPEED,
    "zero2": _DEEPSPEED,
    "zero3": _DEEPSPEED,
    "distributed_optimizer": "Megatron's layers are its own and need its kernels: use vramcast train, or --framework torchtitan",
}


class LayoutOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What only a trace is told of a layout, by the names of ``Distribution``."""

    schedule: str = ""
    static_graph: bool = False


def distribution_of(question: Training, recipe: Recipe, options: LayoutOptions, *, stage: int = 0) -> Distribution:
    """The ranks of a question as torch and transformers are told them.

    Raises UnmodelledError, with what would answer it, for a layout that the tracer cannot run.
    """
    _refuse(question, recipe)
    parallel = question.parallel
    sharded = recipe.sharding in {"fsdp1", "fsdp2"}
    mixed = sharded and recipe.compute != recipe.weights and not recipe.quant
    return Distribution(
        parallel=parallel,
        sharding=recipe.sharding if parallel.dp * parallel.cp > 1 else "none",
        reshard=recipe.reshard,
        prefetch=recipe.live_gathers > 1,
        ends_apart=recipe.separate_ends or (recipe.framework in TRAINERS and not recipe.version),
        host_weights=sharded and "parameters" in recipe.offload,
        compute=recipe.compute if mixed else "",
        reduce=recipe.reduce if mixed else "",
        sequence_parallel=parallel.tp > 1 and _or(recipe.sequence_parallel, parallel.sp),
        loss_parallel=parallel.tp > 1 and recipe.vocab_parallel,
        bucket_view=not recipe.ddp_buckets,
        static_graph=options.static_graph,
        stage=stage,
        schedule=options.schedule or ("interleaved" if parallel.vpp > 1 else "1f1b"),
    )


def _refuse(question: Training, recipe: Recipe) -> None:
    parallel = question.parallel
    if recipe.sharding in _INSTEAD:
        raise UnmodelledError(f"the tracer does not run sharding {recipe.sharding}: {_INSTEAD[recipe.sharding]}")
    adapted = question.adapter is not None or recipe.method != "full"
    refused = {
        "FSDP1's offload, whose flat weights change device in place: use --fsdp 2": recipe.sharding == "fsdp1"
        and "parameters" in recipe.offload,
        "FSDP1 beside tensor or expert parallelism: use --fsdp 2": recipe.sharding == "fsdp1" and parallel.tp * parallel.ep > 1,
        "experts divided over copies of a model, which transformers does not do: use --fsdp 2": recipe.sharding == "ddp"
        and parallel.ep > 1,
        "adapters and frozen weights divided over ranks by plan: use --fsdp 2, or vramcast train": adapted
        and parallel.tp * parallel.ep * parallel.pp > 1,
        "a ZeRO++ partition: use vramcast train": parallel.hpz > 1,
        f"pipeline parallelism {parallel.pp}: use vramcast train": parallel.pp > 1,
        f"context parallelism {parallel.cp}: use vramcast train": parallel.cp > 1,
    }
    for what, here in refused.items():
        if here:
            raise UnmodelledError(f"the tracer does not run {what}")


def _or(value: bool | None, otherwise: bool) -> bool:
    return otherwise if value is None else value
