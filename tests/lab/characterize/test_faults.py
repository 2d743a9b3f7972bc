"""Faults: a clear word, finished points kept, no process left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from foretell.errors import BadInput
from foretell.lab.characterize import launch, run, table
from foretell.lab.characterize.config import JobPoint
from foretell.lab.characterize.launch import NodePlace
from foretell.lab.characterize.run import characterize
from tests.surfaces.command import foretell

STUB = Path(__file__).with_name("stub.py")
SIZES = {"hidden": 32, "layers": 2, "heads": 4, "ffn": 64, "vocab": 64}
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


def matrix(*models: str, **more: Any) -> dict[str, Any]:
    return {
        "run": {"device": "cpu", "steps": 1, "warmup": 0, "threads": 1, "timeout_s": 60.0, **more},
        "base": {"seq_len": 8, "plan": "weights=fp16"},
        "vary": {"model": list(models)},
        "model": dict.fromkeys(models, SIZES),
    }


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are not trained; nor are their tables made."""

    def command(point: JobPoint, task: Path, place: NodePlace) -> list[str]:
        return [sys.executable, str(STUB), str(task)]

    monkeypatch.setattr(launch, "command", command)
    monkeypatch.setattr(run, "find_spec", lambda name: True)
    monkeypatch.setattr(table, "write_parquet", lambda folder, rows: ("", ""))


def there(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be looked at does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pids: list[int], limit_s: float = 120.0) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end and any(there(pid) for pid in pids):
        time.sleep(0.05)
    return not any(there(pid) for pid in pids)


@pytest.mark.usefixtures("stubbed")
def test_a_fault_costs_its_point_alone(tmp_path: Path) -> None:
    models = ("first", "dies", "second", "fails", "lacks", "third")
    found = characterize(matrix(*models), out=tmp_path)
    what = {row.point.model: (row.status, row.why) for row in found.rows}
    assert [what[m][0] for m in ("first", "second", "third")] == ["finished"] * 3
    assert "SIGKILL" in what["dies"][1]
    assert what["fails"] == ("failed", "ValueError: it went wrong")
    assert what["lacks"] == ("failed", "out of memory: 1 TB")


@pytest.mark.usefixtures("stubbed")
def test_a_hang_is_ended_with_all_it_started(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    found = characterize(
        matrix("first", "hangs", "second"),
        out=tmp_path,
        timeout=2.0,
        tell=lambda done, many, text: told.append((done, many, text)),
    )
    assert [row.status for row in found.rows] == ["finished", "failed", "finished"]
    assert "no sign of life" in found.rows[1].why
    assert gone([int(word) for word in (tmp_path / "child").read_text().split()])
    assert told[-1][:2] == (3, 3)
    # What failed is tried again, what is finished is not.
    before = (tmp_path / "points").stat().st_mtime_ns
    again = characterize(matrix("first", "hangs", "second"), out=tmp_path, timeout=2.0, resume=True)
    assert [row.status for row in again.rows] == ["finished", "failed", "finished"]
    assert (tmp_path / "points").stat().st_mtime_ns == before


@pytest.mark.usefixtures("stubbed")
def test_what_cannot_begin_says_so_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = [sys.executable, "-c", "import sys; sys.exit(3)"]
    monkeypatch.setattr(launch, "command", lambda point, task, place: bad)
    with pytest.raises(BadInput, match="nothing could be run"):
        characterize(matrix("first"), out=tmp_path)


def test_folders_and_files_that_will_not_do(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text("[base]\nmodel = 'llama-2-7b'\nseq_len = 8\n")
    (tmp_path / "file").touch()
    name = str(tmp_path / "matrix.toml")
    told = foretell("characterize", "run", name, "--out", str(tmp_path / "file"))
    assert (told.code, told.out) == (2, "")
    assert "is not a folder" in told.err
    told = foretell("characterize", "run", str(tmp_path / "none.toml"))
    assert (told.code, told.out) == (2, "")


def test_a_dry_run_leaves_out_what_will_not_fit(tmp_path: Path) -> None:
    lines = ["[run]", "system = 'h100-sxm'", "[base]", "seq_len = 4096", "[vary]"]
    lines += ["model = ['llama-2-7b', 'llama-2-70b']", "plan = ['', 'zero3 dp8']"]
    lines[3:3] = ["processes = 8"]
    (tmp_path / "matrix.toml").write_text("\n".join(lines))
    told = foretell("characterize", "run", str(tmp_path / "matrix.toml"), "--dry-run", "--json")
    assert told.code == 0
    states = [(p["model"], p["status"]) for p in told.json["points"]]
    assert states.count(("llama-2-7b", "planned")) >= 1
    assert states.count(("llama-2-70b", "left out")) == 2
    for point in told.json["points"]:
        shares = point["predicted"]["shares_s"]
        assert sum(shares.values()) == pytest.approx(point["predicted"]["step_s"])
        assert point["measured"] is None
    text = foretell("characterize", "run", str(tmp_path / "matrix.toml"), "--dry-run")
    assert "will not fit" in text.out
    assert not (tmp_path / "characterization").exists()


@needs_torch
def test_memory_that_runs_out(tmp_path: Path) -> None:
    given = matrix("plain", "huge", "other")
    given["model"]["huge"] = {**SIZES, "vocab": 10**9, "hidden": 2**20}
    found = characterize(given, out=tmp_path / "a")
    assert [row.status for row in found.rows] == ["finished", "failed", "finished"]
    assert found.rows[1].why.startswith("out of memory")


@pytest.mark.full
@needs_torch
def test_a_missing_device(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("it is there")
    with pytest.raises(BadInput, match="no CUDA device"):
        characterize(matrix("plain", device="cuda"), out=tmp_path)


@needs_torch
def test_ranks_end_with_each_other_and_with_their_supervisor(root: Path, tmp_path: Path) -> None:
    """A rank that is killed costs its point at most; a supervisor that is killed leaves no process."""
    # More points than are ever come to: it is killed after two.
    given = matrix(*"abcdefghijklmnop", timeout_s=120.0, seconds=0.3)
    lines = ["[run]", *(f"{k} = {json.dumps(v)}" for k, v in given["run"].items())]
    lines += ["[base]", "seq_len = 8", "processes = 2", 'plan = "weights=fp16"']
    lines += ["[vary]", f"model = {json.dumps(given['vary']['model'])}"]
    for name, sizes in given["model"].items():
        lines += [f"[model.{name}]", *(f"{k} = {v}" for k, v in sizes.items())]
    (tmp_path / "matrix.toml").write_text("\n".join(lines))
    out = tmp_path / "out"

    def finished() -> dict[Path, int]:
        return {p: p.stat().st_mtime_ns for p in (out / "points").glob("[!.]*.json")}

    def ranks_at(many: int) -> list[int]:
        """torchrun and the ranks when so many points are finished."""
        end = time.monotonic() + 300.0
        while time.monotonic() < end and process.poll() is None and len(finished()) < many:
            time.sleep(0.02)
        return below(process.pid)

    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "foretell.lab.characterize",
            str(tmp_path / "matrix.toml"),
            "--out",
            out,
        ],
        env={**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        first = ranks_at(1)
        assert len(first) == 3
        kept = finished()
        os.kill(first[-1], signal.SIGKILL)
        assert gone(first)
        second = ranks_at(len(kept) + 1)
        process.kill()
    assert gone(second)
    now = finished()
    assert len(now) > len(kept)
    assert all(now[path] == when for path, when in kept.items())
    lost = [json.loads(p.read_text())["why"] for p in (out / "failed").glob("*.json")]
    assert len(lost) <= 1  # killed between two points, a rank costs none
    # Which of these the other rank meets hangs on what was under way between them.
    told = ("SIGKILL", "Connection closed", "Connection reset", "Broken pipe")
    assert all(any(words in why for words in told) for why in lost), lost


def below(pid: int) -> list[int]:
    """Processes started by one, and by those."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(path.parent.name)
            found += [child, *below(child)]
    return found


def test_waits_of_tensor_parallelism_are_a_share_of_their_own(tmp_path: Path) -> None:
    lines = ["[run]", "system = 'h100-sxm'", "[base]", "seq_len = 4096", "processes = 2"]
    lines += ["[vary]", "model = ['llama-2-7b']", "plan = ['tp2', 'tp2 recompute=full', 'pp2']"]
    (tmp_path / "matrix.toml").write_text("\n".join(lines))
    told = foretell("characterize", "run", str(tmp_path / "matrix.toml"), "--dry-run", "--json")
    plain, again, stages = (p["predicted"]["shares_s"] for p in told.json["points"])
    assert plain["tensor"] > 0.0
    assert again["tensor"] == pytest.approx(1.5 * plain["tensor"], rel=0.1)
    assert again["forward"] == pytest.approx(plain["forward"], rel=0.01)
    assert stages["tensor"] == 0.0
