"""From what people type to cards of the catalogue: "4090", "A100-80G", "2xL40S", "24GB", "RTX 5090, RTX 4090", "p4d.24xlarge".

A name is read as a model key, a form (SXM, PCIe, NVL), a memory size and a memory type; words that decide nothing are
dropped. When the key names several parts, the smallest memory is taken and then SXM before PCIe, so that "it fits" holds
for every part of that name; the choice is returned as an assumption. A size that no part of the name has is a card rebuilt
with that memory ("2080ti 22g", "RTX 4090 48GB"). A size is read as on the box: 24GB, 24G and 24GiB are all 24 x 2^30 bytes.

A slice of a card (``MIG 3g.40gb``) is that card with the slice's memory and its share of the rest. What ``lspci`` prints is its
last bracket. Machines that people name instead of cards are in ``machines.py``.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from vramcast.errors import QuestionError, nearest, unknown_name
from vramcast.hardware.accelerator import Accelerator, catalogue
from vramcast.hardware.machines import mac_chips, machine_cards, without_seller
from vramcast.ledger import Assumption
from vramcast.units import GiB, gib, parse_bytes
from vramcast.untrusted import shown

if TYPE_CHECKING:
    from vramcast.hardware.detection import LocalCard


_SIZE_LABEL_TOLERANCE = 0.07  # a B200 is called 180 and 192 GB, a GH200 141 and 144 GB
_LONGEST_NAME = 120
_FORMS = {"sxm": "sxm", "hgx": "sxm", "pcie": "pcie", "nvl": "nvl"}
_FORM_ORDER = {"sxm": 0, "": 1, "pcie": 2, "nvl": 3}
_NOISE = frozenset({
    "nvidia", "geforce", "gtx", "rtx", "rx", "amd", "radeon", "instinct", "tesla", "quadro", "intel", "arc", "jetson", "apple",
    "graphics", "gpu", "gpus", "card", "edition", "generation", "workstation", "server", "blackwell", "max-q", "oam", "dgx",
    "class", "vram", "memory", "each", "macbook", "mac", "imac", "studio", "mini", "air", "gaming", "huawei", "ac", "corporation",
    "mtt", "moore", "threads", "metax", "cambricon", "hygon", "dcu", "biren", "iluvatar", "kunlun", "kunlunxin", "aws",
})  # fmt: skip
_MAC = re.compile(r"\bmac\s*(book(\s*pro)?|pro)\b")  # the Pro of a MacBook Pro is not that of an M3 Pro
_CHINESE = {
    "华为": "huawei ", "昇腾": "ascend ", "英伟达": "nvidia ", "苹果": "apple ", "摩尔线程": "mtt ", "天垓": "bi-v",
    "智铠": "mr-v",
}  # fmt: skip
_WORD = re.compile(r"max-q|[a-z0-9.]+")
_JOINED = re.compile(r"(rtx|gtx|rx)(?=\d)|(?<=\d)(sxm|pcie|nvl)")
_SIZE = re.compile(r"\s*[\d.,_]+\s*([kmgt](i?b)?)?\s*", re.IGNORECASE)
_SLICE = re.compile(r"(?i)[\s-]*(?:\bmig\b)?[\s-]*\b([1-7])g\.(\d+)gb\b")  # MIG 3g.40gb
# A slice holds this share of the memory in its name, the least of five that were read: 40448, 20096 and 9984 MiB of an H100's
# 3g.40gb, 2g.20gb and 1g.10gb, 71424 of an H200's 3g.71gb, 19968 of an A100's 2g.20gb (two exporters' captures).
_SLICE_KEEPS = 0.975
_EIGHTHS = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}  # of the memory, by compute slices: NVIDIA, MIG user guide
_LSPCI = re.compile(r"\[([^\[\]]+)\](?:\s*\(rev \w+\))?\s*$")
_TENS = {"单": 1, "一": 1, "两": 2, "双": 2, "二": 2, "三": 3, "四": 4, "六": 6, "八": 8, "十六": 16}
_COUNTED = re.compile(rf"(?<!\d)(\d{{1,3}}|{'|'.join(sorted(_TENS, key=len, reverse=True))})\s*[张卡块片]\s*(?:的)?")
_BARE_SIZE = re.compile(r"(?<=[a-z0-9][ -])(\d{2,3})$", re.IGNORECASE)  # the 80 of "A100 SXM 80" or "A100-80"


class Spoken(msgspec.Struct, frozen=True):
    """A typed name, taken apart: model key, form, memory in GB or GiB as people say it (0 = not said), memory type.

    ``socket``: the form with its number, where one was said (SXM3).
    """

    key: str
    form: str = ""
    size: float = 0
    memory_type: str = ""
    socket: str = ""


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
        return _of_size(name), ()
    if not parts and (slice_ := _sliced(name)):
        return slice_
    if not parts and (rebuilt := _rebuilt(name)):
        return rebuilt
    if not parts:
        raise _unknown(name)
    return parts[0], _assumed(name, parts)


def _box_bytes(text: str) -> int:
    """A size as on the box: GB and G are 2^30 bytes. Raises QuestionError for one without unit or with another."""
    whole = re.sub(r"(?i)\b([\d.,_]+)\s*([mgt])b?$", r"\1\2iB", text.strip())
    return parse_bytes(whole, what="GPU memory")


def _of_size(name: str) -> Accelerator:
    """A card of that much memory. Raises QuestionError for a number of four digits or megabytes, which are a model's name."""
    size = _box_bytes(name) if not re.fullmatch(r"\s*\d{4,}\s*", name) else 0
    if size < GiB:
        raise _unknown(name)
    return anonymous_card(size)


def _sliced(name: str) -> tuple[Accelerator, tuple[Assumption, ...]] | None:
    """The slice of a card that NVIDIA's MIG cuts (``A100-80GB MIG 3g.40gb``); None where no profile or no card is named."""
    profile = _SLICE.search(name)
    parts = fitting(_SLICE.sub("", name)) if profile else []
    if profile is None or not parts:
        return None
    units, gb = int(profile[1]), int(profile[2])
    part = min(parts, key=lambda p: abs(p.sold_bytes / GiB * _EIGHTHS.get(units, units) / 8 - gb))
    share, memory = units / 8, gb * GiB / part.sold_bytes
    if memory > 1:
        return None
    visible = round(gb * GiB * _SLICE_KEEPS)
    card = msgspec.structs.replace(
        part,
        id=f"{part.id}-mig-{units}g.{gb}gb",
        name=f"{part.name} MIG {units}g.{gb}gb",
        sold_bytes=gb * GiB,
        driver_bytes=visible,
        visible_bytes=visible,
        bandwidth_bytes_per_s=part.bandwidth_bytes_per_s * max(1, round(8 * memory)) / 8,
        flops={kind: rate * share for kind, rate in part.flops.items()},
        sms=round(part.sms * share),
        link_bytes_per_s=0,
    )
    because = f"a slice of {part.name}: {units} of eight parts of its arithmetic, {memory:.0%} of its memory"
    return card, (Assumption("gpu", card.name, because),)


def _macs(name: str) -> list[Accelerator]:
    """The chips of a Mac that is named by its box and its memory ("MacBook Pro 64GB"), the slowest memory first."""
    spoken, chips = take_apart(name), mac_chips(name)
    if spoken.key or not spoken.size:
        return []
    parts = [part for part in catalogue().values() if part.vendor == "Apple" and set(chips) & set(part.keys)]
    sold = [part for part in parts if round(part.sold_bytes / GiB) == spoken.size]  # no Mac's label is rounded
    return sorted(sold, key=lambda part: part.bandwidth_bytes_per_s)


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
    hint = "(vramcast gpus lists all; or give a size: 24GB)"
    if plain.isdecimal():  # a number alone is compared with the numbers of names: 5099 is like RTX 5090
        numbered = {
            word: known for known in sorted(_known_names(), key=len, reverse=True) for word in known.split() if word.isdecimal()
        }
        if near := [numbered[word] for word in nearest(plain, numbered, cutoff=0.7)]:
            return QuestionError(f"unknown GPU {plain[:80]!r}: did you mean {', '.join(near)}? {hint}")
    return unknown_name("GPU", name, _known_names(), hint=hint)


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
    key, form, size, memory_type, socket = "", "", 0.0, "", ""
    for word in words:
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)(?:gib|gb|g)", word):
            size = float(match[1])
        elif match := re.fullmatch(r"(sxm|pcie|nvl|hgx)\d?", word):
            form = _FORMS[match[1]]
            socket = word if word[-1].isdigit() else socket
        elif re.fullmatch(r"hbm\d?e?|gddr\dx?", word):
            memory_type = word
        elif word not in _NOISE and not re.fullmatch(r"nvl\d+", word):
            key += {"mobile": "laptop"}.get(word, word)
    return Spoken(key, form, size, memory_type, socket)


def fitting(name: str) -> list[Accelerator]:
    """Parts that agree with all that was said, the one to take first; a bare last number may be the size ("A100-80")."""
    return list(_agreeing(name) or _agreeing(_BARE_SIZE.sub(r"\1gb", name.strip())) or _macs(name))


@lru_cache(maxsize=512)  # a question asks the same name some twelve times
def _agreeing(name: str) -> tuple[Accelerator, ...]:
    lowered = name.strip().lower().removeprefix("nvidia ")
    called = [part for part in catalogue().values() if lowered == part.id or lowered in part.aliases]
    called = called or [part for part in catalogue().values() if part.target and lowered == part.target and not part.rare]
    if called:
        return tuple(sorted(called, key=lambda part: part.sold_bytes))
    spoken = take_apart(name)
    parts = _of_blackwell(spoken.key) if "blackwell" in lowered else []
    key = re.sub(r"^a(?=[456]\d00ada$)", "", spoken.key)  # an A6000 Ada is what people call an RTX 6000 Ada
    parts = parts or [part for part in catalogue().values() if key in part.keys]
    parts = _closest_size(parts, spoken.size) if spoken.size else [part for part in parts if not part.rare] or parts
    parts = [part for part in parts if re.search(rf"\b{spoken.socket}\b", part.name.lower())] or parts if spoken.socket else parts
    for form in {"pcie": ("pcie", "nvl")}.get(spoken.form, (spoken.form,)):
        parts = [part for part in parts if form and part.form == form] or parts
    parts = [part for part in parts if part.memory_type.lower() == spoken.memory_type] or parts
    return tuple(sorted(parts, key=lambda part: (part.sold_bytes, _FORM_ORDER[part.form])))


def _of_blackwell(key: str) -> list[Accelerator]:
    """The RTX PRO of a number that people say without its PRO: an RTX 6000 Blackwell is no Quadro RTX 6000."""
    return [part for part in catalogue().values() if f"pro{key}" in part.keys]


def _closest_size(parts: list[Accelerator], size: float) -> list[Accelerator]:
    def off(part: Accelerator) -> float:
        return min(abs(size * unit / part.sold_bytes - 1) for unit in (GiB, 10**9))

    nearest = min((off(p) for p in parts), default=1.0)
    return [p for p in parts if off(p) == nearest <= _SIZE_LABEL_TOLERANCE]


def _assumed(name: str, parts: list[Accelerator]) -> tuple[Assumption, ...]:
    if len(parts) == 1:
        return ()
    others = ", ".join(part.name for part in parts)
    alike = len({part.sold_bytes for part in parts}) == 1 and not parts[0].form
    taken = "the slowest memory is taken" if alike else "the smallest memory is taken, then SXM before PCIe"
    because = f"{name.strip()!r} may be {others}: {taken}"
    return (Assumption("gpu", parts[0].name, because),)


def _known_names() -> list[str]:
    """Names to offer: without GeForce, aliases, and the bare model of parts sold in several sizes."""
    names = {name for part in catalogue().values() for name in (part.name.removeprefix("GeForce "), *part.aliases)}
    return sorted(names | {name.split()[0] for name in names if re.match(r"[A-Z]+\d+\w* ", name)})


MOST_CARDS = 100_000
_ITEMS = re.compile(r"(?:[^,(+]|(?<! )\+|\+(?! )|\([^)]*\)?)+")


class Cards(msgspec.Struct, frozen=True, kw_only=True):
    """The cards of a question, one entry per card, and what was taken for granted in reading their names.

    ``counted``: whether a number of cards was said (``L4x1``, a cloud machine, this machine's own).
    """

    cards: tuple[Accelerator, ...]
    assumed: tuple[Assumption, ...] = ()
    counted: bool = False


def parse_gpus(text: str) -> Cards:
    """Cards from ``NAME``, ``NAMExN``, ``NxNAME``, several of them, or a cloud instance; ``local`` reads this machine's.

    Raises QuestionError for unknown names, a count of zero, or more than 100,000 cards; MissingError for ``local`` without NVML.
    """
    cards: list[Accelerator] = []
    assumed: list[Assumption] = []
    counted = False
    if not any(item.strip() for item in text[:10_000].split(",")):
        raise QuestionError(f'{text[:40]!r} names no GPU: write for example "RTX 4090", H100x8 or 24GB')
    if text.strip().lower() == "local":
        return _local()
    if machine := machine_cards(text[:100]):
        found = parse_gpus(machine)
        told = Assumption("gpu", machine, f"the cards of {text.strip()}")
        return Cards(cards=found.cards, assumed=(told,), counted=True)
    if bracket := _LSPCI.search(text[:300]):
        text = bracket[1].split("/")[0]
    for item in _ITEMS.findall(without_seller(text[:10_000])):
        name, said = _counted(item)
        count = 1 if said is None else said
        counted = counted or said is not None
        if not 1 <= count <= MOST_CARDS:
            raise QuestionError(f"GPU count {count} in {item.strip()[:40]!r} is out of range: expected 1 to {MOST_CARDS}")
        card, notes = match_accelerator(name)
        cards += [card] * count
        assumed += notes
    return Cards(cards=tuple(cards), assumed=tuple(assumed), counted=counted)


def least_card(text: str) -> Accelerator:
    """Of the cards that the text names the one with least memory, which decides. Raises as parse_gpus."""
    return min(parse_gpus(text).cards, key=lambda card: card.visible_bytes)


def _counted(item: str) -> tuple[str, int | None]:
    """The name and the count of ``NAMExN`` or ``NxNAME``, None where none is said; an x inside a name ("MI300X") is no count."""
    if (said := _COUNTED.search(item)) and (rest := item.replace(said[0], " ")).strip():
        return rest, _TENS[said[1]] if said[1] in _TENS else int(said[1])
    if fitting(item):
        return item, None
    patterns = (r"\s*(?P<count>\d+)\s*[x*\u00d7]\s*(?P<name>.+)", r"\s*(?P<name>.+?)\s*[x*:\u00d7]\s*(?P<count>\d+)\s*")
    matches = [match for pattern in patterns if (match := re.fullmatch(pattern, item, re.IGNORECASE))]
    named = [match for match in matches if fitting(_SLICE.sub("", match["name"]))]
    named = named or [m for m in matches if is_size(m["name"]) or _rebuilt(m["name"])]
    return (named[0]["name"], int(named[0]["count"])) if named else (item, None)


def local_cards() -> tuple["LocalCard", ...]:
    """The cards of this machine as its driver reports them. Raises MissingError without a driver or a card."""
    from vramcast.hardware.detection import read_cards

    return read_cards(find_accelerator)


def _local() -> Cards:
    """The cards of this machine less what other processes hold on them, which is told as an assumption."""
    found = local_cards()
    notes = tuple(Assumption("gpu", card.card.name, _told(card)) for card in found)
    return Cards(cards=tuple(card.left for card in found), assumed=notes, counted=True)


def _told(card: "LocalCard") -> str:
    taken = f"; the {gib(card.used_bytes)} that others hold are taken off" if card.used_bytes else ""
    return f"read from this machine's driver; {card.summary}{taken}"
