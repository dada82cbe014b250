"""Change single facts of the program, one at a time, and see whether a test notices: ``python tools/mutate.py --sample 60``.

A mutant is one changed number, border, row, truth value or comparison. The checkout is copied once, and its tests must pass
there; each mutant is written into the copy, first the ledger of answers is asked again (seconds), then the tests of its package
run, and the change is taken back. Those that nothing notices are printed, and which of the two noticed the others: what only the
ledger noticed has no proof, it is only held still. Texts, messages, limits on input (``_MOST...``, ``_LONGEST...``) and caching
sizes are left alone: nothing of an answer hangs on them. Mutants that change no answer at all stand with the reason in
``mutate_equivalent.toml``; they are counted apart, and neither as caught nor as missed.
"""

import argparse
import ast
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("mutate_equivalent.toml")
PACKAGES = ("serving", "training", "models", "hardware", "planning", "speed")
TESTS = {
    "serving": (
        "serving", "against_vllm_logs", "against_vllm_planner", "against_vllm_messages", "against_sglang",
        "against_llama_cpp_logs", "planning/test_serving.py",
    ),
    "training": ("training", "against_peft", "against_torchtitan", "against_traces"),
    "models": ("models", "against_gguf", "against_safetensors", "against_checkpoints", "serving"),
    "hardware": ("hardware", "serving"),
    "planning": ("planning", "asking", "cli/test_page.py"),
    "speed": ("speed",),
}  # fmt: skip
# Beginnings of the topics of the ledger of answers that are about a package.
TOPICS = {
    "serving": ("serving", "refusals"),
    "training": ("training", "refusals"),
    "models": ("models", "serving_models", "serving_schemes", "training_models"),
    "hardware": ("hardware", "serving_cards", "training_cards", "speed_cards"),
    "planning": ("planning",),
    "speed": ("speed",),
}
_COMPARED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
_SPELLED = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_LEFT_ALONE = re.compile(r"_?(MOST|LONGEST|LARGEST_(BYTES|CONFIG|INDEX|HEADER|LISTING)|KEPT|SHOWN|VERSION$|OLD|FORGOTTEN)")
_LIMITS = ("most", "maxsize", "least", "indent", "count", "cutoff", "ndigits", "frozen", "kw_only", "omit_defaults")


class Mutant(NamedTuple):
    """One change: the file, where the text stands, what it was and what it becomes, and its kind."""

    path: Path
    line: int
    start: int
    stop: int
    old: str
    new: str
    kind: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Every change that can be made to a module."""
    text = path.read_text("utf-8")
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    tree = ast.parse(text)
    skipped = {id(node) for node in _left_alone(tree)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and (change := _changed(node.value)) is not None and node.value != 0:
            start = starts[node.lineno - 1] + node.col_offset
            old = text.encode()[start : starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)].decode()
            yield Mutant(path, node.lineno, start, start + len(old.encode()), old, change, _kind(node, tree))
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARED:
            yield from _compared(path, node, text.encode(), starts)


def _changed(value: object) -> str | None:
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + max(1, value // 8))
    return repr(value * 1.25 if value else 0.5) if isinstance(value, float) else None


def _kind(node: ast.Constant, tree: ast.Module) -> str:
    """``table`` inside a module's constants, ``number`` elsewhere."""
    for top in tree.body:
        if top.lineno <= node.lineno <= (top.end_lineno or 0):
            return "table" if isinstance(top, ast.Assign | ast.AnnAssign) else "number"
    return "number"


def _compared(path: Path, node: ast.Compare, text: bytes, starts: list[int]) -> Iterator[Mutant]:
    op = type(node.ops[0])
    left, right = node.left, node.comparators[0]
    start = starts[(left.end_lineno or 0) - 1] + (left.end_col_offset or 0)
    stop = starts[right.lineno - 1] + right.col_offset
    between = text[start:stop].decode()
    if between.count(_SPELLED[op]) == 1:
        yield Mutant(path, node.lineno, start, stop, between, between.replace(_SPELLED[op], _COMPARED[op]), "comparison")


def _left_alone(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes of texts, messages, limits and types."""
    for node in ast.walk(tree):
        whole: list[ast.AST] = []
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Subscript):
            whole = [node] if not isinstance(node, ast.Subscript) else [node.slice]
        elif isinstance(node, ast.keyword) and node.arg in _LIMITS:
            whole = [node]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and _LEFT_ALONE.match(target.id):
                whole = [node]
        for top in whole:
            yield from ast.walk(top)


class Reach:
    """Which questions of the ledger come to a line: what is worked out once and kept shows the first of them alone."""

    def __init__(self, copy: Path) -> None:
        """Asks every question of the checkout once, under coverage.py: minutes, kept for the next run of the same sources."""
        kept = Path(tempfile.gettempdir()) / f"vramcast-reach-{_fingerprint(copy)}.json"
        if not kept.exists():
            command = [sys.executable, str(copy / "tools" / "build_answers.py"), "--reach", str(kept)]
            if not _succeeds(command, copy, 3600):
                sys.exit("answers differ from tests/answers without a change: run tools/build_answers.py")
        held = json.loads(kept.read_text("utf-8"))
        self.questions: list[tuple[str, str]] = [(topic, question) for topic, question in held["questions"]]
        self.lines: dict[str, dict[str, list[int]]] = held["lines"]

    def of_package(self, package: str, *, without: dict[str, list[str]]) -> dict[str, list[str]]:
        """The other questions of a package's topics, by topic."""
        found: dict[str, list[str]] = {}
        for topic, question in self.questions:
            if topic.startswith(TOPICS[package]) and question not in without.get(topic, ()):
                found.setdefault(topic, []).append(question)
        return found

    def questions_of(self, mutant: Mutant, copy: Path) -> dict[str, list[str]]:
        """The questions that can notice, by topic: of its line, or of the lines that read the table it is a part of."""
        name = _file_of(mutant, copy)
        numbers = {*self.lines.get(name, {}).get(str(mutant.line), ())}
        if mutant.kind == "table" or not numbers:
            numbers |= self._of_readers(mutant, copy) or {n for some in self.lines.get(name, {}).values() for n in some}
        found: dict[str, list[str]] = {}
        for number in sorted(numbers):
            topic, question = self.questions[number]
            found.setdefault(topic, []).append(question)
        return found

    def _of_readers(self, mutant: Mutant, copy: Path) -> set[int]:
        """Questions that come to a line which names what the mutant's statement assigns."""
        named = _assigned(mutant)
        if not named:
            return set()
        reads = re.compile(rf"\b{re.escape(named)}\b")
        found: set[int] = set()
        for path, lines in self.lines.items():
            text = (copy / "src" / "vramcast" / path).read_text("utf-8").splitlines()
            found.update(n for line, numbers in lines.items() if reads.search(text[int(line) - 1]) for n in numbers)
        return found


def _assigned(mutant: Mutant) -> str:
    """The name that the module's own statement around a mutant assigns or defines, or empty."""
    for top in ast.parse(mutant.path.read_text("utf-8")).body:
        if top.lineno <= mutant.line <= (top.end_lineno or 0):
            target = top.targets[0] if isinstance(top, ast.Assign) else top.target if isinstance(top, ast.AnnAssign) else top
            return str(getattr(target, "id", "") or getattr(target, "name", ""))
    return ""


def _file_of(mutant: Mutant, copy: Path) -> str:
    return mutant.path.relative_to(copy / "src" / "vramcast").as_posix()


def _fingerprint(copy: Path) -> str:
    """One word for all sources and questions."""
    parts = [*sorted((copy / "src").rglob("*.*")), *sorted((copy / "tests" / "answers").glob("*.*"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in parts if path.is_file())).hexdigest()[:16]


def sample(copy: Path, packages: tuple[str, ...], count: int, seed: int) -> list[Mutant]:
    """As many mutants of tables as of comparisons and of other numbers, from all packages alike."""
    chance = random.Random(seed)
    chosen: list[Mutant] = []
    pools = {
        (package, kind): [m for path in _modules(copy, package) for m in mutants(path) if m.kind == kind]
        for package in packages
        for kind in ("table", "comparison", "number")
    }
    keys = [key for key, pool in pools.items() if pool]
    while len(chosen) < count:
        pool = pools[keys[len(chosen) % len(keys)]]
        chosen.append(pool.pop(chance.randrange(len(pool))))
    return chosen


def _modules(copy: Path, package: str) -> list[Path]:
    return sorted(p for p in (copy / "src" / "vramcast" / package).rglob("*.py") if "tracing" not in p.parts)


def noticed(mutant: Mutant, copy: Path, reach: Reach, *, deadline_s: float, tests: bool = True) -> str:
    """Who notices the change: ``answers``, ``tests`` of its package, or nobody ("")."""
    text = mutant.path.read_bytes()
    package = package_of(mutant, copy)
    near = reach.questions_of(mutant, copy)
    mutant.path.write_bytes(text[: mutant.start] + mutant.new.encode() + text[mutant.stop :])
    try:
        for questions in (near, reach.of_package(package, without=near)):
            if questions and not answers_hold(copy, questions, deadline_s=deadline_s):
                return "answers"
        return "tests" if tests and not passes(package, copy, deadline_s=deadline_s) else ""
    finally:
        mutant.path.write_bytes(text)


def package_of(mutant: Mutant, copy: Path) -> str:
    """The package that a mutant lies in."""
    return mutant.path.relative_to(copy / "src" / "vramcast").parts[0]


def answers_hold(copy: Path, questions: dict[str, list[str]], *, deadline_s: float) -> bool:
    """Whether these questions of the ledger, by topic, have the answers they had."""
    only = copy.parent / "only.json"
    only.write_text(json.dumps(questions), "utf-8")
    command = [sys.executable, str(copy / "tools" / "build_answers.py"), "--check", "--only", str(only), *questions]
    return _succeeds(command, copy, deadline_s)


def passes(package: str, copy: Path, *, deadline_s: float) -> bool:
    """Whether the tests of a package pass on the copy; a run past its deadline does not."""
    tests = [path for name in ("against_sources", *TESTS[package]) if (path := copy / "tests" / name).exists()]
    options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "-k", "not current", "-m", "not torch and not shared"]
    return _succeeds([sys.executable, "-m", "pytest", *options, *map(str, tests)], copy, deadline_s)


def _succeeds(command: list[str], copy: Path, deadline_s: float) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def equivalent(mutant: Mutant, copy: Path) -> bool:
    """Whether the file of equivalent mutants names this change: its file, its whole line and what it becomes."""
    rows = tomllib.loads(EQUIVALENT.read_text("utf-8")).get("mutant", [])
    line = mutant.path.read_text("utf-8").splitlines()[mutant.line - 1].strip()
    said = (mutant.path.relative_to(copy / "src" / "vramcast").as_posix(), line, f"{mutant.old.strip()} -> {mutant.new.strip()}")
    return any((row["file"], row["line"], row["change"]) == said and row["because"] for row in rows)


def main() -> None:
    """Sample, run, print the survivors and the share that was caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="*", default=list(PACKAGES), choices=PACKAGES)
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds for one mutant's tests")
    parser.add_argument("--answers-only", action="store_true", help="ask the ledger alone: a quick look, no measure of the tests")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns("__pycache__", ".*", "build", "dist"))
        reach = Reach(copy)
        for package in asked.packages:
            if not (asked.answers_only or passes(package, copy, deadline_s=4 * asked.deadline)):
                sys.exit(f"the tests of {package} fail, or take over {4 * asked.deadline:.0f} s, without a change")
        by: dict[str, dict[str, int]] = {package: {} for package in asked.packages}
        begun = time.monotonic()
        for index, mutant in enumerate(sample(copy, tuple(asked.packages), asked.sample, asked.seed), 1):
            who = "equivalent"
            if not equivalent(mutant, copy):
                who = noticed(mutant, copy, reach, deadline_s=asked.deadline, tests=not asked.answers_only) or "SURVIVED"
            where = f"{mutant.path.relative_to(copy)}:{mutant.line}"
            print(f"{index:3d} {who:10s} {mutant.kind:10s} {where}: {mutant.old.strip()} -> {mutant.new.strip()}", flush=True)
            counts = by[package_of(mutant, copy)]
            counts[who] = counts.get(who, 0) + 1
    for package, counts in by.items():
        print(_summary(package, counts))
    print(f"in {time.monotonic() - begun:.0f} s")
    sys.exit(any(counts.get("SURVIVED") for counts in by.values()))


def _summary(package: str, counts: dict[str, int]) -> str:
    caught = counts.get("answers", 0) + counts.get("tests", 0)
    whole = caught + counts.get("SURVIVED", 0)
    apart = f", {counts['equivalent']} equivalent apart" if "equivalent" in counts else ""
    share = f"{caught} of {whole} caught ({caught / max(1, whole):.0%})"
    return f"{package}: {share}, {counts.get('tests', 0)} of them by tests alone{apart}"


if __name__ == "__main__":
    main()
