"""What the CPU and the driver of a machine take to start work on its chips, as one record."""

from typing import Annotated

from foretell.records import dataclass
from foretell.specs.ranges import Ge, Le

Amount = Annotated[float, Ge(0), Le(1e12)]
"""A number not below zero."""
Factor = Annotated[float, Ge(1e-6), Le(1e6)]
"""A number above zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The host of a chip: seconds of the machine it was measured on, over `chip.host_speed` elsewhere."""

    operation_s: Amount
    """One operation of PyTorch forward beside its launches: modules, dispatch, the graph of gradients."""
    kernel_s: Amount
    """One launch of a kernel."""
    backward: Factor
    """Time of an eager operation backward over that forward."""
    collective_s: Amount
    """One collective through torch.distributed: checks, events, a launch."""
    step_s: Amount
    """What each step takes beside its work: the next batch, logging, waiting for the loss."""
    spread: Factor = 1.0
    """Range of these over machines: the slow end over the fast."""
