"""Long answers report how far they are by Server-Sent Events, and end when whoever asked leaves."""

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlparse

import pytest

pytest.importorskip("fastapi")

from foretell.web.pool import has_pasted, key_of
from foretell.web.progress import report, stream_job, wants_events, watching
from tests.web.client import client, server

EVENTS = {"accept": "text/event-stream", "content-type": "application/json"}
LONG = {"model": "deepseek-v3", "system": "h100-sxm", "gpus": 8192, "top": 3, "over": "all"}
"""Many seconds."""
SHORT = {"model": "gpt2", "system": "h100-sxm", "gpus": 8}


def events_of(text: str) -> list[tuple[str, Any]]:
    """Names and data of a stream's events."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n", 1)
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_stream_ends_with_the_answer_of_a_plain_request() -> None:
    with client() as asked:
        plain = asked.post("/api/search", json=SHORT)
        reply = asked.post("/api/search", json=SHORT, headers=EVENTS)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    *before, last = events_of(reply.text)
    assert last[0] == "answer"
    assert set(last[1]) == set(plain.json())
    assert last[1]["plans"] == plain.json()["plans"]  # beside them is how long the search took
    assert {name for name, _ in before} == {"progress"}
    done = [data["done"] for _, data in before]
    assert done == sorted(done)
    assert all(data["done"] <= data["total"] for _, data in before)


def test_what_is_wrong_comes_as_an_event_too() -> None:
    with client() as asked:
        plain = asked.post("/api/estimate", json={**SHORT, "model": "gpt9"})
        told = events_of(
            asked.post("/api/estimate", json={**SHORT, "model": "gpt9"}, headers=EVENTS).text
        )
        # What is no question of a verb is refused before anything streams.
        bad = asked.post("/api/estimate", json={**SHORT, "wrong": 1}, headers=EVENTS)
    assert told[-1] == ("errors", {"status": 422, **plain.json()})
    assert bad.status_code == 422


def test_lists_and_files_do_not_stream() -> None:
    with client() as asked:
        for path in ("/api/figures/accuracy", "/api/catalog/chips", "/api/status"):
            assert asked.get(path, headers=EVENTS).headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("text/event-stream", True),
        ("application/json, Text/Event-Stream;q=0.9", True),
        ("*/*", False),
        ("", False),
    ],
)
def test_only_who_asks_for_events_has_them(accept: str, wanted: bool) -> None:
    assert wants_events(accept) is wanted


def test_reports_reach_only_who_watches() -> None:
    report(1, 2)  # nobody does
    found: list[tuple[int, int]] = []
    with watching(lambda done, total: found.append((done, total))):
        for done in range(1, 1001):
            report(done, 1000)
    assert found[0] == (1, 1000)
    assert found[-1] == (1000, 1000)
    assert len(found) < 100
    report(5, 6)
    assert len(found) < 100


def test_a_stream_that_is_left_tells_its_job() -> None:
    async def run() -> list[bool]:
        seen: list[bool] = []

        async def job(gone: Any, told: Any) -> None:
            while not await gone():
                await asyncio.sleep(0.01)
            seen.append(True)

        stream = stream_job(job)
        assert b"event: progress" in await anext(stream)
        assert b'"done": 0' in await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)
        return seen

    with ThreadPoolExecutor(1) as apart:  # the browser of other tests has a loop in this thread
        assert apart.submit(lambda: asyncio.run(run())).result() == [True]


def test_what_is_pasted_is_not_kept() -> None:
    pasted = json.dumps(["estimate", {**SHORT, "measured": ["tp8: 1 s"]}])
    assert has_pasted(pasted)
    assert has_pasted(json.dumps(["figures time", {"questions": [SHORT, {"measured": []}]}]))
    assert not has_pasted(json.dumps(["estimate", SHORT]))
    assert "tp8" not in key_of(pasted)


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    with server("--workers", "2") as (url, _):
        yield url


def lines(reply: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """Events as they come."""
    name = ""
    while line := reply.readline().decode():
        if line.startswith("event: "):
            name = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_feedback_comes_at_once_and_leaving_cancels(running: str) -> None:
    """The first event before the work has told anything, numbers that grow, and no work left behind who
    leaves. How soon the first comes is what tests/bench/bench_ui.py measures."""
    place = urlparse(running)

    def opened() -> http.client.HTTPConnection:
        return http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)

    for gpus in (8192, 4096, 2048):
        link = opened()
        link.request("GET", "/api/status")
        link.getresponse().read()
        link.request("POST", "/api/search", json.dumps({**LONG, "gpus": gpus}), EVENTS)
        found = lines(link.getresponse())
        name, data = next(found)
        assert name == "progress"
        assert not data.get("done")
        for name, data in found:
            assert name == "progress"
            if data["done"]:
                assert 0 < data["done"] <= data["total"]
                break
        link.close()
    other = opened()
    for _ in range(100):
        other.request("GET", "/api/status")
        if json.loads(other.getresponse().read())["under_way"] == 0:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the work goes on though nobody waits")
    other.close()
