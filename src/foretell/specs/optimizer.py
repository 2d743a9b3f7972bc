"""What one optimizer keeps and does for a weight, as one record."""

from typing import Annotated, Literal

from foretell.records import dataclass
from foretell.specs.ranges import Ge, Le

Amount = Annotated[float, Ge(0), Le(1e12)]
"""A number not below zero."""
Factor = Annotated[float, Ge(1e-6), Le(1e6)]
"""A number above zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One optimizer, as a plan names it (`optimizer=`); `matrix_`: for a weight of a matrix."""

    id: str
    """Word of a plan."""
    states: Amount
    """States of a weight that is in no matrix."""
    matrix_states: Amount
    """States of a weight in a matrix."""
    edge_states: Amount = 0.0
    """States of a row and of a column of a matrix."""
    state_bytes: Amount = 0.0
    """Bytes of a state with its share of a scale; 0: by the plan's dtype of states."""
    flop: Amount
    """Plain operations of one weight's update, conversions and addresses included."""
    reads: Amount = 0.0
    """Reads of the gradient beyond the first."""
    matrix_bytes: Amount = 0.0
    """Bytes of further passes over a weight of a matrix."""
    products: Literal["", "newton-schulz", "kronecker"] = ""
    """Matrix products of an update: Newton-Schulz steps that make a momentum orthogonal, or factors of blocks
    that are summed and applied."""
    passes: Factor = 1.0
    """Time of the update over that of one fused kernel: foreach kernels run operation after operation."""

    @property
    def uniform(self) -> bool:
        """Whether matrices are treated like everything else."""
        return self.states == self.matrix_states and not (self.products or self.edge_states)
