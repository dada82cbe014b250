"""Scripts that train, whole: with the scripts beside them that they hand over to; Makefiles and images as a shell's script."""

import re
from collections.abc import Callable, Mapping

from vramcast.reading.shell import Line, Script, ShellStart, read_script_text
from vramcast.reading.shell.make import is_make, make_as_shell

Source = Callable[[str], str | None]
_DEEPEST, _MOST_READ, _MOST_LINES = 4, 64, 4_000
_BEFORE = ("sudo", "nohup", "exec", "time", "env", "srun")
_SHELLS = ("bash", "sh", "zsh", "sbatch")
_SCRIPT = re.compile(r"[\w./${}~-]*[\w}]\.(?:sh|bash|slurm|sbatch)")


def nothing_beside(_name: str) -> str | None:
    """A source of files for texts that lie in no folder."""
    return None


def as_script(text: str, name: str = "") -> str:
    """A Makefile's recipes, or what a Dockerfile's image starts with its variables, as a shell's script; others as they are."""
    leaf = name.rsplit("/", 1)[-1].lower()
    if is_make(leaf):
        return make_as_shell(text)
    if leaf.startswith("dockerfile") or leaf.endswith(".dockerfile"):
        from vramcast.reading.serving.modelfile import container_of

        held = container_of(text)
        sets = [f'export {key}="{value}"' for key, value in held.environment.items()]
        return "\n".join([*sets, " ".join(f'"{word}"' if " " in word else word for word in (*held.entry, *held.arguments))])
    return text


def is_script(name: str) -> bool:
    """Whether a file's name is that of a script, a Makefile or a Dockerfile."""
    leaf = name.rsplit("/", 1)[-1].lower()
    return is_make(leaf) or leaf.startswith("dockerfile") or leaf.endswith((".sh", ".bash", ".slurm", ".sbatch", ".dockerfile"))


def whole_script(
    text: str, *, environment: Mapping[str, str] | None = None, source: Source = nothing_beside, arguments: tuple[str, ...] = ()
) -> Script:
    """The commands of a script and, in their place, of the scripts beside it that it calls: ``bash train.sh 8``, ``./run.sh``.

    ``source``: the text of a file that it names, None for one that is not at hand. Raises QuestionError as ``read_script_text``.
    """
    read: list[str] = []

    def bounded(name: str) -> str | None:
        read.append(name)
        return source(name) if len(read) <= _MOST_READ else None

    return _whole(text, ShellStart(environment=environment or {}, source=bounded, arguments=arguments), 0)


def _whole(text: str, around: ShellStart, depth: int) -> Script:
    """A script and those that it calls, at most ``_DEEPEST`` deep."""
    own = read_script_text(text, around)
    lines: list[Line] = []
    files, variables, folder = dict(own.files), dict(own.variables), ""
    for line in own.lines:
        if line.words[0] in ("cd", "pushd") and len(line.words) > 1:
            folder = line.words[1].rstrip("/")
        name, words = _called(line.words)
        names = (f"{folder}/{name}", name) if folder else (name,)
        read = map(around.source, names if name and depth < _DEEPEST else ())
        inner = next((one for one in read if one is not None), None)
        if inner is None or inner == text:
            lines.append(line)
            continue
        start = ShellStart(environment=line.environment, source=around.source, arguments=words)
        found = _whole(inner, start, depth + 1)
        lines += found.lines
        files |= {key: value for key, value in found.files.items() if key not in files}
        variables |= {key: value for key, value in found.variables.items() if key not in variables}
    return Script(lines=tuple(lines[:_MOST_LINES]), files=files, programs=own.programs, variables=variables, arrays=own.arrays)


def _called(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The script that a command starts, and the words that it is given; "" for any other command."""
    rest = [*words]
    while rest and rest[0] in _BEFORE:
        rest = rest[1:]
        while rest and (rest[0].startswith("-") or re.fullmatch(r"[A-Z_]\w*=\S*", rest[0])):
            rest = rest[1:]
    if rest and rest[0].rsplit("/", 1)[-1] in _SHELLS:
        rest = rest[1:]
        while rest and rest[0].startswith("-") and rest[0] != "-c":
            rest = rest[1:]
    named = bool(rest) and _SCRIPT.fullmatch(rest[0]) is not None
    return (rest[0], tuple(rest[1:])) if named else ("", ())
