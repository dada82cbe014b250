"""From a question to its recipe: what was given first, then what the task, the method and the framework do."""

from typing import Any

from vramcast.ledger import Assumption
from vramcast.models.inventory import Model
from vramcast.training.frameworks import framework_name, resolver
from vramcast.training.frameworks.common import fsdp_offload, is_narrow, narrow_inputs
from vramcast.training.optimizers.rules import optimizer, update_of
from vramcast.training.quantized import word_of
from vramcast.training.recipe.methods import PARTIALS, kind_of, task_of
from vramcast.training.recipe.recipe import Draft, Recipe
from vramcast.workload import Training

PACKED = ("gptq", "gptq8", "awq")


def resolve(question: Training, model: Model) -> tuple[Recipe, tuple[Assumption, ...]]:
    """The recipe of a question: what was given first, then what its framework does."""
    name = framework_name(question.framework)
    draft = Draft(_given(question) | question.options)
    task, partial = task_of(draft.get("task", "sft")), PARTIALS.get(question.method)
    because = task.source if draft.get("task") else ""
    copies = task.frozen if kind_of(question.method) != "adapter" else max(0, task.frozen - 1)
    draft.default(because, sequences=task.sequences, trained_copies=task.trained, tenant=task.tenant, frozen_copies=copies)
    if partial:
        draft.default(partial.source, trainable_layers=partial.layers, trains_ends=partial.ends)
        if partial.master:
            draft.default(partial.source, master=partial.master, states=partial.master)
    draft.default("", framework=name, version=question.framework_version or "")
    if question.method == "qlora":
        draft.default("QLoRA holds frozen weights in 4-bit NormalFloat (arXiv 2305.14314)", quant="nf4")
    _groups(draft, model)
    narrow_inputs(draft, question, name)
    resolver(name)(draft, question, model)
    fsdp_offload(draft)
    return draft.finish()


def _groups(draft: Draft, model: Model) -> None:
    """Elements that share a scale in a checkpoint's own 4 or 8 bits: as its config says (-1: a whole row), else 128.

    Source: transformers 5, utils/quantization_config.py: group_size of GPTQConfig and AwqConfig.
    """
    if draft.get("quant") in PACKED:
        size = (model.quantization or {}).get("group_size", 128)
        draft.default("groups of the checkpoint", quant_block=int(size) if int(size) > 0 else model.hidden)


def _given(question: Training) -> dict[str, Any]:
    word, nested = word_of(question.quant) if question.quant else (None, False)
    return {
        "method": kind_of(question.method),
        "weights": question.param_dtype,
        "compute": "bfloat16" if is_narrow(question) else question.compute_dtype,
        "gradients": question.grad_dtype,
        "optimizer": optimizer(question.optimizer).name if question.optimizer else None,
        "update": update_of(question.optimizer),
        "checkpointing": question.checkpointing,
        "attention": question.attention,
        "loss": question.loss,
        "compiled": question.compile,
        "quant": word,
        "double_quant": nested or None,
        "offload": question.offload or None,
    }
