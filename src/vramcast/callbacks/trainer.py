"""The callback of transformers' Trainer and what is built on it (TRL, axolotl, LLaMA-Factory): peak beside forecast."""

import json
from os import PathLike
from typing import Any

from transformers import TrainerCallback

from vramcast.asking.asked import Asked
from vramcast.callbacks.beside import PeakComparison, Watched
from vramcast.models.inventory import Model
from vramcast.workload import Training


class TrainerPeak(TrainerCallback):  # type: ignore[misc]
    """Tells the real peak beside the forecast when training ends; ``cases`` names a file that a case is appended to.

    ``gpu``: the card's name where the driver's is not meant. ``beside``: what was found, None until then. The question is read
    from the run itself: its arguments, the model's config and adapters, the longest batch that a step had.
    """

    def __init__(self, *, cases: str | PathLike[str] | None = None, gpu: str | None = None) -> None:
        self.watched = Watched(cases=cases, gpu=gpu)
        self.beside: PeakComparison | None = None
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count from here on; batches are seen on their way into the model."""
        model = kwargs.get("model")
        if model is not None:
            self._hook = model.register_forward_pre_hook(self._saw, with_kwargs=True)
        self.watched.begin()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask the run that was, on the first process alone."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if state.is_world_process_zero:
            self.beside = self.watched.end(lambda: question_of(args, kwargs["model"], self.watched))

    def _saw(self, _: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.watched.saw(named if "input_ids" in named else positional[0] if positional else None)


def question_of(args: Any, model: Any, watched: Watched) -> tuple[Asked[Training], Model]:
    """The question of a run from its TrainingArguments, its model and the batches that were seen.

    Raises QuestionError for a model or an argument that no question has.
    """
    from vramcast.asking.training import training_question
    from vramcast.models.sources.described import from_config

    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = bare.config.to_dict()
    name = str(config.get("_name_or_path") or args.output_dir)
    inventory = from_config(config, name=name, where="the model's config")
    words: dict[str, Any] = {"seq": watched.length} if watched.length else {}
    cards = watched.card()
    words |= {"gpu": f"{cards}x{args.world_size}" if args.world_size > 1 else cards} if cards else {}
    words |= {"framework": "trl"} if type(args).__module__.startswith("trl.") else {}
    words |= {"micro_batch": watched.rows} if watched.rows else {}
    told = {**_plain(args.to_dict()), **_model_words(model, bare), "model_name_or_path": name}
    return training_question(text=json.dumps(told), **words), inventory


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that JSON holds; what stands for a default is left to it."""
    kept = {key: value for key, value in arguments.items() if isinstance(value, str | int | float | bool | list | dict)}
    return {key: value for key, value in kept.items() if value not in ("", [], {})}


def _model_words(model: Any, bare: Any) -> dict[str, Any]:
    """What the model itself says: adapters, the type of its weights, the attention that it runs."""
    found: dict[str, Any] = {"attn_implementation": getattr(bare.config, "_attn_implementation", None) or "sdpa"}
    found |= {"load_in_4bit": True} if getattr(bare, "is_loaded_in_4bit", False) else {}
    found |= {"load_in_8bit": True} if getattr(bare, "is_loaded_in_8bit", False) else {}
    weights = next((p.dtype for p in bare.parameters() if p.is_floating_point() and p.dim() > 1), None)
    found |= {"dtype": str(weights).removeprefix("torch.")} if weights is not None else {}
    adapter = next(iter(getattr(model, "peft_config", {}).values()), None)
    if adapter is not None and getattr(adapter, "r", None):
        targets = sorted(adapter.target_modules) if not isinstance(adapter.target_modules, str) else adapter.target_modules
        found |= {"use_peft": True, "lora_r": adapter.r, "lora_target_modules": targets}
        found |= {"lora_dropout": adapter.lora_dropout} if adapter.lora_dropout else {}
    return found
