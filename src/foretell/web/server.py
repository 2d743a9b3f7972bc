"""A socket, uvicorn on it, a browser before it; ended by an interrupt, once every question is answered."""

import os
import signal
import socket as sockets
import threading
from typing import Any

from foretell.errors import BadInput, wrong

GRACE_S = 30
"""What questions under way are given when the server ends."""
KEPT_OPEN_S = 75
"""How long a connection that asks nothing is kept open."""
HEAD_S = 10.0
"""Longest time from the first bytes of a request to the end of its head."""
MOST_CORES = 8
"""Workers where none are named, at most."""


def cores() -> int:
    """Workers where none are named: one a core."""
    return min(max(os.cpu_count() or 1, 2), MOST_CORES)


def listening_socket(host: str, port: int) -> sockets.socket:
    """A socket that listens; BadInput where the address is taken or is none."""
    try:
        family = sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM)[0][0]
        made = sockets.create_server((host, port), family=family, backlog=512)
        # Connections have it too: without, each small answer waits for the other side's delayed receipt.
        made.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)
        return made
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"cannot listen there: {why}"
        problem = wrong("--port", f"{host}:{port}", message, "--port 0")
        raise BadInput([problem]) from None


def url_of(host: str, socket: sockets.socket) -> str:
    """The address of the page."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{socket.getsockname()[1]}/"


def patient_protocol() -> Any:
    """uvicorn's protocol, less its patience: who does not finish the head of a request is not waited for."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Patient(AutoHTTPProtocol):  # type: ignore[misc]  # one of two classes
        """One connection."""

        _late: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late = self.loop.call_later(HEAD_S, self._close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self._waits():
                self._forget()
            elif self._late is None:  # not anew with every byte: a head has so long in all
                self._late = self.loop.call_later(HEAD_S, self._close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _forget(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _waits(self) -> bool:
            """Whether no request is under way: what came is a part of the next one's head."""
            return self.cycle is None or self.cycle.response_complete

        def _close(self) -> None:
            if self._waits() and not self.transport.is_closing():
                self.transport.close()

    return Patient


def run(app: Any, socket: sockets.socket, open_url: str | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then answer what is under way and end."""
    import uvicorn

    config = uvicorn.Config(
        app,
        http=patient_protocol(),
        log_level="warning",
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_keep_alive=KEPT_OPEN_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = uvicorn.Server(config)
    before = {name: signal.signal(name, _nothing) for name in (signal.SIGINT, signal.SIGTERM)}
    opener = threading.Timer(1.0, _open, (open_url,)) if open_url else None
    try:
        if opener:
            opener.daemon = True
            opener.start()
        server.run(sockets=[socket])
    finally:
        if opener:
            opener.cancel()
        for name, handler in before.items():
            signal.signal(name, handler)


def _nothing(number: int, frame: object) -> None:
    """The server heeds a signal itself and raises it again when it is done: no more is to happen then."""


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)
