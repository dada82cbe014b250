"""Ray Serve's applications and their ``llm_configs``, RayLLM's older model files: engine arguments by their Python names."""

from collections.abc import Mapping
from typing import Any

from vramcast.reading.serving.engine_yaml import flags_of_mapping
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.untrusted import parse_yaml

NAME = "Ray Serve configuration"


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines of an application, of a list of configurations, or of one; () for any other mapping."""
    if not isinstance(document, dict):
        return ()
    if isinstance(document.get("applications"), list):
        found: list[Launch] = []
        for place, one in enumerate(document["applications"]):
            arguments = one.get("args") if isinstance(one, dict) else None
            if isinstance(arguments, dict):
                found += _configs(arguments, held.at(f"applications[{place}].args"))
        return tuple(found)
    if "llm_configs" in document:
        return _configs(document, held)
    if isinstance(document.get("model_loading_config"), dict) or isinstance(document.get("engine_config"), dict):
        return _one(document, held)
    return ()


def _configs(arguments: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    given = arguments.get("llm_configs") or arguments.get("prefill_config") or arguments.get("models") or ()
    several = [*(given if isinstance(given, list) else [given])]
    several += [arguments[name] for name in ("decode_config",) if name in arguments]
    found: list[Launch] = []
    for place, one in enumerate(several):
        text = held.text_of(one) if isinstance(one, str) else None
        inner = parse_yaml(text, str(one)) if text is not None else one
        if isinstance(inner, dict):
            found += _one(inner, held.at(f"llm_configs[{place}]"))
    return tuple(found)


def _one(config: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    loading = config.get("model_loading_config")
    engine = config.get("engine_config")
    old = engine if isinstance(engine, dict) else {}
    source = loading if isinstance(loading, dict) else {}
    model = source.get("model_source") or old.get("hf_model_id") or source.get("model_id") or old.get("model_id")
    given = config.get("engine_kwargs") or old.get("engine_kwargs")
    kwargs = dict(given) if isinstance(given, dict) else {}
    scaling = config.get("scaling_config")
    workers = scaling.get("num_workers") if isinstance(scaling, dict) else None
    degree = config.get("tensor_parallelism")
    workers = degree.get("degree", workers) if isinstance(degree, dict) else workers
    if isinstance(workers, int) and "tensor_parallel_size" not in kwargs:
        kwargs["tensor_parallel_size"] = workers
    if isinstance(longest := config.get("max_request_context_length"), int):
        kwargs.setdefault("max_model_len", longest)
    name = str(source.get("model_id") or model or "")
    words = words_of_flags(parsed_flags("vllm", flags_of_mapping(kwargs)).flags)
    kind = str(config.get("llm_engine") or "vllm").lower()
    return (
        Launch(
            engine="sglang" if "sglang" in kind else "vllm",
            model=str(
                model if isinstance(model, str) else (model or {}).get("bucket_uri", "") if isinstance(model, dict) else ""
            ),
            flags=words,
            name=name,
            where=held.at("engine_kwargs").where,
            card=str(config.get("accelerator_type") or "").removeprefix("NVIDIA_").replace("_", " "),
        ),
    )
