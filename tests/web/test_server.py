"""`foretell ui` as a process: many users at once, an end that loses no answer, and bad flags."""

import http.client
import json
import signal
import socket
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlparse

import pytest

import foretell
from tests.surfaces.command import foretell as command
from tests.web.client import client, server

USERS, EACH = 50, 4
PLACE = {"model": "llama-3.1-8b", "system": "h100-sxm"}


def body_of(user: int, turn: int) -> dict[str, Any]:
    """A question that no other user asks."""
    return {**PLACE, "gpus": 8, "plan": "tp2 zero1", "global_batch": 8 * (1 + user + USERS * turn)}


def post(address: str, verb: str, body: Any) -> tuple[int, Any]:
    """Status and JSON of one question."""
    place = urlparse(address)
    link = http.client.HTTPConnection(str(place.hostname), place.port, timeout=600)
    try:
        text = json.dumps(body)
        link.request("POST", f"/api/{verb}", text, {"content-type": "application/json"})
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        link.close()


def under_way(address: str) -> int:
    """Questions that the server is at work on."""
    with urllib.request.urlopen(f"{address}api/status") as answer:
        return int(json.load(answer)["under_way"])


def test_fifty_users_get_their_own_answers_and_the_end_is_clean() -> None:
    """No error, no answer lost or mixed up; an interrupt with questions under way answers them first."""
    found: dict[tuple[int, int], tuple[int, Any]] = {}
    late: list[tuple[int, Any]] = []
    with server("--workers", "2") as (address, process):

        def use(user: int) -> None:
            for turn in range(EACH):
                found[user, turn] = post(address, "estimate", body_of(user, turn))

        users = [threading.Thread(target=use, args=(user,)) for user in range(USERS)]
        for thread in users:
            thread.start()
        for thread in users:
            thread.join()
        asked: list[threading.Thread] = []
        while not under_way(address):
            # One that was answered between two looks is followed by another.
            if not any(thread.is_alive() for thread in asked):
                last = {**PLACE, "gpus": 256, "global_batch": 256 * (3 + len(asked))}
                asked.append(
                    threading.Thread(
                        target=lambda last=last: late.append(post(address, "search", last))
                    )
                )
                asked[-1].start()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        for thread in asked:
            thread.join()
        assert process.wait(120) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert len(found) == USERS * EACH
    for (user, turn), (status, told) in found.items():
        assert status == 200, told
        assert told["global_batch"] == body_of(user, turn)["global_batch"]
    some = body_of(17, 2)
    assert found[17, 2][1]["step_s"] == foretell.estimate(**some).step_s
    assert [status for status, _ in late] == [200] * len(asked)


def test_a_line_that_is_too_long_is_told() -> None:
    """With one worker and nobody to wait, a second question at the same time is answered 429."""
    import anyio
    import httpx

    from foretell.web.limits import Limits
    from tests.web.client import app

    made = app(Limits(workers=1, waiting=0), processes=True)

    async def both() -> list[int]:
        statuses: list[int] = []

        async def ask(gpus: int) -> None:
            answer = await link.post("/api/search", json={**PLACE, "gpus": gpus})
            statuses.append(answer.status_code)

        transport = httpx.ASGITransport(app=made)
        async with (
            made.router.lifespan_context(made),
            httpx.AsyncClient(
                transport=transport, base_url="http://testserver", timeout=60
            ) as link,
            anyio.create_task_group() as group,
        ):
            group.start_soon(ask, 8)
            group.start_soon(ask, 16)
        return statuses

    with ThreadPoolExecutor(1) as apart:  # the browser of other tests has a loop in this thread
        assert sorted(apart.submit(anyio.run, both).result()) == [200, 429]


def test_an_answer_is_kept_for_who_asks_the_same() -> None:
    with client(processes=True) as api:
        body = {**PLACE, "gpus": 64}
        first = api.post("/api/search", json=body).json()
        again = api.post("/api/search", json=dict(reversed(body.items()))).json()
        assert again["evaluation_seconds"] == first["evaluation_seconds"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--port", "x"), "--port: "),
        (("--port", "70000"), "--port: "),
        (("--workers", "0"), "--workers: "),
        (("--host", "no.such.host.invalid"), "--port: cannot listen there"),
    ],
)
def test_bad_flags(flags: tuple[str, ...], said: str) -> None:
    outcome = command("ui", "--no-browser", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


def test_a_port_in_use_is_bad_input() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = command("ui", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert (outcome.code, outcome.out) == (2, "")
    assert "cannot listen there" in outcome.err
