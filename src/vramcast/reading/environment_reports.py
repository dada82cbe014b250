"""Reports that people paste about a machine: ``nvidia-smi`` (table, -q, --query-gpu), ``ds_report``, ``torch.utils.collect_env``.

Several may stand in one text, vLLM's own collect_env with its GPU topology among them; each says a part of one State.
"""

import csv
import io
import re
from typing import Any

from vramcast.errors import QuestionError
from vramcast.hardware.health import STACK, CardState, Holder, State
from vramcast.units import GiB, MiB
from vramcast.untrusted import real_number, whole_number

_LONGEST_NAME = 80
MOST_CHARACTERS = 4_000_000
_HEADER = re.compile(r"NVIDIA-SMI\s+[0-9.]+.{0,200}?Driver Version:\s*([0-9.]{1,20})(?:.{0,200}?CUDA Version:\s*([0-9.]{1,9}))?")
_FIRST = re.compile(
    r"^\|\s+([0-9]{1,4})\s+(\S.{0,80}?)\s+(?:On|Off|N/A)?\s*\|\s*[0-9A-Fa-f]+:[0-9A-Fa-f:.]+\s+\S+\s*\|\s*(\S+)\s*\|"
)
_SECOND = re.compile(r"^\|\s*\S+\s+([0-9]{1,4})C\s+P[0-9]+\s+(\S+)\s*/\s*(\S+)\s*\|\s*([0-9]{1,9})MiB\s*/\s*([0-9]{1,9})MiB\s*\|")
_MIG_CELL = re.compile(r"^\|.*\|.*\|\s*(Enabled|Disabled)\s*\|\s*$")
_PROCESS = re.compile(r"^\|\s+([0-9]{1,4})\s+\S+\s+\S+\s+([0-9]{1,9})\s+[CG+M]+\s+(\S.{0,200}?)\s+([0-9]{1,9})MiB\s*\|")
_OPERATOR = re.compile(r"^(\w+)\s*\.{2,}\s*\[(YES|NO)\]\s*\.{2,}\s*\[(OKAY|NO)\]", re.MULTILINE)
_PIP = re.compile(r"^\[(?:pip3?|conda)\][ \t]+([\w.-]{1,80})(?:==|\s+)([0-9][\w.+]{0,40})", re.MULTILINE)
_GPU_LINE = re.compile(r"^[ \t]*GPU ([0-9]{1,4}):[ \t]*(\S.{0,100})$", re.MULTILINE)


def read_environment(text: str) -> State:
    """What the reports in a text say.

    Raises QuestionError when no known report is in it.
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", text[:MOST_CHARACTERS])
    told: dict[str, Any] = {"told_by": ()}
    for name, read in _READERS.items():
        if found := read(text):
            told = {**told, **{k: v for k, v in found.items() if v}, "told_by": (*told["told_by"], name)}
    if not told["told_by"]:
        raise QuestionError(
            "no report is known in this text: paste nvidia-smi, nvidia-smi -q, ds_report, or python -m torch.utils.collect_env"
        )
    return State(**told)


def _table(text: str) -> dict[str, Any]:
    """nvidia-smi's table."""
    header = _HEADER.search(text)
    if not header:
        return {}
    cards: list[dict[str, Any]] = []
    holders: dict[int, list[Holder]] = {}
    for line in text.splitlines():
        if first := _FIRST.match(line):
            errors = first[3]
            cards.append({"index": int(first[1]), "name": first[2], **_errors(errors)})
        elif cards and (second := _SECOND.match(line)):
            cards[-1] |= {
                "temperature_c": float(second[1]),
                "power_draw_w": _watts(second[2]),
                "power_limit_w": _watts(second[3]),
                "used_bytes": int(second[4]) * MiB,
                "total_bytes": int(second[5]) * MiB,
            }
        elif cards and (mig := _MIG_CELL.match(line)):
            cards[-1]["mig"] = mig[1] == "Enabled"
        elif process := _PROCESS.match(line):
            holders.setdefault(int(process[1]), []).append(Holder(int(process[2]), process[3], int(process[4]) * MiB))
    found = tuple(CardState(**card, holders=tuple(holders.get(card["index"], ()))) for card in cards)
    return {"driver": header[1], "driver_cuda": header[2] or "", "cards": _known(found)}


def _errors(text: str) -> dict[str, Any]:
    """The cell "Volatile Uncorr. ECC": a number when ECC is on, Off or N/A."""
    return (
        {"ecc": True, "uncorrected_errors": int(text)}
        if re.fullmatch(r"[0-9]{1,9}", text)
        else {"ecc": False}
        if text == "Off"
        else {}
    )


def _watts(text: str) -> float | None:
    return _figure(text.removesuffix("W"))


def _figure(text: str, scale: float = 1.0) -> float | None:
    """The number at the start of a cell ("81559 MiB", "400.00 W"), None without one."""
    found = real_number(text.split(maxsplit=1)[0]) if text.split() else None
    return found * scale if found is not None else None


def _known(cards: tuple[CardState, ...]) -> tuple[CardState, ...]:
    """The cards with the compute capability of the catalogue's part of that name."""
    import msgspec

    from vramcast.hardware.cards import match_accelerator

    found = []
    for card in cards:
        try:
            part = match_accelerator(card.name[:_LONGEST_NAME])[0]
        except QuestionError:
            part = None
        found.append(msgspec.structs.replace(card, capability=part.capability if part else None))
    return tuple(found)


def _details(text: str) -> dict[str, Any]:
    """nvidia-smi -q: sections of "name : value", one card after the line "GPU 00000000:01:00.0"."""
    if "Product Name" not in text or "FB Memory Usage" not in text:
        return {}
    parts = re.split(r"^GPU [0-9A-Fa-f]+:[0-9A-Fa-f:.]+\s*$", text, flags=re.MULTILINE)
    general = _pairs(parts[0])
    cards = tuple(_detailed(i, _pairs(part)) for i, part in enumerate(parts[1:]))
    return {"driver": general.get("Driver Version", ""), "driver_cuda": general.get("CUDA Version", ""), "cards": _known(cards)}


def _pairs(text: str) -> dict[str, str]:
    """Values by "section/name" and, where it is the first, by name."""
    found: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        name, colon, value = line.partition(" : ")
        if not colon:
            section = line.strip() or section
        else:
            found.setdefault(f"{section}/{name.strip()}", value.strip())
            found.setdefault(name.strip(), value.strip())
    return found


def _detailed(index: int, told: dict[str, str]) -> CardState:
    def mode(name: str) -> bool | None:
        value = told.get(name, "")
        return value == "Enabled" if value in ("Enabled", "Disabled") else None

    def number(*names: str) -> float | None:
        values = (_figure(told.get(name, "").removesuffix("x")) for name in names)
        return next((value for value in values if value is not None), None)

    total, used = number("FB Memory Usage/Total"), number("FB Memory Usage/Used")
    width, most = number("Link Width/Current"), number("Link Width/Max")
    return CardState(
        index=index,
        name=told.get("Product Name", "unknown"),
        total_bytes=int(total * MiB) if total else None,
        used_bytes=int(used * MiB) if used is not None else None,
        ecc=mode("ECC Mode/Current"),
        mig=mode("MIG Mode/Current"),
        power_limit_w=number("Current Power Limit", "Power Limit"),
        power_default_w=number("Default Power Limit"),
        temperature_c=number("GPU Current Temp"),
        pcie_width=int(width) if width else None,
        pcie_width_highest=int(most) if most else None,
    )


def _queried(text: str) -> dict[str, Any]:
    """nvidia-smi --query-gpu=... --format=csv with its header."""
    lines = [line for line in text.splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines) if "memory.total" in line and "," in line), None)
    if start is None:
        return {}
    rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(lines[start:])))]
    names = [name.split(" ")[0] for name in rows[0]]
    cards, driver = [], ""
    for index, row in enumerate(row for row in rows[1:] if len(row) == len(names)):
        told = dict(zip(names, row, strict=True))
        driver = told.get("driver_version", driver)
        cards.append(_queried_card(index, told))
    return {"driver": driver, "cards": _known(tuple(cards))} if cards else {}


def _queried_card(index: int, told: dict[str, str]) -> CardState:
    def number(name: str, scale: float = 1.0) -> float | None:
        return _figure(told.get(name, ""), scale)

    total, used = number("memory.total", MiB), number("memory.used", MiB)
    return CardState(
        index=whole_number(told.get("index", "")) or index,
        name=told.get("name", told.get("gpu_name", "unknown")),
        total_bytes=int(total) if total else None,
        used_bytes=int(used) if used is not None else None,
        power_limit_w=number("power.limit"),
        power_default_w=number("power.default_limit"),
        temperature_c=number("temperature.gpu"),
    )


def _deepspeed(text: str) -> dict[str, Any]:
    """ds_report: the table of operators, then "name ..... value" lines."""
    if "DeepSpeed general environment info" not in text and "DeepSpeed C++/CUDA extension op report" not in text:
        return {}
    operators = {name: (installed == "YES", compatible == "OKAY") for name, installed, compatible in _OPERATOR.findall(text)}
    packages = {}
    if version := _dotted(text, "torch version"):
        packages["torch"] = version
    if info := _dotted(text, "deepspeed info"):
        packages["deepspeed"] = info.partition(",")[0]
    return {
        "operators": operators,
        "packages": packages,
        "torch_cuda": _dotted(text, "torch cuda version"),
        "nvcc": _dotted(text, "nvcc version"),
        "shared_memory_bytes": _size(_dotted(text, r"shared memory \(/dev/shm\) size")),
    }


def _dotted(text: str, name: str) -> str:
    match = re.search(rf"^{name}\s*\.{{2,}}\s*(\S.*?)\s*$", text, re.MULTILINE)
    return match[1] if match and match[1] not in ("None", "not available") else ""


def _size(text: str) -> int | None:
    units = {"MB": MiB, "MiB": MiB, "GB": GiB, "GiB": GiB}  # DeepSpeed divides by 2^20 and 2^30 and writes MB, GB
    number, _, unit = text.partition(" ")
    size = real_number(number)
    return int(size * units[unit]) if size is not None and unit in units else None


def _collected(text: str) -> dict[str, Any]:
    """torch.utils.collect_env, and vLLM's collect_env.py, which adds versions and the GPU topology."""
    version = re.search(r"^PyTorch version\s*:\s*(\S+)", text, re.MULTILINE)
    if not version:
        return {}
    pip = {name.lower().replace("_", "-"): v for name, v in _PIP.findall(text)}
    packages = {name: pip[name.lower().replace("_", "-")] for name in STACK if name.lower().replace("_", "-") in pip}
    cards = tuple(CardState(index=int(i), name=name) for i, name in _GPU_LINE.findall(text))
    topology = text.partition("GPU Topology:")[2]
    nccl = next((v for name, v in pip.items() if name.startswith("nvidia-nccl")), "")
    return {
        "packages": {**packages, "torch": version[1]},
        "torch_cuda": _collected_value(text, "CUDA used to build PyTorch"),
        "nvcc": ".".join(_collected_value(text, "CUDA runtime version").split(".")[:2]),
        "driver": _collected_value(text, "Nvidia driver version"),
        "python": _collected_value(text, "Python version").partition(" ")[0],
        "nccl": nccl,
        "cards": _known(cards),
        "topology": topology[:20_000],
    }


def _collected_value(text: str, name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(\S.*?)\s*$", text, re.MULTILINE)
    return match[1] if match and match[1] not in ("Could not collect", "No CUDA", "N/A", "None") else ""


_READERS = {
    "torch.utils.collect_env": _collected,
    "ds_report": _deepspeed,
    "nvidia-smi": _table,
    "nvidia-smi -q": _details,
    "nvidia-smi --query-gpu": _queried,
}
