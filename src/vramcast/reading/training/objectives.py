"""What training aims at, where files only hint at it: names of TRL's losses, of runs and programs; and what it adds.

Sources: trl 1.16.0, trainer/{dpo,grpo,kto,orpo,cpo}_config.py (``loss_type``, ``beta``, ``max_prompt_length``).
"""

import re
from typing import Any

from vramcast.reading.training.settings import Settings

_LOSSES_OF = {
    **dict.fromkeys(("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_pair",
                     "aot_unpaired", "discopop", "apo_zero", "apo_down", "sigmoid_norm"), "dpo"),
    **dict.fromkeys(("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"), "grpo"),
    **dict.fromkeys(("kto", "bco", "apo_zero_unpaired"), "kto"),
    **dict.fromkeys(("simpo", "alphapo"), "orpo"),
}  # fmt: skip


def loss_type(settings: Settings, value: Any, because: str) -> None:
    """TRL's name of an objective, or several: it tells the trainer; only ``chunked_nll`` decides how logits are held."""
    kinds = [kind.strip(" '\"[]") for kind in (value if isinstance(value, list) else str(value).lower().split(","))]
    if "chunked_nll" in kinds:
        settings.put("loss", "row_chunks", because)
    task = next((_LOSSES_OF[kind] for kind in kinds if kind in _LOSSES_OF), None)
    if task:
        settings.put("task.of_loss", task, because)


_OBJECTIVE = re.compile(r"(?<![a-z])(dpo|kto|orpo|grpo|sft)(?![a-z])", re.I)


def names_objective(name: str) -> bool:
    """Whether a name tells an objective of TRL's trainers, supervised training too: ``run_sft.py``."""
    return _OBJECTIVE.search(name[:200]) is not None


def objective_named(settings: Settings, name: Any, because: str) -> None:
    """The objective that a name tells: ``zephyr-orpo-141b``, ``train_dpo.py``; nothing for a name of none or of several."""
    found = {match.lower() for match in _OBJECTIVE.findall(str(name)[:200])}
    if len(found) == 1 and found != {"sft"}:
        settings.put("task.of_name", found.pop(), because)


def run_named(settings: Settings, value: Any, because: str) -> None:
    """The objective by the name of a run or its folder, in a configuration that names no program."""
    settings.idle.append(because.rsplit(": ", 1)[-1])
    objective_named(settings, str(value).rstrip("/").rsplit("/", 1)[-1], because)


def objective(settings: Settings) -> None:
    """The trainer where only its objective's names are said: a loss, or a ``beta`` beside a prompt's length."""
    told = settings.get("task.of_loss") or settings.get("task.of_name")
    if told:
        settings.put("options.task", told, settings.because.get("task.of_loss") or settings.because["task.of_name"])
    elif settings.get("preference.beta") and settings.get("lengths.prompt") and not settings.get("lengths.completion"):
        settings.put(
            "options.task", "dpo", f"{settings.because['preference.beta']} beside a prompt's length, as DPO's files have"
        )
    elif settings.get("preference.beta") and not settings.get("options.task") and not settings.get("lengths.completion"):
        settings.unread.append("beta (of which preference objective, nothing says: supervised training is answered)")
    settings.drop("task.of_loss", "task.of_name")


def preference(settings: Settings) -> None:
    """Reference models and engines beside the trained model; Unsloth's batch of one prompt's answers."""
    answers, taken = settings.get("round.answers"), settings.get("micro_batch")
    settings.drop("round.answers")
    if answers and taken and settings.get("framework") == "unsloth" and taken * (settings.get("accumulate") or 1) % answers:
        settings.replace("micro_batch", answers, "Unsloth: the batch becomes num_generations where it is no multiple of it")
    if settings.get("options.task") == "grpo":
        if (settings.get("preference.beta") or 0) > 0 and not settings.get("adapter.rank"):
            settings.put("options.frozen_copies", 1, settings.because["preference.beta"])
        if settings.get("engine.on") and settings.get("engine.mode", "colocate") == "colocate":
            settings.put("options.tenant", settings.get("engine.share", 0.3), "GRPO: a vLLM engine on the same card")


def lengths(settings: Settings) -> None:
    """Prompt and completion add up; unpacked batches vary in length."""
    prompt, completion = settings.get("lengths.prompt"), settings.get("lengths.completion")
    if settings.get("options.task") == "grpo" and (prompt or completion):
        settings.drop("seq")
        together = (prompt or 512) + (completion or 256)
        settings.put("seq", together, "prompt and completion")
        settings.put("options.scored", (completion or 256) / together, "GRPO: logits of the completion only")
    if settings.get("lengths.packed") is False:
        settings.put("options.lengths", "variable", settings.because["lengths.packed"])


def evaluation(settings: Settings) -> None:
    """A forward of one evaluation batch, with its logits; a loss alone is kept of it (transformers, trainer.py, evaluate).

    Unsloth's trainers evaluate in no larger batches than they train in where nobody says how large (models/rl.py, eval_changes),
    with all logits since 2025.10 (unsloth_prediction_step). The logits of a classifier are few (``loss`` none).
    """
    if settings.get("eval.strategy", "no") == "no" or settings.get("loss") == "none":
        return
    micro, batch = settings.get("micro_batch"), settings.get("eval.batch", _EVAL_BATCH)
    capped = settings.get("framework") == "unsloth" and not settings.get("eval.as_said")
    if capped and batch == _EVAL_BATCH and isinstance(micro, int) and micro < batch:
        settings.put("options.eval_batch", micro, "unsloth: no larger than the training batch")
    because = settings.because.get("eval.batch", f"per_device_eval_batch_size {_EVAL_BATCH}")
    settings.put("options.eval_batch", batch, because)


_EVAL_BATCH = 8  # TrainingArguments: per_device_eval_batch_size
