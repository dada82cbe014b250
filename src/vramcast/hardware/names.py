"""From what people type ("4090", "A100-80G", "h100 sxm", "2xL40S", "24GiB") to a card of the catalogue.

A name is read as a model key, a form (SXM, PCIe, NVL), a memory size and a memory type; words that decide nothing are
dropped. When the key names several parts, the smallest memory is taken and then SXM before PCIe, so that "it fits" holds
for every part of that name; the choice is returned as an assumption.
"""

import re

import msgspec

from vramcast.errors import unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.catalogue import catalogue
from vramcast.ledger import Assumption
from vramcast.units import GiB, gib, parse_bytes

_SIZE_LABEL_TOLERANCE = 0.07  # a B200 is called 180 and 192 GB, a GH200 141 and 144 GB
_FORMS = {"sxm": "sxm", "hgx": "sxm", "pcie": "pcie", "nvl": "nvl"}
_FORM_ORDER = {"sxm": 0, "": 1, "pcie": 2, "nvl": 3}
_NOISE = frozenset(
    {"nvidia", "geforce", "gtx", "rtx", "rx", "amd", "radeon", "instinct", "tesla", "quadro", "intel", "arc", "jetson", "apple"}
    | {"graphics", "gpu", "gpus", "card", "edition", "generation", "workstation", "server", "blackwell", "max-q", "oam", "dgx"}
    | {"class", "vram", "memory", "each"}
)
_WORD = re.compile(r"max-q|[a-z0-9.]+")
_JOINED = re.compile(r"(rtx|gtx|rx)(?=\d)|(?<=\d)(sxm|pcie|nvl)")
_SIZE = re.compile(r"\s*[\d.,_]+\s*([kmgt]i?b)?\s*", re.IGNORECASE)
_BARE_SIZE = re.compile(r"(?<=[a-z0-9][ -])(\d{2,3})$", re.IGNORECASE)  # the 80 of "A100 SXM 80" or "A100-80"


class Spoken(msgspec.Struct, frozen=True):
    """A typed name, taken apart: model key, form, memory in GB or GiB as people say it (0 = not said), memory type."""

    key: str
    form: str = ""
    size: float = 0
    memory_type: str = ""


def find_accelerator(name: str) -> Accelerator:
    """The card of that id, name or alias, or an anonymous card for a size such as ``24GiB``.

    Raises QuestionError with the nearest names when there is none.
    """
    return match_accelerator(name)[0]


def match_accelerator(name: str) -> tuple[Accelerator, tuple[Assumption, ...]]:
    """The card of that name, and the assumption made if the name fits several parts. Raises as find_accelerator."""
    parts = fitting(name)
    if not parts and is_size(name):
        return anonymous_card(parse_bytes(name, what="GPU memory")), ()
    if not parts:
        raise unknown_name("GPU", name, _known_names(), hint="(or give a size: 24GiB)")
    return parts[0], _assumed(name, parts)


def is_size(text: str) -> bool:
    """Whether the text is an amount of memory rather than a name."""
    return _SIZE.fullmatch(text) is not None


def anonymous_card(size_bytes: int) -> Accelerator:
    """A card of which only the usable memory is known: no rates, no capability, no driver reserve."""
    return Accelerator(
        id=f"custom-{gib(size_bytes).replace(' ', '')}",
        name=f"a card with {gib(size_bytes)}",
        vendor="",
        architecture="",
        sold_bytes=size_bytes,
        driver_bytes=size_bytes,
        visible_bytes=size_bytes,
        bandwidth_bytes_per_s=0,
        note="only its memory was given: taken as wholly visible to programs",
    )


def take_apart(text: str) -> Spoken:
    """The parts of a name that decide; what stands in parentheses is dropped unless nothing else is there."""
    lowered = re.sub(r"(\d)\s+(gib|gb|g)\b", r"\1\2", re.sub(r"\b\d+-core\b", "", text[:200].lower()))
    outside = re.sub(r"\([^)]*\)?", " ", lowered)
    words = _WORD.findall(_JOINED.sub(r" \1\2 ", outside if outside.strip() else lowered))
    key, form, size, memory_type = "", "", 0.0, ""
    for word in words:
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)(?:gib|gb|g)", word):
            size = float(match[1])
        elif match := re.fullmatch(r"(sxm|pcie|nvl|hgx)\d?", word):
            form = _FORMS[match[1]]
        elif re.fullmatch(r"hbm\d?e?|gddr\dx?", word):
            memory_type = word
        elif word not in _NOISE and not re.fullmatch(r"nvl\d+", word):
            key += {"mobile": "laptop"}.get(word, word)
    return Spoken(key, form, size, memory_type)


def fitting(name: str) -> list[Accelerator]:
    """Parts that agree with all that was said, the one to take first; a bare last number may be the size ("A100-80")."""
    return _agreeing(name) or _agreeing(_BARE_SIZE.sub(r"\1gb", name.strip()))


def _agreeing(name: str) -> list[Accelerator]:
    lowered = name.strip().lower().removeprefix("nvidia ")
    called = [part for part in catalogue().values() if lowered == part.id or lowered in part.aliases]
    if called:
        return called
    spoken = take_apart(name)
    parts = [part for part in catalogue().values() if spoken.key in part.keys]
    parts = _closest_size(parts, spoken.size) if spoken.size else parts
    for form in {"pcie": ("pcie", "nvl")}.get(spoken.form, (spoken.form,)):
        parts = [part for part in parts if form and part.form == form] or parts
    parts = [part for part in parts if part.memory_type.lower() == spoken.memory_type] or parts
    return sorted(parts, key=lambda part: (part.sold_bytes, _FORM_ORDER[part.form]))


def _closest_size(parts: list[Accelerator], size: float) -> list[Accelerator]:
    def off(part: Accelerator) -> float:
        return min(abs(size * unit / part.sold_bytes - 1) for unit in (GiB, 10**9))

    nearest = min((off(p) for p in parts), default=1.0)
    return [p for p in parts if off(p) == nearest <= _SIZE_LABEL_TOLERANCE]


def _assumed(name: str, parts: list[Accelerator]) -> tuple[Assumption, ...]:
    if len(parts) == 1:
        return ()
    others = ", ".join(part.name for part in parts)
    because = f"{name.strip()!r} may be {others}: the smallest memory is taken, then SXM before PCIe"
    return (Assumption("gpu", parts[0].name, because),)


def _known_names() -> list[str]:
    """Names to offer: without GeForce, aliases, and the bare model of parts sold in several sizes."""
    names = {name for part in catalogue().values() for name in (part.name.removeprefix("GeForce "), *part.aliases)}
    return sorted(names | {name.split()[0] for name in names if re.match(r"[A-Z]+\d+\w* ", name)})
