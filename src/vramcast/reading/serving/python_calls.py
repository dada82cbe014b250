"""Engines started from Python: ``LLM(...)`` and the like of vLLM, SGLang, llama-cpp-python, LMDeploy; and the commands it runs.

Read from the syntax tree, never executed: constants, names assigned to them, defaults of argparse.
"""

import ast
from typing import Any

import msgspec

from vramcast.errors import VramcastError
from vramcast.reading.python_values import Open, Program, called, parse_python
from vramcast.reading.serving.engine_yaml import flags_of_mapping
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.scripts import releases_in
from vramcast.untrusted import parse_toml

NAME = "Python program"
# Calls that start an engine; LLM is TensorRT-LLM's where the program imports that.
_CALLS = {
    "LLM": "vllm", "EngineArgs": "vllm", "AsyncEngineArgs": "vllm", "Engine": "sglang", "ServerArgs": "sglang",
    "Runtime": "sglang", "Llama": "llama_cpp", "LLMConfig": "ray", "pipeline": "lmdeploy",
}  # fmt: skip
_PACKAGES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "tensorrt_llm",
    "llama_cpp": "llama_cpp",
    "lmdeploy": "lmdeploy",
    "ray": "ray",
}
_MODELS = ("model", "model_path", "model_id")


def read(text: str, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that a program starts; () for a program that starts none. Raises QuestionError for what is no Python."""
    program = parse_python(text, held.where or "the program", held.text_of)
    program.environment = held.variables
    program.build_arguments = _build_arguments(held)
    given = program.arguments.keys() & held.variables.keys()  # --var model=...: an option of the program's own
    program.arguments |= {name: ast.copy_location(ast.Constant(value=held.variables[name]), program.tree) for name in given}
    packages = _imports(program.tree)
    found: list[Launch] = []
    for call in program.calls(*_CALLS):
        engine = _engine(called(call), packages)
        if engine == "ray":
            found += _ray(program, call, held)
        elif engine:
            found += _launch(program, call, engine, held)
    from vramcast.reading.serving.python_commands import card_of, commands_in

    found += commands_in(program, held)
    found = found or _of_its_command_line(program, packages, held)
    card, cards = card_of(program) if found else ("", 0)
    releases = releases_in(text) or releases_in(held.text_of("requirements.txt") or "") if found else {}
    found = [
        msgspec.structs.replace(
            launch, card=launch.card or card, gpus=launch.gpus or cards, version=launch.version or releases.get(launch.engine)
        )
        for launch in found
    ]
    return tuple(launch for place, launch in enumerate(found) if launch not in found[:place])


def _of_its_command_line(program: Program, packages: set[str], held: LaunchContext) -> list[Launch]:
    """The engine of a program that takes the engine's own flags (``AsyncEngineArgs.from_cli_args``): its model is open."""
    for call in program.calls("from_cli_args"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in _CALLS and (engine := _engine(owner.id, packages)):
            return [
                Launch(engine=engine, model="${model}", where=held.at(f"{owner.id}.from_cli_args in line {call.lineno}").where)
            ]
    return []


def _build_arguments(held: LaunchContext) -> dict[str, Any]:
    """``[tool.bentoml.build.args]`` of the pyproject.toml beside: what ``bentoml build`` gives ``bentoml.use_arguments``."""
    text = held.text_of("pyproject.toml")
    if text is None or "bentoml" not in text:
        return {}
    try:
        found: Any = parse_toml(text, "pyproject.toml")
    except VramcastError:
        return {}
    for key in ("tool", "bentoml", "build", "args"):
        found = found.get(key) if isinstance(found, dict) else None
    return dict(found) if isinstance(found, dict) else {}


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module.split(".")[0], node.module.split(".")[-1]}  # lmcache_vllm.vllm has vLLM's own LLM
    return found & _PACKAGES.keys()


def _engine(name: str, packages: set[str]) -> str:
    """The engine whose package the program imports; "" where the call is another package's."""
    if name == "LLM" and "tensorrt_llm" in packages:
        return "tensorrt_llm"
    usual = _CALLS[name]
    package = {"vllm": "vllm", "sglang": "sglang", "llama_cpp": "llama_cpp", "ray": "ray", "lmdeploy": "lmdeploy"}[usual]
    return usual if package in packages else ""


def _launch(program: Program, call: ast.Call, engine: str, held: LaunchContext) -> list[Launch]:
    given = program.keywords(call)
    positional = program.value(call.args[0]) if call.args else None
    model = next((given.pop(name) for name in _MODELS if name in given), positional)
    if engine == "llama_cpp" and model is None and isinstance(given.get("repo_id"), str):
        model = given.pop("repo_id")
    if engine == "lmdeploy":
        given = _engine_config(program, call)
    name = called(call)
    values = {
        key: _shown(value)
        for key, value in given.items()
        if not isinstance(value, bool | int | float | str | type(None) | dict | list)
    }
    plain = {**given, **values}
    words = [*words_of_flags(parsed_flags(engine, flags_of_mapping(plain)).flags)]
    words += ["--fit=off"] if engine == "llama_cpp" and "fit" not in given else []  # llama-cpp-python places layers itself
    words += ["--entry=offline"] if engine == "vllm" and name == "LLM" else []
    where = held.at(f"{name}(...) in line {call.lineno}").where
    return [Launch(engine=engine, model=_shown(model) if model is not None else "", flags=tuple(words), where=where)]


def _engine_config(program: Program, call: ast.Call) -> dict[str, Any]:
    """The arguments of LMDeploy's TurbomindEngineConfig or PytorchEngineConfig that a pipeline is given."""
    for word in call.keywords:
        value = program.names.get(word.value.id) if isinstance(word.value, ast.Name) else word.value
        if isinstance(value, ast.Call) and called(value) in ("TurbomindEngineConfig", "PytorchEngineConfig"):
            backend = "pytorch" if called(value) == "PytorchEngineConfig" else "turbomind"
            return {"backend": backend, **program.keywords(value)}
    return {}


def _ray(program: Program, call: ast.Call, held: LaunchContext) -> list[Launch]:
    from vramcast.reading.serving import ray_serve

    given = program.keywords(call)
    return list(
        ray_serve.read({key: _told(value) for key, value in given.items()}, held.at(f"LLMConfig(...) in line {call.lineno}"))
    )


def _told(value: Any) -> Any:
    """The value with what is open written as a variable."""
    if isinstance(value, dict):
        return {key: _told(inner) for key, inner in value.items()}
    return _shown(value) if isinstance(value, Open) else value


def _shown(value: Any) -> str:
    return f"${{{_identifier(value.name)}}}" if isinstance(value, Open) else str(value)


def _identifier(name: str) -> str:
    """What is open, as a name that can be given: ``args.model`` is args_model."""
    return "".join(letter if letter.isalnum() else "_" for letter in name).strip("_")[:40] or "value"
