"""Files that start servers of a question: a compose file, a Kubernetes manifest. Reading them back asks the same question.

Images and their entry points: vllm/vllm-openai (``--model`` first), lmsysorg/sglang, nvcr.io/nvidia/tensorrt-llm,
ghcr.io/ggml-org/llama.cpp (server-cuda).
"""

import re
from typing import Any

import msgspec

from vramcast.errors import unknown_name
from vramcast.workload import Serving
from vramcast.writing.serving.lines import command_of, words_of

KINDS = ("line", "compose", "kubernetes")


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A container image: its name, the tag where no version was asked, and whether its entry point is the engine itself."""

    name: str
    tag: str = "latest"
    starts: bool = False
    port: int = 8000


IMAGES = {
    "vllm": Image(name="vllm/vllm-openai", starts=True),
    "sglang": Image(name="lmsysorg/sglang", port=30000),
    "tensorrt_llm": Image(name="nvcr.io/nvidia/tensorrt-llm/release"),
    "llama_cpp": Image(name="ghcr.io/ggml-org/llama.cpp", tag="server-cuda", starts=True, port=8080),
}


def emitted(kind: str, question: Serving, *, replicas: int = 1, told: str = "") -> str:
    """The text of one kind; ``told``: a line of comment above it. Raises QuestionError for a kind that is none."""
    if kind == "compose":
        return _commented(told, _yaml(compose_of(question, replicas=replicas)))
    if kind in ("kubernetes", "k8s"):
        return _commented(told, "---\n".join(_yaml(part) for part in kubernetes_of(question, replicas=replicas)))
    if kind in ("line", "shell", question.engine):
        return _commented(told, "\n".join(command_of(question, replicas=replicas)) + "\n")
    raise unknown_name("--emit", kind, KINDS)


def compose_of(question: Serving, *, replicas: int = 1) -> dict[str, Any]:
    """A compose file's mapping: one service with the cards that a replica takes."""
    image = IMAGES[question.engine]
    devices = [{"driver": "nvidia", "count": question.gpus, "capabilities": ["gpu"]}]
    deploy: dict[str, Any] = {"resources": {"reservations": {"devices": devices}}}
    return {
        "services": {
            _name(question): {
                "image": _tagged(question, image),
                "command": _arguments(question, image),
                "ports": [f"{image.port}:{image.port}"] if replicas == 1 else [str(image.port)],
                "ipc": "host",
                "volumes": ["~/.cache/huggingface:/root/.cache/huggingface"],
                "deploy": deploy | ({"replicas": replicas} if replicas > 1 else {}),
            }
        }
    }


def kubernetes_of(question: Serving, *, replicas: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Deployment of the replicas, each with its cards and shared memory, and the Service in front of them."""
    image, name = IMAGES[question.engine], _name(question)
    container = {
        "name": "server", "image": _tagged(question, image), "args": _arguments(question, image),
        "ports": [{"containerPort": image.port}], "resources": {"limits": {"nvidia.com/gpu": question.gpus}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }  # fmt: skip
    shared = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "volumes": [shared]}}
    own = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    port = {"port": image.port, "targetPort": image.port}
    return (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": own},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [port]}},
    )


def _arguments(question: Serving, image: Image) -> list[str]:
    """The container's words: all of the line, or what follows the engine where the image starts it."""
    words = list(words_of(question))
    if not image.starts:
        return words
    return words[1:] if question.engine == "llama_cpp" else ["--model", *words[2:]]


def _tagged(question: Serving, image: Image) -> str:
    version = question.engine_version
    return f"{image.name}:{f'v{version}' if version and question.engine != 'llama_cpp' else image.tag}"


def _name(question: Serving) -> str:
    """A name that Kubernetes takes: letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", question.model.rpartition("/")[2].lower()).strip("-")[:50] or "model"


def _yaml(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=120)
    return text


def _commented(told: str, text: str) -> str:
    return f"# {told}\n{text}" if told else text
