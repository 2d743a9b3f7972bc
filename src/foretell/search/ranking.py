"""Which of several systems is best, and how sure that is: errors drawn together, what is shared drawn once.

Time. A prediction for one workload errs by z x half-width (one width for what takes less, one for more),
z normal. Of its variance a share is common to all systems that run the workload with the same software, a
further share to chips of one architecture, and the rest is a system's own. Of published runs of one model
from one source on two chips, predictions differed by 9.4 % (24 pairs of 5 sources, architectures apart) and
7.6 % (4 pairs, one architecture), where means by source, model and chip spread by 10.3 %: so that
1 - 0.094^2 / (2 x 0.103^2) = 0.58 and 0.73 of the variance are shared. Of services, one source with 35 pairs,
the same numbers are 7.6 %, 3.4 % and 6.4 %: 0.29 and 0.85. Two systems share no more than the surer of them
errs: what makes a prediction wider than that (kernels or a fabric that nobody has measured) is its own.

Money. Every figure is drawn once for all systems (interest, years, electricity, margins), except what
belongs to one of them: the price of its node or its rent, and the draw of its chips.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.specs.arrays import Array

TRAINED = (0.55, 0.15)
"""Of a training step: share of the variance that all systems have in common, and the further share that
chips of one architecture have; rounded down."""
SERVED = (0.25, 0.55)
"""The same of a service."""
DRAWS = 20_000
"""Cases that are drawn."""
Z90 = 1.6448536269514722
"""Standard deviations to either end of nine cases in ten."""
CERTAIN = 0.9
"""Probability from which a ranking is called certain, as of two plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemWorkload:
    """One workload of one system."""

    workload: str
    """Which."""
    share: float
    """Its share of the mix's tokens."""
    seconds: float
    """Chip-seconds of a token."""
    usd: float
    """What a token costs."""
    less: float
    """ln(low end / expected) of its time, nine cases in ten: not above 0."""
    more: float
    """ln(high end / expected): not below 0."""
    shared: tuple[float, float] = TRAINED
    """Of the variance of its time, what all systems share, and what chips of one architecture do besides."""
    figures: Mapping[str, tuple[float, float]]
    """Of each figure of money, what its low and its high end change the price by, as shares of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A system that is compared."""

    name: str
    """What it is called."""
    architecture: str
    """Generation of its chip."""
    parts: tuple[SystemWorkload, ...]
    """Its workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemDraws:
    """Cases of each system, one a column."""

    seconds: Array
    """Chip-seconds of a token of the mix; (systems, draws)."""
    usd: Array
    """What it costs; (systems, draws)."""


def draw(systems: Sequence[Contender], seed: int = 0, many: int = DRAWS) -> SystemDraws:
    """Times and prices of all systems, errors that they share drawn once."""
    chance = _Chance(seed, many)
    seconds, usd = np.zeros((len(systems), many)), np.zeros((len(systems), many))
    surest = _surest(systems)
    for place, system in enumerate(systems):
        for part in system.parts:
            factor = np.exp(_time(part, system, surest[part.workload], chance))
            money = np.zeros(many)
            for path, ends in part.figures.items():
                money += _two_sided(chance(key_of(path, system)), *_logs(ends))
            seconds[place] += part.share * part.seconds * factor
            usd[place] += part.share * part.usd * factor * np.exp(money)
    return SystemDraws(seconds=seconds, usd=usd)


def beats(values: Array) -> Array:
    """Of each pair, how often the first has less than the second; ties count half; (systems, systems)."""
    less = (values[:, None] < values[None]).mean(axis=2)
    same = (values[:, None] == values[None]).mean(axis=2)
    return np.asarray(less + 0.5 * same)


def spread_of(values: Array, base: float) -> dict[str, tuple[float, float]]:
    """p50 and p90 of cases, each holding the expected value."""
    found = {}
    for name, ends in (("p50", (25, 75)), ("p90", (5, 95))):
        low, high = np.percentile(values, ends)
        found[name] = (min(float(low), base), max(float(high), base))
    return found


def doubts(first: Contender, second: Contender, *, money: bool) -> list[tuple[str, float]]:
    """What makes it doubtful which of two is better: half-widths of ln(first / second), largest first."""
    found: dict[str, float] = {}
    both = (first, second)
    for a in first.parts:
        b = next(part for part in second.parts if part.workload == a.workload)
        alike = first.architecture == second.architecture
        surest = min(_width(a), _width(b))
        rho = a.shared[0] + (a.shared[1] if alike else 0.0)
        for system, part in zip(both, (a, b), strict=True):
            own = max(_width(part) ** 2 - rho * surest**2, 0.0) ** 0.5
            named = f"{a.workload} on " if a.workload else ""
            found[f"speed of {named}{system.name}"] = part.share * own
    if money:
        changes = [_weighed(system) for system in both]
        for path in {*changes[0], *changes[1]}:
            mine = [_halved(change.get(path, (0.0, 0.0))) for change in changes]
            if key_of(path, first) == key_of(path, second):
                found[path] = abs(mine[0] - mine[1])
            else:
                found |= {f"{path} of {s.name}": abs(by) for s, by in zip(both, mine, strict=True)}
    return sorted(((name, by) for name, by in found.items() if by > 0.0), key=lambda one: -one[1])


def key_of(path: str, system: Contender) -> str:
    """Who shares a figure: all systems, or one alone for its own price, rent and draw."""
    own = path.startswith(("system.", "rent.", "work."))
    return f"{system.name}: {path}" if own else path


class _Chance:
    """Normal draws by name, the same whatever the order in which they are asked for."""

    def __init__(self, seed: int, many: int) -> None:
        self.seed, self.many, self.known = seed, many, dict[str, Array]()

    def __call__(self, key: str) -> Array:
        if key not in self.known:
            words = [self.seed, *key.encode()]
            self.known[key] = np.random.default_rng(words).standard_normal(self.many)
        return self.known[key]


def _surest(systems: Sequence[Contender]) -> dict[str, float]:
    """Of each workload, the smallest half-width of any system."""
    found: dict[str, float] = {}
    for part in (part for system in systems for part in system.parts):
        found[part.workload] = min(found.get(part.workload, np.inf), _width(part))
    return found


def _width(part: SystemWorkload) -> float:
    return 0.5 * (part.more - part.less)


def _time(part: SystemWorkload, system: Contender, surest: float, chance: _Chance) -> Array:
    """ln(time / expected) of one workload."""
    name, width = part.workload, _width(part)
    known = (surest / width) ** 2 if width > 0.0 else 0.0
    common, kindred = (share * known for share in part.shared)
    z = (
        common**0.5 * chance(f"time of {name}")
        + kindred**0.5 * chance(f"time of {name} on {system.architecture}")
        + (1.0 - common - kindred) ** 0.5 * chance(f"time of {name} on {system.name}")
    )
    return _two_sided(z, part.less, part.more)


def _two_sided(z: Array, less: float, more: float) -> Array:
    """z times what its side changes at the end of nine cases in ten: `less` below 0, `more` above."""
    return np.asarray(np.where(z < 0.0, -less * z, more * z) / Z90)


def _logs(ends: tuple[float, float]) -> tuple[float, float]:
    """Changes as logarithms: a price stays above 0, and what is shared cancels in a ratio of two."""
    low, high = (float(np.log(max(1.0 + end, 1e-3))) for end in ends)
    return low, high


def _weighed(system: Contender) -> dict[str, tuple[float, float]]:
    """Changes by figure over the mix, weighed by what each workload costs."""
    whole = sum(part.share * part.usd for part in system.parts)
    found: dict[str, tuple[float, float]] = {}
    for part in system.parts:
        weight = part.share * part.usd / whole
        for path, (low, high) in part.figures.items():
            so_far = found.get(path, (0.0, 0.0))
            found[path] = (so_far[0] + weight * low, so_far[1] + weight * high)
    return found


def _halved(ends: tuple[float, float]) -> float:
    """Half of what a figure moves the logarithm of a price by, from its low to its high end."""
    low, high = _logs(ends)
    return 0.5 * (high - low)
