"""Rows of a table predicted from other rows of their source: `validate KIND FILE --anchors K`.

A user has measured a run or a few, and asks for the next. So every row is predicted given K others of its
source, chosen by the seed among those of the same chip and model where there are enough, else of the same
chip, else any (of post-training: of the same model, else any); the source is left out of the prior and of the
software's values. Of a service TTFT and TPOT of the chosen rows count, which its rate and whole latency
follow from; of a step of post-training all figures but memory, which no time says anything of.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from foretell.api.conditioning import MeasuredStep, condition_steps
from foretell.catalog.error_models import QuestionFacts, error_model
from foretell.lab.calibrate.serving_cases import ServingCase, in_their_unit, predicted_all
from foretell.lab.validate.post_training_cells import Cells
from foretell.lab.validate.scores import Prediction
from foretell.lab.validate.serving import ScoredFigure, case_features
from foretell.lab.validate.training import RunPrediction, source_label
from foretell.posttraining.evidence import KIND, loop_novelty, row_features, usual_slopes
from foretell.records import dataclass
from foretell.serving.corrections import STEPS
from foretell.serving.evidence import facts_of, service_novelty
from foretell.specs.arrays import Array
from foretell.specs.corrections import POST_TRAINING, SERVING, Corrections
from foretell.specs.engine import EngineProfile
from foretell.uncertainty.posterior import MeasuredRun, Posterior, condition

Row = TypeVar("Row", bound=Hashable)
P = TypeVar("P", bound=Prediction)
ProfileOf = Callable[[ServingCase], EngineProfile]
CLOSE = 0.005
"""Difference of median errors up to which two predictions are as good as each other."""
LATENCIES = ("ttft", "tpot")
"""What a service is seen by."""
NO_TIME = ("memory",)
"""Metrics that no measured time says anything of."""


def pick_rows(row: Row, likeness: Mapping[Row, tuple[str, ...]], many: int, seed: str) -> list[Row]:
    """Rows that a row is predicted from, of those of its source, each with what makes rows alike, the most
    important first; fewer where it has no more."""
    others = [one for one in likeness if one != row]
    pool = others
    for depth in range(len(likeness[row]), 0, -1):
        alike = [one for one in others if likeness[one][:depth] == likeness[row][:depth]]
        if len(alike) >= many:
            pool = alike
            break
    return random.Random(seed).sample(pool, min(many, len(pool)))


def conditioned(one: P, posterior: Posterior, run: MeasuredRun, factor: float | None) -> P:
    """A figure given others; `factor` is what they say by a plain factor."""
    told, ours = posterior.of(run), one.predicted
    low, high = told.interval["p90"]
    return replace(
        one,
        anchored=ours * math.exp(told.median),
        anchored_interval={"p90": (ours * math.exp(low), ours * math.exp(high))},
        plain_factor=None if factor is None else ours * factor,
    )


def anchored_steps(
    told: Sequence[RunPrediction], predictions: Sequence[Prediction], many: int, seed: int
) -> list[Prediction]:
    """The predictions of step times, each with its value given `many` other rows of its source, and with
    one plain factor of these rows beside it."""
    sources: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for i, one in enumerate(told):
        names = one.scenario.system.chip.id, one.scenario.model.id
        sources[source_label(one.row)][i] = names
    found = []
    for i, (one, plain) in enumerate(zip(told, predictions, strict=True)):
        places = pick_rows(i, sources[source_label(one.row)], many, f"{seed} {one.row.id}")
        found.append(anchored(one, [told[j] for j in places], plain) if places else plain)
    return found


def anchored(one: RunPrediction, others: Sequence[RunPrediction], plain: Prediction) -> Prediction:
    """One run given some others."""
    runs = [
        MeasuredStep(
            scenario=other.scenario,
            plan=other.plan,
            predicted=other.answer,
            step_s=other.measured_s,
            peak_bytes=None,
        )
        for other in others
    ]
    step = condition_steps(runs, one.row.source).step(one.answer)
    value = one.answer.step_s * math.exp(step.said.median)
    factor = float(np.median([(o.measured_s or 1.0) / o.answer.step_s for o in others]))
    return replace(
        plain,
        anchored=value,
        anchored_interval={"p90": step.interval(value)["p90"]},
        plain_factor=one.answer.step_s * factor,
    )


def step_facts(
    told: Sequence[RunPrediction], predictions: Sequence[Prediction]
) -> dict[str, object]:
    """Errors, coverage and widths of steps with and without the anchors."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for one, found in zip(told, predictions, strict=True):
        if source_label(one.row) == one.row.source and found.anchored is not None:
            groups[one.row.source].append(found)
    return facts_of_sources(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRun:
    """One figure of one service, as the posterior sees it."""

    case: ServingCase
    """The row."""
    prediction: Prediction
    """Ours beside theirs."""
    run: MeasuredRun
    """Its slopes to the mechanisms of serving, and what was measured."""


def figure_runs(told: Sequence[ScoredFigure], profile_of: ProfileOf) -> list[FigureRun]:
    """Every scored figure with its slopes."""
    slopes = case_slopes(list({case.row.id: case for case, _ in told}.values()), profile_of)
    found = []
    for case, one in told:
        run = MeasuredRun(
            slopes=slopes[case.row.id].get(one.metric, np.zeros(len(SERVING))),
            log_ratio=math.log(one.measured / one.predicted),
            features=case_features(case, one.metric),
            novelty=service_novelty(facts_of(case.question), one.metric),
        )
        found.append(FigureRun(case=case, prediction=one, run=run))
    return found


def case_slopes(cases: Sequence[ServingCase], profile_of: ProfileOf) -> dict[str, dict[str, Array]]:
    """Row -> metric -> d ln(figure) / d ln(factor), by differences."""
    sides: list[list[dict[str, float]]] = []
    for sign in (1.0, -1.0):
        for name, step in zip(SERVING, STEPS, strict=True):
            there = [corrected(c, Corrections(**{name: math.exp(sign * step)})) for c in cases]
            figures = predicted_all(there, profile_of)
            sides.append([in_their_unit(c, f) for c, f in zip(cases, figures, strict=True)])
    ups, downs = sides[: len(SERVING)], sides[len(SERVING) :]
    found = {}
    for i, case in enumerate(cases):
        found[case.row.id] = {
            metric: np.array(
                [
                    _slope(up[i].get(metric), down[i].get(metric), step)
                    for up, down, step in zip(ups, downs, STEPS, strict=True)
                ]
            )
            for metric in ups[0][i]
        }
    return found


def corrected(case: ServingCase, known: Corrections) -> ServingCase:
    """A row on a system whose mechanisms take other times: its prefill instances, too."""
    q, pool = case.question, case.prefill
    if pool is not None:
        pool = replace(pool, system=pool.system.with_corrections(known))
    return replace(case, question=replace(q, system=q.system.with_corrections(known), prefill=pool))


def _slope(up: float | None, down: float | None, step: float) -> float:
    if not up or not down or not (math.isfinite(up) and math.isfinite(down)):
        return 0.0
    return math.log(up / down) / (2.0 * step)


def anchored_services(
    told: Sequence[ScoredFigure], profile_of: ProfileOf, many: int, seed: int
) -> list[ScoredFigure]:
    """The predictions, each with its value given the figures of `many` other rows of its source."""
    runs = figure_runs(told, profile_of)
    rows: dict[str, list[FigureRun]] = defaultdict(list)
    sources: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for one in runs:
        row = one.case.row
        rows[row.id].append(one)
        sources[row.source][row.id] = (one.case.system.chip.id, one.case.model.id)
    found: list[ScoredFigure] = []
    for figures in rows.values():
        row = figures[0].case.row
        others = [
            rows[name] for name in pick_rows(row.id, sources[row.source], many, f"{seed} {row.id}")
        ]
        seen = [one.run for some in others for one in latencies_of(some)]
        posterior = condition(error_model("serving", row.source), SERVING, seen) if seen else None
        for one in figures:
            metric, alone = one.prediction.metric, one.prediction
            ratios = [
                o.run.log_ratio for some in others for o in some if o.prediction.metric == metric
            ]
            factor = math.exp(float(np.median(ratios))) if ratios else None
            given = alone if posterior is None else conditioned(alone, posterior, one.run, factor)
            found.append((one.case, given))
    return found


def latencies_of(figures: Sequence[FigureRun]) -> list[FigureRun]:
    """What a row is seen by: its latencies; else all."""
    latencies = [one for one in figures if one.prediction.metric in LATENCIES]
    return latencies or list(figures)


def service_facts(told: Sequence[ScoredFigure]) -> dict[str, object]:
    """Metric -> errors with and without the anchors, over sources of three rows or more and over all rows."""
    by_metric: dict[str, dict[str, list[Prediction]]] = defaultdict(lambda: defaultdict(list))
    for case, one in told:
        if one.anchored is not None:
            by_metric[one.metric][case.row.source].append(one)
    found: dict[str, object] = {}
    for metric, sources in sorted(by_metric.items()):
        some = [rows for rows in sources.values() if len(rows) >= 3]
        every = [one for rows in sources.values() for one in rows]
        factored = [[one for one in rows if one.plain_factor is not None] for rows in some]
        found[metric] = {
            "rows": len(every),
            "median_ape": _ape(every, "predicted"),
            "anchored_median_ape": _ape(every, "anchored"),
            "median_of_sources": _median([_ape(rows, "predicted") for rows in some]),
            "plain_factor_median_of_sources": _median(
                [_ape(rows, "plain_factor") for rows in factored if rows]
            ),
            "anchored_median_of_sources": _median([_ape(rows, "anchored") for rows in some]),
            "anchored_inside_p90": float(np.mean([anchored_inside(one) for one in every])),
        }
    return {"anchored_by_metric": found}


def anchored_loops(
    rows: Mapping[str, tuple[Cells, QuestionFacts]],
    found: Sequence[P],
    figure: Callable[[P], str],
    anchors: tuple[int, int],
) -> list[P]:
    """Predictions of post-training with their values given `anchors[0]` other rows of their source, chosen by
    the seed `anchors[1]`; `figure`: what a prediction is of."""
    many, seed = anchors
    by_row: dict[str, list[P]] = defaultdict(list)
    sources: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for one in found:
        if one.metric not in NO_TIME:
            by_row[one.id].append(one)
            sources[one.source][one.id] = (rows[one.id][0]["model"],)

    def run(one: P) -> MeasuredRun:
        """One figure of a row beside its prediction."""
        (cells, facts), what = rows[one.id], figure(one)
        return MeasuredRun(
            slopes=usual_slopes(what),
            log_ratio=math.log(one.measured / one.predicted),
            features=row_features(facts, cells["model"]),
            novelty=loop_novelty(facts, what),
            key=(one.id, what),
        )

    made = []
    for one in found:
        if one.metric in NO_TIME or len(sources[one.source]) < 2:
            made.append(one)
            continue
        names = pick_rows(one.id, sources[one.source], many, f"{seed} {one.id}")
        seen = [other for row in names for other in by_row[row]]
        posterior = condition(error_model(KIND, one.source), POST_TRAINING, list(map(run, seen)))
        alike = [other for other in seen if other.metric == one.metric] or seen
        factor = float(np.median([other.measured / other.predicted for other in alike]))
        made.append(conditioned(one, posterior, run(one), factor))
    return made


def loop_facts(found: Sequence[Prediction]) -> dict[str, object]:
    """Errors, coverage and widths of post-training with and without the anchors."""
    groups: dict[str, list[Prediction]] = defaultdict(list)
    for one in found:
        if one.anchored is not None:
            groups[one.source].append(one)
    return facts_of_sources(groups)


def facts_of_sources(groups: Mapping[str, Sequence[Prediction]]) -> dict[str, object]:
    """Errors, coverage and widths with and without the anchors, over the sources of at least three rows."""
    by_source = {
        source: _source_facts(rows) for source, rows in sorted(groups.items()) if len(rows) >= 3
    }

    def median(key: str) -> float | None:
        return _median([facts[key] for facts in by_source.values()])

    rows = [one for found in groups.values() for one in found]
    inside = [anchored_inside(one) for one in rows]
    return {
        "anchored_median_of_sources": median("anchored_median_ape"),
        "plain_median_of_sources": median("median_ape"),
        "plain_factor_median_of_sources": median("plain_factor_ape"),
        "worse_than_plain_factor": sum(
            facts["anchored_median_ape"] > facts["plain_factor_ape"] + CLOSE
            for facts in by_source.values()
        ),
        "anchored_inside_p90": float(np.mean(inside)) if rows else None,
        "anchored_inside_p90_of_sources": median("anchored_inside_p90"),
        "anchored_width_of_sources": median("anchored_width"),
        "plain_width_of_sources": median("width"),
        "narrower_of_sources": median("narrower"),
        "anchored_by_source": by_source,
    }


def _source_facts(rows: Sequence[Prediction]) -> dict[str, float]:
    """Of the rows of one source."""
    plain, given = [_plain_width(one) for one in rows], [_width(one) for one in rows]
    ratios = [width / max(before, 1e-12) for width, before in zip(given, plain, strict=True)]
    return {
        "rows": len(rows),
        "median_ape": _ape(rows, "predicted"),
        "anchored_median_ape": _ape(rows, "anchored"),
        "plain_factor_ape": _ape(rows, "plain_factor"),
        "anchored_inside_p90": float(np.mean([anchored_inside(one) for one in rows])),
        "width": float(np.median(plain)),
        "anchored_width": float(np.median(given)),
        "narrower": float(1.0 - np.median(ratios)),
    }


def anchored_inside(one: Prediction) -> bool:
    """Whether a measurement lies in the 90 % interval of its anchored prediction."""
    low, high = (one.anchored_interval or {"p90": (math.nan, math.nan)})["p90"]
    return bool(low <= one.measured <= high)


def _ape(rows: Sequence[Prediction], name: str) -> float:
    """Median absolute relative error of one of the predictions."""
    return float(np.median([abs(getattr(one, name) / one.measured - 1.0) for one in rows]))


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None


def _width(one: Prediction) -> float:
    """ln(high / low) of the anchored interval."""
    low, high = (one.anchored_interval or {"p90": (1.0, 1.0)})["p90"]
    return math.log(high / low)


def _plain_width(one: Prediction) -> float:
    """ln(high / low) of the interval without anchors."""
    return math.log((one.high or 1.0) / (one.low or 1.0))
