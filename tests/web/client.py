"""The app in this process, and a server in another."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from foretell.web.app import LOOPBACK, make_app
from foretell.web.limits import Limits

ROOT = Path(__file__).resolve().parents[2]


def app(limits: Limits | None = None, processes: bool = False) -> Any:
    """The app; without processes, one answer at a time in this one."""
    hosts = (*LOOPBACK, "testserver")
    return make_app(limits, hosts, processes)


@contextmanager
def client(limits: Limits | None = None, processes: bool = False) -> Iterator[TestClient]:
    """A client of the app in this process."""
    with TestClient(app(limits, processes)) as made:
        yield made


PATIENT = """
import sys
from foretell.cli import main
from foretell.web.limits import Limits

Limits.__init__.__kwdefaults__["deadline_s"] = 600.0
sys.argv[0] = "foretell"
main()
"""
"""The program, with a deadline that a loaded machine does not miss."""


@contextmanager
def server(*flags: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`foretell ui` as a user starts it: its address and its process, which is ended afterwards."""
    words = ["ui", "--port", "0", "--no-browser", "--json", *flags]
    command = [sys.executable, "-c", PATIENT, *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            lines = ""
            while not lines.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, process.stderr.read() if process.stderr else ""
                lines += line
            yield json.loads(lines)["url"], process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(120)
