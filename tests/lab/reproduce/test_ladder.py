"""Ladders from a published number to ours: factors multiply to the whole, and a reason carries half of it."""

from math import inf, prod

import pytest

from foretell.lab.reproduce.nersc_findings import STATEMENTS, findings_of, tasks_of
from foretell.lab.reproduce.nersc_ladder import EQUATIONS, MECHANISMS, SPACE, Climb, climb
from foretell.lab.reproduce.nersc_layers import PARTS
from foretell.lab.reproduce.nersc_ours import OurTask, search_row
from foretell.lab.reproduce.records import HALF, Ladder, ladder_of, mean_ladder, verdict


@pytest.fixture(scope="module")
def climbs() -> dict[OurTask, Climb]:
    """Searches of the statements on 1-D plans, both models."""
    return {task: climb(task) for task in tasks_of(("speedup",))}


def test_the_last_rung_is_our_search(climbs: dict[OurTask, Climb]) -> None:
    for task, found in climbs.items():
        row, last = search_row(task), list(found.days.values())[-1]
        assert last["any"] == pytest.approx(row["days"], rel=1e-9)
        assert last["1d"] == pytest.approx(row["days_1d"], rel=1e-9)
        assert found.plans["any"] == row["plan"]


def test_more_to_choose_from_is_no_slower(climbs: dict[OurTask, Climb]) -> None:
    """Interleaving, ZeRO and recomputation add plans and change none."""
    names = [one.name for one in MECHANISMS]
    later = names[names.index("interleaved stages") - 1 :]
    for found in climbs.values():
        for kind in ("any", "1d"):
            days = [found.days[name][kind] for name in later]
            assert days == sorted(days, reverse=True)


def test_our_equations_under_the_studys_assumptions_are_close_to_its(
    climbs: dict[OurTask, Climb],
) -> None:
    for found in climbs.values():
        theirs = found.days["its code corrected"]["any"]
        assert 0.7 < found.days[SPACE]["any"] / theirs < 1.25
        assert 0.7 < found.days[list(EQUATIONS)[-1]]["any"] / theirs < 1.4


def test_every_part_of_the_time_is_on_a_rung() -> None:
    assert sorted(part for some in EQUATIONS.values() for part in some) == sorted(PARTS)


def test_factors_multiply_to_the_whole(climbs: dict[OurTask, Climb]) -> None:
    for one in findings_of("speedup", climbs):
        assert one.ladder is not None
        if one.ladder.first < inf:
            factors = prod(rung.factor for rung in one.ladder.rungs)
            assert factors == pytest.approx(one.ladder.whole, rel=0.01)
        assert one.why.startswith("Because of") == (one.ladder.reason is not None)
    assert len(STATEMENTS["days"][0].numbers) == 3


def test_a_reason_carries_half() -> None:
    found = ladder_of({"published": 1.0, "power": 1.5, "kernels": 1.6, "overlap": 2.0})
    assert found.reason is not None
    assert found.reason.mechanism == "power"
    assert found.because == "Because of power: x1.50 of x2.00 (kernels x1.07, overlap x1.25)."
    split = ladder_of({"published": 1.0, "power": 1.25, "kernels": 1.6, "overlap": 2.0})
    assert split.reason is None
    assert split.because.startswith("No mechanism carries half of x2.00: kernels x1.28, ")
    assert ladder_of({"published": 1.0, "power": 2.0, "kernels": 1.01}).because == "The two agree."
    assert HALF == 0.5


def test_numbers_that_begin_infinite() -> None:
    found = ladder_of({"published": inf, "sharding": inf, "kernels": 2.0, "power": 3.0})
    assert found.because == "Because of kernels: nothing fits without."
    assert found.rungs[1].to_dict() == {"mechanism": "sharding", "value": None, "factor": 1.0}


def test_a_mean_of_ladders_has_the_mean_of_each_rung() -> None:
    def one(value: float) -> Ladder:
        return ladder_of({"published": 1.0, "power": value})

    assert mean_ladder([one(2.0), one(8.0)]).last == pytest.approx(4.0)


def test_a_wide_interval_decides_nothing() -> None:
    assert verdict(True, 1.9) == "survives"
    assert verdict(False, 1.9) == "does not survive"
    assert verdict(True, 2.0) == verdict(False, 3.0) == "not decided"
    assert verdict(True, 1.0, False) == "not what the stored outputs say"
