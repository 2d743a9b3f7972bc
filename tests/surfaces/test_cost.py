"""`foretell cost`: trees that sum in JSON, sweeps, pictures, exit codes."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from foretell.economics.ask import PackageQuestion, package_cost
from tests.surfaces.command import foretell

LEAF_KEYS = "name value unit evidence low high note children".split()
RUN = ("run", "llama-3.1-8b", "--gpus", "64xH100", "--plan", "mbs1 zero1", "--tokens", "1T")
TOKEN = ("token", "llama-3.1-8b", "--system", "h100-sxm", "--gpus", "1")
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
        RUN,
        (*RUN, "--rent", "own", "--region", "iowa"),
        TOKEN,
        (*TOKEN, "--rent", "own", "--rate", "1"),
    ],
)
def test_json(arguments: tuple[str, ...]) -> None:
    record = answer(*arguments)
    assert set(KEYS) <= set(record)
    assert leaves_sum(record["breakdown"]) == pytest.approx(record["usd"])
    for name in ("year", "hour", "by_time", "energy", "carbon", "per_million_tokens"):
        if name in record:
            leaves_sum(record[name])
    for driver in record["drivers"]:
        assert driver["source"] or driver["path"].startswith("system.")
        assert driver["low"] < driver["high"]


RESULTS = (
    "gpu_hours usd_per_gpu_hour usd_per_million_tokens energy_mwh carbon_kg operational_carbon_kg "
    "embodied_carbon_kg carbon_g_per_million_tokens tokens_per_usd tokens_per_joule flop_per_usd "
    "flop_per_joule"
).split()


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (RUN, ["usd_per_mfu_point"]),
        (TOKEN, ["usd_per_million_input_tokens", "usd_per_million_output_tokens"]),
    ],
)
def test_keys_of_work(arguments: tuple[str, ...], more: list[str]) -> None:
    record = answer(*arguments)
    plain = "system gpus plan plan_chosen paid region grams_per_kwh terms tokens_per_s".split()
    assert set(plain) <= set(record)
    for name in (*RESULTS, *more):
        assert record[f"low_{name}"] <= record[name] <= record[f"high_{name}"]
    assert {"term", "usd_per_gpu_hour", "usd", "usd_per_million_tokens", "source"} == set(
        record["terms"][0]
    )


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
    lines = [part for part in drawn if part.tag.endswith("polyline")]
    assert len({part.get("stroke") for part in lines}) == 2


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


def test_the_front_of_systems(tmp_path: Path) -> None:
    path = tmp_path / "front.svg"
    record = answer(
        *TOKEN[:2], "--gpus", "8", "--sweep", "system=dgx-a100,dgx-b200", "--sweep",
        "concurrency=8,64", "--plot", str(path),
    )  # fmt: skip
    rows = record["rows"]
    assert len(rows) == 4
    front = [row for row in rows if row["pareto"]]
    assert 0 < len(front) < 4
    for row in rows:
        better = [
            one for one in rows
            if one["tokens_per_s_per_user"] > row["tokens_per_s_per_user"]
            and one["usd_per_million_tokens"] < row["usd_per_million_tokens"]
        ]  # fmt: skip
        assert row["pareto"] == (not better)
    drawn = ElementTree.fromstring(path.read_text())
    assert sum(part.tag.endswith("circle") for part in drawn) >= 4
    assert "dgx-b200" in path.read_text()


def test_a_run_over_a_number_and_a_way_to_pay(tmp_path: Path) -> None:
    path = tmp_path / "run.svg"
    sweeps = ("--sweep", "gpus=32,64", "--sweep", "rent=own,on-demand", "--plot", str(path))
    record = answer(*RUN[:2], "--system", "hgx-h100", "--tokens", "1T", *sweeps)
    assert [row["gpus"] for row in record["rows"]] == [32, 32, 64, 64]
    assert record["given"] == {"model": "llama-3.1-8b", "system": "hgx-h100", "tokens": "1T"}
    assert record["rows"][0]["usd"] < record["rows"][1]["usd"]
    assert "USD per million tokens" in path.read_text()


def test_work_as_text() -> None:
    out = foretell("cost", *RUN, "--region", "france").out
    for word in (
        "1T tokens in",
        "MFU",
        "MWh",
        "grid of france",
        "embodied",
        "rented",
        "FLOP for a",
    ):
        assert word in out
    out = foretell("cost", *TOKEN).out
    for word in ("a million output tokens", "input,", "prompts", "kWh", "answers"):
        assert word in out


def test_a_rent_that_nobody_lists_says_what_it_is_a_share_of() -> None:
    text = foretell("cost", "system", "hgx-h100", "--gpus", "64").out
    rents = {line.split()[0]: line for line in text.splitlines() if line.split()}
    assert rents["spot"].rstrip().endswith("64% of on-demand, 2026-08-22")
    assert rents["on-demand"].rstrip().endswith("lambda, 2026-08-22")


def test_text_says_the_whole_its_range_and_what_moves_it() -> None:
    out = foretell("cost", "system", "hgx-h100", "--gpus", "1024").out
    assert re.match(r"[\d.]+M USD \(90%: .*\): cost of a system, hgx-h100\n", out)
    for word in ("USD per GPU-hour", "48 switches", "Ways to pay", "What moves it", "electricity"):
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
        (("run", "llama-3.1-405b", "--gpus", "8xH100"), 1, "GiB"),
        ((*RUN, "--region", "frence"), 2, "did you mean france?"),
        ((*RUN, "--rent", "3-year"), 2, "h100-sxm has no such offer"),
        ((*TOKEN, "--rate", "1e6"), 1, ""),
        ((*TOKEN, "--isl", "x", "--rent", "gift"), 2, "isl: not a usable number"),
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


def test_a_run_that_storage_never_lets_end_is_a_no() -> None:
    """Infinities of money before, and warnings of NumPy."""
    run = ("cost", "run", "gpt2", "--system", "h100-sxm", "--gpus", "8", "--tokens", "1B")
    told = foretell(*run, "--storage-bandwidth", "3", "--json")
    assert told.code == 1
    assert told.json["fits"] == "no"
    assert "the run never ends" in told.json["problems"][0]["message"]
    assert "Warning" not in told.err
