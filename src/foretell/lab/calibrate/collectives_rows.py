"""Measured collectives from the tables they are published in, in one form.

Five forms are distinguished by their columns: NCCL tests over nodes; single-node NCCL and custom all-reduce
tables, whose chip and software are only in the file's name (`h200_sxm_nccl_2.29.2.csv.gz`); the
collectives of two published simulators (columns `collective, gpu, ...` and `num_workers, ...`).
"""

import re
from collections.abc import Callable, Iterable, Mapping
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
    named = _from_name(path.name)
    given = (path.name, chip or named[0], software or named[1], named[2])
    for needs, read in FORMS:
        if needs <= set(names):
            return [_row(read, cells, str(i), given) for i, cells in enumerate(rows, start=1)]
    message = "has not the columns of a table of collectives"
    allowed = (
        "system, op, nodes, gpus_per_node, size_bytes, time_us_out_of_place of NCCL tests, or "
        "num_gpus with op_name (NCCL) or allreduce_dtype (custom all-reduce)"
    )
    raise bad_input(str(path), sorted(set(names)), message, allowed)


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
"""What a file's name states, or the user: the name, chip, software and version."""
Cells = Mapping[str, str]
Values = dict[str, Any]
"""Fields of a row."""


def _row(
    read: Callable[[Cells, Given], Values], cells: Cells, number: str, given: Given
) -> CollectiveRow:
    """The row, or one that says what is wrong with its cells."""
    name, chip, software, version = given
    told: Values = {"id": cells.get("id") or number, "source": name, "chip": chip}
    told |= {"software": software or "nccl", "version": version}
    try:
        row = CollectiveRow(**{**told, **read(cells, given)})
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        return CollectiveRow(**told, problem=f"a cell cannot be read: {error}")
    sizes = (row.nodes, row.per_node, row.size_bytes, row.measured_s)
    problem = ""
    if row.kind is None:
        problem = "is no known collective"
    elif not all(0.0 <= size <= LARGEST for size in sizes) or min(row.nodes, row.per_node) < 1:
        problem = "a cell is out of range"
    elif not row.measured_s > 0.0:
        problem = "has no measured time"
    return CollectiveRow(**told, problem=problem) if problem else row


def _kind(text: str) -> Kind | None:
    return OPS.get(text.strip().lower())


def _count(text: str) -> int:
    return int(float(text))


def _of_nodes(cells: Cells, given: Given) -> Values:
    source = cells.get("source") or given[0]
    return {
        # A log's repository, without the path of each log: sources are sites, not files.
        "source": source.split(":")[0] if source.startswith("github.com") else source,
        "system": (cells.get("system") or "").strip().lower(),
        "chip": given[1] or (cells.get("chip") or "").strip(),
        "fabric": (cells.get("fabric") or "").strip(),
        "software": given[2] or (cells.get("software") or "nccl").strip(),
        "version": (cells.get("nccl") or cells.get("version") or given[3]).strip(),
        # 3 and 3.0 are one set-up.
        "env_setup": re.sub(r"\.0$", "", (cells.get("env_setup") or "").strip()),
        "kind": _kind(cells["op"]),
        "nodes": _count(cells["nodes"]),
        "per_node": _count(cells["gpus_per_node"]),
        "size_bytes": float(cells["size_bytes"]),
        "measured_s": float(cells["time_us_out_of_place"]) * 1e-6,
    }


def _of_simulator(cells: Cells, given: Given) -> Values:
    return {
        "chip": given[1] or cells["gpu"].strip(),
        "kind": _kind(cells["collective"]),
        "nodes": _count(cells["num_nodes"]),
        "per_node": _count(cells["num_gpus_per_node"]),
        # The column is rounded down: 0 is half a kilobyte.
        "size_bytes": KIB * max(float(cells["size(kb)"]), 0.5),
        "measured_s": float(cells["time(us)"]) * 1e-6,
    }


def _of_workers(cells: Cells, _: Given) -> Values:
    members, per_node = _count(cells["num_workers"]), _count(cells["devices_per_node"])
    return {
        "kind": _kind(cells.get("collective") or "all_reduce"),
        "nodes": max(members // per_node, 1),
        "per_node": min(members, per_node),
        "size_bytes": float(cells["bytes"]),
        "measured_s": float(cells["median_ms"]) * 1e-3,
    }


def _of_chip(cells: Cells, given: Given) -> Values:
    custom = "allreduce_dtype" in cells
    dtype = cells.get("nccl_dtype") or cells.get("allreduce_dtype") or "half"
    elements = cells.get("elements") or cells.get("message_size") or ""
    size = cells.get("bytes")
    return {
        "software": given[2] or ("trtllm" if custom else "nccl"),
        "kind": "all-reduce" if custom else _kind(cells["op_name"]),
        "per_node": _count(cells["num_gpus"]),
        "size_bytes": float(size) if size else float(elements) * BYTES[dtype.strip().lower()],
        "measured_s": float(cells.get("latency_ms") or cells.get("latency") or "nan") * 1e-3,
    }


FORMS: tuple[tuple[frozenset[str], Callable[[Cells, Given], Values]], ...] = (
    (frozenset({"size_bytes", "nodes", "gpus_per_node"}), _of_nodes),
    (frozenset({"collective", "gpu", "size(kb)"}), _of_simulator),
    (frozenset({"num_workers", "devices_per_node", "median_ms"}), _of_workers),
    (frozenset({"num_gpus", "op_name"}), _of_chip),
    (frozenset({"num_gpus", "allreduce_dtype"}), _of_chip),
)
"""Columns that tell a table, and what reads its rows; the first that fits."""


def tables_of(folder: Path) -> Iterable[Path]:
    """The tables of collectives in a folder of published data."""
    yield from sorted((folder / "network").glob("nccl_*.csv.gz"))
    for pattern in ("*_nccl_*", "*_custom_allreduce*", "apex_collectives*", "vidur_*_all_reduce*"):
        yield from sorted((folder / "kernels").glob(f"{pattern}.csv.gz"))
