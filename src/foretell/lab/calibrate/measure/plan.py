"""Which points there are and in which order: every group gets its share of the time, coarse points first."""

from collections.abc import Iterable, Mapping
from types import ModuleType

from foretell.lab.calibrate.measure import (
    attention,
    collectives,
    copies,
    gemm,
    launch,
    pointwise,
)
from foretell.lab.calibrate.measure.file import HostMachine, MeasurePoint

GROUPS: Mapping[str, ModuleType] = {
    "launch": launch,
    "copies": copies,
    "gemm": gemm,
    "attention": attention,
    "pointwise": pointwise,
    "collectives": collectives,
}
"""Groups by name; each has `points(host)`, and all but collectives `work(point, bench)`."""
SHARES: Mapping[str, float] = {
    "launch": 0.03,
    "copies": 0.08,
    "gemm": 0.40,
    "attention": 0.28,
    "pointwise": 0.21,
    "collectives": 1.0,
}
"""Share of the time; what a group does not need goes to the others."""


def points(host: HostMachine, only: Iterable[str] = ()) -> list[MeasurePoint]:
    """All points of some groups, or of all that go together.

    Several processes measure collectives. Groups that are named they measure too, all at the same time: what
    a kernel takes while the neighbours are busy.
    """
    alone = set(GROUPS) - {"collectives"}
    wanted = set(only) or ({"collectives"} if host.world > 1 else alone)
    if host.world < 2:
        wanted &= alone
    found = [
        point
        for name, module in GROUPS.items()
        if name in wanted
        for point in module.points(host)
        if not _deadly(point, host)
    ]
    return list({point.key: point for point in reversed(found)}.values())[::-1]


def _deadly(point: MeasurePoint, host: HostMachine) -> bool:
    """Instructions that a host may lack end a process, and with it all the others: they are left out."""
    return host.world > 1 and host.device == "cpu" and point.dtype != "fp32"


class Queue:
    """What is left to measure, and which group is next."""

    def __init__(self, todo: Iterable[MeasurePoint], spent_s: Mapping[str, float]) -> None:
        self._todo: dict[str, list[MeasurePoint]] = {}
        for point in sorted(todo, key=lambda point: (point.level, point.mode == "sustained")):
            self._todo.setdefault(point.group, []).append(point)
        self.spent_s = {name: spent_s.get(name, 0.0) for name in GROUPS}
        self._seen_s: dict[tuple[str, str, str], float] = {}
        self._late = 0

    def __len__(self) -> int:
        """Points not taken, for want of time too."""
        return self._late + sum(len(some) for some in self._todo.values())

    def next(self, left_s: float) -> MeasurePoint | None:
        """The next point of the group that is furthest behind its share, if it is likely to end in time."""
        while self._todo:
            name = min(self._todo, key=lambda group: self.spent_s[group] / SHARES[group])
            for index, point in enumerate(self._todo[name]):
                if self._likely_s(point) <= left_s:
                    del self._todo[name][index]
                    if not self._todo[name]:
                        del self._todo[name]
                    return point
            self._late += len(self._todo.pop(name))
        return None

    def _likely_s(self, point: MeasurePoint) -> float:
        return max(point.cost_s, self._seen_s.get(_kind(point), 0.0))

    def took(self, point: MeasurePoint, seconds: float) -> None:
        """Note what a point took."""
        self.spent_s[point.group] += seconds
        self._seen_s[_kind(point)] = seconds


def _kind(point: MeasurePoint) -> tuple[str, str, str]:
    return (point.family, point.mode, point.launch)
