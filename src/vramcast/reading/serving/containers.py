"""A container as compose files, Kubernetes and Helm describe it: image, words, variables, cards; and what it starts."""

import re
from typing import Any

import msgspec

from vramcast.reading.serving.commands import launch_of, of_image
from vramcast.reading.serving.environment import engine_of_environment
from vramcast.reading.serving.launch import Launch, LaunchContext, devices_within
from vramcast.reading.serving.programs import Program, image_engine, program_of
from vramcast.reading.serving.scripts import launches_of
from vramcast.reading.serving.words import plain_word
from vramcast.reading.shell.variables import resolved

# Resources that are whole cards, as Kubernetes' device plugins and Dynamo name them.
_CARDS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915", "gpu")
_OTHERS = ("google.com/tpu", "habana.ai/gaudi", "huawei.com/Ascend910", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore")
# Labels of nodes whose value is a card's or a machine's name.
_LABELS = (
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/model", "gpu.nvidia.com/class",
    "eks.amazonaws.com/instance-gpu-name", "karpenter.k8s.aws/instance-gpu-name", "k8s.amazonaws.com/accelerator",
    "nvidia.com/gpu.family", "accelerator", "cloud.google.com/gke-tpu-accelerator",
)  # fmt: skip


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """``entry``: the words that replace the image's entry point; ``arguments``: those after them; ``replicas``: of the pod.

    ``devices``: which of the machine's cards it is given, where that is said.
    """

    image: str = ""
    entry: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    gpus: int = 0
    devices: tuple[str, ...] = ()
    card: str = ""
    replicas: int = 1
    name: str = ""

    def launches(self, held: LaunchContext) -> tuple[Launch, ...]:
        """What it starts: its words where they start an engine, else its image's entry point with its arguments."""
        variables = {name: resolved(value, held.variables) for name, value in self.environment.items()}
        words = [*self.entry, *self.arguments]
        program = program_of(words)
        if program is None or not program.shell:  # a shell fills in its own
            words = [resolved(word, {**held.variables, **variables}) for word in words]
        image = resolved(self.image, held.variables)
        found = launches_of(words, held, environment=variables, name=self.name)
        if not found and not self.entry:
            found = of_image(image, words, variables, held, self.name)
        if not found and self.entry and self._enters():
            found = of_image(image, words[len(self.entry) :], variables, held, self.name)
        if not found and (engine := engine_of_environment(variables)):
            launch = launch_of(Program(engine=engine), held, variables, self.name)
            found = (launch,) if launch else ()
        return tuple(self._completed(launch, image) for launch in found)

    def _enters(self) -> bool:
        """Whether what replaces the entry point hands its arguments on: a server's name, or a script before flags."""
        hands_on = ("serve", "entrypoint.sh", "server", "api_server")
        last = self.entry[-1]
        return last.endswith(hands_on) or (last.endswith(".sh") and bool(self.arguments) and self.arguments[0].startswith("--"))

    def _completed(self, launch: Launch, image: str) -> Launch:
        told = image_engine(image)
        return msgspec.structs.replace(
            launch,
            version=launch.version or (told[1] if told and told[0] == launch.engine else None),
            gpus=self.gpus or launch.gpus,
            # numbers in a pod that was given whole cards count through those alone
            devices=devices_within(self.devices, launch.devices) if self.devices or not self.gpus else (),
            card=launch.card or self.card,
            replicas=self.replicas,
        )


def environment_of(value: Any, known: dict[str, str] | None = None) -> dict[str, str]:
    """Variables from a mapping, from ``NAME=value`` lines or from Kubernetes' list of name and value; secrets stay out."""
    if isinstance(value, dict):
        return {
            str(name): plain_word(found)
            for name, found in value.items()
            if not isinstance(found, (dict, list)) and found is not None
        }
    found = {}
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, str):
            name, joined, given = entry.partition("=")
            found[name.strip()] = given if joined else (known or {}).get(name.strip(), f"${{{name.strip()}}}")
        elif isinstance(entry, dict) and entry.get("name") and not isinstance(entry.get("value"), (dict, list, type(None))):
            found[str(entry["name"])] = plain_word(entry["value"])
    return found


def cards_in(resources: Any) -> int:
    """Whole cards that ``resources`` limit or request; 0 where they name none."""
    for part in ("limits", "requests"):
        section = resources.get(part) if isinstance(resources, dict) else None
        for name in (*_CARDS, *_OTHERS):
            count = str(section.get(name, "")) if isinstance(section, dict) else ""
            if count.isdigit() and 0 < int(count) < 10_000:
                return int(count)
    return 0


def other_device(resources: Any) -> str:
    """The resource that asks for a device which is no GPU (TPU, Gaudi, Ascend, Neuron), so that none is assumed; "" for none."""
    sections = [resources.get(part) for part in ("limits", "requests")] if isinstance(resources, dict) else []
    return next((name for name in _OTHERS for section in sections if isinstance(section, dict) and section.get(name)), "")


def card_of(pod: Any) -> str:
    """The card that a pod's node selector or affinity asks for, "" for none."""
    if not isinstance(pod, dict):
        return ""
    selector = pod.get("nodeSelector")
    for label in _LABELS:
        if isinstance(selector, dict) and isinstance(selector.get(label), str):
            return card_name(selector[label])
    for expression in _expressions(pod.get("affinity")):
        values = expression.get("values")
        if (
            expression.get("key") in _LABELS
            and expression.get("operator") == "In"
            and isinstance(values, list)
            and len(values) == 1
        ):
            return card_name(str(values[0]))
    return ""


def card_name(label: str) -> str:
    """A label's value as a card's name: ``nvidia-h100-mega-80gb`` is h100-80gb."""
    plain = re.sub(r"^(?:nvidia|amd)[-_ ]", "", label.strip(), flags=re.IGNORECASE)
    plain = re.sub(r"-(?:mega|ultra|high)(?=-|$)|-SHARED$|-MIG-.*$", "", plain, flags=re.IGNORECASE)
    if tpu := re.fullmatch(r"tpu-?(v\d+[ep]?)(-lite)?(?:-(?:podslice|device|slice))?", plain, re.IGNORECASE):  # GKE's labels
        return f"tpu-{tpu[1]}{'e' if tpu[2] else ''}"
    return re.sub(r"^tesla-", "", plain, flags=re.IGNORECASE)[:60]


def _expressions(value: Any) -> list[dict[str, Any]]:
    """Every match expression below an affinity."""
    found: list[dict[str, Any]] = []
    level = [value]
    while level:
        one = level.pop()
        if isinstance(one, dict):
            found += [one] if "operator" in one else []
            level += one.values()
        elif isinstance(one, list):
            level += one
    return found
