"""``vramcast web``: the page and its API, served from this machine."""

import socket

import click

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand
from vramcast.errors import MissingError, QuestionError

_EPILOG = """\b
Examples:
  vramcast web                         then open http://127.0.0.1:8765
  vramcast web --port 9000 --open
  vramcast web --host 0.0.0.0          for others too: put a proxy with TLS in front
"""
_LOCAL = ("127.0.0.1", "localhost", "::1")


@click.command(cls=GroupedCommand, epilog=_EPILOG, context_settings=CONTEXT)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 is every network.")
@click.option("--port", type=click.IntRange(1, 65_535), default=8765, show_default=True, help="The port to listen on.")
@click.option("--hub", is_flag=True, help="Ask the hub for models that the catalogue lacks (needs the network).")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def command(host: str, port: int, *, hub: bool, open_browser: bool) -> int:
    """Serve the page and the API: search a model, pick cards, drag the context, see every byte; English and Chinese.

    One process, no database, no account, no network unless --hub. Nothing that a visitor sends is stored or executed.
    """
    try:
        from vramcast.web.server import serve
    except ImportError:
        raise MissingError.extra("web", "the page") from None
    _check_free(host, port)
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"
    click.echo(f"vramcast listens on {address}  (Ctrl-C ends it)")
    if host not in _LOCAL:
        click.echo(
            f"{host} is open to other machines: anyone who reaches it can ask questions. Nothing is stored; put a proxy with TLS "
            "and a rate limit in front of a public one."
        )
    if open_browser:
        click.launch(address)
    serve(host=host, port=port, hub=hub)
    return 0


def _check_free(host: str, port: int) -> None:
    """Raises QuestionError where the address cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise QuestionError(
            f"--host {host} --port {port} cannot be listened on: {error.strerror}; try --port {port + 1}"
        ) from None
