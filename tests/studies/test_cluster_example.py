"""The example of a sweep on a Dask cluster, on a cluster of two processes of this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import foretell
from foretell.studies.sweep.run import status

ROOT = Path(__file__).resolve().parents[2]
STUDY = """
[study]
kind = "training"
plan = "flash"
[base]
model = "llama-3.2-1b"
system = "h100-sxm"
gpus = 16
[vary]
seq_len = { low = 512, high = 4096, steps = 40 }
"plan.tp" = [1, 2, 4]
"plan.zero" = [1, 3]
"""


def test_the_example_gives_what_one_process_gives(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    study = tmp_path / "study.toml"
    study.write_text(STUDY, encoding="utf-8")
    source = str(Path(foretell.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/sweep_on_cluster.py"), str(study), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("240 of 240 points")
    assert status(tmp_path / "out").complete
    foretell.sweep(study, out=tmp_path / "alone")

    def shards(folder: str) -> list[str]:
        return sorted(path.name for path in (tmp_path / folder / "shards").iterdir())

    assert shards("out") == shards("alone")
