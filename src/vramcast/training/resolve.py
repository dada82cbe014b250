"""From a question to its recipe: what was given first, then what the task, the method and the framework do."""

from typing import Any

from vramcast.errors import unknown_name
from vramcast.ledger import Assumption
from vramcast.models.classes import known_classes
from vramcast.models.inventory import Model
from vramcast.training.frameworks import framework_name, resolver
from vramcast.training.frameworks.common import fsdp_offload, is_narrow, narrow_inputs
from vramcast.training.methods import PARTIALS, Partial, kind_of, task_of
from vramcast.training.optimizers.rules import optimizer, update_of
from vramcast.training.quantized import word_of
from vramcast.training.recipe.draft import Draft, Overrides, because
from vramcast.training.recipe.parts import Quantization, Recipe, Task, Update
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


def _before_framework(draft: Draft, question: Training, model: Model) -> Overrides:
    """What the task and the method decide, whatever the framework."""
    yield from _task(draft, question)
    if question.method in PARTIALS:
        yield from _partial(PARTIALS[question.method])
    if question.method == "qlora":
        yield because("QLoRA holds frozen weights in 4-bit NormalFloat (arXiv 2305.14314)", Quantization, scheme="nf4")
    yield from _groups(draft, model)
    yield from narrow_inputs(question, draft.framework)


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
