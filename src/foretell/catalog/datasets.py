"""Public data sets of fine-tuning: how long their examples are."""

from functools import lru_cache

from foretell.catalog.files import ROOT, Table, read_table
from foretell.records import dataclass

FILE = ROOT / "datasets.toml"
"""Every data set that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleLengths:
    """Tokens of the examples of a data set."""

    mean: float
    """Of all."""
    longest: int
    """Of the longest."""


def dataset_names() -> tuple[str, ...]:
    """Every data set."""
    return tuple(_table()["set"])


def example_lengths(name: str) -> ExampleLengths | None:
    """Lengths of a data set's examples; None where it is not known."""
    found = _table()["set"].get(name.lower())
    if found is None:
        return None
    return ExampleLengths(
        mean=float(found["mean"]["value"]), longest=int(found["longest"]["value"])
    )


@lru_cache(maxsize=1)
def _table() -> Table:
    return read_table(FILE)
