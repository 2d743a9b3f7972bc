"""Measured collectives from the tables they are published in, in one form.

Five forms are distinguished by their columns: NCCL tests over nodes; single-node NCCL and custom all-reduce
tables, whose chip and software are only in the file's name (`h200_sxm_nccl_2.29.2.csv.gz`); the
collectives of two published simulators (columns `collective, gpu, ...` and `num_workers, ...`).
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foretell.catalog.files import csv_rows, read_bytes
from foretell.errors import bad_input
from foretell.network.library_records import Kind
from foretell.records import dataclass

LARGEST = 1e15
"""No count, size or time of a table is above this."""
OPS: Mapping[str, Kind] = {
    "all_reduce": "all-reduce",
    "allreduce": "all-reduce",
    "all_gather": "all-gather",
    "allgather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "all_to_all": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send",
    "send": "send",
}
BYTES = {
    "half": 2.0,
    "float16": 2.0,
    "bfloat16": 2.0,
    "float": 4.0,
    "float32": 4.0,
    "int8": 1.0,
    "fp8": 1.0,
    "float8": 1.0,
}
KIB = 1024.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRow:
    """One measured collective."""

    id: str
    """Its id, or its number in the file from 1."""
    source: str
    """Where it was measured."""
    system: str = ""
    """Name of the system; empty where the table is of a chip."""
    chip: str = ""
    """Name of the chip; empty where the table is of a system."""
    fabric: str = ""
    """What joins the nodes, as printed; empty where the table does not say."""
    software: str
    """nccl, rccl, trtllm, ..."""
    version: str
    """Its version; empty where unknown."""
    env_setup: str = ""
    """Transport set-up of the log."""
    kind: Kind | None = None
    """The collective; None where it is no known one."""
    nodes: int = 1
    """Nodes."""
    per_node: int = 1
    """Members in each."""
    size_bytes: float = 0.0
    """nccl-tests' size."""
    measured_s: float = 0.0
    """Seconds."""
    problem: str = ""
    """Why the row cannot be used; empty where it can."""


def read_rows(path: Path, chip: str = "", software: str = "") -> list[CollectiveRow]:
    """Every row of a table; `chip` and `software` override what the file's name says."""
    names, rows = csv_rows(_text(path), str(path))
    columns = set(names)
    named = _from_name(path.name)
    chip, software, version = chip or named[0], software or named[1], named[2]
    if {"size_bytes", "nodes", "gpus_per_node"} <= columns:
        make = _nodes_row
    elif {"collective", "gpu", "size(kb)"} <= columns:
        make = _simulator_row
    elif {"num_workers", "devices_per_node", "median_ms"} <= columns:
        make = _workers_row
    elif {"num_gpus"} <= columns and columns & {"op_name", "allreduce_dtype"}:
        make = _chip_row
    else:
        message = "has not the columns of a table of collectives"
        allowed = (
            "system, op, nodes, gpus_per_node, size_bytes, time_us_out_of_place of NCCL tests, or "
            "num_gpus with op_name (NCCL) or allreduce_dtype (custom all-reduce)"
        )
        found = sorted(columns)
        raise bad_input(str(path), found, message, allowed)
    given = (path.name, chip, software, version)
    return [_safe(make, cells, str(i), given) for i, cells in enumerate(rows, start=1)]


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise bad_input(str(path), None, message) from None


def _from_name(name: str) -> tuple[str, str, str]:
    """Chip, software and version of a name like `h200_sxm_nccl_2.29.2.csv.gz`; empty where not there."""
    stem = re.sub(r"\.csv(\.gz)?$", "", name)
    match = re.match(
        r"(.+?)_(nccl|rccl|trtllm|vllm|sglang)_(\d[\w.]*?)(?:_custom_allreduce)?$", stem
    )
    if match:
        return match[1], match[2], match[3]
    match = re.match(r"vidur_([a-z0-9]+)", stem)
    return (match[1], "nccl", "") if match else ("", "", "")


Given = tuple[str, str, str, str]
Cells = Mapping[str, str]


def _safe(make: "object", cells: Cells, number: str, given: Given) -> CollectiveRow:
    """The row, or one that says what is wrong with its cells."""
    try:
        row: CollectiveRow = make(cells, number, given)  # type: ignore[operator]
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        row = _row(cells, number, given, problem=f"a cell cannot be read: {error}")
    if not row.problem and row.kind is None:
        return _row(cells, number, given, problem="is no known collective")
    sizes = (row.nodes, row.per_node, row.size_bytes, row.measured_s)
    if not row.problem and not all(0.0 <= size <= LARGEST for size in sizes):
        return _row(cells, number, given, problem="a cell is out of range")
    if not row.problem and min(row.nodes, row.per_node) < 1:
        return _row(cells, number, given, problem="a cell is out of range")
    if not row.problem and not row.measured_s > 0.0:
        return _row(cells, number, given, problem="has no measured time")
    return row


def _row(cells: Cells, number: str, given: Given, **values: object) -> CollectiveRow:
    name, chip, software, version = given
    told: dict[str, Any] = {"id": cells.get("id") or number, "source": name, "chip": chip}
    told |= {"software": software or "nccl", "version": version, **values}
    return CollectiveRow(**told)


def _nodes_row(cells: Cells, number: str, given: Given) -> CollectiveRow:
    return _row(
        cells,
        number,
        given,
        source=_source(cells.get("source") or given[0]),
        system=(cells.get("system") or "").strip().lower(),
        chip=given[1] or (cells.get("chip") or "").strip(),
        fabric=(cells.get("fabric") or "").strip(),
        software=given[2] or (cells.get("software") or "nccl").strip(),
        version=(cells.get("nccl") or cells.get("version") or given[3]).strip(),
        env_setup=_plain(cells.get("env_setup")),
        kind=OPS.get(cells["op"].strip().lower()),
        nodes=int(float(cells["nodes"])),
        per_node=int(float(cells["gpus_per_node"])),
        size_bytes=float(cells["size_bytes"]),
        measured_s=float(cells["time_us_out_of_place"]) * 1e-6,
    )


def _source(text: str) -> str:
    """A log's repository, without the path of each log: sources are sites, not files."""
    return text.split(":")[0] if text.startswith("github.com") else text


def _plain(text: str | None) -> str:
    """A set-up's name: 3 and 3.0 are one."""
    return re.sub(r"\.0$", "", (text or "").strip())


def _chip_row(cells: Cells, number: str, given: Given) -> CollectiveRow:
    dtype = cells.get("nccl_dtype") or cells.get("allreduce_dtype") or "half"
    custom = "allreduce_dtype" in cells
    count = cells.get("bytes") or ""
    elements = cells.get("elements") or cells.get("message_size") or ""
    size = float(count) if count else float(elements) * BYTES[dtype.strip().lower()]
    return _row(
        cells,
        number,
        given,
        software=given[2] or ("trtllm" if custom else "nccl"),
        kind="all-reduce" if custom else OPS.get(cells["op_name"].strip().lower()),
        per_node=int(float(cells["num_gpus"])),
        size_bytes=size,
        measured_s=float(cells.get("latency_ms") or cells.get("latency") or "nan") * 1e-3,
    )


def _simulator_row(cells: Cells, number: str, given: Given) -> CollectiveRow:
    kilobytes = float(cells["size(kb)"])
    return _row(
        cells,
        number,
        given,
        chip=given[1] or cells["gpu"].strip(),
        kind=OPS.get(cells["collective"].strip().lower()),
        nodes=int(float(cells["num_nodes"])),
        per_node=int(float(cells["num_gpus_per_node"])),
        # The column is rounded down: 0 is half a kilobyte.
        size_bytes=KIB * max(kilobytes, 0.5),
        measured_s=float(cells["time(us)"]) * 1e-6,
    )


def _workers_row(cells: Cells, number: str, given: Given) -> CollectiveRow:
    members, per_node = int(float(cells["num_workers"])), int(float(cells["devices_per_node"]))
    return _row(
        cells,
        number,
        given,
        kind=OPS.get((cells.get("collective") or "all_reduce").strip().lower()),
        nodes=max(members // per_node, 1),
        per_node=min(members, per_node),
        size_bytes=float(cells["bytes"]),
        measured_s=float(cells["median_ms"]) * 1e-3,
    )


def tables_of(folder: Path) -> Iterable[Path]:
    """The tables of collectives in a folder of published data."""
    yield from sorted((folder / "network").glob("nccl_*.csv.gz"))
    for pattern in ("*_nccl_*", "*_custom_allreduce*", "apex_collectives*", "vidur_*_all_reduce*"):
        yield from sorted((folder / "kernels").glob(f"{pattern}.csv.gz"))
