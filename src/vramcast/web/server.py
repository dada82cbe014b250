"""The server: one process, bound to this machine unless told otherwise, with limits on what a connection may hold."""

import asyncio
import gc
import os
import sys

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 2_000
_FIRST_BYTES_S = 10.0
_KEEP_ALIVE_S = 5
_SWITCH_S = 0.001  # a long answer lets the loop and short answers in after so long (Python: 5 ms)
_LARGEST_HEAD_BYTES = 16 * 1024


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose first request has not arrived after ten seconds (slow senders on purpose)."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As before, with the clock started."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(_FIRST_BYTES_S, self._too_late)

    def _too_late(self) -> None:
        if not self.cycle and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """As before, with the clock stopped."""
        self._waiting.cancel()
        super().connection_lost(exc)


def serve(*, host: str, port: int, hub: bool) -> None:
    """Serve until interrupted. ``hub``: whether ids that the catalogue lacks may be asked of the hub.

    Raises OSError where the address is taken.
    """
    if not hub:
        os.environ["HF_HUB_OFFLINE"] = "1"
    from vramcast.web.app import create_app

    sys.setswitchinterval(_SWITCH_S)
    app = create_app()
    gc.collect()
    gc.freeze()  # what was imported lives as long as the server: no collection needs to look through it
    config = uvicorn.Config(
        app, host=host, port=port, http=PatientProtocol, ws="none", lifespan="off", log_level="warning",
        access_log=False, limit_concurrency=MOST_CONNECTIONS, timeout_keep_alive=_KEEP_ALIVE_S,
        h11_max_incomplete_event_size=_LARGEST_HEAD_BYTES,
        server_header=False, timeout_graceful_shutdown=3,
    )  # fmt: skip
    uvicorn.Server(config).run()
