"""What training files say, key by key, with the file and key behind every value; nothing is dropped without a word."""

import re
from typing import Any

from vramcast.ledger import Assumption, Unmodelled
from vramcast.untrusted import printable

_INNER = ("model", "program", "zero.file", "fetch.", "bucket.", "task.of_name", "targets.")  # not the user's words
_SUMMARY = 900
_SENTENCE = re.compile(r"\d+ (?:more commands|further runs) ")  # says for itself what it changes
_NAMED = re.compile(r"\$\{?([A-Za-z_]\w{0,60}|\d)")  # a variable in a value
# What is typed for a target that a variable holds.
FLAGS = {
    "micro_batch": "--micro-batch N", "seq": "--seq N", "accumulate": "--accumulate N", "adapter.rank": "--rank N",
    "adapter.targets": "--targets NAMES", "adapter.dropout": "--dropout P", "optimizer": "--optimizer NAME",
    "checkpointing": "--checkpointing full", "attention": "--attention NAME", "param_dtype": "--param-dtype TYPE",
    "compute_dtype": "--compute-dtype TYPE", "zero": "--zero N", "model": "MODEL",
}  # fmt: skip
UNSET = (None, "", "none", "None", "null", "auto")


class Settings:
    """Values by target (``micro_batch``, ``parallel.tp``, ``adapter.rank``, ``options.reentrant``, ``shape.layers`` ...).

    The first value put for a target stays: what a user's own file says stands before what it refers to and before defaults.
    """

    def __init__(self, capability: tuple[int, int] | None = None) -> None:
        self.capability = capability  # of the card that is asked, for what a program does on it; None: a card of today
        self.values: dict[str, Any] = {}
        self.because: dict[str, str] = {}
        self.idle: list[str] = []
        self.unread: list[str] = []
        self.opened: dict[str, str] = {}  # targets whose value a variable holds that nobody set, with the variables
        self.absent: list[str] = []  # programs that a script starts, and that are not at hand
        self.unseen = ""  # a person's own program of which nothing is read, and why
        self.own_program = False  # a person's own program is started or read: its calls and its name tell the library
        self.overruled: list[str] = []  # keys whose value another key of the same target stands before
        self.refused = ""  # the last target that held another value already
        self.folders: list[str] = []  # that a script changes to before it starts its program
        self.holder = ""  # the file that says what is trained, where it is not at hand
        self.by_the_way: list[tuple[bool, str, str]] = []  # names of models: whether the key is named after one, value, key
        self.builds = ""  # the program's own class of the network that it trains, of whose layers nothing is known here
        self.missing: list[str] = []  # files pointed to that are not at hand, of which memory depends

    def put(self, target: str, value: Any, because: str) -> None:
        """Set a target that is still open."""
        if value is None:
            return
        if target not in self.values:
            self.values[target] = value
            self.because[target] = because
        elif self.values[target] != value:
            self.refused = target

    def leave_open(self, target: str, value: Any = "") -> None:
        """Note that a variable which nobody set decides a target (``value`` names it): no default stands for it."""
        if target and target not in self.values:
            self.opened.setdefault(target, ", ".join(dict.fromkeys(_NAMED.findall(str(value)[:400]))))

    def default(self, target: str, value: Any, because: str) -> None:
        """Set a target as the framework does where nothing is said; not one that a variable holds."""
        if target not in self.opened:
            self.put(target, value, because)

    def replace(self, target: str, value: Any, because: str = "") -> None:
        """Set a target again, once several keys are known."""
        self.values[target] = value
        self.because[target] = because or self.because.get(target, "several keys together")

    def drop(self, *targets: str) -> None:
        """Forget targets that another key has made void."""
        for target in targets:
            self.values.pop(target, None)

    def add(self, target: str, value: Any, because: str) -> None:
        """Add to a list of values."""
        self.values.setdefault(target, [])
        if value not in self.values[target]:
            self.values[target].append(value)
            self.because[target] = because

    def get(self, target: str, otherwise: Any = None) -> Any:
        """The value of a target so far."""
        return self.values.get(target, otherwise)

    def group(self, prefix: str) -> dict[str, Any]:
        """The values under ``prefix.``, by the rest of their name."""
        return {name.removeprefix(f"{prefix}."): v for name, v in self.values.items() if name.startswith(f"{prefix}.")}

    def assumed(self) -> tuple[Assumption, ...]:
        """Every value with where it came from, then what costs no memory."""
        told = [Assumption(name, _plain(value), self.because[name]) for name, value in self.values.items()]
        if self.idle:
            told.append(Assumption("no effect on memory", ", ".join(self.idle), "data, schedule, logging, saving"))
        if self.overruled:
            told.append(Assumption("set aside", ", ".join(self.overruled), "another key decides the same"))
        return tuple(told)

    def summary(self) -> str:
        """What was read and what was not, in a line, for an answer that lacks something else."""
        read = [f"{name} = {_plain(value)}" for name, value in self.values.items() if not name.startswith(_INNER)]
        parts = [f"read so far: {', '.join(read)}"] if read else []
        parts += [f"not read: {', '.join(self.unread)}"] if self.unread else []
        return printable(" ".join("; ".join(parts).split()))[:_SUMMARY]

    def unmodelled(self) -> tuple[Unmodelled, ...]:
        """The keys that have no rule: misspelt, new, or of an effect nobody has modelled."""
        return tuple(
            Unmodelled(f"{'' if _SENTENCE.match(key) else 'the key '}{key}{self._why_unread(key)}") for key in self.unread
        )

    def _why_unread(self, key: str) -> str:
        """What is to be said behind an unread key: the flag that says what a variable holds, else that nothing reads it."""
        if key.endswith("says it)") or _SENTENCE.match(key):
            return ""
        held = set(_NAMED.findall(key)) if "(${" in key else set()
        flags = [flag for target, flag in FLAGS.items() if held & set(self.opened.get(target, "").split(", "))]
        if flags:
            return f": a variable that nobody set holds it; {' or '.join(flags)} says it"
        return ": no rule reads it, and what it changes is not counted"


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
