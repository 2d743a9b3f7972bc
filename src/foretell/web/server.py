"""A socket, uvicorn on it, a browser before it; ended by an interrupt, once every question is answered."""

import os
import signal
import socket as sockets
import threading
from typing import Any

from foretell.errors import BadInput, Problem

GRACE_S = 30
"""What questions under way are given when the server ends."""
KEPT_OPEN_S = 75
"""How long a connection that asks nothing is kept open."""
MOST_CORES = 8
"""Workers where none are named, at most."""


def cores() -> int:
    """Workers where none are named: one a core."""
    return min(max(os.cpu_count() or 1, 2), MOST_CORES)


def listening_socket(host: str, port: int) -> sockets.socket:
    """A socket that listens; BadInput where the address is taken or is none."""
    try:
        family = sockets.getaddrinfo(host, port, type=sockets.SOCK_STREAM)[0][0]
        return sockets.create_server((host, port), family=family, backlog=512)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"cannot listen there: {why}"
        problem = Problem(
            path="--port", value=f"{host}:{port}", message=message, allowed="--port 0"
        )
        raise BadInput([problem]) from None


def url_of(host: str, socket: sockets.socket) -> str:
    """The address of the page."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{socket.getsockname()[1]}/"


def run(app: Any, socket: sockets.socket, open_url: str | None = None) -> None:
    """Serve until SIGINT or SIGTERM, then answer what is under way and end."""
    import uvicorn

    config = uvicorn.Config(
        app,
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
