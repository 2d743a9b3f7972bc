"""What a server does with who leaves, who is slow, who asks for much, and who comes from elsewhere."""

import asyncio
import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlparse

import pytest

pytest.importorskip("fastapi")

from foretell.web import pool as pools
from foretell.web import server as servers
from foretell.web.limits import Limits
from foretell.web.pool import Busy, Pool, takes_long
from foretell.web.server import listening_socket
from tests.web.client import client, server

LONG = json.dumps(
    ["search", {"model": "deepseek-v3", "system": "h100-sxm", "gpus": 2048, "top": 3}]
)
"""Some seconds."""
ENDLESS = LONG.replace('"top": 3', '"top": 3, "over": "all"')
"""Tens of seconds: every structural choice too."""
SHORT = json.dumps(["estimate", {"model": "gpt2", "system": "h100-sxm", "gpus": 8, "plan": "mbs1"}])


async def nobody_left() -> bool:
    return False


def test_quick_questions_do_not_wait_for_slow_ones_and_who_leaves_is_forgotten() -> None:
    """One pool of two workers: two searches are asked, of which one may run; both are abandoned."""
    limits = Limits(workers=2, deadline_s=600.0)
    left = False

    async def gone() -> bool:
        return left

    async def ask() -> None:
        nonlocal left
        made = Pool(limits)
        try:
            assert (await made.ask(SHORT, nobody_left) or (0,))[0] == 200
            slow = [
                asyncio.create_task(made.ask(ENDLESS.replace("2048", gpus), gone))
                for gpus in ("2048", "1024")
            ]
            await asyncio.sleep(0.5)
            assert not any(task.done() for task in slow)
            other = SHORT.replace("mbs1", "mbs2")
            assert (await asyncio.wait_for(made.ask(other, nobody_left), 60.0) or (0,))[0] == 200
            assert not all(task.done() for task in slow)
            workers = [worker._process.pid for worker in made._workers]
            left = True
            assert await asyncio.wait_for(asyncio.gather(*slow), 30.0) == [None, None]
            assert (await made.ask(SHORT.replace("gpt2", "bloom"), nobody_left) or (0,))[0] == 200
            # The processes were told to stop, not ended.
            assert [worker._process.pid for worker in made._workers] == workers
            assert made.under_way == 0
        finally:
            made.stop()

    with ThreadPoolExecutor(1) as apart:  # the browser of other tests has a loop in this thread
        apart.submit(lambda: asyncio.run(ask())).result()


def test_searches_that_wait_keep_no_estimate_out_and_who_leaves_the_line_has_left_it() -> None:
    """One that runs, and as many more as the line holds: a further search is refused, an estimate is not."""
    limits = Limits(workers=2, waiting=2, deadline_s=600.0)
    left = over = False

    async def gone() -> bool:
        return left

    async def ended() -> bool:
        return over

    async def ask() -> None:
        nonlocal left, over
        made = Pool(limits)
        try:
            assert (await made.ask(SHORT, nobody_left) or (0,))[0] == 200
            runs = asyncio.create_task(made.ask(ENDLESS, ended))
            await asyncio.sleep(0.2)
            waits = [
                asyncio.create_task(made.ask(ENDLESS.replace("2048", gpus), gone))
                for gpus in ("1024", "512", "256")
            ]
            await asyncio.sleep(0.2)
            with pytest.raises(Busy):
                await made.ask(ENDLESS.replace("2048", "128"), nobody_left)
            other = SHORT.replace("mbs1", "mbs2")
            assert (await asyncio.wait_for(made.ask(other, nobody_left), 60.0) or (0,))[0] == 200
            left = True
            assert await asyncio.wait_for(asyncio.gather(*waits), 30.0) == [None, None, None]
            assert not runs.done()
            assert made.under_way == 1
            over = True
            assert await asyncio.wait_for(runs, 30.0) is None
        finally:
            made.stop()

    with ThreadPoolExecutor(1) as apart:
        apart.submit(lambda: asyncio.run(ask())).result()


def test_deadlines_are_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not had its time may go on; one that has it is ended."""
    worker = pools.Worker(Limits(workers=1, deadline_s=0.05))
    try:
        monkeypatch.setattr(pools, "MOST_WALL", 1e4)
        monkeypatch.setattr(pools, "processor_s", lambda process: 0.0)
        assert worker.ask(LONG.replace("2048", "64"))[0] == 200
        monkeypatch.setattr(pools, "processor_s", lambda process: time.monotonic())
        assert worker.ask(LONG)[0] == 422
    finally:
        worker.stop()


@pytest.mark.parametrize(
    ("verb", "given", "long"),
    [
        ("search", {}, True),
        ("estimate", {"plan": "mbs1"}, False),
        ("estimate", {}, True),
        ("figures time", {"questions": [{"plan": "mbs1"}]}, False),
        ("figures time", {"questions": [{"plan": "mbs1"}, {}]}, True),
        ("figures plans", {"questions": [{}]}, True),
        ("figures timeline", {"questions": [{"plan": "mbs1"}]}, True),
        ("figures x", {"questions": [{}]}, False),
        ("serve", {}, False),
        ("serve", {"simulate": True}, True),
        ("cost token", {"sweep": ["gpus=8,16"]}, True),
        ("catalog", {"kind": "chips"}, False),
    ],
)
def test_what_takes_long(verb: str, given: dict[str, object], long: bool) -> None:
    assert takes_long(json.dumps([verb, given])) is long


def test_small_answers_are_sent_at_once() -> None:
    with listening_socket("127.0.0.1", 0) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_head_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    import uvicorn

    monkeypatch.setattr(servers, "HEAD_S", 0.4)

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x"})

    with listening_socket("127.0.0.1", 0) as made:
        port = made.getsockname()[1]
        config = uvicorn.Config(
            app, http=servers.patient_protocol(), log_level="error", lifespan="off"
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [made]}, daemon=True)
        thread.start()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
                began = time.monotonic()
                slow.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nx: ")
                for _ in range(3):
                    time.sleep(0.1)
                    slow.sendall(b"y")
                assert slow.recv(100) == b""
                assert time.monotonic() - began < 5.0
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            for _ in range(3):
                link.request("GET", "/")
                assert link.getresponse().read() == b"x"
                time.sleep(0.3)
            link.close()
        finally:
            running.should_exit = True
            thread.join(10)


def test_who_comes_from_elsewhere_needs_the_token() -> None:
    from starlette.testclient import TestClient

    from foretell.web.app import make_app

    with TestClient(make_app(None, None, processes=False, token="secret")) as asked:
        assert asked.get("/api/status").status_code == 401
        assert asked.get("/api/status?token=wrong").status_code == 401
        head = {"authorization": "Bearer secret"}
        assert asked.get("/api/status", headers=head).status_code == 200
        assert asked.get("/?token=secret").status_code == 200
        assert asked.get("/api/status").status_code == 200  # by the page's cookie
    with client() as asked:
        assert asked.get("/api/status").status_code == 200


def test_the_command_prints_a_token_and_a_warning_beyond_this_machine() -> None:
    with server("--host", "0.0.0.0") as (address, process):
        place = urlparse(address)
        assert place.query.startswith("token=")
        link = http.client.HTTPConnection("127.0.0.1", place.port, timeout=60)
        link.request("GET", "/api/status")
        assert link.getresponse().status == 401
    assert process.stderr is not None
