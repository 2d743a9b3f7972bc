"""What cannot be had better in one wish without being worse in the other."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.figures.look import (
    Figure,
    Trace,
    figure,
    ideal,
    nth_colour,
    points,
    sentence,
    shown_in,
    shown_value,
    title_of,
    value_axis,
    words_of,
)
from foretell.report.presentation.study_cards import cell
from foretell.search.pareto import pareto_front

if TYPE_CHECKING:
    from foretell.studies.sweep.codesign import Codesign

MOST = 5000
"""Points that are drawn beside the front; with more, every so many of them."""


def pareto(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    directions: tuple[str, str],
    *,
    label: str = "plan",
    group: str | None = None,
    title: str = "",
) -> Figure:
    """Rows as points, full those of the exact front, which a line joins; `directions` are min or max."""
    known = [row for row in rows if row.get(x) is not None and row.get(y) is not None]
    columns = [[float(row[name]) for row in known] for name in (x, y)]
    front = list(pareto_front(columns, directions)) if known else []
    by_x, by_y = shown_in(x)[0], shown_in(y)[0]
    known = [{**row, x: row[x] * by_x, y: row[y] * by_y} for row in known]
    best = sorted(
        (row for row, on in zip(known, front, strict=True) if on), key=lambda row: float(row[x])
    )
    rest = [row for row, on in zip(known, front, strict=True) if not on]
    rest = rest[:: max(1, -(-len(rest) // MOST))]
    traces: list[Trace] = []
    if best:
        across, up = ([row[name] for row in best] for name in (x, y))
        traces.append(ideal("front", across, up, showlegend=False))
    groups = list(dict.fromkeys(_group(row, group) for row in known))
    for i, name in enumerate(groups):
        colour = nth_colour(i)
        for own, on in ((rest, False), (best, True)):
            chosen = [row for row in own if _group(row, group) == name]
            if chosen:
                traces.append(_points(chosen, (x, y, label), name, colour, on))
    heading = title or sentence(f"{words_of(y)} against {words_of(x)}")
    axes = [_axis(name, [row[name] for row in known]) for name in (x, y)]
    return figure(traces, heading, axes[0], axes[1], showlegend=True)


def _axis(name: str, values: Sequence[float]) -> str | dict[str, Any]:
    """A plain axis, or a logarithmic one where the values span decades."""
    found = value_axis(title_of(name), values)
    return found if found.get("type") == "log" else title_of(name)


def _group(row: Mapping[str, Any], group: str | None) -> str:
    if group is None:
        return ""
    value = shown_value(group, row.get(group))
    return f"{words_of(group)} {value}" if isinstance(row.get(group), int | float) else value


def _points(
    rows: Sequence[Mapping[str, Any]],
    fields: tuple[str, str, str],
    name: str,
    colour: str,
    on: bool,
) -> Trace:
    x, y, label = fields
    words = "on the front" if on else "dominated"
    marker: dict[str, Any] = {"color": colour, "size": 9 if on else 6}
    marker |= {} if on else {"symbol": "circle-open", "opacity": 0.6}
    return points(
        f"{name}, {words}" if name else words, [row[x] for row in rows], [row[y] for row in rows],
        "%{text}<br>%{x:.4g}, %{y:.4g}<extra></extra>", "markers",
        text=[str(row.get(label) or "") for row in rows], marker=marker,
    )  # fmt: skip


def codesign_figure(found: "Codesign", title: str) -> Figure:
    """Points within the limits and their front, over the first two objectives."""
    names = [*found.chosen.objectives][:2]
    y, x = names[0], names[-1]
    axes = found.table.values
    groups = _grouping(axes)
    rows = [
        {
            x: float(found.value(x)[place]),
            y: float(found.value(y)[place]),
            "point": _label(axes, groups, place),
            "group": f"{words_of(groups)} {cell(groups, axes[groups][place])}"
            if groups
            else "points",
        }
        for place in map(int, found.chosen.within.nonzero()[0])
    ]
    ways = found.chosen.objectives
    return pareto(rows, x, y, (ways[x], ways[y]), label="point", group="group", title=title)


def _varied(axes: Mapping[str, Sequence[Any]]) -> list[str]:
    """Flags and paths with more than one value."""
    return [name for name, column in axes.items() if len(set(map(str, column))) > 1]


def _grouping(axes: Mapping[str, Sequence[Any]]) -> str:
    """What colours the marks: the first thing that varies and has few values."""
    several = [n for n, column in axes.items() if 1 < len(set(map(str, column))) <= 10]
    return several[0] if several else ""


def _label(axes: Mapping[str, Sequence[Any]], groups: str, place: int) -> str:
    varied = [name for name in _varied(axes) if name != groups]
    return ", ".join(cell(name, axes[name][place]) for name in varied)
