"""`compare --topologies`: one machine with other fabrics between its nodes."""

import pytest

import foretell
from foretell.catalog import system
from foretell.errors import BadInput
from foretell.studies.procurement.clusters import USUAL, bisection, on_topologies

WORK = {"model": "llama-3.1-8b", "gpus": 128, "global_batch": 128, "seq_len": 4096}


def test_eight_fabrics_of_one_machine_are_ranked() -> None:
    found = foretell.compare(["hgx-h100"], **WORK, topologies="all").to_dict()
    rows = {row["system"]: row for row in found["systems"]}
    assert set(rows) == {f"hgx-h100 {name}" for name in USUAL}
    assert len(USUAL) == 8
    assert all(row["usd_per_million_tokens"] > 0 for row in rows.values())
    plain = foretell.compare(
        ["hgx-h100"], **WORK, set=["network.cluster.topology=fat-tree"]
    ).to_dict()["systems"][0]
    fat_tree = rows["hgx-h100 fat-tree"]
    for name in ("tokens_per_s", "usd_per_million_tokens"):
        assert fat_tree[name] == pytest.approx(plain[name], rel=1e-12)


def test_bisections_are_equal_where_that_is_asked() -> None:
    chosen = on_topologies(["hgx-h100"], "all", "bisection", 512)
    each = [bisection(system(one), 512) for one in chosen]
    assert each == pytest.approx([each[0]] * 8, rel=1e-12)
    rates = [float(system(one).nic_bytes_per_s) for one in chosen]
    assert max(rates) > 10 * min(rates), "a ring needs wider links than a fat tree"


def test_what_cannot_be_compared_is_said_at_once() -> None:
    with pytest.raises(BadInput) as error:
        foretell.compare(
            ["hgx-h100"], model="llama-3.1-8b", budget="1M", topologies="rings", equal="cost"
        )
    assert {problem.path for problem in error.value.problems} == {"topologies", "equal"}
    with pytest.raises(BadInput, match="--gpus"):
        on_topologies(["hgx-h100"], "ring", "bisection", None)
