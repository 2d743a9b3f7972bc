"""How far predictions are from runs that nobody had seen: one model of ln(measured / predicted) a kind.

A source's runs err together by a factor that all of its work shares and by factors of single mechanisms,
both with heavy tails; what is left is a run's own. The scale of what a source shares grows with what is new
about a question (uncertainty/novelty.py). Intervals, evidence and the posterior of measured runs are its
three uses. error_models.toml has the numbers, fitted to first contacts by lab/validate/error_fit.py; of each
source among them also what the others give without it, so that it can be scored as if it had not been seen.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from foretell.catalog.files import ROOT, read_table
from foretell.records import dataclass

FILE = ROOT / "error_models.toml"
"""Written by lab/validate/error_fit.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorModel:
    """The model of one kind of question; all spreads are standard deviations of logarithms."""

    mean: float
    """Median log error of everything."""
    skew: float
    """How far the centre of a far-off source lies above the median, in its own spreads."""
    common: float
    """Spread of the factor that all work of a source shares."""
    mechanisms: Mapping[str, float]
    """Mechanism -> spread of its own factor from one source to another."""
    alike: float
    """Spread of what runs of a source have in common as far as they are alike."""
    own: float
    """Spread of what is a run's own."""
    own_kinds: tuple[tuple[float, float], ...]
    """Factors on it, and the share of runs that have each: usual ones first, then the few that differ from
    their source."""
    tails: tuple[float, ...]
    """Factors on the variance of what a source shares, equally likely: a Student's t by its quantiles."""
    novelty: Mapping[str, float]
    """What is new -> logarithm of the factor on all spreads where it is wholly new."""
    distance: Mapping[str, float]
    """Feature -> by how much a step in it makes two runs less alike."""
    after: float = 1.0
    """Factor on the spread of the next run after others were measured, so that sources which were left out
    lie in its interval as often as promised."""

    def __hash__(self) -> int:
        return id(self)


@lru_cache(maxsize=256)
def error_model(kind: str, left_out: str = "") -> ErrorModel:
    """The model of `training`, `memory`, `serving` or `post-training`; of all sources but one, where that one
    was among them."""
    table = dict(_tables()[kind])
    without: Mapping[str, Mapping[str, Any]] = table.pop("without", {})
    for name, value in without.get(left_out, {}).items():
        table[name] = {**table[name], **value} if isinstance(value, Mapping) else value
    kinds = tuple((factor, share) for factor, share in table["own_kinds"])
    return ErrorModel(**{**table, "tails": tuple(table["tails"]), "own_kinds": kinds})


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Any]:
    return read_table(FILE)
