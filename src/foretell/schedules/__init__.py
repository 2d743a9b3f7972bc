"""Pipeline schedules: one file each, in closed form and as an order of tasks."""

from foretell.errors import BadInput, Problem, nearest_name
from foretell.schedules.base import Schedule
from foretell.schedules.dualpipe import DUALPIPE
from foretell.schedules.gpipe import GPIPE
from foretell.schedules.interleaved import INTERLEAVED
from foretell.schedules.one_f_one_b import ONE_F_ONE_B
from foretell.schedules.zero_bubble import ZB_H1, ZB_V

SCHEDULES: tuple[Schedule, ...] = (ONE_F_ONE_B, INTERLEAVED, GPIPE, ZB_H1, ZB_V, DUALPIPE)
"""All that a plan can name."""


def schedule_named(name: str) -> Schedule:
    """The schedule of a plan's word."""
    for schedule in SCHEDULES:
        if schedule.name == name:
            return schedule
    names = [schedule.name for schedule in SCHEDULES]
    raise BadInput(
        [
            Problem(
                path="plan.schedule",
                value=name,
                message="not a choice",
                allowed=", ".join(names),
                nearest=nearest_name(name, names),
            )
        ]
    )
