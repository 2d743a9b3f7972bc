"""What stands before every answer: the host asked for, the size of a body, and headers that keep a page in.

Pure ASGI, so that a body is counted while it comes in and nothing larger than the limit is ever held.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

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
BODY_S = 15.0
"""Longest pause of a body that comes in."""


class Guard:
    """An ASGI app around another."""

    def __init__(self, app: App, body_bytes: int, hosts: Collection[str] | None) -> None:
        """`hosts` are the names that this server answers to; None: any."""
        self._app = app
        self._most = body_bytes
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        shown = _with_headers(send)
        if not self._known(scope):
            await _refuse(shown, 400, "this server does not answer to that host name")
            return
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


def _with_headers(send: Send) -> Send:
    async def shown(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
        await send(message)

    return shown


async def _refuse(send: Send, status: int, message: str) -> None:
    problem = {"path": "", "value": None, "message": message, "allowed": None, "nearest": None}
    body = json.dumps({"errors": [problem]}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
