"""What a program builds beside the arguments of its trainer: adapters, quantisation, the model and how it is loaded.

LoraConfig, BitsAndBytesConfig, ``from_pretrained`` and Unsloth's FastLanguageModel, in the program and in files beside it. What
only running the program would tell stays ``${name}``.
"""

import ast
import re
from typing import Any

from vramcast.reading.python_values import Open, Program, called
from vramcast.reading.training.program_defaults import TRAINERS
from vramcast.reading.training.program_modules import calls_in, is_used, parts_of
from vramcast.reading.training.program_runs import model_from_elsewhere
from vramcast.reading.training.settings import FLAGS, Settings
from vramcast.untrusted import printable

_LORA = {
    "r": "lora_r", "target_modules": "lora_target_modules", "lora_dropout": "lora_dropout",
    "modules_to_save": "lora_modules_to_save",
    "use_dora": "use_dora", "target_parameters": "lora_target_parameters", "lora_alpha": "lora_alpha",
    "task_type": "lora_task_type",
    "use_rslora": "use_rslora",
}  # fmt: skip
_BITS = {
    "load_in_4bit": "load_in_4bit", "load_in_8bit": "load_in_8bit", "bnb_4bit_quant_type": "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant": "use_bnb_nested_quant", "bnb_4bit_compute_dtype": "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage": "bnb_4bit_quant_storage",
}  # fmt: skip
_LOADED = {
    "torch_dtype": "torch_dtype", "dtype": "dtype", "attn_implementation": "attn_implementation", "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit", "max_seq_length": "max_seq_length", "trust_remote_code": "trust_remote_code",
}  # fmt: skip
_TASK_OF = {name: name.removesuffix("Trainer").lower() for name in TRAINERS if name not in ("Trainer", "Seq2SeqTrainer")}
_OF_TRAINER = ("max_seq_length", "packing", "dataset_text_field", "max_length", "max_prompt_length", "beta")
_OF_ADAPTERS = {"r": "adapter.rank", "target_modules": "adapter.targets"}
_MAKE_MODELS = ("transformers", "trl", "peft", "unsloth", "torch", "accelerate", "sentence_transformers", "setfit", "optimum")
_TAKE_ADAPTERS = (*TRAINERS, "get_peft_model", "add_adapter", "backward")
_MODELS = re.compile(
    r"(?:Auto\w*Model\w*|\w+For(?:CausalLM|ConditionalGeneration|MaskedLM|\w+Classification|QuestionAnswering|Seq2SeqLM)|"
    r"FastLanguageModel|FastModel|FastVisionModel)\.from_pretrained"
)


def built_beside(program: Program, keys: dict[str, Any], settings: Settings, where: str) -> None:
    """What stands beside the arguments, in files beside the program too: adapters, quantisation, the model, how it is loaded."""
    parts = parts_of(program)
    for part in parts:
        _adapted(part, keys, settings, beside=part is not program)
    for part, call in calls_in(parts, "BitsAndBytesConfig"):
        if is_used(part, call, ("from_pretrained",)):
            keys.update(
                {_BITS[name]: value for name, value in part.keywords(call).items() if name in _BITS and _BITS[name] not in keys}
            )
    for part, call in calls_in(parts, "gradient_checkpointing_enable", "prepare_model_for_kbit_training"):
        on = part.keywords(call).get("use_gradient_checkpointing", True) is True
        if on and keys.get("gradient_checkpointing", False) is False:  # off in the arguments turns nothing off
            keys["gradient_checkpointing"] = True
    _trained_by(program, keys, settings, where)
    for part in parts:
        _loaded(part, keys, settings, where)
    _from_elsewhere(program, parts, keys, settings)


def _from_elsewhere(program: Program, parts: list[Program], keys: dict[str, Any], settings: Settings) -> None:
    """Tell adapters and models that a file which is not at hand makes: they are no full training of a plain model."""
    given = [word.value for call in program.calls(*TRAINERS) for word in call.keywords if word.arg == "peft_config"]
    handed = [one for one in given if program.value(one) is not None and not _may_be_none(program, one)]
    wraps = [call for _, call in calls_in(parts, "get_peft_model") if isinstance(call.func, ast.Name)]
    if (handed or wraps) and not {"lora_r", "use_lora"} & keys.keys():
        keys["use_lora"] = True
        settings.leave_open("adapter.rank")
        settings.leave_open("adapter.targets")
        settings.unread.append(
            "adapter.rank (what its adapters are made with is not at hand: --rank N and --targets NAMES says it)"
        )
    name, module = model_from_elsewhere(program, TRAINERS)
    if name and module.split(".", maxsplit=1)[0] not in _MAKE_MODELS:
        settings.unread.append(
            f"{printable(name)[:60]} of {printable(module)[:60]} (not at hand: the model that it makes is taken for a plain one; "
            "--method, --rank and --quant says it)"
        )


def _may_be_none(program: Program, node: ast.expr) -> bool:
    """Whether a name may stand for nothing: what TRL's ``get_peft_config`` gives, or one side of a test that is open."""
    made = program.bound(node) if isinstance(node, ast.Name) else node
    return isinstance(made, ast.IfExp | ast.BoolOp) or (isinstance(made, ast.Call) and called(made) == "get_peft_config")


def _left_before(program: Program, call: ast.Call) -> bool:
    """Whether the function around a call may return nothing before it, by a test that does not plainly fail."""
    for function in (node for node in ast.walk(program.tree) if isinstance(node, ast.FunctionDef)):
        if any(node is call for node in ast.walk(function)):
            tests = [one for one in function.body if isinstance(one, ast.If) and one.lineno < call.lineno]
            return any(
                program.holds(one.test) is not False and any(isinstance(node, ast.Return) for node in one.body) for one in tests
            )
    return False


def _adapted(program: Program, keys: dict[str, Any], settings: Settings, *, beside: bool = False) -> None:
    """What adapters are made with: LoraConfig's arguments, Unsloth's get_peft_model; ``beside``: by a file of the program's."""
    for call in program.calls("LoraConfig", "get_peft_model"):
        if program.runs(call) is False or (called(call) == "LoraConfig" and not is_used(program, call, _TAKE_ADAPTERS)):
            continue
        if beside and called(call) == "LoraConfig" and _left_before(program, call):
            continue  # get_peft_config of alignment-handbook: what use_peft says decides
        for name, value in program.keywords(call).items():
            gathered = name == "target_modules" and isinstance(value, Open) and _finds_linear_layers(program)
            if name in _LORA:
                keys.setdefault(_LORA[name], "all-linear" if gathered else value)
            if name == "use_gradient_checkpointing":
                keys.setdefault("gradient_checkpointing", value)
            if name == "use_gradient_checkpointing" and value == "unsloth":  # before what the trainer's arguments say
                keys["gradient_checkpointing"] = "offload"
        if called(call) == "LoraConfig":  # whatever only running tells of it
            keys.setdefault("use_lora", True)
            tell_opened(program, call, settings, _OF_ADAPTERS, program.keywords(call))
    for call in program.calls("from_pretrained"):  # adapters that were trained before go on
        taken = ast.unparse(call.func) == "PeftModel.from_pretrained" and program.runs(call) is not False
        if taken and program.keywords(call).get("is_trainable") is True and "lora_r" not in keys:
            keys["use_lora"] = True
            keys["lora_r"] = Open("rank of the adapter that it loads")


def _trained_by(program: Program, keys: dict[str, Any], settings: Settings, where: str) -> None:
    """The trainer that runs: TRL's, its objective, and the lengths that it is given itself."""
    reached = [call for call in program.calls(*TRAINERS) if program.runs(call) is not False]
    one = len({called(call) for call in reached}) == 1  # of several the program's own arguments choose
    for call in program.calls(*TRAINERS):
        given = program.keywords(call)
        if (name := called(call)) in _TASK_OF and call in reached and (one or program.runs(call)):
            settings.put("library.trl", True, f"{where}: {name} in line {call.lineno}")
            settings.put("options.task", _TASK_OF[name], f"{where}: {name} in line {call.lineno}")
        keys.update({name: given[name] for name in _OF_TRAINER if name in given and name not in keys})
        if isinstance(given.get("model"), str):
            keys.setdefault("model_name_or_path", given["model"])


def _finds_linear_layers(program: Program) -> bool:
    """Whether a function of the program gathers its linear layers' names, as qlora.py's ``find_all_linear_names`` does."""
    return any(re.search(r"(?:all|target)\w*linear|linear\w*(?:names|layers|modules)", name) for name in program.scopes.functions)


def _loaded(program: Program, keys: dict[str, Any], settings: Settings, where: str) -> None:
    loaders = [call for call in program.calls("from_pretrained") if _MODELS.fullmatch(ast.unparse(call.func))]
    unsloth_alone = all("Fast" in ast.unparse(call.func) for call in loaders)
    for call in loaders:
        given = program.keywords(call)
        model = (
            program.value(call.args[0]) if call.args else given.get("model_name") or given.get("pretrained_model_name_or_path")
        )
        if model is not None:
            keys.setdefault("model_name_or_path", model)
        keys.update({_LOADED[name]: value for name, value in given.items() if name in _LOADED and _LOADED[name] not in keys})
        if given.get("fast_inference") is True:
            share = given.get("gpu_memory_utilization", 0.5)
            settings.unread.append(f"fast_inference (vLLM on the same card, gpu_memory_utilization {plain(share)}: not counted)")
        if "Fast" in ast.unparse(call.func) and (program.runs(call) or unsloth_alone):
            settings.put("framework", "unsloth", f"{where}: {ast.unparse(call.func)} in line {call.lineno}")


def plain(value: Any) -> Any:
    """The value, what is open as a variable."""
    if isinstance(value, Open):
        return "${" + re.sub(r"\W", "_", value.name)[:40] + "}"
    if isinstance(value, list):
        return [plain(one) for one in value]
    return {key: plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def tell_opened(program: Program, call: ast.Call, settings: Settings, targets: dict[str, str], keys: dict[str, Any]) -> None:
    """Leave open what ``Class(**mapping)`` may set where only running tells the mapping: no default stands for it.

    ``targets``: what the class may set, by the key of each.
    """
    held = [word.value for word in call.keywords if word.arg is None and not isinstance(program.value(word.value), dict)]
    if not held:
        return
    for key, target in targets.items():
        if key not in keys:
            settings.leave_open(target)
    flags = " ".join(dict.fromkeys(flag for target in targets.values() if (flag := FLAGS.get(target))))
    settings.unread.append(f"{called(call)}(**{ast.unparse(held[0])[:40]}) (only running tells what it holds: {flags} says it)")
