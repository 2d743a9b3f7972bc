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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.catalog import error_models, sightings
from foretell.catalog.error_models import ErrorModel
from foretell.catalog.files import read_table, toml_value
from foretell.catalog.sightings import QuestionFacts
from foretell.lab.validate.contacts import ContactRow, contacts_of
from foretell.lab.validate.error_kinds import KINDS, ErrorKind
from foretell.records import dataclass
from foretell.uncertainty import novelty
from foretell.uncertainty.posterior import (
    MeasuredRun,
    condition,
    middle_tail,
    nearness,
    prior_interval,
)

Array = NDArray[np.float64]
MOST = 15
"""Rows of a source that count."""
LOOSE = 0.15
"""Weight of a source that formulas were found on, beside a first contact."""
MANY, FOLDS = 60, 8
"""Sources up to which each is left out by itself, and into how many parts more are put."""
OWN_KINDS = ((1.0, 0.745), (4.0, 0.25), (16.0, 0.005))
"""Usual runs, those that differ from their source and those that contradict it; judged from the tails of rows
within sources."""
TAILS = (0.38, 0.53, 0.67, 0.83, 1.03, 1.28, 1.66, 2.33, 5.25)
"""nu / chi^2 of Student's t with nu = 4, at the middles of nine equal shares."""
SCALARS = ("mean", "skew", "common", "alike", "own", "known")
"""Parameters beside spreads of mechanisms and weights of what is new; `known` is of the fit alone."""
CENTRES = ("mean", "skew")
"""Those of them that move the middle."""
START: Mapping[str, float] = {
    "mean": 0.0, "skew": 0.1, "common": math.log(0.1), "known": -0.5,
}  # fmt: skip
PULL: Mapping[str, float] = {
    "mean": 0.05,
    "skew": 0.3,
    "common": 1.0,
    "alike": 0.15,
    "own": 0.1,
    "known": 0.5,
}
"""Where each begins, and how firmly it is held there: standard deviations of a penalty. `own` and `alike`
are the spread within sources, which bent rows understate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRows:
    """The rows of one source as arrays."""

    rows: tuple[ContactRow, ...]
    """The rows."""
    errors: Array
    """ln(measured / predicted), those far off bent back."""
    slopes: Array
    """(rows, mechanisms)."""
    new: Array
    """(rows, features of novelty)."""
    near: Array
    """How alike the rows are; (rows, rows)."""
    first: bool
    """Whether it is a first contact."""


def runs_of(kind: ErrorKind, rows: Sequence[ContactRow]) -> list[MeasuredRun]:
    """Rows as the model sees them, without what had not been seen when they were predicted."""
    return [
        MeasuredRun(
            slopes=row.slopes,
            log_ratio=row.log_error,
            features=row.features,
            novelty={
                **novelty.novelty_of(
                    kind.name, row.facts, (row.source,) if row.unseen is None else row.unseen
                ),
                **dict.fromkeys(row.figure, 1.0),
            },
        )
        for row in rows
    ]


def sources_of(kind: ErrorKind, rows: Sequence[ContactRow]) -> dict[str, SourceRows]:
    """Rows by the source, and the figure, that they count for."""
    groups: dict[str, list[ContactRow]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    blank = model_of(kind, start_of(kind))
    found = {}
    for name, mine in groups.items():
        first = [row for row in mine if row.first]
        some = first or mine
        some = some if len(some) <= MOST else random.Random(1).sample(some, MOST)
        runs = runs_of(kind, some)
        errors = np.array([row.log_error for row in some])
        middle = float(np.median(errors))
        bend, far = kind.bend, 2.0 * kind.bend
        bent = np.clip(middle, -far, far) + np.clip(errors - middle, -bend, bend)
        found[name] = SourceRows(
            rows=tuple(some),
            errors=bent,
            slopes=np.array([run.slopes for run in runs]),
            new=np.array([[run.novelty.get(n, 0.0) for n in kind.novelty] for run in runs]),
            near=nearness(blank, runs, runs),
            first=bool(first),
        )
    return found


def start_of(kind: ErrorKind) -> Array:
    """Parameters to begin with."""
    spreads = [math.log(group.start) for group in kind.groups]
    scalars = [scalar_start(kind, name) for name in SCALARS]
    return np.array([*scalars, *spreads, *kind.novelty.values()])


def scalar_start(kind: ErrorKind, name: str) -> float:
    """Where a parameter of a kind begins."""
    if kind.centred and name in CENTRES:
        return 0.0
    own = {"alike": kind.alike, "own": kind.own}
    return math.log(own[name]) if name in own else START[name]


def model_of(kind: ErrorKind, theta: Array) -> ErrorModel:
    """Parameters as a model."""
    told = dict(zip(SCALARS, theta.tolist(), strict=False))
    n = len(SCALARS)
    spreads = {
        name: float(math.exp(theta[n + i]))
        for i, group in enumerate(kind.groups)
        for name in group.mechanisms
    }
    weights = theta[n + len(kind.groups) :].tolist()
    usual = math.sqrt(sum(share * factor**2 for factor, share in OWN_KINDS[:2]))
    return ErrorModel(
        mean=told["mean"],
        skew=told["skew"],
        common=math.exp(told["common"]),
        mechanisms=spreads,
        alike=math.exp(told["alike"]),
        own=math.exp(told["own"]) / usual,
        own_kinds=OWN_KINDS,
        tails=TAILS,
        novelty=dict(zip(kind.novelty, weights, strict=True)),
        distance=kind.distance,
        after=kind.after,
    )


def loss(theta: Array, kind: ErrorKind, sources: Sequence[SourceRows]) -> float:
    """Negative logarithm of the penalised likelihood."""
    told = dict(zip(SCALARS, theta.tolist(), strict=False))
    n, groups = len(SCALARS), len(kind.groups)
    model = model_of(kind, theta)
    each = np.array([model.mechanisms[name] for name in kind.mechanisms])
    weights, tails, middle = theta[n + groups :], np.array(TAILS), middle_tail(model)
    total = sum(((told[name] - scalar_start(kind, name)) / PULL[name]) ** 2 for name in SCALARS)
    total += sum(
        ((theta[n + i] - math.log(g.start)) / kind.pull) ** 2 for i, g in enumerate(kind.groups)
    )
    usual = np.array(list(kind.novelty.values()))
    total = 0.5 * (total + float((((weights - usual) / kind.novelty_pull) ** 2).sum()))
    for one in sources:
        counts = one.first or kind.again
        scale = np.exp(one.new @ weights + (0.0 if counts else told["known"]))
        whole = one.slopes.sum(axis=1)
        every = model.common**2 + model.alike**2 * one.near
        shared = every * np.outer(whole, whole) + (one.slopes * each**2) @ one.slopes.T
        shared = shared * np.outer(scale, scale)
        own = np.diag((math.exp(told["own"]) * scale) ** 2)
        far = model.skew * np.outer(tails - middle, np.sqrt(np.diagonal(shared)))
        rest = one.errors - model.mean * whole - far * np.sign(whole)
        root = np.linalg.cholesky(tails[:, None, None] * shared + own)
        scaled = np.linalg.solve(root, rest[..., None])[..., 0]
        logs = -0.5 * (scaled**2).sum(axis=1)
        logs -= np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        top = float(logs.max())
        likely = top + math.log(float(np.mean(np.exp(logs - top))))
        total -= likely * (1.0 if counts else LOOSE)
    return float(total)


def fit(kind: ErrorKind, sources: Sequence[SourceRows], begin: Array | None = None) -> Array:
    """The parameters that some sources give."""
    from scipy.optimize import minimize

    start = start_of(kind)
    bounds = [(-0.3, 0.3), (-0.5, 0.8), (-5.0, 1.0), (-5.0, 1.0), (-5.0, 1.0), (-2.0, 0.0)]
    if kind.centred:
        bounds[: len(CENTRES)] = [(0.0, 0.0)] * len(CENTRES)
    bounds += [(-5.0, 1.0)] * len(kind.groups) + [(-1.0, 2.5)] * len(kind.novelty)
    signs = [(0.0 if name in novelty.FEATURES else -1.0, 2.5) for name in kind.novelty]
    signs = [
        (value, value) if name in kind.still else ends
        for ends, (name, value) in zip(signs, kind.novelty.items(), strict=True)
    ]
    bounds[-len(signs) :] = signs
    found = minimize(
        loss,
        start if begin is None else begin,
        args=(kind, list(sources)),
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 60 if begin is None else 15},
    )
    return np.asarray(found.x, float)


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
        known = sightings.sightings_without(kind.name, (row.source,))
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


def model_table(model: ErrorModel) -> dict[str, Any]:
    """A model as its file has it."""

    def short(value: float) -> float:
        return float(f"{value:.3g}")

    return {
        "mean": short(model.mean),
        "skew": short(model.skew),
        "common": short(model.common),
        "alike": short(model.alike),
        "own": short(model.own),
        "mechanisms": {name: short(value) for name, value in model.mechanisms.items()},
        "novelty": {name: short(value) for name, value in model.novelty.items()},
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
    path = sightings.FILE
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
        "# What measured runs show; catalog/sightings.py says what for. By lab/validate/error_fit.py.",
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
    sightings.sightings.cache_clear()
    sightings.sightings_without.cache_clear()
    novelty.forget()


def _whole(cell: Any) -> Any:
    return int(cell) if isinstance(cell, float) and cell == int(cell) else cell


def main(arguments: Sequence[str]) -> None:
    """Fit a kind, print its report and write its tables."""
    kind, *tables = arguments
    rows = contacts_of(kind, [Path(table) for table in tables])
    write_sightings(KINDS[kind], rows)
    sources = sources_of(KINDS[kind], rows)
    theta = fit(KINDS[kind], list(sources.values()))
    held, without = hold_out(KINDS[kind], sources, theta)
    if KINDS[kind].again:
        width = width_of(held)
        theta = scaled(KINDS[kind], theta, width)
        without = {name: scaled(KINDS[kind], told, width) for name, told in without.items()}
        held = [replace(one, low=one.low * width, high=one.high * width) for one in held]
        held = [one for one in held if not one.row.first]
        sys.stdout.write(f"width: {width}\n")
    elif KINDS[kind].centred:
        factors = figure_widths(held)
        theta = by_figure(KINDS[kind], theta, factors)
        without = {name: by_figure(KINDS[kind], told, factors) for name, told in without.items()}
        own = [
            factors[one.row.figure[0]] if one.row.figure[0] in KINDS[kind].novelty else 1.0
            for one in held
        ]
        held = [
            replace(one, low=one.low * f, high=one.high * f)
            for one, f in zip(held, own, strict=True)
        ]
        sys.stdout.write(f"widths: {factors}\n")
    write_model(KINDS[kind], theta, without)
    for name, value in {**model_table(model_of(KINDS[kind], theta)), **report(held)}.items():
        sys.stdout.write(f"{name}: {value}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
