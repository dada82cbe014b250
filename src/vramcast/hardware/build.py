"""From accelerators.toml (facts with sources) to accelerators.json (what the program loads).

Run as ``python -m vramcast.hardware.build``; a test holds the two together.

What no source states is worked out here by rules and named in ``inferred``: driver and visible memory (``visible.py``), and
matrix rates from the vector rate, since both are multiples of SMs x clock within one architecture.
"""

import re
import sys
import tomllib
from typing import Any

import msgspec

from vramcast.hardware.accelerator import FACTS, TWIN, Accelerator, is_unified
from vramcast.hardware.cards import take_apart
from vramcast.hardware.visible import driver_total, visible_total
from vramcast.units import MiB, parse_bytes

GB_S = 1e9
TFLOPS = 1e12
# One-way bytes/s of a PCIe lane, by generation: transfers x encoding (8 GT/s x 128/130 / 8 ...). Source: PCI-SIG.
PCIE_LANE = {"3": 0.985e9, "4": 1.969e9, "5": 3.938e9, "6": 7.563e9}
# Dense rate as a multiple of the fp32 vector rate, fp32 accumulation: (flop per clock per SM) / (vector flop per clock per SM).
# Sources: the architecture whitepapers' SM figures; reproduced on every card of the catalogue that states both (tests). Hopper is
# rated at 1.83 of 1.98 GHz for matrices (16 x 1.83/1.98). AMD's product pages of the RX 9070 XT and Ryzen AI Max+ 395; Intel's
# Xe core guides (XMX: 8 times the vector rate, 16 on Xe HPC). RDNA1, RDNA2, GCN5 and Turing GTX pack two halves, no matrices.
RATES = {
    "Volta professional": {"fp16": 8.0},
    "Xavier professional": {"fp16": 8.0, "int8": 16.0},
    "Ampere GA100 professional": {"fp16": 16.0, "bf16": 16.0, "tf32": 8.0, "int8": 32.0},
    "Hopper professional": {"fp16": 14.8, "bf16": 14.8, "tf32": 7.4, "fp8": 29.6, "int8": 29.6},
    "Turing GTX": {"fp16_vector": 2.0},
    "Turing GTX professional": {"fp16_vector": 2.0},
    "Turing": {"fp16": 4.0, "fp16_acc16": 8.0, "int8": 16.0},
    "Turing professional": {"fp16": 8.0, "int8": 16.0},
    "Ampere GA10x": {"fp16": 2.0, "bf16": 2.0, "fp16_acc16": 4.0, "int8": 8.0},
    "Ampere GA10x professional": {"fp16": 4.0, "bf16": 4.0, "int8": 8.0},
    "Ada": {"fp16": 2.0, "bf16": 2.0, "fp16_acc16": 4.0, "fp8": 4.0, "fp8_acc16": 8.0, "int8": 8.0},
    "Ada professional": {"fp16": 4.0, "bf16": 4.0, "fp8": 8.0, "int8": 8.0},
    "Blackwell RTX": {"fp16": 2.0, "bf16": 2.0, "fp16_acc16": 4.0, "fp8": 4.0, "fp8_acc16": 8.0, "fp4": 16.0, "int8": 8.0},
    "Blackwell RTX professional": {"fp16": 4.0, "bf16": 4.0, "fp8": 8.0, "fp4": 16.0, "int8": 8.0},
    "RDNA3": {"fp16": 2.0, "bf16": 2.0, "int8": 2.0},
    "RDNA3.5": {"fp16": 2.0, "bf16": 2.0, "int8": 2.0},
    "RDNA4": {"fp16": 4.0, "bf16": 4.0, "fp8": 8.0, "int8": 8.0},
    "RDNA1": {"fp16_vector": 2.0},
    "RDNA2": {"fp16_vector": 2.0},
    "GCN5": {"fp16_vector": 2.0},
    "Xe HPG": {"fp16": 8.0, "bf16": 8.0, "int8": 16.0},
    "Xe LPG+": {"fp16": 8.0, "bf16": 8.0, "int8": 16.0},
    "Xe2": {"fp16": 8.0, "bf16": 8.0, "int8": 16.0},
    "Xe3": {"fp16": 8.0, "bf16": 8.0, "int8": 16.0},
    "Xe HPC": {"fp16": 16.0, "bf16": 16.0, "int8": 32.0},
}
_CUT_DOWN = "CMP"  # mining cards: units of the chip are switched off, so its ratios do not hold
_FORM = re.compile(r"\b(SXM|PCIe|NVL)\d*\b")


def build() -> bytes:
    """The twin's bytes: a JSON list of accelerators, one per line."""
    facts = tomllib.loads(FACTS.read_text("utf-8"))
    parts = [_part(name, table) for name, table in facts.items() if name != "sources"]
    lines = [msgspec.json.encode(part) for part in parts]
    return b"[\n" + b",\n".join(lines) + b"\n]\n"


def _part(part_id: str, table: dict[str, Any]) -> Accelerator:
    sources = {field: fact[1] for field, fact in table.items() if isinstance(fact, list) and field != "aliases"}
    sources |= {f"flops.{rate}": fact[1] for rate, fact in table.get("tflops", {}).items()}
    memory, inferred = _memory(table)
    flops, worked_out = _rates(table)
    form = _FORM.search(table["name"])
    capability = str(_value(table, "capability", ""))
    return Accelerator(
        id=part_id,
        name=table["name"],
        vendor=table["vendor"],
        architecture=table["architecture"],
        **memory,
        **_capability(capability),
        **_scaled(table),
        bandwidth_bytes_per_s=_value(table, "bandwidth_gb_s", 0) * GB_S,
        host_link_bytes_per_s=_host_link(table.get("host_link", "")),
        flops=flops,
        matmul_flops={
            k: _value(table, f"matmul_{k}_tflops", 0) * TFLOPS for k in ("bf16", "fp8") if f"matmul_{k}_tflops" in table
        },
        memory_type=table.get("memory_type", ""),
        form=form[1].lower() if form else "",
        aliases=tuple(table.get("aliases", ())),
        keys=tuple(dict.fromkeys(take_apart(name).key for name in (table["name"], *table.get("aliases", ())))),
        note=table.get("note", ""),
        rare=table.get("rare", False),
        inferred=inferred + worked_out + tuple(f for f, keys in sources.items() if keys == "inferred"),
        sources={field: keys for field, keys in sources.items() if keys != "inferred"},
    )


def _memory(table: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    sold = parse_bytes(table["memory"][0], what=f"memory of {table['name']}")
    driver, visible = _value(table, "driver_mib", 0) * MiB, _value(table, "visible_mib", 0) * MiB
    inferred = tuple(name for name, read in (("driver_bytes", driver), ("visible_bytes", visible)) if not read)
    if not driver:
        driver = max(driver_total(vendor=table["vendor"], sold_bytes=sold, ecc=table.get("ecc", False)), visible)
    if not visible:
        unified = is_unified(table.get("memory_type", ""), linked="host_link" in table)
        visible = visible_total(vendor=table["vendor"], driver_bytes=driver, unified=unified)
    return {"sold_bytes": sold, "driver_bytes": driver, "visible_bytes": visible}, inferred


def _capability(text: str) -> dict[str, Any]:
    if re.fullmatch(r"\d+\.\d", text):
        major, minor = text.split(".")
        return {"capability": (int(major), int(minor))}
    return {"target": text}


def _scaled(table: dict[str, Any]) -> dict[str, Any]:
    return {
        "year": _value(table, "year", 0),
        "sms": _value(table, "sms", 0),
        "tdp_w": _value(table, "tdp_w", 0),
        "price_usd": _value(table, "price_usd", 0),
        "cloud_usd_per_hour": _value(table, "cloud_usd_h", 0),
        "cloud_priced": table["cloud_usd_h"][2] if "cloud_usd_h" in table else "",
        "link_bytes_per_s": _value(table, "link_gb_s", 0) * GB_S,
        "l2_bytes": _value(table, "l2_kib", 0) * 1024,
        "stream_fraction": _value(table, "stream_pct", 0) / 100,
    }


def _host_link(text: str) -> float:
    match = re.fullmatch(r"PCIe(\d) x(\d+)", text)
    return PCIE_LANE[match[1]] * int(match[2]) if match else 0


def _rates(table: dict[str, Any]) -> tuple[dict[str, float], tuple[str, ...]]:
    read = {rate: fact[0] * TFLOPS for rate, fact in table.get("tflops", {}).items()}
    kind = table["architecture"]
    if table["vendor"] == "NVIDIA" and "GeForce" not in table["name"]:
        kind += " professional"
    if "fp32" not in read or {"fp16", "bf16"} & set(read) or table["name"].startswith(_CUT_DOWN):
        return read, ()
    ratios = {rate: ratio for rate, ratio in RATES.get(kind, {}).items() if rate not in read}
    return read | {rate: read["fp32"] * ratio for rate, ratio in ratios.items()}, tuple(f"flops.{rate}" for rate in ratios)


def _value(table: dict[str, Any], field: str, absent: Any) -> Any:
    return table[field][0] if field in table else absent


if __name__ == "__main__":
    TWIN.write_bytes(build())
    sys.stdout.write(f"wrote {TWIN.name}\n")
