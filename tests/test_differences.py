"""Differences of two plans sum to the difference of their steps, and share what may be wrong."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.api.answers import Estimate
from foretell.catalog.error_models import error_model
from foretell.search.differences import cause_of, compare, interval_of

ASKED = {"system": "h100-sxm", "gpus": 64}
WORDS = [
    "tp8 pp2 zero1 mbs1",
    "tp4 pp4 zero1 mbs1 recompute=full",
    "tp2 pp8 zero1 mbs1",
    "tp8 pp2 vpp2 zero1 mbs1",
    "zero3 tp8 mbs2 recompute=full",
]
plans = st.sampled_from(WORDS)


def estimates(*words: str) -> list[Estimate]:
    return [foretell.estimate("llama-3.1-8b", plan=text, **ASKED) for text in words]


@settings(max_examples=25, deadline=None)
@given(a=plans, b=plans)
def test_leaves_sum_to_the_difference(a: str, b: str) -> None:
    found = compare(*estimates(a, b))
    back = compare(*estimates(b, a))
    assert sum(d.difference for d in found.time) == pytest.approx(
        found.difference_s, rel=1e-9, abs=1e-12 * found.a.step_s
    )
    more = found.b.peak_memory_bytes - found.a.peak_memory_bytes
    assert sum(d.difference for d in found.memory) == pytest.approx(more, rel=1e-9, abs=1.0)
    assert back.difference_s == -found.difference_s
    for key in ("p50", "p90"):
        low, high = found.interval[key]
        assert low <= found.difference_s <= high
        assert back.interval[key] == pytest.approx((-high, -low))
    assert back.certain == found.certain
    assert {found.faster, back.faster} in ({"a", "b"}, {"same"})


def test_a_plan_against_itself() -> None:
    one = estimates(WORDS[0])[0]
    found = compare(one, one)
    assert (found.difference_s, found.faster, found.certain) == (0.0, "same", False)
    assert found.interval == {"p50": (0.0, 0.0), "p90": (0.0, 0.0)}
    assert (found.only_a, found.only_b) == ((), ())


def test_shared_errors_count_once() -> None:
    """Narrower than were the two steps' intervals independent, and wider than nothing."""
    a, b = estimates(*WORDS[:2])
    assert a.interval is not None
    assert b.interval is not None
    low, high = compare(a, b).interval["p90"]
    apart = [e.interval["p90"][1] - e.interval["p90"][0] for e in (a, b)]  # type: ignore[index]
    assert 0.0 < high - low < 0.6 * (apart[0] ** 2 + apart[1] ** 2) ** 0.5


def test_the_interval_grows_with_its_causes() -> None:
    """By hand: a leaf that only one plan has brings its own spread, and the whole step its own."""
    a = estimates(WORDS[0])[0].breakdown
    assert a is not None
    more = next(leaf for leaf in a.children if leaf.name == "tensor_parallel")
    b = replace(
        a,
        value=a.value + more.value,
        children=(*a.children, replace(more, name="context_parallel")),
    )
    low, high = interval_of(a, b)["p90"]
    assert more.interval is not None
    model = error_model("training")
    rest = math.expm1(-1.645 * math.sqrt(2.0) * math.hypot(model.alike, model.own)) * more.value
    own = more.interval["p90"][0] - more.value
    assert low == pytest.approx(more.value - (rest**2 + own**2) ** 0.5, rel=1e-6)
    assert high > more.value
    assert cause_of("recompute.gemm") == cause_of("compute.gemm") == "gemm"
    assert cause_of("host") == "host"


def test_words_and_what_does_not_fit() -> None:
    found = foretell.compare_plans(*WORDS[:2], "llama-3.1-8b", **ASKED)
    assert found.only_a == ("tp8", "pp2", "recompute=none")
    assert found.only_b == ("tp4", "pp4", "recompute=full")
    full = foretell.compare_plans("zero0 mbs8", "tp8 pp2 zero1 mbs1", "llama-3.1-70b", **ASKED)
    assert (full.a.fits, full.better) == ("no", "b")
    with pytest.raises(foretell.Infeasible, match="B: plan"):
        foretell.compare_plans("tp8", "tp3", "llama-3.1-8b", **ASKED)


def test_sentences() -> None:
    full, none = WORDS[0] + " recompute=full", WORDS[0]
    found = foretell.compare_plans(none, full, "llama-3.1-8b", **ASKED)
    assert found.conclusions[0].startswith("A takes ")
    assert any("It gains" in text and "recompute.gemm" in text for text in found.conclusions)
    assert any("less, most of it activations" in text for text in found.conclusions)
    same = foretell.compare_plans(none, none + " order=tp,cp,dp,pp", "llama-3.1-8b", **ASKED)
    assert same.conclusions == ("Both take the same time.",)
