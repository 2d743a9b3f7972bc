"""What is worth showing of the catalogue's entries and lists, and of what is installed here."""

from collections.abc import Mapping
from typing import Any

from foretell import units
from foretell.report.presentation.numbers import Presentation, ShownTable, Told, listed

COLUMNS: Mapping[str, Mapping[str, str]] = {
    "chip": {
        "memory_bytes": "memory", "memory_bandwidth_bytes_per_s": "bandwidth",
        "bf16_flop_per_s": "bf16", "fp8_flop_per_s": "fp8", "tdp_watts": "power", "release_year": "year",
    },
    "system": {"chip": "chip", "chips_per_node": "a node", "network": "network"},
    "model": {"parameters": "parameters", "parameters_active": "active"},
}  # fmt: skip
"""Kind -> keys of a row of its list beyond kind, id and name, and their headings."""
TEXTS = ("chip", "network")
"""Columns that are no numbers."""
SIZES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1.0, ""))
"""Numbers of parameters from which a letter stands for them."""
COUNTED = ("year", "chip", "node", "core")
"""Units of which the field's name says enough: `chips_per_node` is 8, not 8 chip/node."""
FACTS = ("vendor", "architecture", "chip", "reference_system", "resolved", "family")
"""Keys of an entry that are lines of their own."""
WEIGHTS = {
    "parameters": "parameters, everything",
    "parameters_text": "of them the main text model",
    "parameters_active": "of these used by one token",
    "published_parameters": "in print",
}
"""A model's counts of weights, and the one in print."""


def catalogue_card(told: Told) -> Presentation:
    """A list of the catalogue (`entries`), or one entry with the source of every value."""
    if "entries" not in told:
        return entry_card(told)
    rows = told["entries"]
    columns = COLUMNS[rows[0]["kind"]]
    table = ShownTable(
        title="",
        headers=("id", "name", *columns.values()),
        rows=tuple(
            (row["id"], row["name"], *(_cell(key, row[key]) for key in columns)) for row in rows
        ),
        right=(False, False, *(key not in TEXTS for key in columns)),
    )
    return Presentation(title=f"{len(rows):,} {rows[0]['kind']}s", tables=(table,))


def entry_card(told: Told) -> Presentation:
    """Heading, values with status and source, notes."""
    lines = [f"{key.replace('_', ' ')}: {told[key]}" for key in FACTS if told.get(key)]
    lines += [f"{t}: {told[key]:,}" for key, t in WEIGHTS.items() if told.get(key) is not None]
    lines += [f"where: {told['published_source']}"] if told.get("published_source") else []
    lines += [f"also called: {', '.join(told['aliases'])}"] if told.get("aliases") else []
    sources = list(dict.fromkeys(f["source"] for f in told["values"].values() if f["source"]))
    rows = tuple(
        (
            path,
            entry_value(path, fact["value"]),
            fact["status"] or "",
            f"[{sources.index(fact['source']) + 1}]" if fact["source"] else "",
            fact.get("note", ""),
        )
        for path, fact in told["values"].items()
    )
    heads = ("field", "value", "status", "source", "note")
    return Presentation(
        title=f"{told['id']}  {told['kind']}  {told.get('name', '')}",
        lines=tuple(lines),
        tables=(
            ShownTable(
                title="", headers=heads, rows=rows, right=(False, False, False, True, False)
            ),
        ),
        meaning=tuple(f"[{place}] {source}" for place, source in enumerate(sources, start=1)),
        lists=listed("Notes", told.get("notes") or ()),
    )


def entry_value(path: str, value: object) -> str:
    """A value in the unit that its field's name ends in."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    if not isinstance(value, int | float):
        return ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)
    unit = next(
        (u for u in (units.field_unit(word) for word in reversed(path.split("."))) if u), ""
    )
    if unit and not unit.startswith(COUNTED):
        return units.format(float(value), unit)
    return f"{value:,.15g}" if abs(value) >= 10_000 else f"{value:.15g}"


def _cell(key: str, value: Any) -> str:
    """A value of a list."""
    if key == "network":
        return ", ".join(
            f"{tier['name']} {entry_value('bandwidth_bytes_per_s', tier['bandwidth_bytes_per_s'])}"
            for tier in value
        )
    if key.startswith("parameters"):
        # Three digits: 999.7 millions are shown as a billion.
        size, letter = next(pair for pair in SIZES if value >= 0.9995 * pair[0])
        return f"{value / size:.3g}{letter}"
    return entry_value(key, value)


def doctor_card(told: Told) -> Presentation:
    """Groups below each other; what is missing says how to get it."""
    groups = dict.fromkeys(check["group"] for check in told["checks"])
    return Presentation(
        title=f"foretell {told['version']}, Python {told['python']}, {told['platform']}",
        tables=tuple(
            ShownTable(
                title="",
                headers=("", group, "found", "for"),
                rows=tuple(
                    (
                        {"ok": "ok", "absent": "-", "no": "no"}[check["state"]],
                        check["name"],
                        check["found"] + (f"\nget it: {check['get']}" if check["get"] else ""),
                        check["purpose"],
                    )
                    for check in told["checks"]
                    if check["group"] == group
                ),
                right=(False,) * 4,
            )
            for group in groups
        ),
    )
