"""What every `validate` verb gives: each row predicted or reported as unsupported, and errors by groups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from foretell.catalog.files import read_bytes
from foretell.errors import ProblemsError, bad_input
from foretell.records import as_json, dataclass, plain
from foretell.specs.arrays import Array

Found = TypeVar("Found")
Unsupported = Sequence[tuple[str, str]]
"""Ids of rows and reasons why they are not scored."""
_json = as_json()


class UnsupportedRun(Exception):
    """A row that cannot be predicted, with the reason."""


def attempt(
    predict: Callable[[], Found], unsupported: type[Exception] = UnsupportedRun
) -> Found | str:
    """What is made of a row, or the reason why it is not; never an error."""
    try:
        return predict()
    except unsupported as error:
        return str(error)
    except ProblemsError as error:
        return "; ".join(f"{p.path}: {p.message}" for p in error.problems)
    except Exception as error:  # noqa: BLE001 - one strange row must not take the table with it
        return f"fault: {type(error).__name__}: {error}"


def typed_commands(rows: Iterable[tuple[str, Callable[[], str]]]) -> list[dict[str, str | None]]:
    """For every row by its id the line that a user would type for it, or the reason why there is none."""
    found: list[dict[str, str | None]] = []
    for row, command in rows:
        line, reason = None, None
        try:
            line = command()
        except (UnsupportedRun, ProblemsError) as error:
            reason = str(error)
        found.append({"id": row, "command": line, "reason": reason})
    return found


def table_text(path: Path) -> str:
    """The text of a CSV file, gzipped or not."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        message = "cannot be read: there is no such file"
    except (OSError, EOFError) as error:
        message = f"cannot be read: {error}"
    except UnicodeDecodeError:
        message = "is not text in UTF-8"
    raise bad_input(str(path), None, message)


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

    @property
    def error(self) -> float:
        """predicted / measured - 1; the difference itself where nothing was measured."""
        return self.predicted / self.measured - 1.0 if self.measured else self.predicted

    @property
    def inside(self) -> bool | None:
        """Whether the measurement lies in the 90 % interval; None where there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high

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

    to_dict = as_json()


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
        whole = {name: getattr(self, name) for name in ("median_ape", "p90_ape", "inside_p90")}
        return {
            "rows": self.rows,
            "scored": self.scored,
            "unsupported": [{"id": row, "reason": reason} for row, reason in self.unsupported],
            **whole,
            **plain(self.groups),
            **self.facts,
            "predictions": [one.to_dict() for one in self.predictions],
            "leave_one_out": self.leave_one_out,
        }


def scores_of(
    rows: int,
    predictions: Sequence[Prediction],
    unsupported: Unsupported,
    labels: Mapping[str, Sequence[str]],
    *,
    order: Mapping[str, Sequence[str]] | None = None,
    leave_one_out: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Scores:
    """Scores of predictions, with their groups by the labels; `order` names groups that must be there."""
    groups: dict[str, dict[str, Score]] = {}
    for name, keys in labels.items():
        by_key: dict[str, list[Prediction]] = {
            key: [] for key in (order or {}).get(name) or sorted(set(keys))
        }
        for key, one in zip(keys, predictions, strict=True):
            by_key[key].append(one)
        groups[name] = {key: score(some) for key, some in by_key.items()}
    whole, error = score(predictions), np.abs(errors_of(predictions))
    return Scores(
        rows=rows,
        scored=len(predictions),
        unsupported=tuple(unsupported),
        median_ape=whole.median_ape,
        p90_ape=float(np.quantile(error, 0.9)) if len(error) else None,
        inside_p90=whole.inside_p90,
        groups=groups,
        predictions=tuple(predictions),
        leave_one_out=leave_one_out,
        facts=facts or {},
    )


def errors_of(predictions: Sequence[Prediction]) -> Array:
    """Signed relative errors. A measured cell of next to nothing makes one without end, which no quantile can
    hold."""
    signed: Array = np.array([one.error for one in predictions], float)
    return signed.clip(-1e12, 1e12)


def score(predictions: Sequence[Prediction]) -> Score:
    """The score of some predictions."""
    signed = errors_of(predictions)
    inside = [one.inside for one in predictions if one.inside is not None]
    return Score(
        rows=len(signed),
        median_ape=median_of(np.abs(signed)),
        median_error=median_of(signed),
        inside_p90=mean_of(inside),
    )


def median_of(values: Sequence[float] | Array) -> float | None:
    """The median; None of nothing."""
    return float(np.median(values)) if len(values) else None


def mean_of(values: Sequence[float] | Array) -> float | None:
    """The mean; None of nothing."""
    return float(np.mean(values)) if len(values) else None
