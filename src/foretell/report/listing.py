"""Lists of the catalogue: every chip, system or model with the few facts that people look for first."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretell import catalog
from foretell.catalog.model_names import model_entries
from foretell.catalog.models import model
from foretell.report.console import table
from foretell.report.entry import Shown, value_text
from foretell.specs.chip import Chip
from foretell.specs.system import System
from foretell.workload.parameters import count

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "chip": {
        "memory_bytes": "memory", "memory_bandwidth_bytes_per_s": "bandwidth",
        "bf16_flop_per_s": "bf16", "fp8_flop_per_s": "fp8", "tdp_watts": "power", "release_year": "year",
    },
    "system": {"chip": "chip", "chips_per_node": "a node", "network": "network"},
    "model": {"parameters": "parameters", "parameters_active": "active"},
}  # fmt: skip
"""Keys of a row beyond kind, id and name, and their headings."""
TEXTS = ("chip", "network")
"""Columns that are no numbers."""

SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1.0, ""))
"""Numbers of parameters from which a letter stands for them."""


def listing(kind: str) -> list[Shown]:
    """Every entry of a kind (chip, system or model): kind, id, name and the keys of COLUMNS.

    Peaks are dense, bandwidths one direction, None where a chip has no units for a dtype.
    """
    if kind == "model":
        found = [(e.id, (*e.aliases, e.id)[0]) for e in model_entries()]
    else:
        found = [(e.id, e.name) for e in catalog.entries(kind)]
    facts = {"chip": _chip, "system": _system, "model": _model}[kind]
    return [{"kind": kind, "id": id_, "name": name, **facts(id_)} for id_, name in found]


def listing_text(found: Sequence[Shown]) -> "RenderableType":
    """One entry a row."""
    columns = COLUMNS[found[0]["kind"]]
    right = tuple(title for key, title in columns.items() if key not in TEXTS)
    made = table("id", "name", *columns.values(), right=right)
    for entry in found:
        made.add_row(entry["id"], entry["name"], *(_cell(key, entry[key]) for key in columns))
    return made


def _chip(id_: str) -> Shown:
    chip: Chip = catalog.chip(id_)
    peaks = chip.matrix_flop_per_s
    return {
        "memory_bytes": chip.memory_bytes,
        "memory_bandwidth_bytes_per_s": chip.memory_bandwidth_bytes_per_s,
        "bf16_flop_per_s": peaks.get("bf16"),
        "fp8_flop_per_s": peaks.get("fp8"),
        "tdp_watts": chip.tdp_watts,
        "release_year": chip.release_year or None,
    }


def _system(id_: str) -> Shown:
    system: System = catalog.system(id_)
    tiers = [
        {
            "name": tier.name,
            "topology": tier.topology,
            "bandwidth_bytes_per_s": tier.bandwidth_bytes_per_s,
        }
        for tier in system.network.tiers
    ]
    return {
        "chip": system.chip.id,
        "chips_per_node": int(system.chips_per_node),
        "network": tiers,
    }


def _model(id_: str) -> Shown:
    counts = count(model(id_))
    return {"parameters": counts.total, "parameters_active": counts.active}


def _cell(key: str, value: Any) -> str:
    """A value as the table has it."""
    if key == "network":
        return ", ".join(
            f"{tier['name']} {value_text('bandwidth_bytes_per_s', tier['bandwidth_bytes_per_s'])}"
            for tier in value
        )
    if key.startswith("parameters"):
        # Three digits: 999.7 millions are told as a billion.
        size, letter = next(pair for pair in SIZES if value >= 0.9995 * pair[0])
        return f"{value / size:.3g}{letter}"
    return value_text(key, value)
