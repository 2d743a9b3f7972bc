"""Llama and the families that differ from it in a trait or two, or in equal experts: rows of llamas.toml."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.interop.huggingface.common import HeadNames
from foretell.interop.huggingface.config import Config
from foretell.interop.huggingface.experts import by_layer, half_as_wide, in_every_layer
from foretell.interop.huggingface.llamalike import (
    Traits,
    Windows,
    all_but_every,
    every_layer,
    no_windows,
    read_like,
    used_windows,
)
from foretell.interop.package_tables import packaged_table
from foretell.specs.model import Model


def _if_used(why: str) -> Windows:
    """SmolLM3: windows where `use_sliding_window` is on, on layers that `layer_types` marks."""

    def windows(config: Config, layers: int) -> tuple[int | None, ...]:
        if not config.flag("use_sliding_window", default=False, why=why):
            return (None,) * layers
        return every_layer(None, why)(config, layers)

    return windows


def _windows(row: Mapping[str, Any], why: str) -> Windows:
    """The windows of a row."""
    if row.get("used"):
        return _if_used(why)
    if "used_from" in row:
        return used_windows(why, first_full=row["used_from"])
    if "all_but" in row:
        return all_but_every(row["all_but"], row["width"], why)
    return every_layer(row["every"] or None, why) if row else no_windows


def _traits(row: dict[str, Any]) -> Traits:
    """The traits of a row."""
    why = f"{row.pop('class')}'s defaults" if "class" in row else row.pop("why")
    names = {name: tuple(keys) for name, keys in row.pop("names", {}).items()}
    windows = _windows(row.pop("windows", {}), why)
    forms = {"each": in_every_layer(row.get("activation", "silu")), "half": half_as_wide}
    told: dict[str, Any] = {"experts": (forms | {"by_layer": by_layer}).get(row.pop("experts", ""))}
    for name, value in row.items():
        told[name] = tuple(value) if isinstance(value, list) else value
    return Traits(why=why, names=HeadNames(**names), windows=windows, **told)


_TABLE = packaged_table(Path(__file__).with_name("llamas.toml"))
TRAITS = {name: _traits(row) for name, row in _TABLE.items()}
"""model_type -> its traits. Families of the library are compared with its modules in the tests."""


def read(config: Config) -> Model:
    """A Llama-like decoder with the traits of its family."""
    return read_like(config, TRAITS[config.family])
