"""Figures that cost something to know, and answers in money: trees whose leaves sum."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from importlib import import_module
from typing import Any

from foretell.records import Told, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its range and where it comes from."""

    path: str
    """Where it stands: processes.N5.wafer_usd."""
    value: float
    """The one that is used."""
    low: float
    """Low end of what is printed; the value where there is but one."""
    high: float
    """High end."""
    source: str = ""
    """Citation."""
    status: str = ""
    """datasheet, measured, published, inferred or recalled; `set` where it was set by hand."""
    date: str = ""
    """When it held."""
    note: str = ""
    """What else there is to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLeaf:
    """A named part of a sum of money; a node's value is the sum of its children's."""

    name: str
    """What it is paid for."""
    value: float
    """How much."""
    low: float
    """Low end: what each input's range takes off, added as squares."""
    high: float
    """High end."""
    unit: str = "USD"
    """USD, USD/h, USD/year."""
    evidence: str | None = None
    """Status of the figure whose range moves it most; none where no figure does."""
    note: str = ""
    """How many of what, or which formula."""
    children: tuple["CostLeaf", ...] = ()
    """What it is made of; none for a leaf."""

    def leaves(self) -> Iterator["CostLeaf"]:
        """All ends of the tree."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def find(self, *names: str) -> "CostLeaf":
        """The part that a path of names leads to; KeyError where there is none."""
        if not names:
            return self
        for child in self.children:
            if child.name == names[0]:
                return child.find(*names[1:])
        raise KeyError(names[0])

    def to_dict(self) -> dict[str, Any]:
        """The tree as JSON."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "evidence": self.evidence,
            "low": self.low,
            "high": self.high,
            "note": self.note,
            "children": [child.to_dict() for child in self.children],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """One input's part in the range of an answer."""

    path: str
    """The figure, as `--set prices.PATH=` takes it."""
    value: float
    """What it was taken as."""
    low: float
    """Its low end."""
    high: float
    """Its high end."""
    usd_at_low: float
    """The answer with the low end."""
    usd_at_high: float
    """The answer with the high end."""
    source: str
    """Where it comes from."""
    date: str
    """When it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAnswer(Told):
    """What something costs."""

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
        """p50 and p90 of every number with a range, by its name (foretell/intervals.py)."""
        whole = {"usd": self.usd, "low_usd": self.low_usd, "high_usd": self.high_usd}
        ranges = import_module("foretell.uncertainty.intervals").of_ranges({**whole, **self.facts})
        return {**self.work_intervals, **ranges}

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
