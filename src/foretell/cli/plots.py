"""`--plot FILE`: the figure of a verb's answer, by the file's ending."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def plot_file(plot: str | None, flag: str = "plot") -> Path | None:
    """Where the figure goes, none where none is wanted; BadInput before anything is computed."""
    if not plot:
        return None
    from foretell.report.figures.files import figure_file

    return figure_file(flag, plot)


def write_plot(file: Path | None, verb: str, answer: Callable[[], Mapping[str, Any]]) -> None:
    """Write the figure of a verb's answer."""
    if file is None:
        return
    from foretell.report.figures.answers import FIGURES
    from foretell.report.figures.files import write_figure

    write_figure(FIGURES[verb](answer()), file)
