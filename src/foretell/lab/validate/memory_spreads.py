"""Residuals of peaks of memory by source: `python -m foretell.lab.validate.memory_spreads FILE`.

Writes catalog/memory_spreads.toml, which intervals of the peak stand on. Rows of grade C are left out. To be
run again whenever a change moves predicted bytes.
"""

import math
import sys
from collections import defaultdict
from pathlib import Path

from foretell.catalog.spreads import MEMORY_FILE
from foretell.lab.validate.training import memory_of, prediction_of
from foretell.lab.validate.training_rows import read_rows
from foretell.lab.validate.training_spreads import text_of

HEAD = """# How far peaks of memory that frameworks print were from ours: quantiles of
# ln(measured / predicted) at 5, 25, 50, 75 and 95 %. Written by lab/validate/memory_spreads.py from tables
# that are not part of the repository; uncertainty/memory.py says what for.
"""
KIND = "peak"
"""All are of one kind: few sources print them."""


def main(path: str) -> None:
    """Predict every graded row of a table that has a peak, and write the file."""
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in read_rows(Path(path)):
        told = prediction_of(row) if row.peak_mem_gb and row.quality != "C" else ""
        for pair in [] if isinstance(told, str) else memory_of(told):
            found[KIND, row.source, row.source].append(math.log(pair.measured / pair.predicted))
    MEMORY_FILE.write_text(text_of(found, HEAD))


if __name__ == "__main__":
    main(sys.argv[1])
