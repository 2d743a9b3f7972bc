"""The buyer's answer as one printable page with figures, assumptions and sources."""

import html
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.interop.user_files import write_whole
from foretell.records import with_values
from foretell.report.figure_svg import figure_svg
from foretell.report.figures.look import (
    COLOURS,
    NAMES,
    PERCENTILE,
    bars,
    figure,
    ideal,
    points,
    whiskers,
)
from foretell.report.presentation.numbers import ShownTable
from foretell.report.presentation.verbs import presentation

ENDINGS = (".html", ".pdf")


def report_file(name: str | None) -> Path | None:
    """Where the page goes; BadInput where it cannot."""
    if name is None:
        return None
    from foretell.report.figures.files import INSTALL, browser

    path, message, allowed = Path(name), "", "a name that ends in .html or .pdf"
    if path.suffix.lower() not in ENDINGS:
        message = "is no kind of report"
    elif not path.absolute().parent.is_dir():
        message, allowed = "no file can be written there", "a folder that there is"
    elif path.suffix.lower() == ".pdf" and browser() is None:
        message, allowed = "needs a browser", INSTALL
    if message:
        raise bad_input("report", name, message, allowed)
    return path


def write_report(told: Mapping[str, Any], path: Path) -> None:
    """Write the printable page, or print it by a browser."""
    text = page(told)
    if path.suffix.lower() == ".html":
        write_whole(path, text)
        return
    from foretell.report.figures.files import run_browser

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, target = Path(folder) / "page.html", Path(folder) / "page.pdf"
        source.write_text(text, encoding="utf-8")
        run_browser(folder, source, "--no-pdf-header-footer", f"--print-to-pdf={target}")
        write_whole(path, target.read_bytes())


STYLE = """
@page { size: A4; margin: 16mm } body { font: 13px/1.45 system-ui, sans-serif; max-width: 186mm;
margin: 8mm auto; padding: 0 4mm; color: #1b1f24 } h1 { font-size: 22px; margin: 0 0 4px }
h2 { font-size: 15px; margin: 20px 0 6px } .lead { font-size: 15px; margin: 2px 0 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: 4px 6px;
border-bottom: 1px solid #d0d7de; vertical-align: top } th { font-weight: 600 }
li { margin: 1px 0; overflow-wrap: anywhere } svg text { font: 12px system-ui, sans-serif; fill: #1b1f24 }
figure { margin: 0; break-inside: avoid } figure svg { max-width: 100%; height: auto }
"""


def page(told: Mapping[str, Any]) -> str:
    """One page of HTML that needs nothing beside it."""
    shown = presentation("buy", told)
    first, *rest = (html.escape(text) for text in (shown.title, *shown.lines))
    figures = _figure(told, "usd", 1e-6, "Cost in million USD, with its 90 % range")
    if told["options"][0]["days"] is not None:
        figures += _figure(
            told, "days", 1.0, "Days of training, with their 90 % interval", told["deadline_days"]
        )
    options, *others = shown.tables
    numbered = tuple((f"{at}. {row[0]}", *row[1:]) for at, row in enumerate(options.rows, start=1))
    tables = [
        _table(f"Options for {told['model']}", with_values(options, rows=numbered)),
        *(_table(one.title, one) for one in others),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(told["model"])}: '
        f"what to get</title><style>{STYLE}</style><h1>{first}</h1>"
        + "".join(f'<p class="lead">{text}</p>' for text in rest)
        + tables[0]
        + figures
        + "".join(_list(title, lines) for title, lines in shown.lists)
        + "".join(tables[1:])
        + _list("Assumptions and sources", shown.assumptions)
        + "</html>\n"
    )


def _table(title: str, shown: ShownTable) -> str:
    """Rows under their labels."""
    rows = [
        "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
        for tag, some in (("th", [shown.headers]), ("td", shown.rows))
        for row in some
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<h2>{html.escape(title)}</h2><table>{body}</table>"


def _list(title: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    items = "".join(f"<li>{html.escape(text)}</li>" for text in dict.fromkeys(texts))
    return f"<h2>{title}</h2><ul>{items}</ul>"


def _figure(
    told: Mapping[str, Any], key: str, factor: float, title: str, mark: float | None = None
) -> str:
    """A bar for each option with its interval, and a line at the deadline."""
    options = [one for one in told["options"] if one[key] is not None]
    names = [str(place) for place in range(1, len(options) + 1)]
    values = [one[key] * factor for one in options]
    ends = [{PERCENTILE: one[f"{key}_interval"]} for one in options]
    words = points(
        "", names, values, mode="text", text=[f"{value:,.3g}" for value in values],
        textposition="top right",
    )  # fmt: skip
    drawn = [
        bars(key, names, values, COLOURS[0]),
        whiskers(names, values, ends, factor=factor),
        words,
    ]
    if mark is not None:
        drawn.append(ideal("deadline", names, [mark] * len(names), "dash"))
    across = {**NAMES, "text": "option, as in the table"}
    room = {"l": 70, "r": 24, "t": 16, "b": 64}
    made = figure(drawn, "", across, "", showlegend=False, height=280, margin=room)
    return f"<h2>{title}</h2><figure>{figure_svg(made)}</figure>"
