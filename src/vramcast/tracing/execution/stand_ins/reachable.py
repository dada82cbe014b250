"""Whether a script's own request of the hub can reach it: looked up once, so that no library tries five times for nothing."""

import os
import socket
import sys
import threading
from functools import cache
from urllib.parse import urlsplit

_SECONDS = 2.0
# What holds the libraries' switches: a module, and the name of one in it.
_SWITCHES = (
    ("huggingface_hub.constants", "HF_HUB_OFFLINE"),
    ("transformers.utils.hub", "_is_offline_mode"),
    ("datasets.config", "HF_HUB_OFFLINE"),
    ("datasets.config", "HF_DATASETS_OFFLINE"),
)


def look_once() -> None:
    """Where the hub's name leads nowhere, tell the libraries that are loaded that there is no network.

    Each request would otherwise be repeated for 23 seconds (huggingface_hub's ``http_backoff``, 5 times).
    """
    if _answers(urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or "") is not False:
        return
    for module, switch in _SWITCHES:
        if hasattr(sys.modules.get(module), switch):
            setattr(sys.modules[module], switch, True)


def _answers(host: str) -> bool | None:
    """Whether a name is resolved; None as long as nobody knows: a slow answer is none, and is waited for again.

    One behind a proxy is left to the proxy.
    """
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    thread, found = _looking(host)
    thread.join(_SECONDS)
    return found[0] if found else None


@cache
def _looking(host: str) -> tuple[threading.Thread, list[bool]]:
    """The thread that asks for a name, and where it puts the answer."""
    found: list[bool] = []

    def look() -> None:
        try:
            socket.getaddrinfo(host, 443)
        except OSError:
            found.append(False)
        else:
            found.append(True)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread, found
