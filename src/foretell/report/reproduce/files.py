"""A reproduction as files: every figure as .svg and .html, every table as .csv, and the page."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from foretell.interop.user_files import write_rows, write_whole
from foretell.lab.reproduce.records import PaperFigure, PublishedWork
from foretell.report.figure_svg import figure_svg
from foretell.report.figures.files import html
from foretell.report.figures.look import Figure
from foretell.report.reproduce.page import page_text


def drawn_figure(work: str, figure: PaperFigure) -> Figure | None:
    """The figure of a table; None for one that is a table alone."""
    module = import_module(f"{__package__}.{work.replace('-', '_')}")
    make = module.FIGURES.get(figure.name)
    return None if make is None else make(figure)


def write_work(folder: Path, work: PublishedWork, figures: Sequence[PaperFigure]) -> list[Path]:
    """Every file of the figures."""
    files: list[Path] = []
    pictures: dict[str, str] = {}
    for figure in figures:
        for name, rows in figure.tables.items():
            files.append(write_rows(folder / f"{name}.csv", rows))
        drawn = drawn_figure(work.name, figure)
        if drawn is not None:
            for ending, text in ((".svg", figure_svg(drawn)), (".html", html(drawn))):
                path = folder / f"{figure.name}{ending}"
                write_whole(path, text)
                files.append(path)
            pictures[figure.name] = f"{figure.name}.svg"
    page = folder / f"{work.name}.md"
    write_whole(page, page_text(work, figures, pictures))
    return [*files, page]
