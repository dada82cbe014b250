"""Dynamo's service configurations: one section a component, ``Common`` beside them; manifests of its graphs are Kubernetes'."""

from collections.abc import Mapping
from typing import Any

from vramcast.reading.serving.engine_yaml import flags_of_mapping
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext

NAME = "Dynamo configuration"
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrtllm": "tensorrt_llm", "trtllm": "tensorrt_llm"}
_PARTS = ("Worker", "Engine")
_OWN = ("ServiceArgs", "common-configs", "common_configs")


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The workers of a configuration; () for any other mapping."""
    if not isinstance(document, dict) or not ({"Frontend", "Processor", "Common"} & set(document)):
        return ()
    workers = {str(name): one for name, one in document.items() if isinstance(one, dict) and str(name).endswith(_PARTS)}
    common = document["Common"] if isinstance(document.get("Common"), dict) else {}
    return tuple(launch for name, one in workers.items() for launch in _worker(name, one, common, held.at(name)))


def _worker(name: str, section: Mapping[str, Any], common: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    shared = section.get("common-configs") or section.get("common_configs") or ()
    values = {key: common[key] for key in shared if key in common} | {k: v for k, v in section.items() if k not in _OWN}
    model = values.pop("model", None) or values.pop("model-path", None) or common.get("model") or section.get("served_model_name")
    engine = next((known for word, known in _ENGINES.items() if word in name.lower()), "vllm")
    service = section.get("ServiceArgs")
    resources = service.get("resources") if isinstance(service, dict) else None
    count = str(resources.get("gpu", "")) if isinstance(resources, dict) else ""
    words = words_of_flags(parsed_flags(engine, flags_of_mapping(values)).flags)
    return (
        Launch(
            engine=engine,
            model=str(model or ""),
            flags=words,
            name=name,
            where=held.where,
            gpus=int(count) if count.isdigit() else 0,
        ),
    )
