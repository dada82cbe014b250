"""``vramcast mcp``: the tools of an assistant, over standard input and output."""

import importlib
import os
import sys

import click

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.errors import MissingError

_EPILOG = """\b
Examples:
  claude mcp add vramcast -- vramcast mcp
  vramcast mcp --hub                   models that the catalogue lacks are asked of the hub (needs the network)

\b
Cursor (.cursor/mcp.json), Claude Desktop and others take the same entry:
  {"mcpServers": {"vramcast": {"command": "vramcast", "args": ["mcp"]}}}
"""
_COMMANDS = {"serve": ("serve", ""), "train": ("train", ""), "plan serve": ("plan", "serve"), "plan train": ("plan", "train")}


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.option("--hub", is_flag=True, help="Ask the hub for models that the catalogue lacks (needs the network).")
def command(*, hub: bool) -> int:
    """Serve assistants by the Model Context Protocol: the tools serve, train, plan, explain and read, with typed results.

    An assistant starts this program and talks to it over standard input and output. Read-only: nothing is stored or executed,
    no file of this machine is read, and no network is used unless --hub.
    """
    try:
        from vramcast.mcp.server import serve_stdio
    except ImportError:
        raise MissingError.extra("mcp", "the server for assistants") from None
    if not hub:
        os.environ["HF_HUB_OFFLINE"] = "1"
    if sys.stdin.isatty():
        click.echo(
            "vramcast mcp waits for an assistant on standard input (Ctrl-C ends it; vramcast mcp --help says how)", err=True
        )
    serve_stdio(helps(), hub=hub)
    return 0


def helps() -> dict[str, dict[str, str]]:
    """What ``--help`` says of each word, by command."""
    found = {}
    for name, (module, own) in _COMMANDS.items():
        command: click.Command = importlib.import_module(f"vramcast.cli.{module}").command
        part = command.commands[own] if own and isinstance(command, click.Group) else command
        found[name] = {p.name: p.help or "" for p in part.params if isinstance(p, click.Option) and p.name}
    return found
