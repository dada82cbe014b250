"""Helm values: the vLLM production stack's, llm-d's model service and benchmark scenarios, and charts that pass a command on."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vramcast.reading.serving import engine_yaml
from vramcast.reading.serving.bare_flags import engine_of_bare_flags
from vramcast.reading.serving.containers import Container, card_of, cards_in, environment_of, other_device
from vramcast.reading.serving.flags import parsed_flags, words_of_flags
from vramcast.reading.serving.kubernetes import stored_model
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.programs import image_engine
from vramcast.reading.serving.words import words_of

NAME = "Helm values"
_LLM_D = {"tensor": "tensor-parallel-size", "data": "data-parallel-size", "pipeline": "pipeline-parallel-size"}
# llm-d-benchmark's model section by the variables that its commands use.
_SCENARIO = {
    "maxModelLen": "VLLM_MAX_MODEL_LEN", "blockSize": "VLLM_BLOCK_SIZE", "gpuMemoryUtilization": "VLLM_ACCELERATOR_MEM_UTIL",
    "maxNumSeq": "VLLM_MAX_NUM_SEQ", "maxNumBatchedTokens": "VLLM_MAX_NUM_BATCHED_TOKENS",
}  # fmt: skip
_OF_SCENARIO = {
    "VLLM_MAX_MODEL_LEN": "max-model-len", "VLLM_BLOCK_SIZE": "block-size",
    "VLLM_ACCELERATOR_MEM_UTIL": "gpu-memory-utilization", "VLLM_MAX_NUM_SEQ": "max-num-seqs",
    "VLLM_MAX_NUM_BATCHED_TOKENS": "max-num-batched-tokens",
}  # fmt: skip
_STORED = ("uri", "storageUri", "modelUri", "storage_uri")
_MOST = 200


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that these values start; () for values of another chart."""
    if not isinstance(document, dict) or ("apiVersion" in document and "kind" in document):
        return ()
    engines = document.get("servingEngineSpec")
    if isinstance(engines, dict):
        return _production_stack(engines, held.at("servingEngineSpec"))
    if isinstance(document.get("modelArtifacts"), dict):
        return _model_service(document, held)
    if isinstance(document.get("scenario"), list):
        return tuple(x for place, one in enumerate(document["scenario"]) for x in _scenario(one, held.at(f"scenario[{place}]")))
    return _plain_chart(document, held)


def _production_stack(engines: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    found: list[Launch] = []
    spec = engines.get("modelSpec")
    if isinstance(spec, dict):  # charts made after it, of one model each
        return _stack_model(spec, engines, held.at("modelSpec"))
    for place, model in enumerate(spec or () if isinstance(spec, list) else ()):
        if isinstance(model, dict):
            found += _stack_model(model, engines, held.at(f"modelSpec[{place}]"))
    return tuple(found)


def _stack_model(model: Mapping[str, Any], engines: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    config = model.get("vllmConfig")
    options = dict(config) if isinstance(config, dict) else {}
    extra = words_of(options.pop("extraArgs", None))
    options.pop("v0", None)
    options.pop("v1", None)
    cache = model.get("lmcacheConfig")
    shown = {} if not isinstance(cache, dict) or not cache.get("enabled") else {f"lmcacheConfig.{k}": v for k, v in cache.items()}
    lora = ("--enable-lora",) if options.pop("enableLoRA", False) or model.get("enableLoRA") else ()
    requested = str(model.get("requestGPU") or "")
    environment = environment_of(model.get("env"))
    if visible := str(shown.get("lmcacheConfig.cudaVisibleDevices", "")):
        environment.setdefault("CUDA_VISIBLE_DEVICES", visible)
    what = Container(
        name=str(model.get("name") or ""),
        image=f"{model.get('repository', '')}:{model.get('tag', '')}",
        entry=("vllm", "serve", str(model.get("modelURL") or "")),
        arguments=(*_camel_flags(options), *lora, *extra),
        environment=environment,
        gpus=int(requested) if requested.isdigit() else 0,
        card=card_of({"nodeSelector": _selector(model) or engines.get("nodeSelector")}),
        replicas=model["replicaCount"] if isinstance(model.get("replicaCount"), int) and model["replicaCount"] > 0 else 1,
    )
    unread = tuple(name for name in shown if name.endswith(("BufferSize", "maxLocalDiskSize")))
    found = what.launches(held)
    return tuple(msgspec.structs.replace(x, unread=(*x.unread, *unread)) for x in found)


def _selector(model: Mapping[str, Any]) -> dict[str, str]:
    """Node labels of ``nodeSelectorTerms`` that name one value each."""
    found: dict[str, str] = {}
    for term in model.get("nodeSelectorTerms") or () if isinstance(model.get("nodeSelectorTerms"), list) else ():
        for one in term.get("matchExpressions") or () if isinstance(term, dict) else ():
            values = one.get("values") if isinstance(one, dict) else None
            if isinstance(values, list) and len(values) == 1:
                found[str(one.get("key"))] = str(values[0])
    return found


def _camel_flags(options: Mapping[str, Any]) -> tuple[str, ...]:
    """``maxModelLen: 4096`` as ``--max-model-len=4096``."""
    words = []
    for key, value in options.items():
        if value is None or isinstance(value, (dict, list)) or value == "":
            continue
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", str(key)).lower().replace("_", "-")
        words.append(f"--{name}={str(value).lower() if isinstance(value, bool) else value}")
    return tuple(words)


def _model_service(document: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """llm-d's chart: one model, decode pods and prefill pods, each with its layout and its container."""
    model = stored_model(str(document["modelArtifacts"].get("uri") or document["modelArtifacts"].get("name") or ""))
    found: list[Launch] = []
    for part in ("decode", "prefill"):
        section = document.get(part)
        if not isinstance(section, dict) or section.get("create") is False or section.get("enabled") is False:
            continue
        containers = section.get("containers")
        main = next((c for c in containers if isinstance(c, dict)), {}) if isinstance(containers, list) else {}
        own = main.get("modelCommand") in ("custom", "imageDefault")
        entry = words_of(main.get("command")) if own else ("vllm", "serve", model)
        what = Container(
            name=part,
            image=str(main.get("image") or ""),
            entry=entry,
            arguments=(*words_of(main.get("args")), *_shape(section)),
            environment=environment_of(main.get("env")) | {"MODEL_NAME": model},
            gpus=cards_in(main.get("resources")),
            card=card_of(section) or _accelerator(section),
            replicas=section["replicas"] if isinstance(section.get("replicas"), int) and section["replicas"] > 0 else 1,
        )
        place = held.at(part)
        found += [msgspec.structs.replace(x, model=x.model or model) for x in what.launches(place)]
    return tuple(found)


def _accelerator(section: Mapping[str, Any]) -> str:
    kinds = section.get("acceleratorTypes") or section.get("acceleratorType")
    if not isinstance(kinds, dict):
        return ""
    values = kinds.get("labelValues") or [kinds.get("labelValue")]
    label = str(kinds.get("labelKey") or "nvidia.com/gpu.product")
    return card_of({"nodeSelector": {label: values[0]}}) if isinstance(values, list) and len(values) == 1 and values[0] else ""


def _shape(section: Mapping[str, Any]) -> tuple[str, ...]:
    layout = section.get("parallelism")
    if not isinstance(layout, dict):
        return ()
    return tuple(f"--{_LLM_D[name]}={value}" for name, value in layout.items() if name in _LLM_D and isinstance(value, int))


def _scenario(one: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """A scenario of llm-d's benchmark: the commands of its pods with the variables of its model section."""
    if not isinstance(one, dict):
        return ()
    common = _mapping(one.get("common"))
    model = {**_mapping(one.get("model")), **_mapping(common.get("model"))}
    name = str(model.get("huggingfaceId") or model.get("name") or "")
    variables = {variable: str(model[key]) for key, variable in _SCENARIO.items() if key in model}
    variables |= {"MODEL_NAME": name, "MODEL_PATH": name, "LLMDBENCH_DEPLOY_CURRENT_MODEL": name}
    found: list[Launch] = []
    service, alone = _mapping(one.get("modelservice")), _mapping(one.get("standalone"))
    parts = {f"modelservice.{part}": service.get(part) or one.get(part) for part in ("decode", "prefill")} | {"standalone": alone}
    for part, value in parts.items():
        section = _mapping(value)
        above = service if part.startswith("modelservice") else alone
        if not section or section.get("enabled") is False or above.get("enabled") is False:
            continue
        found += _scenario_part(part, {**section, "common": common}, name, held.at(part).with_variables(variables))
    return tuple(found)


def _scenario_part(part: str, section: Mapping[str, Any], model: str, held: LaunchContext) -> list[Launch]:
    layout, vllm, common = (_mapping(section.get(key)) for key in ("parallelism", "vllm", "common"))
    shape = {
        "TP_SIZE": str(layout.get("tensor", 1)),
        "VLLM_TENSOR_PARALLELISM": str(layout.get("tensor", 1)),
        "DP_SIZE": str(layout.get("data", 1)),
    }
    command = vllm.get("customCommand")
    what = Container(
        name=part.removeprefix("modelservice."),
        entry=("sh", "-c", str(command)) if command else ("vllm", "serve", model),
        arguments=()
        if command
        else (*_shape(section), *_limits(held), *words_of(vllm.get("additionalFlags") or vllm.get("args"))),
        environment=environment_of(section.get("extraEnvVars")),
        gpus=cards_in(section.get("resources")),
        card=card_of(_mapping(common.get("affinity"))) or _accelerator(section) or _accelerator(common),
        replicas=section["replicas"] if isinstance(section.get("replicas"), int) and section["replicas"] > 0 else 1,
    )
    mounts = ("/model-cache/", "/mnt/")
    return [
        msgspec.structs.replace(x, model=model) if x.model.startswith(mounts) and model else x
        for x in what.launches(held.with_variables(shape))
    ]


def _limits(held: LaunchContext) -> tuple[str, ...]:
    """The flags that the benchmark's own command makes of its model section."""
    return tuple(f"--{flag}={held.variables[variable]}" for variable, flag in _OF_SCENARIO.items() if variable in held.variables)


def _plain_chart(document: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """Values with a command or arguments somewhere, beside the image that they are for; the model from where it is stored."""
    around = msgspec.structs.replace(held, text_of=lambda name: held.text_of(name) or _own_file(document, name))
    found: list[Launch] = []
    places: list[str] = []
    spare: list[tuple[str, tuple[str, ...]]] = []  # arguments of a section without a program; "" stands for any place
    for path, value in _sections(document):
        image = value.get("image")
        named = _image_name(image)
        inner = image if isinstance(image, dict) else {}
        entry = words_of(value.get("command") or inner.get("command"))
        listed = words_of(value.get("args") or value.get("extraArgs") or inner.get("args"))
        arguments = tuple(part for word in listed for part in _argument(word))
        if entry or arguments:
            what = Container(
                name=path, image=named, entry=entry, arguments=arguments, environment=environment_of(value.get("env")),
                gpus=cards_in(value.get("resources")),
                card=card_of(value) or other_device(value.get("resources")),
            )  # fmt: skip
            launches = what.launches(around.at(path))
            found += launches
            if not (launches or entry or image) and arguments[0].startswith("-"):
                of_model = any(isinstance(value.get(key), str) for key in _STORED)  # beside the model's address
                spare.append(("" if of_model else path, arguments))
            places += [path] * len(launches)
    more = [word for path, words in spare for word in words if len(found) == 1 and _is_above(path, places[0])]
    found = found or list(_bare_runtime(document, held)) or _of_arguments(spare, document, held)
    return tuple(_with_values(_with_release(one, document), more, document) for one in found)


def _of_arguments(spare: Sequence[tuple[str, tuple[str, ...]]], document: Mapping[str, Any], held: LaunchContext) -> list[Launch]:
    """The engine of arguments that stand without a program or an image, by flags that it alone has; the values name its model."""
    told = [(path, words, engine_of_bare_flags(words, path)) for path, words in spare]
    stored = _stored(document) or _named_model(document)
    return [
        Launch(engine=engine, model=stored, flags=words, name=path, where=held.at(path).where, gpus=_cards_of_values(document))
        for path, words, engine in told
        if engine and stored
    ]


def _cards_of_values(document: Mapping[str, Any]) -> int:
    """The cards that the only section with resources of a card asks for; 0 for none or several."""
    found = [cards for _, one in _sections(document) if (cards := cards_in(one.get("resources")))]
    return found[0] if len(found) == 1 else 0


def _with_release(launch: Launch, document: Mapping[str, Any]) -> Launch:
    """The launch with the release of the one image in the values that is its engine's, where its own section has no image."""
    if launch.version:
        return launch
    told = [image_engine(_image_name(one["image"])) for _, one in _sections(document) if one.get("image")]
    found = {one[1] for one in told if one and one[0] == launch.engine}
    return msgspec.structs.replace(launch, version=found.pop()) if len(found) == 1 else launch


def _argument(word: str) -> list[str]:
    """``--flag value`` of one list entry as its words; what is quoted, JSON, or behind an equals sign stays whole."""
    flag, _, rest = word.partition(" ")
    plain = word.startswith("--") and not re.search(r"[{}\[\]\"']", word)
    return word.split() if plain and ("=" not in flag or rest.lstrip().startswith("--")) else [word]


def _is_above(path: str, place: str) -> bool:
    """Whether a section of the values is that of a launch, or around it."""
    return path in ("", place) or place.startswith(f"{path}.")


def _sections(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mapping of the values with its place, the nearest to the top first."""
    level: list[tuple[str, Any]] = [("", document)]
    met = 0
    while level and met < _MOST:
        path, value = level.pop(0)
        if isinstance(value, dict):
            met += 1
            yield path, value
            inner = ((f"{path}.{key}" if path else str(key), child) for key, child in value.items() if key != "image")
            level += [(place, child) for place, child in inner if isinstance(child, (dict, list))]
        elif isinstance(value, list):
            level += [(f"{path}[{place}]", child) for place, child in enumerate(value[:_MOST])]


def _own_file(document: Mapping[str, Any], name: str) -> str | None:
    """The engine's own file that a command names and the chart writes from its values: the one section that is such a file."""
    if not name.endswith((".yaml", ".yml")):
        return None
    found = [value for path, value in _sections(document) if path and engine_yaml.read(value, LaunchContext())]
    return json.dumps(found[0]) if len(found) == 1 else None


def _with_values(launch: Launch, spare: Sequence[str], document: Mapping[str, Any]) -> Launch:
    """The launch with arguments that another section adds to its own, and the model that the chart mounts."""
    said = {flag.name for flag in parsed_flags(launch.engine, launch.flags).flags}
    more = [flag for flag in parsed_flags(launch.engine, spare).flags if flag.name not in said]
    stored = _stored(document)
    mounted = launch.model in ("", "/mnt/models", "/mnt/models/", "/models") and stored
    model = stored if mounted else launch.model or _named_model(document)
    return msgspec.structs.replace(launch, flags=(*launch.flags, *words_of_flags(more)), model=model)


def _image_name(image: Any) -> str:
    """An image as one text: ``{repository, tag}``, ``{name, tag}`` or the text itself."""
    if not isinstance(image, dict):
        return str(image or "")
    return f"{image.get('repository') or image.get('name') or ''}:{image.get('tag', '')}"


def _named_model(document: Mapping[str, Any]) -> str:
    """The model that the values name at their top: ``modelName: org/Model``, ``model: {organization: org, name: Model}``."""
    section = _mapping(document.get("model"))
    maker, name = section.get("organization") or section.get("org"), section.get("name") or section.get("id")
    if isinstance(name, str) and name:
        return f"{maker}/{name}" if isinstance(maker, str) and maker and "/" not in name else name
    found = next((document[key] for key in ("modelName", "modelId", "model") if isinstance(document.get(key), str)), "")
    return str(found)


def _stored(document: Mapping[str, Any]) -> str:
    """The one model that the values say where to load from, "" for none or several."""
    found = {str(one[key]) for _, one in _sections(document) for key in _STORED if isinstance(one.get(key), str) and one[key]}
    stored = {stored_model(uri) for uri in found if "://" in uri}
    return stored.pop() if len(stored) == 1 else ""


def _bare_runtime(document: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """KServe's runtime of an engine's own image, of which nothing is said but the model that a service stores."""
    stored = _stored(document)
    for path, value in _sections(document):
        told = image_engine(_image_name(value.get("image")))
        if told and told[0] and stored and "untime" in path:
            return (Launch(engine=told[0], version=told[1], model=stored, name=path, where=held.at(path).where),)
    return ()


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
