"""Combinations of parallelisms on four processes, and two nodes: the long form."""

import json
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from foretell.lab.characterize.config import JobPoint
from foretell.lab.characterize.predict import HELD, predict
from foretell.lab.characterize.run import characterize

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch"),
]
PLANS = [
    "tp2 zero1",
    "tp2 zero3 recompute=full",
    "pp2 zero2",
    "pp2 zero3",
    "tp2 pp2",
    "tp2 pp2 no-sp",
    "pp4",
    "zero3 dp4",
]
NOT_PRICED = ("loss", "norms", "receive")
SIZES = {"hidden": 64, "layers": 5, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 256}


def matrix(plans: list[str], processes: int, **more: Any) -> dict[str, Any]:
    return {
        "run": {"device": "cpu", "steps": 2, "warmup": 0, "threads": 1, "timeout_s": 120.0},
        "base": {"model": "m", "seq_len": 32, "micro_batch": 2, "micro_batches": 3, **more},
        "vary": {"plan": [f"{plan} weights=fp16" for plan in plans], "processes": [processes]},
        "model": {"m": SIZES},
    }


def held_to_predictions(tables: list[dict[str, Any]]) -> None:
    """Messages exactly, tensors to a tenth."""
    for table in tables:
        guess = predict(JobPoint.of_dict(table["point"]), "h100-sxm")
        for rank in table["ranks"]:
            stage = guess.stages[rank["place"]["stage"]]
            want = {
                (m.axis, m.what, m.kind, m.group): (m.count, m.bytes) for m in stage.collectives
            }
            got = {
                (m["axis"], m["what"], m["kind"], m["group"]): (m["count"], m["bytes"])
                for m in rank["steps"][-1]["collectives"]
                if m["what"] not in NOT_PRICED and m["kind"] not in NOT_PRICED
            }
            assert got == want, table["point"]
            for name in HELD:
                wanted = stage.held_bytes[name]
                assert rank["held_bytes"][name] == pytest.approx(wanted, rel=0.1)
        losses = table["ranks"][-1]["losses"]
        assert losses[1] < losses[0]


def test_combinations(tmp_path: Path) -> None:
    found = characterize(matrix(PLANS, 4), out=tmp_path)
    assert [row.status for row in found.rows] == ["finished"] * len(PLANS)
    held_to_predictions([dict(row.measured or {}) for row in found.rows])


def test_two_nodes(root: Path, tmp_path: Path) -> None:
    """The same command on both; the first node has the results."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{free.getsockname()[1]}"
    given = matrix(["zero1", "pp2"], 2, nodes=2)
    lines = []
    for name in ("run", "base", "vary"):
        lines += [f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in given[name].items())]
    lines += ["[model.m]", *(f"{k} = {v}" for k, v in SIZES.items())]
    (tmp_path / "matrix.toml").write_text("\n".join(lines))
    environ = {**os.environ, "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"}
    start = [sys.executable, "-m", "foretell", "characterize", "run", str(tmp_path / "matrix.toml")]
    nodes = [
        subprocess.Popen(
            [*start, "--out", str(tmp_path / f"out{i}"), "--node", str(i), "--master", master],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for i in range(2)
    ]
    for process in nodes:
        _, said = process.communicate(timeout=200.0)
        assert process.returncode == 0, said
    tables = [json.loads(p.read_text()) for p in (tmp_path / "out0" / "points").glob("*.json")]
    assert len(tables) == 2
    held_to_predictions(tables)
