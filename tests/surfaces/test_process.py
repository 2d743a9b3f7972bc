"""The command as a process: how soon it answers, what it loads, how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LLAMA = "estimate llama-3.1-70b --system h100-sxm --gpus 64 --plan".split()
PLAN = "tp8 pp2 mbs1 zero1"
PATIENCE_S = 300.0
"""What a command is given that should end: a loaded machine is no defect."""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an installed package: modules are compiled once."""
    compiled = str(tmp_path_factory.mktemp("compiled"))
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "PYTHONPYCACHEPREFIX": compiled}


def start(env: dict[str, str], *arguments: str, **more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "foretell", *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen(command, env=env, text=True, **streams)  # type: ignore[call-overload]


def run(env: dict[str, str], *arguments: str, **more: object) -> tuple[int, str, str]:
    process = start(env, *arguments, **more)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def patched(env: dict[str, str], folder: Path, code: str) -> dict[str, str]:
    """An environment in which some code runs first."""
    (folder / "sitecustomize.py").write_text(code)
    return {**env, "PYTHONPATH": f"{folder}{os.pathsep}{env['PYTHONPATH']}"}


def loaded(env: dict[str, str], *arguments: str) -> set[str]:
    """Packages that a command loads."""
    _, _, err = run({**env, "PYTHONPROFILEIMPORTTIME": "1"}, *arguments)
    names = {line.rpartition("|")[2].strip() for line in err.splitlines() if "|" in line}
    return {name.partition(".")[0] for name in names} | {n for n in names if "foretell" in n}


def test_what_is_not_needed_is_not_loaded(env: dict[str, str]) -> None:
    said = loaded(env, "--help")
    assert not said & {"numpy", "pydantic", "foretell.api.training"}
    told = loaded(env, *LLAMA, PLAN, "--json")
    assert not told & {
        "foretell.search.explain",
        "foretell.simulation.answer",
        "foretell.serving",
        "numpy.random",
    }
    assert {"numpy", "foretell.api.training"} <= told
    assert not told & {"rich", "pydantic", "foretell.lab.reference", "foretell.report"}
    assert "rich" in loaded(env, *LLAMA, PLAN)


SLOW = """
import time
from importlib import import_module
from pathlib import Path

def slow(*args):
    Path({ready!r}).touch()
    time.sleep(600)

leading = import_module("foretell.search.leading")
leading.evaluate = leading.evaluate_chunks = slow
"""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_is_quiet(env: dict[str, str], tmp_path: Path, workers: str) -> None:
    ready = tmp_path / "ready"
    slow = patched(env, tmp_path, SLOW.format(ready=str(ready)))
    arguments = ("search", "llama-3.1-8b", "--gpus", "8xH100", "--workers", workers)
    process = start(slow, *arguments, start_new_session=True)
    assert interrupted(process, ready) == (130, "", "")


def interrupted(process: "subprocess.Popen[str]", ready: Path) -> tuple[int, str, str]:
    """Exit code and output of a process that is interrupted once a file is there."""
    limit = time.monotonic() + PATIENCE_S
    while not ready.exists() and time.monotonic() < limit:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, out, err


SLOW_START = """
import sys, time
from pathlib import Path

if "--multiprocessing-fork" in sys.orig_argv:
    Path({ready!r}).touch()
    time.sleep(1.0)
elif "sweep" in sys.orig_argv:
    from foretell.studies.sweep import executors

    executors.BEGIN_S = -1.0  # workers are begun after the first shard, however quick that is
"""
STUDY = """
[study]
kind = "training"
plan = "best"
[base]
model = "llama-3.2-1b"
system = "h100-sxm"
gpus = 8
[vary]
seq_len = [512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120, 5632, 6144]
"""


def test_an_interrupt_is_quiet_while_workers_of_a_sweep_begin(
    env: dict[str, str], tmp_path: Path
) -> None:
    ready, study = tmp_path / "ready", tmp_path / "study.toml"
    study.write_text(STUDY)
    slow = patched(env, tmp_path, SLOW_START.format(ready=str(ready)))
    arguments = ("sweep", str(study), "--out", str(tmp_path / "out"), "--workers", "2")
    process = start(slow, *arguments, start_new_session=True)
    code, out, err = interrupted(process, ready)
    assert (code, out) == (130, "")
    # Nothing but how far it was, where the machine was slow enough for that to be said.
    assert all(line.startswith("sweep: ") for line in err.splitlines())


def test_a_reader_that_goes_away_is_no_error(env: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    code, _, err = run(env, "catalog", "models", stdout=write)
    os.close(write)
    assert (code, err) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said(env: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        code, _, err = run(env, "catalog", "models", stdout=full)
    assert (code, err) == (74, "error: cannot write: No space left on device\n")


def test_a_closed_output_is_no_error(env: dict[str, str]) -> None:
    # By a shell: nothing of ours runs between fork and exec, where another thread may hold a lock.
    command = [sys.executable, "-m", "foretell", "catalog", "chips"]
    closed = ["bash", "-c", 'exec "$@" >&-', "bash", *command]
    done = subprocess.run(closed, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")


def test_text_that_the_stream_cannot_hold(env: dict[str, str]) -> None:
    narrow = {**env, "PYTHONIOENCODING": "ascii"}
    code, out, err = run(narrow, *LLAMA, PLAN)
    assert (code, err) == (0, "")
    assert "####" in out
    code, out, err = run(narrow, "estimate", "lama\u00e9", "--system", "h100-sxm")
    assert (code, out) == (2, "")
    assert "lama\\xe9" in err


BROKEN = """
import foretell.api.training

def broken(*args, **more):
    raise KeyError("on\\npurpose")

foretell.api.training.estimate = broken
"""


def test_a_fault_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    broken = patched(env, tmp_path, BROKEN)
    code, out, err = run(broken, *LLAMA, PLAN)
    assert (code, out) == (70, "")
    assert len(err.splitlines()) == 1
    assert "KeyError" in err
    assert "please report it" in err
    assert "Traceback" in run(broken, *LLAMA, PLAN, "--debug")[2]
