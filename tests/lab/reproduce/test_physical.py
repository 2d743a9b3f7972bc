"""Every table of a reproduction is physical: more is no worse, parts sum, intervals hold their middle."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest

from foretell.lab.reproduce.nersc_2024 import NerscStudy
from foretell.lab.reproduce.nersc_layers import PARTS
from foretell.lab.reproduce.nersc_maps import MAPS, published_map
from foretell.lab.reproduce.nersc_ours import (
    OUR_GPUS,
    OurTask,
    breakdown,
    our_map,
    search_row,
)
from foretell.lab.reproduce.records import PaperFigure, reproduce, work_named

Rows = Sequence[Mapping[str, Any]]
ROUNDING = 1e-6
"""Share within which numbers that are equal in theory may differ."""
COARSE = 4
"""Values along each side of a map in the quick form."""


@lru_cache(maxsize=64)
def figure(work: str, name: str) -> PaperFigure:
    return reproduce(work, figure=name, workers=1)[0]


def by(rows: Rows, *columns: str) -> Iterable[Rows]:
    """The rows by what they have in some columns."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(c) for c in columns), []).append(row)
    return groups.values()


def falls(rows: Rows, along: str, column: str, share: float = ROUNDING) -> None:
    """No value is above the one before it."""
    some = sorted((r for r in rows if r.get(column) is not None), key=lambda r: r[along])
    for low, high in pairwise(some):
        assert high[column] <= low[column] * (1.0 + share), (low, high)


def rises(rows: Rows, along: str, column: str, share: float = ROUNDING) -> None:
    """No value is below the one before it."""
    falls([{**r, along: -r[along]} for r in rows], along, column, share)


def worth(rows: Rows, along: str, column: str) -> None:
    """k times less of something costs at most k times."""
    some = sorted((r for r in rows if r.get(column) is not None), key=lambda r: r[along])
    for low, high in pairwise(some):
        fewer = high[along] / low[along]
        assert low[column] <= high[column] * fewer * (1.0 + ROUNDING), (low, high)


def held(rows: Rows, low: str, middle: str, high: str) -> None:
    """Every value is inside its interval."""
    for row in rows:
        if row.get(low) is not None and row.get(middle) is not None:
            assert 0.0 < row[low] <= row[middle] <= row[high], row


def summed(rows: Rows, parts: Sequence[str], whole: str | float) -> None:
    """Parts are not negative and sum to the whole."""
    for row in rows:
        values = [float(row.get(part) or 0.0) for part in parts]
        assert min(values) >= 0.0
        total = row[whole] if isinstance(whole, str) else whole
        assert total is None or sum(values) == pytest.approx(total, rel=1e-6), row


def days(rows: Rows) -> None:
    for some in by(rows, "side", "strategy", "model", "chip", "nvs"):
        falls(some, "gpus", "days")
    for some in by(rows, "side", "strategy", "model", "chip", "gpus"):
        falls(some, "nvs", "days")
    for some in by(rows, "side", "model", "nvs", "gpus"):
        best = {r["chip"]: min(o["days"] for o in some if o["chip"] == r["chip"]) for r in some}
        order = [best[chip] for chip in ("A100", "H200", "B200") if chip in best]
        assert order == sorted(order, reverse=True)


def throughput(rows: Rows) -> None:
    for row in rows:
        assert row["samples_per_s_per_gpu"] > 0.0


def speedup(rows: Rows) -> None:
    for row in rows:
        assert row["speedup"] >= 1.0 - ROUNDING or row["side"] == "published"


def parts_of_days(rows: Rows) -> None:
    summed(rows, PARTS, "days")


def factor(rows: Rows) -> None:
    summed(rows, [f"our_{part}" for part in PARTS], "our_days")
    summed(rows, [f"published_{part}" for part in PARTS], "published_days")
    for row in rows:
        assert row["factor"] == pytest.approx(row["our_days"] / row["published_days"])


def layers(rows: Rows) -> None:
    for row in rows:
        for word in ("forward", "backward"):
            busy = max(row[f"{word}_compute_us"], row[f"{word}_memory_us"])
            assert row[f"{word}_us"] == pytest.approx(busy + row[f"{word}_comm_us"])


def plans(rows: Rows) -> None:
    for some in by(rows, "strategy", "model", "system", "nvs", "n_gpus"):
        rises(some, "rank", "t")


def inside(rows: Rows) -> None:
    held(rows, "ours_low_s", "ours_s", "ours_high_s")


def nccl(rows: Rows) -> None:
    inside(rows)
    for some in by(rows, "collective", "nodes"):
        rises(some, "bytes", "ours_s")
        rises(some, "bytes", "published_s")


def rates(rows: Rows) -> None:
    held(rows, "low_s", "step_s", "high_s")
    for some in by([r for r in rows if r["fits"] != "no"], "model", "system", "strategy"):
        rises([{**r, "all": r["gpus"] * r["tokens_per_s_per_gpu"]} for r in some], "gpus", "all")


def shares(rows: Rows) -> None:
    summed(rows, ("compute", "communication", "idle"), 1.0)


def volume(rows: Rows) -> None:
    for some in by(rows, "system", "model", "strategy"):
        rises(some, "gpus", "volume_rule_s")
        rises(some, "gpus", "large_messages_s")
    for row in rows:
        assert 0.0 <= row["ours_exposed_s"] <= row["ours_s"] * (1.0 + ROUNDING)


def bandwidth(rows: Rows) -> None:
    for some in by(rows, "model", "strategy"):
        rises(some, "factor", "gain")
    for row in rows:
        assert row["gain"] <= max(row["factor"], 1.0) * (1.0 + ROUNDING)


def measured(rows: Rows) -> None:
    held(rows, "low", "predicted", "high")
    held(rows, "open_low", "predicted", "open_high")


def flash(rows: Rows) -> None:
    for column in ("additive_ms", "overlapped_ms", "flash_ms", "stored_ms"):
        rises(rows, "seq_len", column)
    held(rows, "flash_low_ms", "flash_ms", "flash_high_ms")
    for row in rows:
        assert row["overlapped_ms"] <= row["additive_ms"]


def experts(rows: Rows) -> None:
    held(rows, "low_s", "step_s", "high_s")


def topologies(rows: Rows) -> None:
    sizes = {"64 KiB": 2**16, "1 MiB": 2**20, "16 MiB": 2**24, "256 MiB": 2**28, "1 GiB": 2**30}
    rows = [{**r, "bytes": sizes[r["size"]]} for r in rows]
    held(rows, "low_s", "seconds", "high_s")
    for some in by(rows, "topology", "collective"):
        rises(some, "bytes", "seconds")
        worth([{**r, "rate": r["seconds"]} for r in some], "bytes", "rate")
    for row in rows:
        times = 2.0 if row["collective"] == "all-reduce" else 1.0
        assert row["seconds"] >= times * row["bytes"] * 63 / 64 / 900e9 * (1.0 - ROUNDING)


def front(rows: Rows) -> None:
    held(rows, "usd_low", "usd_per_million_work_tokens", "usd_high")
    held(rows, "work_low", "work_tokens_per_s_per_gpu", "work_high")


def chiplet_cost(rows: Rows) -> None:
    held(rows, "low_usd", "usd", "high_usd")
    assert {row["dies"] for row in rows} >= {1, 2, 4, 8, 16}
    for some in by(rows, "node", "dies"):
        rises(some, "logic_mm2", "usd")


def nodes(rows: Rows) -> None:
    rows = [{**r, "place": i} for i, r in enumerate(rows) if r["tokens_per_s_per_gpu"]]
    rises(rows, "place", "tflop_per_s")
    rises(rows, "place", "tokens_per_s_per_gpu")
    held(rows, "die_low_usd", "die_usd", "die_high_usd")


def weights(rows: Rows) -> None:
    for row in rows:
        assert row["published"] == row["ours"] > 0


def chains(rows: Rows) -> None:
    for some in by(rows, "map"):
        rises(some, "bond", "chain_macs")
        rises(some, "bond", "weights_over_dense")


def trainings(rows: Rows) -> None:
    for row in rows:
        assert row["held_out_loss"] > 0.0


LAWS: Mapping[str, Mapping[str, Callable[[Rows], None]]] = {
    "nersc-2024": {
        "throughput": throughput,
        "speedup": speedup,
        "configurations": parts_of_days,
        "factor": factor,
        "days": days,
        "fixed": parts_of_days,
        "layers": layers,
        "measured": inside,
        "collectives": nccl,
        "plans": plans,
    },
    "scaling-2024": {
        "throughput": rates,
        "efficiency": rates,
        "shares": shares,
        "mixes": shares,
        "volume": volume,
        "bandwidth": bandwidth,
        "measured": measured,
    },
    "imec-2025": {
        "training": inside,
        "inference": inside,
        "flash": flash,
        "experts": experts,
        "topologies": topologies,
        "topology-front": front,
        "chiplet-front": front,
        "memory-front": front,
        "chiplet-cost": chiplet_cost,
        "nodes": nodes,
    },
    "anthe-2023": {"weights": weights, "chains": chains, "study": trainings},
}
"""Work -> figure -> what its table must satisfy; maps have a test of their own."""
HEAVY = ("days", "throughput", "speedup", "configurations", "factor", "plans")
"""Figures of nersc-2024 that need all of its searches."""


@pytest.mark.parametrize(
    ("work", "name"), [(w, n) for w, laws in LAWS.items() for n in laws if n not in HEAVY]
)
def test_a_table_is_physical(work: str, name: str) -> None:
    LAWS[work][name](figure(work, name).tables[name])


def test_searches_are_physical() -> None:
    """Ours on B200 in domains of eight."""
    tasks = [
        OurTask(model=model, chip="B200", domain=8, gpus=gpus)
        for model in ("gpt3_1T", "vit_era5")
        for gpus in OUR_GPUS
    ]
    rows = [search_row(task) for task in tasks]
    for some in by(rows, "model"):
        falls(some, "gpus", "days")
        falls(some, "gpus", "days_1d")
    for task, row in zip(tasks, rows, strict=True):
        assert row["days"] <= row["days_1d"]
        assert sum(breakdown(task, row["plan"]).values()) == pytest.approx(row["days"], rel=1e-6)


@pytest.mark.full
def test_tables_of_searches_are_physical() -> None:
    nersc = NerscStudy(1)
    for name in HEAVY:
        LAWS["nersc-2024"][name](getattr(nersc, name)().tables[name])


def map_is_physical(name: str, rows: Rows) -> None:
    for x, y in (MAPS[name], MAPS[name][::-1]):
        for some in by(rows, "model", "side", y.name):
            falls(some, x.name, "days")
            if x.name != "capacity_gb":  # a fit is all or nothing
                worth(some, x.name, "days")


@pytest.mark.parametrize("model", ["gpt3_1T", "vit_era5"])
@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_physical(name: str, model: str) -> None:
    x, y = (replace(p, values=p.values[:: len(p.values) // COARSE]) for p in MAPS[name])
    map_is_physical(name, list(our_map(model, 8192, x, y)))
    map_is_physical(name, list(published_map(model, 8192, x, y)))


@pytest.mark.full
@pytest.mark.parametrize("name", MAPS)
def test_a_whole_map_is_physical(name: str) -> None:
    map_is_physical(name, figure("nersc-2024", name).tables[name])


def test_every_table_has_a_law() -> None:
    for work, laws in LAWS.items():
        assert set(work_named(work).figures) - set(MAPS) - {"claims"} == set(laws)
