"""Sweeps that are killed, damaged, full or misused lose nothing and say what is the matter."""

import errno
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

import foretell
from foretell.errors import BadInput
from foretell.studies.axes import point_count
from foretell.studies.study_file import read_study
from foretell.studies.sweep import run as runs
from foretell.studies.sweep import shards
from foretell.studies.sweep.executors import ShardRunner, run_shards, shard_runner
from foretell.studies.sweep.export import export, results
from foretell.studies.sweep.frames import SHARD_PLANS, shard_points
from foretell.studies.sweep.run import resume, status, sweep
from tests.surfaces.command import foretell as command

SMALL: dict[str, Any] = {
    "study": {"kind": "cost"},
    "base": {"node": "N5"},
    "vary": {"area": [100, 200, 300, 400, 500], "dies": [1, 2]},
}
SMALL_TOML = """
[study]
kind = "cost"
[base]
node = "N5"
[vary]
area = [100, 200, 300, 400, 500]
dies = [1, 2]
"""
SLOW_TOML = """
[study]
kind = "training"
[base]
model = "llama-3.1-8b"
system = "h100-sxm"
global_batch = 256
[vary]
gpus = [16]
"chip.memory_bandwidth_bytes_per_s" = { low = "2 TB/s", high = "8 TB/s", steps = 20 }
"""


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of three points, so that a small study has several."""
    from foretell.studies.sweep import frames

    monkeypatch.setattr(frames, "SHARD_POINTS", dict.fromkeys(frames.SHARD_POINTS, 3))


def names(folder: Path) -> list[str]:
    """Shards by their names, which hold the hash of their content."""
    return sorted(path.name for path in (folder / "shards").iterdir())


def csv(folder: Path) -> bytes:
    """All results."""
    out = folder.with_suffix(".csv")
    export(folder, out=out)
    return out.read_bytes()


def test_a_sweep_and_its_export(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = sweep(
        SMALL, out=tmp_path / "a", progress=lambda done, total: seen.append((done, total))
    )
    assert (found.complete, found.points, found.shards, found.corrupt) == (True, 10, 4, ())
    assert seen == [(0, 10), (3, 10), (6, 10), (9, 10), (10, 10)]
    table = pl.read_csv(csv(tmp_path / "a"))
    assert table["point"].to_list() == list(range(10))
    assert table["area"].to_list() == [100, 100, 200, 200, 300, 300, 400, 400, 500, 500]
    told = export(tmp_path / "a", out=tmp_path / "a.parquet")
    assert pl.read_parquet(tmp_path / "a.parquet").equals(results(tmp_path / "a").collect())
    assert (told.rows, told.complete) == (10, True)
    query = 'SELECT dies, MIN(usd) AS usd FROM sweep WHERE "area" > 100 GROUP BY dies ORDER BY dies'
    export(tmp_path / "a", out=tmp_path / "q.csv", sql=query)
    least = (
        table.filter(pl.col("area") > 100).group_by("dies").agg(pl.col("usd").min()).sort("dies")
    )
    assert pl.read_csv(tmp_path / "q.csv").equals(least)


def test_two_processes_write_what_one_writes(tmp_path: Path) -> None:
    sweep(SMALL, out=tmp_path / "one")
    study = runs.read_study(SMALL)
    with ThreadPoolExecutor(2) as pool:  # an executor of the caller's own
        sweep(SMALL, out=tmp_path / "threads", executor=pool)
        assert pool.submit(int, 1).result() == 1
    assert names(tmp_path / "one") == names(tmp_path / "threads")
    place = shard_runner("process", 2)
    assert place is not None
    found = dict(run_shards(study, [0], place))
    assert list(found) == [0]


NEVER_DONE = """
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    import time
    from foretell.studies.sweep import shards

    shards.shard_bytes = lambda study, number: time.sleep(600)
elif "sweep" in sys.orig_argv:
    from foretell.studies.sweep import executors

    executors.BEGIN_S = 0.0  # workers are begun after the first shard, however quick that is
"""
"""What a worker runs first, so that the sweep is still at work however late it is killed."""


def test_killed_in_the_middle_and_resumed_is_as_if_it_had_not_been(tmp_path: Path) -> None:
    file, folder = tmp_path / "study.toml", tmp_path / "killed"
    file.write_text(SLOW_TOML)
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(NEVER_DONE)
    words = [sys.executable, "-m", "foretell", "sweep", str(file), "--out", str(folder)]
    words += ["--workers", "2"]
    source = str(Path(foretell.__file__).parents[1])
    path = os.pathsep.join([str(tmp_path / "first"), source, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path})
    end = time.monotonic() + 300
    workers: list[psutil.Process] = []
    while len(workers) < 2 or len(list((folder / "shards").glob("*.parquet"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)
        workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    # Its worker ends with it, and what watches over their memory.
    assert psutil.wait_procs(workers, timeout=120)[1] == []
    halfway = status(folder)
    assert not halfway.complete
    assert not halfway.running
    assert 0 < halfway.shards_done < halfway.shards
    before = {path: path.stat().st_mtime_ns for path in (folder / "shards").glob("*.parquet")}
    (folder / "shards" / ".0000003-x.parquet.part").write_bytes(b"half")
    assert resume(folder).complete
    # What was there was not done again, and what was half there is gone.
    assert all(path.stat().st_mtime_ns == then for path, then in before.items())
    sweep(file, out=tmp_path / "whole")
    assert names(folder) == names(tmp_path / "whole")
    assert csv(folder) == csv(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_corrupt_shard_is_found_and_done_again(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "a"
    sweep(SMALL, out=folder)
    whole = names(folder)
    path = folder / "shards" / whole[1]
    content = path.read_bytes()
    flipped = bytes([content[100] ^ 1])
    changed = {
        "cut": content[:-50],
        "changed": content[:100] + flipped + content[101:],
        "empty": b"",
    }
    path.write_bytes(changed[damage])
    found = status(folder)
    assert found.corrupt == (whole[1],)
    assert (found.complete, found.shards_done) == (False, 3)
    told = export(folder, out=tmp_path / "part.csv")
    assert (told.complete, told.rows, told.points_done) == (False, 7, 7)
    assert resume(folder).complete
    assert names(folder) == whole
    assert path.read_bytes() == content


def test_another_study_or_program_is_not_mixed_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(SMALL, out=tmp_path)
    other = {**SMALL, "vary": {"area": [100], "dies": [1, 2]}}
    with pytest.raises(BadInput, match="results of another study"):
        sweep(other, out=tmp_path)
    monkeypatch.setattr(shards, "program_hash", lambda: "another")
    with pytest.raises(BadInput, match="another version of foretell"):
        resume(tmp_path)


def test_one_sweep_at_a_time(tmp_path: Path) -> None:
    sweep(SMALL, out=tmp_path)
    with shards.lock_folder(tmp_path):
        assert status(tmp_path).running
        with pytest.raises(BadInput, match="another sweep is writing"):
            resume(tmp_path)
    assert not status(tmp_path).running


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, folder = tmp_path / "study.toml", tmp_path / "a"
    file.write_text(SMALL_TOML)
    synced = os.fsync
    left = [3]  # the manifest and two shards

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        # The command's own streams are texts here.
        patch.setattr(import_module("foretell.cli.dispatch"), "_drop_output", lambda: None)
        outcome = command("sweep", str(file), "--out", str(folder))
    assert outcome.code == 74
    assert outcome.out == ""
    assert "No space left on device; what was done is kept: foretell sweep resume" in outcome.err
    assert len(names(folder)) == 2
    assert resume(folder).complete


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(BadInput, match="cannot be written: Read-only file system"):
        sweep(SMALL, out=tmp_path / "a")


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is a file"):
        sweep(SMALL, out=tmp_path / "file")
    with pytest.raises(BadInput, match="cannot be written: Not a directory"):
        sweep(SMALL, out=tmp_path / "file" / "below")


def test_a_huge_study_asks_first(tmp_path: Path) -> None:
    many = {"low": 100, "high": 800, "steps": 1000}
    huge = {**SMALL, "vary": {"area": many, "volume": {**many, "high": 900}}}
    with pytest.raises(BadInput, match=r"1,000,000 points, more than 100,000.*--yes"):
        sweep(huge, out=tmp_path / "a")
    huge["vary"]["die_to_die"] = {**many, "high": 1e13, "steps": 10_000}
    with pytest.raises(BadInput, match="10,000,000,000 points"):
        sweep(huge, out=tmp_path / "a", yes=True)
    assert not (tmp_path / "a").exists()


def test_values_are_looked_at_before_anything_is_asked(tmp_path: Path) -> None:
    study = {
        "study": {"kind": "training"},
        "base": {"model": "llama-3.1-8b"},
        "vary": {"system": ["h100-sxm", "h1000-sxm"], "chip.tdp_wats": [1]},
        "objectives": {"step_ms": "min"},
    }
    with pytest.raises(BadInput) as error:
        sweep(study, out=tmp_path / "a", workers=0, executor="dusk")
    told = str(error.value)
    assert "did you mean step_s?" in told
    assert "workers: not usable" in told
    del study["objectives"]
    with pytest.raises(BadInput) as error:
        sweep(study, out=tmp_path / "a", executor="dusk")
    told = str(error.value)
    for said in ("h1000-sxm", "did you mean tdp_watts?", "process, dask, dask://host:port"):
        assert said in told
    with pytest.raises(BadInput, match="model: missing"):
        sweep({**study, "base": {}, "vary": {"gpus": [8]}}, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_the_command_line(tmp_path: Path) -> None:
    file, folder = tmp_path / "study.toml", tmp_path / "a"
    file.write_text(SMALL_TOML)
    found = command("sweep", str(file), "--out", str(folder), "--json")
    assert (found.code, found.err, found.json["complete"]) == (0, "", True)
    assert command("sweep", "status", str(folder), "--json").json["points_done"] == 10
    assert "complete, 10 of 10 points" in command("sweep", "resume", str(folder)).out
    out = tmp_path / "a.csv"
    told = command("sweep", "export", str(folder), "--out", str(out), "--json").json
    assert (told["rows"], told["columns"][:3]) == (10, ["point", "area", "dies"])
    for words, said in (
        (("status", str(tmp_path)), "holds no sweep"),
        (("resume", str(tmp_path / "no")), "holds no sweep"),
        (("export", str(folder), "--out", "a.xlsx"), ".csv, .parquet"),
        (("export", str(folder), "--out", str(out), "--sql", "SELECT nix FROM sweep"), "nix"),
        (("export", str(folder), "--out", str(out), "--sql", "nonsense"), "cannot be answered"),
        ((str(tmp_path / "no.toml"), "--out", str(folder)), "no such file"),
        ((str(file), "--out", str(folder), "--workers", "many"), "workers"),
    ):
        outcome = command("sweep", *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert said in outcome.err
    (folder / "manifest.json").write_text("{")
    assert "is damaged" in command("sweep", "status", str(folder)).err


def test_a_killed_worker_of_a_pool_is_replaced(tmp_path: Path) -> None:
    """The first worker to come kills itself; a new pool does what it had on its hands."""
    from concurrent.futures.process import BrokenProcessPool

    from foretell.studies.sweep.executors import ShardRunner, _as_it_is

    class Dying(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise BrokenProcessPool("a worker was killed")

    study = runs.read_study(SMALL)
    with ThreadPoolExecutor(1) as good, Dying(1) as dying:
        pools = iter([dying, dying, good])
        place = ShardRunner(open=lambda: _as_it_is(next(pools)), ahead=2)
        found = [number for number, _ in run_shards(study, iter(range(4)), place)]
        assert sorted(found) == [0, 1, 2, 3]
        with pytest.raises(BadInput, match="workers died"):
            list(run_shards(study, iter([0]), ShardRunner(open=lambda: _as_it_is(dying), ahead=1)))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_with_a_worker_killed(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    file = tmp_path / "study.toml"
    file.write_text(SLOW_TOML)
    sweep(file, out=tmp_path / "alone")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        killed: list[int] = []

        def kill_one(done: int, total: int) -> None:
            if done and not killed:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        address = cluster.scheduler_address.removeprefix("tcp://")
        found = sweep(file, out=tmp_path / "dask", executor=f"dask://{address}", progress=kill_one)
    assert killed
    assert found.complete
    assert names(tmp_path / "dask") == names(tmp_path / "alone")
    assert csv(tmp_path / "dask") == csv(tmp_path / "alone")


def test_no_scheduler_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import distributed

    def nobody(*_: Any, **__: Any) -> None:
        raise OSError("timed out")

    monkeypatch.setattr(distributed, "Client", nobody)
    with pytest.raises(BadInput, match="no Dask scheduler answers"):
        sweep(SMALL, out=tmp_path / "a", executor="dask://localhost:1")


def test_the_example_is_a_study_of_many_shards(root: Path) -> None:
    from foretell.studies.sweep.frames import shard_count

    study = runs.read_study(root / "examples" / "sweep_small.toml")
    assert runs.trial_problems(study) == []
    assert shard_count(study) >= 8


def test_shards_are_about_a_second_for_studies_over_plan_words_too() -> None:
    """Few plans a question: questions decide, and a kill loses a second of them, not the whole study."""
    vary = {"seq_len": list(range(512, 512 + 720)), "plan.tp": [1, 2, 4], "plan.zero": [1, 3]}
    base = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8}
    study = {"study": {"kind": "training", "plan": "flash"}, "base": base, "vary": vary}
    known = read_study(study)
    assert shard_points(known) < 500 < point_count(known)
    words = {"plan.tp": [1, 2, 4], "plan.zero": [1, 3]}
    assert shard_points(read_study({**study, "vary": words})) == SHARD_PLANS


def test_a_small_sweep_begins_no_workers() -> None:
    def never() -> Any:
        raise AssertionError("workers were begun for less than they take to begin")

    place = ShardRunner(open=never, ahead=2, workers=2)
    base = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 8}
    study = read_study(
        {
            "base": base,
            "vary": {"plan.tp": [1, 2, 4]},
            "study": {"kind": "training", "plan": "flash"},
        }
    )
    found = dict(run_shards(study, iter([0]), place, 1))
    assert found == dict(run_shards(study, [0], None))
