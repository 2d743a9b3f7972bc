"""Tables of measured kernels: their columns, and what their names say of chip and software.

A file is called `h200_sxm_trtllm_1.3.0rc20_gemm_bfloat16.csv.gz`: chip, software, version, the rest. The
family is known by the columns; one table may hold several dtypes and kernels.
"""

import csv
import io
import re
from pathlib import Path

from foretell.catalog.files import read_bytes
from foretell.catalog.names import exists
from foretell.catalog.systems import named_system
from foretell.errors import bad_input
from foretell.lab.calibrate.cells import CellColumns
from foretell.lab.calibrate.kernel_rows import READERS, Table, rows_of
from foretell.lab.calibrate.surfaces import KernelRows
from foretell.records import dataclass

CHIPLESS = ("vidur", "llmcompass")
"""Names that come before the chip's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """A file of measured kernels."""

    name: str
    """The file's name."""
    rows: int
    """Rows of the file."""
    groups: tuple[KernelRows, ...]
    """Those that can be predicted, by family, dtype and kernel."""
    unsupported: tuple[tuple[str, str], ...]
    """Id and reason of every other row."""


def read_kernels(path: Path, chip: str = "", software: str = "") -> KernelTable:
    """Read a table; what is not given is taken from the file's name."""
    table, count = columns_of(path)
    said_chip, said_software, version = from_name(path.name)
    chip, software = chip or said_chip, software or said_software or "unknown"
    if not any(needs <= table.keys() for needs, _ in READERS):
        message = "has not the columns of a table of kernels"
        allowed = (
            "m, n, k, gemm_dtype; attn_dtype, ...; mla_dtype, ...; num_experts, inter_size, ..."
        )
        raise bad_input(str(path), sorted(table), message, allowed)
    if chip and exists(chip):
        chip = named_system(chip).chip.id
    elif chip or ("device" not in table and not {"num_tokens", "n_embd"} <= table.keys()):
        message = "is not a chip of the catalogue" if chip else "the file's name names no chip"
        raise bad_input("chip", chip or path.name, message, "--chip ID")
    groups = tuple(rows_of(table, chip, software, version))
    done = {row for group in groups for row in group.ids}
    ids = table.get("id") or [str(i) for i in range(1, count + 1)]
    reason = "its dtype or kernel is not modelled, or a cell cannot be read"
    return KernelTable(
        name=path.name,
        rows=count,
        groups=groups,
        unsupported=tuple((row, reason) for row in ids if row not in done),
    )


def columns_of(path: Path) -> tuple[Table, int]:
    """The columns of a CSV table, plain or gzipped, and its rows."""
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path).decode())))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise bad_input(str(path), None, message) from None
    if not rows:
        raise bad_input(str(path), None, "is empty")
    head, body = rows[0], [row for row in rows[1:] if row]
    body = [row + [""] * (len(head) - len(row)) for row in body]
    columns = ((name, [row[i] for row in body]) for i, name in enumerate(head))
    return CellColumns(path.name, columns), len(body)


def from_name(name: str) -> tuple[str, str, str]:
    """Chip, software and version that a file's name tells; empty where it does not."""
    stem = re.sub(r"\.csv(\.gz)?$", "", name)
    match = re.match(r"(.+?)_(trtllm|vllm|sglang|torch|nccl|rccl|[a-z]+)_(\d[^_]*)(?:_|$)", stem)
    if match:
        return match[1].replace("_", "-"), match[2], match[3]
    match = re.match(rf"({'|'.join(CHIPLESS)})_([a-z0-9]+)_", stem)
    if match:
        return match[2] if exists(match[2]) else "", match[1], ""
    return "", "", ""
