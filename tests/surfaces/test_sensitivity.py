"""`foretell sensitivity` on the command line."""

import json
from pathlib import Path

import pytest

from tests.surfaces.command import foretell

STEP = ("llama-3.1-8b", "--gpus", "64xh100-sxm", "--global-batch", "256", "--plan", "tp2 pp2 zero1")
UNPRICED = """\
id = "my-box"
name = "A box"

[chip]
id = "mychip"
name = "A chip"
vendor = "me"
architecture = "mine"
memory_bytes = "64 GiB"
memory_bandwidth_bytes_per_s = "2 TB/s"
vector_flop_per_s = "20 TFLOP/s"
tdp_watts = "400 W"
matrix_flop_per_s = { bf16 = "300 TFLOP/s" }

[network.node]
size = 8
bandwidth_bytes_per_s = "100 GB/s"
latency_s = "3 us"
"""
"""A system of which nobody knows a price."""
SERVICE = ("llama-3.1-8b", "--gpus", "1xh100-sxm", "--isl", "500", "--osl", "100")


def test_tables_json_and_figure(tmp_path: Path) -> None:
    from plotly.graph_objects import Figure

    file = tmp_path / "t.json"
    text = foretell("sensitivity", *STEP, "--plot", str(file))
    assert (text.code, text.err) == (0, f"written: {file}\n")
    for words in ("Elasticities", "What if (plan held)", "rate of the matrix units", "price: rent"):
        assert words in text.out
    Figure(json.loads(file.read_text()))
    found = foretell("sensitivity", *STEP, "--json").json
    assert {"model", "plan", "results", "numbers", "factor", "replanned"} <= set(found)
    assert set(found["results"]) == {"step_s", "usd_per_million_tokens", "energy_joules"}
    matrix = next(n for n in found["numbers"] if n["path"] == "chip.matrix_flop_per_s")
    assert matrix["better"]["factor"] == 2.0
    assert matrix["better"]["ratios"]["step_s"] < 1.0 < matrix["worse"]["ratios"]["step_s"]


def test_a_service_is_asked_by_its_load() -> None:
    text = foretell("sensitivity", *SERVICE)
    assert (text.code, text.err) == (0, "")
    assert "engine:" in text.out
    found = foretell("sensitivity", *SERVICE, "--factor", "4", "--json").json
    assert (found["kind"], found["factor"]) == ("serving", 4.0)
    assert "tpot_ms" in found["results"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("sensitivity", *STEP, "--factor", "x"), 2, "factor"),
        (("sensitivity", *STEP, "--rent", "never"), 2, "rent"),
        (("sensitivity", *SERVICE, "--seq-len", "4096", "--rent", "own"), 2, "is of training"),
        (("sensitivity", "llama-3.1-70b", "--gpus", "8xh100-sxm", "--plan", "dp8"), 1, "too much"),
        (("sensitivity", *STEP, "--plot", "a.pdf"), 2, "plot"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], code: int, said: str) -> None:
    told = foretell(*words)
    assert told.code == code
    assert said in told.err
    assert told.out == ""


def test_a_chip_without_a_price_answers_in_time_and_energy(tmp_path: Path) -> None:
    """Money is asked for by its flags alone: without them its absence is said, with them it is an error."""
    file = tmp_path / "mine.toml"
    file.write_text(UNPRICED)
    asked = ("sensitivity", "llama-3.1-8b", "--system", str(file), "--gpus", "8", "--plan", "tp8")
    found = foretell(*asked, "--json")
    assert (found.code, found.err) == (0, "")
    assert set(found.json["results"]) == {"step_s", "energy_joules"}
    assert all(set(n["elasticities"]) == set(found.json["results"]) for n in found.json["numbers"])
    assert any("Cost is unknown" in said for said in found.json["assumptions"])
    assert "Elasticities" in foretell(*asked).out
    assert "usd_per_million_tokens" in foretell(*asked, "--price", "2", "--json").json["results"]
    assert foretell(*asked, "--rent", "own").code == 2
