"""What the example scripts of PEFT, TRL, Firefly, DeepSpeed-Chat, LLaVA, Qwen-VL and MedicalGPT say beside TrainingArguments.

Sources: the arguments of those scripts, each named at its rule.
"""

from typing import Any

from vramcast.reading.training.keys import flag, names, whole
from vramcast.reading.training.settings import Settings
from vramcast.training.methods import TASKS


def train_mode(settings: Settings, value: Any, because: str) -> None:
    """Firefly's full, lora or qlora."""
    settings.put("adapter.on", str(value) in ("lora", "qlora"), because)
    if str(value) == "qlora":
        settings.put("quant", "nf4", because)


def peft(settings: Settings, value: Any, because: str) -> None:
    """TRL's own switch of adapters."""
    settings.put("adapter.on", flag(value), because)
    settings.put("library.trl", True, because)


def modules_named(settings: Settings, value: Any, because: str) -> None:
    """DeepSpeed-Chat: every linear layer whose name holds this word; ``layers.`` is the whole stack."""
    if str(value).strip(".").endswith("layers"):
        settings.put("adapter.targets", ("all-linear",), because)
    else:
        settings.unread.append(f"lora_module_name ({value})")


def frozen(settings: Settings, value: Any, because: str) -> None:
    """A language model that stays frozen while what stands before it is trained: counted as trained, and told."""
    if flag(value):
        settings.unread.append(f"{because.rsplit(': ', 1)[-1]} ({value}: the language model is frozen; it is counted as trained)")


def tuned(settings: Settings, value: Any, because: str) -> None:
    """Qwen-VL's and LLaVA's ``tune_mm_llm``: the language model is trained where it is on."""
    if flag(value) is False:
        frozen(settings, True, because)


def tune_type(settings: Settings, value: Any, because: str) -> None:
    """TinyLLaVA's ``tune_type_llm``: full, lora, qlora or frozen."""
    if str(value) == "frozen":
        frozen(settings, True, because)
    else:
        train_mode(settings, value, because)


def tunable_parts(settings: Settings, value: Any, because: str) -> None:
    """LLaVA-NeXT's list of what is trained: ``mm_vision_tower,mm_mlp_adapter,mm_language_model``."""
    settings.put("options.freezes_towers", "mm_vision_tower" not in str(value), because)
    if "mm_language_model" not in str(value):
        frozen(settings, True, because)


def finds_batch(settings: Settings, value: Any, because: str) -> None:
    """The Trainer halves the batch until it fits: what it begins with is counted."""
    if flag(value):
        settings.unread.append(
            f"{because.rsplit(': ', 1)[-1]} (the batch is halved until it fits; what it begins with is counted)"
        )


def answers(settings: Settings, value: Any, because: str) -> None:
    """Answers to one prompt: only GRPO's files say how many."""
    settings.put("options.task", "grpo", because)
    settings.put("round.answers", whole(value), because)


def task(settings: Settings, value: Any, because: str) -> None:
    """An objective by its name; a word of the program's own (a data set, a benchmark) is told as unread."""
    word = str(value).lower()
    word = {"rm": "reward", "pt": "pretrain"}.get(word, word)
    if word in TASKS:
        settings.put("options.task", word, because)
    else:
        settings.unread.append("task")


def targets(value: Any) -> tuple[str, ...] | None:
    """Adapted modules; ``all`` is every linear layer, ``auto`` what the program chooses itself."""
    return ("all-linear",) if value in ("all", "all-linear") else names(value)
