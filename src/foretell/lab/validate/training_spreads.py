"""Residuals of published runs for intervals: `python -m foretell.lab.validate.training_spreads FILE ...`.

Writes catalog/spreads.toml from all tables that are named: every run predicted four times, without its
source, its family of frameworks, its chip, and the name of its framework. Rows of grade C are left out. To be
run again whenever a change moves predictions.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from foretell.catalog.files import toml_value
from foretell.catalog.spreads import FILE, LEVELS, step_spreads
from foretell.lab.validate.held_out import HeldOut
from foretell.lab.validate.residuals import Residual, residual_table
from foretell.lab.validate.training_rows import read_rows

HEAD = """# How far published runs were from their predictions with something held out of these: quantiles of
# ln(measured / predicted) at 5, 25, 50, 75 and 95 %. Written by lab/validate/training_spreads.py from tables
# that are not part of the repository; catalog/spreads.py says what for.
#
# held out, kind, source, family of frameworks, chip, runs, quantiles
"""
MODES: tuple[HeldOut | Literal["unnamed"], ...] = ("source", "framework", "chip", "unnamed")
"""What is held out, one after the other."""

Group = tuple[str, str, str, str, str, str]
"""held_out, kind, source, framework, chip, label."""


def groups_of(residuals: Sequence[Residual]) -> dict[Group, list[float]]:
    """Logarithms of measured over predicted by what tells runs apart."""
    found: dict[Group, list[float]] = defaultdict(list)
    for one in residuals:
        # Rows that stand beside their source, far below the peak, speak for kinds that wait for the host.
        if one.label == one.source or one.kind.startswith("host"):
            group = (one.held_out, one.kind, one.source, one.framework, one.chip, one.label)
            found[group].append(one.log_residual)
    return found


def spreads_text(found: Mapping[Group, Sequence[float]]) -> str:
    """The file; rows that stand beside their source are entries of their own."""
    sources = sorted({source for _, _, source, *_ in found})
    keys = {source: f"s{number:02d}" for number, source in enumerate(sources, start=1)}
    lines = [HEAD, "spreads = ["]
    for (held_out, kind, source, framework, chip, _), values in sorted(found.items()):
        quantiles = [round(float(q), 3) for q in np.quantile(values, LEVELS)]
        cells = [held_out, kind, keys[source], framework, chip, len(values), quantiles]
        lines.append(f"  {toml_value(cells)},")
    lines += ["]", "", "[sources]"]
    lines += [f"{key} = {toml_value(source)}" for source, key in keys.items()]
    return "\n".join(lines) + "\n"


def main(paths: Sequence[str]) -> None:
    """Predict every graded row of some tables, and write the file."""
    rows = [row for path in paths for row in read_rows(Path(path))]
    residuals = [one for mode in MODES for one in residual_table(rows, mode)]
    FILE.write_text(spreads_text(groups_of(residuals)))
    step_spreads.cache_clear()


if __name__ == "__main__":
    main(sys.argv[1:])
