"""From what people type ("4090", "A100-80G", "h100 sxm", "2xL40S", "24GB") to a card of the catalogue.

A name is read as a model key, a form (SXM, PCIe, NVL), a memory size and a memory type; words that decide nothing are
dropped. When the key names several parts, the smallest memory is taken and then SXM before PCIe, so that "it fits" holds
for every part of that name; the choice is returned as an assumption. A size that no part of the name has is a card rebuilt
with that memory ("2080ti 22g", "RTX 4090 48GB").

A size is read as on the box: 24GB, 24G and 24GiB are all 24 x 2^30 bytes.
"""

import re

import msgspec

from vramcast.errors import QuestionError, unknown_name
from vramcast.hardware.accelerator import Accelerator
from vramcast.hardware.catalogue import catalogue
from vramcast.ledger import Assumption
from vramcast.units import GiB, gib, parse_bytes
from vramcast.untrusted import shown

_SIZE_LABEL_TOLERANCE = 0.07  # a B200 is called 180 and 192 GB, a GH200 141 and 144 GB
_LONGEST_NAME = 120
_FORMS = {"sxm": "sxm", "hgx": "sxm", "pcie": "pcie", "nvl": "nvl"}
_FORM_ORDER = {"sxm": 0, "": 1, "pcie": 2, "nvl": 3}
_NOISE = frozenset(
    {"nvidia", "geforce", "gtx", "rtx", "rx", "amd", "radeon", "instinct", "tesla", "quadro", "intel", "arc", "jetson", "apple"}
    | {"graphics", "gpu", "gpus", "card", "edition", "generation", "workstation", "server", "blackwell", "max-q", "oam", "dgx"}
    | {"class", "vram", "memory", "each", "macbook", "mac", "imac", "studio", "mini", "air", "gaming", "huawei"}
)
_MAC = re.compile(r"\bmac\s*(book\s*)?pro\b")  # the Pro of a MacBook Pro is not that of an M3 Pro
_CHINESE = {"华为": "huawei ", "昇腾": "ascend ", "英伟达": "nvidia ", "苹果": "apple "}
_WORD = re.compile(r"max-q|[a-z0-9.]+")
_JOINED = re.compile(r"(rtx|gtx|rx)(?=\d)|(?<=\d)(sxm|pcie|nvl)")
_SIZE = re.compile(r"\s*[\d.,_]+\s*([kmgt](i?b)?)?\s*", re.IGNORECASE)
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
    if len(name) > _LONGEST_NAME:
        raise QuestionError(f"{shown(name)} is no name of a card: give one such as H100, 4090 or 24GiB")
    parts = fitting(name)
    if not parts and is_size(name):
        return anonymous_card(_box_bytes(name)), ()
    if not parts and (rebuilt := _rebuilt(name)):
        return rebuilt
    if not parts:
        raise _unknown(name)
    return parts[0], _assumed(name, parts)


def _box_bytes(text: str) -> int:
    """A size as on the box: GB and G are 2^30 bytes. Raises QuestionError for one without unit or with another."""
    whole = re.sub(r"(?i)\b([\d.,_]+)\s*([mgt])b?$", r"\1\2iB", text.strip())
    return parse_bytes(whole, what="GPU memory")


def _rebuilt(name: str) -> tuple[Accelerator, tuple[Assumption, ...]] | None:
    """The part whose name fits but not its size, with the memory that was typed; None where no part has the name.

    Others sell it so (an RTX 4090 with 48 GB), or the catalogue holds another version (a GTX 960 with 4 GB).
    """
    size = take_apart(name).size
    parts = fitting(re.sub(r"(?i)[\s-]*\d+(\.\d+)?\s*g(i?b)?\b", "", name)) if size else []
    if not parts:
        return None
    part, sold = parts[0], round(size * GiB)
    taken = part.sold_bytes - part.visible_bytes
    if sold <= taken or sold > 8 * part.sold_bytes:
        return None
    card = msgspec.structs.replace(
        part,
        id=f"{part.id}-{size:g}gb",
        name=f"{part.name} with {size:g} GB",
        sold_bytes=sold,
        driver_bytes=sold - (part.sold_bytes - part.driver_bytes),
        visible_bytes=sold - taken,
    )
    because = f"the catalogue's {part.name} has {gib(part.sold_bytes, 0)}: the typed memory is taken, all else is its own"
    return card, (Assumption("gpu", card.name, because),)


def _unknown(name: str) -> QuestionError:
    """The error for a name that is no card, with what to type instead."""
    plain = name.strip().lower()
    if plain in ("cpu", "none", "no gpu", "ram"):
        return QuestionError(
            f"{name.strip()[:40]!r} is no card: leave --gpu out, or run layers on the host with --engine llama.cpp -ngl 0"
        )
    if re.search(r"\bmac|apple|\bmps\b|metal", plain):
        return QuestionError(
            f"GPU {name.strip()[:40]!r}: which chip and memory? For example M3 Max 64GB, M2 Ultra 192GB or M4 16GB "
            "(Apple menu, About This Mac)"
        )
    return unknown_name("GPU", name, _known_names(), hint="(vramcast gpus lists all; or give a size: 24GB)")


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
    plain = text[:200].lower()
    for word, english in _CHINESE.items():
        plain = plain.replace(word, english)
    plain = _MAC.sub(" ", plain)
    lowered = re.sub(r"(\d)\s+(gib|gb|g)\b", r"\1\2", re.sub(r"\b\d+-core\b", "", plain))
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
