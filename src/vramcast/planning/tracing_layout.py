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
        bucket_view=not recipe.ddp_buckets,
        static_graph=options.static_graph,
        stage=stage,
        schedule=options.schedule or ("interleaved" if parallel.vpp > 1 else "1f1b"),
    )


def _refuse(question: Training, recipe: Recipe) -> None:
    parallel = question.parallel
    if recipe.sharding in _INSTEAD:
        raise UnmodelledError(f"the tracer does not run sharding {recipe.sharding}: {_INSTEAD[recipe.sharding]}")
    layout = {name: getattr(parallel, name) for name in ("tp", "pp", "cp", "ep", "vpp") if getattr(parallel, name) > 1}
    if layout:
        raise UnmodelledError(f"the tracer does not run parallelism {layout}: use vramcast train, or trace your script")
    if "parameters" in recipe.offload and recipe.sharding == "fsdp1":
        raise UnmodelledError("the tracer does not run FSDP1's offload, whose flat weights change device in place: use --fsdp 2")
