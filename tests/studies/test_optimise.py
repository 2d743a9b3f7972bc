"""Trials: reproducible, resumable after a kill, within limits, and better than chance."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretell
from foretell.studies.sweep import optimise as module
from foretell.studies.sweep.optimise import optimise
from foretell.studies.sweep.trials import BATCH
from tests.surfaces.command import foretell as command

ROOT = Path(__file__).parents[2]
CHIP = str(ROOT / "examples" / "codesign_chip.toml")
STUDY: dict[str, Any] = {
    "study": {"kind": "training", "plan": "tp8 zero1 mbs1 recompute=full", "seed": 5},
    "base": {
        "model": "llama-3.1-8b", "system": CHIP, "gpus": 16, "global_batch": 32, "rent": "own",
    },
    "vary": {
        "chip.design.die_area_mm2": {"low": 300, "high": 850},
        "chip.design.memory_stacks": {"low": 2, "high": 10},
        "chip.design.compute_dies": [1, 2, 4],
        "network.cluster.topology": ["fat-tree", "torus-3d"],
    },
    "objectives": {"usd_per_million_work_tokens": "min", "work_tokens_per_s_per_gpu": "max"},
    "limits": {"package_usd": 15000.0},
}  # fmt: skip
QUICK: dict[str, Any] = {
    **STUDY,
    "base": {name: value for name, value in STUDY["base"].items() if name != "rent"},
    "objectives": {"step_s": "min", "energy_joules": "min"},
    "limits": {"peak_memory_bytes": 9e10},
}
"""The same without money, which takes most of the time."""


def rows(found: Any) -> Any:
    """Every trial."""
    return found.to_dict()["rows"]


def test_resumed_is_uninterrupted(tmp_path: Path) -> None:
    """Whatever the storage and wherever it was ended: the same trials, so the same front."""
    whole = optimise(QUICK, trials=19)
    assert whole.trials == 19
    for name in ("a.journal", "b.db"):
        file = tmp_path / name
        first = optimise(QUICK, trials=BATCH + 3, storage=file)
        assert [r["values"] for r in rows(first)] == [r["values"] for r in rows(whole)][: BATCH + 3]
        second = optimise(QUICK, trials=19, storage=file, resume=True)
        assert second.resumed == BATCH + 3
        assert rows(second) == rows(whole)
        with pytest.raises(foretell.BadInput, match="--resume"):
            optimise(QUICK, trials=19, storage=file)
        other = {**QUICK, "limits": {"peak_memory_bytes": 8e10}}
        with pytest.raises(foretell.BadInput, match="another study"):
            optimise(other, trials=19, storage=file, resume=True)
    reseeded = optimise({**QUICK, "study": {**QUICK["study"], "seed": 6}}, trials=4)
    assert rows(reseeded)[0]["values"] != rows(whole)[0]["values"]


def test_the_front_is_within_limits_and_exact() -> None:
    found = optimise(STUDY, trials=24).found
    table, chosen = found.table, found.chosen
    cost, speed = (table.columns[name] for name in chosen.objectives)
    assert (table.columns["package_usd"][chosen.within] <= 15000.0).all()
    places = np.flatnonzero(chosen.within)
    for i in places:
        beaten = any(
            cost[j] <= cost[i]
            and speed[j] >= speed[i]
            and (cost[j], speed[j]) != (cost[i], speed[i])
            for j in places
        )
        assert chosen.front[i] != beaten
    for name, axis in table.values.items():
        if name == "chip.design.memory_stacks":
            assert all(type(value) is int and 2 <= value <= 10 for value in axis)
        if name == "chip.design.die_area_mm2":
            assert all(300 <= value <= 850 for value in axis)
            assert len(set(axis)) > 20  # anything between two ends


def test_it_learns() -> None:
    """One objective with a known place: later trials are nearer to it than the first ones."""
    study = {
        **QUICK, "objectives": {"step_s": "min"}, "limits": {},
        "vary": {
            "chip.design.memory_stack_bytes_per_s": {"low": 2e11, "high": 4e12, "scale": "log"},
            "chip.design.scale_up_bytes_per_s": {"low": 1e11, "high": 1e12, "scale": "log"},
        },
    }  # fmt: skip
    step = [row["step_s"] for row in rows(optimise(study, trials=40))]
    assert np.median(step[-12:]) < np.median(step[:16])


def test_killed_and_resumed(tmp_path: Path) -> None:
    """A process that is killed outright leaves trials that a second one goes on from."""
    study, file = tmp_path / "study.json", tmp_path / "trials.journal"
    study.write_text(json.dumps(QUICK))
    code = (
        "import json, sys, time\n"
        "from foretell.studies.sweep import optimise as m\n"
        "real, calls = m._answers, []\n"
        "def slow(*a):\n"
        "    calls.append(a)\n"
        "    time.sleep(600 if len(calls) > 2 else 0)  # it is killed in here\n"
        "    return real(*a)\n"
        "m._answers = slow\n"
        "m.optimise(json.load(open(sys.argv[1])), trials=24, storage=sys.argv[2])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    worker = subprocess.Popen([sys.executable, "-c", code, str(study), str(file)], env=environment)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and worker.poll() is None:
        if file.exists() and file.read_bytes().count(b'"rows"') >= BATCH:
            break
        time.sleep(0.02)
    assert worker.poll() is None, "it ended before it could be killed"
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    with file.open("ab") as torn:
        torn.write(b'{"op_code": 4, "work')  # as a kill in the middle of a line leaves it
    again = optimise(QUICK, trials=24, storage=file, resume=True)
    assert 0 < again.resumed < 24
    assert rows(again) == rows(optimise(QUICK, trials=24))


def test_an_interrupt_keeps_the_front_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = module._answers, []

    def interrupted(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(module, "_answers", interrupted)
    found = optimise(QUICK, trials=40, storage=tmp_path / "t.journal", out=tmp_path / "out")
    assert found.interrupted
    assert found.trials == 2 * BATCH
    told = json.loads((tmp_path / "out" / "front.json").read_text())
    assert told["trials"] == 2 * BATCH
    assert told["front"]
    assert (tmp_path / "out" / "trials.csv").read_text().count("\n") == 2 * BATCH + 1
    monkeypatch.setattr(module, "_answers", real)
    whole = optimise(QUICK, trials=24, storage=tmp_path / "t.journal", resume=True)
    assert rows(whole) == rows(optimise(QUICK, trials=24))


def test_the_verb(tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(
        f"""
[study]
kind = "training"
plan = "tp8 zero1 mbs1 recompute=full"
[base]
model = "llama-3.1-8b"
system = "{CHIP}"
gpus = 16
global_batch = 32
rent = "own"
[vary]
"chip.design.die_area_mm2" = {{ low = 400, high = 850 }}
[limits]
package_usd = 20000
"""
    )
    told = command("optimise", str(study), "--trials", "5", "--json")
    assert told.code == 0, told.err
    assert (told.json["trials"], told.json["interrupted"]) == (5, False)
    plot = tmp_path / "f.svg"
    shown = command("optimise", str(study), "--trials", "5", "--plot", str(plot))
    assert shown.code == 0
    assert plot.exists()
    assert "5 points" in shown.out
    none = study.read_text().replace("20000", "1")
    study.write_text(none)
    no = command("optimise", str(study), "--trials", "3")
    assert (no.code, no.out) == (1, "")
    assert "the least is" in no.err
    study.write_text(none.replace("rent", "rnt").replace("high", "hgh"))
    bad = command("optimise", str(study), "--trials", "0")
    assert (bad.code, bad.out) == (2, "")
    for word in ("base.rnt", "vary.chip.design.die_area_mm2", "trials"):
        assert word in bad.err
