"""The file of a calibrated chip: `--system FILE` takes it in every verb.

A `[chip]` that starts from one of the catalogue or has every fact with its status, the `[[surface]]` tables
of its kernels, and what they come from. A new chip whose collectives were measured has the `[network.node]`
that they tell of (links_fit.py); else it names no network: a catalogue chip takes its reference system's, a
new one the usual (catalog/systems.py); a user adds `[network.node]` and the like for another.
"""

from collections.abc import Mapping
from typing import Any

from foretell.catalog.files import toml_value
from foretell.lab.calibrate.fit import Calibration
from foretell.lab.calibrate.links_fit import node_tier
from foretell.lab.calibrate.surfaces import surfaces_toml


def chip_toml(found: Calibration) -> str:
    """The whole file."""
    facts, when = found.facts, str(found.measured.environment.get("date", ""))[:10]
    lines = [
        "# Written by `foretell calibrate fit`; `--system` takes this file in every verb.",
        f"id = {_text(facts.chip.id)}",
        f"name = {_text(facts.chip.name + ', calibrated')}",
        "",
        "[chip]",
    ]
    tables: dict[str, Mapping[str, Any]] = {}
    for key, value in facts.table.items():
        if isinstance(value, Mapping) and "value" not in value:
            tables[key] = value
        else:
            lines.append(f"{key} = {_value(value)}")
    for key, table in tables.items():
        lines += ["", f"[chip.{key}]"]
        lines += [f"{name} = {_value(value)}" for name, value in table.items()]
    tier = node_tier(found.measured) if facts.new else {}
    if tier:
        lines += ["", "[network.node]", *(f"{name} = {value!r}" for name, value in tier.items())]
    lines += ["", "[sources]", f"measured = {_text(f'{facts.source}, {when}')}"]
    if facts.new:
        guess = "Guessed or carried over by foretell calibrate fit: no point tells it"
        lines.append(f"inferred = {_text(guess)}")
    return "\n".join([*lines, "", surfaces_toml(found.surfaces)])


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + " }"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    """A TOML text on one line."""
    plain = "".join(ch if ch.isprintable() else " " for ch in text)
    return toml_value(plain)
