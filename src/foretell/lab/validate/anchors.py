"""Rows of a table predicted from other rows of their source: `validate training FILE --anchors K`.

A user has measured a run or a few, and asks for the next. So every row is predicted given K others of its
source, chosen by the seed among those of the same model and chip where there are enough, else of the same
chip, else any; the source is left out of the prior and of the software's values.
"""

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.api.conditioning import MeasuredStep, StepLine, condition_steps, line_of
from foretell.lab.validate.scores import Prediction
from foretell.lab.validate.training import RunPrediction, source_label
from foretell.specs.corrections import TRAINING
from foretell.specs.plan import batch_of
from foretell.training.step import evaluate


def anchored_steps(
    told: Sequence[RunPrediction], predictions: Sequence[Prediction], many: int, seed: int
) -> list[Prediction]:
    """The predictions of step times, each with its value given `many` other rows of its source."""
    sources: dict[str, list[int]] = defaultdict(list)
    for i, one in enumerate(told):
        sources[source_label(one.row)].append(i)
    zero = np.zeros(len(TRAINING))
    lines = [line_of(one.scenario, one.plan, zero) for one in told]
    found = []
    for i, (one, plain) in enumerate(zip(told, predictions, strict=True)):
        chosen = anchors_of(told, i, sources[source_label(one.row)], many, seed)
        found.append(anchored(told, lines, i, chosen, plain) if chosen else plain)
    return found


def anchors_of(
    told: Sequence[RunPrediction], target: int, source: Sequence[int], many: int, seed: int
) -> list[int]:
    """Rows of the source that a row is predicted from; fewer where it has no more."""
    own = told[target].scenario
    others = [i for i in source if i != target]
    alike = [i for i in others if told[i].scenario.system.chip.id == own.system.chip.id]
    same = [i for i in alike if told[i].scenario.model.id == own.model.id]
    pool = next((rows for rows in (same, alike) if len(rows) >= many), others)
    chance = random.Random(f"{seed} {told[target].row.id}")
    return chance.sample(pool, min(many, len(pool)))


def anchored(
    told: Sequence[RunPrediction],
    lines: Sequence[StepLine],
    target: int,
    chosen: Sequence[int],
    plain: Prediction,
) -> Prediction:
    """One row given some others."""
    one = told[target]
    runs = [
        MeasuredStep(
            scenario=told[i].scenario, plan=told[i].plan, step_s=told[i].measured_s, peak_bytes=None
        )
        for i in chosen
    ]
    after = condition_steps(runs, one.row.source, [lines[i] for i in chosen])
    step = after.step(one.scenario, one.plan, None if after.at.any() else lines[target])
    system = one.scenario.system.with_corrections(step.corrections)
    step_s, _ = evaluate(replace(one.scenario, system=system), batch_of([one.plan]))
    value = float(step_s[0])
    return replace(plain, anchored=value, anchored_interval={"p90": step.interval(value)["p90"]})


def anchored_facts(
    told: Sequence[RunPrediction], predictions: Sequence[Prediction]
) -> dict[str, object]:
    """Errors, coverage and widths with and without the anchors, over the sources of at least three rows."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for one, found in zip(told, predictions, strict=True):
        if source_label(one.row) == one.row.source and found.anchored is not None:
            groups[one.row.source].append(found)
    by_source = {
        source: _source_facts(rows) for source, rows in sorted(groups.items()) if len(rows) >= 3
    }

    def median(key: str) -> float | None:
        values = [facts[key] for facts in by_source.values()]
        return float(np.median(values)) if values else None

    rows = [one for found in groups.values() for one in found]
    return {
        "anchored_median_of_sources": median("anchored_median_ape"),
        "plain_median_of_sources": median("median_ape"),
        "anchored_inside_p90": float(np.mean([anchored_inside(one) for one in rows]))
        if rows
        else None,
        "anchored_inside_p90_of_sources": median("anchored_inside_p90"),
        "anchored_width_of_sources": median("anchored_width"),
        "plain_width_of_sources": median("width"),
        "narrower_of_sources": median("narrower"),
        "anchored_by_source": by_source,
    }


def _source_facts(rows: Sequence[Prediction]) -> dict[str, float]:
    ratios = [_width(one) / max(_plain_width(one), 1e-12) for one in rows]
    return {
        "rows": len(rows),
        "median_ape": float(np.median([abs(p.predicted / p.measured - 1.0) for p in rows])),
        "anchored_median_ape": float(
            np.median([abs((p.anchored or math.nan) / p.measured - 1.0) for p in rows])
        ),
        "anchored_inside_p90": float(np.mean([anchored_inside(one) for one in rows])),
        "width": float(np.median([_plain_width(one) for one in rows])),
        "anchored_width": float(np.median([_width(one) for one in rows])),
        "narrower": float(1.0 - np.median(ratios)),
    }


def anchored_inside(one: Prediction) -> bool:
    """Whether a measurement lies in the 90 % interval of its anchored prediction."""
    low, high = (one.anchored_interval or {"p90": (math.nan, math.nan)})["p90"]
    return bool(low <= one.measured <= high)


def _width(one: Prediction) -> float:
    low, high = (one.anchored_interval or {"p90": (0.0, 0.0)})["p90"]
    return (high - low) / (one.anchored or 1.0)


def _plain_width(one: Prediction) -> float:
    return ((one.high or 0.0) - (one.low or 0.0)) / one.predicted
