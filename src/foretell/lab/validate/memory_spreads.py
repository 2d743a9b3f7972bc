"""Residuals of peaks of memory by source: `python -m foretell.lab.validate.memory_spreads FILE ...`.

Writes catalog/memory_spreads.toml, which intervals of the peak stand on: every run predicted without its
source. Rows of grade C are left out, and runs of adapters, whose base may be in 4 bits. To be run again
whenever a change moves predicted bytes.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from foretell.catalog.files import toml_value
from foretell.catalog.spreads import LEVELS, MEMORY_FILE
from foretell.lab.validate.held_out import LeftOut
from foretell.lab.validate.training import memory_of, prediction_of
from foretell.lab.validate.training_rows import read_rows

HEAD = """# How far peaks of memory that frameworks print were from ours: quantiles of
# ln(measured / predicted) at 5, 25, 50, 75 and 95 %. Written by lab/validate/memory_spreads.py from tables
# that are not part of the repository; uncertainty/memory.py says what for.
"""
KIND = "peak"
"""All are of one kind: few sources print them."""


def main(paths: Sequence[str]) -> None:
    """Predict every graded row of some tables that has a peak, and write the file."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in (row for path in paths for row in read_rows(Path(path))):
        if not row.peak_mem_gb or row.quality == "C" or row.lora:
            continue
        told = prediction_of(row, LeftOut(sources=(row.source,)))
        for pair in [] if isinstance(told, str) else memory_of(told):
            found[row.source].append(math.log(pair.measured / pair.predicted))
    MEMORY_FILE.write_text(spreads_text(found))


def spreads_text(found: Mapping[str, Sequence[float]]) -> str:
    """The file."""
    lines = [HEAD]
    for source, values in sorted(found.items()):
        quantiles = [round(float(q), 3) for q in np.quantile(values, LEVELS)]
        lines += [
            "[[spread]]",
            f"kind = {toml_value(KIND)}",
            f"source = {toml_value(source)}",
            f"rows = {len(values)}",
            f"quantiles = {toml_value(quantiles)}",
            "",
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
