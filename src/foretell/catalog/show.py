"""An entry with every number's source, in the JSON form of `foretell catalog show`."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from foretell.catalog.chips import CHIP_KEYS, NAMES, chip_from_table
from foretell.catalog.files import Table, catalogue_table, read_table
from foretell.catalog.names import find, load
from foretell.catalog.systems import (
    SYSTEM_KEYS,
    alias_note,
    chip_file_as_system,
    is_design,
    own_file,
    system_from_file,
)
from foretell.catalog.values import Fact, read_facts
from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.records import dataclass
from foretell.specs.chip import Chip, Surface
from foretell.specs.system import System, Tier

_HEADINGS = ("id", "name", "vendor", "architecture", "assumptions")
"""Fields that are shown above the values: names, not facts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a listing."""

    kind: str
    """`chip` or `system`."""
    id: str
    """Catalogue id."""
    name: str
    """Full name."""


def entries(kind: str) -> list[Entry]:
    """Every entry of a kind, `chip` or `system`, in the order of their ids."""
    titles = load().titles
    one = kind.removesuffix("s")
    if one not in titles:
        raise bad_input("kind", kind, "is not a kind", ", ".join(titles))
    return [Entry(kind=one, id=entry, name=name) for entry, name in sorted(titles[one].items())]


def show(name: str) -> dict[str, Any]:
    """A chip or system, by name or by the path of a user's file, with the source of each value.

    `values` maps each field, by its path in the record, to value, source and status, and note, low
    and high where there are such.
    """
    path = own_file(name)
    if path is not None:
        return _show_file(path)
    match = find(name)
    table = catalogue_table(match.kind, match.id)
    shown = _show_chip(table) if match.kind == "chip" else _show_system(table)
    note = alias_note(table, name)
    return shown if note is None else {**shown, "resolved": note}


def _show_file(path: Path) -> dict[str, Any]:
    table = read_table(path)
    _check_texts(table)
    whole = chip_file_as_system(table)
    if is_design(whole.get("chip")):
        return _show_design(path, whole["chip"])
    if "network" in table or "chip" in table:
        system = system_from_file(path)
        shown = _show_system({"id": system.id, "name": system.name, **whole})
        if system.chip.kernels:
            shown["assumptions"] = list(system.assumptions)
            shown["kernels"] = [kernel_words(surface) for surface in system.chip.kernels]
        return shown
    problems: list[Problem] = []
    chip = chip_from_table(table, "chip", problems)
    if chip is None:
        raise BadInput(problems)
    return _show_chip({"id": chip.id, "name": chip.name, **table})


def kernel_words(surface: Surface) -> str:
    """What a surface was fitted to and how well, in a few words."""
    return (
        f"{surface.family} {surface.dtype} {surface.software} {surface.version}: {surface.points} points, "
        f"held out {surface.left_out_median_ape:.1%} median, {surface.left_out_p90_ape:.1%} p90"
    )


def _show_design(path: Path, table: Table) -> dict[str, Any]:
    """The chip that a user's design comes to, with its areas and watts."""
    from foretell.catalog.designs import built_from_table

    system = system_from_file(path)
    built = built_from_table(table["design"], "chip.design", [])
    shown: dict[str, Any] = {key: getattr(system.chip, key) for key in NAMES}
    found: dict[str, Any] = {
        field.name: getattr(system.chip, field.name)
        for field in fields(Chip)
        if field.name not in (*shown, "matrix_flop_per_s")
    }
    found |= {f"matrix_flop_per_s.{k}": v for k, v in system.chip.matrix_flop_per_s.items()}
    if built is not None:
        found |= {f"area.{k}_mm2": v for k, v in built.die_mm2.items()}
        found |= {f"io_die_area.{k}_mm2": v for k, v in built.io_die_mm2.items()}
        found |= {f"power.{k}_watts": v for k, v in built.watts.items()}
        more = ("sustained_share", "edge_share", "l2_bytes_per_s", "sram_bytes_per_s")
        found |= {name: float(f"{getattr(built, name):.6g}") for name in more}
    values = {
        name: {"value": value, "source": "the file's design", "status": "inferred"}
        for name, value in found.items()
        if value not in (0.0, "", ())
    }
    shown |= {"aliases": [], "notes": [], "assumptions": list(system.assumptions)}
    return {"kind": "chip", **shown, "values": values}


def _check_texts(table: Table) -> None:
    """What a user's file holds besides fields: lists of texts, and sources by their keys."""
    problems = []
    for key in ("aliases", "notes"):
        raw = table.get(key, [])
        if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
            problems.append(wrong(key, raw, "is not a list of texts"))
    raw = table.get("sources", {})
    if not isinstance(raw, dict) or not all(isinstance(item, str) for item in raw.values()):
        problems.append(wrong("sources", raw, "is not a table of texts"))
    if not isinstance(raw := table.get("reference_system", {}), dict):
        problems.append(wrong("reference_system", raw, "is not a table"))
    if problems:
        raise BadInput(problems)


def _show_chip(table: Table) -> dict[str, Any]:
    reference = table.get("reference_system", {})
    shown = _heading("chip", table, ("vendor", "architecture"))
    shown["values"] = _values(Chip, table, "", (*CHIP_KEYS, "base"), table)
    if reference:
        shown["reference_system"] = reference.get("system", reference.get("name"))
    return shown


def _show_system(table: Table) -> dict[str, Any]:
    chip = table["chip"]
    shown = _heading("system", table, ())
    shown["chip"] = chip
    plain = {k: raw for k, raw in table.items() if k not in ("chip", "network")}
    values = _values(System, plain, "", SYSTEM_KEYS, table)
    if isinstance(chip, dict):
        shown["chip"] = str(chip.get("base", chip.get("id", "own-chip")))
        values |= _values(Chip, chip, "chip.", (*CHIP_KEYS, "base"), table)
    for name, tier in table.get(
        "network", {}
    ).items():  # a calibrated chip may have none of its own
        values |= _values(Tier, tier, f"network.{name}.", (), table)
    shown["assumptions"] = list(table.get("assumptions", []))
    shown["values"] = values
    return shown


def _heading(kind: str, table: Table, more: tuple[str, ...]) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": kind, "id": table["id"], "name": table["name"]}
    shown |= {key: table[key] for key in more if key in table}
    shown["aliases"] = list(table.get("aliases", []))
    shown["notes"] = list(table.get("notes", []))
    return shown


def _values(
    record: type, table: Table, prefix: str, also: tuple[str, ...], file: Table
) -> dict[str, dict[str, Any]]:
    """Path -> value, source and status."""
    sources = file.get("sources", {})
    problems: list[Problem] = []
    shown = {}
    for name, held in read_facts(record, table, "", problems, also).items():
        if name in _HEADINGS:
            continue
        if isinstance(held, Fact):
            shown[f"{prefix}{name}"] = _shown(held, sources)
        else:
            for key, fact in held.items():
                shown[f"{prefix}{name}.{key}"] = _shown(fact, sources)
    if problems:
        raise BadInput(problems)
    return shown


def _shown(fact: Fact, sources: Table) -> dict[str, Any]:
    value = list(fact.value) if isinstance(fact.value, tuple) else fact.value
    source = None if fact.source is None else sources.get(fact.source, fact.source)
    shown = {"value": value, "source": source, "status": fact.status}
    more = {"note": fact.note, "low": fact.low, "high": fact.high}
    return {**shown, **{key: held for key, held in more.items() if held is not None}}
