"""Releases that a script, a program or a notebook pins (``pip install transformers==4.40.0``), and those that its names tell."""

import re
from collections.abc import Iterable

from vramcast.reading.training.settings import Settings

_INSTALLS = re.compile(
    r"^[^#\n]*?\b(?:pip3?|uv pip|uv add)[ \t]+(?:install[ \t]+)?(?:[^\n\\]|\\\n)*|^#[ \t]+\"[^\"\n]+\",?[ \t]*$", re.M
)
_PINNED = re.compile(r"(?<![\w./-])(transformers|trl|unsloth)(?:\[[\w,-]*\])?(?:[ \t]*==[ \t]*(\d+(?:\.\d+){1,3})|(?![\w=-]))")
_FROM_SOURCE = re.compile(r"git\+\S*/(transformers|trl|unsloth)\b")


def pinned(text: str) -> dict[str, str]:
    """The release of each library that the installing lines of a text pin last; one that a later line installs anew is free."""
    found: dict[str, str] = {}
    for line in (match[0] for match in _INSTALLS.finditer(text)):
        for name in _FROM_SOURCE.findall(line):
            found.pop(name, None)
        for name, release in _PINNED.findall(_FROM_SOURCE.sub("", line)):
            if release:
                found[name] = release
            elif re.search(r"\s(?:-U|--upgrade)\b", line):
                found.pop(name, None)
    return found


def note_pins(settings: Settings, text: str, where: str) -> None:
    """Keep the pinned releases for the framework that the file turns out to be of."""
    for name, release in pinned(text).items():
        settings.put(f"release.{name}", release, f"{where}: {name}=={release}")


def settle_release(settings: Settings) -> None:
    """The release of the file's framework: Unsloth's month, TRL's own or transformers' that it runs on."""
    framework = str(settings.get("framework"))
    own = {"trl": ("trl", "transformers"), "hf_trainer": ("transformers",), "unsloth": ("unsloth",)}.get(framework, ())
    told = next((f"release.{name}" for name in own if settings.get(f"release.{name}")), None)
    if told is not None:
        settings.put("release", settings.get(told), settings.because[told])
    settings.drop(*(name for name in settings.values if name.startswith("release.")))


# Fields of TrainingArguments that 4.57.1 has and 5.0.0 refuses (transformers, training_args.py of both).
_GONE_IN_5 = frozenset((
    "overwrite_output_dir", "per_gpu_train_batch_size", "per_gpu_eval_batch_size", "save_safetensors", "no_cuda",
    "use_mps_device", "jit_mode_eval", "fp16_opt_level", "half_precision_backend", "fp16_backend", "past_index",
    "adafactor", "fsdp_min_num_params", "ray_scope", "fsdp_transformer_layer_cls_to_wrap", "use_legacy_prediction_loop",
    "include_inputs_for_metrics", "push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token",
    "include_tokens_per_second",
))  # fmt: skip
_OF_SFT = ("dataset_text_field", "packing", "max_seq_length", "dataset_num_proc", "dataset_kwargs", "eval_packing")
_OF_DPO = ("beta", "max_length", "max_prompt_length")
# The last release whose class takes a word: the wheels of 0.12.2 and 0.13.0, 0.15.2 and 0.16.1, 0.19.1 and 0.20.0, 0.27.2 and
# 0.28.0 (trl, trainer/sft_trainer.py, dpo_trainer.py, sft_config.py, grpo_config.py).
_LAST_TRL = (
    ("SFTTrainer", _OF_SFT, "0.12.2"), ("DPOTrainer", _OF_DPO, "0.12.2"), ("SFTTrainer", ("tokenizer",), "0.15.2"),
    ("DPOTrainer", ("tokenizer",), "0.15.2"), ("SFTConfig", ("max_seq_length",), "0.19.1"),
    ("GRPOConfig", ("max_prompt_length",), "0.27.2"),
)  # fmt: skip


def note_names(settings: Settings, keys: Iterable[str], where: str) -> None:
    """The release that a program's own words tell, whose loading is at hand: transformers 5 refuses ``evaluation_strategy``."""
    if "evaluation_strategy" in keys:
        settings.put("release.transformers", "4.45", f"{where}: evaluation_strategy, a name that transformers 5 no longer has")
    if told := sorted(_GONE_IN_5.intersection(keys)):
        settings.put("release.transformers", "4.57", f"{where}: {told[0]}, a name that transformers 5 no longer has")


def note_words(settings: Settings, given: Iterable[tuple[str, Iterable[str]]], where: str) -> None:
    """The releases that take what a program hands to its trainer; ``given``: classes with the words that each call names.

    A release that is pinned says more; so does one of transformers that is older than TRL's last with the word.
    """
    for name, words in given:
        held = set(words)
        if name in ("Trainer", "Seq2SeqTrainer") and "tokenizer" in held:
            settings.put("release.transformers", "4.57", f"{where}: {name}(tokenizer=...), which transformers 5 refuses")
    told = [
        (last, name, word)
        for name, words in given
        for one, own, last in _LAST_TRL
        for word in own
        if one == name and word in words
    ]
    if not told or settings.get("release.trl"):
        return
    last, name, word = min(told, key=lambda one: _numbers(one[0]))
    older = settings.get("release.transformers")
    if older is None or _month("trl", last) <= _month("transformers", older):
        settings.put("release.trl", last, f"{where}: {name}({word}=...), which no later release takes")


def recasts(settings: Settings) -> bool:
    """Whether the release that is told has TRL prepare a quantised base itself, and cast its ends back: before 0.26."""
    told = [(name, release) for name in ("trl", "transformers") if (release := settings.get(f"release.{name}"))]
    return bool(told) and _month(*told[0]) < _month("trl", "0.26")


def _month(library: str, release: str) -> tuple[int, ...]:
    from vramcast.training.frameworks.releases import released

    return released(library, _numbers(release))


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
