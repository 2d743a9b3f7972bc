"""The links that measured collectives tell of."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.catalog.systems import system_from_file
from foretell.lab.calibrate.measured_facts import node_tier, unfitted_collectives
from foretell.lab.calibrate.measured_rows import Measurements
from foretell.network.collectives import collective_s
from foretell.network.stack import stack_of

LATENCY_S, RATE = 2e-4, 1e9
SLOWER = {"all_reduce": 1.0, "all_gather": 0.4, "reduce_scatter": 0.3, "all_to_all": 2.0}
PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def lines(ranks: int, nodes: int = 1) -> list[dict[str, Any]]:
    """A ring of so many: latency, and a rate of each kind."""
    return [
        {
            "mode": "burst", "group": "collectives", "family": kind, "nodes": nodes,
            "dims": {"ranks": ranks, "bytes": size},
            "seconds": PASSES[kind] * (ranks - 1) * (LATENCY_S + size / ranks / RATE / SLOWER[kind]),
        }
        for kind in SLOWER
        for size in (1 << 26, 1 << 12, 1 << 20)
    ]  # fmt: skip


def measured(points: list[dict[str, Any]]) -> Measurements:
    return Measurements(name="", environment={}, points=tuple(points), failed=0)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_tier_from_a_ring(ranks: int) -> None:
    tier = node_tier(measured([*lines(2), *lines(ranks), *lines(16, nodes=4)]))
    assert tier["size"] == ranks
    assert tier["bandwidth_bytes_per_s"] == pytest.approx(RATE, rel=1e-3)
    assert tier["latency_s"] == pytest.approx(LATENCY_S, rel=0.02)
    assert tier["gather_share"] == pytest.approx(0.4, rel=1e-3)
    assert tier["scatter_share"] == pytest.approx(0.3, rel=1e-3)
    assert tier["exchange_share"] == pytest.approx(2.0, rel=1e-3)


def test_none_where_too_little_was_measured() -> None:
    assert node_tier(measured([])) == {}
    assert (
        node_tier(
            measured(
                [{**line, "dims": {"ranks": 1, "bytes": n}} for n, line in enumerate(lines(2))]
            )
        )
        == {}
    )
    assert node_tier(measured(lines(4, nodes=2))) == {}
    assert node_tier(measured([line for line in lines(2) if line["family"] != "all_reduce"])) == {}
    assert node_tier(measured([line for line in lines(2) if line["dims"]["bytes"] < 1e5])) == {}


def test_noise_leaves_a_low_rate_and_no_guess() -> None:
    """Where the smallest message is the slower one, the largest alone tells a rate."""
    tier = node_tier(measured([{**line, "seconds": 1.0} for line in lines(2)]))
    assert tier["bandwidth_bytes_per_s"] == pytest.approx(2.0 * 0.5 * (1 << 26))
    assert tier["latency_s"] == pytest.approx(0.5)


def test_what_is_not_fitted_is_named() -> None:
    """Every collective is in the tier, or in the list of what is not, with a reason."""
    rows = [{**line, "variant": "gloo"} for line in [*lines(2), *lines(4), *lines(16, nodes=4)]]
    rows += [{**rows[0], "family": "broadcast", "dims": {"ranks": 4, "bytes": 1 << 20}}]
    left = unfitted_collectives(measured(rows), kept=True)
    used = sum(line["dims"]["ranks"] == 4 and line["family"] != "broadcast" for line in rows)
    assert sum(count for _, count, _ in left) == len(rows) - used
    assert {why.split(":")[0] for _, _, why in left} == {
        "fewer ranks than the 4 that the tier is fitted to",
        "between machines",
        "has no rate of its own in a tier; all-reduce tells the links",
    }
    every = unfitted_collectives(measured(rows), kept=False)
    assert sum(count for _, count, _ in every) == len(rows)
    one = [line for line in rows if line["dims"]["bytes"] < 1e5 and line["dims"]["ranks"] == 4]
    assert all(
        "one size" in why for _, _, why in unfitted_collectives(measured(one), kept=True)[:1]
    )


def test_a_system_of_it_takes_what_was_measured(tmp_path: Path) -> None:
    """The times of large messages come back from the file, each kind's own."""
    rows = lines(4)
    fields = "\n".join(f"{name} = {value!r}" for name, value in node_tier(measured(rows)).items())
    path = tmp_path / "cpu.toml"
    path.write_text(f'[chip]\nbase = "h100-sxm"\n[network.node]\n{fields}\n')
    network = system_from_file(path).network
    for line in rows:
        if line["dims"]["bytes"] == 1 << 26:
            kind: Any = line["family"].replace("_", "-")
            group = stack_of(np.array([[4.0]]), network, [kind])
            found = float(collective_s(kind, float(1 << 26), group)[0])
            assert found == pytest.approx(line["seconds"], rel=0.02)
