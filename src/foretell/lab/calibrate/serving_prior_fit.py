"""The prior of measured services, learnt from published tables.

    python -m foretell.lab.calibrate.serving_prior_fit FILE ...

As lab/calibrate/prior_fit.py for training: every figure of every row is predicted by a profile that owes
nothing to its source, and from the TTFT and TPOT of another row of its source. Needs torch. Writes the table
`serving` of catalog/measured_priors.toml.
"""

import math
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from foretell.catalog.measured_priors import MeasuredPrior
from foretell.lab.calibrate.prior_file import text_of, write_table
from foretell.lab.calibrate.prior_fit import Draws, FitShape, fit, prior_of
from foretell.lab.calibrate.serving_cases import in_their_unit, predicted_all
from foretell.lab.calibrate.serving_left_out import without_source
from foretell.lab.calibrate.serving_rows import read_rows
from foretell.lab.validate.serving import predictions_of, read_case
from foretell.lab.validate.serving_anchors import (
    FigureRun,
    anchors_of,
    figure_runs,
    latencies_of,
)
from foretell.specs.corrections import SERVING
from foretell.uncertainty.posterior import MeasuredRun

Rows = dict[str, list[FigureRun]]
"""Row -> its figures."""

SHAPE = FitShape(
    kind="serving",
    groups={name: (name,) for name in SERVING},
    own=(0, 0, 0, 1, 1, 1),
    steps=(("batch", "answer"), ("prompt",), ("tp", "dp", "ep")),
    names=("metric", "model", "chip", "engine"),
    traits=("first_token",),
    spread=(0.06, 0.1, 0.1, 0.13, 0.15, 0.15),
    part=("queueing",),
    doubt_power=0.0,
    start={
        "steps": [math.log(0.35), math.log(0.9), math.log(0.7)],
        "names": [math.log(1.8), math.log(0.5), math.log(0.5), math.log(2.0)],
        "doubt": [1.4],
        "mean": 0.0,
        "row_share": [math.log(0.35), math.log(0.55), 0.0],
        "shared": math.log(0.01),
        "shared_wide": math.log(0.15),
        "wide": -0.7,
        "part_wide": math.log(0.5),
        "part": 0.0,
        "noise": math.log(0.03),
        "likeness": math.log(0.06),
        "carry": -2.0,
        "near": math.log(0.13),
        "near_share": 0.0,
        "far": 1.3,
        "far_share": 0.0,
        "tidy": 0.9,
        "tidy_share": 0.0,
        "rough": 0.7,
        "rough_share": -0.5,
    },
)
"""What the prior is made of."""
SHARES = {0: 0.3, 1: 1.0, 2: 1.0}
"""Numbers of figures to predict from, and what each counts."""
DRAWS, LEAST, FULL, NAMED, FOLDS = 24, 12, 60, 60, 4
"""Rows drawn of a source, at least so many, rows from which it counts in full, letters of its name by which
sources are of one place, and parts that are left out in turn."""
INTERVAL_SCALE = 1.0
"""Intervals as they are: figures of sources left out lie in them about as often as promised."""


def sources_of(paths: Sequence[Path]) -> dict[str, Rows]:
    """Source -> rows, of some tables."""
    found: dict[str, Rows] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        cases = [case for row in read_rows(path) if not isinstance(case := read_case(row), str)]
        profile_of = without_source()
        told = []
        for case, figures in zip(cases, predicted_all(cases, profile_of), strict=True):
            if not isinstance(figures, str):
                ours = in_their_unit(case, figures)
                told += [(case, one) for one in predictions_of(case, ours, profile_of(case))]
        for figure in figure_runs(told, profile_of):
            row = figure.case.row
            found[row.source][f"{path.name} {row.id}"].append(figure)
    return {source: dict(rows) for source, rows in found.items() if len(rows) >= 3}


def draws_of(sources: dict[str, Rows], seed: int = 0) -> list[Draws]:
    """Draws of figures with those of another row, and of none."""
    chance = random.Random(seed)
    found: dict[int, list[tuple[tuple[MeasuredRun, ...], float, str]]]
    found = {many: [] for many in SHARES}
    alike = Counter(source[:NAMED] for source in sources)
    for source, rows in sources.items():
        cases = {name: figures[0].case for name, figures in rows.items()}
        picked = chance.sample(list(rows), min(len(rows), DRAWS))
        picked *= max(1, math.ceil(LEAST / len(picked)))
        weight = math.sqrt(min(len(rows), FULL) / FULL / alike[source[:NAMED]]) / len(picked)
        for name in picked:
            for many in (0, 1):
                others = {n: case for n, case in cases.items() if n != name}
                chosen = anchors_of(cases[name], others, many, chance.randrange(2**31))
                seen = [one.run for other in chosen for one in latencies_of(rows[other])]
                if len(seen) in found:
                    figures = latencies_of(rows[name])
                    found[len(seen)] += [((*seen, one.run), weight, source) for one in figures]
    return [
        Draws(
            many=many,
            share=SHARES[many],
            runs=tuple(runs for runs, _, _ in told),
            weights=tuple(weight for _, weight, _ in told),
            sources=tuple(source for _, _, source in told),
        )
        for many, told in found.items()
    ]


def main(paths: Sequence[str]) -> None:
    """Fit the prior of serving to some tables and write it; other tables of the file stay."""
    sources = sources_of([Path(path) for path in paths])
    without: dict[str, MeasuredPrior] = {}
    places = sorted({source[:NAMED] for source in sources})
    for part in range(FOLDS):
        left = [source for source in sources if source[:NAMED] in places[part::FOLDS]]
        rest = {source: rows for source, rows in sources.items() if source not in left}
        without |= dict.fromkeys(left, prior_of(fit(draws_of(rest), SHAPE), SHAPE, INTERVAL_SCALE))
    whole = prior_of(fit(draws_of(sources), SHAPE), SHAPE, INTERVAL_SCALE)
    write_table("serving", text_of("serving", whole, without))


if __name__ == "__main__":
    main(sys.argv[1:])
