"""Whether a text has a command that starts a training run: a launcher with a script, a framework's own program."""

import re

_MEGATRON = re.compile(r"pretrain_\w+\.py$")
# Programs that start a training run, and the words of which one must follow; () for any script.
_TRAINERS: dict[str, tuple[str, ...]] = {
    "torchrun": (), "deepspeed": (), "accelerate": ("launch",), "llamafactory-cli": ("train",), "llamafactory": ("train",),
    "axolotl": ("train",), "trl": ("sft", "dpo", "grpo", "kto", "reward", "rloo"), "swift": ("sft", "rlhf", "pt"),
    "tune": ("run",), "megatron": ("sft", "rlhf", "pt"), "litgpt": ("finetune", "finetune_lora", "finetune_full", "pretrain"),
    "composer": (),
}  # fmt: skip
_TRAINING_MODULES = ("torch.distributed.run", "torch.distributed.launch", "axolotl.cli.train", "accelerate.commands.launch")


def starts_training(text: str) -> str:
    """The program of the first command that starts a training run, "" for none."""
    from vramcast.reading.shell import read_script_text

    for line in read_script_text(text).lines:
        words = [word for word in line.words if word not in ("sudo", "nohup", "srun", "exec", "time", "env", "uv", "run")]
        if not words:
            continue
        program, rest = words[0].rsplit("/", 1)[-1], words[1:]
        verbs = _TRAINERS.get(program)
        script = any(word.endswith(".py") or word in ("-m", "--module") for word in rest)
        if verbs is not None and (script if not verbs else bool(rest) and rest[0] in verbs and len(rest) > 1):
            return program
        module = rest[rest.index("-m") + 1] if "-m" in rest[:-1] else ""
        if program.startswith("python") and (module in _TRAINING_MODULES or any(_MEGATRON.search(word) for word in rest[:3])):
            return module or "a pretraining script"
    return ""
