"""What a program's own calls decide where its arguments are silent: types, checkpoints, adapters, as its libraries run them.

Sources: transformers 5.23, training_args.py (bf16, fp16 and gradient_checkpointing are False unless said),
integrations/bitsandbytes.py (without a dtype what is not quantised stays in 16 bits); peft, utils/other.py,
prepare_model_for_kbit_training (everything else to float32, checkpointing on); trl 1.16.0, trainer/sft_trainer.py (an object of
TrainingArguments keeps its values: no default of SFTConfig stands for one); unsloth 2025.11, models/llama.py and
models/vision.py, get_peft_model's own defaults.
"""

import ast
import re
from typing import Any

from vramcast.reading.python_values import Open, Program, called
from vramcast.reading.training.peft_config import UNSLOTH_TARGETS
from vramcast.reading.training.pins import note_words, recasts
from vramcast.reading.training.program_modules import calls_in, parts_of
from vramcast.reading.training.settings import Settings

TRAINERS = ("Trainer", "SFTTrainer", "DPOTrainer", "GRPOTrainer", "KTOTrainer", "ORPOTrainer", "RewardTrainer", "Seq2SeqTrainer")
PASSES_ON = (7, 2)  # TRL 0.7.2, sft_trainer.py: prepares with the arguments' own gradient_checkpointing; 0.7.1 with it on
_PLAIN = ("TrainingArguments", "Seq2SeqTrainingArguments")
_LAUNCHED = ("compute_dtype", "zero", "fsdp", "fsdp.on", "file.deepspeed")
_UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel")
_HEADS = ("score", "classifier")
LOADERS = re.compile(r"(?:\w+\.)*\w*(?:Model|For\w+)\.from_pretrained")
_CLASSIFIERS = re.compile(r"(\w+For(?:Sequence|Token)Classification)\.from_pretrained")


def implied(program: Program, keys: dict[str, Any], settings: Settings, where: str, *, arguments: str) -> None:
    """Add to ``keys`` and ``settings`` what calls beside the arguments imply; ``arguments``: the class that holds these."""
    classifier(program, keys, settings, where)
    liger(program, keys)
    if settings.get("framework") == "unsloth":
        _unsloth_adapters(program, keys)
        _unsloth_arguments(keys, settings, where, arguments)
        if all(called(call) in ("Trainer", "Seq2SeqTrainer") for call in program.calls(*TRAINERS)):
            settings.put("eval.as_said", True, f"{where}: the plain Trainer, which Unsloth does not patch")
        return
    _dated(program, keys, settings, where, arguments)
    packed = any(program.runs(call) is not False for call in program.calls("GPTQConfig", "AwqConfig"))
    if packed and not {"torch_dtype", "dtype"} & keys.keys():  # transformers, quantizers/quantizer_gptq.py, quantizer_awq.py
        keys["torch_dtype"] = "float16"
    plain = arguments in _PLAIN
    by_trl = any(called(call) not in ("Trainer", "Seq2SeqTrainer") for call in program.calls(*TRAINERS))
    _halves(keys, settings, where, plain=plain)
    if _loads(program):
        if by_trl:
            settings.put("options.given_loaded", True, f"{where}: the program loads the model and hands it to the trainer")
        kbit(program, keys, settings, where, by_trl=by_trl)
    if plain and by_trl and "gradient_checkpointing" not in keys and not _turned_on(keys, settings):
        settings.put("checkpointing", "none", f"{where}: TrainingArguments, whose gradient_checkpointing is off unless said")


def _dated(program: Program, keys: dict[str, Any], settings: Settings, where: str, arguments: str) -> None:
    """The releases of TRL and transformers that take what the program writes; Unsloth's patched classes take all of it."""
    calls = [call for call in program.calls(*TRAINERS) if program.runs(call) is not False]
    mine = [call for call in calls if called(call) not in program.scopes.classes]
    note_words(settings, [*((called(call), tuple(program.keywords(call))) for call in mine), (arguments, tuple(keys))], where)


def _unsloth_arguments(keys: dict[str, Any], settings: Settings, where: str, arguments: str) -> None:
    """Defaults under Unsloth: its own in the classes of TRL that it patches, transformers' in plain TrainingArguments.

    Source: unsloth 2025.11.1, models/rl.py (replacements: batch 4, accumulation 2, adamw_8bit).
    """
    if arguments in _PLAIN and "optim" not in keys:
        settings.put("optimizer", "adamw_torch", f"{where}: TrainingArguments, whose optim is AdamW's of torch unless said")
    elif arguments and arguments not in _PLAIN and arguments != "UnslothTrainingArguments":
        for name, value in (("per_device_train_batch_size", 4), ("gradient_accumulation_steps", 2)):
            keys.setdefault(name, value)


def _turned_on(keys: dict[str, Any], settings: Settings) -> bool:
    """Whether a pinned TRL prepares a base of 4 or 8 bits with checkpointing, whatever its arguments say."""
    pinned = re.match(r"0\.(\d+)(?:\.(\d+))?", str(settings.get("release.trl", "")))
    quantised = keys.get("load_in_4bit") is True or keys.get("load_in_8bit") is True
    return quantised and pinned is not None and (int(pinned[1]), int(pinned[2] or 0)) < PASSES_ON


def classifier(program: Program, keys: dict[str, Any], settings: Settings, where: str) -> None:
    """A class with a head of labels: its logits are few, whatever the vocabulary."""
    loaders = [one for one in calls_in(parts_of(program), "from_pretrained") if LOADERS.fullmatch(ast.unparse(one[1].func))]
    alone = all(_CLASSIFIERS.fullmatch(ast.unparse(call.func)) for _, call in loaders)  # else a test that is open may choose
    for part, call in loaders:
        if (found := _CLASSIFIERS.fullmatch(ast.unparse(call.func))) and (alone or part.runs(call)):
            settings.put("loss", "none", f"{where}: {found[1]}, whose logits are of labels, not of the vocabulary")
            targets = keys.get("lora_target_modules")
            if isinstance(targets, list) and (heads := [one for one in targets if one in _HEADS]):
                keys["lora_target_modules"] = [one for one in targets if one not in _HEADS]
                settings.unread.append(f"lora_target_modules ({', '.join(heads)}: the head of labels, too small to count)")


def liger(program: Program, keys: dict[str, Any]) -> None:
    """Liger's kernels where the program itself puts them in (liger_kernel, transformers/auto_model.py and monkey_patch.py)."""
    for call in (node for node in ast.walk(program.tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func).rsplit(".", 2)[-2:]
        patched = name[0].startswith("AutoLigerKernel") or name[-1].startswith("apply_liger_kernel_to_")
        if patched and program.runs(call) is not False:
            keys.setdefault("use_liger_kernel", True)


def _halves(keys: dict[str, Any], settings: Settings, where: str, *, plain: bool) -> None:
    """Neither bf16 nor fp16: no autocast; 4-bit layers still multiply in their own type (float32 unless said)."""
    said = [keys.get(name, False if plain else None) for name in ("bf16", "fp16")]
    off = all(value is False for value in said) if plain else said[0] is False and not said[1]
    if not off or any(isinstance(value, Open) for value in said) or {"fsdp", "deepspeed", "fsdp_config"} & keys.keys():
        return
    if any(settings.get(name) is not None for name in _LAUNCHED):  # what starts the program says more
        return
    settings.put("options.autocast", False, f"{where}: neither bf16 nor fp16 is on")
    compute = keys.get("bnb_4bit_compute_dtype", "float32") if keys.get("load_in_4bit") is True else None
    if isinstance(compute, str):
        settings.put("compute_dtype", compute, f"{where}: bnb_4bit_compute_dtype, where neither bf16 nor fp16 is on")


def _loads(program: Program) -> bool:
    return any(LOADERS.fullmatch(ast.unparse(call.func)) for _, call in calls_in(parts_of(program), "from_pretrained"))


def kbit(program: Program, keys: dict[str, Any], settings: Settings, where: str, *, by_trl: bool) -> None:
    """Whether prepare_model_for_kbit_training runs over a quantised base: all else becomes float32, checkpoints come on.

    TRL calls it or not by its release (training/frameworks/trl.py).
    """
    if not (keys.get("load_in_4bit") is True or keys.get("load_in_8bit") is True):
        return
    parts = parts_of(program)
    calls = list(calls_in(parts, "prepare_model_for_kbit_training", "prepare_model_for_int8_training"))
    wrapped = any(calls_in(parts, "get_peft_model"))  # TRL leaves such a model as it is
    by_release = by_trl and not wrapped and recasts(settings)  # TRL prepares it itself, and with bf16 casts its ends back
    if (calls or by_release) and not (by_release and keys.get("bf16", False) is not False):
        told = "prepare_model_for_kbit_training" + ("" if calls else ", which TRL calls before 0.26")
        settings.put("options.unquantized", "float32", f"{where}: {told}")
    elif not calls and not by_trl and "gradient_checkpointing" not in keys and not _prepared_elsewhere(program):
        settings.put("checkpointing", "none", f"{where}: nothing turns checkpointing on, prepare_model_for_kbit_training neither")
        settings.put("options.unquantized", _half(keys), f"{where}: nothing casts what is not quantised")


def _half(keys: dict[str, Any]) -> str:
    """The type of what is not quantised, as loaded: 16 bits where none is said."""
    told = keys.get("torch_dtype", keys.get("dtype"))
    return told if told in ("float32", "float16", "bfloat16") else "float16"


def _prepared_elsewhere(program: Program) -> bool:
    """Whether the program calls a function of another file that may prepare the model."""
    calls = {called(node) for node in ast.walk(program.tree) if isinstance(node, ast.Call)}
    return any("kbit" in name or "prepare" in name for name in calls - program.scopes.functions.keys())


def _unsloth_adapters(program: Program, keys: dict[str, Any]) -> None:
    """Unsloth's get_peft_model: rank 16, every linear layer, checkpoints on the host, unless said."""
    calls = [call for call in program.calls("get_peft_model") if isinstance(call.func, ast.Attribute)]
    loader = next((call.func.value.id for call in calls if isinstance(call.func.value, ast.Name)), "")  # type: ignore[attr-defined]
    if loader not in _UNSLOTH:
        return
    given = program.keywords(calls[0])
    towers = loader != "FastLanguageModel" and given.get("finetune_vision_layers", True) is not False
    keys.setdefault("lora_r", 16)
    keys.setdefault("lora_target_modules", ["all-linear"] if towers else [*UNSLOTH_TARGETS])
    targets = keys["lora_target_modules"]
    if isinstance(targets, list) and (ends := [one for one in targets if one in ("lm_head", "embed_tokens")]):
        keys["lora_target_modules"] = [one for one in targets if one not in ends]  # models/llama.py: trained whole instead
        saved = keys.get("lora_modules_to_save")
        keys["lora_modules_to_save"] = [*(saved if isinstance(saved, list) else []), *ends]
    if "use_gradient_checkpointing" not in given:  # before what the trainer's arguments say
        keys["gradient_checkpointing"] = "offload"
