"""Words about traffic: rates, service levels, links, shares, as people write them."""

from collections.abc import Mapping
from typing import Any

from vramcast.errors import QuestionError, unknown_name
from vramcast.units import parse_bytes
from vramcast.workload import USUAL_TRAFFIC, Traffic

WORDS = ("rate", "cached", "acceptance", "slo", "link", "host_bandwidth", "workload", "profile")
# One direction of one card's link, in bytes per second: PCIe x16 by generation, NVLink by generation (SXM parts of each).
LINKS = {
    "pcie3": 16e9, "pcie4": 32e9, "pcie5": 64e9, "pcie6": 128e9, "nvlink2": 150e9, "nvlink3": 300e9, "nvlink4": 450e9,
    "nvlink5": 900e9, "ethernet100": 12.5e9, "ib200": 25e9, "ib400": 50e9,
}  # fmt: skip
_TIMES = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def traffic_of(words: Mapping[str, Any]) -> Traffic:
    """The traffic that these words describe. Raises QuestionError for one that cannot be."""
    if all(words.get(name) is None for name in WORDS):
        return USUAL_TRAFFIC
    ttft, tpot = _service_level(words["slo"]) if words.get("slo") else (None, None)
    return Traffic(
        rate=_number(words, "rate"),
        cached=_share(words, "cached") or 0.0,
        acceptance=_share(words, "acceptance"),
        ttft_s=ttft,
        tpot_s=tpot,
        link_bytes_per_s=_link(str(words["link"])) if words.get("link") else None,
        host_bandwidth_bytes_per_s=_rate_bytes(str(words["host_bandwidth"])) if words.get("host_bandwidth") else None,
        requests=words.get("workload"),
        profile=words.get("profile"),
    )


def _number(words: Mapping[str, Any], name: str) -> float | None:
    given = words.get(name)
    if given is None:
        return None
    try:
        return float(str(given).removesuffix("/s"))
    except ValueError:
        raise QuestionError(f"--{name} is {given!r}: expected a number, for example --{name} 4") from None


def _share(words: Mapping[str, Any], name: str) -> float | None:
    text = str(words[name]) if words.get(name) is not None else None
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise QuestionError(f"--{name} is {text!r}: expected a share, for example 0.8 or 80%") from None


def _service_level(text: str) -> tuple[float | None, float | None]:
    """``ttft=1s,tpot=50ms`` as seconds. Raises QuestionError for other names or units."""
    found: dict[str, float] = {}
    for part in str(text).split(","):
        name, _, value = part.strip().lower().partition("=")
        if name not in ("ttft", "tpot"):
            raise QuestionError(f"--slo {text!r}: expected ttft=TIME and tpot=TIME, for example ttft=1s,tpot=50ms")
        found[name] = _time_s(value, text)
    return found.get("ttft"), found.get("tpot")


def _time_s(value: str, text: str) -> float:
    for unit, size in _TIMES.items():
        number = value.removesuffix(unit)
        if number != value and number.replace(".", "", 1).isdigit():
            return float(number) * size
    raise QuestionError(f"--slo {text!r}: {value!r} is no time; write for example 50ms or 1.5s")


def _link(text: str) -> float:
    name = text.lower().replace(" ", "").replace("-", "").replace("x16", "").replace("gen", "")
    if name in LINKS:
        return LINKS[name]
    if name[:1].isdigit():
        return _rate_bytes(text)
    raise unknown_name("link", text, LINKS)


def _rate_bytes(text: str) -> float:
    """``64GB/s`` as bytes per second."""
    return float(parse_bytes(text.lower().removesuffix("/s").upper(), what="bytes per second"))
