"""What a result would be on systems that differ in one number each: a batch of systems, one evaluation.

The batch is the same plan over and over, with arrays over its rows in the system's numbers, so that every
formula runs once for all systems. From it come elasticities, d ln(result) / d ln(number), by central
differences, and finite what-ifs. The plan is held: nothing is searched again.

Seconds are homogeneous: with every rate (FLOP/s, bytes/s, watts, the host's speed) twice as high and every
fixed time half as long, a step takes half as long. So the elasticities to all rates, less those to all fixed
times, sum to -1, and what is missing to it is the software's own fixed times: launches of kernels, starts of
collectives, what a framework takes beside the work. They are found by the same law: to halve them is to
have all of the hardware half as fast, on a clock that runs twice as fast. (Where a formula has a rate of its
own, such as the work that one core is taken for on chips of few cores, it counts there too, negative.)
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np

from foretell.kernels.plan_kernels import required_dtypes
from foretell.records import Answer, as_json, dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.specs.system import Network, System, Tier
from foretell.training.variants import SystemBatch, evaluate_systems
from foretell.units import field_unit

Kind = Literal["rate", "time", "size", "joint"]
"""How a number enters: per second, in seconds, neither, or several numbers at once."""

STEP = 0.001
"""Relative half-width of the central differences: seconds are continuous in every rate and time, with bends
(a power limit that begins to bind, another algorithm), which a narrow difference seldom straddles."""
TWICE = 2.0
"""Factor of the what-ifs: a rate twice as high, a time half as long."""
ALL_HARDWARE = "hardware"
"""Path of all rates and times of the system together."""
LESS = ("chip.idle_watts",)
"""Numbers of which less is better, though they are no times."""
SOFTWARE = "software.fixed_times"
"""Path of all fixed times that are no field of a system."""
SOFTWARE_WORDS = "fixed times of the software"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number of a system that can be varied."""

    path: str = field(kw_only=False)
    """Its `--set` path."""
    words: str = field(kw_only=False)
    """What it is, for a sentence."""
    kind: Kind = field(kw_only=False)
    """How it enters."""
    value: float = field(kw_only=False)
    """What it is now; 1 for several at once."""
    unit: str = field(kw_only=False)
    """Its unit, the end of the field's name."""
    scaled: Callable[[System, Num], System] = field(kw_only=False)
    """The system with it times a factor, or with an array of factors over a batch."""

    @property
    def better(self) -> float:
        """The factor of a what-if: times become shorter, all else larger; all of it slower (`_software`)."""
        less = self.kind == "time" or self.path in (ALL_HARDWARE, *LESS)
        return 1.0 / TWICE if less else TWICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Elasticity:
    """How a result answers to one number."""

    number: Number
    """The number."""
    elasticity: float
    """d ln(result) / d ln(number)."""
    what_if: float
    """Result with the number better by TWICE, over the result as it is."""

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        n = self.number
        return {
            "path": n.path,
            "words": n.words,
            "kind": n.kind,
            "value": n.value,
            "unit": n.unit,
            "elasticity": self.elasticity,
            "what_if_factor": n.better,
            "what_if_ratio": self.what_if,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity(Answer):
    """Elasticities of one result, the strongest first."""

    verb = "sensitivity"

    result: str
    """Which result: step_s, energy_joules, ..."""
    value: float
    """What it is."""
    plan: str
    """The plan, held."""
    numbers: tuple[Elasticity, ...]
    """One for each number, the strongest first; joint ones repeat others and come last."""

    def __getitem__(self, path: str) -> float:
        """The elasticity to the number of a path."""
        return {e.number.path: e.elasticity for e in self.numbers}[path]

    @property
    def elasticities(self) -> tuple[Elasticity, ...]:
        """The numbers, as JSON calls them."""
        return self.numbers

    to_dict = as_json("result", "value", "plan", "elasticities")


def numbers_of(scenario: Scenario, plan: Plan) -> tuple[Number, ...]:
    """Every number of the system that the plan's step can depend on."""
    chip, tiers = scenario.system.chip, scenario.system.network.tiers
    found = [_matrix_rate(chip, required_dtypes(plan)[-1])]
    found += [chip_number(chip, *about) for about in CHIP_NUMBERS]
    if plan.offload != "none":
        found.append(chip_number(chip, "host_bytes_per_s", "the link to the host's memory", "rate"))
    for i, tier in enumerate(tiers):
        found += [
            _of_tier(i, tier, "bandwidth_bytes_per_s", f"bandwidth of the {tier.name} tier"),
            _of_tier(i, tier, "latency_s", f"latency of the {tier.name} tier"),
        ]
    known = tuple(n for n in found if n.value > 0.0)
    clock = [n for n in known if n.path in CLOCKED]
    words = "clock of the cores (matrix and vector units)"
    moved = [n for n in known if n.kind in ("rate", "time")]
    return (
        *known,
        joint_number("chip.clock", words, clock),
        joint_number(ALL_HARDWARE, "all of it", moved),
    )


CHIP_NUMBERS: tuple[tuple[str, str, Kind], ...] = (
    ("vector_flop_per_s", "rate of the vector units", "rate"),
    ("memory_bandwidth_bytes_per_s", "memory bandwidth", "rate"),
    ("tdp_watts", "power limit", "rate"),
    ("idle_watts", "power at rest", "rate"),
    ("host_speed", "speed of the host", "rate"),
    ("l2_bytes", "L2 cache", "size"),
)
"""Numbers of a chip, with their words and kinds."""
CLOCKED = ("chip.matrix_flop_per_s", "chip.vector_flop_per_s")
"""What goes with the clock of the cores."""


def batch_of_systems(scenario: Scenario, plan: Plan, numbers: Sequence[Number]) -> SystemBatch:
    """The system as it is, then each number lower, higher and better: 1 + 3 x numbers rows."""
    many = 1 + 3 * len(numbers)
    system = scenario.system
    for i, number in enumerate(numbers):
        factor = np.ones(many)
        factor[1 + 3 * i : 4 + 3 * i] = 1.0 - STEP, 1.0 + STEP, number.better
        system = number.scaled(system, factor)
    return evaluate_systems(scenario, batch_of([plan] * many), system)


def elasticities(values: Array, numbers: Sequence[Number]) -> Array:
    """(numbers, ...) slopes of ln(values) from the rows of `batch_of_systems`; 0 where a value is 0."""
    low, high = values[1::3][: len(numbers)], values[2::3][: len(numbers)]
    there = (low > 0.0) & (high > 0.0)
    ratio = np.where(there, high, 1.0) / np.where(there, low, 1.0)
    return np.asarray(np.log(ratio) / np.log((1.0 + STEP) / (1.0 - STEP)))


def sensitivity_of(
    batch: SystemBatch, numbers: Sequence[Number], result: str = "step_s"
) -> Sensitivity:
    """Elasticities and what-ifs of one result of a batch of `batch_of_systems`."""
    values = batch.result(result)
    slopes, better = elasticities(values, numbers), values[3::3] / values[0]
    found = [
        Elasticity(number=n, elasticity=float(s), what_if=float(b))
        for n, s, b in zip(numbers, slopes, better, strict=True)
        if n.path != ALL_HARDWARE
    ]
    joint = next(i for i, n in enumerate(numbers) if n.path == ALL_HARDWARE)
    if result == "step_s":
        found.append(_software(float(slopes[joint]), float(better[joint])))
    found.sort(key=lambda e: (e.number.kind == "joint", -abs(e.elasticity)))
    return Sensitivity(
        result=result,
        value=float(values[0]),
        plan=str(batch.plans.plan(0)),
        numbers=tuple(found),
    )


def sensitivity(scenario: Scenario, plan: Plan, result: str = "step_s") -> Sensitivity:
    """Elasticities of one result of one plan to every number of the system."""
    numbers = numbers_of(scenario, plan)
    return sensitivity_of(batch_of_systems(scenario, plan, numbers), numbers, result)


def _software(slope: float, ratio: float) -> Elasticity:
    """Fixed times of the software, from all of the hardware scaled: T(r, s t) = s T(s r, t)."""
    number = Number(SOFTWARE, SOFTWARE_WORDS, "time", 1.0, "", lambda system, _: system)
    return Elasticity(number=number, elasticity=1.0 + slope, what_if=number.better * ratio)


def joint_number(path: str, words: str, numbers: Sequence[Number]) -> Number:
    """Several numbers at once: every rate higher and every time shorter."""

    def scaled(system: System, factor: Num) -> System:
        for number in numbers:
            system = number.scaled(system, 1.0 / factor if number.kind == "time" else factor)
        return system

    return Number(path, words, "joint", 1.0, "", scaled)


def _matrix_rate(chip: Chip, dtype: str) -> Number:
    """All formats together, and the best measured rate with them."""

    def scaled(system: System, factor: Num) -> System:
        have = system.chip
        peaks = {name: peak * factor for name, peak in have.matrix_flop_per_s.items()}
        best = have.measured_matmul_flop_per_s * factor
        chip = replace(have, matrix_flop_per_s=peaks, measured_matmul_flop_per_s=best)
        return replace(system, chip=chip)

    return Number(
        "chip.matrix_flop_per_s",
        "rate of the matrix units",
        "rate",
        float(chip.matrix_flop_per_s[dtype]),
        "flop_per_s",
        scaled,
    )


def chip_number(chip: Chip, name: str, words: str, kind: Kind) -> Number:
    """A plain field of the chip."""

    def scaled(system: System, factor: Num) -> System:
        value = getattr(system.chip, name) * factor
        return replace(system, chip=replace(system.chip, **{name: value}))

    return Number(f"chip.{name}", words, kind, float(getattr(chip, name)), field_unit(name), scaled)


def _of_tier(place: int, tier: Tier, name: str, words: str) -> Number:
    """A field of one tier of the network."""

    def scaled(system: System, factor: Num) -> System:
        tiers = list(system.network.tiers)
        tiers[place] = replace(tiers[place], **{name: getattr(tiers[place], name) * factor})
        return replace(system, network=Network(tiers=tuple(tiers)))

    return Number(
        f"network.{tier.name}.{name}",
        words,
        "time" if name == "latency_s" else "rate",
        float(getattr(tier, name)),
        field_unit(name),
        scaled,
    )
