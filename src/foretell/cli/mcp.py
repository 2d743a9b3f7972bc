"""`foretell mcp`: the verbs as tools of an assistant, over standard input and output or over HTTP."""

import sys
from typing import Annotated

from foretell.cli.flags import Json, arg, number, switch
from foretell.cli.output import write_json
from foretell.errors import BadInput, Problem

DEFAULT_PORT = 8766
INSTALL = 'python -m pip install "foretell[mcp]"'


def mcp(
    *,
    http: Annotated[bool, switch("Over HTTP, at /mcp, instead of stdin and stdout.")] = False,
    port: Annotated[str, arg("Port to listen on; 0: any that is free.", "N")] = str(DEFAULT_PORT),
    schemas: Annotated[
        bool, switch("Print the tools' JSON schemas, as function calling takes them, and end.")
    ] = False,
    json: Json = False,
) -> int:
    """Serve the verbs over the Model Context Protocol until interrupted."""
    _check(port)
    if schemas:
        from foretell.web.assistant import tools

        write_json(tools())
        return 0
    if not http:
        import asyncio

        from foretell.web.assistant_server import serve_stdio

        asyncio.run(serve_stdio())
        return 0
    from foretell.web.assistant_server import make_server
    from foretell.web.server import listening_socket, run, url_of

    with listening_socket("127.0.0.1", int(port)) as socket:
        url = url_of("127.0.0.1", socket).rstrip("/") + "/mcp"
        if json:
            write_json({"url": url})
        else:
            print(f"{url}\nInterrupt (Ctrl-C) to stop.")
        sys.stdout.flush()  # who waits for the address reads it from a pipe
        run(make_server().streamable_http_app(stateless_http=True, json_response=True), socket)
    return 0


def _check(port: str) -> None:
    """BadInput for a port that is none, and where the packages are missing."""
    problems, told = [], number(port)
    if not isinstance(told, int) or not 0 <= told <= 65535:
        allowed = "a whole number from 0 to 65535"
        message = "not a usable number"
        problems.append(Problem(path="--port", value=port, message=message, allowed=allowed))
    try:
        import mcp.server  # noqa: F401 - only whether they are there
        import pydantic  # noqa: F401
    except ImportError:
        message = "the protocol needs the packages mcp and pydantic"
        problems.append(Problem(path="mcp", value=None, message=message, allowed=INSTALL))
    if problems:
        raise BadInput(problems)
