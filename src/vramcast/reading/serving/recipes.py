"""vLLM's structured recipes (one YAML a model, a launch a variant) and those that srt-slurm runs (a launch a role)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramcast.reading.serving.containers import Container, environment_of
from vramcast.reading.serving.engine_yaml import flags_of_mapping
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import image_engine
from vramcast.reading.serving.words import words_of

NAME = "recipe"
_ENGINES = {"sglang": "sglang", "vllm": "vllm", "trtllm": "tensorrt_llm", "tensorrt_llm": "tensorrt_llm"}


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The launches of a recipe; () for any other mapping."""
    if not isinstance(document, dict):
        return ()
    model = document.get("model")
    if isinstance(model, dict) and "model_id" in model and isinstance(document.get("variants"), dict):
        return tuple(x for name, one in document["variants"].items() for x in _variant(str(name), one, model, held))
    backend = document.get("backend")
    if isinstance(model, dict) and isinstance(backend, dict) and (engine := _engine_of(backend)):
        return _roles(document, {**model, "engine": engine}, backend, held)
    return ()


def _engine_of(backend: Mapping[str, Any]) -> str:
    """The engine of a backend, by its type or by the section that configures it; "" for none known."""
    sections = (str(key).removesuffix("_config") for key in backend if str(key).endswith("_config"))
    return next((_ENGINES[name] for name in (str(backend.get("type", "")).lower(), *sections) if name in _ENGINES), "")


def _variant(name: str, variant: Any, model: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """One variant of vLLM's recipe: the model's own arguments, then its."""
    one = variant if isinstance(variant, dict) else {}
    layout = [f"--tensor-parallel-size={one['tp']}"] if isinstance(one.get("tp"), int) else []
    what = Container(
        name=name,
        entry=("vllm", "serve", str(one.get("model_id") or model["model_id"])),
        arguments=(*words_of(model.get("base_args")), *words_of(one.get("extra_args")), *layout),
        environment=environment_of(model.get("base_env")) | environment_of(one.get("extra_env")),
    )
    return what.launches(held.at(f"variants.{name}"))


def _repository(document: Mapping[str, Any]) -> str:
    """``identity.model.repo``: what the path of a recipe's model holds."""
    identity = document.get("identity")
    model = identity.get("model") if isinstance(identity, dict) else None
    return str(model.get("repo") or "") if isinstance(model, dict) else ""


def _roles(
    document: Mapping[str, Any], model: Mapping[str, Any], backend: Mapping[str, Any], held: LaunchContext
) -> tuple[Launch, ...]:
    """Prefill, decode or both in one, each with its flags by name."""
    engine = str(model["engine"])
    sections = {str(key): value for key, value in backend.items() if str(key).removesuffix("_config") in _ENGINES}
    config = next((value for value in sections.values() if isinstance(value, dict)), {})
    image = image_engine(str(model.get("container") or ""))
    resources = document.get("resources")
    card = str(resources.get("gpu_type") or "") if isinstance(resources, dict) else ""
    found: list[Launch] = []
    for role in ("prefill", "decode", "aggregated", "agg"):
        flags = config.get(role)
        if isinstance(flags, dict):
            own = {key: value for key, value in flags.items() if str(key).replace("-", "_") not in ("model_path", "model")}
            words = words_of_flags(parsed_flags(engine, flags_of_mapping(own)).flags)
            named = flags.get("served-model-name") or flags.get("served_model_name") or _repository(document) or model.get("path")
            launch = Launch(
                engine=engine, model=str(named or ""), flags=words, name=role, card=card, where=held.at(f"backend.{role}").where
            )
            found.append(msgspec.structs.replace(launch, version=image[1] if image and image[0] == engine else None))
    return tuple(found)
