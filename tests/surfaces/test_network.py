"""`foretell network` and `foretell validate collectives`."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from foretell.collective import bus_factor, collective
from foretell.errors import BadInput
from tests.surfaces.command import foretell


def answer(*arguments: str) -> Any:
    """What a verb prints as JSON."""
    outcome = foretell(*arguments, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    return json.loads(outcome.out)


def test_network_json_is_the_python_answer() -> None:
    told = answer(
        "network", "dgx-h100", "--collective", "all-reduce", "--bytes", "64MiB", "--group", "16"
    )
    ours = collective("dgx-h100", collective="all-reduce", size="64MiB", group=16)
    assert told == ours.to_dict()
    assert told["placement"] == {"node": 8.0, "cluster": 2.0}
    assert told["algorithm"] in told["candidates_s"]
    assert told["seconds"] == min(told["candidates_s"].values())
    assert told["algorithm_bytes_per_s"] == pytest.approx(2**26 / told["seconds"])
    assert told["bus_bytes_per_s"] == pytest.approx(told["algorithm_bytes_per_s"] * 2 * 15 / 16)
    times = [row["seconds"] for row in told["sizes"]]
    assert times == sorted(times)


def test_spread_members_are_slower() -> None:
    near, far = (
        collective("dgx-h100", collective="all-gather", size="256MiB", group=8, placement=where)
        for where in ("node=8", "node=1,cluster=8")
    )
    assert far.seconds > near.seconds


def test_a_group_of_one_is_free() -> None:
    alone = collective("dgx-h100", collective="all-reduce", size="1GiB", group=1)
    assert alone.seconds == 0.0
    assert bus_factor("all-reduce", 1) == 1.0


def test_every_problem_at_once() -> None:
    with pytest.raises(BadInput) as error:
        collective("dgx-h1000", collective="all-gater", size="-3 GB", group=0)
    assert {p.path for p in error.value.problems} >= {"system", "collective", "group"}
    for placement in ("nod=8", "node=4", "node=x"):
        with pytest.raises(BadInput):
            collective("dgx-h100", collective="all-gather", size=1e6, group=8, placement=placement)


def test_validate_scores_every_row_or_says_why(tmp_path: Path) -> None:
    columns = ["system", "fabric", "nccl", "env_setup", "op", "nodes", "gpus_per_node", "gpus",
               "size_bytes", "time_us_out_of_place", "algbw_GBps", "busbw_GBps", "date",
               "source"]  # fmt: skip
    rows = [
        [
            "perlmutter",
            "Slingshot-11",
            "",
            "",
            "all_gather",
            8,
            4,
            32,
            2**28,
            4600,
            58,
            56,
            "",
            "a",
        ],
        [
            "perlmutter",
            "Slingshot-11",
            "",
            "",
            "no_such_op",
            8,
            4,
            32,
            2**28,
            4600,
            58,
            56,
            "",
            "a",
        ],
    ]
    path = tmp_path / "some.csv.gz"
    with gzip.open(path, "wt", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    told = answer("validate", "collectives", str(path))
    assert (told["rows"], told["scored"], len(told["unsupported"])) == (2, 1, 1)
    assert {"median_ape", "p90_ape", "by_source", "by_size", "predictions"} <= set(told)
    assert told["predictions"][0]["id"] == "1"
    assert told["predictions"][0]["low"] is None
    text = foretell("validate", "collectives", str(path))
    assert text.code == 0
    assert "1 of 2 rows scored" in text.out


def test_a_missing_file_is_one_clear_line() -> None:
    outcome = foretell("validate", "collectives", "nowhere.csv.gz")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "nowhere.csv.gz" in outcome.err
