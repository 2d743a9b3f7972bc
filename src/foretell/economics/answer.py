"""An answer in money: a sum, its tree, and what moves it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from foretell.records import Answer, JsonRecord, dataclass, made_when_asked
from foretell.specs.cost import CostLeaf, Driver
from foretell.uncertainty.intervals import of_ranges


@made_when_asked("breakdown", "trees", "drivers")
@dataclass(frozen=True, slots=True, kw_only=True)
class CostAnswer(JsonRecord, Answer):
    """What something costs."""

    verb = "cost"

    what: str
    """chip, package or system."""
    name: str
    """Which one."""
    usd: float
    """The whole."""
    low_usd: float
    """Low end."""
    high_usd: float
    """High end."""
    breakdown: CostLeaf
    """The whole as a tree."""
    facts: Mapping[str, Any]
    """Numbers on the way that are not money: dies per wafer, yields, areas, counts; and prices beside."""
    trees: Mapping[str, CostLeaf] = field(default_factory=dict)
    """Other sums: by the year, by the hour."""
    drivers: tuple[Driver, ...] = ()
    """Inputs that move the answer, most first."""
    assumptions: tuple[str, ...] = ()
    """What was filled in."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """What was set by hand."""
    work_intervals: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    """Intervals of numbers of the work that is paid for: a step's, a service's."""

    @property
    def intervals(self) -> dict[str, Any]:
        """p50 and p90 of every number with a range, by its name (uncertainty/intervals.py)."""
        whole = {"usd": self.usd, "low_usd": self.low_usd, "high_usd": self.high_usd}
        return {**self.work_intervals, **of_ranges({**whole, **self.facts})}

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON."""
        return {
            "what": self.what,
            "name": self.name,
            "usd": self.usd,
            "low_usd": self.low_usd,
            "high_usd": self.high_usd,
            **self.facts,
            "intervals": self.intervals,
            "breakdown": self.breakdown.to_dict(),
            **{name: tree.to_dict() for name, tree in self.trees.items()},
            "drivers": [
                {name: getattr(driver, name) for name in driver.__slots__}
                for driver in self.drivers
            ],
            "assumptions": list(self.assumptions),
            "overrides": dict(self.overrides),
        }
