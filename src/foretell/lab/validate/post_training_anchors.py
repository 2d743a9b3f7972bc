"""Post-training rows predicted from other rows of their source: `validate post-training FILE --anchors K`.

All figures of K other rows condition a row's figures, as `post-train --measured` does with a log: rows of the
same model first, then any; the source is left out of the prior. Memory is no time, and stays as it is.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from foretell.catalog.error_models import QuestionFacts, error_model
from foretell.lab.validate.anchors import facts_of_sources
from foretell.lab.validate.post_training_cells import Cells
from foretell.lab.validate.scores import Prediction
from foretell.posttraining.evidence import KIND, loop_novelty, row_features, usual_slopes
from foretell.specs.corrections import POST_TRAINING
from foretell.uncertainty.posterior import MeasuredRun, condition

P = TypeVar("P", bound=Prediction)
NO_TIME = ("memory",)
"""Metrics that no measured time says anything of."""


def anchored_figures(
    rows: Mapping[str, tuple[Cells, QuestionFacts]],
    found: Sequence[P],
    figure: Callable[[P], str],
    anchors: tuple[int, int],
) -> list[P]:
    """The predictions with their values given `anchors[0]` other rows of their source, chosen by the seed
    `anchors[1]`; `figure`: what a prediction is of."""
    many, seed = anchors
    by_row: dict[str, list[P]] = defaultdict(list)
    by_source: dict[str, list[str]] = defaultdict(list)
    for one in found:
        if one.metric not in NO_TIME:
            by_row[one.id].append(one)
            if one.id not in by_source[one.source]:
                by_source[one.source].append(one.id)
    made = []
    for one in found:
        others = [row for row in by_source[one.source] if row != one.id]
        if one.metric in NO_TIME or not others:
            made.append(one)
            continue
        model = rows[one.id][0]["model"]
        alike = [row for row in others if rows[row][0]["model"] == model]
        pool = alike if len(alike) >= many else others
        chosen = random.Random(f"{seed} {one.id}").sample(pool, min(many, len(pool)))
        seen = [other for row in chosen for other in by_row[row]]
        made.append(_anchored(one, seen, lambda p: measured_run(rows, p, figure(p))))
    return made


def measured_run(
    rows: Mapping[str, tuple[Cells, QuestionFacts]], one: Prediction, figure: str
) -> MeasuredRun:
    """One figure of a row beside its prediction."""
    cells, facts = rows[one.id]
    return MeasuredRun(
        slopes=usual_slopes(figure),
        log_ratio=math.log(one.measured / one.predicted),
        features=row_features(facts, cells["model"]),
        novelty=loop_novelty(facts, figure),
        key=(one.id, figure),
    )


def _anchored(one: P, seen: Sequence[P], run: Callable[[P], MeasuredRun]) -> P:
    """A figure given others."""
    model = error_model(KIND, one.source)
    said = condition(model, POST_TRAINING, [run(other) for other in seen]).of(run(one))
    value = one.predicted * math.exp(said.median)
    low, high = said.interval["p90"]
    alike = [other for other in seen if other.metric == one.metric] or list(seen)
    factor = float(np.median([other.measured / other.predicted for other in alike]))
    return replace(
        one,
        anchored=value,
        anchored_interval={"p90": (one.predicted * math.exp(low), one.predicted * math.exp(high))},
        plain_factor=one.predicted * factor,
    )


def anchored_facts(found: Sequence[Prediction]) -> dict[str, object]:
    """Errors, coverage and widths with and without the anchors."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for one in found:
        if one.anchored is not None:
            groups[one.source].append(one)
    return facts_of_sources(groups)
