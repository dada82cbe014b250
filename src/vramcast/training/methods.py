"""What is trained and beside what: adapters, parts of the model, and the further models that preference training needs."""

from typing import Literal

import msgspec

from vramcast.errors import unknown_name
from vramcast.models.sharding import Stage
from vramcast.training.adapters.kinds import KINDS
from vramcast.training.adapters.prompts import PROMPT_KINDS
from vramcast.training.recipe.parts import Dtype
from vramcast.workload import Adapter, Training

LOW_RANK = ("qlora", *KINDS)
PROMPTS = tuple(PROMPT_KINDS)


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """Training of some layers: how many by default, whether embedding and head too, and how deep backward reaches.

    ``spread``: every n-th layer instead of the last ones or of any; ``master``: dtype of a copy of the trained layers that the
    optimizer updates.
    """

    layers: int
    ends: bool
    whole_backward: bool
    spread: bool = False
    master: Literal[Dtype, ""] = ""
    source: str


PARTIALS = {
    "freeze": Partial(layers=2, ends=False, whole_backward=False, source="LLaMA-Factory: freeze_trainable_layers, the last ones"),
    "llama_pro": Partial(
        layers=8,
        ends=False,
        whole_backward=False,
        spread=True,
        source="arXiv 2401.02415; LLaMA-Factory, model/adapter.py: use_llama_pro trains every n-th layer of the expanded model",
    ),
    "lisa": Partial(layers=2, ends=True, whole_backward=True, source="arXiv 2403.17919: random layers and both ends"),
    "badam": Partial(
        layers=1,
        ends=False,
        whole_backward=True,
        master="float32",
        source="arXiv 2404.02827: one block at a time; badam 1.4, block_optim.py: updated through float32 copies",
    ),
}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of training: sequences that one sample becomes, and further copies of the model beside the trained one.

    ``frozen``: copies only run forward (with an adapter, the reference is the same model with the adapter off);
    ``trained``: copies that are trained too; ``tenant``: share of the card that a co-located engine claims.
    """

    sequences: int = 1
    frozen: int = 0
    trained: int = 0
    tenant: float = 0.0
    source: str = ""


TASKS = {
    "sft": Task(source="one sequence, one model"),
    "pretrain": Task(source="one sequence, one model"),
    "dpo": Task(sequences=2, frozen=1, source="trl/trainer/dpo_trainer.py: chosen with rejected, a reference model"),
    "kto": Task(sequences=2, frozen=1, source="trl/trainer/kto_trainer.py: the KL batch beside the batch, a reference model"),
    "orpo": Task(sequences=2, source="trl/trainer/orpo_trainer.py: no reference model"),
    "reward": Task(sequences=2, source="trl/trainer/reward_trainer.py: chosen and rejected"),
    "ppo": Task(frozen=2, trained=1, source="trl/trainer/ppo_trainer.py: reference and reward models, a trained value model"),
    "grpo": Task(source="trl/trainer/grpo_config.py: beta 0, no reference model"),
    "grpo_colocated": Task(tenant=0.3, source="trl/trainer/grpo_config.py: vllm_mode colocate, vllm_gpu_memory_utilization 0.3"),
}


def kind_of(method: str) -> str:
    """full, frozen, partial or adapter. Raises QuestionError with the nearest names for a method without rules."""
    if method in ("full", "frozen"):
        return method
    if method in PARTIALS:
        return "partial"
    if method in LOW_RANK or method in PROMPTS:
        return "adapter"
    raise unknown_name("method", method, ("full", *PARTIALS, *LOW_RANK, *PROMPTS, *TASKS))


def named_by_task(question: Training) -> Training:
    """A task given as the method (dpo, grpo) trains everything, or the adapter that is given."""
    if question.method not in TASKS:
        return question
    method = "lora" if question.adapter else "full"
    return msgspec.structs.replace(question, method=method, options={"task": question.method} | question.options)


def adapter_of(question: Training) -> Adapter | None:
    """The adapter asked for, of the kind that the method names; None where the method trains none."""
    if kind_of(question.method) != "adapter":
        return None
    kind = question.method if question.method != "qlora" else "lora"
    rank = KINDS[kind].sizes.get("r") or 1 if kind in KINDS else 1
    given = question.adapter or Adapter(kind=kind, rank=rank)
    return msgspec.structs.replace(
        given, kind=kind if given.kind == "lora" != kind else given.kind, dora=given.dora or kind == "dora"
    )


def task_of(name: str) -> Task:
    """The row of a task. Raises QuestionError with the nearest names."""
    found = TASKS.get(name)
    if found is None:
        raise unknown_name("task", name, TASKS)
    return found


def last_layers(stage: Stage, wanted: int) -> Stage:
    """The stage cut to its last ``wanted`` layers."""
    kept: list[tuple[object, int]] = []
    for block, n in sorted(stage.blocks, key=lambda pair: -pair[0].indices[-1]):
        taken = min(n, wanted)
        wanted -= taken
        if taken:
            kept.append((block, taken))
    return msgspec.structs.replace(stage, blocks=tuple(kept))
