"""Whether the device that ran is the one that was predicted: else the two times say nothing of each other."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foretell.catalog.names import exists, find
from foretell.catalog.systems import named_system, system_from_file
from foretell.errors import BadInput
from foretell.specs.chip import Chip

HOW = "calibrate measure and calibrate fit write a file of this machine for --system"


def device_note(system: str, device: str, environments: Iterable[Mapping[str, Any]] = ()) -> str:
    """A warning where what ran, or what the file says will run, is not the predicted system; else empty."""
    chip = _chip(system)
    if chip is None:
        return ""
    ran = sorted({str(told.get("chip") or "") for told in environments} - {""})
    other = [name for name in ran if not same_device(chip, name)]
    if other:
        return _words(", ".join(other), chip)
    if not ran and device == "cpu" and chip.architecture != "cpu":
        return _words("the CPU of this machine", chip)
    return ""


def same_device(chip: Chip, name: str) -> bool:
    """Whether a device's own name means the chip: its id or name, or a name of the catalogue for it."""
    if name in (chip.id, chip.name) or chip.name.startswith(f"{name},"):
        return True
    return exists(name) and find(name, ("chip",), "chip").id in (chip.id, _base(chip))


def _base(chip: Chip) -> str:
    """The catalogue chip that a calibrated one starts from."""
    return find(chip.name, ("chip",), "chip").id if exists(chip.name) else chip.id


def _words(ran: str, chip: Chip) -> str:
    return (
        f"warning: runs on {ran}, but predictions are for {chip.name}: their times are not comparable "
        f"({HOW})"
    )


def _chip(system: str) -> Chip | None:
    """The chip that is predicted; None where the name means nothing, which `predict` says."""
    if not system:
        return None
    try:
        path = Path(system)
        return (system_from_file(path) if path.is_file() else named_system(system)).chip
    except BadInput:
        return None
