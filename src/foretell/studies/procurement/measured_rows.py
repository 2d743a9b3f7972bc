"""Measured runs of a comparison: which system each was measured on, and which kind of work it is of."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from foretell.api.measured_files import read_measured
from foretell.errors import BadInput, Problem
from foretell.specs.measurement import SERVED, Measurement
from foretell.studies.procurement.clusters import Given, name_of


def rows_of(
    measured: Any, systems: Sequence[Given], gpus: int | None, problems: list[Problem]
) -> tuple[Measurement, ...]:
    """The measured runs, each with its system (else the first one) and its chips (else those that every
    cluster is given)."""
    if not measured:
        return ()
    try:
        rows = read_measured(measured)
    except BadInput as error:
        problems += error.problems
        return ()
    found = []
    for number, one in enumerate(rows, start=1):
        told = {"system": name_of(systems[0]), **one.asked} if systems else dict(one.asked)
        if gpus is None and "gpus" not in told:
            message = (
                "a budget buys another number of chips on every system: say how many were measured"
            )
            path = f"measured {number}: gpus"
            problems.append(
                Problem(path=path, value=None, message=message, allowed='"gpus=8 tp8: 15.2 s"')
            )
        found.append(replace(one, asked=told))
    return tuple(found)


def notes_of(rows: Sequence[Measurement]) -> tuple[str, ...]:
    """Where each run was measured, and what was stated on the way of reading it."""
    places = dict.fromkeys(str(one.asked.get("system", "")) for one in rows)
    said = [f"measured: {one.source}: {note}" for one in rows for note in one.notes]
    told = f"measured runs of {', '.join(places)} bear on every system, less on another chip"
    return (told, *said) if rows else ()


def training_rows(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Those of a training step."""
    return tuple(one for one in rows if not any(name in SERVED for name in one.values))


def serving_rows(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Those of a service."""
    return tuple(one for one in rows if any(name in SERVED for name in one.values))
