"""`--plot FILE`: the figure of a verb's answer, by the file's ending."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell.report.svg import Picture


def plot_file(plot: str | None, flag: str = "plot") -> Path | None:
    """Where the figure goes, none where none is wanted; BadInput before anything is computed."""
    if not plot:
        return None
    from foretell.report.figures.files import figure_file

    return figure_file(flag, plot)


def write_plot(
    file: Path | None,
    verb: str,
    answer: Callable[[], Mapping[str, Any]],
    picture: "Callable[[], Picture] | None" = None,
) -> None:
    """Write the figure of a verb's answer, or for .svg the drawing where there is one."""
    if file is None:
        return
    if picture is not None and file.suffix.lower() == ".svg":
        file.write_text(picture().svg(), encoding="utf-8")
        return
    from foretell.report.figures.answers import FIGURES
    from foretell.report.figures.files import write_figure

    write_figure(FIGURES[verb](answer()), file)
