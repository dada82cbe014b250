"""Forecast beside trace for every kind of model that trains: allocated and reserved bytes of one step, term by term.

    python benchmarks/tracing/sweep.py                       # every cell that is not there yet, appended to sweep.jsonl
    python benchmarks/tracing/sweep.py gemma2 fsdp2          # the cells with all of these words, traced anew
    python benchmarks/tracing/sweep.py --again               # the forecasts once more, beside the traces that are there
    python benchmarks/tracing/sweep.py --off [WORD ...]      # cells beyond 2 % allocated or 5 % reserved, with their terms
    python benchmarks/tracing/sweep.py --page                # rewrite the tables in docs/tracing.md from sweep.jsonl

A cell is a model class, a method, a checkpointing, a layout and a shape, run by the Trainer's own recipe (other frameworks'
under their name). Needs the [torch] extra, no GPU; ZeRO cells need DeepSpeed (``DS_BUILD_OPS=0 pip install deepspeed``).
"""

import sys
from collections.abc import Iterator
from itertools import groupby, product
from pathlib import Path

import msgspec
from sweep_kinds import KINDS, PUBLISHED, config_of, options_of, shapes_of, targets_of

from vramcast.errors import VramcastError
from vramcast.models.families import read_config
from vramcast.planning.tracing.request import training_request
from vramcast.tracing.allocator.settings import AllocatorSettings
from vramcast.tracing.execution.worker import versions
from vramcast.tracing.reports.report import report
from vramcast.tracing.run import Tracer
from vramcast.training.forecast import forecast_training
from vramcast.workload import Adapter, Parallel, Training

RESULTS = Path(__file__).with_name("sweep.jsonl")
PAGE = Path(__file__).parents[2] / "docs" / "tracing.md"
START, END = "<!-- sweep -->\n", "<!-- /sweep -->\n"
METHODS, CHECKPOINTING = ("full", "lora", "qlora"), ("none", "full")
ALLOCATED, RESERVED = 0.02, 0.05
RANKS = 8
QLORA_QUANT = "nf4-dq"  # the QLoRA paper's: scales quantised themselves (arXiv 2305.14314)
LAYOUTS: dict[str, dict[str, int]] = {
    "one card": {}, "ddp": {}, "fsdp1": {"fsdp": 1}, "fsdp2": {"fsdp": 2}, "zero1": {"zero": 1}, "zero2": {"zero": 2},
    "zero3": {"zero": 3},
}  # fmt: skip
ENGINE = ("llama", "qwen2", "gemma3_text", "qwen3_moe", "gpt2", "phi3")  # kinds that DeepSpeed's engine is asked for
OTHERS = ("pytorch", "torchtitan")  # frameworks beside the Trainer
ELSEWHERE = ("llama", "qwen3", "mistral", "qwen3_moe")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the sweep."""

    kind: str
    framework: str = "hf_trainer"
    layout: str = "one card"
    method: str
    checkpointing: str
    micro_batch: int
    seq: int

    @property
    def words(self) -> frozenset[str]:
        """What it is chosen by on the command line."""
        return frozenset({self.kind, self.framework, self.method, self.layout, f"ckpt={self.checkpointing}", str(self.seq)})


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a cell, bytes: allocated and reserved, and each term at the peak. ``error``: why there is no trace."""

    cell: Cell
    traced: tuple[int, int] = (0, 0)
    forecast: tuple[int, int] = (0, 0)
    traced_terms: dict[str, int] = {}
    forecast_terms: dict[str, int] = {}
    instant: str = ""
    error: str = ""

    def off(self, counter: int) -> float:
        """The forecast over the trace, less 1: of allocated (0) or reserved (1)."""
        return self.forecast[counter] / self.traced[counter] - 1 if self.traced[counter] else float("nan")

    @property
    def holds(self) -> bool:
        """Whether both counters are within their bounds."""
        return abs(self.off(0)) <= ALLOCATED and abs(self.off(1)) <= RESERVED


def cells() -> Iterator[Cell]:
    """The whole sweep."""
    for kind in KINDS:
        for method, checkpointing, shape in product(METHODS, CHECKPOINTING, shapes_of(kind)):
            yield Cell(kind=kind, method=method, checkpointing=checkpointing, micro_batch=shape[0], seq=shape[1])
        yield from _divided(kind)
    for framework, kind, layout, checkpointing in product(OTHERS, ELSEWHERE, ("one card", "fsdp2"), CHECKPOINTING):
        how = {"framework": framework, "layout": layout, "method": "full", "checkpointing": checkpointing}
        yield Cell(kind=kind, micro_batch=1, seq=2048, **how)


def _divided(kind: str) -> Iterator[Cell]:
    """Layouts of several ranks, in full and with LoRA; recomputed alone where widths are not published ones."""
    micro_batch, seq = shapes_of(kind)[-1]
    recomputed = CHECKPOINTING if kind in PUBLISHED else ("full",)
    for layout, method, checkpointing in product(list(LAYOUTS)[1:], ("full", "lora"), recomputed):
        if kind in ENGINE or not layout.startswith("zero"):
            yield Cell(kind=kind, layout=layout, method=method, checkpointing=checkpointing, micro_batch=micro_batch, seq=seq)


def question_of(cell: Cell) -> Training:
    """What a cell asks."""
    adapter = None if cell.method == "full" else Adapter(rank=16, targets=targets_of(cell.kind))
    ranks = RANKS if cell.layout != "one card" else 1
    return Training(
        model=cell.kind, framework=cell.framework, method=cell.method, checkpointing=cell.checkpointing, adapter=adapter,
        micro_batch=cell.micro_batch, seq=cell.seq, quant=QLORA_QUANT if cell.method == "qlora" else None,
        parallel=Parallel(dp=ranks), gpus=ranks, **LAYOUTS[cell.layout],  # type: ignore[arg-type]
    )  # fmt: skip


def forecast_of(cell: Cell) -> Result:
    """The forecast alone; a refusal is its error."""
    try:
        question = msgspec.structs.replace(question_of(cell), options=options_of(cell.kind))
        rank = forecast_training(question, model=read_config(config_of(cell.kind)), replays=True).worst
    except VramcastError as refused:
        return Result(cell=cell, error=f"forecast: {refused}"[:200])
    terms: dict[str, int] = {}
    for term in rank.peak.terms:
        terms[term.name] = terms.get(term.name, 0) + round(term.bytes)
    sizes = (round(rank.allocated_bytes), round(rank.reserved_bytes))
    return Result(cell=cell, forecast=sizes, forecast_terms=terms, instant=rank.peak.name)


def traced(cell: Cell, tracer: Tracer) -> Result:
    """A cell's forecast beside its trace."""
    found = forecast_of(cell)
    try:
        config = config_of(cell.kind)
        request, _ = training_request(question_of(cell), read_config(config), config, card=None, backend="cuda", layers=None)
        outcome = tracer.trace(request)
    except VramcastError as refused:
        return msgspec.structs.replace(found, error=found.error or f"trace: {refused}"[:200])
    if outcome.error:
        return msgspec.structs.replace(found, error=found.error or outcome.error.partition(" at /")[0][:200])
    seen = report(outcome.log, _settings(cell)).memory
    terms: dict[str, int] = {}
    for term in seen.peak.terms:
        terms[term.name] = terms.get(term.name, 0) + term.bytes
    return msgspec.structs.replace(found, traced=(seen.allocated_bytes, seen.reserved_bytes), traced_terms=terms)


def _settings(cell: Cell) -> AllocatorSettings:
    return AllocatorSettings(expandable_segments=cell.framework == "torchtitan")


def known() -> dict[Cell, Result]:
    """The newest result of every cell that is still asked."""
    if not RESULTS.exists():
        return {}
    lines = [msgspec.json.decode(line, type=Result) for line in RESULTS.read_bytes().splitlines()[1:]]
    found = {result.cell: result for result in lines}
    return {cell: found[cell] for cell in cells() if cell in found}


def main(words: list[str]) -> None:
    """Trace what is missing, or what the words name, and append each cell as soon as it is known."""
    there = known()
    chosen = [c for c in cells() if (c.words >= set(words) if words else c not in there)]
    with RESULTS.open("ab") as file:
        if not file.tell():
            file.write(msgspec.json.encode({"versions": versions()}) + b"\n")
        for kind, group in groupby(chosen, key=lambda c: c.kind):
            with Tracer() as tracer:
                for cell in group:
                    done = traced(cell, tracer)
                    file.write(msgspec.json.encode(done) + b"\n")
                    file.flush()
                    print(f"{kind:16} {_named(cell):50} {done.off(0):+7.1%} {done.off(1):+7.1%} {done.error[:90]}", flush=True)


def _named(cell: Cell) -> str:
    return f"{cell.framework} {cell.layout} {cell.method} {cell.checkpointing} {cell.micro_batch}x{cell.seq}"


def again() -> None:
    """Forecast every cell that was traced once more, and leave out the lines that are no longer the newest."""
    first, *_ = RESULTS.read_bytes().splitlines()
    lines = [first]
    for cell, old in known().items():
        new = forecast_of(cell)
        lines.append(msgspec.json.encode(msgspec.structs.replace(
            new, traced=old.traced, traced_terms=old.traced_terms, error=new.error or ("" if old.traced[0] else old.error)
        )))  # fmt: skip
    RESULTS.write_bytes(b"\n".join(lines) + b"\n")


def show_off(words: list[str]) -> None:
    """Print the cells beyond the bounds, the worst first, with the terms that differ."""
    found = [r for c, r in known().items() if r.traced[0] and c.words >= set(words) and not r.holds]
    for result in sorted(found, key=lambda r: -abs(r.off(0))):
        print(f"{result.cell.kind:16} {_named(result.cell):50} {result.off(0):+7.1%} {result.off(1):+7.1%} {result.instant}")
        names = dict.fromkeys((*result.traced_terms, *result.forecast_terms))
        pairs = [(n, result.traced_terms.get(n, 0) >> 20, result.forecast_terms.get(n, 0) >> 20) for n in names]
        print("    " + ", ".join(f"{n} {traced} / {forecast}" for n, traced, forecast in pairs if traced or forecast))


def table(found: list[Result]) -> str:
    """How many cells hold, by layout and method, and each class whose cells do not: the errors of its allocated bytes."""
    traced = [r for r in found if r.traced[0] and r.forecast[0]]
    lines = ["| layout | method | cells | allocated within 2 % | reserved within 5 % | allocated, median |", "|---" * 6 + "|"]
    groups = {(r.cell.framework, r.cell.layout, r.cell.method): [] for r in traced}
    for result in traced:
        groups[result.cell.framework, result.cell.layout, result.cell.method].append(result)
    for (framework, layout, method), group in [*groups.items(), (("", "all", ""), traced)]:
        name = layout if framework in ("", "hf_trainer") else f"{layout}, {framework}"
        lines.append(f"| {name} | {method} | {_counted(group)} |")
    lines.append("\nClasses with cells beyond 2 %, the forecast over the trace, less 1:\n")
    lines += ["| class | cells | beyond | errors of these |", "|---" * 4 + "|"]
    for kind in dict.fromkeys(r.cell.kind for r in traced):
        own = [r for r in traced if r.cell.kind == kind]
        beyond = [r for r in own if abs(r.off(0)) > ALLOCATED]
        if beyond:
            errors = sorted({f"{r.off(0):+.0%}" for r in beyond}, key=lambda e: int(e.rstrip("%")))
            lines.append(f"| {kind} | {len(own)} | {len(beyond)} | {', '.join(errors)} |")
    failed = [r for r in found if r.error]
    reasons = dict.fromkeys(r.error.partition(":")[0] for r in failed)
    lines.append(f"\n{len(failed)} cells were not traced ({', '.join(reasons)}): `--off` and the file name each.")
    return "\n".join(lines) + "\n"


def _counted(group: list[Result]) -> str:
    errors = sorted(abs(r.off(0)) for r in group)
    within = sum(e <= ALLOCATED for e in errors) / len(errors)
    reserved = sum(abs(r.off(1)) <= RESERVED for r in group) / len(group)
    return f"{len(group)} | {within:.0%} | {reserved:.0%} | {errors[len(errors) // 2]:.2%}"


def write_page() -> None:
    """Put the tables between their marks."""
    before, rest = PAGE.read_text().split(START)
    _, after = rest.split(END)
    PAGE.write_text(before + START + table(list(known().values())) + END + after)


if __name__ == "__main__":
    modes = {"--again": again, "--page": write_page, "--off": lambda: show_off(sys.argv[2:])}
    modes[sys.argv[1]]() if sys.argv[1:2] and sys.argv[1] in modes else main(sys.argv[1:])
