"""docs/kernels.md from laws.json: every law, its constants with their meaning, n and errors."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from vramcast.speed.kernels.law import Law, Spread

MEANING = {
    "compute": "share of the dense peak that full tiles reach",
    "bandwidth": "share of the memory bandwidth that is reached",
    "launch_us": "start and end of the kernel, in microseconds",
    "l2": "rate of loads from L2, as a multiple of the memory bandwidth",
    "routing_ns": "of a launch, more for each expert that rows are sorted by, in nanoseconds",
    "wave_us": "fixed time of a wave of tiles",
    "split_us": "reduction after splitting k",
    "blend": "exponent p by which parts overlap",
    "throttle": "share lost by kernels long enough to reach the power limit",
    "single": "work of a group of one query head against a larger group's",
    "unit_us": "fixed time of one sequence and KV head on an SM",
    "tile_us": "time of one more tile",
    "cold_us": "first access to a cold cache",
    "tail": "length of the last tile, alone on its SM",
    "softmax_flops": "cost of one (query, key) pair apart from its products, in FLOPs",
    "stores": "times that new keys and values are written",
    "skew": "share of the expected maximum over ranks",
    "unrouted": "traffic of rows that belong to other ranks",
    "root_ns": "protocols between latency and bandwidth, ns per sqrt(byte)",
    "one_shot": "share of the link of a one-shot exchange",
    "second_us": "second step of a two-step exchange",
    "link": "share of the link's rate",
    "token_ns": "bookkeeping of one copy of a token",
    "chain_us": "one chunk after another in a sequence",
    "linear": "projections, as a share of the bf16 peak",
    "index": "indexer, as a share of the bf16 peak",
    "host_us": "launches from Python, where the source measured that",
}
HEAD = """# Kernel laws

Written by `python tools/fit_kernels.py --page` from `src/vramcast/speed/kernels/laws.json`; do not edit.

Every time that vramcast forecasts for a GPU comes from these laws: one formula per operator (`src/vramcast/speed/kernels/`), with
few physical constants per back end, number format and class of cards. A class is an architecture in one market (Hopper in
data centres, Ada professional, GeForce ...). A card of a class that was never measured takes the constants of the class; a
measured card has its own share of peak, bandwidth and launch time. Errors are |predicted/measured - 1|, median (90th
percentile): *fitted* on the rows of the fit, *held* on a quarter of the geometries left out, *transfer* on each card with the
constants of the others (or, in a class with one measured card, with those of the nearest class).
"""

MISSES = """## Where the laws miss, and why

* **Kernels without tuned tiles for the card** (Triton attention on Blackwell 20 to 30 %, Triton experts in bf16 14 to 20 %): the
  tile is taken from a file made on another card, so the time jumps by a factor between neighbouring shapes. A law of tiles has
  the best tile of each shape.
* **Times that hold the host's launches** (vLLM's block-fp8 products through DeepGEMM and Triton, sparse modules of SGLang and
  vLLM while prefilling): measured from Python, 60 to 400 microseconds whatever the shape. `host_us` is
  that floor; a forecast leaves it out, or takes the back end without it.
* **Two kernels behind one name** (TensorRT-LLM's decode attention on an A100 and H100, for one query head a group and for
  more): the switch follows rules that the table does not state.
* **One table from two hosts** (all-reduce of two RTX PRO 6000, 40 to 50 %): rows of one size differ by a factor of two.
* **Boards of 70 watts** (fp32 products on T4 and P4, 21 %): the clock follows the power, and so the kernels run before.
* **More in the row than its name says** (TensorRT-LLM's convolution before Mamba-2 and delta nets, 40 to 60 %): far more bytes
  or kernels than a convolution moves; engines' convolutions elsewhere fit within 5 %.
* **Another class's constants** (a collective of a class with the links of another, a Triton kernel of Hopper on RTX): shares of
  a link or of L2 do not carry over; the stated transfer error is that.
"""


def page(laws: Iterable[Law], scored: str) -> str:
    """The whole page; ``scored``: the table of errors left out, as ``--score`` wrote it, between its marks."""
    groups: dict[str, list[Law]] = defaultdict(list)
    for law in laws:
        groups[law.operator].append(law)
    parts = [HEAD, scored, MISSES, _meaning(groups), *(_table(operator, rows) for operator, rows in sorted(groups.items()))]
    return "\n".join(part for part in parts if part) + "\n"


def _meaning(groups: dict[str, list[Law]]) -> str:
    used = {name for laws in groups.values() for law in laws for name in law.constants}
    rows = (f"| `{name}` | {text} |" for name, text in MEANING.items() if name in used)
    return "\n".join(["## Constants", "", "| constant | meaning |", "|---|---|", *rows, ""])


def _table(operator: str, laws: list[Law]) -> str:
    names = list(laws[0].constants)
    head = ["back end", "format", "class", *names, "n", "fitted", "held", "transfer", "source"]
    return "\n".join([f"## {operator}", "", _line(head), _line(["---"] * len(head)), *_rows(laws, names), ""])


def _rows(laws: list[Law], names: list[str]) -> Iterator[str]:
    for law in laws:
        constants = [f"{law.constants.get(name, 0):.3g}" for name in names]
        yield _line(
            [law.backend, law.precision, law.card_class, *constants, f"{law.fitted.n:,}", _spread(law.fitted), _spread(law.held),
             _spread(law.transfer), law.source.split(",")[0]]
        )  # fmt: skip


def _spread(errors: Spread) -> str:
    return f"{errors.median:.1%} ({errors.p90:.0%})" if errors.n else "-"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
