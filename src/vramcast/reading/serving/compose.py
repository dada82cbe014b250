"""Docker compose files: services with image, command and variables; includes, extends and a .env beside are followed."""

from collections.abc import Mapping
from typing import Any

import msgspec

from vramcast.errors import QuestionError
from vramcast.reading.serving import modelfile
from vramcast.reading.serving.commands import cards_of
from vramcast.reading.serving.containers import Container, environment_of
from vramcast.reading.serving.environment import read_environment_file
from vramcast.reading.serving.launch import Launch, LaunchContext
from vramcast.reading.serving.words import words_of
from vramcast.reading.shell.variables import resolved
from vramcast.untrusted import parse_yaml

NAME = "compose file"
_DEEPEST = 8
_MOST_CARDS = 1024


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that the services start; () where it is no compose file. Raises QuestionError for a cycle of includes."""
    if not isinstance(document, dict) or not isinstance(document.get("services"), dict):
        return ()
    beside = read_environment_file(held.text_of(".env") or "")
    around = held.with_variables(beside)
    services = {**_included(document, around, ()), **document["services"]}
    found: list[Launch] = []
    for name, service in services.items():
        if isinstance(service, dict):
            whole = _extended(service, services, around, ())
            place = around.at(f"services.{name}")
            found += _container(str(name), whole, place).launches(place)
    return _with_pulled_models(found)


def _with_pulled_models(launches: list[Launch]) -> tuple[Launch, ...]:
    """Ollama's server without a model, and services that pull models for it: one launch a model, with the server's settings."""
    servers = [one for one in launches if one.engine == "ollama" and not one.model]
    pulled = [one for one in launches if one.engine == "ollama" and one.model and not one.flags]
    if not servers or not pulled:
        return tuple(launches)
    server = max(servers, key=lambda one: (len(one.flags), one.gpus))
    models = {one.model: one for one in reversed(pulled)}
    kept = [one for one in launches if one not in servers and one not in pulled]
    return (*kept, *(msgspec.structs.replace(server, model=name, name=models[name].name) for name in reversed(models)))


def _container(name: str, service: Mapping[str, Any], held: LaunchContext) -> Container:
    environment: dict[str, str] = {}
    for file in _files(service.get("env_file")):
        environment |= read_environment_file(held.text_of(file) or "")
    environment |= environment_of(service.get("environment"), dict(held.variables))
    built = _built(service, held)
    entry, arguments = _words(service.get("entrypoint"), held), _words(service.get("command"), held)
    profiles = service.get("deploy") if isinstance(service.get("deploy"), dict) else {}
    replicas = profiles.get("replicas") if isinstance(profiles, dict) else 1
    return Container(
        name=name,
        image=str(service.get("image") or built.image),
        entry=entry or built.entry,
        arguments=arguments or (() if entry else built.arguments),
        environment={**built.environment, **{key: _filled(value, held) for key, value in environment.items()}},
        gpus=_cards(service),
        devices=_devices(service),
        replicas=replicas if isinstance(replicas, int) and not isinstance(replicas, bool) and replicas > 0 else 1,
    )


def _built(service: Mapping[str, Any], held: LaunchContext) -> Container:
    """The Dockerfile that a service is built from, where it lies beside; an empty container where not."""
    build = service.get("build")
    if not build:
        return Container()
    named = build.get("dockerfile") if isinstance(build, dict) else None
    context = str(build.get("context") or "." if isinstance(build, dict) else build).removeprefix("./").rstrip("/")
    file = str(named or "Dockerfile")
    text = held.text_of(f"{context}/{file}" if context not in ("", ".") else file)
    return modelfile.container_of(text) if text is not None else Container()


def _words(value: Any, held: LaunchContext) -> tuple[str, ...]:
    """The words of a command; one text is filled in first, so that a default of several words is several."""
    return words_of(_filled(value, held)) if isinstance(value, str) else tuple(_filled(word, held) for word in words_of(value))


def _filled(text: str, held: LaunchContext) -> str:
    """Compose's variables filled in; a dollar that the container's own shell shall see is written as two."""
    return "$".join(resolved(part, held.variables) for part in text.split("$$"))


def _included(document: Mapping[str, Any], held: LaunchContext, above: tuple[str, ...]) -> dict[str, Any]:
    """Services of included files. Raises QuestionError for a file that includes itself."""
    services: dict[str, Any] = {}
    for entry in document.get("include") or () if isinstance(document.get("include"), list) else ():
        file = entry.get("path") if isinstance(entry, dict) else entry
        for path in file if isinstance(file, list) else [file]:
            services |= _services_of(str(path), held, above)
    return services


def _services_of(path: str, held: LaunchContext, above: tuple[str, ...]) -> dict[str, Any]:
    if path in above or len(above) >= _DEEPEST:
        raise QuestionError(f"{path[:80]} is included by itself, through {len(above)} files: name the last one alone")
    text = held.text_of(path)
    found = parse_yaml(text, path) if text is not None else None
    if not isinstance(found, dict) or not isinstance(found.get("services"), dict):
        return {}
    return {**_included(found, held, (*above, path)), **found["services"]}


def _extended(
    service: dict[str, Any], services: Mapping[str, Any], held: LaunchContext, above: tuple[str, ...]
) -> dict[str, Any]:
    """A service over the one that it extends. Raises QuestionError for a circle."""
    extends = service.get("extends")
    if not extends:
        return service
    name = extends if isinstance(extends, str) else str(extends.get("service", "")) if isinstance(extends, dict) else ""
    file = extends.get("file") if isinstance(extends, dict) else None
    mark = f"{file or ''}:{name}"
    if mark in above or len(above) >= _DEEPEST:
        raise QuestionError(f"the service {name[:60]!r} extends itself, through {len(above)} others: name the last one alone")
    others = _services_of(str(file), held, ()) if file else services
    base = others.get(name)
    if not isinstance(base, dict):
        return service
    whole = _extended(base, others, held, (*above, mark))
    merged = {**whole, **{key: value for key, value in service.items() if key != "extends"}}
    both = environment_of(whole.get("environment")) | environment_of(service.get("environment"))
    return {**merged, "environment": both} if both else merged


def _files(value: Any) -> list[str]:
    entries = value if isinstance(value, list) else [value] if value else []
    return [str(entry.get("path")) if isinstance(entry, dict) else str(entry) for entry in entries]


def _reserved(service: Mapping[str, Any]) -> dict[str, Any]:
    found: Any = service
    for key in ("deploy", "resources", "reservations", "devices"):
        found = found.get(key) if isinstance(found, dict) else None
    return found[0] if isinstance(found, list) and found and isinstance(found[0], dict) else {}


def _devices(service: Mapping[str, Any]) -> tuple[str, ...]:
    """Which cards compose reserves: ``device_ids``, or the first ``count`` of the machine (moby's daemon/nvidia_linux.go)."""
    device = _reserved(service)
    ids, count = device.get("device_ids"), device.get("count")
    if isinstance(ids, list):
        return tuple(one.strip() for entry in ids for one in str(entry).split(","))
    if isinstance(count, int) and not isinstance(count, bool) and 0 < count < _MOST_CARDS:
        return tuple(str(card) for card in range(count))
    return ()


def _cards(service: Mapping[str, Any]) -> int:
    """How many cards compose reserves: ``count`` or ``device_ids``; 0 for all or none said."""
    device = _reserved(service)
    ids, count = device.get("device_ids"), device.get("count")
    if isinstance(ids, list):
        return sum(len(str(entry).split(",")) for entry in ids)
    if isinstance(count, int) and not isinstance(count, bool):
        return count
    return cards_of(str(service.get("gpus", ""))) if service.get("gpus") not in (None, "all") else 0
