"""`foretell ui`: the page and its JSON API, on this machine unless stated otherwise."""

import secrets
import sys
from typing import Annotated, Any

from foretell.cli.flags import Json, arg, number
from foretell.cli.output import write_json
from foretell.errors import BadInput, Problem, bad_input

DEFAULT_PORT = 8765
INSTALL = 'python -m pip install "foretell[web]"'


def ui(
    *,
    port: Annotated[str, arg("Port to listen on; 0: any that is free.", "N")] = str(DEFAULT_PORT),
    host: Annotated[
        str, arg("Address to listen on; the default is this machine alone.", "ADDRESS")
    ] = "127.0.0.1",
    workers: Annotated[
        str | None, arg("Processes that answer (default: one a core, 8 at most).", "N")
    ] = None,
    browser: Annotated[bool, arg("Open the page in a browser, or not.", show_default=False)] = True,
    json: Json = False,
) -> int:
    """Serve the page and the JSON API until interrupted."""
    problems = _problems(number(port), number(workers) if workers else None)
    if problems:
        raise BadInput(problems)
    try:
        import fastapi  # noqa: F401 - only whether it is there
        import uvicorn  # noqa: F401
    except ImportError:
        raise bad_input("ui", None, "the page needs fastapi and uvicorn", INSTALL) from None
    from foretell.web.app import LOOPBACK, make_app
    from foretell.web.limits import Limits
    from foretell.web.server import cores, listening_socket, run, url_of

    limits = Limits(workers=int(workers) if workers else cores())
    with listening_socket(host, int(port)) as socket:
        local = host in ("127.0.0.1", "localhost", "::1")
        token = None if local else secrets.token_urlsafe(18)
        url = url_of(host, socket) + (f"?token={token}" if token else "")
        if token:
            print(
                f"warning: {host} can be reached from other machines; who has the address below, with its "
                "token, can ask. Nothing is encrypted: use it inside a network that you trust.",
                file=sys.stderr,
            )
        if json:
            write_json({"url": url, "workers": limits.workers})
        else:
            print(f"{url}\nInterrupt (Ctrl-C) to stop.")
        sys.stdout.flush()  # who waits for the address reads it from a pipe
        app = make_app(limits, LOOPBACK if local else None, token=token)
        run(app, socket, open_url=url if browser else None)
    return 0


def _problems(port: Any, workers: Any) -> list[Problem]:
    """Numbers that are none, or out of range."""
    found = []
    for name, value, least, most in (("port", port, 0, 65535), ("workers", workers, 1, 256)):
        if value is not None and (not isinstance(value, int) or not least <= value <= most):
            allowed = f"a whole number from {least} to {most}"
            message = "not a usable number"
            found.append(Problem(path=f"--{name}", value=value, message=message, allowed=allowed))
    return found
