"""XTuner's configurations (mmengine's Python files, to XTuner 0.1): assignments by their names, and the ``model`` they build.

Sources: xtuner 0.1.23, xtuner/configs and engine/; the model is frozen in 4 bits or trained under autocast (AmpOptimWrapper).
"""

import ast
from typing import Any

from vramcast.reading.python_values import Open, Program, called, parse_python
from vramcast.reading.training.huggingface import adapters
from vramcast.reading.training.keys import dtype, flag, text, whole
from vramcast.reading.training.settings import Settings

_OPTIMIZERS = {"AdamW": "adamw", "PagedAdamW32bit": "paged_adamw_32bit", "PagedAdamW8bit": "paged_adamw_8bit", "SGD": "sgd"}
_OWN = ("SupervisedFinetune", "LLaVAModel", "DPO", "RewardModel")


def is_config(source: str) -> bool:
    """Whether a program is such a configuration: it imports XTuner and assigns its own names."""
    return "xtuner" in source and "accumulative_counts" in source and any(name in source for name in _OWN)


def read_config(source: str, settings: Settings, *, where: str) -> None:
    """Put what the configuration says into ``settings``. Raises QuestionError for what is no Python."""
    program = parse_python(source, where)
    names = {"llm_name_or_path": ("model", text), "pretrained_model_name_or_path": ("model", text), "max_length": ("seq", whole),
             "batch_size": ("micro_batch", whole), "accumulative_counts": ("accumulate", whole),
             "pack_to_max_length": ("lengths.packed", flag), "sequence_parallel_size": ("parallel.cp", whole)}  # fmt: skip
    for name, (target, convert) in names.items():
        value = program.value(program.names[name]) if name in program.names else None
        if value is not None and not isinstance(value, Open):
            settings.put(target, convert(value), f"{where}: {name}")
    optimizer = program.names.get("optim_type")
    if isinstance(optimizer, ast.Name):
        settings.put("optimizer", _OPTIMIZERS.get(optimizer.id, optimizer.id.lower()), f"{where}: optim_type")
    for call in program.calls("dict"):
        _of_call(program, call, settings, where)
    adapters(settings, rank=8)
    settings.put("checkpointing", "full", "XTuner: SupervisedFinetune use_activation_checkpointing True")
    settings.put("framework", "hf_trainer", "XTuner's loop trains transformers' own model; the Trainer's rules stand for it")
    if settings.get("parallel.cp") == 1:
        settings.drop("parallel.cp")


def _of_call(program: Program, call: ast.Call, settings: Settings, where: str) -> None:
    """``dict(type=LoraConfig, r=64)`` and its like: what is built says what its keys mean."""
    kind = next((word.value for word in call.keywords if word.arg == "type"), None)
    name = ast.unparse(kind).rsplit(".", 1)[-1] if kind is not None else ""
    given: dict[str, Any] = {k: v for k, v in program.keywords(call).items() if not isinstance(v, Open)}
    because = f"{where}: {name} in line {call.lineno}"
    if name == "LoraConfig" and not settings.get("adapter.rank"):
        settings.put("adapter.rank", whole(given.get("r", 8)), because)
        settings.put("adapter.targets", tuple(given.get("target_modules") or ("all-linear",)), f"{because}: every linear layer")
    elif name == "BitsAndBytesConfig":
        settings.put("quant", "nf4" if given.get("load_in_4bit") else "int8" if given.get("load_in_8bit") else None, because)
        settings.put("options.double_quant", given.get("bnb_4bit_use_double_quant"), because)
    elif name == "AmpOptimWrapper":
        settings.put("compute_dtype", dtype(given.get("dtype", "float16")), because)
    elif called(call) == "dict" and name == "from_pretrained" and given.get("torch_dtype"):
        settings.put("param_dtype", dtype(given["torch_dtype"]), because)
