"""What a script's reader knows while it reads: variables, arrays, functions, open branches; and what it has found."""

from collections.abc import Callable, Mapping

import msgspec

from vramcast.reading.shell.variables import resolved


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One command: its words, resolved; ``environment``: the variables it was started with, exported or written before it."""

    words: tuple[str, ...]
    environment: dict[str, str] = {}


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Commands in order; ``files``: here-documents by the file they are written to.

    ``programs``: here-documents that a Python reads; ``variables`` and ``arrays``: as they stand at the end.
    """

    lines: tuple[Line, ...]
    files: dict[str, str] = {}
    programs: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}


class ShellStart(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds a script. ``given``: variables that stand whatever it sets; ``environment``: those it starts with.

    ``arguments``: the words after its name (``$@``); ``source``: the text of a file that it sources, or None.
    ``arm``: which part of a ``case`` is read, whatever its word: for scripts that start one server of several by their argument.
    """

    given: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    source: Callable[[str], str | None] = lambda _name: None
    arm: int | None = None


class Branch(msgspec.Struct, kw_only=True):
    """One open ``if``: whether its present part runs (None: an open variable decides), and whether one has run.

    ``told``: whether variables decide it; a test of the machine is taken as passed, and ends no script.
    """

    runs: bool | None
    ran: bool = False
    told: bool = True
    opened: tuple[str, ...] = ()


class Reader:
    """The state of one script: what is known at the present statement, and the commands so far."""

    def __init__(self, around: ShellStart) -> None:
        self.given, self.source = dict(around.given), around.source
        self.known: dict[str, str] = {**around.environment, **around.given}
        self.exported = set(around.environment)
        self.exports_all = False
        self.arm = around.arm
        self.ended = self.returned = False
        self.arrays: dict[str, list[str]] = {}
        self.files: dict[str, list[tuple[bool, str]]] = {}
        self.programs: list[str] = []
        self.functions: dict[str, list[str]] = {}
        self.called: set[str] = set()
        self.lines: list[Line] = []
        self.branches: list[Branch] = []
        self.depth = self.steps = 0
        self.takes(around.arguments or _typed(around.given))

    def takes(self, arguments: tuple[str, ...] | list[str]) -> None:
        """Set what ``$1``, ``$@`` and ``$#`` hold."""
        for place in range(1, 10):
            self.known.pop(str(place), None)
        self.arrays["@"] = self.arrays["*"] = [*arguments]
        self.known["#@"] = str(len(arguments))
        self.known |= {str(place): word for place, word in enumerate(arguments[:9], 1)}


def _typed(given: Mapping[str, str]) -> list[str]:
    """The words typed after the script that somebody says by their number (``--var 1=...``), up to the first that is not said."""
    said = [given.get(str(place)) for place in range(1, 10)]
    told = said.index(None) if None in said else len(said)
    return [word for word in said[:told] if word is not None]


def set_array(reader: Reader, name: str, words: list[str]) -> None:
    """An array's words, together and one by one."""
    reader.arrays[name] = words
    reader.known[name] = words[0] if words else ""
    reader.known |= {f"{name}[@]": " ".join(words), f"#{name}": str(len(words))}
    reader.known |= {f"{name}[{place}]": word for place, word in enumerate(words[:200])}


def set_element(reader: Reader, name: str, key: str, value: str) -> None:
    """One entry of an array by number or, of an associative one, by word."""
    plain = resolved(unquoted(key.strip()), reader.known)
    if name in reader.given:
        return
    keys = reader.arrays.setdefault(f"!{name}", [])
    keys += [plain] if plain not in keys else []
    reader.known[f"{name}[{plain}]"] = value
    reader.arrays[name] = [reader.known[f"{name}[{one}]"] for one in keys]
    reader.known |= {f"{name}[@]": " ".join(reader.arrays[name]), f"#{name}": str(len(keys))}


def unquoted(text: str) -> str:
    """A value without the quotes around it."""
    return text[1:-1] if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1 else text
