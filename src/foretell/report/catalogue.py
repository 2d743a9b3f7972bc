"""Lists and entries of the catalogue, and of files of one's own, as JSON has them."""

from pathlib import Path
from typing import Any

from foretell import catalog
from foretell.catalog.files import read_table
from foretell.catalog.model_names import find_model, model_entries
from foretell.catalog.models import model, show_model
from foretell.catalog.names import exists, nearest
from foretell.errors import BadInput, bad_input
from foretell.interop.user_files import are_read, is_there
from foretell.report.presentation.catalogue_cards import COLUMNS as COLUMNS
from foretell.report.presentation.catalogue_cards import entry_value as value_text
from foretell.workload.parameters import count

__all__ = ["COLUMNS", "entry", "listing", "value_text"]

Shown = dict[str, Any]
"""An entry as JSON."""


def entry(name: str) -> Shown:
    """Whatever names a model, chip or system, with the source of every value.

    A name of the catalogue comes before a file that happens to be called so.
    """
    if exists(name):
        return catalog.show(name)
    if find_model(name) is not None:
        return _model(name)
    path = _path(name)
    if path is not None:
        return _model(name) if _holds_model(path) else catalog.show(name)
    raise _unknown(name)


def _path(name: str) -> Path | None:
    """The path that a text is: one that ends like one, or is there."""
    if not are_read():
        return None
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        return None
    return path if path.suffix.lower() in (".json", ".toml") or is_there(path) else None


def _holds_model(path: Path) -> bool:
    """Whether a path is a model's: a folder, JSON, or our TOML with a stack of layers."""
    if path.is_dir() or path.suffix.lower() == ".json":
        return True
    return "stack" in read_table(path)


def _unknown(name: str) -> BadInput:
    """No such thing, with the names of every kind that are most like it."""
    near = nearest(name)
    try:
        model(name, files=False)
    except BadInput as error:
        near = [p.nearest for p in error.problems if p.nearest] + near
    message = "is neither a model, chip or system of the catalogue nor a file"
    return bad_input("name", name, message, nearest=" or ".join(near) or None)


def _model(name: str) -> Shown:
    """A model's entry with its parameter counts."""
    counts = count(model(name))
    known = {"parameters": counts.total, "parameters_text": counts.text}
    return show_model(name, {**known, "parameters_active": counts.active})


def listing(kind: str) -> list[Shown]:
    """Every entry of a kind (chip, system or model): kind, id, name and the keys of COLUMNS.

    Peaks are dense, bandwidths one direction, None where a chip has no units for a dtype.
    """
    if kind == "model":
        found = [(e.id, (*e.aliases, e.id)[0]) for e in model_entries()]
    else:
        found = [(e.id, e.name) for e in catalog.entries(kind)]
    facts = {"chip": _chip_facts, "system": _system_facts, "model": _model_facts}[kind]
    return [{"kind": kind, "id": id_, "name": name, **facts(id_)} for id_, name in found]


def _chip_facts(id_: str) -> Shown:
    chip = catalog.chip(id_)
    peaks = chip.matrix_flop_per_s
    return {
        "memory_bytes": chip.memory_bytes,
        "memory_bandwidth_bytes_per_s": chip.memory_bandwidth_bytes_per_s,
        "bf16_flop_per_s": peaks.get("bf16"),
        "fp8_flop_per_s": peaks.get("fp8"),
        "tdp_watts": chip.tdp_watts,
        "release_year": chip.release_year or None,
    }


def _system_facts(id_: str) -> Shown:
    system = catalog.system(id_)
    names = ("name", "topology", "bandwidth_bytes_per_s")
    tiers = [{name: getattr(tier, name) for name in names} for tier in system.network.tiers]
    each = int(system.chips_per_node)
    return {"chip": system.chip.id, "chips_per_node": each, "network": tiers}


def _model_facts(id_: str) -> Shown:
    counts = count(model(id_))
    return {"parameters": counts.total, "parameters_active": counts.active}
