"""`foretell cost`: trees that sum in JSON, sweeps, pictures, exit codes."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from foretell.economics.ask import PackageQuestion, package_cost
from tests.surfaces.command import foretell

LEAF_KEYS = "name value unit evidence low high note children".split()
KEYS = "what name usd low_usd high_usd breakdown drivers assumptions overrides".split()


def answer(*arguments: str) -> Any:
    outcome = foretell("cost", *arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.json


def leaves_sum(tree: dict[str, Any]) -> float:
    assert set(tree) == set(LEAF_KEYS)
    assert tree["low"] <= tree["value"] <= tree["high"]
    if not tree["children"]:
        return float(tree["value"])
    total = sum(leaves_sum(child) for child in tree["children"])
    assert total == pytest.approx(tree["value"], rel=1e-9, abs=1e-9)
    return total


@pytest.mark.parametrize(
    "arguments",
    [
        ("chip", "h100-sxm"),
        ("chip", "--node", "N5", "--area", "800", "--volume", "1M"),
        ("package", "mi300x", "--volume", "100k"),
        ("package", "--node", "N3", "--area", "800", "--dies", "4", "--package", "3D"),
        ("system", "hgx-h100", "--gpus", "512"),
        ("system", "perlmutter"),
    ],
)
def test_json(arguments: tuple[str, ...]) -> None:
    record = answer(*arguments)
    assert set(KEYS) <= set(record)
    assert leaves_sum(record["breakdown"]) == pytest.approx(record["usd"])
    for name in ("year", "hour"):
        if name in record:
            leaves_sum(record[name])
    for driver in record["drivers"]:
        assert driver["source"] or driver["path"].startswith("system.")
        assert driver["low"] < driver["high"]


def test_python_is_the_command_line() -> None:
    record = package_cost(PackageQuestion(name="b200-sxm")).to_dict()
    assert json.loads(json.dumps(record)) == answer("package", "b200-sxm")


def test_a_sweep_over_any_field(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    record = answer(
        "package", "--node", "N5", "--sweep", "area=200:1000:3", "--sweep",
        "prices.processes.N5.defects_per_cm2=0.05,0.1", "--plot", str(path),
    )  # fmt: skip
    rows = record["rows"]
    assert len(rows) == 6
    assert record["given"] == {"node": "N5"}
    assert [row["usd"] is None for row in rows] == [False] * 4 + [True] * 2
    assert "one exposure" in rows[-1]["problem"]
    assert rows[0]["usd"] < rows[1]["usd"] < rows[3]["usd"]
    assert sum(rows[0]["parts_usd"].values()) == pytest.approx(rows[0]["usd"])
    drawn = ElementTree.fromstring(path.read_text())
    assert sum(part.tag.endswith("polyline") for part in drawn) == 2


def test_pictures(tmp_path: Path) -> None:
    path = tmp_path / "b.svg"
    flags = ("--node", "N5", "--area", "400", "--plot", str(path))
    kinds = "organic,fan-out,interposer"
    assert foretell("cost", "package", *flags, "--sweep", f"package={kinds}").code == 0
    text = path.read_text()
    ElementTree.fromstring(text)
    assert all(f">{kind}<" in text for kind in kinds.split(","))
    assert foretell("cost", "package", *flags).code == 0
    assert ">dies<" in path.read_text()


def test_text_says_the_whole_its_range_and_what_moves_it() -> None:
    out = foretell("cost", "system", "hgx-h100", "--gpus", "1024").out
    assert out.startswith("system hgx-h100: ")
    for word in ("USD per GPU-hour", "48 switches", "renting", "what moves it", "electricity"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("chip",), 2, "node: is missing"),
        (("chip", "--node", "N5", "--area", "900"), 1, "one exposure prints 858 mm2"),
        (("package", "h100-sxm", "--sweep", "aera=1,2"), 2, "did you mean area?"),
        (("package", "h100-sxm", "--package", "glas"), 2, "did you mean glass?"),
        (("package", "h100-sxm", "--plot", "/no/such/folder/a.svg"), 2, "no file can be written"),
        (("system", "tpu-v7x-pod"), 2, "--set system.node_price_usd"),
        (("system", "hgx-h100", "--set", "prices.fabric.nic=1"), 2, "no such field"),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, said: str) -> None:
    outcome = foretell("cost", *arguments)
    assert outcome.code == code
    assert outcome.out == ""
    assert said in outcome.err


def test_validate_cost(tmp_path: Path) -> None:
    path = tmp_path / "dies.csv"
    path.write_text("node_nm,die_mm2,dies_per_wafer,Y_poisson\n10,100,571.71,0.9231\n")
    record = foretell("validate", "cost", str(path), "--json").json
    told = {one["metric"]: one["predicted"] for one in record["predictions"]}
    assert told == {"dies_per_wafer": 571.71, "Y_poisson": 0.9231}
    assert (record["rows"], record["scored"], record["median_ape"]) == (1, 1, 0.0)
    assert foretell("validate", "cost", str(tmp_path / "x.csv")).code == 2


@pytest.mark.parametrize("flag", ["--price", "--watts"])
@pytest.mark.parametrize("value", ["0", "-5"])
def test_a_rent_or_a_draw_is_above_nothing(flag: str, value: str) -> None:
    told = foretell("cost", "system", "hgx-h100", "--gpus", "64", flag, value)
    assert (told.code, told.out) == (2, "")
    assert "above 0" in told.err
