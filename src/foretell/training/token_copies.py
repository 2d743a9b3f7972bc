"""What PyTorch's DTensor adds to tensor-parallel exchanges: copies, formats, and ends that are not cut.

Tokens are the second dim of its activations, and collectives join ranks along the first: behind a gather the
ranks' parts are laid side by side (chunk and cat), before a scatter they are laid out so, each a copy of all
tokens (torch.distributed, `_functional_collectives.py`).

Asynchronous tensor parallelism (`torch/_inductor/fx_passes/micro_pipeline_tp.py`) cuts a gather that feeds
one product or several, and a scatter of what one product makes. So stay whole:

    enter_scatter   backward, where maps of one input are products of their own: it scatters their sum
    gathers         of products scaled by row or block: between gather and product is the cast
                    (pytorch issue 149990; their scatters are cut)

What comes in pieces lies with its tokens first: for the weights' gradients, which take all tokens of a batch
as rows, it is laid out once more, and the parts of a sum are read once more to add them up.

Gathers travel in 8 bits where products are scaled by tensor: what enters a region is cast before it
(torchtitan, `enable_float8_tensorwise_tp`); by row or block they travel in 16.
"""

import numpy as np

from foretell.kernels.precision import linear_format
from foretell.specs.arrays import Array, Index
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan
from foretell.specs.software import Software
from foretell.training.part_costs import Parts
from foretell.training.tensor_exchanges import GATHERS, SCATTERS, EndTimes

COPY_SHARE = 0.8
"""Share of the memory bandwidth that copies reach."""
NARROW = 0.5
"""Bytes of a gather in 8 bits over those in 16."""


def copy_s(sizes: Array, parts: Parts, shape: Index, chip: Chip) -> Array:
    """Seconds in which so many bytes are read and written once; none where tokens are whole."""
    wide = np.size(parts.shape.tp)
    bandwidth = np.broadcast_to(chip.memory_bandwidth_bytes_per_s, wide)[shape][:, None]
    cut = np.broadcast_to(parts.shape.tp, wide)[shape][:, None] > 1.0
    return np.asarray(cut * 2.0 * sizes / (COPY_SHARE * bandwidth))


def by_tensor(plan: Plan) -> bool:
    """Whether products are in 8 bits with one scale for a tensor."""
    return plan.precision == "fp8" and plan.scaling == "tensor"


def gathered_share(parts: Parts, plan: Plan, software: Software) -> Array:
    """Bytes gathered over those in 16 bits: of what enters parts, of what leaves them, of a stage's input."""
    many = len(parts.names)
    share = np.ones(2 * many + 1)
    if software.sequence_copies and by_tensor(plan):
        layer = np.arange(many) < parts.kinds
        share[:-1] = np.tile(np.where(layer, NARROW, 1.0), 2)
    return share


def whole_ends(plan: Plan, software: Software) -> tuple[str, ...]:
    """Ends, by their names in EndTimes, whose exchanges no pieces hide though others run so."""
    if not software.sequence_copies:
        return ()
    ends = ("enter_scatter",) if software.maps_apart else ()
    cast_between = linear_format(plan) is not None and not by_tensor(plan)
    return (*ends, *GATHERS) if cast_between else ends


def left_copies(copied: EndTimes, whole: tuple[str, ...]) -> EndTimes:
    """Of all copies, those beside exchanges in pieces: whole ends, what is gathered for weights' gradients,
    and half of a copy for a sum. An entry's gather is laid out once, backward: with its scatter here."""
    enter = 0.0 if "enter_gather" in whole else 1.0
    leave, back = (1.0 if name in whole else 0.5 for name in SCATTERS)
    return EndTimes(
        enter_gather=(1.0 - enter) * copied.enter_gather,
        leave_scatter=leave * copied.leave_scatter,
        enter_scatter=back * copied.enter_scatter + enter * copied.enter_gather,
        leave_gather=copied.leave_gather,
    )
