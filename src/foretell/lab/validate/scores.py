"""What every `validate` verb gives: each row predicted or reported as unsupported, and errors by groups."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.records import as_json, dataclass

Array = NDArray[np.float64]


_json = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One row beside ours."""

    id: str
    """The row's id."""
    metric: str
    """What is compared."""
    predicted: float
    """Ours."""
    measured: float
    """Theirs."""
    low: float | None
    """Lower end of the 90 % interval; None where there is none."""
    high: float | None
    """Upper end."""
    anchored: float | None = None
    """Ours given other measured rows of the same source; None where none were asked for."""
    anchored_interval: Mapping[str, tuple[float, float]] | None = None
    """Its 90 % interval, `p90`; None where none were asked for."""
    plain_factor: float | None = None
    """Ours times the median of measured / predicted of those rows, for comparison."""
    source: str = ""
    """Where the row is in print; empty of tables that name none."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape; what is anchored only where that was asked for."""
        told: dict[str, Any] = _json(self)
        if self.anchored is None:
            del told["anchored"], told["anchored_interval"], told["plain_factor"]
        if not self.source:
            del told["source"]
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Rows of one group and their median absolute relative error."""

    rows: int
    """Rows scored."""
    median_ape: float | None
    """Median of |predicted / measured - 1|, a fraction; None of no rows."""
    median_error: float | None = None
    """Median of predicted / measured - 1: positive where we say more; None of no rows."""
    inside_p90: float | None = None
    """Share of the measurements inside their 90 % interval; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """A table of measurements, scored."""

    rows: int
    """Rows of the file."""
    scored: int
    """Rows with a prediction."""
    unsupported: tuple[tuple[str, str], ...]
    """Id and reason of every other row."""
    median_ape: float | None
    """Median absolute relative error over all scored rows, a fraction."""
    p90_ape: float | None
    """Its ninetieth percentile."""
    inside_p90: float | None
    """Share of the measurements inside their 90 % interval; None where there is none."""
    groups: Mapping[str, Mapping[str, Score]]
    """`by_source`, `by_size`, ... -> group -> its score."""
    predictions: tuple[Prediction, ...]
    """Every scored row."""
    leave_one_out: str | None
    """What was left out of the fit before it was predicted; None: nothing, the catalogue's coefficients."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else a verb has to say."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        groups = {
            name: {key: _score_dict(score) for key, score in group.items()}
            for name, group in self.groups.items()
        }
        return {
            "rows": self.rows,
            "scored": self.scored,
            "unsupported": [{"id": row, "reason": reason} for row, reason in self.unsupported],
            "median_ape": self.median_ape,
            "p90_ape": self.p90_ape,
            "inside_p90": self.inside_p90,
            **groups,
            **self.facts,
            "predictions": [one.to_dict() for one in self.predictions],
            "leave_one_out": self.leave_one_out,
        }


def scores_of(
    rows: int,
    predictions: Sequence[Prediction],
    unsupported: Sequence[tuple[str, str]],
    labels: Mapping[str, Sequence[str]],
    *,
    order: Mapping[str, Sequence[str]] | None = None,
    leave_one_out: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Scores:
    """Scores of predictions, with their groups by the labels; `order` names groups that must be there."""
    # A measured cell of next to nothing makes an error without end, which no quantile can hold.
    signed = np.clip(np.array([_error(p) for p in predictions]), -1e12, 1e12)
    error = np.abs(signed)
    covered = np.array([is_inside(p) for p in predictions])
    groups = {}
    for name, keys in labels.items():
        column = np.array(keys)
        names = (order or {}).get(name) or sorted(set(keys))
        groups[name] = {
            key: score(
                *((signed[column == key], covered[column == key]) if len(column) else (signed,))
            )
            for key in names
        }
    return Scores(
        rows=rows,
        scored=len(predictions),
        unsupported=tuple(unsupported),
        median_ape=float(np.median(error)) if len(error) else None,
        p90_ape=float(np.quantile(error, 0.9)) if len(error) else None,
        inside_p90=_share(covered),
        groups=groups,
        predictions=tuple(predictions),
        leave_one_out=leave_one_out,
        facts=facts or {},
    )


def score(signed: Array, covered: Array | None = None) -> Score:
    """The score of some signed errors, and of whether each measurement lies in its interval (NaN: none)."""
    some = len(signed) > 0
    return Score(
        rows=len(signed),
        median_ape=float(np.median(np.abs(signed))) if some else None,
        median_error=float(np.median(signed)) if some else None,
        inside_p90=None if covered is None else _share(covered),
    )


def _error(p: Prediction) -> float:
    """predicted / measured - 1; the difference itself where nothing was measured."""
    return p.predicted / p.measured - 1.0 if p.measured else p.predicted


def is_inside(p: Prediction) -> float:
    """1 where the measurement lies in the 90 % interval, 0 where not, NaN where there is none."""
    if p.low is None or p.high is None:
        return float("nan")
    return float(p.low <= p.measured <= p.high)


def _share(covered: Array) -> float | None:
    told = covered[np.isfinite(covered)] if len(covered) else covered
    return float(np.mean(told)) if len(told) else None


def _score_dict(found: Score) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "median_ape": found.median_ape,
        "median_error": found.median_error,
        "inside_p90": found.inside_p90,
    }
