"""The busiest rank of experts: in closed form as in draws, and never below the mean."""

import numpy as np
import pytest

from foretell.sharding.expert_loads import busiest_rank, largest_normal, unevenness
from foretell.specs.plan import Plan
from tests.kernels.test_frameworks import answer


@pytest.mark.parametrize(
    ("ep", "experts", "tokens", "top_k"), [(8, 128, 4096, 8), (64, 128, 512, 4), (4, 8, 4096, 2)]
)
def test_random_routing_is_as_even_as_draws_are(
    ep: int, experts: int, tokens: int, top_k: int
) -> None:
    """Every token of ep ranks chooses top_k different experts alike: the mean of the busiest rank's rows."""
    rng = np.random.default_rng(5)
    found = []
    for _ in range(20):
        scores = rng.random((tokens * ep, experts))
        chosen = np.argpartition(scores, top_k, axis=1)[:, :top_k]
        rows = np.bincount(chosen.ravel() // (experts // ep), minlength=ep)
        found.append(rows.max() / rows.mean())
    told = busiest_rank("random", float(ep), float(experts), float(tokens * top_k), 1.0)
    assert told - 1.0 == pytest.approx(np.mean(found) - 1.0, rel=0.35)
    assert told > 1.0


@pytest.mark.parametrize("ep", [4, 16, 64])
def test_experts_that_differ_are_as_uneven_as_draws_are(ep: int) -> None:
    """Shares of 256 experts with the catalogue's spread, so many rows that chance is nothing."""
    rng = np.random.default_rng(7)
    spread = unevenness("sequence").popularity
    shares = 1.0 + spread * rng.standard_normal((400, ep, 256 // ep))
    found = shares.mean(axis=2).max(axis=1).mean()
    told = busiest_rank("sequence", float(ep), 256.0, 1e12, 1.0)
    assert told - 1.0 == pytest.approx(found - 1.0, rel=0.12)


def test_bounds_and_order() -> None:
    assert busiest_rank("even", 8.0, 64.0, 100.0, 1.0) == 1.0
    assert busiest_rank("batch", 1.0, 64.0, 100.0, 1.0) == 1.0
    assert np.all(busiest_rank("batch", np.array([2.0, 64.0]), 64.0, 1.0, 1.0) <= [2.0, 64.0])
    values = [busiest_rank("batch", 64.0, 64.0, 1e4, q) for q in (1.0, 8.0, 512.0)]
    assert values == sorted(values, reverse=True)
    assert largest_normal(np.array([1.0, 64.0])) == pytest.approx([0.0, 2.34], abs=0.01)


def test_a_router_by_its_loss_takes_longer() -> None:
    words = "tp1 ep8 zero1 mbs1 recompute=full"
    steps = [answer(f"{words} routing={r}").step_s for r in ("even", "random", "sequence", "batch")]
    assert steps == sorted(steps)
    assert steps[3] > 1.02 * steps[0]
    assert Plan().routing == "random"


def test_shared_experts_hide_dispatches() -> None:
    """What shows is the dispatch less the shared experts, and never less than nothing."""
    found = {
        way: answer(f"tp1 ep8 zero1 mbs1 ep_overlap={way}", "deepseek-v2").step_s
        for way in ("off", "shared")
    }
    assert found["shared"] < found["off"]
    same = [answer(f"ep8 ep_overlap={way}", "mixtral-8x7b").step_s for way in ("off", "shared")]
    assert same[0] == pytest.approx(same[1], rel=1e-12)
