"""Rows of sources that an error model has not seen: their intervals, and how wide these must be."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretell.catalog import error_models
from foretell.catalog.error_models import ErrorModel
from foretell.lab.validate.contacts import ContactRow
from foretell.lab.validate.error_kinds import ErrorKind
from foretell.lab.validate.error_likelihood import (
    SCALARS,
    Array,
    SourceRows,
    fit,
    model_of,
    runs_of,
)
from foretell.records import dataclass
from foretell.uncertainty import novelty
from foretell.uncertainty.posterior import (
    condition,
    prior_interval,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRow:
    """A row with its source left out of the fit."""

    row: ContactRow
    """The row."""
    low: float
    """Lower end of the 90 % interval of its log error."""
    high: float
    """Upper end."""
    seen: int
    """Sources in which its software, generation and kind of model were seen together."""
    anchored: float | None
    """Log error that is expected after one other row of its source; None where there is none."""
    plain: float | None
    """Log error of that other row: what one plain factor expects."""
    anchored_ends: tuple[float, float]
    """The 90 % interval after it."""

    @property
    def inside(self) -> bool:
        """Whether the row lies in its interval."""
        return self.low <= self.row.log_error <= self.high


def hold_out(
    kind: ErrorKind, sources: Mapping[str, SourceRows], theta: Array
) -> tuple[list[HeldOutRow], dict[str, Array]]:
    """Every row that counts with its source left out, and the parameters without it; many sources are left
    out some at a time."""
    names = sorted({one.rows[0].source for one in sources.values() if one.first or kind.again})
    random.Random(0).shuffle(names)
    folds = len(names) if len(names) <= MANY else FOLDS
    found: list[HeldOutRow] = []
    without: dict[str, Array] = {}
    for fold in range(folds):
        out = names[fold::folds]
        told = fit(kind, [o for o in sources.values() if o.rows[0].source not in out], theta)
        model = model_of(kind, told)
        without |= dict.fromkeys(out, told)
        for one in sources.values():
            if (one.first or kind.again) and one.rows[0].source in out:
                found += held_rows(kind, model, one)
    return found, without if folds == len(names) else {}


def width_of(held: Sequence[HeldOutRow]) -> float:
    """Factor on all spreads: midway between the one with which nine in ten of today's predictions lie in
    their interval, which know these rows' formulas, and the one for first contacts, which a poorer version
    made."""
    needed: dict[bool, list[float]] = {False: [], True: []}
    for one in held:
        needed[one.row.first].append(_needed(one))
    now, then = (float(np.quantile(found, 0.9)) for found in needed.values())
    return math.sqrt(now * then)


def figure_widths(held: Sequence[HeldOutRow]) -> dict[str, float]:
    """Figure -> factor on its spreads: midway between what nine in ten rows need, and nine in ten of the
    rows where every group counts as one."""
    many = Counter(one.row.group for one in held)
    found: dict[str, float] = {}
    for figure in sorted({one.row.figure[0] for one in held}):
        mine = [one for one in held if one.row.figure[0] == figure]
        needed = np.array([_needed(one) for one in mine])
        order, weights = np.argsort(needed), np.array([1.0 / many[one.row.group] for one in mine])
        part = np.cumsum(weights[order]) / weights.sum()
        of_groups = needed[order][np.searchsorted(part, 0.9)]
        found[figure] = math.sqrt(float(np.quantile(needed, 0.9)) * float(of_groups))
    return found


def by_figure(kind: ErrorKind, theta: Array, factors: Mapping[str, float]) -> Array:
    """Parameters with figures so many times as wide, those that have a weight of their own."""
    found, first = theta.copy(), len(SCALARS) + len(kind.groups)
    for place, name in enumerate(kind.novelty):
        found[first + place] += math.log(factors.get(name, 1.0))
    return found


def _needed(one: HeldOutRow) -> float:
    """Factor on a row's interval with which it lies just inside."""
    error = one.row.log_error
    return error / (one.high if error > 0 else one.low)


def scaled(kind: ErrorKind, theta: Array, factor: float) -> Array:
    """Parameters whose intervals are so many times as wide."""
    found, n = theta.copy(), len(SCALARS)
    found[SCALARS.index("mean")] *= factor
    spreads = [SCALARS.index(name) for name in ("common", "alike", "own")]
    found[[*spreads, *range(n, n + len(kind.groups))]] += math.log(factor)
    return found


def held_rows(kind: ErrorKind, model: ErrorModel, one: SourceRows) -> list[HeldOutRow]:
    """The rows of one source under a model without it."""
    runs = runs_of(kind, one.rows)
    found = []
    for i, (row, run) in enumerate(zip(one.rows, runs, strict=True)):
        low, high = prior_interval(model, kind.mechanisms, run)["p90"]
        other = anchor_of(one.rows, i)
        after = None if other is None else condition(model, kind.mechanisms, [runs[other]]).of(run)
        known = error_models.sightings_without(kind.name, (row.source,))
        found.append(
            HeldOutRow(
                row=row,
                low=low,
                high=high,
                seen=len({s.source for s in known if novelty.same_triple(s.facts, row.facts)}),
                anchored=None if after is None else after.median,
                plain=None if other is None else one.rows[other].log_error,
                anchored_ends=(0.0, 0.0) if after is None else after.interval["p90"],
            )
        )
    return found


def anchor_of(rows: Sequence[ContactRow], target: int) -> int | None:
    """Another row of the source, of the same model and chip where there is one."""
    own = rows[target]
    others = [i for i in range(len(rows)) if i != target]
    alike = [i for i in others if rows[i].facts.chip == own.facts.chip]
    same = [i for i in alike if rows[i].features.get("model") == own.features.get("model")]
    pool = same or alike or others
    return random.Random(f"0 {own.id}").choice(pool) if pool else None


def report(held: Sequence[HeldOutRow]) -> dict[str, Any]:
    """Coverage, widths and scores of rows whose source was left out."""
    groups: dict[str, list[HeldOutRow]] = defaultdict(list)
    for one in held:
        groups[one.row.group].append(one)
    near = [one for one in held if one.seen >= novelty.ENOUGH]
    far = [one for one in held if one.seen < novelty.ENOUGH]
    found: dict[str, Any] = {
        "rows": len(held),
        "sources": len(groups),
        "rows_inside": share([one.inside for one in held]),
        "sources_inside": share([share([o.inside for o in some]) for some in groups.values()]),
        "interval_score": float(
            np.mean([interval_score(o.low, o.high, o.row.log_error) for o in held])
        ),
        "high_over_low_seen_together": width(near),
        "high_over_low_elsewhere": width(far),
    }
    return {**found, **anchored_report(groups)}


def anchored_report(groups: Mapping[str, Sequence[HeldOutRow]]) -> dict[str, Any]:
    """Errors after one measured row of the source, beside one plain factor of the same row."""
    ours, plain, inside, narrower = {}, {}, [], []
    for name, some in groups.items():
        told = [one for one in some if one.anchored is not None]
        if len(told) < 3:
            continue
        ours[name] = float(
            np.median([abs(math.expm1((o.anchored or 0) - o.row.log_error)) for o in told])
        )
        plain[name] = float(
            np.median([abs(math.expm1((o.plain or 0) - o.row.log_error)) for o in told])
        )
        inside += [o.anchored_ends[0] <= o.row.log_error <= o.anchored_ends[1] for o in told]
        narrower += [
            1.0 - (o.anchored_ends[1] - o.anchored_ends[0]) / (o.high - o.low) for o in told
        ]
    if not ours:
        return {}
    return {
        "one_run_sources": len(ours),
        "one_run_median_source": float(np.median(list(ours.values()))),
        "plain_factor_median_source": float(np.median(list(plain.values()))),
        "worse_than_plain": sum(ours[name] > plain[name] + 0.005 for name in ours),
        "worst_ratio": max(ours[name] / max(plain[name], 0.01) for name in ours),
        "one_run_inside": share(inside),
        "one_run_narrower": float(np.median(narrower)),
    }


def share(some: Sequence[Any]) -> float:
    """The mean of some truths or shares."""
    return float(np.mean(some)) if len(some) else 0.0


def width(some: Sequence[HeldOutRow]) -> float | None:
    """Median high over low."""
    return math.exp(float(np.median([o.high - o.low for o in some]))) if some else None


def interval_score(low: float, high: float, error: float) -> float:
    """Width of a 90 % interval, and ten times twice what a row lies outside of it."""
    return high - low + 20.0 * (max(low - error, 0.0) + max(error - high, 0.0))


MANY, FOLDS = 60, 8
"""Sources up to which each is left out by itself, and into how many parts more are put."""
