"""Points of a study within its limits, and their front, over the first two objectives."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell.report.figures.look import Figure, words_of
from foretell.report.figures.pareto import pareto
from foretell.report.presentation.study_cards import cell

if TYPE_CHECKING:
    from foretell.studies.sweep.codesign import Codesign


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
