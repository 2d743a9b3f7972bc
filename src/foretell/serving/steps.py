"""Seconds of one step of an engine, for any number of loads at once.

    step = max(factor x device, floor) + host      device = tokens + experts + attention + head + exchanges

What depends on the number of tokens alone, on decoding sequences and their contexts, and on prompts and
their pasts is tabulated once for a deployment (serving/tables.py); a step is then a few look-ups. All loads
broadcast; `StepTimes.lookup` gives the same numbers one by one, in plain Python, for simulators.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.specs._base import Num

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What one step of an instance does; numbers or arrays that broadcast."""

    decoding: Num = 0.0
    """Sequences that get one more token."""
    context_tokens: Num = 0.0
    """Tokens in the caches of all of these together."""
    prefill_tokens: Num = 0.0
    """Prompt tokens of this step, over all prompts in it."""
    past_tokens: Num = 0.0
    """Tokens of the same prompts that earlier steps (or a prefix cache) left in the cache."""
    prompts: Num = 0.0
    """Prompts that these tokens are of, chunks included; at least 1 where there are such tokens."""
