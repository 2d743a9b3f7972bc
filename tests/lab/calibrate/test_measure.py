"""Measuring on a plain CPU, in short form: that it runs, resumes and tells; never how fast."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.cli import measurements as cli
from foretell.errors import BadInput
from foretell.lab.calibrate.measure import file, plan, run
from foretell.lab.calibrate.measure.clock import _count
from foretell.lab.calibrate.measure.file import HostMachine, MeasurePoint, key_of
from foretell.lab.calibrate.measure.power import means
from foretell.lab.calibrate.measure.worker import WorkerTask

CARD = HostMachine(
    device="cuda",
    chip="a card",
    software="torch",
    memory_bytes=140e9,
    l2_bytes=60e6,
    half="bf16",
    fp8=True,
)
OLD_CARD = dataclasses.replace(CARD, half="fp16", fp8=False)
PROCESSOR = dataclasses.replace(CARD, device="cpu", half="", fp8=False)
HOSTS = [CARD, OLD_CARD, PROCESSOR, dataclasses.replace(PROCESSOR, short=True)]
needs_torch = pytest.mark.skipif(not run.find_spec("torch"), reason="PyTorch is not installed")


def fake(group: str, level: int, cost_s: float, size: int) -> MeasurePoint:
    return MeasurePoint(
        group=group, family=group, dims={"n": size}, dtype="fp32", level=level, cost_s=cost_s
    )


@pytest.mark.parametrize("host", HOSTS)
def test_points_of_a_plan_differ_and_say_what_they_need(host: HostMachine) -> None:
    points = plan.points(host)
    assert {point.group for point in points} == set(plan.GROUPS) - {"collectives"}
    assert len({point.key for point in points}) == len(points)
    for point in points:
        assert point.cost_s > 0
        assert math.isfinite(point.memory_bytes)
        assert all(isinstance(size, int) and size >= 0 for size in point.dims.values())
        assert host.device == "cuda" or point.launch != "graph"


def test_several_processes_measure_collectives_alone() -> None:
    points = plan.points(dataclasses.replace(CARD, world=8))
    assert {point.group for point in points} == {"collectives"}
    assert {point.dims["ranks"] for point in points} == {2, 4, 8}


def test_several_processes_measure_named_groups_side_by_side() -> None:
    """On a host without what may end a process, which would end the others."""
    host = dataclasses.replace(PROCESSOR, world=2)
    points = plan.points(host, ("gemm", "collectives"))
    assert {point.group for point in points} == {"gemm", "collectives"}
    assert {point.dtype for point in points} == {"fp32"}
    assert {p.dtype for p in plan.points(dataclasses.replace(host, world=1), ("gemm",))} > {"fp32"}


def test_only_names_groups() -> None:
    assert {point.group for point in plan.points(CARD, ("gemm", "copies"))} == {"gemm", "copies"}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(plan.SHARES)), st.integers(0, 3))), st.floats(0, 9)
)
def test_a_queue_gives_every_point_that_fits_once_and_coarse_ones_first(
    some: list[tuple[str, int]], left_s: float
) -> None:
    todo = [fake(group, level, float(i % 5), i) for i, (group, level) in enumerate(some)]
    queue, given_out = plan.Queue(todo, {}), []
    while (point := queue.next(left_s)) is not None:
        given_out.append(point)
        queue.took(point, 0.0)
    assert Counter(p.key for p in given_out) == Counter(p.key for p in todo if p.cost_s <= left_s)
    assert len(queue) == len(todo) - len(given_out)
    for group in plan.SHARES:
        levels = [p.level for p in given_out if p.group == group]
        assert levels == sorted(levels)


def test_groups_get_their_share_of_the_time() -> None:
    names = ("gemm", "attention", "pointwise")
    todo = [fake(group, 0, 1.0, i) for i in range(1000) for group in names]
    queue = plan.Queue(todo, {})
    for _ in range(600):
        point = queue.next(10.0)
        assert point is not None
        queue.took(point, 1.0)
    whole = sum(plan.SHARES[name] for name in names)
    for name in names:
        assert queue.spent_s[name] == pytest.approx(600 * plan.SHARES[name] / whole, abs=1.5)


@given(st.floats(1e-7, 10), st.floats(1e-4, 1), st.integers(1, 128))
def test_a_stretch_takes_all_buffers_in_turn(guess_s: float, target_s: float, sets: int) -> None:
    count = _count(guess_s, target_s, sets)
    assert 1 <= count <= 256
    assert count < sets or count % sets == 0


def test_mean_power_comes_from_the_energy_counter() -> None:
    samples = [
        (0.1 * i, {"watts": 500.0, "joules": 60.0 * i, "throttle": 4.0 * (i % 2)})
        for i in range(11)
    ]
    told = means(samples)
    assert told["watts"] == pytest.approx(600.0)
    assert told["throttle"] == {"power-cap": pytest.approx(5 / 11, abs=1e-3)}
    assert means([]) == {}


def test_a_torn_line_is_skipped_and_what_follows_stands(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    point, where = fake("gemm", 0, 1.0, 3), {"chip": "c", "software": "s"}
    file.append(path, {"kind": "environment"})
    path.write_text(path.read_text() + '{"kind": "point", "stat')
    file.append(path, file.done_line(point, where, {"seconds": math.nan}))
    assert [line["kind"] for line in file.lines(path)] == ["environment", "point"]
    assert file.points(path)[0]["seconds"] is None
    assert file.finished_keys(path, "c", "s", False) == {point.key}
    assert file.finished_keys(path, "c", "another torch", False) == set()


def test_failed_points_are_tried_again_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    point, where = fake("gemm", 0, 1.0, 3), {"chip": "c", "software": "s"}
    told = {"group": point.group, **point.identity()}
    file.append(path, file.failed_line(told, where, "no\n such   kernel"))
    assert next(file.lines(path))["reason"] == "no such kernel"
    assert file.finished_keys(path, "c", "s", False) == {point.key}
    assert file.finished_keys(path, "c", "s", True) == set()


def test_what_ended_a_worker_spoils_its_sort_alone(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    small, large, other = (
        fake(group, 0, 1.0, n) for group, n in (("gemm", 1), ("gemm", 2), ("copies", 1))
    )
    told = {"group": small.group, **small.identity()}
    file.append(path, {**file.failed_line(told, {}, "code -4"), "fatal": True})
    deadly = file.fatal(path)
    assert file.sort_of(large.identity()) in deadly
    assert file.sort_of(other.identity()) not in deadly


def test_bad_input_is_told_all_at_once(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("a letter\n")
    with pytest.raises(BadInput) as caught:
        run.measure(other, minutes=0.0, only=("gem",), memory_share=2.0)
    found = {problem.path: problem for problem in caught.value.problems}
    assert {"minutes", "memory_share", "only", "out"} <= set(found)
    assert found["only"].nearest == "gemm"


def test_a_task_survives_its_argument() -> None:
    task = WorkerTask(out="f", seconds=3.0, only=("gemm",), spent_s={"gemm": 1.5})
    assert WorkerTask.of_json(task.to_json()) == task


HANGING = """
import json, pathlib, sys, time
task = json.loads(sys.argv[2])
out = pathlib.Path(task["out"])
def tell(**message):
    print(json.dumps(message), flush=True)
tell(what="hello", devices=1, chip="c", software="s", todo=2)
if not out.exists():
    point = {"group": "gemm", "family": "gemm", "variant": "", "dims": {"m": 1}, "dtype": "fp32",
             "pass": "forward", "mode": "burst", "launch": "eager"}
    tell(what="start", point=point, text="", guard_s=0.2)
    time.sleep(3600)
tell(what="end", skipped=0, left=1)
"""


def test_a_point_that_hangs_fails_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hanging_worker.py").write_text(HANGING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(run, "MODULE", "hanging_worker")
    monkeypatch.setattr(run, "find_spec", lambda name: name)
    begin = time.monotonic()
    found = run.measure(tmp_path / "points.jsonl", minutes=20.0, processes=1)
    assert time.monotonic() - begin < 300.0
    assert found.left == 1
    (line,) = file.lines(tmp_path / "points.jsonl")
    assert (line["status"], line["chip"]) == ("failed", "c")
    assert "no answer" in line["reason"]


MINUTES = "20"
"""Some seconds are enough; none of what is measured may be left out on a loaded machine."""


def command(out: Path, *more: str) -> list[str]:
    start = [sys.executable, "-m", "foretell.lab.calibrate.measure", "--out", str(out)]
    return [*start, "--device", "cpu", "--short", "--minutes", MINUTES, *more]


def environ(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}


@needs_torch
def test_a_killed_run_resumes_and_measures_every_point_once(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "points.jsonl"
    with subprocess.Popen(
        command(out), env=environ(root), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        limit = time.monotonic() + 300.0
        while time.monotonic() < limit and (not out.exists() or len(file.points(out)) < 3):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    first = len(file.points(out))
    assert first >= 3
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert (
        cli.measure(
            out=str(out), device="cpu", short=True, minutes=float(MINUTES), processes=1, json=True
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told["left"] == told["skipped"] == 0
    lines = list(file.lines(out))
    assert lines[0]["kind"] == "environment"
    assert lines[0]["libraries"]["torch"]
    found = [line for line in lines if file.is_point(line)]
    assert [line.get("reason") for line in found if line["status"] == "failed"] == []
    short = dataclasses.replace(PROCESSOR, short=True)
    assert Counter(key_of(line) for line in found) == Counter(p.key for p in plan.points(short))
    for line in found:
        assert math.isfinite(line["seconds"])
        assert line["seconds"] > 0
        assert line["spread"] >= 0
        assert line["repeats"] >= 1
        assert (line["chip"], line["software"]) == (told["chip"], told["software"])


@needs_torch
def test_processes_started_together_measure_collectives(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "points.jsonl"
    start = command(out)
    together = [start[0], "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*together, *start[1:]], env=environ(root), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    found = file.points(out)
    assert {line["family"] for line in found} >= {"all_reduce", "all_gather", "send_recv"}
    assert all(line["dims"]["ranks"] == 2 and line["seconds"] > 0 for line in found)
    assert json.loads(done.stdout)["groups"]["collectives"]["done"] == len(found)


@needs_torch
def test_one_command_measures_the_links_between_local_processes(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "points.jsonl"
    words = [*command(out), "--only", "launch,collectives"]
    done = subprocess.run(
        words, env=environ(root), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    families = {line["family"] for line in file.points(out) if line["group"] == "collectives"}
    assert families >= {"all_reduce", "all_gather", "send_recv"}
    assert json.loads(done.stdout)["groups"]["collectives"]["done"] >= len(families)
