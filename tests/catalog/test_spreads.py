"""Residuals of published runs as ends of intervals."""

from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.spreads import (
    ENDS,
    HELD_OUT,
    LEVELS,
    WIDE_ENDS,
    Known,
    Spread,
    interval_ends,
    known_of,
    mixed_ends,
    step_spreads,
)

quantiles = st.lists(st.floats(-2.0, 2.0), min_size=5, max_size=5).map(lambda q: tuple(sorted(q)))
sources = st.lists(
    st.builds(
        Spread,
        kind=st.just("plain"),
        source=st.sampled_from("abcdef"),
        rows=st.integers(1, 50),
        quantiles=quantiles,
    ),
    min_size=1,
    max_size=6,
)
KINDS = sorted({s.kind for s in step_spreads()})
PLAYBOOK = "HF Ultra-Scale Playbook nanotron benchmark (copy in gkarfakis19/Rapid-LLM)"


def width(kind: str, known: Known) -> float:
    low, high = interval_ends(kind, known)["p90"]
    return high - low


def test_the_file_is_in_order() -> None:
    found = step_spreads()
    assert {s.held_out for s in found} == {mode for modes in HELD_OUT.values() for mode in modes}
    for one in found:
        assert one.rows > 0
        assert one.framework
        assert one.chip
        assert len(one.quantiles) == len(LEVELS)
        assert list(one.quantiles) == sorted(one.quantiles)


@given(sources, st.sampled_from([ENDS, WIDE_ENDS]))
def test_levels_are_nested_and_hold_the_estimate(found: list[Spread], levels: dict) -> None:
    ends = mixed_ends(found, levels)
    assert ends["p90"][0] <= ends["p50"][0] <= 0.0 <= ends["p50"][1] <= ends["p90"][1]


@given(quantiles, st.integers(10, 100))
def test_a_source_alone_gives_its_own_quantiles(q: tuple[float, ...], rows: int) -> None:
    low, high = mixed_ends([Spread(kind="plain", source="a", rows=rows, quantiles=q)])["p90"]
    assert low <= min(q[0], 0.0) + 1e-9
    assert high >= max(q[-1], 0.0) - 1e-9


@given(sources, st.floats(0.0, 1.0))
def test_wider_residuals_are_wider_intervals(found: list[Spread], more: float) -> None:
    wide = [
        Spread(
            kind=s.kind,
            source=s.source,
            rows=s.rows,
            quantiles=(s.quantiles[0] - more, *s.quantiles[1:4], s.quantiles[4] + more),
        )
        for s in found
    ]
    assert mixed_ends(wide)["p90"][0] <= mixed_ends(found)["p90"][0] + 1e-9
    assert mixed_ends(wide)["p90"][1] >= mixed_ends(found)["p90"][1] - 1e-9


def test_a_kind_of_few_sources_takes_all() -> None:
    ends = interval_ends("no such kind", "together")
    assert ends == interval_ends("nor such one", "together")
    assert ends["p90"][1] > 0.05


def test_a_source_and_a_chip_can_be_left_out() -> None:
    names = {s.source for s in step_spreads() if s.kind == "plain"}
    ends = {name: interval_ends("plain", "together", (name,)) for name in names}
    assert any(found != interval_ends("plain", "together") for found in ends.values())
    assert interval_ends("plain", "together", (), ("h100-sxm",)) != interval_ends(
        "plain", "together"
    )


def test_what_is_known_goes_by_what_was_seen() -> None:
    assert known_of("nanotron", "h100-sxm") == "together"
    assert known_of("nanotron", "h100-sxm", (PLAYBOOK,)) == "apart"
    assert known_of("nanotron", "b200-sxm") == "apart"
    assert known_of("nanotron", "mi300x") == "new_chip"
    assert known_of("primus", "mi300x") == "new"
    assert known_of("nemo", "h100-sxm", (), ("h100-sxm",)) == "new_chip"
    assert known_of("", "h100-sxm") == "unnamed"


def test_less_known_is_wider() -> None:
    """Neither seen is wider than either alone; no framework named is wider than one that was seen."""
    for kind in KINDS:
        assert width(kind, "new") >= max(width(kind, "apart"), width(kind, "new_chip")) - 1e-12
        assert width(kind, "unnamed") >= width(kind, "together")
