"""collect.py of a bundle: the log of a benchmark as a row that `foretell validate training` reads.

It runs where the benchmark ran, with nothing but Python's standard library, and writes measured.csv: the
columns of the run as it was planned, and the median step of its log, the first steps left out.
"""

import json
from collections.abc import Mapping
from pathlib import Path


def collect_script(row: Mapping[str, object]) -> str:
    """The script for one run: benchmark_collect.txt with a row in its place."""
    cells = {name: "" if value is None else str(value) for name, value in row.items()}
    text = Path(__file__).with_name("benchmark_collect.txt").read_text("utf-8")
    return text.replace("__ROW__", json.dumps(cells))
