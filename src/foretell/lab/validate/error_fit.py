"""The model of log error, fitted to first contacts: `python -m foretell.lab.validate.error_fit`.

    error_fit training TABLE...       and likewise serving, post-training

TABLE has rows of the ledger's first contacts (lab/first_contact), and others. A first contact has the error
of the prediction that was made before anyone looked, for ever, and counts in full. Rows of sources that
formulas were found on are predicted without their source; since formulas still know them they count little,
and their spread is a lower bound (LOOSE and the factor `known`). A source has at most MOST rows.

Spreads, tails and the weights of what is new are found together by penalised likelihood; the report is of
sources left out of the fit one after the other. Writes the kind's tables of catalog/error_models.toml and
catalog/sightings.toml.
"""

import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from foretell.catalog import error_models
from foretell.catalog.error_models import ErrorModel, QuestionFacts
from foretell.catalog.files import read_table, toml_value
from foretell.lab.validate.contacts import KINDS, ContactRow, ErrorKind, contacts_of
from foretell.lab.validate.error_likelihood import (
    OWN_KINDS,
    SCALARS,
    TAILS,
    SourceRows,
    fit,
    model_of,
    runs_of,
    sources_of,
)
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.uncertainty import novelty
from foretell.uncertainty.posterior import condition, prior_interval


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

    def widened(self, factor: float) -> "HeldOutRow":
        """With an interval so many times as wide."""
        return replace(self, low=self.low * factor, high=self.high * factor)


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


def model_table(model: ErrorModel) -> dict[str, Any]:
    """A model as its file has it."""

    def short(value: float) -> float:
        return float(f"{value:.3g}")

    scalars = ("mean", "skew", "common", "alike", "own")
    return {
        **{name: short(getattr(model, name)) for name in scalars},
        **{
            name: {one: short(value) for one, value in getattr(model, name).items()}
            for name in ("mechanisms", "novelty")
        },
    }


def write_model(kind: ErrorKind, theta: Array, without: Mapping[str, Array]) -> None:
    """The kind's table of the catalogue's file, and of each source what the others give."""
    path = error_models.FILE
    tables = dict(read_table(path)) if path.exists() else {}
    own = model_table(model_of(kind, theta))
    fixed = {
        "own_kinds": [list(one) for one in OWN_KINDS],
        "tails": list(TAILS),
        "after": kind.after,
        "distance": {name: float(f"{value:.3g}") for name, value in kind.distance.items()},
    }
    apart = {name: model_table(model_of(kind, told)) for name, told in sorted(without.items())}
    tables[kind.name] = {**own, **fixed, "without": apart}
    lines = [
        "# The model of log error by kind of question; catalog/error_models.py says what each number is.",
        "# Written by lab/validate/error_fit.py from first contacts, which tables outside the repository",
        "# are of; `memory` is supposed (docs/measured-runs.md).",
    ]
    for name, table in sorted(tables.items()):
        rest = {key: value for key, value in table.items() if key != "without"}
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {inline(value)}" for key, value in rest.items()]
        if table.get("without"):
            lines += ["", f"[{name}.without]"]
            lines += [f"{toml_value(s)} = {inline(told)}" for s, told in table["without"].items()]
    path.write_text("\n".join(lines) + "\n")


def inline(value: Any) -> str:
    """A value on one line of TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {inline(told)}" for key, told in value.items()) + "}"
    return toml_value(value)


def write_sightings(kind: ErrorKind, rows: Sequence[ContactRow]) -> None:
    """What the rows show, as the catalogue's file has it."""
    path = error_models.SIGHTINGS_FILE
    tables = dict(read_table(path)) if path.exists() else {}
    names = sorted({row.source for row in rows})
    found: dict[tuple[Any, ...], list[QuestionFacts]] = defaultdict(list)
    for row in rows:
        f = row.facts
        world = row.world if row.world != row.source else ""
        key = (
            names.index(row.source), world, f.software, f.chip, f.generation, f.model,
            f.precision, f.layout, f.fabric,
        )  # fmt: skip
        found[key].append(f)
    seen = [
        [*key, max(f.size for f in some), min(f.length for f in some), max(f.length for f in some)]
        for key, some in sorted(found.items())
    ]
    tables[kind.name] = {"sources": names, "seen": seen}
    lines = [
        "# What measured runs show; catalog/error_models.py says what for. By lab/validate/error_fit.py.",
        "#",
        "# source, world where it is another, software, chip, generation, model, precision, layout, fabric,",
        "# largest size, shortest and longest length",
    ]
    for name, table in sorted(tables.items()):
        lines += ["", f"[{name}]", "sources = ["]
        lines += [f"  {toml_value(source)}," for source in table["sources"]]
        lines += ["]", "seen = ["]
        lines += [f"  {toml_value([_whole(cell) for cell in row])}," for row in table["seen"]]
        lines += ["]"]
    path.write_text("\n".join(lines) + "\n")
    error_models.sightings.cache_clear()
    error_models.sightings_without.cache_clear()
    novelty.forget()


def _whole(cell: Any) -> Any:
    return int(cell) if isinstance(cell, float) and cell == int(cell) else cell


def main(arguments: Sequence[str]) -> None:
    """Fit a kind, print its report and write its tables."""
    name, *tables = arguments
    kind, rows = KINDS[name], contacts_of(name, [Path(table) for table in tables])
    write_sightings(kind, rows)
    sources = sources_of(kind, rows)
    theta = fit(kind, list(sources.values()))
    held, without = hold_out(kind, sources, theta)
    widen: Callable[[Array], Array] = lambda told: told  # noqa: E731 - as it is, unless below
    if kind.again:
        width = width_of(held)
        widen = partial(scaled, kind, factor=width)
        held = [one.widened(width) for one in held if not one.row.first]
        sys.stdout.write(f"width: {width}\n")
    elif kind.centred:
        factors = figure_widths(held)
        widen = partial(by_figure, kind, factors=factors)
        own = {figure: factor for figure, factor in factors.items() if figure in kind.novelty}
        held = [one.widened(own.get(one.row.figure[0], 1.0)) for one in held]
        sys.stdout.write(f"widths: {factors}\n")
    theta, without = widen(theta), {one: widen(told) for one, told in without.items()}
    write_model(kind, theta, without)
    for key, value in {**model_table(model_of(kind, theta)), **report(held)}.items():
        sys.stdout.write(f"{key}: {value}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
