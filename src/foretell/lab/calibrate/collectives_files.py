"""Fitted coefficients into the catalogue's files: what they hold of names and systems stays."""

from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite, isinf
from pathlib import Path
from typing import Any

from foretell.catalog.files import read_table, toml_value
from foretell.lab.calibrate.collectives import LibraryFit

FIGURES = 4
"""Significant figures of a coefficient in a file."""


def write_files(found: LibraryFit, folder: Path) -> None:
    """Rewrite every file whose link or fabric was fitted."""
    for path in sorted(folder.glob("*.toml")):
        table = read_table(path)
        name = path.stem
        if table["kind"] == "inside" and name in found.points:
            table["inside"] = _plain(asdict(found.coefficients.inside[name]))
            table["fit"] = _figures(found, name)
            if f"custom:{name}" in found.points:
                table["custom"] = _plain(asdict(found.coefficients.custom[name]))
                table["custom_fit"] = _figures(found, f"custom:{name}")
            path.write_text(dumps(table))
        elif table["kind"] == "between":
            keys = [key for key in found.points if key.startswith(f"{name}/")]
            for key in keys:
                values = _plain(asdict(found.coefficients.between[key]))
                table["transports"][key.split("/")[1]] = {**values, "fit": _figures(found, key)}
            if keys:
                factors = found.coefficients.hop_factor.get(name, {})
                if factors:
                    table["hop_factor"] = {key: _round(value) for key, value in factors.items()}
                path.write_text(dumps(table))


def _figures(found: LibraryFit, key: str) -> dict[str, Any]:
    """Rows and residuals of a fit."""
    names = ("median_ape_below_64kib", "median_ape_64kib_to_16mib", "median_ape_from_16mib")
    errors = dict(zip(names, found.errors[key], strict=True))
    kept = {name: round(value, 4) for name, value in errors.items() if isfinite(value)}
    return {"points": found.points[key], **kept}


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """A record as a table: no id, no None, rounded."""
    return {
        name: [_round(v) for v in value] if isinstance(value, tuple) else _round(value)
        for name, value in values.items()
        if name != "id" and value is not None
    }


def _round(value: float) -> float:
    return value if isinf(value) else float(f"{value:.{FIGURES}g}")


def dumps(table: Mapping[str, Any], path: str = "") -> str:
    """A table as TOML: values first, then tables, then arrays of tables."""
    values = [
        f"{_key(key)} = {toml_value(value)}" for key, value in table.items() if not _nested(value)
    ]
    text = "\n".join(values) + ("\n" if values else "")
    for key, value in table.items():
        here = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, Mapping):
            head = f"\n[{here}]\n" if any(not _nested(v) for v in value.values()) else ""
            text += head + dumps(value, here)
        elif _nested(value):
            text += "".join(f"\n[[{here}]]\n" + dumps(item, here) for item in value)
    return text


def _nested(value: object) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)
    )


def _key(key: str) -> str:
    return key if key.replace("-", "").replace("_", "").isalnum() else f'"{key}"'
