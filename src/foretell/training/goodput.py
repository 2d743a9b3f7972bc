"""Goodput of a run that fails, restarts and writes checkpoints: closed form, best interval, simulation.

Failures come at random with rate f. After each, a restart of R seconds (begun anew by a failure inside it),
then steps; after every tau seconds of steps the chips wait c seconds for a checkpoint, which is safe w
seconds later (0 where they wait until it is written). What was done since the last safe one is done again.
By renewal and reward, from failure to failure:

    work kept   tau x sum over n of P(no failure before n (tau + c) + w)
                    = tau exp(-f w) / (exp(f (tau + c)) - 1)
    time        exp(f R) / f

    goodput = f tau exp(-f (w + R)) / (exp(f (tau + c)) - 1)

which is Daly's complete model (Future Generation Computer Systems 22, 2006) with w for writing behind the
steps. It is exact for long runs, and a product of three shares:

    tau / (tau + c)  x  f (tau + c) exp(-f w) / (exp(f (tau + c)) - 1)  x  exp(-f R)
    checkpoints         work done again                                   restarts

The best tau solves 1 - f tau = exp(-f (tau + c)) exactly; Young's sqrt(2 c / f) is its first term. A write
must end before the next begins, so tau + c is at least w: goodput rises up to the best tau and falls beyond,
so that the nearest allowed one is the best.
"""

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array

STEPS = 40
"""Newton steps to the best interval; each doubles the digits once near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruptions:
    """What interrupts a run; numbers, or arrays that broadcast."""

    failures_per_s: Num
    """Of the whole job."""
    restart_s: Num
    """From a failure to the next step."""
    wait_s: Num
    """What the chips wait for each checkpoint."""
    write_s: Num = 0.0
    """From the end of that wait until it is safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Shares of the time; their product is the goodput."""

    checkpoint_share: Array
    """What waiting for checkpoints leaves."""
    rework_share: Array
    """What work done again leaves."""
    restart_share: Array
    """What restarts leave."""

    @property
    def goodput(self) -> Array:
        """Share of the time in steps whose work is kept."""
        return self.checkpoint_share * self.rework_share * self.restart_share


def goodput(interval_s: Num, given: Interruptions) -> Goodput:
    """Shares for checkpoints after every `interval_s` of steps; inf means none at all."""
    rate = np.asarray(given.failures_per_s, float)
    tau = np.asarray(interval_s, float)
    never = np.isinf(tau)
    tau = np.where(never, 1.0, tau)
    period = tau + given.wait_s
    x = rate * period
    # x / (e^x - 1), 1 at 0 and 0 far out.
    lost = np.where(x > 1e-12, x / np.expm1(np.clip(x, 1e-12, 700.0)), 1.0)
    lost = lost * np.exp(-rate * given.write_s)
    return Goodput(
        checkpoint_share=np.where(never, 1.0, tau / period),
        rework_share=np.where(never, rate <= 0.0, lost),
        restart_share=np.exp(-rate * given.restart_s),
    )


def best_interval_s(given: Interruptions) -> Array:
    """The interval of most goodput; inf where nothing fails.

    Newton on h(x) = x - 1 + exp(-(x + b)), x = f tau, b = f c, which is convex: from x = 1, where
    h > 0, it comes down to the root without passing it.
    """
    rate = np.asarray(given.failures_per_s, float)
    b = rate * np.asarray(given.wait_s, float)
    x = np.ones_like(b)
    for _ in range(STEPS):
        fall = np.exp(-(x + b))
        x = np.maximum(x - (x - 1.0 + fall) / np.maximum(1.0 - fall, 1e-300), 0.0)
    least = np.maximum(given.write_s - np.asarray(given.wait_s, float), 0.0)
    safe = np.where(rate > 0.0, rate, 1.0)
    return np.where(rate > 0.0, np.maximum(x / safe, least), np.inf)
