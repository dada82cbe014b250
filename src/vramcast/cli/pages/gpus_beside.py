"""Cards side by side: memory, links, rates by format with their bits, and which formats and kernels each runs itself."""

from collections.abc import Callable

from vramcast.cli.pages.page import Page
from vramcast.hardware.accelerator import FORMATS, Accelerator, capability
from vramcast.units import GiB

_KERNELS = {
    "bf16": "bf16 arithmetic",
    "fp8": "fp8 arithmetic",
    "nvfp4": "fp4 arithmetic",
    "fp8_kv": "fp8 KV cache",
    "flash_attention_2": "FlashAttention 2",
    "flash_attention_3": "FlashAttention 3",
    "flashinfer": "FlashInfer",
    "marlin": "Marlin (int4, fp8)",
    "awq": "AWQ",
    "bitsandbytes": "bitsandbytes",
}
_A_PAIR = 2
_MARKS = {"native": "yes", "emulated": "emulated", "refused": "no", "unknown": "?"}


def facts_of(card: Accelerator) -> tuple[tuple[str, list[tuple[str, str]]], ...]:
    """One card's links and prices, dense rates by format, and what it runs by itself: titles with rows of name and figure."""
    facts = [(name, form.format(of(card))) for name, of, form in _FACTS[1:] if of(card)]
    rates = [(f"{name:<5}{bits}", f"{card.flops[name] / 1e12:,.1f}") for name, bits in FORMATS.items() if card.flops.get(name)]
    other = [(name, f"{rate / 1e12:,.1f}") for name, rate in card.flops.items() if name not in FORMATS]
    runs = [(text, _MARKS[capability(card, name).verdict]) for name, text in _KERNELS.items()]
    return (
        ("Speed, links, price", facts),
        ("Dense rates, TFLOP/s", rates + other),
        ("Runs by itself", runs if card.vendor in ("NVIDIA", "AMD") else []),
    )


def beside_page(cards: list[Accelerator]) -> Page:
    """The page; ratios are to the first card."""
    page = Page()
    rows: list[tuple[str, ...]] = [("", *(_short(c.name) for c in cards))]
    rows += [("", *(f"{c.vendor} {c.architecture}" for c in cards))]
    rows += _section("Memory and links", cards, _FACTS)
    rows += [_blank(cards), ("dense rates, TFLOP/s", *("" for _ in cards))]
    rows += [
        (f"{name:<5}{bits}", *_beside(cards, lambda c, name=name: c.flops.get(name, 0) / 1e12, "{:,.1f}"))  # type: ignore[misc]
        for name, bits in FORMATS.items()
        if any(c.flops.get(name) for c in cards)
    ]
    rows += [_blank(cards), ("runs by itself", *("" for _ in cards))]
    rows += [(text, *(_MARKS[capability(c, name).verdict] for c in cards)) for name, text in _KERNELS.items()]
    page.table(rows, styles=("faint", *["number"] * len(cards)), right=frozenset(range(1, len(cards) + 1)))
    page.blank()
    page.line(("  bits: sign + exponent + fraction; ratios are to the first card", "faint"))
    page.line(("  emulated: memory is saved, arithmetic is not faster", "faint"))
    for text in _meaning(cards):
        page.line("  ", text, hang=2)
    return page


def _meaning(cards: list[Accelerator]) -> list[str]:
    """What the ratios mean for a person who chooses between two cards."""
    if len(cards) != _A_PAIR or not all(card.bandwidth_bytes_per_s and card.flops.get("bf16") for card in cards):
        return []
    first, second = cards
    reads = second.bandwidth_bytes_per_s / first.bandwidth_bytes_per_s
    computes = second.flops["bf16"] / first.flops["bf16"]
    return [
        f"so {second.name} against {first.name}: about {reads:.2f} times the tokens/s of one user (bandwidth decides), about "
        f"{computes:.2f} times the speed of long prompts and of training in bf16; more memory alone makes nothing faster"
    ]


_Fact = tuple[str, Callable[[Accelerator], float], str]
_FACTS: tuple[_Fact, ...] = (
    ("memory, GiB", lambda c: c.visible_bytes / GiB, "{:,.1f}"),
    ("bandwidth, GB/s", lambda c: c.bandwidth_bytes_per_s / 1e9, "{:,.0f}"),
    ("link to peers, GB/s", lambda c: c.link_bytes_per_s / 1e9, "{:,.0f}"),
    ("PCIe, GB/s", lambda c: c.host_link_bytes_per_s / 1e9, "{:,.0f}"),
    ("L2 cache, MiB", lambda c: c.l2_bytes / 2**20, "{:,.0f}"),
    ("SMs", lambda c: c.sms, "{:,.0f}"),
    ("power, W", lambda c: c.tdp_w, "{:,.0f}"),
    ("launch price, USD", lambda c: c.price_usd, "{:,.0f}"),
    ("cloud, USD/h", lambda c: c.cloud_usd_per_hour, "{:,.2f}"),
    ("year", lambda c: c.year, "{:.0f}"),
)


def _section(title: str, cards: list[Accelerator], facts: tuple[_Fact, ...]) -> list[tuple[str, ...]]:
    shown = [fact for fact in facts if any(fact[1](card) for card in cards)]
    ratioless = {"year", "SMs"}
    rows = [(name, *_beside(cards, of, form, ratio=name not in ratioless)) for name, of, form in shown]
    return [_blank(cards), (title.lower(), *("" for _ in cards)), *rows]


def _blank(cards: list[Accelerator]) -> tuple[str, ...]:
    return ("", *("" for _ in cards))


def _beside(cards: list[Accelerator], of: Callable[[Accelerator], float], form: str, *, ratio: bool = True) -> tuple[str, ...]:
    """The figure of each card, with its ratio to the first card's; a dash where it is unknown."""
    first = of(cards[0])
    cells = []
    for i, card in enumerate(cards):
        value = of(card)
        beside = f" {value / first:>5.2f}x" if ratio and i and first and value else ""
        cells.append((form.format(value) if value else "-") + beside)
    return tuple(cells)


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"
