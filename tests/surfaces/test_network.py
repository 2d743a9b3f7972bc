"""`foretell network` and `foretell validate collectives`."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from foretell.api.network import bus_factor, collective
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


def test_systems_without_a_library_answer_by_their_topology() -> None:
    torus = collective("tpu-v5p", collective="all-reduce", size="1GiB", group=64)
    assert "bucket" in torus.algorithm
    assert torus.seconds == min(torus.candidates_s.values())
    rate = 600e9 * 0.75
    assert torus.seconds >= 2 * 63 / 64 * 2**30 / rate


def test_an_algorithm_by_name() -> None:
    auto = collective("dgx-h100", collective="all-reduce", size="64MiB", group=16)
    for name, seconds in auto.candidates_s.items():
        named = collective(
            "dgx-h100", collective="all-reduce", size="64MiB", group=16, algorithm=name
        )
        assert (named.algorithm, named.seconds, named.reason) == (name, seconds, "named")
    with pytest.raises(BadInput, match="ring"):
        collective("dgx-h100", collective="all-reduce", size="1KiB", group=16, algorithm="rng ll")


def test_neighbours_share_tapered_links() -> None:
    """One group with a chip in each pod has 1:7 tapered links for itself; many do not."""
    where = "node=1,rack=1,pod=1,cluster=8"
    times = [
        collective("meta-24k-ib", collective="all-gather", size="1GiB", group=8, neighbours=n,
                   placement=placed(where)).seconds
        for n in (0, 100, 5000, 10**6)
    ]  # fmt: skip
    assert times == sorted(times)
    assert times[0] < times[-1]


def placed(text: str) -> str:
    """Only the words that name a tier of the system."""
    from foretell.catalog import system

    names = {tier.name for tier in system("meta-24k-ib").network.tiers}
    return ",".join(word for word in text.split(",") if word.split("=")[0] in names)


def test_uneven_experts_wait_for_the_busiest() -> None:
    even, uneven = (
        collective("dgx-h100", collective="all-to-all", size="1GiB", group=16, imbalance=x).seconds
        for x in (1.0, 1.5)
    )
    assert even < uneven <= 1.5 * even
    with pytest.raises(BadInput, match="imbalance"):
        collective("dgx-h100", collective="all-gather", size="1GiB", group=16, imbalance=2.0)


@pytest.mark.parametrize("name", ["dgx-h100", "tpu-v5p", "aws-trn2"])
def test_a_barrier_is_latency_alone(name: str) -> None:
    small, large = (collective(name, collective="barrier", size=0, group=n) for n in (4, 64))
    assert 0.0 < small.seconds < large.seconds < 1e-2
    assert large.sizes == ()


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
    first = told["predictions"][0]
    assert first["low"] < first["predicted"] < first["high"]
    text = foretell("validate", "collectives", str(path))
    assert text.code == 0
    assert "1 of 2 rows scored" in text.out


def test_a_missing_file_is_one_clear_line() -> None:
    outcome = foretell("validate", "collectives", "nowhere.csv.gz")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "nowhere.csv.gz" in outcome.err


ASKED = ("network", "h100-sxm", "--collective", "all-reduce", "--bytes", "1GiB", "--group", "64")
FASTER = ("--set", "network.cluster.bandwidth_bytes_per_s=100GB/s")


def test_fields_of_the_system_are_set_as_in_every_verb() -> None:
    plain, faster = answer(*ASKED), answer(*ASKED, *FASTER)
    assert faster["seconds"] < 0.75 * plain["seconds"]
    assert any(text.startswith("before --set") for text in faster["assumptions"])
    wrong = foretell(*ASKED, "--set", "model.hidden_size=8", "--set", "network.cluster.bandwith=1")
    assert wrong.code == 2
    assert "unknown record" in wrong.err


@pytest.mark.parametrize("words", [
    ASKED,
    ("compare", "h100-sxm", "h200-sxm", "--model", "gpt2", "--gpus", "8", "--plan", "zero1"),
])  # fmt: skip
def test_answers_are_drawn(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "figure.json"
    assert foretell(*words, "--plot", str(file)).code == 0
    drawn = json.loads(file.read_text())
    assert drawn["data"]
    assert drawn["layout"]["title"]["text"]


@pytest.mark.parametrize("flag", ["--plot", "--out"])
def test_memory_is_drawn_by_either_word(flag: str, tmp_path: Path) -> None:
    file = tmp_path / "memory.svg"
    asked = ("memory", "gpt2", "--gpus", "8xH100", "--global-batch", "8", "--plan", "zero1")
    assert foretell(*asked, flag, str(file)).code == 0
    assert file.read_text().startswith("<svg")
