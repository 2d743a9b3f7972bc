"""No field of the API names a file: every endpoint, every field and position in it, every spelling of a path.

Questions are answered in this process, so that an audit hook sees each file that an answer opens; looks at a
file that is not opened (`os.stat` and its kin) are recorded beside it.
"""

import asyncio
import gzip
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pytest

import foretell
from foretell.catalog import model as catalog_model
from foretell.catalog import system as catalog_system
from foretell.catalog.files import read_table
from foretell.catalog.prices import price_file
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.errors import BadInput
from foretell.interop.user_files import names_only
from foretell.serving.requests.traces import read_trace
from foretell.studies.study_file import read_study
from foretell.web import names
from tests.web.client import app
from tests.web.file_probes import (
    CHIP,
    NAMES_FILES,
    PACKAGE,
    QUESTIONS,
    Canary,
    Probe,
    make_canary,
    probes,
)

Answer = TypeVar("Answer")
FILE_EVENTS = {"open": 0, "os.listdir": 0, "os.scandir": 0, "glob.glob": 0, "pathlib.Path.glob": 0}
"""Audit events of files, and which of their arguments is the path."""
OTHER_EVENTS = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec")
"""Audit events that no answer may have at all."""
LOOKS = ("stat", "lstat", "readlink", "access")
"""Functions of `os` that look at a file and have no audit event."""


class Watch:
    """Files that were opened or looked at since it was emptied."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        self.own: tuple[str, ...] = ()
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in FILE_EVENTS:
            self.look(event, arguments[FILE_EVENTS[event]])
        elif event in OTHER_EVENTS:
            self.seen.append(f"{event} {arguments!r:.200}")

    def look(self, event: str, path: Any) -> None:
        """Record a path, unless it lies in the package, in Python, or in the folder for temporary files.

        The way to these is looked at where a link is resolved; it is not opened.
        """
        if self.on and not isinstance(path, int):
            whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links stay as they are
            inside = any(f"{whole}/".startswith(f"{root}/") for root in self.own)
            above = event in LOOKS and any(
                root.startswith(f"{whole.rstrip('/')}/") for root in self.own
            )
            if not inside and not above:
                self.seen.append(f"{event} {whole}")


WATCH = Watch()


async def answer(made: Any, probe: Probe) -> tuple[int, bytes]:
    """Status and content of one request to the app."""
    address, _, query = probe.path.partition("?")
    body = b"" if probe.body is None else json.dumps(probe.body).encode()
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
        "method": probe.method.upper(), "path": unquote(address), "raw_path": address.encode(),
        "query_string": query.encode(), "root_path": "", "client": ("test", 1), "server": ("test", 80),
        "headers": [(b"host", b"testserver"), (b"content-type", b"application/json")],
    }  # fmt: skip
    status, content = 0, b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, content
        status = message.get("status", status)
        content += message.get("body", b"")

    await made(scope, receive, send)
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    return status, content


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canary]:
    """Files in the working folder, which is the user's own too; everything that is looked at is recorded."""
    made = make_canary(tmp_path / "files")
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.chdir(made.folder)
    monkeypatch.setenv("HOME", str(made.folder))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    for name in LOOKS:
        monkeypatch.setattr(os, name, watched(name))
    python = (sys.prefix, sys.base_prefix, str(Path(os.__file__).parent))
    WATCH.own = tuple(map(str, (PACKAGE, own, *python, *map(os.path.realpath, python))))
    yield made
    WATCH.on = False


def watched(name: str) -> Any:
    """A function of `os` that records the path it is given."""
    held = getattr(os, name)

    def look(path: Any, *arguments: Any, **more: Any) -> Any:
        WATCH.look(name, path)
        return held(path, *arguments, **more)

    return look


def apart(asked: Coroutine[Any, Any, Answer]) -> Answer:
    """What is awaited, in a thread of its own: the browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(asked)).result()


def ask_all(made: Any, asked: list[Probe]) -> list[tuple[int, bytes, list[str]]]:
    """Status, content and what was looked at, of each request."""

    async def every() -> list[tuple[int, bytes, list[str]]]:
        found = []
        for probe in asked:
            WATCH.seen = []
            WATCH.on = True
            status, content = await answer(made, probe)
            WATCH.on = False
            found.append((status, content, WATCH.seen))
        return found

    return apart(every())


def description(made: Any) -> Any:
    """The OpenAPI document."""
    return json.loads(apart(answer(made, Probe("get", "/openapi.json", None, "", False)))[1])


def faults(canary: Canary, made: Any, asked: list[Probe]) -> list[str]:
    """Requests whose answer came of a file, or is none of those that it may be."""
    found = []
    for probe, (status, content, seen) in zip(asked, ask_all(made, asked), strict=True):
        told = seen or (["the token"] if canary.token.encode() in content else [])
        if not told and (status >= 500 or (probe.refused and status not in (404, 422))):
            told = [f"status {status}: {content[:200]!r}"]
        if told:
            found.append(f"{probe.path} {probe.where} {str(probe.body)[:200]}: {told[:3]}")
    return found


def shown(found: list[str], asked: list[Probe]) -> str:
    """The first faults, and how many there are."""
    return "\n".join([f"{len(found)} of {len(asked)}", *found[:20]])


@pytest.fixture
def made() -> Any:
    """The app, each verb of which has answered a question: what is read once, and imported, is there."""
    built = app()
    for verb, question in QUESTIONS.items():
        good = Probe("post", f"/api/{verb}", question, "", False)
        status, content = apart(answer(built, good))
        assert status == 200, content[:300]
    return built


def test_no_field_names_a_file(made: Any, canary: Canary) -> None:
    """No file but the package's own is opened or looked at, and what the canaries hold is in no answer."""
    asked = list(probes(description(made), canary))
    found = faults(canary, made, asked)
    assert len(asked) > 10_000
    assert not found, shown(found, asked)


def test_the_readers_refuse_by_themselves(
    made: Any, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same where nothing looks at names before the verb is asked, and where the files are gone."""
    for place in (names, names):
        monkeypatch.setattr(place, "check_name", lambda *_: None)
    asked = [
        probe
        for probe in probes(description(made), canary)
        if probe.method == "post" and probe.where in (*NAMES_FILES, "gpus", "sweep", "workload")
        and "figures" not in probe.path and isinstance(probe.body.get(probe.where), str | list)
    ]  # fmt: skip
    found = faults(canary, made, asked)
    assert not found, shown(found, asked)
    some = [probe for probe in asked if probe.refused][::7]
    there = ask_all(made, some)
    for file in canary.folder.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert len(some) > 100
    assert ask_all(made, some) == there


def test_the_files_are_what_readers_take(canary: Canary) -> None:
    """Outside of a server each of them is read, and what it holds is told: the canaries can sing."""
    folder, token = canary.folder, canary.token
    WATCH.seen, WATCH.on = [], True
    for model in ("model.toml", "link-model.toml", "folder"):
        assert foretell.estimate(model, system="h100-sxm", gpus=8, plan="tp2").step_s > 0
    for system in ("system.toml", str(folder / "system.toml"), "bare", "link-system.toml"):
        assert foretell.estimate("gpt2", system=system, gpus=8, plan="tp2").system == token
    told = system_cost(SystemQuestion(system="h100-sxm", prices="prices.csv")).to_dict()
    assert token in json.dumps(told, default=str)
    for requests in ("requests.csv", "requests.jsonl"):
        assert read_trace(requests).isl == [100]
    assert {f"open {folder / name}" for name in ("prices.csv", "bare", "requests.jsonl")} <= {
        *WATCH.seen
    }
    with names_only():
        for read in (catalog_model, catalog_system, price_file, read_trace, read_study, read_table):
            with pytest.raises(BadInput, match="files are not read here"):
                read(folder / "system.toml")
    with names_only(), pytest.raises(BadInput, match="files are not read here"):
        catalog_system(str(CHIP))
