"""`validate cost`: the published tables to every digit, other rows of the same forms, and bad files."""

import gzip
from pathlib import Path

import pytest

from foretell.economics.actuary import NODES, package_columns
from foretell.errors import BadInput
from foretell.lab.validate.cost import partition_of, score_cost

DIE = "node_nm,wafer_usd,D0_per_cm2,die_mm2,dies_per_wafer,Y_negbin_alpha10,kgd_usd_alpha10\n"
PACKAGE = (
    "node_nm,partition_mm2,package,raw_chips,defect_chips,raw_package,defect_package,wasted_kgd,"
    "total_usd\n"
)


@pytest.mark.parametrize(
    ("name", "rows", "values"),
    [
        ("reference_die_cost_chiplet_actuary.csv", 16, 144),
        ("reference_package_cost_chiplet_actuary.csv", 14, 84),
    ],
)
def test_every_digit(data_dir: Path, name: str, rows: int, values: int) -> None:
    scores = score_cost(data_dir / "cost" / name)
    assert (scores.rows, scores.scored, scores.unsupported) == (rows, rows, ())
    assert len(scores.predictions) == values
    wrong = [one for one in scores.predictions if one.predicted != one.measured]
    assert wrong == []
    assert scores.to_dict()["values_equal"] == values
    assert {source: one["rows"] for source, one in scores.to_dict()["by_source"].items()} == {
        name: values
    }


@pytest.mark.parametrize(
    ("text", "dies", "area"),
    [
        ("mono 800", 1, 800.0),
        ("1x400", 1, 400.0),
        ("2x444.4", 2, 800 / 2 / 0.9),
        ("4x222.2", 4, 800 / 4 / 0.9),
        ("3x296.3", 3, 800 / 3 / 0.9),
        ("8x111.1", 8, 800 / 8 / 0.9),
        ("5x133.3", 5, 600 / 5 / 0.9),
        ("2x123.456", 2, 123.456),
        ("4 \u00d7 222.2", 4, 800 / 4 / 0.9),
    ],
)
def test_partitions(text: str, dies: int, area: float) -> None:
    found = partition_of(text)
    assert found[0] == dies
    assert found[1] == pytest.approx(area, rel=1e-12)


def test_other_rows(tmp_path: Path) -> None:
    """Chip first, other nodes and sizes; small substrates of several dies have fewer layers."""
    path = tmp_path / "more.csv"
    first = package_columns(800 / 8 / 0.9, 8.0, NODES["10"], "FO", chip_first=True)
    cells = ",".join(f"{float(value):.2f}" for value in first.values())
    path.write_text(f"{PACKAGE}10,8x111.1,FO chip-first,{cells}\n28,2x33.3,OS,,,0.93,,,\n")
    scores = score_cost(path)
    assert scores.scored == 2
    assert all(one.predicted == one.measured for one in scores.predictions[:6])
    (substrate,) = scores.predictions[6:]
    # 4 x 66.67 mm2 is below 17 x 17 mm: one and a half times 0.005 USD/mm2, less than 1.75 times.
    assert (substrate.metric, substrate.predicted) == ("raw_package", round(266.667 * 0.0075, 2))


def test_digits_are_the_files(tmp_path: Path) -> None:
    path = tmp_path / "dies.csv.gz"
    path.write_bytes(gzip.compress(f"{DIE}7,9346,0.09,800,58.8,0.499,319\n".encode()))
    found = {one.metric: one.predicted for one in score_cost(path).predictions}
    assert found == {"dies_per_wafer": 58.8, "Y_negbin_alpha10": 0.499, "kgd_usd_alpha10": 319.0}


def test_rows_that_cannot_be_computed(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(
        f"{PACKAGE}7,mono 800,OS,162.96,,,,,\n6,mono 800,OS,1,,,,,\n7,800,OS,1,,,,,\n7,mono 800,XY,1,,,,,\n"
    )
    scores = score_cost(path)
    assert [row for row, _ in scores.unsupported] == ["2", "3", "4"]
    assert "node '6'" in scores.unsupported[0][1]
    assert scores.to_dict()["scored"] == 1


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "node_nm,partition_mm2\n7,mono 800\n"])
def test_other_tables(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match="no table of die or package costs"):
        score_cost(path)
    with pytest.raises(BadInput, match="cannot be read"):
        score_cost(tmp_path / "none.csv")
