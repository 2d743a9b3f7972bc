"""A reproduction as files: every figure as .svg and .html, every table as .csv, and the page."""

import csv
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.interop.user_files import whole_file, write_whole
from foretell.lab.reproduce.records import PaperFigure, PublishedWork, text_of
from foretell.report.figure_svg import figure_svg
from foretell.report.figures.files import html
from foretell.report.figures.look import Figure
from foretell.report.reproduce.page import page_text


def out_folder(name: object) -> Path:
    """The folder, made where it is missing; BadInput where it cannot be."""
    if name is None:
        raise bad_input("out", None, "missing", "a folder to write in")
    folder = Path(str(name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"is not a folder to write in: {error.strerror}"
        raise bad_input("out", str(name), message) from error
    return folder


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
            files.append(write_table(folder / f"{name}.csv", rows))
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


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A CSV file with every column that a row has; floats in their shortest exact form."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with whole_file(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([text_of(row.get(name)) for name in columns] for row in rows)
    return path
