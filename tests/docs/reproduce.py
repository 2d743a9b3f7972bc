"""Write docs/reproduce anew: `python -m tests.docs.reproduce nersc-2024 ...`, some minutes for all."""

import sys
from pathlib import Path

from foretell.lab.reproduce.records import WORKS, reproduce, work_named
from foretell.report.figure_svg import figure_svg
from foretell.report.reproduce.files import drawn_figure, page_text

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reproduce"


def write_page(name: str) -> None:
    """The page of a work, and its pictures in a folder beside it."""
    work, figures = work_named(name), reproduce(name)
    (FOLDER / name).mkdir(parents=True, exist_ok=True)
    pictures = {}
    for figure in figures:
        drawn = drawn_figure(name, figure)
        if drawn is not None:
            pictures[figure.name] = f"{name}/{figure.name}.svg"
            (FOLDER / pictures[figure.name]).write_text(figure_svg(drawn), encoding="utf-8")
    (FOLDER / f"{name}.md").write_text(page_text(work, figures, pictures), encoding="utf-8")


if __name__ == "__main__":
    for one in sys.argv[1:] or WORKS:
        write_page(one)
