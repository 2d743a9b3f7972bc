"""The system of a question: the catalogue's or a record, with the settings of design, fabric and numbers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

from foretell.catalog import system as catalog_system
from foretell.catalog.files import between_nodes
from foretell.catalog.hosts import host_of
from foretell.catalog.systems import no_design
from foretell.errors import BadInput, nearest_name, wrong
from foretell.inputs.overrides import Setting, apply_settings
from foretell.specs.check import problems_of
from foretell.specs.plan_words import no_choice
from foretell.specs.system import System

LARGEST_SYSTEM = 10**15
"""Chips that a network may join: above this, counts are no longer exact."""
FABRIC = "network.fabric"
"""The setting that names the fabric between nodes."""
DESIGN = "chip.design."
"""How a path begins that sets a field of the design that a chip is built from."""
T = TypeVar("T")


def of_system(system: System, settings: Sequence[Setting]) -> list[str]:
    """What was assumed of the system; where its numbers were set by hand, that this came before."""
    by_hand = [s for s in settings if not s.path.startswith(DESIGN)]
    touched = any(s.root in ("chip", "host", "system", "network") for s in by_hand)
    return [f"before --set: {text}" if touched else text for text in system.assumptions]


def design_system(
    given: Any, settings: Sequence[Setting], seen: dict[str, object]
) -> tuple[System, list[Setting]]:
    """The system with its chip's design changed as settings of `chip.design` say, and the other settings."""
    changes = {s.path.removeprefix(DESIGN): s.text for s in settings if s.path.startswith(DESIGN)}
    beside = [s.path for s in settings if s.path.startswith("system.design.")]
    if beside:
        message = "a design is set where its chip is built"
        allowed = "chip.design."
        raise BadInput([wrong(f"--set {p}", None, message, allowed) for p in beside])
    if isinstance(given, System):
        if changes:
            raise BadInput(no_design(changes))
        return given, list(settings)
    system = catalog_system(given, design=changes)
    seen |= {f"{DESIGN}{name}": text for name, text in changes.items()}
    return system, [s for s in settings if not s.path.startswith(DESIGN)]


def on_fabric(
    system: System, settings: Sequence[Setting], seen: dict[str, object]
) -> tuple[System, list[Setting]]:
    """The system on the fabric that a setting of `network.fabric` names, and the other settings.

    The library of collectives between nodes goes by the fabric, and the fabric of a system by its id.
    """
    named = [s for s in settings if s.path == FABRIC]
    for setting in named:
        known = between_nodes()
        if setting.text not in known:
            near = nearest_name(setting.text, known)
            raise BadInput([no_choice(FABRIC, setting.text, ", ".join(known), near)])
        system = replace(system, id=f"{system.id}-{setting.text}")
        seen[FABRIC] = setting.text
    return system, [s for s in settings if s not in named]


def system_of(given: Any, every: Sequence[Setting], seen: dict[str, object]) -> System:
    """The system of a question: from the catalogue or as given, with all settings applied."""
    system, settings = design_system(given, every, seen)
    system, settings = on_fabric(system, settings, seen)
    own = tuple(s for s in settings if s.root in ("chip", "host", "network", "system"))
    if own:
        try:
            system, items = _known_system(system, own)
        except TypeError:  # numbers that are arrays have no hash
            system, items = _set_by_hand(system, own)
        seen |= dict(items)
    allowed = f"a whole number, all tiers together at most {LARGEST_SYSTEM:.0e} chips"
    problems, chips = [], 1.0
    for tier in system.network.tiers:
        chips *= float(tier.size)
        if float(tier.size) % 1 or not 1 <= chips <= LARGEST_SYSTEM:
            problems.append(wrong(f"network.{tier.name}.size", tier.size, "no such size", allowed))
    if problems:
        raise BadInput(problems)
    return system


def _set_by_hand(
    system: System, settings: tuple[Setting, ...]
) -> tuple[System, tuple[tuple[str, object], ...]]:
    """The system with numbers set by hand, looked over again, and what was set."""
    seen: dict[str, object] = {}
    chip = apply_settings(system.chip, settings, "chip", seen)
    network = apply_settings(system.network, settings, "network", seen)
    told = [s for s in settings if s.root == "host"]
    host = apply_settings(host_of(system), told, "host", seen) if told else system.host
    system = replace(system, chip=chip, network=network, host=host)
    system = check_record(apply_settings(system, settings, "system", seen), "system", settings)
    return system, tuple(seen.items())


_known_system = lru_cache(maxsize=256)(_set_by_hand)
"""A system with the same settings is the same object: its numbers are checked and compared once."""


def check_record(record: T, root: str, settings: Sequence[Setting]) -> T:
    """The record, looked over again where something in it was set by hand."""
    if settings:
        problems = problems_of(record, root)
        if problems:
            raise BadInput(problems)
    return record
