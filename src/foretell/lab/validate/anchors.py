"""Rows of a table predicted from other rows of their source: `validate training FILE --anchors K`.

A user has measured a run or a few, and asks for the next. So every row is predicted given K others of its
source, chosen by the seed among those of the same model and chip where there are enough, else of the same
chip, else any; the source is left out of the prior and of the software's values.
"""

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foretell.api.conditioning import MeasuredStep, condition_steps
from foretell.lab.validate.scores import Prediction
from foretell.lab.validate.training import RunPrediction, source_label

CLOSE = 0.005
"""Difference of median errors up to which two predictions are as good as each other."""


def anchored_steps(
    told: Sequence[RunPrediction], predictions: Sequence[Prediction], many: int, seed: int
) -> list[Prediction]:
    """The predictions of step times, each with its value given `many` other rows of its source, and with
    one plain factor of these rows beside it."""
    sources: dict[str, list[int]] = defaultdict(list)
    for i, one in enumerate(told):
        sources[source_label(one.row)].append(i)
    found = []
    for i, (one, plain) in enumerate(zip(told, predictions, strict=True)):
        chosen = anchors_of(told, i, sources[source_label(one.row)], many, seed)
        found.append(anchored(one, [told[j] for j in chosen], plain) if chosen else plain)
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


def anchored(one: RunPrediction, chosen: Sequence[RunPrediction], plain: Prediction) -> Prediction:
    """One row given some others."""
    runs = [
        MeasuredStep(
            scenario=other.scenario,
            plan=other.plan,
            predicted=other.answer,
            step_s=other.measured_s,
            peak_bytes=None,
        )
        for other in chosen
    ]
    step = condition_steps(runs, one.row.source).step(one.answer)
    value = one.answer.step_s * math.exp(step.said.median)
    factor = float(np.median([(o.measured_s or 1.0) / o.answer.step_s for o in chosen]))
    return replace(
        plain,
        anchored=value,
        anchored_interval={"p90": step.interval(value)["p90"]},
        plain_factor=one.answer.step_s * factor,
    )


def anchored_facts(
    told: Sequence[RunPrediction], predictions: Sequence[Prediction]
) -> dict[str, object]:
    """Errors, coverage and widths with and without the anchors, over the sources of at least three rows."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for one, found in zip(told, predictions, strict=True):
        if source_label(one.row) == one.row.source and found.anchored is not None:
            groups[one.row.source].append(found)
    return facts_of_sources(groups)


def facts_of_sources(groups: Mapping[str, Sequence[Prediction]]) -> dict[str, object]:
    """The same of predictions by their source."""
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
        "plain_factor_median_of_sources": median("plain_factor_ape"),
        "worse_than_plain_factor": sum(
            facts["anchored_median_ape"] > facts["plain_factor_ape"] + CLOSE
            for facts in by_source.values()
        ),
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
        "plain_factor_ape": float(
            np.median([abs((p.plain_factor or math.nan) / p.measured - 1.0) for p in rows])
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
    """ln(high / low) of the anchored interval."""
    low, high = (one.anchored_interval or {"p90": (1.0, 1.0)})["p90"]
    return math.log(high / low)


def _plain_width(one: Prediction) -> float:
    """ln(high / low) of the interval without anchors."""
    return math.log((one.high or 1.0) / (one.low or 1.0))
