"""Published serving results beside our predictions: `validate serving`.

Every row is asked of `serve` with the arguments that a user would type for it; `--commands` prints them. One
prediction for each row and metric (ttft, tpot, e2e in milliseconds; throughput in output tokens a second,
in total, or of one chip where a row has no other), or the reason why a row is unsupported.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foretell.api.measured_serving import service_features
from foretell.lab.calibrate.serving_arguments import UnsupportedRow, command
from foretell.lab.calibrate.serving_cases import (
    Figures,
    ServingCase,
    case_of,
    in_their_unit,
    measured_figures,
    row_figures,
)
from foretell.lab.calibrate.serving_fit import (
    ProfileOf,
    is_held_out,
    left_out_profile_of,
    profiles_without,
    without_source,
)
from foretell.lab.calibrate.serving_rows import ServingRow, read_rows
from foretell.lab.validate.scores import (
    Prediction,
    Score,
    Scores,
    UnsupportedRun,
    attempt,
    score,
    scores_of,
    typed_commands,
)
from foretell.serving.evidence import facts_of, interval_of
from foretell.specs.engine import EngineProfile

ScoredFigure = tuple[ServingCase, Prediction]
"""A figure of a row beside ours."""
NO_SOURCE = "not stated"
"""The source of rows that name none."""
LeaveOut = Literal["group", "model"]
"""What is left out of a fit before its rows are predicted."""
NO_TARGET = "no target: the row has none of the figures that are scored"
"""Why a row is not scored that could be predicted."""


def score_serving(
    path: Path,
    *,
    leave_one_out: LeaveOut | None = None,
    anchors: int = 0,
    seed: int = 0,
) -> Scores:
    """Score a table; with `leave_one_out`, by profiles fitted to its rows without their group or model.

    `by_held_out` has the errors of rows predicted without their model, by the catalogue's fits.

    `anchors` predicts every row given so many others of its source as well, chosen by the seed, by
    the catalogue's profiles, without the row's model where they were fitted to its source.
    """
    return score_rows(read_rows(Path(path)), leave_one_out, (anchors, seed))


def score_rows(
    rows: Sequence[ServingRow],
    leave_one_out: LeaveOut | None = None,
    anchors: tuple[int, int] = (0, 0),
) -> Scores:
    """The scoreboard of some rows; `anchors` says how many others each is predicted from, and a seed."""
    cases: list[ServingCase] = []
    unsupported: list[tuple[str, str]] = []
    for row in rows:
        found = read_case(row)
        if isinstance(found, str):
            unsupported.append((row.id, found))
        else:
            cases.append(found)
    profile_of: ProfileOf = without_source() if anchors[0] else lambda case: case.profile
    if leave_one_out and not anchors[0]:
        by_group = leave_one_out == "group"
        profile_of = profiles_without(cases, lambda c: c.group if by_group else c.model.id)
    told: list[ScoredFigure] = []
    own: dict[str, Figures | str] = {}
    for case in cases:
        profile = profile_of(case)
        own[case.row.id] = figures = row_figures(case, profile)
        if isinstance(figures, str):
            unsupported.append((case.row.id, figures))
            continue
        found_here = predictions_of(case, in_their_unit(case, figures), profile)
        if not found_here:
            unsupported.append((case.row.id, NO_TARGET))
        told += [(case, prediction) for prediction in found_here]
    if anchors[0]:
        from foretell.lab.validate.anchors import anchored_services, service_facts

        told = anchored_services(told, profile_of, *anchors)
        scored = board(len(rows), told, unsupported, leave_one_out)
        more = {"anchors": anchors[0], "seed": anchors[1], **service_facts(told)}
        return replace(scored, facts={**scored.facts, **more})
    scored = board(len(rows), told, unsupported, leave_one_out)
    if leave_one_out is not None:
        return scored
    return replace(scored, groups={"by_held_out": held_out(cases, own), **scored.groups})


def held_out(cases: Sequence[ServingCase], own: Mapping[str, Figures | str]) -> dict[str, Score]:
    """Family and metric, and metric -> the score of rows predicted without their model, coverage included."""
    mine = [case for case in cases if is_held_out(case)]
    profile_of = left_out_profile_of()
    found: dict[str, list[Prediction]] = {}
    for case in mine:
        profile = profile_of(case)
        # `own` has the figures by the row's own profile.
        figures = own[case.row.id] if profile == case.profile else row_figures(case, profile)
        if isinstance(figures, str):
            continue
        for one in predictions_of(case, in_their_unit(case, figures), case.profile):
            family = "moe" if case.mixture else "dense"
            for name in (one.metric, f"{family} {one.metric}"):
                found.setdefault(name, []).append(one)
    return {name: score(told) for name, told in sorted(found.items())}


def commands(path: Path) -> list[dict[str, str | None]]:
    """For every row of a table the line that a user would type for it, or the reason why there is none."""

    def typed(row: ServingRow) -> str:
        case = read_case(row)
        if isinstance(case, str):
            raise UnsupportedRun(case)
        return command(case.arguments, row.id)

    return typed_commands((row.id, partial(typed, row)) for row in read_rows(Path(path)))


def read_case(row: ServingRow) -> ServingCase | str:
    """A row understood, or the reason why it is not; never an error."""
    return attempt(lambda: case_of(row), UnsupportedRow)


def predictions_of(
    case: ServingCase, figures: dict[str, float], profile: EngineProfile
) -> list[Prediction]:
    """Our figures beside a row's, with the interval that a user is shown."""
    found = []
    facts = facts_of(case.asked_of(profile))
    for name, theirs in measured_figures(case.row).items():
        ours = figures.get(name)
        if ours is None or not np.isfinite(ours) or ours <= 0.0:
            continue
        low, high = interval_of(ours, facts, name)["p90"]
        found.append(
            Prediction(
                id=case.row.id,
                source=case.row.source,
                metric=name,
                predicted=ours,
                measured=theirs,
                low=low,
                high=high,
            )
        )
    return found


def case_features(case: ServingCase, metric: str) -> dict[str, float | str]:
    """What makes two figures of services of a table alike."""
    row, d = case.row, case.deployment
    sizes = (row.batch or 1.0, row.isl or 1.0, row.osl or 1.0, d.tp, d.dp, d.ep)
    names = case.model.id, case.system.chip.id, case.profile.engine
    return service_features(metric, *names, [float(size) for size in sizes])


def board(
    rows: int,
    told: Sequence[ScoredFigure],
    unsupported: Sequence[tuple[str, str]],
    leave_one_out: str | None,
) -> Scores:
    """Groups by source, metric, profile, chip, family, workers and group; `by_kind` beside them."""
    families = ["moe" if c.mixture else "dense" for c, _ in told]
    words = {
        "by_profile": [c.profile.id for c, _ in told],
        "by_chip": [c.system.chip.id for c, _ in told],
        "by_family": families,
        "by_vendor": [
            f"{c.system.chip.vendor} {own}" for (c, _), own in zip(told, families, strict=True)
        ],
        "by_workers": ["together" if c.prefill is None else "disaggregated" for c, _ in told],
        "by_speculation": [c.row.speculative or "not stated" for c, _ in told],
        "by_group": [c.group for c, _ in told],
    }
    metrics = [p.metric for _, p in told]
    labels = {"by_source": [c.row.source or NO_SOURCE for c, _ in told], "by_metric": metrics}
    labels |= {
        name: [f"{word} {metric}" for word, metric in zip(some, metrics, strict=True)]
        for name, some in words.items()
    }
    scores = scores_of(
        rows,
        [p for _, p in told],
        unsupported,
        labels,
        leave_one_out=leave_one_out,
        facts={"by_kind": by_kind(told), "filled": count_filled(told)},
    )
    return replace(scores, scored=rows - len(unsupported))  # rows, of several figures each


def by_kind(told: Sequence[ScoredFigure]) -> dict[str, dict[str, Any]]:
    """Kind -> metric -> rows, median_ape and median_error."""
    found: dict[str, dict[str, list[Prediction]]] = {}
    for case, p in told:
        found.setdefault(case.row.kind, {}).setdefault(p.metric, []).append(p)
    names = ("rows", "median_ape", "median_error")
    return {
        kind: {
            metric: {name: getattr(score(some), name) for name in names}
            for metric, some in metrics.items()
        }
        for kind, metrics in sorted(found.items())
    }


def count_filled(told: Sequence[ScoredFigure]) -> dict[str, int]:
    """What was filled in blank cells, and how often."""
    cases = {case.row.id: case for case, _ in told}.values()
    return dict(Counter(text for case in cases for text in case.said).most_common())
