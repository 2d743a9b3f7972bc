"""Residuals of published runs as ends of intervals."""

from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.spreads import LEVELS, Spread, memory_spreads, mixed_ends

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


def test_the_file_is_in_order() -> None:
    for one in memory_spreads():
        assert one.rows > 0
        assert len(one.quantiles) == len(LEVELS)
        assert list(one.quantiles) == sorted(one.quantiles)


@given(sources)
def test_levels_are_nested_and_hold_the_estimate(found: list[Spread]) -> None:
    ends = mixed_ends(found)
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
