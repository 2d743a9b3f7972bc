"""Measured dispatches and combines of mixtures: from a row of a table to a load and a family of kernels."""

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretell.catalog.files import read_bytes
from foretell.catalog.names import exists, find
from foretell.catalog.systems import named_system
from foretell.network.dispatch import ROW_BYTES, DispatchKernels, DispatchLoad, distinct
from foretell.records import dataclass
from foretell.specs.system import System

COLUMNS = ("library", "op", "ep", "tokens_per_rank", "hidden", "topk", "experts")
"""Columns without which a table is no table of dispatches."""
FAMILIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("onesided",), "nvlink-one-sided"),
    (("twosided",), "nvlink-two-sided"),
    (("mori", "low"), "mori-low-latency"),
    (("mori",), "mori"),
    (("pplx", "ibrc"), "pplx-proxy"),
    (("pplx",), "pplx"),
    (("deepep", "low"), "deepep-low-latency"),
    (("deepep", "v2"), "deepep-2"),
    (("deepep",), "deepep"),
    (("torch",), "nccl"),
    (("nccl",), "nccl"),
    (("rccl",), "nccl"),
)
"""Words in a library's name and mode, and the family of kernels."""
LATENCY = ("lowlatency", "latency", "decode")
"""Words of modes made for few tokens, of libraries that are not known by name."""
PADDED = ("all_to_all", "alltoall")
"""Operations that send a block of as many rows to every expert, filled or not (pplx-kernels,
tests/bench_all_to_all.py: rows in 8 bits)."""
FIRST_MORI = "v0"
"""Versions of MORI's kernels between nodes that send a row to each rank, not once to each node."""
LARGE_DOMAIN = 16.0
"""Ranks of a domain of fast links from which engines have kernels for it."""
GROUPS = 4.0
"""Nodes that DeepEP's own test limits a token to (tests/test_internode.py: num_topk_groups)."""
USUAL_CHIP = "h100-sxm"
"""Chip of rows that print none but a generation."""
FAR_RATE = re.compile(r"(\d+) ?(?:Gb/s|Gbit/s|Gbps)")
"""Rate of one rank between domains, where a table prints it."""
LINKED = "pure rdma"
"""What notes of rows say whose kernels did not use the fast links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRow:
    """One measured direction of an exchange."""

    id: str
    """Its place or name."""
    library: str
    """Library as the table has it."""
    family: str
    """Family of kernels here."""
    op: str
    """dispatch or combine."""
    system: System
    """Chip and links."""
    load: DispatchLoad
    """What was exchanged."""
    near_used: bool
    """Whether fast links were used where there are any."""
    seconds: float
    """Measured."""
    source: str
    """Where it is."""
    unit: str = ""
    """What a row is sent for, where a version of the kernels differs from their family; else blank."""
    known: bool = True
    """Whether the library is known by its name; else it is taken for the usual one of its kind."""


def is_dispatch_table(path: Path) -> bool:
    """Whether a file is a table of dispatches and combines."""
    try:
        head = read_bytes(Path(path)).decode("utf-8-sig", "replace").split("\n", 1)[0]
    except OSError:
        return False
    return set(COLUMNS) <= {cell.strip() for cell in head.split(",")}


def read_dispatches(path: Path) -> tuple[list[DispatchRow], list[tuple[str, str]]]:
    """Every row that can be understood, and the ids and reasons of the others."""
    text = read_bytes(Path(path)).decode("utf-8-sig")
    rows: list[DispatchRow] = []
    other: list[tuple[str, str]] = []
    for number, cells in enumerate(csv.DictReader(io.StringIO(text))):
        name = cells.get("id") or str(number + 1)
        found = dispatch_row(name, {k: (v or "").strip() for k, v in cells.items() if k})
        if isinstance(found, str):
            other.append((name, found))
        else:
            rows.append(found)
    return rows, other


def dispatch_row(name: str, cells: Mapping[str, str]) -> DispatchRow | str:
    """A row understood, or why it is not."""
    op = next((word for word in ("dispatch", "combine") if cells["op"].startswith(word)), "")
    padded = cells["op"] in PADDED
    if not op and not padded:
        return f"{cells['op']} is neither dispatch nor combine"
    system = system_of(cells.get("chip", ""))
    if isinstance(system, str):
        return system
    ranks = float(cells["ep"])
    domain = float(cells.get("fast_domain_gpus") or 8.0)
    plain = plain_name(cells)
    family, known = family_of(plain, ranks, domain, system)
    if padded and family != "nccl":
        return f"{cells['library']}: an all-to-all that is no dispatch"
    load = load_of(cells, family, op or "dispatch", (ranks, domain), system)
    if padded:
        load = replace(load, top_k=load.experts, row_bytes=1.0)
    seconds = seconds_of(cells, family, load)
    if isinstance(seconds, str):
        return seconds
    first = family == "mori" and FIRST_MORI in plain
    return DispatchRow(
        id=name, library=cells["library"], family=family, op=op or "dispatch", system=system,
        load=load, near_used=LINKED not in cells.get("notes", "").lower(), seconds=seconds,
        source=cells.get("source", ""), unit="rank" if first else "", known=known,
    )  # fmt: skip


def plain_name(cells: Mapping[str, str]) -> str:
    """Library, mode and version as one word."""
    text = f"{cells['library']} {cells.get('mode', '')} {cells.get('version', '')}".lower()
    return text.replace("-", "").replace(" ", "").replace("_", "")


def family_of(plain: str, ranks: float, domain: float, system: System) -> tuple[str, bool]:
    """Family of kernels of a library, and whether its name says so; else the usual one of its kind."""
    named = next((family for words, family in FAMILIES if all(w in plain for w in words)), "")
    if named:
        return named, True
    amd = system.chip.architecture.startswith("cdna")
    if any(word in plain for word in LATENCY):
        return ("mori-low-latency" if amd else "deepep-low-latency"), False
    if not amd and ranks <= domain and domain >= LARGE_DOMAIN:
        return "nvlink-one-sided", False
    return ("mori" if amd else "deepep"), False


def load_of(
    cells: Mapping[str, str], family: str, op: str, where: tuple[float, float], system: System
) -> DispatchLoad:
    """What a row exchanges."""
    tiers = system.network.tiers
    far = float(tiers[min(1, len(tiers) - 1)].bandwidth_bytes_per_s)
    printed = FAR_RATE.search(cells.get("network", ""))
    far = 1e9 / 8.0 * float(printed[1]) if printed else far
    return DispatchLoad(
        tokens=float(cells["tokens_per_rank"]),
        hidden=float(cells["hidden"]),
        row_bytes=ROW_BYTES[format_of(cells.get("dtype", ""), cells["op"])],
        top_k=float(cells["topk"]),
        experts=float(cells["experts"]),
        ranks=where[0],
        domain=where[1],
        near_bytes_per_s=float(tiers[0].bandwidth_bytes_per_s),
        far_bytes_per_s=far,
        limit=GROUPS if family.startswith("deepep") else np.inf,
        dealt=1.0 if "balanced" in cells.get("notes", "").lower() else 0.0,
        cores=float(cells.get("sms") or 0.0),
    )


def format_of(text: str, op: str) -> str:
    """Format of the rows: as printed, else 8 bits there and 16 back; sums come back in 16 bits."""
    known = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(text, text)
    if op == "combine":
        return "bf16"
    return known if known in ROW_BYTES else "fp8"


def system_of(chip: str) -> System | str:
    """The reference system of a chip; a generation that is named alone is the usual chip of it."""
    plain = chip.split(" or ")[0].strip()
    if "hopper" in plain.lower() or plain.upper() == "SM90":
        plain = USUAL_CHIP
    if not exists(plain, ("chip",)):
        return f"the chip {chip or '(blank)'} is not in the catalogue"
    return named_system(find(plain, ("chip",)).id)


def seconds_of(cells: Mapping[str, str], family: str, load: DispatchLoad) -> float | str:
    """A row's seconds of the kernels that move rows, or as its bandwidth tells them.

    Bandwidths are logical: rows that stay on the rank, or on its node, are counted.
    """
    if cells.get("time_us"):
        return 1e-6 * float(cells["time_us"])
    if not cells.get("bandwidth_gb_s"):
        return "neither time nor bandwidth is given"
    domains = float(np.asarray(load.ranks)) / min(
        float(np.asarray(load.domain)), float(np.asarray(load.ranks))
    )
    over = "rdma" in cells.get("bandwidth_of", "").lower() and domains > 1.0
    places = min(domains, float(np.asarray(load.limit))) if over else float(np.asarray(load.ranks))
    copies = float(distinct("expert" if "low" in family else "rank", places, load))
    moved = float(np.asarray(load.tokens * load.hidden * load.row_bytes)) * copies
    return moved / (1e9 * float(cells["bandwidth_gb_s"]))


def own_kernels(row: DispatchRow, kernels: DispatchKernels) -> DispatchKernels:
    """A family as a row used it."""
    if row.unit:
        kernels = replace(kernels, unit=row.unit)
    return kernels if row.near_used else replace(kernels, near_used=False)
