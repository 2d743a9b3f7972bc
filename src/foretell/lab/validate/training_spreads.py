"""Residuals of published runs by kind and source: `python -m foretell.lab.validate.training_spreads FILE`.

Writes catalog/spreads.toml, which intervals of whole steps stand on. Rows of grade C are left out. To be run
again whenever a change moves predictions.
"""

import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from foretell.catalog.files import toml_value
from foretell.catalog.spreads import FILE, LEVELS
from foretell.lab.validate.training import RunPrediction, prediction_of, source_label
from foretell.lab.validate.training_rows import read_rows
from foretell.uncertainty.evidence import kind_of

HEAD = """# How far published runs were from their predictions: quantiles of ln(measured / predicted) at
# 5, 25, 50, 75 and 95 %. Written by lab/validate/training_spreads.py from tables that are not part of the
# repository; catalog/spreads.py says what for.
"""


def residuals(told: list[RunPrediction]) -> dict[tuple[str, str, str], list[float]]:
    """(kind, source, label) -> logarithms of measured over predicted."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one in told:
        measured, tree = one.measured_s, one.answer.breakdown
        if not measured or tree is None:
            continue
        kind, label = kind_of(one.scenario, one.plan, tree), source_label(one.row)
        # Rows that stand beside their source, far below the peak, speak for kinds that wait for the host.
        if label == one.row.source or kind.startswith("host"):
            found[kind, one.row.source, label].append(math.log(measured / one.answer.step_s))
    return found


def text_of(found: dict[tuple[str, str, str], list[float]], head: str = HEAD) -> str:
    """The file; rows that stand beside their source are entries of their own."""
    lines = [head]
    for (kind, source, _), values in sorted(found.items()):
        quantiles = [round(float(q), 3) for q in np.quantile(values, LEVELS)]
        lines += [
            "[[spread]]",
            f"kind = {toml_value(kind)}",
            f"source = {toml_value(source)}",
            f"rows = {len(values)}",
            f"quantiles = {toml_value(quantiles)}",
            "",
        ]
    return "\n".join(lines)


def main(path: str) -> None:
    """Predict every graded row of a table and write the file."""
    told = [prediction_of(row) for row in read_rows(Path(path)) if row.quality != "C"]
    FILE.write_text(text_of(residuals([one for one in told if not isinstance(one, str)])))


if __name__ == "__main__":
    main(sys.argv[1])
