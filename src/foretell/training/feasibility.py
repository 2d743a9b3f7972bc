"""Whether a plan fits in a chip's memory: the one verdict that estimate, search, memory, sweeps,
post-training and the rule that fills in recomputation ask for. What a framework can run: frameworks.py.

    yes         what the process holds is below CLOSE_SHARE of the memory
    too_close   the tensors, with driver context and communicators, fit as well as they are known, but what
                the allocator usually loses beside them leaves little room, or none
    no          not even the tensors fit

The allocator's loss alone never makes a no: PyTorch gives cached blocks back before it fails. More memory
never makes a verdict worse, and fewer bytes never do.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import get_args

import numpy as np

from foretell.kernels.memory import HeldBytes
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array, Index
from foretell.specs.result import Fits

CLOSE_SHARE = 0.9
"""Above this share of the chip's memory the answer is borderline."""
TENSOR_ERROR = 0.03
"""Share by which tensors are known: 97 % of the peaks of lab/validate/own_transformers.csv are met to it."""
VERDICTS: tuple[Fits, ...] = ("yes", "too_close", "no")
"""By their codes."""
YES, TOO_CLOSE, NO = range(len(VERDICTS))
assert {*VERDICTS} == {*get_args(Fits)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTotals:
    """What a ranking needs of each plan; arrays over the plans."""

    step_s: Array
    """Step times."""
    held: HeldBytes
    """What they hold at their peaks."""

    def columns(self) -> list[Array]:
        """Every array, in one order."""
        return [self.step_s, *(np.asarray(getattr(self.held, f.name)) for f in fields(HeldBytes))]

    def put(self, rows: Index, found: "PlanTotals") -> None:
        """Fill in some rows."""
        for mine, theirs in zip(self.columns(), found.columns(), strict=True):
            mine[rows] = theirs

    def take(self, rows: Index) -> "PlanTotals":
        """Some of the plans, in this order."""
        return _totals([column[rows] for column in self.columns()])


def empty_totals(many: int) -> PlanTotals:
    """Totals of so many plans, to be filled in."""
    return _totals([np.empty(many) for _ in range(1 + len(fields(HeldBytes)))])


def join_totals(parts: Sequence[PlanTotals]) -> PlanTotals:
    """Totals of several batches as one."""
    every = zip(*(one.columns() for one in parts), strict=True)
    return _totals([np.concatenate(column) for column in every]) if parts else empty_totals(0)


def _totals(columns: Sequence[Array]) -> PlanTotals:
    names = [f.name for f in fields(HeldBytes)]
    held = HeldBytes(**dict(zip(names, columns[1:], strict=True)))
    return PlanTotals(step_s=columns[0], held=held)


def verdict_codes(held: HeldBytes, capacity_bytes: Num) -> Index:
    """The verdict on each plan, as its place in VERDICTS."""
    clear = np.asarray(held.peak_bytes) <= CLOSE_SHARE * np.asarray(capacity_bytes)
    tensors_fit = np.asarray(held.least_bytes) <= (1.0 + TENSOR_ERROR) * np.asarray(capacity_bytes)
    return np.where(clear, YES, np.where(tensors_fit, TOO_CLOSE, NO))


def memory_verdict(held: HeldBytes, capacity_bytes: float) -> Fits:
    """The verdict on one plan."""
    return VERDICTS[int(verdict_codes(held, capacity_bytes))]
