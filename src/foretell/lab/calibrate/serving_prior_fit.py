"""The prior of measured services, learnt from published tables.

    python -m foretell.lab.calibrate.serving_prior_fit FILE ...

As lab/calibrate/prior_fit.py for training: every figure of every row is predicted by a profile that owes
nothing to its source, and from the TTFT and TPOT of another row of its source. Needs torch. Writes the table
`serving` of catalog/measured_priors.toml.
"""

import math
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
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
    own=(0, 0, 0, 1, 1),
    steps=(("batch", "answer"), ("prompt",), ("tp", "dp", "ep")),
    names=("metric", "model", "chip", "engine"),
    traits=("first_token",),
    spread=(0.2, 0.08, 0.1, 0.3, 0.3),
    part=("queueing",),
    doubt_power=0.0,
    start={
        "steps": [math.log(0.1), math.log(0.4), math.log(0.3)],
        "names": [math.log(2.0), math.log(0.5), math.log(0.5), math.log(1.0)],
        "doubt": [1.2],
        "mean": 0.0,
    },
)
"""What the prior is made of."""
SHARES = {0: 0.3, 1: 1.0, 2: 1.0}
"""Numbers of figures to predict from, and what each counts."""
DRAWS, LEAST, FULL, NAMED = 50, 20, 100, 60
"""Rows drawn of a source, at least so many, rows from which it counts in full, and letters of its name by
which sources of one place are one."""
INTERVAL_SCALE = 1.05
"""So that figures of sources left out lie in their intervals as often as promised: 0.92 for TPOT, 1.26 for
TTFT, about as many of each."""


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
            found[row.source[:NAMED]][f"{path.name} {row.id}"].append(figure)
    return {source: dict(rows) for source, rows in found.items() if len(rows) >= 3}


def draws_of(sources: dict[str, Rows], seed: int = 0) -> list[Draws]:
    """Draws of figures with those of another row, and of none."""
    chance = random.Random(seed)
    found: dict[int, list[tuple[tuple[MeasuredRun, ...], float, str]]]
    found = {many: [] for many in SHARES}
    for source, rows in sources.items():
        cases = {name: figures[0].case for name, figures in rows.items()}
        picked = chance.sample(list(rows), min(len(rows), DRAWS))
        picked *= max(1, math.ceil(LEAST / len(picked)))
        weight = math.sqrt(min(len(rows), FULL) / FULL) / len(picked)
        for name in picked:
            for many in (0, 1):
                others = {n: case for n, case in cases.items() if n != name}
                chosen = anchors_of(cases[name], others, many, chance.randrange(2**31))
                seen = [one.run for other in chosen for one in latencies_of(rows[other])]
                if len(seen) in found:
                    found[len(seen)] += [((*seen, one.run), weight, source) for one in rows[name]]
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
    for left, rows in sources.items():
        rest = {source: held for source, held in sources.items() if source != left}
        prior = replace(prior_of(fit(draws_of(rest), SHAPE), SHAPE), interval_scale=INTERVAL_SCALE)
        names = {figures[0].case.row.source for figures in rows.values()}
        without |= dict.fromkeys(names, prior)
    whole = prior_of(fit(draws_of(sources), SHAPE), SHAPE, INTERVAL_SCALE)
    write_table("serving", text_of("serving", whole, without))


if __name__ == "__main__":
    main(sys.argv[1:])
