"""Files that start a serving engine: compose files, llama-swap's, an engine's own YAML, Ollama's Modelfile, scripts."""

import re
from pathlib import Path
from typing import Any

from vramcast.errors import QuestionError
from vramcast.reading.serving.launch import Launch, image_engine, launch_of, read_script
from vramcast.units import MiB
from vramcast.untrusted import parse_yaml, read_bytes

_ENDINGS = (".sh", ".bash", ".yml", ".yaml", ".txt", ".service", ".ps1", ".bat")
# Keys that only an engine's own configuration has.
_OWN_KEYS = {
    "vllm": {
        "max_model_len",
        "gpu_memory_utilization",
        "tensor_parallel_size",
        "max_num_seqs",
        "kv_cache_dtype",
        "served_model_name",
    },
    "sglang": {"model_path", "mem_fraction_static", "context_length", "chunked_prefill_size", "tp_size"},
}
_PARAMETERS = {"num_ctx": "--num-ctx", "num_gpu": "-ngl", "num_batch": "-ub"}


def is_serving_file(text: str) -> bool:
    """Whether the text names a file that may start an engine, and is there."""
    path = Path(text).expanduser()
    named = text.lower().endswith(_ENDINGS) or path.name.lower() in ("modelfile", "dockerfile") or path.suffix == ".modelfile"
    return named and path.is_file()


def read_serving_file(text: str) -> Launch:
    """The launch in a file. Raises QuestionError where there is none, or the file cannot be read."""
    path = Path(text).expanduser()
    content = read_bytes(path, most=MiB).decode("utf-8", "replace")
    found = _modelfile(content) if _is_modelfile(path, content) else None
    if found is None and path.suffix in (".yml", ".yaml"):
        found = _of_mapping(parse_yaml(content, path.name), path.name)
    found = found or read_script(content)
    if found is None:
        raise QuestionError(
            f"{path.name} starts no engine known here: expected a line such as vllm serve MODEL, llama-server -m FILE, "
            "python -m sglang.launch_server --model-path MODEL, a compose file, an engine's YAML or a Modelfile"
        )
    return found


def _is_modelfile(path: Path, content: str) -> bool:
    return (
        path.suffix == ".modelfile"
        or (path.name.lower() == "modelfile")
        or bool(re.match(r"\s*FROM \S+\s*\n\s*(PARAMETER|TEMPLATE|SYSTEM)", content))
    )


def _modelfile(content: str) -> Launch | None:
    base = re.search(r"^\s*FROM\s+(\S+)", content, re.M | re.I)
    if base is None:
        return None
    flags: list[str] = []
    for name, value in re.findall(r"^\s*PARAMETER\s+(\w{1,40})\s+(\S{1,40})", content, re.M | re.I):
        if name.lower() in _PARAMETERS:
            flags += [_PARAMETERS[name.lower()], value]
    return Launch(engine="ollama", model=base[1], flags=tuple(flags))


def _of_mapping(mapping: Any, where: str) -> Launch | None:
    if not isinstance(mapping, dict):
        return None
    if isinstance(mapping.get("services"), dict):
        return next((found for service in mapping["services"].values() if (found := _service(service))), None)
    if isinstance(mapping.get("models"), dict):
        commands = (entry.get("cmd") for entry in mapping["models"].values() if isinstance(entry, dict))
        return next((found for text in commands if isinstance(text, str) and (found := read_script(text))), None)
    return _own_configuration({str(key).replace("-", "_"): value for key, value in mapping.items()}, where)


def _service(service: Any) -> Launch | None:
    """One service of a compose file: the image tells the engine, entry point and command its flags."""
    if not isinstance(service, dict):
        return None
    command = [*_list(service.get("entrypoint")), *_list(service.get("command"))]
    environment = _environment(service.get("environment"))
    image = image_engine(str(service.get("image", "")))
    found = launch_of([*environment, *command])
    if found is None and image:
        found = launch_of([*environment, "docker", str(service["image"]), *command])
    if found is None:
        return None
    version = found.version or (image[1] if image and image[0] == found.engine else None)
    return Launch(
        engine=found.engine, model=found.model, flags=found.flags, version=version, gpus=_devices(service) or found.gpus
    )


def _list(value: Any) -> list[str]:
    import shlex

    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError:
            return value.split()
    return [str(word) for word in value] if isinstance(value, list) else []


def _environment(value: Any) -> list[str]:
    pairs = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else _list(value)
    return [pair for pair in pairs if pair.startswith(("CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=")) and " " not in pair]


def _devices(service: dict[str, Any]) -> int:
    """Cards that compose reserves: ``count`` or ``device_ids``; 0 for all or none said."""
    found: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        found = found.get(key) if isinstance(found, dict) else None
    device = found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}
    ids, count = device.get("device_ids"), device.get("count")
    return len(ids) if isinstance(ids, list) else count if isinstance(count, int) else 0


def _own_configuration(mapping: dict[str, Any], where: str) -> Launch | None:
    """``vllm serve --config``'s YAML and SGLang's: each key is a flag."""
    engine = next((name for name, keys in _OWN_KEYS.items() if keys & set(mapping)), None)
    model = mapping.get("model") or mapping.get("model_path") or mapping.get("model_tag")
    if engine is None or "learning_rate" in mapping:
        return None
    if not isinstance(model, str):
        raise QuestionError(f"{where} configures {engine} and names no model: add the key model")
    flags: list[str] = []
    for key, value in mapping.items():
        if key in ("model", "model_path", "model_tag") or isinstance(value, dict | list) or value is None:
            continue
        flags.append(f"--{key.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}")
    return Launch(engine=engine, model=model, flags=tuple(flags))
