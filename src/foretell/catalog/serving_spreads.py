"""How far served figures were from predictions of profiles that had not seen their model, and those profiles.

`serving_spreads.toml` has, for a kind of model and a class of residuals, how far |ln(measured /
predicted)| goes in half and in nine of ten rows, each row predicted without its own model in the fit.
`engines_left_out.toml` has the overheads of these fits. lab/calibrate/serving_left_out.py writes both.
"""

from collections.abc import Mapping
from functools import lru_cache

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

SPREADS = ROOT / "serving_spreads.toml"
"""Residuals by kind, class and metric."""
LEFT_OUT = ROOT / "engines_left_out.toml"
"""Overheads of profiles fitted without one model."""
APART = "disaggregated"
"""Class of residuals of prefill and decode on instances of their own."""
FOREIGN = "foreign"
"""Class of residuals of chips without tables of their own, and of no generation that a profile has seen."""
KINDS = ("dense", "mixture", "any")
"""Kinds of residuals."""
SURER = {"near": "fitted", "far": "near"}
"""Class of residuals -> the one that is closer to what was fitted."""
ANY = "any"
"""Kind of residuals of all models together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSpread:
    """Residuals of one metric."""

    kind: str
    """dense, mixture, or any."""
    residuals: str
    """fitted, near, far, or disaggregated (serving/evidence.py)."""
    metric: str
    """tpot, ttft, throughput, e2e."""
    rows: int
    """Rows that they are of."""
    p50: float
    """What half of |ln(measured / predicted)| are below."""
    p90: float
    """What nine of ten are below."""


@lru_cache(maxsize=1)
def serving_spreads() -> tuple[ServingSpread, ...]:
    """All of them."""
    return tuple(ServingSpread(**entry) for entry in read_table(SPREADS)["spread"])


@lru_cache(maxsize=256)
def spread_for(kind: str, residuals: str, metric: str) -> ServingSpread:
    """Residuals of a kind of model and class; of all models where the kind has none of its own.

    What no table is of is as uncertain as the worse known kind of model on chips that a profile has not seen:
    rows of mixtures there are all of chips with tables.
    """
    if residuals == FOREIGN:
        return max((spread_for(one, "far", metric) for one in KINDS), key=lambda one: one.p90)
    mine = {
        one.kind: one
        for one in serving_spreads()
        if (one.residuals, one.metric) == (residuals, metric)
    }
    found = mine.get(kind) or mine.get(ANY)
    if found is None:
        return spread_for(kind, "far", "tpot")
    if residuals in SURER:
        # What is new to a profile is no surer than what it has seen.
        return max(found, spread_for(kind, SURER[residuals], metric), key=lambda one: one.p90)
    return found


@lru_cache(maxsize=1)
def left_out_overheads() -> Mapping[tuple[str, str], Mapping[str, float]]:
    """(model, profile) -> overheads of that profile, fitted without the model."""
    return {
        (entry["model"], entry["profile"]): entry["overheads"]
        for entry in read_table(LEFT_OUT).get("left_out", ())
    }
