"""Runs said to fit or not."""

import gzip
from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.lab.validate.memory import (
    failed_row,
    read_memory_rows,
    score_memory,
    score_memory_rows,
)
from foretell.lab.validate.training_rows import read_rows
from tests.surfaces.command import foretell

HEADER = (
    "job_id,n_gpus,params_b,layers,hidden,heads,ffn_hidden,vocab,seq_len,dp,tp,pp,zero_stage,"
    "micro_batch,grad_accum"
)
SMALL = "1,8,1.61,16,2048,32,8192,131072,4096,8,1,1,1,1,4.0"
LARGE = "2,8,80.0,80,8192,64,28672,131072,4096,8,1,1,0,4,4.0"
GROUPED = "3,64,70.6,80,8192,64,28672,131072,4096,1,8,8,0,1,64.0"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "failed.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n{SMALL}\n{LARGE}\n{GROUPED}".encode()))
    return path


def test_one_fits_and_one_does_not(table: Path) -> None:
    found = score_memory(table).to_dict()
    assert found["rows"] == found["scored"] == 3
    assert found["said_to_fit"] + found["said_not_to_fit"] == found["scored"]
    fits = {p["id"]: p["fits"] for p in found["predictions"]}
    assert fits["1"]
    assert not fits["2"]
    assert found["too_close"] <= 3


def test_what_the_sweep_was_is_filled_in(table: Path) -> None:
    small, large, grouped = read_memory_rows(table)
    assert (small.chip_id, small.framework_id, small.recompute) == ("h100-sxm", "nanotron", "none")
    assert small.global_batch == 8 * 1 * 4
    assert large.kv_heads == 64
    assert grouped.kv_heads == 8
    cells = dict(zip(HEADER.split(","), SMALL.split(","), strict=True)) | {"params_b": "1.34"}
    assert failed_row(cells, "1").kv_heads == 32  # fewer weights by a tied head, not by fewer heads


def test_blank_numbers_of_a_failed_run() -> None:
    cells = dict(zip(HEADER.split(","), SMALL.split(","), strict=True)) | {
        "n_gpus": "",
        "job_id": "",
    }
    row = failed_row(cells, "7")
    assert (row.id, row.gpus) == ("7", 8)


def test_other_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="no column"):
        score_memory(path)


def test_the_verb(table: Path) -> None:
    outcome = foretell("validate", "memory", str(table), "--json")
    assert outcome.code == 0
    assert {"rows", "scored", "said_to_fit", "said_not_to_fit", "too_close"} <= set(outcome.json)
    text = foretell("validate", "memory", str(table))
    assert "predicted to fit" in text.out
    assert foretell("validate", "memory", str(table.parent / "missing.csv")).code == 2


def test_published_runs(data_dir: Path) -> None:
    """Every fifth run; bounds as measured over all of them: 92 % and 99 %."""
    failed = read_memory_rows(data_dir / "training" / "out_of_memory_runs.csv.gz")[::5]
    ran = read_rows(data_dir / "training" / "measured_runs.csv.gz")
    ran = [row for row in ran if row.framework_id == "nanotron"][::5]
    not_fit, fit = score_memory_rows(failed).to_dict(), score_memory_rows(ran).to_dict()
    assert not_fit["scored"] == len(failed)
    assert fit["scored"] == len(ran)
    assert not_fit["said_not_to_fit"] > 0.90 * len(failed)
    assert fit["said_to_fit"] > 0.97 * len(ran)


@pytest.mark.parametrize("column", ["params_b", "layers", "hidden", "n_gpus", "vocab"])
def test_a_negative_cell_is_a_blank_one(tmp_path: Path, column: str) -> None:
    cells = dict(zip(HEADER.split(","), GROUPED.split(","), strict=True))
    rows = []
    for value in ("-1", ""):
        path = tmp_path / "one.csv"
        path.write_text(",".join(cells) + "\n" + ",".join({**cells, column: value}.values()))
        rows += read_memory_rows(path)
    assert rows[0] == rows[1]


def test_outcomes_are_scored(tmp_path: Path) -> None:
    """A column `outcome` says what happened; its absence leaves the scores open."""
    path = tmp_path / "runs.csv"
    rows = [f"{SMALL},ran", f"{LARGE},OOM", f"{LARGE},ran".replace("2,8", "4,8", 1), f"{GROUPED},"]
    path.write_text("\n".join([f"{HEADER},outcome", *rows]))
    found = score_memory(path).to_dict()
    assert (found["ran"], found["oom"]) == (2, 1)
    assert found["ran_called_no"] == 0.5
    assert found["oom_called_fits"] == 0.0
    chances = {p["id"]: p["fit_probability"] for p in found["predictions"]}
    squares = [(chances["1"] - 1) ** 2, chances["2"] ** 2, (chances["4"] - 1) ** 2]
    assert found["brier_score"] == pytest.approx(sum(squares) / 3)
    assert [p["outcome"] for p in found["predictions"]] == ["ran", "oom", "ran", None]
    for one in found["predictions"]:
        assert one["fits"] is (one["fit_probability"] >= 0.5)
        assert one["too_close"] is (one["verdict"] == "too_close")
        assert one["allocated"] < one["predicted"]
    assert "Brier score" in foretell("validate", "memory", str(path)).out
    path.write_text(f"{HEADER}\n{SMALL}")
    assert score_memory(path).to_dict()["brier_score"] is None


def test_unknown_outcomes_are_refused_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([f"{HEADER},outcome", f"{SMALL},rann", f"{LARGE},failed"]))
    with pytest.raises(BadInput) as error:
        score_memory(path)
    assert len(error.value.problems) == 2
    assert error.value.problems[0].nearest == "ran"
