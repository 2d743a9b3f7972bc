"""The buyer's answer as one printable page with figures, assumptions and sources."""

import html
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import bad_input
from foretell.interop.user_files import write_whole
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
figure { margin: 0; break-inside: avoid } figcaption { color: #57606a }
"""


def page(told: Mapping[str, Any]) -> str:
    """One page of HTML that needs nothing beside it."""
    first, *rest = (html.escape(text) for text in told["headline"])
    options = presentation("buy", told).tables[0]
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in options.headers)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in options.rows
    )
    figures = _bars(
        told, "usd", "usd_interval", 1e6, "Cost in million USD, with its 90 % range", None
    )
    if told["options"][0]["days"] is not None:
        figures += _bars(
            told, "days", "days_interval", 1.0, "Days of training, with their 90 % interval",
            told["deadline_days"],
        )  # fmt: skip
    notes = (
        [f"Plan of training: {told['options'][0]['plan']}"] if told["options"][0]["plan"] else []
    )
    notes += told["options"][0]["assumptions"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(told["model"])}: '
        f"what to get</title><style>{STYLE}</style><h1>{first}</h1>"
        + "".join(f'<p class="lead">{text}</p>' for text in rest)
        + f"<h2>Options for {html.escape(told['model'])}</h2><table><tr>{heads}</tr>{rows}</table>"
        + figures
        + _list("What would change the choice", told["changes"])
        + _list("Not possible", told["problems"])
        + _list("Assumptions and sources", notes)
        + "</html>\n"
    )


def _list(title: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    items = "".join(f"<li>{html.escape(text)}</li>" for text in dict.fromkeys(texts))
    return f"<h2>{title}</h2><ul>{items}</ul>"


def _bars(
    told: Mapping[str, Any], key: str, interval: str, unit: float, title: str, mark: float | None
) -> str:
    """A bar for each option with its interval, and a line at the deadline."""
    options = [one for one in told["options"] if one[key] is not None]
    most = max([one[interval][1] / unit for one in options] + ([mark] if mark else [])) * 1.02
    left, width, row = 250.0, 330.0, 26
    height = row * len(options) + 24
    names = [html.escape(one["name"].replace(" of ", " ")) for one in options]
    parts = [f'<svg viewBox="0 0 660 {height}" role="img" aria-label="{title}">']
    for at, one in enumerate(options):
        y = row * at + 4
        low, high = (left + end / unit / most * width for end in one[interval])
        value = one[key] / unit
        written = f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
        parts += [
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{names[at]}</text>',
            f'<rect x="{left}" y="{y}" width="{value / most * width:.1f}" height="16" fill="#54aeff"/>',
            f'<path d="M{low:.1f} {y + 8}H{high:.1f}" stroke="#0a3069" stroke-width="2"/>',
            f'<text x="{max(high, left + value / most * width) + 8:.1f}" y="{y + 13}">{written}</text>',
        ]
    if mark is not None:
        x = left + mark / most * width
        parts.append(
            f'<path d="M{x:.1f} 0V{height - 16}" stroke="#cf222e" stroke-dasharray="4 3"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{height - 2}" text-anchor="middle">deadline</text>')
    return f"<h2>{title}</h2><figure>{''.join(parts)}</svg></figure>"
