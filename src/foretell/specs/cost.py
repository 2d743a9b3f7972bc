"""Figures that cost something to know, and trees of money whose leaves sum."""

from collections.abc import Iterator

from foretell.records import as_json, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number with its range and where it comes from."""

    path: str
    """Where it is: processes.N5.wafer_usd."""
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

    to_dict = as_json("name", "value", "unit", "evidence", "low", "high", "note", "children")


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
