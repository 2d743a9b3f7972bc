"""The likeliest error model of a kind: rows by source, the penalised likelihood, its maximum."""

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from foretell.catalog.error_models import ErrorModel
from foretell.lab.validate.contacts import ContactRow, ErrorKind
from foretell.records import dataclass
from foretell.specs.arrays import Array
from foretell.uncertainty import novelty
from foretell.uncertainty.posterior import (
    MeasuredRun,
    middle_tail,
    nearness,
)

MOST = 15
"""Rows of a source that count."""
LOOSE = 0.15
"""Weight of a source that formulas were found on, beside a first contact."""
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
    "mean": 0.05, "skew": 0.3, "common": 1.0, "alike": 0.15, "own": 0.1, "known": 0.5,
}  # fmt: skip
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
