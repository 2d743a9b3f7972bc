"""The page of a work: figure by figure what agrees, what differs and why, and which findings survive."""

from collections.abc import Mapping, Sequence

from foretell.lab.reproduce.records import Finding, PaperFigure, PublishedWork


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
