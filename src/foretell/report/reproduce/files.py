"""A reproduction as files: every figure as .svg and .html, every table as .csv, and the page."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from foretell.interop.user_files import write_rows, write_whole
from foretell.lab.reproduce.records import Finding, PaperFigure, PublishedWork, described
from foretell.report.figure_svg import figure_svg
from foretell.report.figures.files import html
from foretell.report.figures.look import Figure
from foretell.report.figures.multiples import small_multiples


def page_text(
    work: PublishedWork, figures: Sequence[PaperFigure], pictures: Mapping[str, str]
) -> str:
    """Markdown; `pictures` are files of figures by name, relative to the page."""
    lines = [
        f"# {work.name}: the published results, reproduced",
        "",
        f"*{work.title}.* {work.source}.",
        "",
        "`foretell reproduce` computes every figure below by the published model and by ours. This page is",
        "generated from the same tables.",
        "",
        "```console",
        f"$ ./foretell reproduce {work.name} --figure {work.example} --out {work.name}",
        "```",
        "",
        *_summary(figures),
    ]
    for figure in figures:
        lines += _section(figure, pictures.get(figure.name))
    if work.missing:
        lines += ["## What is not here", "", *(f"- {one}" for one in work.missing), ""]
    return "\n".join(lines).rstrip() + "\n"


def _summary(figures: Sequence[PaperFigure]) -> list[str]:
    """Every finding in one table."""
    found = [(figure.name, one) for figure in figures for one in figure.findings]
    if not found:
        return []
    head = [
        "| figure | statement | published model | Foretell | in our model |",
        "|---|---|---|---|---|",
    ]
    return ["## Findings", "", *head, *(_finding(name, one) for name, one in found), ""]


def _section(figure: PaperFigure, picture: str | None) -> list[str]:
    lines = [f"## {figure.name}", ""]
    if picture:
        lines += [f"![{figure.title}]({picture})", ""]
    lines += [f"{note}\n" for note in figure.notes]
    names = ", ".join(f"`{name}.csv` ({len(rows):,} rows)" for name, rows in figure.tables.items())
    return [*lines, f"Data: {names}.", ""]


def _finding(name: str, one: Finding) -> str:
    """A row of the table of findings."""
    why = f". {one.why}" if one.why else ""
    cells = (name, one.statement, one.published, one.ours or "–", f"**{one.verdict}**{why}")
    return f"| {' | '.join(cells)} |"


def drawn_figure(work: str, figure: PaperFigure) -> Figure | None:
    """The figure of a table; None for one that is a table alone."""
    module = import_module(f"{__package__}.{work.replace('-', '_')}")
    make = module.FIGURES.get(figure.name)
    if make is None:
        return None
    parts = make(figure)
    layout = {"title": figure.title, "columns": 1, **described(work)["drawing"][figure.name]}
    if each := layout.pop("panel_width", None):
        layout["columns"] = min(len(parts), layout["columns"])
        layout["width"] = each * layout["columns"] + 100
    return small_multiples(parts, layout.pop("title"), layout.pop("columns"), **layout)


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
