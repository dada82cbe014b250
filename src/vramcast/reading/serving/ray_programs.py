"""Programs that a Ray Serve application names by ``import_path``, where their text is at hand: beside it, or in a ConfigMap."""

from collections.abc import Mapping
from typing import Any

from vramcast.reading.serving import python_calls
from vramcast.reading.serving.containers import environment_of
from vramcast.reading.serving.launch import Launch, LaunchContext

NAME = "Ray Serve configuration"


def read(document: Any, held: LaunchContext) -> tuple[Launch, ...]:
    """The engines that the programs of a configuration's applications start; () for any other mapping."""
    given = document.get("applications") if isinstance(document, dict) else None
    applications = given if isinstance(given, list) else ()
    return tuple(
        launch
        for place, one in enumerate(applications)
        if isinstance(one, dict)
        for launch in _engines(one, held.at(f"applications[{place}]"))
    )


def _engines(application: Mapping[str, Any], held: LaunchContext) -> tuple[Launch, ...]:
    """The engines of the program that ``import_path: serve_vllm:deployment`` names, with the variables it is given."""
    name = str(application.get("import_path") or "").partition(":")[0]
    text = held.text_of(f"{name.rsplit('.', 1)[-1]}.py") if name else None
    runtime = application.get("runtime_env")
    variables = environment_of(runtime.get("env_vars")) if isinstance(runtime, dict) else {}
    return python_calls.read(text, held.with_variables(variables)) if text is not None else ()
