"""Kubernetes manifests: pods of any kind, KServe's services and runtimes, Dynamo's graphs, KubeAI's models, Ray's services."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramcast.reading.serving import ray_programs, ray_serve
from vramcast.reading.serving.containers import Container, card_of, cards_in, environment_of, other_device
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.scripts import read_script
from vramcast.reading.serving.words import words_of
from vramcast.untrusted import parse_yaml

NAME = "Kubernetes manifest"
_MOST_PODS = 200
_PLAIN_KINDS = ("Deployment", "StatefulSet", "Service", "ConfigMap", "Secret", "Ingress", "HTTPRoute", "CustomResourceDefinition")
_ENGINES = {"vllm": "vllm", "huggingface": "vllm", "sglang": "sglang", "ollamaengine": "ollama", "ollama": "ollama"}
_ENTRY = {"vllm": ("vllm", "serve"), "sglang": ("sglang", "serve"), "ollama": ("ollama", "run")}
_PARALLEL = {
    "tensor": "tensor-parallel-size", "pipeline": "pipeline-parallel-size", "data": "data-parallel-size",
}  # fmt: skip


def read(documents: list[Any], held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that the manifests start; () where none is a manifest, or none starts an engine."""
    manifests = [one for one in _flattened(documents) if "kind" in one and ("apiVersion" in one or "spec" in one)]
    files = {file: text for one in manifests if one["kind"] == "ConfigMap" for file, text in _data(one).items()}
    around = msgspec.structs.replace(held, text_of=lambda name: files.get(name.rsplit("/", 1)[-1]) or held.text_of(name))
    maps = {_name(one): _data(one) for one in manifests if one["kind"] == "ConfigMap"}
    runtimes = {_name(one): one for one in manifests if str(one["kind"]).endswith("ServingRuntime")}
    found: list[Launch] = []
    for one in manifests:
        place = around.at(f"{one['kind']} {_name(one)}".strip())
        found += _of_manifest(one, place, maps, runtimes)
    used = any(one["kind"] == "InferenceService" for one in manifests)
    return tuple(launch for launch in found if not (used and "ServingRuntime" in launch.where))


def of_operators(documents: list[Any], held: LaunchContext) -> tuple[Launch, ...]:
    """Resources of operators that have no reader of their own: an engine's flags or arguments anywhere in their specification."""
    from vramcast.reading.serving.any_engine import engines_of

    manifests = [
        one for one in _flattened(documents) if "kind" in one and "apiVersion" in one and one["kind"] not in _PLAIN_KINDS
    ]
    return tuple(x for one in manifests for x in engines_of(one.get("spec"), held.at(f"{one['kind']} {_name(one)}".strip())))


def _of_manifest(
    one: Mapping[str, Any], held: LaunchContext, maps: Mapping[str, Any], runtimes: Mapping[str, Any]
) -> tuple[Launch, ...]:
    spec = one.get("spec")
    if not isinstance(spec, dict):
        return ()
    if one["kind"] in ("LLMInferenceService", "LLMInferenceServiceConfig"):
        return _llm_service(one, spec, held)
    if one["kind"] == "InferenceService" and (found := _predictor(one, spec, held, runtimes)):
        return found
    if one["kind"] == "Model" and isinstance(spec.get("url"), str):
        return _kubeai(one, spec, held)
    if one["kind"] == "RayJob" and isinstance(spec.get("entrypoint"), str):
        return read_script(spec["entrypoint"], held.at("spec.entrypoint"))
    if one["kind"] == "RayService" and isinstance(spec.get("serveConfigV2"), str):
        inner = parse_yaml(spec["serveConfigV2"], "serveConfigV2")
        if launches := ray_serve.read(inner, held.at("serveConfigV2")) or ray_programs.read(inner, held.at("serveConfigV2")):
            return launches
    return tuple(launch for pod in _pods(one) for launch in _of_pod(one, pod, held, maps))


def _of_pod(one: Mapping[str, Any], pod: "_Pod", held: LaunchContext, maps: Mapping[str, Any]) -> tuple[Launch, ...]:
    found: list[Launch] = []
    for container in pod.containers[:20]:
        if not isinstance(container, dict):
            continue
        environment = _environment(container, maps) | environment_of(container.get("env"))
        what = Container(
            name=" ".join(dict.fromkeys(part for part in (_name(one), pod.name) if part)),
            image=str(container.get("image") or ""),
            entry=words_of(container.get("command")),
            arguments=words_of(container.get("args")),
            environment=environment,
            gpus=cards_in(container.get("resources")) or pod.gpus,
            card=card_of(pod.spec) or other_device(container.get("resources")),
            replicas=pod.replicas,
        )
        found += what.launches(held.at(f"{pod.path} {container.get('name') or ''}".strip()))
    return tuple(found)


class _Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's specification somewhere in a manifest: ``path`` to it, what holds it by name, its replicas and cards."""

    spec: dict[str, Any]
    containers: list[Any]
    path: str
    name: str = ""
    replicas: int = 1
    gpus: int = 0


def _pods(one: Mapping[str, Any]) -> Iterator[_Pod]:
    """Every specification of a pod in a manifest, whatever its kind."""
    level: list[tuple[Any, str, int, int, str]] = [(one.get("spec"), "spec", 1, 0, "")]
    met = 0
    while level and met < _MOST_PODS:
        value, path, replicas, gpus, name = level.pop(0)
        if isinstance(value, dict):
            count = value.get("replicas")
            replicas = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else replicas
            gpus = cards_in(value.get("resources")) or gpus
            main = value.get("mainContainer") or value.get("runner")  # Dynamo's; OME's engine of a ServingRuntime
            containers = (
                value.get("containers")
                if isinstance(value.get("containers"), list)
                else [main]
                if isinstance(main, dict)
                else None
            )
            if containers:
                met += 1
                yield _Pod(spec=value, containers=containers, path=path, replicas=replicas, gpus=gpus, name=name)
            for key, inner in value.items():
                if key not in ("containers", "initContainers", "mainContainer", "runner", "resources", "env") and isinstance(
                    inner, (dict, list)
                ):
                    level.append((inner, f"{path}.{key}", replicas, gpus, str(key) if path.endswith(".services") else name))
        elif isinstance(value, list):
            for place, inner in enumerate(value[:_MOST_PODS]):
                own = str(inner.get("name") or inner.get("groupName") or "") if isinstance(inner, dict) else ""
                level.append((inner, f"{path}[{place}]", replicas, gpus, own or name))


def _predictor(
    one: Mapping[str, Any], spec: Mapping[str, Any], held: LaunchContext, runtimes: Mapping[str, Any]
) -> tuple[Launch, ...]:
    """KServe's InferenceService with a model: the runtime's words, then its own; the model from where it is stored."""
    predictor = spec.get("predictor")
    model = predictor.get("model") if isinstance(predictor, dict) else None
    if not isinstance(predictor, dict) or not isinstance(model, dict):
        return ()
    formats = model.get("modelFormat")
    kind = str(formats.get("name", "") if isinstance(formats, dict) else "").lower()
    runtime = runtimes.get(str(model.get("runtime") or predictor.get("runtime"))) or next(iter(runtimes.values()), None)
    base = _runtime_container(runtime)
    engine = _ENGINES.get(kind) or ("vllm" if "vllm" in str(model.get("runtime", "")).lower() else "")
    if not engine and not base:
        return ()
    entry = words_of(base.get("command")) if base else _ENTRY[engine]
    own = words_of(model.get("args"))
    arguments = (*(words_of(base.get("args")) if base else ()), *words_of(model.get("command")), *own)
    what = Container(
        name=_name(one),
        image=str((base or {}).get("image") or ""),
        entry=entry,
        arguments=arguments,
        environment=environment_of((base or {}).get("env")) | environment_of(model.get("env")),
        gpus=cards_in(model.get("resources")) or cards_in((base or {}).get("resources")),
        card=card_of(predictor),
    )
    found = what.launches(held.at("spec.predictor.model"))
    stored = stored_model(str(model.get("storageUri") or _storage(model)))
    return tuple(msgspec.structs.replace(x, model=stored) if stored and _is_mount(x.model) else x for x in found)


def _runtime_container(runtime: Any) -> dict[str, Any]:
    containers = (runtime or {}).get("spec", {}).get("containers") if isinstance((runtime or {}).get("spec", {}), dict) else None
    return next((one for one in containers or () if isinstance(one, dict)), {})


def _storage(model: Mapping[str, Any]) -> str:
    storage = model.get("storage")
    return str(storage.get("path") or "").rstrip("/").rpartition("/")[2] if isinstance(storage, dict) else ""


def _is_mount(model: str) -> bool:
    return model in ("", "/mnt/models", "/models", "/mnt/models/") or "${" in model


def stored_model(uri: str) -> str:
    """The model of ``hf://org/name``, else the last part of a bucket's or an image's path; the tag of a catalogue's image."""
    scheme, _, rest = uri.partition("://")
    if scheme in ("hf", "hf.co"):
        return rest.partition(":")[0].partition("?")[0]
    name, _, tag = rest.rstrip("/").rpartition("/")[2].partition(":")
    name = tag if tag and name.endswith("-catalog") else name.removeprefix("modelcar-")
    return re.sub(r"(?<=-\d)-(?=\d-)", ".", name) if rest else uri


def _llm_service(one: Mapping[str, Any], spec: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """KServe's LLMInferenceService: decode, and prefill where it is apart."""
    model = spec.get("model")
    stored = stored_model(str(model.get("uri") or model.get("name") or "")) if isinstance(model, dict) else ""
    found = _llm_part(one, spec, held.at("spec"), stored, "")
    prefill = spec.get("prefill")
    return (*found, *_llm_part(one, prefill, held.at("spec.prefill"), stored, "prefill")) if isinstance(prefill, dict) else found


def _llm_part(one: Mapping[str, Any], part: Mapping[str, Any], held: LaunchContext, model: str, name: str) -> tuple[Launch, ...]:
    template = part.get("template")
    containers = template.get("containers") if isinstance(template, dict) else None
    main = next((c for c in containers or () if isinstance(c, dict) and c.get("name") in ("main", None)), {})
    environment = environment_of(main.get("env"))
    parallel = part.get("parallelism")
    shape = [f"--{_PARALLEL[k]}={v}" for k, v in (parallel.items() if isinstance(parallel, dict) else ()) if k in _PARALLEL]
    shape += ["--enable-expert-parallel"] if isinstance(parallel, dict) and parallel.get("expert") is True else []
    extra = words_of(environment.get("VLLM_ADDITIONAL_ARGS", ""))
    entry = words_of(main.get("command")) or ("vllm", "serve", model)
    replicas = part.get("replicas")
    what = Container(
        name=" ".join(word for word in (_name(one), name) if word),
        image=str(main.get("image") or ""),
        entry=entry,
        arguments=(*words_of(main.get("args")), *shape, *extra),
        environment={key: value for key, value in environment.items() if key != "VLLM_ADDITIONAL_ARGS"},
        gpus=cards_in(main.get("resources")),
        card=card_of(template),
        replicas=replicas if isinstance(replicas, int) and replicas > 0 else 1,
    )
    return tuple(msgspec.structs.replace(x, model=model) if _is_mount(x.model) else x for x in what.launches(held))


def _kubeai(one: Mapping[str, Any], spec: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """KubeAI's Model: where it is, the engine, its arguments, and cards in ``resourceProfile: nvidia-gpu-l4:1``."""
    engine = _ENGINES.get(str(spec.get("engine", "")).lower(), "")
    profile, _, count = str(spec.get("resourceProfile") or "").partition(":")
    rest = str(spec["url"]).partition("://")[2]
    if not engine or not rest:
        return ()
    card = profile.removeprefix("nvidia-gpu-").removeprefix("amd-gpu-") if "-gpu-" in profile else ""
    what = Container(
        name=_name(one), entry=(*_ENTRY[engine], rest.partition("?")[0]), arguments=words_of(spec.get("args")),
        environment=environment_of(spec.get("env")), gpus=int(count) if count.isdigit() else 0, card=card,
    )  # fmt: skip
    return what.launches(held.at("spec"))


def _environment(container: Mapping[str, Any], maps: Mapping[str, Any]) -> dict[str, str]:
    """Variables that ``envFrom`` and ``valueFrom`` take from a ConfigMap of the same file."""
    found: dict[str, str] = {}
    for source in container.get("envFrom") or () if isinstance(container.get("envFrom"), list) else ():
        reference = source.get("configMapRef") if isinstance(source, dict) else None
        found |= maps.get(str(reference.get("name")), {}) if isinstance(reference, dict) else {}
    for entry in container.get("env") or () if isinstance(container.get("env"), list) else ():
        source = entry.get("valueFrom") if isinstance(entry, dict) else None
        reference = source.get("configMapKeyRef") if isinstance(source, dict) else None
        value = maps.get(str(reference.get("name")), {}).get(str(reference.get("key"))) if isinstance(reference, dict) else None
        if value is not None:
            found[str(entry["name"])] = value
    return found


def _flattened(documents: list[Any]) -> list[dict[str, Any]]:
    """The manifests, those inside a ``kind: List`` included."""
    found: list[dict[str, Any]] = []
    for one in documents[:500]:
        if isinstance(one, dict) and one.get("kind") == "List" and isinstance(one.get("items"), list):
            found += [item for item in one["items"] if isinstance(item, dict)]
        elif isinstance(one, dict):
            found.append(one)
    return found


def _data(one: Mapping[str, Any]) -> dict[str, str]:
    data = one.get("data")
    return {str(name): str(value) for name, value in data.items()} if isinstance(data, dict) else {}


def _name(one: Mapping[str, Any]) -> str:
    metadata = one.get("metadata")
    return str(metadata.get("name") or metadata.get("generateName") or "")[:80] if isinstance(metadata, dict) else ""
