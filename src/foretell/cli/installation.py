"""`foretell catalog`, `doctor`, `completion`, `mcp` and `ui`: what is known and installed, and servers."""

import secrets
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from foretell.cli import names
from foretell.cli.command import Json, arg, number, switch
from foretell.cli.output import print_answer, write_json
from foretell.errors import BadInput, Problem, bad_input, wrong

Named = Annotated[
    str,
    arg(
        "Id or alias of a model, chip or system; or a config.json, its folder, a TOML file.",
        completer=names.entries,
    ),
]


def chips(*, json: Json = False) -> int:
    """List the chips."""
    return _list("chip", json)


def systems(*, json: Json = False) -> int:
    """List the systems."""
    return _list("system", json)


def models(*, json: Json = False) -> int:
    """List the models."""
    return _list("model", json)


def show(name: Named, *, json: Json = False) -> int:
    """One entry with the source of every value."""
    from foretell.report.catalogue import entry

    return print_answer("catalog", entry(names.own_path(name)), json=json)


def _list(kind: str, json: bool) -> int:
    from foretell.report.catalogue import listing

    found = listing(kind)
    if json:
        write_json(found)
        return 0
    return print_answer("catalog", {"entries": found}, json=False)


def doctor(
    *,
    folder: Annotated[str, arg("Where to look for chip files of your own.", "DIR")] = ".",
    results: Annotated[
        str, arg("Where sweeps and measured runs leave results.", "DIR")
    ] = "results",
    json: Json = False,
) -> int:
    """What is installed, calibrated and reachable here, what for, and how to get the rest."""
    from foretell.report.doctor import diagnose

    return print_answer("doctor", diagnose(Path(folder), Path(results)).to_dict(), json=json)


SHELLS = {
    "bash": 'eval "$(foretell completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(foretell completion zsh)" in ~/.zshrc, after compinit',
    "fish": "foretell completion fish > ~/.config/fish/completions/foretell.fish",
}
"""Where each shell takes it from."""


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], arg("Which shell.")],
    *,
    json: Json = False,
) -> int:
    """Print the shell's completion: verbs, flags, and ids of models and systems as you type."""
    from foretell.cli.app import make_app
    from foretell.cli.command import show_flags

    show_flags(every=True)
    script = make_app().generate_completion(shell=shell)
    if json:
        write_json({"shell": shell, "install": SHELLS[shell], "script": script})
    else:
        print(script, end="")
    return 0


def mcp(
    *,
    http: Annotated[bool, switch("Over HTTP, at /mcp, instead of stdin and stdout.")] = False,
    port: Annotated[str, arg("Port to listen on; 0: any that is free.", "N")] = "8766",
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

        from foretell.web.assistant import serve_stdio

        asyncio.run(serve_stdio())
        return 0
    from foretell.web.assistant import make_server
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
    problems = _unusable("port", number(port), 0, 65535)
    try:
        import mcp.server  # noqa: F401 - only whether they are there
        import pydantic  # noqa: F401
    except ImportError:
        message = "the protocol needs the packages mcp and pydantic"
        allowed = 'python -m pip install "foretell[mcp]"'
        problems.append(wrong("mcp", None, message, allowed))
    if problems:
        raise BadInput(problems)


def _unusable(name: str, value: Any, least: int, most: int) -> list[Problem]:
    """What is wrong with a whole number, where it is none or out of range."""
    if isinstance(value, int) and least <= value <= most:
        return []
    allowed = f"a whole number from {least} to {most}"
    return [wrong(f"--{name}", value, "not a usable number", allowed)]


def ui(
    *,
    port: Annotated[str, arg("Port to listen on; 0: any that is free.", "N")] = "8765",
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
    problems = _unusable("port", number(port), 0, 65535)
    problems += _unusable("workers", number(workers), 1, 256) if workers else []
    if problems:
        raise BadInput(problems)
    try:
        import fastapi  # noqa: F401 - only whether it is there
        import uvicorn  # noqa: F401
    except ImportError:
        raise bad_input(
            "ui",
            None,
            "the page needs fastapi and uvicorn",
            'python -m pip install "foretell[web]"',
        ) from None
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
