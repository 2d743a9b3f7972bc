"""Pipeline schedules: what each of them says (base.py), and the files that are found in orders/."""

from functools import cache
from importlib import import_module

from foretell.errors import bad_input, nearest_name
from foretell.schedules.base import Schedule
from foretell.specs.schedule_words import schedule_modules

__all__ = ["Schedule", "schedule_named", "schedules"]


def schedules() -> tuple[Schedule, ...]:
    """All that a plan can name."""
    return tuple(schedule_named(name) for name in schedule_modules())


@cache
def schedule_named(name: str) -> Schedule:
    """The schedule of a plan's word; its file is read when it is first asked for."""
    files = schedule_modules()
    if name in files:
        found: Schedule = import_module(f"{__name__}.orders.{files[name]}").SCHEDULE
        return found
    raise bad_input(
        "plan.schedule", name, "not a choice", ", ".join(files), nearest_name(name, tuple(files))
    )
