"""Rows of a serving table predicted from other rows of their source: `validate serving FILE --anchors K`.

As lab/validate/anchors.py for training. A row has several figures (TTFT, TPOT ...), each a measurement of its
own with its slopes to the mechanisms of serving; the latencies of the chosen rows count. Profiles
owe nothing to the row's source (calibrate/serving_left_out.py), and the prior is the one without it.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.error_models import error_model
from foretell.lab.calibrate.serving_cases import ServingCase, in_their_unit, predicted_all
from foretell.lab.validate.anchors import anchored_inside
from foretell.lab.validate.scores import Prediction
from foretell.lab.validate.serving import case_features
from foretell.records import dataclass
from foretell.serving.corrections import STEPS
from foretell.serving.evidence import facts_of, service_novelty
from foretell.specs.corrections import SERVING, Corrections
from foretell.specs.engine import EngineProfile
from foretell.uncertainty.posterior import MeasuredRun, condition

ProfileOf = Callable[[ServingCase], EngineProfile]
Slopes = Mapping[str, NDArray[np.float64]]
"""Metric -> its slopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRun:
    """One figure of one row, as the posterior sees it."""

    case: ServingCase
    """The row."""
    prediction: Prediction
    """Ours beside theirs."""
    run: MeasuredRun
    """Its slopes and what was measured."""


def figure_runs(
    told: Sequence[tuple[ServingCase, Prediction]], profile_of: ProfileOf
) -> list[FigureRun]:
    """Every scored figure with its slopes."""
    cases = {case.row.id: case for case, _ in told}
    slopes = case_slopes(list(cases.values()), profile_of)
    found = []
    for case, one in told:
        own = slopes[case.row.id].get(one.metric)
        if own is None:
            own = np.zeros(len(SERVING))
        run = MeasuredRun(
            slopes=own,
            log_ratio=math.log(one.measured / one.predicted),
            features=case_features(case, one.metric),
            novelty=service_novelty(facts_of(case.question), one.metric),
        )
        found.append(FigureRun(case=case, prediction=one, run=run))
    return found


def case_slopes(cases: Sequence[ServingCase], profile_of: ProfileOf) -> Mapping[str, Slopes]:
    """Row -> metric -> d ln(figure) / d ln(factor), by differences."""
    sides: list[list[dict[str, float]]] = []
    for sign in (1.0, -1.0):
        for name, step in zip(SERVING, STEPS, strict=True):
            there = [corrected(c, Corrections(**{name: math.exp(sign * step)})) for c in cases]
            figures = predicted_all(there, profile_of)
            pairs = zip(cases, figures, strict=True)
            sides.append([in_their_unit(c, f) for c, f in pairs])
    many, found = len(SERVING), {}
    for i, case in enumerate(cases):
        metrics = set(sides[0][i])
        found[case.row.id] = {
            metric: np.array(
                [
                    _slope(sides[m][i].get(metric), sides[many + m][i].get(metric), STEPS[m])
                    for m in range(many)
                ]
            )
            for metric in metrics
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


def anchored_figures(
    told: Sequence[tuple[ServingCase, Prediction]], profile_of: ProfileOf, many: int, seed: int
) -> list[tuple[ServingCase, Prediction]]:
    """The predictions, each with its value given the figures of `many` other rows of its source."""
    runs = figure_runs(told, profile_of)
    rows: dict[str, list[FigureRun]] = defaultdict(list)
    sources: dict[str, dict[str, ServingCase]] = defaultdict(dict)
    for one in runs:
        rows[one.case.row.id].append(one)
        sources[one.case.row.source][one.case.row.id] = one.case
    found = []
    posteriors = {}
    chosen_rows: dict[str, list[str]] = {}
    for one in runs:
        row = one.case.row
        if row.id not in posteriors:
            chosen = anchors_of(one.case, sources[row.source], many, seed)
            chosen_rows[row.id] = chosen
            seen = [figure.run for name in chosen for figure in latencies_of(rows[name])]
            prior = error_model("serving", row.source)
            posteriors[row.id] = condition(prior, SERVING, seen) if seen else None
        posterior = posteriors[row.id]
        if posterior is None:
            found.append((one.case, one.prediction))
            continue
        said, ours = posterior.of(one.run), one.prediction.predicted
        low, high = said.interval["p90"]
        ends = (ours * math.exp(low), ours * math.exp(high))
        same = [r.run.log_ratio for name in chosen_rows[row.id] for r in rows[name]
                if r.prediction.metric == one.prediction.metric]  # fmt: skip
        anchored = replace(
            one.prediction,
            anchored=ours * math.exp(said.median),
            anchored_interval={"p90": ends},
            plain_factor=ours * math.exp(float(np.median(same))) if same else None,
        )
        found.append((one.case, anchored))
    return found


def latencies_of(figures: Sequence[FigureRun]) -> list[FigureRun]:
    """What a row is seen by: its TTFT and TPOT, which its rate and whole latency follow from; else all."""
    latencies = [one for one in figures if one.prediction.metric in ("ttft", "tpot")]
    return latencies or list(figures)


def anchors_of(
    target: ServingCase, source: Mapping[str, ServingCase], many: int, seed: int
) -> list[str]:
    """Rows of the source that a row is predicted from, by id; fewer where it has no more."""
    others = {name: case for name, case in source.items() if name != target.row.id}
    alike = [n for n, c in others.items() if c.system.chip.id == target.system.chip.id]
    same = [n for n in alike if others[n].model.id == target.model.id]
    pool = next((names for names in (same, alike) if len(names) >= many), list(others))
    return random.Random(f"{seed} {target.row.id}").sample(pool, min(many, len(pool)))


def anchored_facts(told: Sequence[tuple[ServingCase, Prediction]]) -> dict[str, object]:
    """Metric -> errors with and without the anchors, over sources of three rows or more and over all rows."""
    by_metric: dict[str, dict[str, list[Prediction]]] = defaultdict(lambda: defaultdict(list))
    for case, one in told:
        if one.anchored is not None:
            by_metric[one.metric][case.row.source].append(one)
    found: dict[str, object] = {}
    for metric, sources in sorted(by_metric.items()):
        some = [rows for rows in sources.values() if len(rows) >= 3]
        every = [one for rows in sources.values() for one in rows]
        inside = [anchored_inside(one) for one in every]
        found[metric] = {
            "rows": len(every),
            "median_ape": _ape(every, "predicted"),
            "anchored_median_ape": _ape(every, "anchored"),
            "median_of_sources": _median([_ape(rows, "predicted") for rows in some]),
            "plain_factor_median_of_sources": _median(
                [_ape(told, "plain_factor") for told in map(_factored, some) if told]
            ),
            "anchored_median_of_sources": _median([_ape(rows, "anchored") for rows in some]),
            "anchored_inside_p90": float(np.mean(inside)),
        }
    return {"anchored_by_metric": found}


def _factored(rows: Sequence[Prediction]) -> list[Prediction]:
    return [one for one in rows if one.plain_factor is not None]


def _ape(rows: Sequence[Prediction], name: str) -> float:
    return float(np.median([abs(getattr(one, name) / one.measured - 1.0) for one in rows]))


def _median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if values else None
