"""From a question to its recipe: what was given, then what task, method and framework do; and the refusal of what cannot be.

Refused in one line each: products that do not divide, layouts a framework has no code for, sequences beyond the model.
"""

from typing import Any

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.ledger import Assumption
from vramcast.models.classes import known_classes
from vramcast.models.inventory import Model, by_identity
from vramcast.models.layers import Attention, Experts, LatentAttention
from vramcast.training.activations.choice import updates_inside_backward
from vramcast.training.frameworks import framework_name, resolver
from vramcast.training.frameworks.common import check_framework, fsdp_offload, is_narrow, narrow_inputs
from vramcast.training.methods import PARTIALS, Partial, check_quantized, kind_of, task_of, word_of
from vramcast.training.optimizers.rules import optimizer, update_of
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import GATHERED, Quantization, Recipe, Task, Update
from vramcast.workload import Training

PACKED = ("gptq", "gptq8", "awq")


def resolve(question: Training, model: Model) -> tuple[Recipe, tuple[Assumption, ...]]:
    """The recipe of a question: what was given first, then what its framework does.

    Raises QuestionError for an option, a word, a task or an optimizer that does not exist, with the nearest that do.
    """
    name = framework_name(question.framework)
    draft = Draft(_given(question) | _named(question.options), framework=name)
    draft.fill(_before_framework(draft, question, model))
    draft.fill(resolver(name)(draft, question, model))
    fsdp_offload(draft)
    return draft.finish(version=question.framework_version or "")


def resolved(question: Training, model: Model) -> tuple[Recipe, tuple[Assumption, ...]]:
    """The recipe of a question, kept for all that differ from it in their numbers. Raises QuestionError as ``resolve``."""
    return _resolved(model, WithoutNumbers(question))


class WithoutNumbers:
    """A question known by all but its batch, length, accumulation and cards: what recipes and structures are kept by."""

    __slots__ = ("question", "text")

    def __init__(self, question: Training) -> None:
        bare = msgspec.structs.replace(question, micro_batch=1, seq=1, accumulate=1, gpu=None, gpus=1)
        try:
            self.question, self.text = question, msgspec.json.encode(bare, enc_hook=str)
        except UnicodeEncodeError:
            raise QuestionError("a word of the question holds bytes that are no text in UTF-8") from None

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithoutNumbers) and self.text == other.text


@by_identity(most=512)
def _resolved(model: Model, key: WithoutNumbers) -> tuple[Recipe, tuple[Assumption, ...]]:
    return resolve(key.question, model)


def _before_framework(draft: Draft, question: Training, model: Model) -> Overrides:
    """What the task and the method decide, whatever the framework."""
    yield from _task(draft, question)
    if question.method in PARTIALS:
        yield from _partial(PARTIALS[question.method])
    if question.method == "qlora":
        yield because("QLoRA holds frozen weights in 4-bit NormalFloat (arXiv 2305.14314)", Quantization, scheme="nf4")
    elif kind_of(question.method) == "adapter" and (stored := stored_scheme(model)):
        yield because("the checkpoint is stored so, and is loaded as it lies", Quantization, scheme=stored)
    yield from _groups(draft, model)
    yield from narrow_inputs(question, draft.framework)


def stored_scheme(model: Model) -> str:
    """The scheme of a checkpoint whose weights cannot be trained as they are stored; "" for others.

    Source: transformers 5, trainer_utils.py, validate_quantization_for_training: bitsandbytes, GPTQ and AWQ without an adapter.
    """
    stored = model.quantization or {}
    method = stored.get("quant_method")
    if method == "bitsandbytes":
        return "int8" if stored.get("load_in_8bit") else "nf4"
    return method if method in ("awq", "gptq") else ""


def _task(draft: Draft, question: Training) -> Overrides:
    task = task_of(draft.get("task", "sft"))
    copies = task.frozen if kind_of(question.method) != "adapter" else max(0, task.frozen - 1)
    reason = task.source if draft.get("task") else ""
    yield because(reason, Task, sequences=task.sequences, trained_copies=task.trained, tenant=task.tenant, frozen_copies=copies)


def _partial(method: Partial) -> Overrides:
    yield because(method.source, Task, trainable_layers=method.layers, trains_ends=method.ends)
    if method.master:
        yield because(method.source, Update, master=method.master, states=method.master)


def _groups(draft: Draft, model: Model) -> Overrides:
    """Elements that share a scale in a checkpoint's own 4 or 8 bits: as its config says (-1: a whole row), else 128.

    Source: transformers 5, utils/quantization_config.py: group_size of GPTQConfig and AwqConfig.
    """
    if draft.get("quant") in PACKED:
        size = int((model.quantization or {}).get("group_size", 128))
        yield because("groups of the checkpoint", Quantization, quant_block=size if size > 0 else model.hidden)


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with the names in them that are rows of a table looked up. Raises QuestionError with the nearest names."""
    found = dict(options)
    if found.get("optimizer") is not None:
        found["optimizer"] = optimizer(found["optimizer"]).name
    family = found.get("modules")
    known = known_classes() if family else ()
    if family and family not in known:
        raise unknown_name("modules", str(family), known, hint="(a model class of transformers)")
    return found


def _given(question: Training) -> dict[str, Any]:
    word, nested = word_of(question.quant) if question.quant else (None, False)
    torch_picks = question.attention == "sdpa"
    return {
        "method": kind_of(question.method),
        "weights": question.param_dtype,
        "compute": "bfloat16" if is_narrow(question) else question.compute_dtype,
        "gradients": question.grad_dtype,
        "optimizer": optimizer(question.optimizer).name if question.optimizer else None,
        "update": update_of(question.optimizer),
        "checkpointing": question.checkpointing,
        "attention": None if torch_picks else question.attention,
        "sdpa": True if torch_picks else None,
        "loss": question.loss,
        "compiled": question.compile,
        "quant": word,
        "double_quant": nested or None,
        "offload": question.offload or None,
    }


EVEN_STAGES = ("megatron",)
REPEATING = ("megatron", "megatron_deepspeed")


def validate(question: Training, model: Model, recipe: Recipe) -> None:
    """Raises QuestionError for the first thing that cannot be, naming it and a value that would do."""
    check_quantized(recipe)
    _method(question, model, recipe)
    _layout(question, model, recipe)
    check_framework(question, recipe)
    _heads(question, model, recipe)
    _experts(question, model)
    _modules(model, recipe)
    _lengths(question)
    if 0 < model.positions < question.seq and not recipe.task.extends_positions:
        raise QuestionError(
            f"a sequence of {question.seq:,} tokens exceeds the {model.positions:,} positions of the model: "
            f"use --seq {model.positions}, or say that its rotary positions are extended: --set extends_positions=true"
        )


def _layout(question: Training, model: Model, recipe: Recipe) -> None:
    parallel = question.parallel
    ranks = parallel.model_ranks * parallel.dp
    if question.gpus > 1 and ranks not in (1, question.gpus):
        raise QuestionError(
            f"tp {parallel.tp} x pp {parallel.pp} x cp {parallel.cp} x dp {parallel.dp} is {ranks} ranks, "
            f"but {question.gpus} GPUs were given: dp would be {question.gpus / parallel.model_ranks:g}"
        )
    _replicas(question, recipe)
    if parallel.vpp > 1 and parallel.pp == 1:
        raise QuestionError(f"vpp {parallel.vpp} cuts pipeline stages into chunks, and pp is 1: use --pp 2 or more")
    if parallel.pp > 1 and recipe.sharding.kind == "zero3":
        raise QuestionError("DeepSpeed refuses ZeRO-3 with pipeline parallelism: use --zero 1 or --pp 1")
    if (
        parallel.pp > 1
        and recipe.framework in EVEN_STAGES
        and not recipe.model_parallel.stage_layout
        and not recipe.model_parallel.uneven_stages
        and model.layers % (parallel.pp * parallel.vpp)
    ):
        raise QuestionError(
            f"{model.layers} layers are not divisible by pp {parallel.pp} x {parallel.vpp} chunks: "
            f"pp can be {', '.join(str(n) for n in range(1, 17) if model.layers % n == 0)}"
        )


REPLICATED = (*GATHERED, "distributed_optimizer")  # shardings that can be repeated over replicas


def _replicas(question: Training, recipe: Recipe) -> None:
    """Replicas of a sharded model (HSDP, MiCS) and the second partition of ZeRO++ divide the ranks."""
    parallel = question.parallel
    if parallel.dp % parallel.replicate:
        raise QuestionError(
            f"{parallel.dp} data-parallel ranks do not divide into {parallel.replicate} replicas: "
            f"replicate can be {_divisors(parallel.dp)}"
        )
    if parallel.replicate > 1 and recipe.sharding.kind not in REPLICATED:
        raise QuestionError(
            f"{parallel.replicate} replicas of a sharded model, but sharding is {recipe.sharding.kind}: add --fsdp"
        )
    if parallel.hpz > 1 and recipe.sharding.kind != "zero3":
        raise QuestionError(f"hpz {parallel.hpz} cuts ZeRO-3 a second time, and sharding is {recipe.sharding.kind}: add --zero 3")
    world = parallel.dp * parallel.model_ranks
    if world % parallel.hpz:
        raise QuestionError(f"hpz {parallel.hpz} does not divide the world of {world} ranks: hpz can be {_divisors(world)}")


def _heads(question: Training, model: Model, recipe: Recipe) -> None:
    """Heads are cut by tensor parallelism; Megatron alone repeats keys and values over more ranks than they have heads.

    Sources: Megatron-LM core 0.16.1, transformer/transformer_config.py (num_query_groups: multiple or divisor of tp); torchtitan
    0.3, models/common/decoder.py (n_kv_heads % tp).
    """
    tp = question.parallel.tp
    mixers = [m for b in model.blocks for m in b.mixers]
    for heads in sorted({m.heads for m in mixers if isinstance(m, Attention | LatentAttention)}):
        if heads % tp:
            raise QuestionError(f"{heads} attention heads are not divisible by tp {tp}: tp can be {_divisors(heads)}")
    for groups in sorted({m.kv_heads for m in mixers if isinstance(m, Attention)}):
        if groups % tp and not (recipe.framework in REPEATING and tp % groups == 0):
            raise QuestionError(f"{groups} key-value heads are not divisible by tp {tp}: tp can be {_divisors(groups)}")


def _experts(question: Training, model: Model) -> None:
    ep = question.parallel.ep
    counts = {b.feedforward.routed for b in model.blocks if isinstance(b.feedforward, Experts)}
    if ep > 1 and not counts:
        raise QuestionError(f"ep {ep} needs experts, and this model has none: use --ep 1")
    data = question.gpus // question.parallel.pp
    if question.gpus > 1 and data % ep:
        raise QuestionError(f"ep {ep} does not divide the {data} ranks of a stage: ep can be {_divisors(data)}")
    for routed in counts:
        if routed % ep:
            raise QuestionError(f"{routed} experts are not divisible by ep {ep}: ep can be {_divisors(routed)}")


def _modules(model: Model, recipe: Recipe) -> None:
    """Modules that Megatron recomputes by themselves exist in the model (core 0.16.1, transformer/transformer_config.py)."""
    policy = recipe.recomputation.policy
    if policy.layers > model.layers:
        raise QuestionError(f"checkpointing {policy} names more than the {model.layers} layers of the model")
    named = set(policy.modules)
    if "mla_up_proj" in named and not any(isinstance(m, LatentAttention) for b in model.blocks for m in b.mixers):
        raise QuestionError("mla_up_proj is a part of latent attention, and this model has none: leave it out of modules:")
    routed = named & {"moe", "moe_act", "shared_experts"}
    if routed and not any(isinstance(b.feedforward, Experts) for b in model.blocks):
        raise QuestionError(f"{' and '.join(sorted(routed))} need experts, and this model has none: use modules:mlp")


def _method(question: Training, model: Model, recipe: Recipe) -> None:
    """What is trained against what holds it."""
    adapted = kind_of(question.method) == "adapter"
    if question.adapter and not adapted:
        raise QuestionError(f"a rank or targets belong to an adapter, and method {question.method} has none: add --method lora")
    if recipe.quantization.scheme and recipe.task.method == "full":
        raise QuestionError(
            f"weights in {recipe.quantization.scheme} are frozen, so method full cannot train them: use --method qlora"
        )
    if not adapted and (stored := stored_scheme(model)):
        other = "qlora" if stored == "nf4" else "lora"
        raise QuestionError(
            f"the checkpoint holds weights in {stored}, which no trainer trains: use --method {other}, or its unquantised model"
        )
    partial, some = PARTIALS.get(question.method), recipe.task.trainable_layers
    if partial and some is not None and not 1 <= some <= model.layers:
        raise QuestionError(f"{some} trained layers of {model.layers}: expected 1 to {model.layers} (trainable_layers)")
    if partial and partial.spread and some and model.layers % some:
        raise QuestionError(
            f"{model.layers} layers are not divisible by {some} trained ones: trainable_layers can be {_divisors(model.layers)}"
        )
    if updates_inside_backward(recipe) and question.accumulate > 1:
        raise QuestionError(
            f"an update inside backward frees each gradient at once, so {question.accumulate} micro-batches cannot accumulate: "
            "use --accumulate 1"
        )


def _lengths(question: Training) -> None:
    """Ranks that share a sequence get equal parts of it."""
    parallel = question.parallel
    parts = parallel.cp * (parallel.tp if parallel.sp else 1)
    if question.seq % parts:
        whole = -(-question.seq // parts) * parts
        raise QuestionError(f"{question.seq:,} tokens do not divide over {parts} ranks that share a sequence: use --seq {whole}")


def _divisors(number: int) -> str:
    return ", ".join(str(n) for n in range(1, number + 1) if number % n == 0)
