"""What each framework keeps and does, by version: a table of names, one small module per framework."""

import importlib
from collections.abc import Callable

from vramcast.errors import unknown_name
from vramcast.models.inventory import Model
from vramcast.training.recipe.draft import Draft, Overrides
from vramcast.workload import Training

Resolver = Callable[[Draft, Training, Model], Overrides]

_MODULES = {
    "accelerate": "hf_trainer",
    "axolotl": "axolotl",
    "colossalai": "colossalai",
    "deepspeed": "hf_trainer",
    "fsdp_qlora": "fsdp_qlora",
    "hf_trainer": "hf_trainer",
    "litgpt": "litgpt",
    "llama_factory": "llama_factory",
    "llama_recipes": "pytorch",
    "llm_foundry": "llm_foundry",
    "megatron": "megatron",
    "megatron_deepspeed": "megatron_deepspeed",
    "ms_swift": "ms_swift",
    "nemo_automodel": "pytorch",
    "peft_bench": "pytorch",
    "pytorch": "pytorch",
    "qwen_finetune": "qwen_finetune",
    "torchtitan": "torchtitan",
    "torchtune": "torchtune",
    "trl": "trl",
    "unsloth": "unsloth",
    "xtuner": "torchtitan",
}
ALIASES = {
    "hf": "hf_trainer", "huggingface": "hf_trainer", "trainer": "hf_trainer", "transformers": "hf_trainer", "peft": "hf_trainer",
    "torch": "pytorch", "megatron_lm": "megatron", "megatron_core": "megatron", "nemo": "megatron", "megatron_bridge": "megatron",
    "llamafactory": "llama_factory", "swift": "ms_swift", "colossal": "colossalai", "composer": "llm_foundry",
    "lit_gpt": "litgpt", "titan": "torchtitan", "tune": "torchtune",
}  # fmt: skip


def framework_name(name: str) -> str:
    """The canonical name. Raises QuestionError with the nearest known names."""
    key = name.strip().lower().replace("-", "_")
    found = ALIASES.get(key, key)
    if found not in _MODULES:
        raise unknown_name("framework", name, (*_MODULES, *ALIASES))
    return found


def resolver(name: str) -> Resolver:
    """The generator of that framework's overrides; each may read what the draft holds when its turn comes."""
    module = importlib.import_module(f"vramcast.training.frameworks.{_MODULES[name]}")
    found: Resolver = module.resolve
    return found


def names() -> tuple[str, ...]:
    """Every framework that has rules."""
    return tuple(_MODULES)
