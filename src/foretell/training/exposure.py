"""Which share of data-parallel messages shows though a pass could hide it: by plan or software.

grad_overlap    reductions of gradients; auto: `Software.overlap_stage`
param_overlap   gathers of weights; auto: the same, or all of them after an update (`gather_waits`)
"""

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.plan import Plan
from foretell.specs.software import Software
from foretell.training.data_parallel import Messages
from foretell.training.shapes import sum_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Shares of messages that are waited for whatever could hide them; numbers, or (plans, 1)."""

    reductions: Num
    """Of reductions of gradients."""
    gathers: Num
    """Of gathers of weights forward, or after the update."""
    gathers_again: Num
    """Of gathers backward."""

    def together(self, messages: list[Messages]) -> Num:
        """Of reductions that have a gather with them, by the seconds of each."""
        if self.gathers_again is self.reductions:
            return self.reductions
        again_s = sum_of([m.pieces * m.again_s for m in messages])
        both_s = sum_of([m.pieces * m.reduce_s for m in messages])
        more = self.gathers_again - self.reductions
        return self.reductions + more * again_s / np.maximum(both_s, 1e-30)


def exposure_of(plan: Plan, software: Software, zero: Num) -> Exposure:
    """As the plan's words have it, else as its software, which may go by the ZeRO stage."""
    late = np.asarray(zero) < software.overlap_stage
    own: Num = np.where(late, 1.0, 0.0)
    # What ZeRO 3 gathers is gathered in the passes.
    waits = software.gather_waits & (np.asarray(zero) < 3)
    after: Num = np.where(waits, 1.0, own)

    def share(word: str, usual: Num) -> Num:
        return {"on": 0.0, "off": 1.0}.get(word, usual)

    return Exposure(
        reductions=share(plan.grad_overlap, own),
        gathers=share(plan.param_overlap, after),
        gathers_again=share(plan.param_overlap, own),
    )
