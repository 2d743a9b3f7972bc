"""A scored table as text: how many rows, how far off, by group."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.console import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

REASONS = 8
"""Reasons for unsupported rows that are shown; the JSON has all."""


def scores_text(scores: Mapping[str, Any]) -> "RenderableType":
    """The JSON of a `validate` verb as tables: one for each way of grouping."""
    from rich.console import Group
    from rich.text import Text

    said = (
        f"{scored_text(scores)}, median error "
        f"{percent(scores['median_ape'])}, ninetieth percentile {percent(scores['p90_ape'])}"
    )
    parts: list[RenderableType] = [Text(said, "bold")]
    parts += [Text(line) for line in _over_sources(scores)]
    for key, groups in scores.items():
        if key.startswith("by_") and groups:
            parts += [Text(), _groups(key.removeprefix("by_").replace("_", " "), groups)]
    lines = _not_scored(scores["unsupported"])
    parts += [Text(), *lines] if lines else []
    return Group(*parts)


def scored_text(scores: Mapping[str, Any]) -> str:
    """How many rows were scored; in how many figures, where a row has several."""
    figures = len(scores["predictions"])
    rows = len({prediction["id"] for prediction in scores["predictions"]})
    said = f"{rows:,} of {scores['rows']:,} rows scored"
    return said if figures == rows else f"{said} in {figures:,} figures"


def famous_text(found: Mapping[str, Any]) -> "RenderableType":
    """The JSON of `validate famous` as text: each command, and predicted beside printed."""
    from rich.console import Group
    from rich.text import Text

    runs = found["runs"]
    said = (
        f"{len(runs)} famous runs: median error {percent(found['median_ape'])}, "
        f"{percent(found['inside_p90'])} inside their 90% interval, {found['refused']} refused"
    )
    parts: list[RenderableType] = [Text(said, "bold")]
    for one in runs:
        unit = one["unit"]
        line = f"printed {one['printed']:,.6g} {unit}, predicted "
        if one["predicted"] is None:
            line += "nothing"
        else:
            line += f"{one['predicted']:,.4g} {unit} ({100 * one['error']:+.1f}%)"
        if one["interval"]:
            line += "   90%: {:,.4g} to {:,.4g}".format(*one["interval"])
            line += "" if one["inside"] else ", not inside"
        parts += [Text(), Text(f"{one['run']} ({one['id']})"), Text(one["command"]), Text(line)]
        parts += [Text(one["problem"])] if one["problem"] else []
    return Group(*parts)


def memory_text(found: Mapping[str, Any]) -> "RenderableType":
    """The JSON of `validate memory` as text."""
    from rich.console import Group
    from rich.text import Text

    said = (
        f"{found['scored']:,} of {found['rows']:,} rows scored: {found['said_to_fit']:,} predicted to fit, "
        f"{found['said_not_to_fit']:,} not to fit; {found['too_close']:,} of both borderline"
    )
    if found["brier_score"] is not None:
        said += (
            f"\n{found['ran']:,} ran, {percent(found['ran_called_no'])} of them predicted not to fit; "
            f"{found['oom']:,} ran out of memory, {percent(found['oom_called_fits'])} of them predicted to "
            f"fit; Brier score {found['brier_score']:.3f}"
        )
    return Group(Text(said, "bold"), *_not_scored(found["unsupported"]))


def _not_scored(unsupported: Sequence[Any]) -> "list[Text]":
    """The commonest reasons for which rows are not scored."""
    from rich.text import Text

    reasons: dict[str, int] = {}
    for item in unsupported:
        reason = item["reason"] if isinstance(item, Mapping) else item[1]
        reasons[reason] = reasons.get(reason, 0) + 1
    if not reasons:
        return []
    shown = sorted(reasons.items(), key=lambda pair: -pair[1])[:REASONS]
    return [
        Text("Not scored", "bold"),
        *(Text(f"- {count:,} rows: {reason}") for reason, count in shown),
    ]


def _over_sources(scores: Mapping[str, Any]) -> list[str]:
    """What a scoreboard of training runs says beside its rows."""
    if scores.get("median_of_sources") is None:
        return []
    support = (
        f"{percent(scores['supported_share'])} of {scores['rows_with_target']:,} rows with a target"
    )
    over = (
        f"{support}; over {scores['sources']} sources the median of medians is "
        f"{percent(scores['median_of_sources'])}, their mean {percent(scores['mean_of_sources'])}"
    )
    covered = f"{percent(scores['inside_p90_of_all_rows'])} of all rows inside the 90 % interval"
    said = [
        over,
        f"{covered}; {scores['framework_values_seen']} values of software chosen with runs in sight",
    ]
    graded = scores["graded"]
    if graded["rows"]:
        said.append(
            f"of {graded['rows']:,} runs that count for their source {percent(graded['inside_p90'])} "
            f"inside, of their sources {percent(graded['inside_p90_of_sources'])}; high over low end "
            f"{graded['median_high_over_low']:.2f} in the middle"
        )
    if scores["memory_rows"]:
        said.append(
            f"peak memory of {scores['memory_rows']:,} rows: median error "
            f"{percent(scores['memory_median_ape'])}, signed {percent(scores['memory_median_error'])}; "
            f"{percent(scores['memory_inside_p90'])} inside the 90 % interval"
        )
    for name, found in scores.get("simulated", {}).items():
        said.append(
            f"{scores['simulated_rows']:,} rows with pipeline or replicas by {name}: median error "
            f"{percent(found['median_ape'])}, over sources {percent(found['median_of_sources'])}, "
            f"their mean {percent(found['mean_of_sources'])}"
        )
    filled = ", ".join(f"{name} ({count:,})" for name, count in scores["filled"].items())
    return [*said, f"filled: {filled}"] if filled else said


def percent(share: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "-" if share is None else f"{share:.1%}"


def _groups(name: str, groups: Mapping[str, Mapping[str, Any]]) -> "Table":
    """One way of grouping; signed errors and coverage where there are intervals."""
    groups = flat(groups)
    told = any(score.get("inside_p90") is not None for score in groups.values())
    more = ("signed", "in 90 %") if told else ()
    made = table(name, "rows", "median error", *more, right=("rows", "median error", *more))
    for label, score in groups.items():
        cells = [f"{score['rows']:,}", percent(score["median_ape"])]
        if told:
            cells += [signed_percent(score["median_error"]), percent(score["inside_p90"])]
        made.add_row(label, *cells)
    return made


def flat(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Groups inside groups side by side: kind -> metric -> score as `kind, metric` -> score."""
    found: dict[str, Mapping[str, Any]] = {}
    for label, score in groups.items():
        if "rows" in score:
            found[label] = score
        else:
            found |= {f"{label}, {name}": inner for name, inner in score.items()}
    return found


def signed_percent(share: float | None) -> str:
    """A share in percent with its sign, or a dash."""
    return "-" if share is None else f"{share:+.1%}"
