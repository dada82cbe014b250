"""The ledger of answers: what this release answers to a fixed set of questions, term by term: ``python tools/build_answers.py``.

A pinned answer proves nothing about truth: it was made by the program that it is compared with. It catches change, so that no
answer moves without somebody seeing it in review and saying why in the changelog. The proofs are in ``tests/against_*``.

``tests/answers/TOPIC.txt`` holds questions (lines after ``> ``, as typed after ``vramcast``) and below each one its figures. A
word in front says what is printed: nothing (the ledger), ``speed``, ``plan`` (verdict, limits, advice, cards), ``recipe``
(training's decisions), ``model`` (tensors of a config of configs.jsonl or of a known model), ``sums`` (the
same in one line), ``card``. To ask more, write a question line and run this.

    python tools/build_answers.py                    answer every question again and write the files (under a minute)
    python tools/build_answers.py serving_vllm       one topic
    python tools/build_answers.py --propose          add what new rows of the program's tables call for, then answer
    python tools/build_answers.py --since v0.2.0     answers that changed by more than 0.5 % since that commit, by term
    python tools/build_answers.py --unreached        lines of the program that no question reaches
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from answers.asking import figures
from answers.reached import by_line, unreached
from answers.text import Answers, changes, parse, written

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "answers"
LEAST = 0.005


def topics(names: Iterable[str] = ()) -> list[Path]:
    """The files of questions, or those named. Raises SystemExit for a name that is no topic."""
    known = {path.stem: path for path in sorted(FOLDER.glob("*.txt"))}
    wrong = [name for name in names if name not in known]
    if wrong:
        sys.exit(f"no topic {', '.join(wrong)}: topics are {', '.join(known)}")
    return [known[name] for name in names] or [*known.values()]


def answered(questions: Iterable[str]) -> Answers:
    """The figures of each question, by this checkout."""
    return {question: figures(question) for question in questions}


def propose() -> None:
    """Add questions of answers/proposed.py that no topic asks, without their figures yet; a row that grew takes its old place."""
    from answers.proposed import proposed

    for topic, question in proposed():
        path = FOLDER / f"{topic}.txt"
        text = path.read_text("utf-8") if path.exists() else ""
        if f"> {question}\n" in text:
            continue
        old = next((held for held in parse(text) if _grew(held, question)), None)
        path.write_text(f"{text}> {question}\n" if old is None else text.replace(f"> {old}\n", f"> {question}\n"), "utf-8")


def _grew(old: str, new: str) -> bool:
    """Whether one row asks the same of the same values and of more: a border of releases or a card was added."""
    (before, colon, asked), (after, _, again) = (row.partition(" : ") for row in (old, new))
    (kind, *values), (same, *more) = shlex.split(before), shlex.split(after)
    return bool(colon) and (kind, values[:1], asked) == (same, more[:1], again) and set(values) < set(more)


def wrong_answers(path: Path, only: Iterable[str] | None = None) -> Iterator[str]:
    """Questions of a topic (``only`` these, in their order) whose answer is another now, each with the terms that moved."""
    held = parse(path.read_text("utf-8"))
    for question in held if only is None else only:
        old = held[question]
        moved = [*changes(old, figures(question))]
        if moved:
            yield "\n    ".join((question, *moved))


def since(commit: str, paths: list[Path]) -> Iterator[str]:
    """Every answer that differs by more than 0.5 % from the files of a commit, and questions that are new or gone."""
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        shown = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, text=True, check=False)
        old, new = parse(shown.stdout) if shown.returncode == 0 else {}, parse(path.read_text("utf-8"))
        for question in old.keys() & new.keys():
            if moved := [*changes(old[question], new[question], least=LEAST)]:
                yield "\n    ".join((f"{path.stem}: {question}", *moved))
        for word, some in (("asked anew", new.keys() - old.keys()), ("asked no more", old.keys() - new.keys())):
            if some:
                yield f"{path.stem}: {len(some)} {word}"


def _write_reach(to: Path, paths: list[Path]) -> None:
    """``{"questions": [[topic, question], ...], "lines": {file: {line: numbers of questions}}}``; stops at another answer."""
    held = {(path.stem, question): old for path in paths for question, old in parse(path.read_text("utf-8")).items()}
    asked = [*held]

    def ask(number: int) -> None:
        if moved := [*changes(held[asked[number]], figures(asked[number][1]))]:
            sys.exit(f"{asked[number]}: {moved[0]}")

    to.write_text(json.dumps({"questions": asked, "lines": by_line(len(asked), ask)}), "utf-8")


def main() -> None:
    """Answer and write, or say what differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", help="names of files in tests/answers; all of them when absent")
    parser.add_argument("--since", metavar="COMMIT", help="say what changed by more than 0.5 %% since that commit")
    parser.add_argument("--propose", action="store_true", help="add the questions that the program's tables call for first")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 at the first topic with another answer")
    parser.add_argument("--reach", metavar="FILE", help="write which questions come to which line (for tools/mutate.py)")
    parser.add_argument("--only", metavar="FILE", help="with --check: the questions that this file lists, by topic")
    parser.add_argument("--unreached", action="store_true", help="print the lines that no question reaches")
    asked = parser.parse_args()
    if asked.propose:
        propose()
    paths = topics(asked.topics)
    if asked.since:
        print("\n".join(since(asked.since, paths)) or "no answer changed by more than 0.5 %")
    elif asked.unreached:
        print("\n".join(unreached(lambda: [answered(parse(path.read_text("utf-8"))) for path in paths])))
    elif asked.reach:
        _write_reach(Path(asked.reach), paths)
    elif asked.check:
        only = json.loads(Path(asked.only).read_text("utf-8")) if asked.only else None
        for path in paths:
            if wrong := next(wrong_answers(path, None if only is None else only.get(path.stem, [])), None):
                sys.exit(f"{path.stem}: {wrong}")
    else:
        for path in paths:
            path.write_text(written(path.stem, answered(parse(path.read_text("utf-8")))), "utf-8")


if __name__ == "__main__":
    main()
