"""How much a pass and a collective beside it hold each other up.

Links are shared evenly (max-min fairness, network/topologies/sharing.py). While a collective is under way

    kernels have the cores that the collective leaves them: they take 1 / (1 - held share) as long
    an exchange of the pass and the collective share the links that both use, also one that kernels hide,
    as far as its slack does not take that up

A framework that lets them run side by side only in part has both stand still for the rest (`apart_share`). A
pass alternates between kernels and exchanges many times, so both are taken at their mean over it.
"""

import numpy as np

from foretell.network.topologies.sharing import fair_rates
from foretell.simulation.program import Pass, Program

Use = tuple[float, ...]


def shared_rates(one: Use, other: Use) -> tuple[float, float]:
    """Rates of two flows, over their own, that take these shares of the links' time alone."""
    if not one or not other:
        return 1.0, 1.0
    uses = np.array([one, other]).T
    rates = fair_rates(uses, np.ones(len(uses)), np.ones(2))
    return float(rates[0]), float(rates[1])


class Contention:
    """Slowdown of passes and of the collectives beside them, each case computed once."""

    def __init__(self, program: Program) -> None:
        """Rates of every pair of an exchange and a group."""
        self.program = program
        held = [min(share, 0.95) for share in program.held_cores]
        self.longer = [share / (1.0 - share) for share in held] or [0.0] * len(program.group_use)
        self.exchange_rates = [
            [shared_rates(use, group) for use in program.exchange_use]
            for group in program.group_use
        ]
        self.send_rates = [shared_rates(program.send_use, group) for group in program.group_use]
        self._known: dict[tuple[int, int], tuple[float, float]] = {}

    def of_pass(self, work: Pass, group: int) -> tuple[float, float]:
        """How much longer a pass takes beside a collective of a group, and that collective's rate."""
        key = id(work), group
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._of_pass(work, group)
        return found

    def _of_pass(self, work: Pass, group: int) -> tuple[float, float]:
        alone = work.alone_s
        if alone <= 0.0:
            return 1.0, 1.0
        products_s = (1.0 + self.longer[group]) * (work.chip_s + work.moved_s) + work.wait_s
        # Copies into and out of messages come in turn with these.
        wall_s, served_s = products_s, products_s - (1.0 + self.longer[group]) * work.moved_s
        rates = self.exchange_rates[group] if self.exchange_rates else []
        for seconds, (own, other) in zip(work.exchange_s, rates, strict=False):
            wall_s += seconds / own
            served_s += seconds / own * other
        behind = zip(work.hidden_s, work.slack_s, rates, strict=False)
        for seconds, slack_s, (own, other) in behind:
            shown_s = max(seconds / own - seconds - slack_s, 0.0)
            wall_s += shown_s
            served_s += shown_s - seconds / own * (1.0 - other)
        beside = 1.0 - min(self.program.apart_share, 0.95)
        return wall_s / alone / beside, beside * served_s / wall_s

    def of_send(self, group: int) -> tuple[float, float]:
        """The same for a send to another rank."""
        own, other = self.send_rates[group] if self.send_rates else (1.0, 1.0)
        return 1.0 / own, other
