"""Write docs/cli.md from the commands' own ``--help``; ``--check`` only says whether it is current."""

import importlib
import sys
from pathlib import Path

import click

from vramcast.cli import COMMANDS, root

TARGET = Path(__file__).parents[1] / "docs" / "cli.md"


_COMPLETION = (
    "Commands, flags, models, cards, engines, frameworks and methods complete. One line in the shell's own start-up file:",
    "",
    "| shell | file | line |",
    "|---|---|---|",
    '| bash (4.4 or newer) | `~/.bashrc` | `eval "$(_VRAMCAST_COMPLETE=bash_source vramcast)"` |',
    '| zsh | `~/.zshrc`, after `compinit` | `eval "$(_VRAMCAST_COMPLETE=zsh_source vramcast)"` |',
    "| fish | `~/.config/fish/completions/vramcast.fish` | `_VRAMCAST_COMPLETE=fish_source vramcast \\| source` |",
)


def reference() -> str:
    """The whole page."""
    parts = [
        "# Command line",
        "",
        "Generated from `--help` by `tools/build_cli_reference.py`; do not edit.",
        "",
        _help("vramcast", root),
    ]
    parts += ["", "## Completion in the shell", "", *_COMPLETION]
    for name, (module, _) in COMMANDS.items():
        command: click.Command = importlib.import_module(f"vramcast.cli.{module}").command
        parts += ["", f"## {name}", "", _help(f"vramcast {name}", command)]
        for own, part in (command.commands if isinstance(command, click.Group) else {}).items():
            parts += ["", f"### {name} {own}", "", _help(f"vramcast {name} {own}", part)]
    return "\n".join(parts) + "\n"


def _help(path: str, command: click.Command) -> str:
    settings = {**root.context_settings, **command.context_settings, "max_content_width": 110, "terminal_width": 110}
    with click.Context(command, info_name=path, **settings) as context:
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"```\n{text}\n```"


def main() -> int:
    """Write the page, or compare it."""
    if "--check" in sys.argv:
        current = TARGET.read_text() if TARGET.exists() else ""
        return 0 if current == reference() else 1
    TARGET.write_text(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())
