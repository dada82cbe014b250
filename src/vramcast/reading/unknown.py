"""What can be told of a file that is no kind known here: the files that it runs, the services that it starts."""

import re

from vramcast.errors import VramcastError
from vramcast.untrusted import parse_yaml, printable

_MOST_NAMED = 4
_MOST_CHARACTERS = 2**20
# A command that hands over to another file: source settings.sh, bash run.sh, ./start.sh, exec scripts/train.sh, python main.py.
_HANDS_OVER = re.compile(
    r"^[ \t]*(?:(?:source|\.|exec|bash|sh|python3?|uv run)[ \t]+)*(?P<file>[\w./${}~-]*[\w}]\.(?:sh|py|bash))\b", re.MULTILINE
)


def told_of(text: str, name: str) -> str:
    """A sentence about a text that is no kind known here, with what to give instead; "" where nothing can be told.

    A shell script may leave its work to scripts that are not beside it, a compose file may start nothing known.
    """
    head = text[:_MOST_CHARACTERS]
    if name.endswith((".sh", ".bash", ".slurm", ".sbatch")) or re.match(r"#!\s*/\S*(?:env\s+)?(?:ba|z)?sh\b", head):
        return _of_a_script(head)
    if name.endswith((".yml", ".yaml")) and re.search(r"^services:", head, re.MULTILINE):
        return _of_a_compose_file(head, name)
    return ""


def _of_a_script(text: str) -> str:
    from vramcast.reading.training.starting import tries_alone

    if tries_alone(text):
        return (
            "the program that it starts evaluates, generates or converts by its name, it trains nothing: "
            "vramcast serve MODEL answers for its model, vramcast train --from FILE takes it for a run all the same"
        )
    files = dict.fromkeys(found["file"] for found in _HANDS_OVER.finditer(text))
    if not files:
        return ""
    return f"it is a shell script that runs {_few(list(files))}: ask about that file, or keep it beside this one"


def _of_a_compose_file(text: str, name: str) -> str:
    try:
        services = parse_yaml(text, name).get("services")
    except (VramcastError, AttributeError):
        return ""
    if not isinstance(services, dict) or not services:
        return ""
    return f"it is a compose file, and none of its services is an engine known here ({_few([str(one) for one in services])})"


def _few(names: list[str]) -> str:
    shown = ", ".join(printable(one)[:60] for one in names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
