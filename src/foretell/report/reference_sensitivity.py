"""The study's sensitivities beside ours: the table, and all files of it."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Problem
from foretell.interop.user_files import whole_file
from foretell.report.figures.files import write_figure
from foretell.report.figures.reference import MODELS, SIDES, memory_maps, ratios, sensitivity_lines

Rows = Sequence[Mapping[str, Any]]

MOST_GPUS = 16384
"""The study ends here."""


def check_inputs(out: str, gpus: str) -> tuple[Path, tuple[int, ...]]:
    """The folder, made where there is none, and the GPU counts; BadInput with all that is wrong."""
    problems = []
    words = [word.strip() for word in gpus.split(",")]
    counts = [int(word) for word in words if word.isascii() and word.isdigit()]
    usable = [n for n in counts if 128 <= n <= MOST_GPUS and n & (n - 1) == 0]
    if not counts or len(usable) != len(words):
        allowed = f"powers of two from 128 to {MOST_GPUS}, with commas between them"
        message = "not GPU counts of the study"
        problems.append(Problem(path="gpus", value=gpus, message=message, allowed=allowed))
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        problems.append(Problem(path="out", value=out, message=why, allowed="a folder"))
    if problems:
        raise BadInput(problems)
    return folder, tuple(sorted(set(usable)))


def table_text(rows: Rows) -> str:
    """Ratios of days: a line for each change, a column for each GPU count."""
    lines = []
    for model, words in MODELS.items():
        for side, name in SIDES.items():
            found = ratios(rows, model, side)
            counts = sorted({gpus for points in found.values() for gpus, _ in points})
            lines.append(f"{words}, {name}: days with twice as much of each, over days as it is")
            lines.append(f"{'GPUs':<22}" + "".join(f"{gpus:>8,}" for gpus in counts))
            for change, points in found.items():
                at = dict(points)
                cells = [f"{at[gpus]:8.3f}" if gpus in at else " " * 8 for gpus in counts]
                lines.append(f"{change:<22}" + "".join(cells))
            lines.append("")
    return "\n".join(lines)


def write_all(folder: Path, rows: Rows, *, maps: bool) -> list[Path]:
    """sensitivity.csv and the figures, as .html and .svg."""
    table = folder / "sensitivity.csv"
    with whole_file(table) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    written = [table]
    drawn = {"lines": sensitivity_lines, **({"map": memory_maps} if maps else {})}
    for model in MODELS:
        for name, draw in drawn.items():
            figure = draw(rows, model)
            for kind in (".html", ".svg"):
                path = folder / f"{model.lower()}-{name}{kind}"
                written.append(write_figure(figure, path))
    return written
