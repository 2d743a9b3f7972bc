"""Tables of chips over time: `nvidia-smi --query-gpu ... --format=csv`, `nvidia-smi dmon`, `dcgmi dmon`."""

import re
from collections.abc import Sequence

from foretell.interop.log_formats import COLUMNS

CELL = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)(?:\s*(?:W|%|MiB))?\s*$")
"""A number with its unit."""


def is_device_head(line: str) -> bool:
    """Whether a line is the head of such a table."""
    return any(column in COLUMNS for column in _head(line))


def device_rows(lines: Sequence[str]) -> list[dict[str, float]]:
    """Every row by the names of COLUMNS; empty where no line is a head."""
    head: list[str] = []
    found = []
    for line in lines:
        if ("," in line or line.lstrip().startswith("#")) and is_device_head(line):
            head = _head(line)
        elif head and (row := _row(head, line)):
            found.append(row)
    return found


def _head(line: str) -> list[str]:
    if "," in line:
        return [re.sub(r"\s*\[.*", "", cell).strip() for cell in line[:2000].split(",")]
    return line.lstrip("# ")[:2000].split()


def _row(head: Sequence[str], line: str) -> dict[str, float]:
    cells = line[:2000].split(",") if "," in line else line[:2000].split()
    if len(cells) == len(head) + 1 and cells[0] == "GPU":  # "GPU 0" is one cell of dcgmi's
        cells = cells[1:]
    if len(cells) != len(head):
        return {}
    found = {}
    for name, cell in zip(head, cells, strict=True):
        match = CELL.match(cell)
        if name in COLUMNS and match and len(match[1]) < 16:
            ours, factor = COLUMNS[name]
            found[ours] = float(match[1]) * factor
    return found
