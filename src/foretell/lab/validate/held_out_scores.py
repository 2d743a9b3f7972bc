"""Errors with something held out: `python -m foretell.lab.validate.held_out_scores FILE ...`.

Writes held_out_scores.toml beside this file from all tables that are named: errors and intervals of published
runs as the catalogue predicts them, with their source, their family of frameworks or their chip held out, and
without the name of their framework. README.md and docs/accuracy.md tell these figures; it is to be run again
whenever a change moves predictions.
"""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean, median
from typing import Any

from foretell.catalog.files import toml_value
from foretell.lab.validate.held_out import HeldOut
from foretell.lab.validate.page_text import markdown
from foretell.lab.validate.training import prediction_of, score_rows
from foretell.lab.validate.training_rows import TrainingRow, read_rows

UNNAMED = "unnamed"
"""Runs that are asked for without their framework."""
NAMELESS = "the framework's name: a well-tuned stack is assumed"
"""What the page calls that."""
FILE = Path(__file__).with_name("held_out_scores.toml")
"""Written by this module."""
MODES: Mapping[str, tuple[HeldOut | None, str]] = {
    "source": (
        "source",
        "the run's source (of the fits: formulas were found with all rows in sight)",
    ),
    "framework": ("framework", "every run of its family of frameworks"),
    "chip": ("chip", "its chip: kernels, watts, and sources that have no other"),
    "nothing": (None, "nothing: in sample"),
}
"""What is held out, held-out figures first, and what the page calls it."""


@lru_cache(maxsize=1)
def held_out_scores() -> Mapping[str, Any]:
    """The file."""
    return tomllib.loads(FILE.read_text())


def scores_of_rows(rows: Sequence[TrainingRow]) -> dict[str, dict[str, float]]:
    """Errors and intervals by what is held out."""
    found: dict[str, dict[str, float]] = {}
    for name, (held_out, _) in MODES.items():
        facts = score_rows(rows, held_out).facts
        names = ("sources", "median_of_sources", "mean_of_sources")
        found[name] = {**{one: facts[one] for one in names}, **facts["graded"]}
    return {**found, UNNAMED: _unnamed(rows)}


def _unnamed(rows: Sequence[TrainingRow]) -> dict[str, float]:
    """Errors of runs that are asked for without their framework."""
    errors: dict[str, list[float]] = {}
    for row in rows:
        told = prediction_of(row, named=False) if row.quality != "C" else ""
        if not isinstance(told, str) and told.measured_s:
            error = abs(told.answer.step_s / told.measured_s - 1.0)
            errors.setdefault(row.source, []).append(error)
    medians = [median(some) for some in errors.values()]
    return {
        "sources": len(errors),
        "median_of_sources": median(medians),
        "mean_of_sources": mean(medians),
        "rows": sum(map(len, errors.values())),
    }


def scores_text(found: Mapping[str, Mapping[str, float]]) -> str:
    """The file."""
    lines = ["# Written by held_out_scores.py from tables that are not part of the repository."]
    for name, scores in found.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {toml_value(round(value, 4))}" for key, value in scores.items()]
    return "\n".join(lines) + "\n"


def held_out_table() -> str:
    """The figures as a table of docs/accuracy.md."""
    found = held_out_scores()
    rows = []
    for name, words in {**{n: w for n, (_, w) in MODES.items()}, UNNAMED: NAMELESS}.items():
        s = found[name]
        cells = [words, f"{s['rows']:,}", s["sources"]]
        cells += [f"{s[n]:.1%}" for n in ("median_of_sources", "mean_of_sources")]
        inside = ["", ""]
        if name != UNNAMED:
            both = f"{s['inside_p90']:.0%}, {s['inside_p90_of_sources']:.0%}"
            inside = [both, f"{s['median_high_over_low']:.2f}"]
        rows.append([*cells, *inside])
    head = "held out | runs | sources | median source | mean | in 90 %: runs, sources | high / low"
    return markdown(head, rows)


def readme_sentence() -> str:
    """What README.md says of training runs that were in sight, and of what was held out of the fits."""
    found = held_out_scores()
    off = {name: f"{100.0 * scores['median_of_sources']:.1f} %" for name, scores in found.items()}
    source = found["source"]
    return (
        f"over {source['rows']:,} measured training runs of {source['sources']} sources the median source is "
        f"off by {off['source']} with its source held out of the fits, formulas found with all rows in sight "
        f"({off['framework']} with all runs of its framework held out, {off['chip']} with its chip), and by "
        f"{off['nothing']} in sample; 90 % intervals hold {100.0 * source['inside_p90']:.0f} % of the runs "
        f"with their source held out"
    )


def main(paths: Sequence[str]) -> None:
    """Predict every row of some tables, and write the file."""
    rows = [row for path in paths for row in read_rows(Path(path))]
    FILE.write_text(scores_text(scores_of_rows(rows)))


if __name__ == "__main__":
    main(sys.argv[1:])
