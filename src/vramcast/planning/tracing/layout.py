"""From a training question's layout to the ranks a trace pretends, and what the tracer refuses of it by name."""

from importlib.util import find_spec

import msgspec

from vramcast.errors import MissingError, QuestionError, UnmodelledError
from vramcast.models.inventory import Block, Model
from vramcast.tracing.distribution import Distribution, Engine
from vramcast.tracing.request import TraceRequest
from vramcast.training.recipe.parts import Recipe
from vramcast.workload import Training

TRAINERS = ("hf_trainer", "trl", "axolotl", "llama_factory", "unsloth")
_MEGATRON = "Megatron's layers are its own and need its kernels: use vramcast train, or --framework torchtitan"


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
    _check_micro_batches(question)
    sharded = recipe.sharding.kind in {"fsdp1", "fsdp2"}
    wide = {recipe.precision.weights, *([recipe.adapters.adapter_dtype] if recipe.task.method == "adapter" else ())}
    mixed = sharded and wide != {recipe.precision.compute} and not recipe.quantization.scheme
    return Distribution(
        parallel=parallel,
        sharding=recipe.sharding.kind if parallel.dp * parallel.cp > 1 else "none",
        reshard=recipe.sharding.reshard,
        prefetch=recipe.sharding.live_gathers > 1,
        ends_apart=recipe.sharding.separate_ends or (recipe.framework in TRAINERS and not recipe.version),
        host_weights=sharded and "parameters" in recipe.sharding.offload,
        compute=recipe.precision.compute if mixed else "",
        reduce=recipe.precision.reduce if mixed else "",
        unreduced=recipe.sharding.whole_accumulation != "none" and sharded and parallel.pp == 1,
        sequence_parallel=parallel.tp > 1 and _or(recipe.model_parallel.sequence_parallel, parallel.sp),
        loss_parallel=parallel.tp > 1 and recipe.model_parallel.vocab_parallel,
        bucket_view=not recipe.sharding.ddp_buckets,
        static_graph=options.static_graph,
        engine=_engine(recipe),
        stage=stage,
        schedule=options.schedule or ("interleaved" if parallel.vpp > 1 else "1f1b"),
    )


def _engine(recipe: Recipe) -> Engine:
    """DeepSpeed's settings where it runs the step."""
    told = recipe.sharding
    if not told.kind.startswith("zero"):
        return Engine()
    return Engine(
        reduce_bucket=told.bucket,
        prefetch=told.prefetch_elements,
        persistent=told.persistent_elements,
        live=told.live_elements,
        reuse=told.reuse_elements,
        overlaps=told.overlaps,
        moves_whole=told.moves_whole,
    )


def _check_micro_batches(question: Training) -> None:
    """Torch's schedules refuse fewer micro-batches than stages, the interleaved one also what makes no whole rounds."""
    pp, given = question.parallel.pp, question.accumulate
    if pp == 1:
        return
    if given < pp:
        raise QuestionError(f"{given} micro-batches cannot fill {pp} stages in torch's schedules: use --accumulate {pp} or more")
    if question.parallel.vpp > 1 and given % pp:
        raise QuestionError(f"{given} micro-batches make no whole rounds of {pp} stages: use --accumulate {-(-given // pp) * pp}")


def stages_of(request: TraceRequest) -> list[tuple[str, TraceRequest]]:
    """The kinds of rank by the forecast's names (first, middle and last stage), each with its request."""
    pp = request.distribution.parallel.pp
    if pp == 1:
        return [("every rank", request)]
    names = {0: "first stage", pp - 1: "last stage"}
    return [(names.get(stage, "middle stage"), _on(request, stage)) for stage in sorted({0, pp // 2, pp - 1})]


def equal_parts(model: Model, parts: int) -> list[Block] | None:
    """The layers of each chunk of a pipeline; None where chunks differ."""
    layers = model.layer_list()
    each = len(layers) // parts
    return layers[:each] if each and layers == layers[:each] * parts else None


def _on(request: TraceRequest, stage: int) -> TraceRequest:
    return msgspec.structs.replace(request, distribution=msgspec.structs.replace(request.distribution, stage=stage))


def _refuse(question: Training, recipe: Recipe) -> None:
    parallel = question.parallel
    if recipe.sharding.kind == "distributed_optimizer":
        raise UnmodelledError(f"the tracer does not run sharding {recipe.sharding.kind}: {_MEGATRON}")
    engine = recipe.sharding.kind.startswith("zero")
    if engine and find_spec("deepspeed") is None:
        raise MissingError(
            "a trace of ZeRO runs DeepSpeed's own engine, which is not installed: DS_BUILD_OPS=0 pip install deepspeed,"
            " or use vramcast train"
        )
    seen = bool(recipe.task.images)
    adapted = question.adapter is not None or recipe.task.method != "full"
    refused = {
        "FSDP1's offload, whose flat weights change device in place: use --fsdp 2": recipe.sharding.kind == "fsdp1"
        and "parameters" in recipe.sharding.offload,
        "FSDP1 beside tensor or expert parallelism: use --fsdp 2": recipe.sharding.kind == "fsdp1"
        and parallel.tp * parallel.ep > 1,
        "experts divided over copies of a model, which transformers does not do: use --fsdp 2": recipe.sharding.kind == "ddp"
        and parallel.ep > 1,
        "adapters and frozen weights divided over ranks by plan: use --fsdp 2, or vramcast train": adapted
        and parallel.tp * parallel.ep * parallel.pp > 1,
        "ZeRO beside another parallelism: use vramcast train": engine and parallel.model_ranks * parallel.ep > 1,
        "ZeRO with weights, states or activations on the host: use vramcast train": engine and bool(recipe.sharding.offload),
        "a ZeRO++ partition or replicas of ZeRO's shards: use vramcast train": engine and parallel.replicate > 1,
        "a second ZeRO++ partition: use vramcast train": parallel.hpz > 1,
        "images over context, sequence or pipeline ranks: use vramcast train": seen
        and (parallel.cp * parallel.pp > 1 or _or(recipe.model_parallel.sequence_parallel, parallel.sp)),
        "FSDP1 under a pipeline, which it cannot accumulate micro-batches for: use --fsdp 2": recipe.sharding.kind == "fsdp1"
        and parallel.pp > 1,
    }
    for what, here in refused.items():
        if here:
            raise UnmodelledError(f"the tracer does not run {what}")


def _or(value: bool | None, otherwise: bool) -> bool:
    return otherwise if value is None else value
