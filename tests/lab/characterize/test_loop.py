"""The loop closed on this machine: calibrate it, predict a ladder, train it for real, compare.

Held to each other is what does not depend on a clock: messages exactly, tensors to a tenth, shares that add
up, and that training learns. How near the times are, is for tests/bench/bench_characterize.py to say.
"""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from foretell.lab.characterize.config import JobPoint
from foretell.lab.characterize.predict import HELD, PointPrediction, predict
from tests.surfaces.command import foretell

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")

MODELS = {
    "small": {"hidden": 32, "layers": 3, "heads": 4, "kv_heads": 2, "ffn": 96, "vocab": 128},
    "gpt": {"style": "gpt", "hidden": 48, "layers": 2, "heads": 4, "ffn": 192, "vocab": 160},
}
CAST = "precision=fp16 weights=fp32 master=none"
"""Weights in 32 bits, products in 16."""
MATRIX = {
    ("small", 1): ["", CAST, "gradients=fp16 recompute=full", "gradients=fp16"],
    ("gpt", 1): ["", CAST],
    ("small", 2): [
        *("zero0", "zero1", "zero2", "zero3", "zero3 recompute=full"),
        *("zero1 weights=fp32 master=none", "zero2 weights=fp32 master=none"),
        *("tp2", "tp2 no-sp recompute=full", "pp2", "pp2 schedule=gpipe"),
        *(f"{word} {CAST}" for word in ("zero1", "zero3", "tp2", "tp2 no-sp", "pp2")),
    ],
    ("gpt", 2): ["zero0", "zero1", "zero2", "zero3", "tp2", f"tp2 {CAST}"],
}
"""(model, processes) -> plans."""
NOT_PRICED = ("loss", "norms", "receive")
"""Messages that the closed form leaves out: some numbers a token, some weights of norms; receives are the
sends of others."""


def config(system: str) -> str:
    """The matrix; float16 stands for 16 bits, which every CPU multiplies."""
    half = "weights=fp16"
    points = [(*place, text) for place, texts in MATRIX.items() for text in texts]
    lines = ["[run]", 'device = "cpu"', f"system = {json.dumps(system)}", "steps = 2"]
    lines += ["warmup = 0", "threads = 1", "memory_share = 100.0", "[base]", "seq_len = 32"]
    lines += ["micro_batch = 2", "micro_batches = 2"]
    for model, processes, text in points:
        lines += ["[[point]]", f'model = "{model}"', f"processes = {processes}"]
        lines += [f'plan = "{text if "weights" in text else f"{text} {half}"}"']
    for name, sizes in MODELS.items():
        lines += [f"[model.{name}]", *(f"{k} = {json.dumps(v)}" for k, v in sizes.items())]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def chip(root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """This machine, calibrated in the shortest form."""
    folder = tmp_path_factory.mktemp("chip")
    points, chip = str(folder / "points.jsonl"), str(folder / "cpu.toml")
    words = ["--short", "--device", "cpu", "--minutes", "20", "--only", "gemm,copies,pointwise"]
    subprocess.run(
        [sys.executable, "-m", "foretell.lab.calibrate.measure", "--out", points, *words],
        check=True,
        env={**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=600,
    )
    assert foretell("calibrate", "fit", points, "--chip", "cpu", "--out", chip).code == 0
    return chip


@pytest.fixture(scope="module")
def ran(chip: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The folder of a real run, and what it printed."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "matrix.toml").write_text(config(chip))
    told = foretell(
        "characterize", "run", str(folder / "matrix.toml"), "--out", str(folder / "out"), "--json"
    )
    assert told.code == 0, told.out + told.err
    return folder / "out", told.json


@pytest.fixture(scope="module")
def points(ran: tuple[Path, Any], chip: str) -> list[tuple[dict[str, Any], PointPrediction]]:
    """Every finished point with its prediction."""
    tables = [json.loads(p.read_text()) for p in sorted((ran[0] / "points").glob("*.json"))]
    assert len(tables) == sum(len(texts) for texts in MATRIX.values())
    return [(table, predict(JobPoint.of_dict(table["point"]), chip)) for table in tables]


Points = list[tuple[dict[str, Any], PointPrediction]]


def test_messages_are_those_predicted(points: Points) -> None:
    seen = 0
    for table, guess in points:
        for rank in table["ranks"]:
            stage = guess.stages[rank["place"]["stage"]]
            want = {
                (m.axis, m.what, m.kind, m.group): (m.count, m.bytes) for m in stage.collectives
            }
            for step in rank["steps"]:
                got = {
                    (m["axis"], m["what"], m["kind"], m["group"]): (m["count"], m["bytes"])
                    for m in step["collectives"]
                    if m["what"] not in NOT_PRICED and m["kind"] not in NOT_PRICED
                }
                assert got == want, table["point"]
                seen += len(got)
    assert seen > 100


def test_tensors_take_what_was_predicted(points: Points) -> None:
    for table, guess in points:
        for rank in table["ranks"]:
            want = guess.stages[rank["place"]["stage"]].held_bytes
            got = rank["held_bytes"]
            for name in HELD:
                assert got[name] == pytest.approx(want[name], rel=0.1), (name, table["point"])
            assert sum(got[n] for n in HELD) == pytest.approx(sum(want[n] for n in HELD), rel=0.05)


def test_shares_add_up_and_nothing_is_hidden_twice(points: Points) -> None:
    for table, guess in points:
        assert sum(guess.shares_s.values()) == pytest.approx(guess.step_s, rel=1e-9)
        assert guess.low_s <= guess.step_s <= guess.high_s
        for rank in table["ranks"]:
            for step in rank["steps"]:
                shares = step["shares_s"]
                waits = sum(s for label, s in shares.items() if "." in label)
                exposed = sum(m["exposed_s"] for m in step["collectives"])
                assert exposed == pytest.approx(waits, rel=1e-6, abs=1e-6)
                assert all(s >= 0.0 for s in shares.values())
                for m in step["collectives"]:
                    assert 0.0 <= m["hidden_s"] <= m["busy_s"]


def test_steps_follow_each_other_without_a_gap(ran: tuple[Path, Any]) -> None:
    """The table's step is the sum of its shares, and its rate the tokens over it."""
    import polars

    frame = polars.read_parquet(ran[1]["parquet"])
    shares = ["forward", "backward", "optimizer", "data", "tensor", "pipeline", "other"]
    total = sum(frame[f"{name}_s"] for name in shares)
    assert float((total - frame["step_s"]).abs().max()) < 1e-9
    tokens = frame["global_batch"] * frame["seq_len"]
    assert float((tokens / frame["step_s"] / frame["tokens_per_s"] - 1.0).abs().max()) < 1e-9
    processes = sum(point["processes"] for point in ran[1]["points"])
    assert len(frame) == 2 * processes  # two steps of every rank
    for name in ("torch", "python", "chip", "date", "kernel"):
        assert frame[name].null_count() == 0
    assert set(frame["backend"].unique()) == {None, "gloo"}


def test_every_strategy_learns_alike(points: Points) -> None:
    """The same batch again and again: its loss falls, and by as much whoever holds or computes what.

    Replicas have batches of their own, and cut matrices are drawn by the rank that holds them.
    """
    alike: dict[tuple[str, int, int], list[float]] = {}
    for table, _ in points:
        point = JobPoint.of_dict(table["point"])
        losses = table["ranks"][-1]["losses"]
        assert losses[1] < losses[0] < 1.1 * math.log(point.sizes.vocab)
        alike.setdefault((point.model, point.plan.dp, point.plan.tp), []).append(losses[-1])
    assert sorted(len(found) for found in alike.values()) == [2, 2, 4, 4, 7, 9]
    for found in alike.values():
        assert max(found) == pytest.approx(min(found), rel=1e-3)


def test_a_finished_folder_is_not_run_again(ran: tuple[Path, Any]) -> None:
    out, told = ran
    matrix = str(out.parent / "matrix.toml")
    again = foretell("characterize", "run", matrix, "--out", str(out))
    assert (again.code, again.out) == (2, "")
    assert "--resume" in again.err
    before = {path: path.stat().st_mtime_ns for path in (out / "points").iterdir()}
    resumed = foretell("characterize", "run", matrix, "--out", str(out), "--resume", "--json")
    assert resumed.code == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "points").iterdir()} == before
    assert resumed.json["points"] == told["points"]
    text = foretell("characterize", "run", matrix, "--out", str(out), "--resume")
    assert "median error of the step" in text.out
