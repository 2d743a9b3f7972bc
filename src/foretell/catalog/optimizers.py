"""Optimizers by their word in a plan: optimizers.toml."""

from functools import lru_cache

from foretell.catalog.files import ROOT, read_table
from foretell.catalog.hosts import values_of
from foretell.specs.optimizer import Optimizer

FILE = ROOT / "optimizers.toml"
"""What each keeps and does, with sources."""


@lru_cache(maxsize=1)
def optimizers() -> dict[str, Optimizer]:
    """Every optimizer by its word."""
    return {raw["id"]: Optimizer(**values_of(raw)) for raw in read_table(FILE)["optimizer"]}


def optimizer_of(word: str) -> Optimizer:
    """The optimizer of a plan's word."""
    return optimizers()[word]
