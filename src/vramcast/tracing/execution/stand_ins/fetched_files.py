"""Files that a program fetches onto its disk itself: without a network none is written, and the run goes on.

What then opens such a file is answered as for any that is not here (``absent_files``), or fails by its own line; the address is
told. A fetch in a ``try`` fails as it would: the program has something else to do.
"""

import functools
import sys
from email.message import Message
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlparse

import torch

from vramcast.tracing.execution.advice import is_network
from vramcast.tracing.execution.session import Session
from vramcast.tracing.execution.stand_ins.imported import asked_without_try, when_imported


def install(session: Session) -> None:
    """Answer ``torch.hub.download_url_to_file``, ``urllib``'s ``urlretrieve``, ``wget`` and ``gdown``, with a note."""
    _answer(session, torch.hub, "download_url_to_file")
    when_imported("urllib.request", lambda module: _answer(session, module, "urlretrieve"))
    when_imported("wget", lambda module: _answer(session, module, "download"))
    when_imported("gdown", lambda module: _answer(session, module, "download"))


def _answer(session: Session, module: Any, name: str) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def fetch(address: Any = None, place: Any = None, *args: Any, **options: Any) -> Any:
        given = [each for each in (address, place) if each is not None]
        try:
            return original(*given, *args, **options)
        except Exception as failure:
            if not is_network(failure) or not asked_without_try(sys._getframe(1)):
                raise
        address = address if address is not None else options.get("url", "")
        file = next((str(each) for each in (place, *(options.get(key) for key in _PLACES)) if each), "")
        file = file or PurePosixPath(urlparse(str(address)).path).name
        session.notes[f"{address} was not fetched: {file} is not written, and what reads it goes by its name or ends"] = None
        return (file, Message()) if name == "urlretrieve" else file

    setattr(module, name, fetch)


_PLACES = ("filename", "dst", "out", "output")
