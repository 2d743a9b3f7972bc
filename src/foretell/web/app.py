"""The app: a page, and `POST /api/VERB` with a verb's flags as its body and its --json as its answer."""

import json
from collections.abc import Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Union

from pydantic import BaseModel

from foretell import __version__
from foretell.errors import wrong
from foretell.specs.questions import question_type
from foretell.web import answers, figures, lists
from foretell.web.fields import (
    Errors,
    PastedText,
    Text,
    body_model,
    errors_of,
    figure_model,
    flags_of,
    problems_of,
)
from foretell.web.limits import MOST, Limits
from foretell.web.lists import FILES
from foretell.web.pool import Busy, Inline, Pool
from foretell.web.progress import EVENTS, Gone, Reply, Report, stream_job, wants_events
from foretell.web.server import Guard
from foretell.web.worker import HINT, SHOWN, json_reply

STATIC = Path(__file__).parent / "static"
"""The page, its style and its scripts."""
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine for itself."""
FAILURES: dict[int | str, dict[str, Any]] = {
    400: {"model": Errors, "description": "No such host, or no JSON"},
    413: {"model": Errors, "description": "The question is too large"},
    422: {
        "model": Errors,
        "description": "Bad input, everything that is wrong with it; or more work, time or memory than "
        "this server gives to one question",
    },
    429: {"model": Errors, "description": "Too many questions wait already"},
    503: {
        "model": Errors,
        "description": "The process that answers ended in the midst of it",
    },
}
"""Answers other than the one asked for."""
RETRY_S = {429: "1", 503: "5"}
"""After how many seconds to ask again."""
COSTS = ("chip", "package", "system", "run", "token")


def make_app(
    limits: Limits | None = None,
    hosts: Collection[str] | None = LOOPBACK,
    processes: bool = True,
    token: str | None = None,
) -> Any:
    """The ASGI app: `hosts` are the names that it answers to (None: any), `token` what a request must have.

    Without `processes` questions are answered in this one, with no deadline: for tests and notebooks.
    """
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    limits = limits or Limits()
    pools: list[Pool | Inline] = [] if processes else [Inline(limits)]

    @asynccontextmanager
    async def lifespan(app: Any) -> Any:
        if not pools:
            pools.append(Pool(limits))
        yield
        pools[0].stop()

    app = FastAPI(
        title="Foretell",
        version=__version__,
        summary="How long a transformer takes to train or serve on a system, and what it costs.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    bodies: dict[str, type[BaseModel]] = {}
    _add_verbs(app, pools, bodies)
    _add_lists(app, pools)
    _add_status(app, pools, limits)
    _add_page(app)

    async def malformed(request: Any, error: Any) -> Any:
        return _told(422, errors_of(problems_of(error.errors(), request.url.path, bodies)))

    async def refused(request: Any, error: Any) -> Any:
        problem = wrong("", None, str(error.detail))
        return _told(error.status_code, errors_of([problem]), error.headers)

    app.add_exception_handler(RequestValidationError, malformed)
    app.add_exception_handler(HTTPException, refused)
    app.add_middleware(Guard, body_bytes=limits.body_bytes, hosts=hosts, token=token)
    return app


def _add_verbs(app: Any, pools: list[Pool | Inline], bodies: dict[str, type[BaseModel]]) -> None:
    """A route for every verb, the trace of a simulated step, and `cost` by its `what`."""
    for verb in answers.VERBS:
        bodies[_path(verb)] = body_model(verb, question_type(verb))
        _add(app, _path(verb), _endpoint(verb, bodies[_path(verb)], pools), verb)
    traced = body_model("simulate trace", question_type("simulate"))
    bodies["/api/simulate/trace"] = traced
    _add(app, "/api/simulate/trace", _endpoint("simulate trace", traced, pools), "simulate trace")
    bodies["/api/read"] = PastedText
    _add(app, "/api/read", _endpoint("read", PastedText, pools), "read")
    _add_cost(app, pools)
    _add_figures(app, pools, bodies)


def _add_figures(app: Any, pools: list[Pool | Inline], bodies: dict[str, type[BaseModel]]) -> None:
    """A route for every figure: up to four questions side by side."""
    for name, kind in figures.KINDS.items():
        verb = f"figures {name}"
        body = figure_model(verb, bodies[_path(kind.verb)], figures.MOST_QUESTIONS)
        bodies[_path(verb)] = body
        made = _kept_figure(name, kind.verb, body, pools) if kind.kept else None
        _add(app, _path(verb), made or _endpoint(verb, body, pools), verb)


def _kept_figure(name: str, verb: str, body: type[BaseModel], pools: list[Pool | Inline]) -> Any:
    """A figure of answers that are asked, or still known: of them it is made in a moment."""
    from fastapi import Request

    async def endpoint(request: Request, question: body) -> Any:  # type: ignore[valid-type]
        asked = flags_of(question)

        async def job(gone: Gone, report: Report | None) -> Reply | None:
            found = []
            for one in asked["questions"]:
                reply = await _asked(pools, verb, one, gone, report)
                if reply is None or reply[0] != 200:
                    return reply
                found.append(json.loads(reply[2]))
            return json_reply(200, figures.of_answers(name, found, asked))

        return await _respond(job, request)

    return endpoint


def _add_cost(app: Any, pools: list[Pool | Inline]) -> None:
    """`POST /api/cost`: one of the costs, by its name in `what`."""
    from typing import Annotated, Literal

    from fastapi import Request
    from pydantic import Field

    models = tuple(
        body_model(
            f"any cost {what}", question_type(f"cost {what}"), {"what": (Literal[what], ...)}
        )
        for what in COSTS
    )
    body: Any = Annotated[Union[models], Field(discriminator="what")]  # noqa: UP007 - of a tuple

    async def endpoint(request: Request, question: body) -> Any:
        asked = flags_of(question)
        return await _reply(pools, f"cost {asked.pop('what')}", asked, request)

    _add(app, "/api/cost", endpoint, "cost")


def _path(verb: str) -> str:
    return f"/api/{verb.replace(' ', '/')}"


def _endpoint(verb: str, body: type[BaseModel], pools: list[Pool | Inline]) -> Any:
    from fastapi import Request

    async def endpoint(  # type: ignore[no-untyped-def]
        request: Request,
        question: body,  # type: ignore[valid-type]
        hint: bool = False,
        shown: bool = False,
    ):
        asked = f"{HINT}{verb}" if hint and verb in answers.VERBS else verb
        asked = f"{SHOWN}{asked}" if shown and verb in answers.VERBS else asked
        return await _reply(pools, asked, flags_of(question), request)

    return endpoint


def _add(app: Any, path: str, endpoint: Any, verb: str, method: str = "POST") -> None:
    about: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "What `foretell` prints with --json",
            "content": {"application/json": {}, EVENTS: {}},
        }
    }
    if verb.endswith("trace"):
        about = {200: {"description": "A Chrome trace", "content": {"application/gzip": {}}}}
    app.add_api_route(
        path,
        endpoint,
        methods=[method],
        name=verb,
        operation_id=verb.replace(" ", "_").replace("-", "_"),
        summary=f"foretell {verb}",
        response_model=None,
        responses={**about, **FAILURES},
    )


def _add_lists(app: Any, pools: list[Pool | Inline]) -> None:
    """What is asked by GET."""
    from typing import Literal

    from fastapi import Request

    async def catalogue(request: Request, kind: Literal["chips", "systems", "models"]) -> Any:
        return await _reply(pools, "catalog", {"kind": kind}, request)

    async def shown(request: Request, name: Text) -> Any:
        return await _reply(pools, "catalog show", {"name": name}, request)

    async def accuracy(
        request: Request, find: Text = "", theme: Literal["light", "dark"] = "light"
    ) -> Any:
        rows = await _reply(pools, "validate published", {}, request)
        if rows.status_code != 200:
            return rows
        return _told(200, lists.published_figure(json.loads(rows.body), find, theme))

    def plain(verb: str) -> Any:
        async def endpoint(request: Request) -> Any:
            return await _reply(pools, verb, {}, request)

        return endpoint

    _add(app, "/api/tools", plain("tools"), "tools", "GET")
    _add(app, "/api/figures/accuracy", accuracy, "figures accuracy", "GET")
    _add(app, "/api/catalog/show/{name:path}", shown, "catalog show", "GET")
    _add(app, "/api/catalog/{kind}", catalogue, "catalog", "GET")
    for name in ("first-contact", "held-out", "published"):
        verb = f"validate {name}"
        _add(app, f"/api/validate/{name}", plain(verb), verb, "GET")


def _add_status(app: Any, pools: list[Pool | Inline], limits: Limits) -> None:
    """How the server is: for who keeps it running."""

    async def status() -> Any:
        held = {"version": __version__, "under_way": pools[0].under_way}
        return _told(200, {**held, "limits": {**asdict(limits), "most": dict(MOST)}})

    _add(app, "/api/status", status, "status", "GET")


async def _reply(
    pools: list[Pool | Inline], verb: str, asked: Mapping[str, Any], request: Any
) -> Any:
    """The answer of a worker as a response."""

    async def job(gone: Gone, report: Report | None) -> Reply | None:
        return await _asked(pools, verb, asked, gone, report)

    return await _respond(job, request, stream=request.method == "POST" and verb not in FILES)


async def _asked(
    pools: list[Pool | Inline],
    verb: str,
    asked: Mapping[str, Any],
    gone: Gone,
    report: Report | None,
) -> Reply | None:
    """The reply of a worker, or of a line that is too long."""
    # Sorted, so that a question is known again; not within: a system's tiers stand in their order.
    question = json.dumps([verb, dict(sorted(asked.items()))])
    try:
        return await pools[0].ask(question, gone, report)
    except Busy:
        message = "too many questions wait already; ask again in a moment"
        return json_reply(429, errors_of([wrong("", None, message)]))


async def _respond(job: Any, request: Any, stream: bool = True) -> Any:
    """A job's reply as a response; events with its progress where the request accepts them."""
    from starlette.responses import Response, StreamingResponse

    headers = {"cache-control": "no-store"}
    if stream and wants_events(request.headers.get("accept", "")):
        events = stream_job(job)
        return StreamingResponse(events, media_type=EVENTS, headers=headers)
    reply = await job(request.is_disconnected, None)
    if reply is None:  # nobody is there to read it
        return Response(status_code=499)
    status, kind, content = reply
    if status in RETRY_S:
        headers["retry-after"] = RETRY_S[status]
    if kind == "application/gzip":
        headers["content-disposition"] = 'attachment; filename="foretell-step.json.gz"'
    return Response(content, status_code=status, media_type=kind, headers=headers)


def _told(status: int, record: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Any:
    """A short record as a response, in ASCII: a text may hold what no encoding has."""
    from starlette.responses import Response

    body = json.dumps(record, default=str).encode("ascii")
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _add_page(app: Any) -> None:
    """The page at the root, and its parts."""
    from starlette.responses import FileResponse
    from starlette.staticfiles import StaticFiles

    async def page() -> Any:
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})

    app.add_api_route("/", page, include_in_schema=False, response_model=None)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
