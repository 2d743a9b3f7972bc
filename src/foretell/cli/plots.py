"""`--plot FILE`: the figure of a verb's answer, by the file's ending."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def plot_file(plot: str | None, flag: str = "plot") -> Path | None:
    """Where the figure goes, none where none is wanted; BadInput before anything is computed."""
    if not plot:
        return None
    from foretell.report.figures.files import figure_file

    return figure_file(flag, plot)


def write_plot(
    file: Path | None, verb: str, answer: Callable[[], Mapping[str, Any]], *, quiet: bool
) -> None:
    """Write the figure of a verb's answer; `quiet`: without a word, as beside JSON."""
    if file is None:
        return
    from foretell.report.figures.answers import FIGURES

    draw_figure(FIGURES[verb](answer()), file, quiet=quiet)


def draw_figure(figure: Mapping[str, Any], file: Path, *, quiet: bool) -> None:
    """Write a figure, and say where."""
    from foretell.report.figures.files import write_figure

    write_figure(figure, file)
    say_written(file, quiet=quiet)


def say_written(file: Path, *, quiet: bool) -> None:
    """Name a file that was written on standard error: standard output is the answer's."""
    if not quiet:
        print(f"written: {file}", file=sys.stderr)
