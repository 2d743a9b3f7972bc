"""A socket, uvicorn on it, a browser before it, and what is before every answer: the host that is asked for,
the size of a body, and headers that keep a page in.

It is ended by an interrupt, once every question is answered. The guard is pure ASGI, so that a body is
counted while it comes in and nothing larger than the limit is ever held.
"""

import asyncio
import json
import os
import secrets
import signal
import socket as sockets
import threading
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from foretell.errors import bad_input

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
        raise bad_input("--port", f"{host}:{port}", message, "--port 0") from None


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


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-security policy: nothing inline, nothing from elsewhere; pictures may be made by the page."""
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
COOKIE = "foretell_token"
"""Cookie that holds the token of a page."""
BODY_S = 15.0
"""Longest pause of a body that comes in."""


class Guard:
    """An ASGI app around another."""

    def __init__(
        self, app: App, body_bytes: int, hosts: Collection[str] | None, token: str | None = None
    ) -> None:
        """`hosts` are the names that this server answers to; None: any. With a token, who has it not is
        refused."""
        self._app = app
        self._most = body_bytes
        self._hosts = None if hosts is None else frozenset(hosts)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        shown = _with_headers(send)
        if not self._known(scope):
            await _refuse(shown, 400, "this server does not answer to that host name")
            return
        if self._token is not None:
            given = _tokens(scope)
            if not any(secrets.compare_digest(one, self._token) for one in given.values()):
                await _refuse(shown, 401, "this server wants the token that it printed: ?token=...")
                return
            if "query" in given:  # the page's own requests have it as a cookie
                shown = _with_headers(send, ((b"set-cookie", _cookie(self._token)),))
        try:
            body = await self._body(scope, receive)
        except TimeoutError:
            await _refuse(shown, 408, f"the question stopped coming in for {BODY_S:g} s")
            return
        if body is None:
            await _refuse(shown, 413, f"the question has more than {self._most} bytes")
            return
        await self._app(scope, _replayed(body, receive), shown)

    def _known(self, scope: Scope) -> bool:
        """Whether the host asked for is this one: a page elsewhere whose name was pointed here is not."""
        if self._hosts is None:
            return True
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
        return name in self._hosts

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body, or None where it is too large."""
        said = dict(scope["headers"]).get(b"content-length", b"0")
        if said.isdigit() and int(said[:18]) > self._most:
            return None
        held = bytearray()
        while True:
            message = await asyncio.wait_for(receive(), BODY_S)
            if message["type"] != "http.request":
                return bytes(held)
            held += message.get("body", b"")
            if len(held) > self._most:
                return None
            if not message.get("more_body"):
                return bytes(held)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once, then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send, more: tuple[tuple[bytes, bytes], ...] = ()) -> Send:
    async def shown(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS, *more]}
        await send(message)

    return shown


def _cookie(token: str) -> bytes:
    return f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict".encode("ascii")


def _tokens(scope: Scope) -> dict[str, str]:
    """Tokens of a request, by where they are: a header, the address, a cookie."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    found = {}
    way, _, told = headers.get(b"authorization", "").partition(" ")
    if way.lower() == "bearer":
        found["header"] = told.strip()
    asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    if "token" in asked:
        found["query"] = asked["token"][0]
    for part in headers.get(b"cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            found["cookie"] = value
    return {place: one for place, one in found.items() if one.isascii()}


async def _refuse(send: Send, status: int, message: str) -> None:
    problem = {"path": "", "value": None, "message": message, "allowed": None, "nearest": None}
    body = json.dumps({"errors": [problem]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
