"""An interval on every number: those of derived ones follow from the interval of what they are made of.

A cause is a factor around 1 with its p50 and p90, each (low, high): the time of a step or of a request from
its residuals, the draw of a chip, a rent from the offers that there are. A number that rises with a cause has
its ends, one that falls with it has them turned; independent causes add up as squares of logarithms. So each
rule is here once, and an interval holds the number that it is of.

    of_estimate    step, rates, utilisation, peak memory, energy
    of_run         days, chip-hours and energy of a whole run
    of_served      latencies, rates, money and energy of a service
    of_ranges      money, energy and carbon that have a low and a high end already

Records above (serving/sizing_records.py, scaling, simulation, bills) put theirs together by the same rules.

Memory has two numbers and two intervals: what tensors take, which is arithmetic and narrow, and what the
process holds, which the allocator makes wide. The logarithm of measured over predicted is a source's own part
and a row's, both of Student's t with 4 degrees of freedom; their scales (catalog/memory_errors.toml) are
small where this project has measured the software itself on one chip, and larger elsewhere. A process takes
more than it needs where there is room: of the free share of a chip, `room_shift` is expected on top of what
is reserved, and `room_scale` widens the interval. Whether a plan fits is asked at a full chip, where neither
counts.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from foretell.catalog.error_models import LogError, MemoryErrors, memory_errors
from foretell.kernels.memory import HeldBytes
from foretell.kernels.power import WATTS_ERROR, chip_power
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan
from foretell.specs.result import OUTPUTS, Run, StepEstimate
from foretell.specs.scenario import Scenario
from foretell.specs.service import ServiceEstimate

Ends = dict[str, tuple[float, float]]
"""p50 and p90, each (low, high)."""

QUANTILES = {"p50": 0.7406970841, "p90": 2.1318467863}
"""Of Student's t with 4 degrees of freedom, to either end."""


def _errors_of(scenario: Scenario, plan: Plan) -> MemoryErrors:
    return memory_errors(scenario.software.id, scenario.job.gpus, plan.weights)


def scale_of(error: LogError) -> float:
    """Spread of the logarithm for a source that was never seen: its own part and a row's."""
    return math.hypot(error.source_scale, error.row_scale)


def held_intervals(
    scenario: Scenario, plan: Plan, held: HeldBytes, capacity_bytes: float
) -> dict[str, Ends]:
    """p50 and p90 of what tensors, the allocator and the process take, by the names of the outputs; bytes."""
    errors = _errors_of(scenario, plan)
    allocated, reserved_bytes, peak = (_number(getattr(held, f.name)) for f in fields(HeldBytes))
    own, room = peak - reserved_bytes, min(max(1.0 - peak / capacity_bytes, 0.0), 1.0)
    wide = scale_of(errors.held) * (1.0 + errors.held.room_scale * room)
    reserved = _ends(reserved_bytes, wide, errors.held.room_shift * room)
    return {
        "allocated_bytes": _ends(allocated, scale_of(errors.allocated)),
        "reserved_bytes": reserved,
        "peak_memory_bytes": {
            key: (own + low, own + high) for key, (low, high) in reserved.items()
        },
    }


def _number(value: Num) -> float:
    return float(np.ravel(value)[0])


def _ends(value: float, scale: float, shift: float = 0.0) -> Ends:
    """Ends around a number whose logarithm errs by so much, and holds it."""
    return {
        key: (value * math.exp(min(shift - q * scale, 0.0)), value * math.exp(shift + q * scale))
        for key, q in QUANTILES.items()
    }


def fit_probability(scenario: Scenario, plan: Plan, held: HeldBytes, capacity_bytes: Num) -> Array:
    """Probability that the process fits the capacity: one half where its predicted bytes just fit."""
    errors = _errors_of(scenario, plan)
    own = np.asarray(held.peak_bytes) - np.asarray(held.reserved_bytes)
    room = np.maximum(np.asarray(capacity_bytes) - own, 1.0)
    return t_share(np.log(room / np.maximum(held.reserved_bytes, 1.0)) / scale_of(errors.held))


def probability_by_ends(peak_bytes: float, ends: Ends, capacity_bytes: float) -> float:
    """How probable it is that a peak with such an interval is within the capacity."""
    low, high = ends["p90"]
    scale = math.log(high / low) / (2.0 * QUANTILES["p90"]) if high > low > 0.0 else 0.0
    if scale == 0.0 or peak_bytes <= 0.0 or capacity_bytes <= 0.0:
        return float(peak_bytes <= capacity_bytes)
    return float(t_share(np.asarray(math.log(capacity_bytes / peak_bytes) / scale)))


def t_share(x: Array) -> Array:
    """Share of Student's t with 4 degrees of freedom below x."""
    y = 1.0 + 0.25 * np.square(x)
    return np.asarray(0.5 + 0.375 * x / np.sqrt(y) * (1.0 - np.square(x) / (12.0 * y)))


Interval = dict[str, tuple[float, float]]
"""p50 and p90, each (low, high)."""
Intervals = dict[str, Interval]
"""By the name of the number."""

LEVELS = ("p50", "p90")
NEAR = 0.41
"""How far the end of a half is, where nine tenths end at 1: of a normal error."""
LEAST = 1e-3
"""No cause makes a number less than this share of itself."""
SURE: Interval = dict.fromkeys(LEVELS, (1.0, 1.0))
"""What is not in doubt."""
ANSWERED = ("requests_per_s", "output_tokens_per_s", "output_tokens_per_s_per_gpu")
"""Of a service: fall with the time of a request where the requests in flight are given."""


def cause(value: float, interval: Mapping[str, tuple[float, float]] | None) -> Interval:
    """An interval as factors around its number; none is no doubt."""
    if interval is None or not value > 0.0:
        return SURE
    found = {}
    for key, (low, high) in interval.items():
        found[key] = (min(max(low / value, LEAST), 1.0), max(high / value, 1.0))
    return found


def range_cause(value: float, low: float, high: float) -> Interval:
    """A range that holds nine tenths of the cases as a cause."""
    if not (value > 0.0 and 0.0 < low <= value <= high):
        return SURE
    ends = low / value, high / value
    return {"p50": (ends[0] ** NEAR, ends[1] ** NEAR), "p90": ends}


def inverse_cause(of: Interval) -> Interval:
    """Of what falls with a cause."""
    return {key: (1.0 / high, 1.0 / low) for key, (low, high) in of.items()}


def share_of_cause(of: Interval, share: float) -> Interval:
    """Of a sum of which a share goes with a cause."""
    return {
        key: (1.0 + share * (low - 1.0), 1.0 + share * (high - 1.0))
        for key, (low, high) in of.items()
    }


def combine_causes(*causes: Interval) -> Interval:
    """Independent causes together."""
    found = {}
    for key in LEVELS:
        low = math.hypot(*(math.log(one[key][0]) for one in causes))
        high = math.hypot(*(math.log(one[key][1]) for one in causes))
        found[key] = (math.exp(-low), math.exp(high))
    return found


def times(value: float, of: Interval) -> Interval:
    """A number with a cause."""
    return {key: (value * low, value * high) for key, (low, high) in of.items()}


def of_estimate(result: StepEstimate) -> Intervals:
    """Every predicted number of a step that something is known of."""
    step = cause(result.step_s, result.interval)
    causes: dict[str, Interval | None] = {"energy": None}
    if result.interval is not None:
        causes |= {"time": step, "rate": inverse_cause(step)}
        if result.energy_joules is not None and result.scenario is not None:
            chip, gpus = result.scenario.system.chip, result.gpus
            causes["energy"] = energy_cause(result.energy_joules, result.step_s, step, chip, gpus)
    memory, found = memory_of(result), dict[str, Interval]()
    for name, output in OUTPUTS.items():
        of = causes.get(output.rule)
        if name in memory:
            found[name] = memory[name]
        elif of is not None:
            found[name] = times(getattr(result, name), of)
    return found


def memory_of(result: StepEstimate) -> Intervals:
    """p50 and p90 of what tensors, allocator and process take; none where the question is not known."""
    names = [name for name, output in OUTPUTS.items() if output.rule in ("tensors", "memory")]
    if result.peak_interval is not None:
        of = cause(result.peak_memory_bytes, result.peak_interval)
        return {name: times(getattr(result, name), of) for name in names}
    if result.scenario is None:
        return {}
    return held_intervals(
        result.scenario, result.plan, held_of(result), result.memory_capacity_bytes
    )


def held_of(result: StepEstimate) -> HeldBytes:
    """What a step holds at its peak."""
    return HeldBytes(
        allocated_bytes=result.allocated_bytes,
        reserved_bytes=result.reserved_bytes,
        peak_bytes=result.peak_memory_bytes,
    )


def fit_of(result: StepEstimate) -> float | None:
    """How probable it is that the peak is within the chip's memory."""
    peak, have = result.peak_memory_bytes, result.memory_capacity_bytes
    if result.peak_interval is not None:
        return probability_by_ends(peak, dict(result.peak_interval), have)
    if result.scenario is None:
        return None
    return float(fit_probability(result.scenario, result.plan, held_of(result), have))


def of_run(run: Run, result: StepEstimate, scenario: Scenario) -> Intervals:
    """Days, chip-hours and energy of a whole run; failures and checkpoints are in the days."""
    if run.interval is None:
        return {}
    days, step = cause(run.days, run.interval), cause(result.step_s, result.interval)
    found = {
        "days": times(run.days, days),
        "days_without_failures": times(run.days_without_failures, step),
        "gpu_hours": times(run.gpu_hours, days),
    }
    if run.energy_joules is not None:
        seconds, chip = run.days * 86400.0, scenario.system.chip
        spent = energy_cause(run.energy_joules, seconds, days, chip, result.gpus)
        found["energy_joules"] = times(run.energy_joules, spent)
    return found


def of_served(served: ServiceEstimate) -> Intervals:
    """Latencies, rates, money and energy of a service; at a given rate of arrival that rate stays."""
    if served.interval is None:
        return {}
    request = request_time(served)
    busy = SURE if served.rate is not None else request
    rent = cause_of_rent(served.usd_per_chip_hour, served.usd_per_chip_hour_range)
    draw = watts_cause()
    user = cause(served.tpot_ms.mean, served.interval["tpot_ms"])
    found = {
        "ttft_ms": dict(served.interval["ttft_ms"]),
        "tpot_ms": dict(served.interval["tpot_ms"]),
        "tpot_with_first_ms": times(served.tpot_with_first_ms.mean, request),
        "e2e_ms": times(served.e2e_ms.mean, request),
        **{name: times(getattr(served, name), inverse_cause(busy)) for name in ANSWERED},
        "output_tokens_per_s_per_user": times(
            served.output_tokens_per_s_per_user, inverse_cause(user)
        ),
    }
    for name in ("joules_per_token", "joules_per_input_token", "joules_per_output_token"):
        found[name] = times(getattr(served, name), combine_causes(busy, draw))
    found["tokens_per_joule"] = times(
        served.tokens_per_joule, inverse_cause(combine_causes(busy, draw))
    )
    for name in ("usd_per_million_input_tokens", "usd_per_million_output_tokens"):
        usd = getattr(served, name)
        if usd is not None:
            found[name] = times(usd, combine_causes(busy, rent))
    return found


def request_time(served: ServiceEstimate) -> Interval:
    """The time of a whole request as a cause: the first token and the others err together."""
    if served.interval is None:
        return SURE
    return request_cause(
        served.ttft_ms.mean, served.tpot_ms.mean, max(served.osl - 1.0, 0.0), served.interval
    )


def request_cause(
    ttft_ms: float, tpot_ms: float, steps: float, interval: Mapping[str, Interval]
) -> Interval:
    """A first token and so many others, by the intervals of both."""
    whole, first, later = ttft_ms + steps * tpot_ms, interval["ttft_ms"], interval["tpot_ms"]
    ends = {}
    for key in LEVELS:
        low, high = (a + steps * b for a, b in zip(first[key], later[key], strict=True))
        ends[key] = (low, high)
    return cause(whole, ends)


def cause_of_rent(usd: float | None, ends: tuple[float, float] | None) -> Interval:
    """A rent between the cheapest and the dearest offer; no doubt where it was given by hand."""
    return SURE if usd is None or ends is None else range_cause(usd, *ends)


def watts_cause(watts: float | None = None, limit: float = math.inf) -> Interval:
    """The mean draw of a chip: no measured draw of whole steps is known, so that its error is judged."""
    most = 1.0 + WATTS_ERROR if watts is None else max(min(1.0 + WATTS_ERROR, limit / watts), 1.0)
    return range_cause(1.0, 1.0 - WATTS_ERROR, most)


def of_ranges(told: Mapping[str, Any]) -> Intervals:
    """Numbers that have a `low_` and a `high_` beside them, which hold nine cases in ten."""
    found: Intervals = {}
    for name, value in told.items():
        low, high = told.get(f"low_{name}"), told.get(f"high_{name}")
        if value is None or low is None or high is None:
            continue
        near = value - NEAR * (value - low), value + NEAR * (high - value)
        found[name] = {"p50": near, "p90": (low, high)}
    return found


def energy_cause(joules: float, seconds: float, time: Interval, chip: Chip, gpus: int) -> Interval:
    """Joules of so many seconds of chips: base watts go with the time, all of them err as draws do."""
    power = chip_power(chip)
    watts = joules / seconds / gpus
    share = min(float(power.base_watts) / watts, 1.0)
    draw = watts_cause(watts, float(power.limit_watts))
    return combine_causes(share_of_cause(time, share), draw)
