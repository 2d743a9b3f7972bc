"""Entries of the catalogue, and files of one's own: as JSON has them, and as tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell import catalog, units
from foretell.catalog.files import read_table
from foretell.catalog.model_names import find_model
from foretell.catalog.models import model, show_model
from foretell.catalog.names import exists, nearest
from foretell.errors import BadInput, bad_input
from foretell.interop.user_files import are_read, is_there
from foretell.report.console import table
from foretell.report.presentation.text import bullets
from foretell.workload.parameters import count

if TYPE_CHECKING:
    from rich.console import RenderableType

Shown = dict[str, Any]
"""An entry as JSON."""

COUNTED = ("year", "chip", "node", "core")
"""Units of which the field's name says enough: `chips_per_node` is 8, not 8 chip/node."""


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
    said = " or ".join(near) or None
    return bad_input("name", name, message, nearest=said)


def _model(name: str) -> Shown:
    """A model's entry with its parameter counts."""
    counts = count(model(name))
    return show_model(
        name,
        {
            "parameters": counts.total,
            "parameters_text": counts.text,
            "parameters_active": counts.active,
        },
    )


def entry_text(shown: Shown) -> "RenderableType":
    """Heading, values with status and source, notes."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text.assemble((shown["id"], "bold"), f"  {shown['kind']}  {shown.get('name', '')}")
    ]
    plain = ("vendor", "architecture", "chip", "reference_system", "resolved", "family")
    parts += [Text(f"{key.replace('_', ' ')}: {shown[key]}") for key in plain if shown.get(key)]
    parts += [Text(line) for line in parameter_lines(shown)]
    if shown.get("aliases"):
        parts.append(Text(f"also called: {', '.join(shown['aliases'])}"))
    sources = list(dict.fromkeys(f["source"] for f in shown["values"].values() if f["source"]))
    made = table("field", "value", "status", "source", "note", right=("source",))
    for path, fact in shown["values"].items():
        mark = f"[{sources.index(fact['source']) + 1}]" if fact["source"] else ""
        value = value_text(path, fact["value"])
        made.add_row(path, value, fact["status"] or "", mark, fact.get("note", ""))
    parts += [Text(), made]
    if sources:
        marked = [f"[{place}] {source}" for place, source in enumerate(sources, start=1)]
        parts += [Text(), Text("\n".join(marked), "dim")]
    for key, title in (("notes", "Notes"), ("assumptions", "Assumed")):
        if shown.get(key):
            parts += [Text(), bullets(title, list(shown[key]))]
    return Group(*parts)


def parameter_lines(shown: Shown) -> list[str]:
    """A model's counts of weights, and the one in print."""
    titles = {
        "parameters": "parameters, everything",
        "parameters_text": "of them the main text model",
        "parameters_active": "of these used by one token",
        "published_parameters": "in print",
    }
    lines = [f"{t}: {shown[key]:,}" for key, t in titles.items() if shown.get(key) is not None]
    where = shown.get("published_source")
    return lines if where is None else [*lines, f"where: {where}"]


def value_text(path: str, value: object) -> str:
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
