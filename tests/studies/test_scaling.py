"""Scaling: points equal estimates, shares add up, efficiencies and stops follow from them."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.errors import BadInput, Infeasible
from foretell.report.figures.scaling import efficiency
from foretell.studies.scaling.evaluate import BANDWIDTHS, structure
from foretell.studies.scaling.records import Curve, Scaling, ScalingPoint
from foretell.studies.scaling.run import (
    common_batch,
    curve_of,
    gpu_counts,
    plan_texts,
    scaling,
    strategy_texts,
)
from foretell.studies.scaling.study import study
from tests.surfaces.command import foretell as command

SMALL, SYSTEM = "gpt3-350m", "polaris-ss10"
STRATEGIES = "zero0,zero1,zero2,zero3,tp4 zero1,tp2 pp2 zero1,zero3 recompute=full"


@pytest.fixture(scope="module")
def found() -> Scaling:
    return scaling(
        SMALL, "gpt3-6.7b", system=SYSTEM, gpus="1..64", strategies=STRATEGIES, batch_per_gpu=4
    )


def points(found: Scaling) -> list[tuple[Curve, ScalingPoint]]:
    return [(c, p) for c in found.curves for p in c.points if p.step_s is not None]


def test_points_are_estimates(found: Scaling) -> None:
    for curve, point in points(found)[::3]:
        asked = {"system": SYSTEM, "gpus": point.gpus, "global_batch": point.global_batch}
        try:
            one = foretell.estimate(curve.model, plan=point.plan, **asked)
        except Infeasible as error:
            assert point.fits == "no"
            one = error.answer
        assert one.fits == point.fits
        for name in ("step_s", "tokens_per_s", "mfu", "tflops_per_gpu", "peak_memory_bytes"):
            assert getattr(point, name) == pytest.approx(getattr(one, name), rel=1e-9)
        assert point.limited_by == one.limited_by
        for key, ends in one.interval.items():
            assert point.interval[key] == pytest.approx(ends, rel=1e-9)


def test_the_step_is_its_shares(found: Scaling) -> None:
    for _, p in points(found):
        whole = p.compute_s + p.exposed_communication_s + p.bubble_s + p.other_s
        assert whole == pytest.approx(p.step_s, rel=1e-9)
        assert sum(p.shares.values()) == pytest.approx(p.step_s, rel=1e-9)
        assert min(p.compute_s, p.exposed_communication_s, p.bubble_s, p.other_s) >= -1e-12
        assert p.hidden_communication_s >= 0.0


def test_one_chip_sends_nothing(found: Scaling) -> None:
    for _, p in points(found):
        if p.gpus == 1:
            assert p.exposed_communication_s == p.hidden_communication_s == 0.0
            assert p.efficiency in (None, 1.0)


@pytest.mark.parametrize("plan", ["zero0 mbs2", "zero1 mbs4", "zero2 mbs2", "zero3 mbs4"])
def test_what_is_sent_is_what_is_played(plan: str) -> None:
    """Exposed and hidden together are the messages of the same step played event by event."""
    played = foretell.simulate(
        SMALL, system=SYSTEM, gpus=16, global_batch=64, plan=f"{plan} dp16"
    ).played
    sent_s = sum(one.end_s - one.start_s for one in played.messages[0])
    (curve,) = scaling(SMALL, system=SYSTEM, gpus=[16], strategies=[plan], batch_per_gpu=4).curves
    point = curve.points[0]
    whole_s = point.exposed_communication_s + point.hidden_communication_s
    assert whole_s == pytest.approx(sent_s, rel=1e-6)


@pytest.mark.parametrize("zero", [1, 3])
def test_buckets_join_messages(zero: int) -> None:
    """The same bytes in fewer messages: less latency, and more held at once."""
    from foretell.simulation.programs.collectives import step_collectives

    asked = {"system": SYSTEM, "gpus": 64, "global_batch": 64}
    found = []
    for words in ("", " bucket=20", " bucket=100000"):
        told = foretell.estimate(SMALL, plan=f"dp64 zero{zero}{words}", **asked)
        sent = [c for c in step_collectives(told.scenario, told.plan)[0] if c.axis == "data"]
        (curve,) = scaling(
            SMALL, system=SYSTEM, gpus=[64], strategies=[f"zero{zero}{words}"]
        ).curves
        point = curve.points[0]
        sent_s = point.exposed_communication_s + point.hidden_communication_s
        found.append((sum(c.count for c in sent), sum(c.bytes for c in sent), sent_s, told))
    usual, some, one = found
    assert one[0] == {1: 2, 3: 3}[zero] < some[0] < 3 * 25
    assert usual[1] == some[1] == one[1]
    assert one[2] < some[2]
    assert str(foretell.parse_plan(str(one[3].plan))) == str(one[3].plan)
    if zero == 3:
        assert some[2] < usual[2]
        assert one[3].peak_memory_bytes > usual[3].peak_memory_bytes


def test_zero_3_sends_half_more() -> None:
    """2 and 3 times the weights (Rajbhandari et al. 2020), with gradients as wide as weights."""
    same = scaling(
        "gpt3-6.7b", system=SYSTEM, gpus=[64], strategies="zero1,zero3", plan="gradients=bf16"
    )
    one, three = (c.points[0] for c in same.curves)
    sent = [p.exposed_communication_s + p.hidden_communication_s for p in (one, three)]
    assert sent[1] / sent[0] == pytest.approx(1.5, rel=0.1)


def test_more_bandwidth_is_never_slower(found: Scaling) -> None:
    for _, p in points(found):
        ratios = [*p.by_bandwidth.values()]
        assert [*p.by_bandwidth] == [f"{factor:g}" for factor in BANDWIDTHS]
        assert all(a >= b - 1e-9 for a, b in itertools.pairwise(ratios))
        # Seconds change by no more than the factor.
        ends = [sorted((1.0, 1.0 / factor)) for factor in BANDWIDTHS]
        assert all(
            low - 1e-9 <= ratio <= high + 1e-9
            for ratio, (low, high) in zip(ratios, ends, strict=True)
        )
        for path, ratio in p.twice.items():
            assert 0.5 - 1e-9 <= ratio <= 1.0 + 1e-9, path
        slopes = {k: v for k, v in p.elasticities.items() if k.endswith("bytes_per_s")}
        assert all(-1.001 <= value <= 1e-6 for value in slopes.values())


def test_bandwidth_is_that_of_an_estimate() -> None:
    """A factor on the links equals the same question with the links set by hand."""
    asked = {"system": SYSTEM, "gpus": 64, "global_batch": 64, "plan": "dp64 zero3"}
    plain = foretell.estimate(SMALL, **asked)
    better = foretell.estimate(
        SMALL, **asked, set={"network.cluster.bandwidth_bytes_per_s": 4 * 6.25e9}
    )
    (curve,) = scaling(SMALL, system=SYSTEM, gpus=[64], strategies="zero3").curves
    ratio = curve.points[0].by_bandwidth["4"]
    assert ratio == pytest.approx(better.step_s / plain.step_s, rel=1e-9)


def test_efficiency_and_where_it_stops(found: Scaling) -> None:
    for curve in found.curves:
        there = [p for p in curve.points if p.fits != "no"]
        assert (curve.fits_from is None) == (not there)
        for p in curve.points:
            assert (p.efficiency is None) == (p.fits == "no")
        if not there:
            assert curve.stops_at is None
            assert curve.scales_to is None
            continue
        assert there[0].scaling_efficiency == 1.0
        ratio = {p.efficiency / p.scaling_efficiency for p in there}
        assert max(ratio) == pytest.approx(min(ratio))
        assert max(ratio) <= 1.0 + 1e-12
        below = [p.gpus for p in there if p.efficiency < found.floor]
        assert curve.stops_at == (below[0] if below else None)
        assert curve.scales_to is None or curve.scales_to < (curve.stops_at or 10**9)
        best = max(there, key=lambda p: p.tokens_per_s)
        assert curve.best_gpus == best.gpus


def test_what_is_lost_is_what_waits() -> None:
    (curve,) = scaling(SMALL, system=SYSTEM, gpus="1..64", strategies="zero3").curves
    assert curve.stops_at == 8  # the first that leaves the node
    assert curve.lost_to == "data_parallel"
    assert "cluster link" in curve.why


def test_strong_scaling_holds_the_batch() -> None:
    held = scaling(SMALL, system=SYSTEM, gpus="1..32", strategies="zero1", global_batch=32)
    assert held.mode == "strong"
    assert {p.global_batch for p in held.curves[0].points} == {32}
    weak = scaling(SMALL, system=SYSTEM, gpus="1..32", strategies="zero1", batch_per_gpu=32)
    assert [p.global_batch for p in weak.curves[0].points] == [32 * 2**k for k in range(6)]
    assert held.curves[0].points[0].step_s == weak.curves[0].points[0].step_s


def test_order_of_the_question_changes_nothing(found: Scaling) -> None:
    names = STRATEGIES.split(",")[::-1]
    turned = scaling(
        "gpt3-6.7b", SMALL, system=SYSTEM, gpus=[64, 8, 1], strategies=names, batch_per_gpu=4
    )
    known = {(c.model, c.strategy, p.gpus): p for c in found.curves for p in c.points}
    for curve in turned.curves:
        for p in curve.points:
            other = known[curve.model, curve.strategy, p.gpus]
            assert p.plan == other.plan
            assert p.step_s == (other.step_s and pytest.approx(other.step_s, rel=1e-12))


@given(low=st.integers(1, 4096), doublings=st.integers(0, 8), more=st.integers(0, 1 << 40))
def test_ranges_double(low: int, doublings: int, more: int) -> None:
    high = low * 2**doublings + more % (low * 2**doublings)
    assert gpu_counts(f"{low}..{high}") == tuple(low * 2**k for k in range(doublings + 1))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_lists_are_sorted_sets(counts: list[int]) -> None:
    assert gpu_counts(",".join(map(str, counts))) == tuple(sorted(set(counts)))


@pytest.mark.parametrize(
    "text", ["", "0..4", "8..4", "1-8", "a", "1..", "..8", "-1", "1e3", "4,,8"]
)
def test_bad_counts(text: str) -> None:
    with pytest.raises(BadInput, match="gpus"):
        gpu_counts(text)
    with pytest.raises(BadInput, match="gpus"):
        gpu_counts(0.5)  # type: ignore[arg-type]


def test_commas_of_an_order_are_no_strategies() -> None:
    text = "zero1, tp4 order=tp,cp,dp,pp zero1 ,zero3"
    assert strategy_texts(text) == ("zero1", "tp4 order=tp,cp,dp,pp zero1", "zero3")


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5))
@settings(max_examples=20)
def test_every_micro_batch_divides_the_batch(sizes: list[int]) -> None:
    texts = plan_texts([f"zero1 mbs{n}" for n in sizes], "", None)
    assert all(common_batch(texts) % n == 0 for n in sizes)


def test_structure_keeps_what_a_batch_cannot_mix() -> None:
    plan = foretell.parse_plan("tp4 pp2 vpp2 dp8 zero3 recompute=full")
    assert structure(plan) == structure(foretell.parse_plan("zero1 recompute=selective"))
    assert structure(replace(plan, precision="fp8")) != structure(plan)
    assert structure(replace(plan, recompute="full:2")) != structure(plan)


def test_a_curve_of_nothing_that_fits() -> None:
    point = ScalingPoint(
        strategy="x", gpus=1, global_batch=1, plan="x", fits="no", reason="because"
    )
    curve = curve_of("m", "s", [point], 0.8)
    assert curve.fits_from is None
    assert curve.lost_to is None
    assert "because" in curve.why


def test_too_few_chips_say_so() -> None:
    (curve,) = scaling(SMALL, system="thetagpu", gpus="2..256", strategies="tp4 zero1").curves
    reasons = [p.reason for p in curve.points]
    assert "4" in reasons[0]
    assert "176 chips" in reasons[-1]
    assert curve.fits_from == 4
    assert "not on 256" in curve.why


@pytest.mark.parametrize(
    ("more", "path"),
    [
        (("--gpus", "0..4"), "gpus"),
        (("--strategies", "zero7"), "plan"),
        (("--mode", "sideways"), "mode"),
        (("--mode", "strong"), "global_batch"),
        (("--mode", "weak", "--global-batch", "8"), "global_batch"),
        (("--batch-per-gpu", "0"), "batch_per_gpu"),
        (("--floor", "2"), "floor"),
        (("--floor", "nan"), "floor"),
        (("--micro-batch", "2", "--plan", "mbs2"), "micro_batch"),
        (("--system", "no-such-system"), "system"),
        (("--picture", "x.bmp"), "picture"),
        (("--study",), "study"),
    ],
)
def test_bad_input(more: tuple[str, ...], path: str) -> None:
    system = () if "--system" in more else ("--system", SYSTEM)
    outcome = command("scaling", SMALL, *system, *more)
    assert (outcome.code, outcome.out) == (2, "")
    assert path in outcome.err


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    words = ("scaling", SMALL, "--system", SYSTEM, "--gpus", "1..8", "--picture", str(file))
    outcome = command(*words, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert [c["strategy"] for c in outcome.json["curves"]] == ["zero1", "zero2", "zero3"]
    assert outcome.json["mode"] == "weak"
    assert file.read_text().startswith("<svg")
    assert "Where it stops" in command(*words).out


def test_nothing_fits_is_no() -> None:
    words = ("scaling", "gpt3-13b", "--system", SYSTEM, "--gpus", "1", "--strategies", "zero1")
    assert command(*words).code == 1


def test_the_study() -> None:
    found = study()
    assert len(found.data_parallel.models) == 6
    assert {len(c.points) for c in found.data_parallel.curves} == {10}
    assert len(found.data_parallel.curves) == 18
    rates = {
        (one.system, c.strategy): c.points[0].tokens_per_s_per_gpu
        for one in found.model_parallel
        for c in one.curves
    }
    # Tensor parallelism over two nodes is what little bandwidth hurts most.
    systems = [one.system for one in found.model_parallel]
    slowest = [rates[system, "tp8 zero1"] for system in systems]
    assert slowest == sorted(slowest, reverse=True)
    assert slowest[0] > 4.0 * slowest[-1]
    assert rates["polaris-ss10", "pp8 zero1"] > 0.9 * rates["thetagpu-sophia", "pp8 zero1"]
    for row in found.measured:
        assert (row.p90 is None) == (row.quantity not in ("samples/s", "step s"))
        assert row.p90 is None or row.p90[0] < row.predicted < row.p90[1]
    buses = [abs(row.error) for row in found.measured if row.quantity == "bus GB/s"]
    assert sorted(buses)[len(buses) // 2] < 0.06


def test_a_strategy_that_fits_nowhere_has_no_key_in_the_picture() -> None:
    place = {"system": "h100-sxm", "gpus": "16,32", "strategies": "zero0,zero3"}
    found = scaling("llama-3.1-8b", **place)
    lost, kept = found.curves
    assert (lost.largest, kept.largest) == (None, kept.points[-1])
    keys = [trace["name"] for trace in efficiency("8b", found.curves)["data"]]
    assert keys == ["zero3"]


def test_a_model_that_no_usual_strategy_holds_has_one_that_fits() -> None:
    found = scaling("llama-3.1-70b", system="h100-sxm", gpus="64,128")
    usual, last = found.curves[:-1], found.curves[-1]
    assert [curve.fits_from for curve in usual] == [None] * 3
    assert last.fits_from == 64
    assert {"dp", "tp"} & set(re.findall("[a-z]+(?=[0-9])", last.strategy)) == {"tp"}
    # What was asked for is what is answered: no strategy is added to those that were named.
    asked = scaling("llama-3.1-70b", system="h100-sxm", gpus=64, strategies="zero1")
    assert [curve.strategy for curve in asked.curves] == ["zero1"]
