"""Answers as text: one ``name=value`` a figure, lines of a group together, so that a change is read term by term."""

from collections.abc import Iterator

Groups = dict[str, dict[str, str]]
"""Figures by group (``rank 0``, ``cache``, ``limits``) and name."""
Answers = dict[str, Groups]

_CLOSE = 1e-5  # floats are printed with seven digits; another processor may differ in the last


def shown(value: object) -> str:
    """A value without spaces: whole numbers exactly, others with seven digits."""
    if isinstance(value, float):
        return str(int(value)) + ".0" if value.is_integer() and abs(value) < 1e15 else f"{value:.7g}"
    return str(value).replace(" ", "_").replace("=", ":").replace("\n", "_") or "-"


def parse(text: str) -> Answers:
    """Questions with their figures, as written in a file."""
    answers: Answers = {}
    groups: Groups = {}
    for line in text.splitlines():
        if line.startswith("> "):
            groups = answers.setdefault(line[2:].strip(), {})
        elif line.startswith("  "):
            group, _, rest = line.strip().partition(": ")
            groups[group] = dict(pair.split("=", 1) for pair in rest.split())
    return answers


def written(topic: str, answers: Answers) -> str:
    """The text of a topic's file."""
    lines = [f"# {topic}: written by tools/build_answers.py, which says what these figures are; no proof of truth."]
    for question, groups in answers.items():
        lines.append(f"> {question}")
        lines += [
            f"  {group}: {' '.join(f'{k}={v}' for k, v in figures.items())}" for group, figures in groups.items() if figures
        ]
    return "\n".join(lines) + "\n"


def changes(old: Groups, new: Groups, *, least: float = 0.0) -> Iterator[str]:
    """The figures that differ by more than a share ``least``; 0: whole numbers exactly, others but for rounding."""
    for group in {**old, **new}:
        was, now = old.get(group, {}), new.get(group, {})
        for name in {**was, **now}:
            one, other = was.get(name, "none"), now.get(name, "none")
            if one != other and not _alike(one, other, least):
                yield f"{group}: {name} {one} -> {other}{_percent(one, other)}"


def _alike(one: str, other: str, least: float) -> bool:
    try:
        first, second = float(one), float(other)
    except ValueError:
        return False
    within = least or (0.0 if one.isdigit() and other.isdigit() else _CLOSE)
    return abs(second - first) <= within * abs(first)


def _percent(one: str, other: str) -> str:
    try:
        return f" ({float(other) / float(one) - 1:+.1%})" if float(one) else ""
    except ValueError:
        return ""
