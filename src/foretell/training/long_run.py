"""From a step to a whole run: steps, checkpoints, failures and restarts.

Failure rates, restarts, checkpoints and storage that a question does not give are those of catalog/runs.toml,
each stated with the answer.

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

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import cast, get_args

import numpy as np

from foretell import units
from foretell.catalog.files import ROOT, read_table
from foretell.errors import BadInput, Problem, bad_input, unknown, wrong
from foretell.kernels.memory import weight_bytes
from foretell.kernels.power import chip_power
from foretell.records import dataclass, with_values
from foretell.sharding.offload import LINK_SHARE
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan
from foretell.specs.questions.flags import fields_of
from foretell.specs.questions.training import RunConditions
from foretell.specs.result import CheckpointWay, LongRun, Run, StepEstimate
from foretell.specs.scenario import Scenario
from foretell.training.layer_costs import part_table
from foretell.training.shapes import Shape
from foretell.uncertainty.intervals import NEAR, of_run
from foretell.workload.parameters import count

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


DAY_S = 86400.0
FACTS = read_table(ROOT / "runs.toml")["run"]
USUAL: Mapping[str, float] = {name: fact["value"] for name, fact in FACTS.items()}
"""What holds where a question gives nothing else."""
_RATE = FACTS["failures_per_gpu_day"]
FAILURES_SPREAD = (_RATE["low"] / _RATE["value"], _RATE["high"] / _RATE["value"])
"""Other clusters' rates over it."""
OPTIMAL = ("chinchilla", "compute-optimal")
"""Words for it."""
MOST_TOKENS = 1e18
"""More is a typing error."""

Given = str | float | int | None
Asked = tuple[LongRun, list[str]]
"""Conditions, and a sentence for each that was not given."""

CONDITIONS = {
    "failures_per_gpu_day": ("", 0.0, 1e3),
    "restart_s": ("s", 0.0, 1e7),
    "checkpoint_interval": ("s", 1e-3, 1e9),
    "checkpoint_wait_s": ("s", 0.0, 1e7),
    "storage_bandwidth": ("bytes_per_s", 1.0, 1e18),
}
"""What may be given besides tokens and `checkpoint`: unit, least and most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """What was asked of a run, read and checked."""

    tokens: float | None
    """Tokens; None: compute-optimal."""
    checkpoint: CheckpointWay
    """How checkpoints are written."""
    values: Mapping[str, float | None]
    """The numbers of CONDITIONS that were given."""
    given: Mapping[str, Given]
    """All that was given, as it was."""


def conditions_of(question: RunConditions) -> RunTerms | None:
    """The conditions of a run, every problem at once; None where no tokens are given."""
    problems: list[Problem] = []
    tokens = question.tokens
    some = {
        f.name: v for f in fields_of(RunConditions) if (v := getattr(question, f.name)) is not None
    }
    some.pop("tokens", None)
    if tokens is None and not some:
        return None
    if tokens is None:
        message = "has no effect without tokens"
        problems += [wrong(n, v, message) for n, v in some.items()]
    values = {n: _number(n, some.get(n), about, problems) for n, about in CONDITIONS.items()}
    optimal = tokens in OPTIMAL
    wanted = None if optimal else _number("tokens", tokens, ("tokens", 1.0, MOST_TOKENS), problems)
    ways = get_args(CheckpointWay)
    way = some.get("checkpoint", ways[0])
    if way not in ways:
        problems.append(unknown("checkpoint", way, ways))
    if problems:
        raise BadInput(problems)
    if tokens is None:
        return None
    return RunTerms(
        tokens=wanted,
        checkpoint=cast(CheckpointWay, way),
        values=values,
        given={**some, "tokens": tokens},
    )


def asked_run(scenario: Scenario, asked: RunTerms) -> Asked:
    """The conditions of a run of a scenario, with a sentence for each that was not given."""
    values = asked.values
    rate, link = values["failures_per_gpu_day"], float(scenario.system.chip.host_bytes_per_s)
    storage = USUAL["storage_bytes_per_s_per_gpu"] * scenario.job.gpus
    restart = values["restart_s"]
    active = float(count(scenario.model).active)
    return LongRun(
        tokens=USUAL["tokens_per_parameter"] * active if asked.tokens is None else asked.tokens,
        failures_per_gpu_day=USUAL["failures_per_gpu_day"] if rate is None else rate,
        failures_spread=FAILURES_SPREAD if rate is None else (1.0, 1.0),
        restart_s=USUAL["restart_s"] if restart is None else restart,
        checkpoint=asked.checkpoint,
        checkpoint_interval_s=values["checkpoint_interval"] or 0.0,
        checkpoint_wait_s=values["checkpoint_wait_s"],
        storage_bytes_per_s=values["storage_bandwidth"] or storage,
        copy_bytes_per_s=LINK_SHARE * link or USUAL["copy_bytes_per_s"],
    ), _defaults_said(scenario, asked)


def _number(
    name: str, given: Given, about: tuple[str, float, float], problems: list[Problem]
) -> float | None:
    """A number in its unit, or None with what is wrong with it added."""
    if given is None:
        return None
    unit, least, most = about
    try:
        value = units.parse(given, unit, name)
    except BadInput as error:
        problems += error.problems
        return None
    if least <= value <= most:
        return value
    allowed = f"{least:g} to {most:g} {units.symbol(unit) if unit else ''}".strip()
    problems.append(wrong(name, given, "out of range", allowed))
    return None


def _defaults_said(scenario: Scenario, asked: RunTerms) -> list[str]:
    """A sentence for each condition that was not given."""
    active = float(count(scenario.model).active) / 1e9
    said = {
        "failures_per_gpu_day": f"failures: {USUAL['failures_per_gpu_day']:.2g} per chip and day, Llama 3's "
        "419 in 54 days on 16,384 chips; other clusters have 0.6 to 1.7 times that",
        "restart_s": f"restart: {USUAL['restart_s']:g} s to find and replace what failed, then the "
        "checkpoint is read",
        "checkpoint": "checkpoints: copied to the host, and written behind the steps that follow",
        "checkpoint_wait_s": f"each checkpoint holds all chips up {USUAL['checkpoint_start_s']:g} s besides "
        "its bytes",
        "storage_bandwidth": f"storage: {USUAL['storage_bytes_per_s_per_gpu'] / 1e6:.0f} MB/s for each chip, "
        "as Llama 3's 2 TB/s for 24,576",
    }
    found = [text for name, text in said.items() if name not in asked.given]
    if asked.tokens is None:
        found.append(
            f"tokens: compute-optimal, {USUAL['tokens_per_parameter']:g} for each of the {active:.3g} "
            "billion parameters that a token uses (Hoffmann et al. 2022)"
        )
    return found


def with_run(result: StepEstimate, asked: Asked | None) -> StepEstimate:
    """The estimate with its run, where one was asked for."""
    if asked is None or result.scenario is None:
        return result
    run = run_of(result, result.scenario, asked[0])
    return with_values(result, run=run, assumptions=(*result.assumptions, *asked[1]))


def checkpoint_bytes(scenario: Scenario, plan: Plan) -> float:
    """Weights, master copy and states of everything that is trained, once; adapters alone with LoRA."""
    whole = Shape(micro_batch=np.ones(1), tp=np.ones(1), sp=np.zeros(1))
    parts = part_table(scenario, plan, whole)
    weight, _, state = weight_bytes(plan)
    trained = float((parts.trained[0] * parts.counts).sum())
    return trained * (weight + state)


def run_of(result: StepEstimate, scenario: Scenario, asked: LongRun) -> Run:
    """A run at the pace of an estimate."""
    job, plan = scenario.job, result.plan
    steps = float(math.ceil(asked.tokens / job.tokens_per_step))
    size = checkpoint_bytes(scenario, plan)
    write_s = size / asked.storage_bytes_per_s
    later = asked.checkpoint == "async"
    # Replicas share the copying: every chip has its part of one checkpoint.
    wait_s = size / job.gpus / asked.copy_bytes_per_s if later else write_s
    wait_s = wait_s + USUAL["checkpoint_start_s"]
    wait_s = wait_s if asked.checkpoint_wait_s is None else asked.checkpoint_wait_s
    given = Interruptions(
        failures_per_s=job.gpus * asked.failures_per_gpu_day / DAY_S,
        restart_s=asked.restart_s + write_s,
        wait_s=wait_s,
        write_s=write_s if later else 0.0,
    )
    every = in_steps(asked.checkpoint_interval_s, result.step_s, given)
    shares = goodput(every, given)
    share = float(shares.goodput)
    steps_s = steps * result.step_s
    wall_s = steps_s / max(share, 1e-300)
    rate = float(given.failures_per_s)
    needed = math.isfinite(every)
    found = Run(
        tokens=asked.tokens,
        tokens_per_parameter=asked.tokens / float(count(scenario.model).active),
        steps=steps,
        days=wall_s / DAY_S,
        days_without_failures=steps_s / DAY_S,
        gpu_hours=wall_s / 3600.0 * job.gpus,
        energy_joules=_energy_joules(result, scenario, wall_s, shares),
        goodput=share,
        checkpoint_share=float(shares.checkpoint_share),
        rework_share=float(shares.rework_share),
        restart_share=float(shares.restart_share),
        failures=rate * wall_s,
        failures_per_gpu_day=asked.failures_per_gpu_day,
        mean_time_between_failures_s=1.0 / rate if rate > 0.0 else None,
        restart_s=float(given.restart_s),
        checkpoint=asked.checkpoint,
        checkpoint_bytes=size,
        checkpoint_interval_s=every if needed else None,
        checkpoint_interval_steps=every / result.step_s if needed else None,
        checkpoint_interval_chosen=not asked.checkpoint_interval_s,
        checkpoint_wait_s=wait_s,
        checkpoint_write_s=write_s,
        storage_bytes_per_s=asked.storage_bytes_per_s,
        interval=_interval(result, asked, given, every, wall_s / DAY_S),
    )
    return replace(found, intervals=of_run(found, result, scenario))


def in_steps(wanted_s: float, step_s: float, given: Interruptions) -> float:
    """The interval that is wanted (0: the best one) in whole steps, as seconds; inf where none is needed."""
    if wanted_s:
        every = max(round(wanted_s / step_s), 1) * step_s
        if every + float(given.wait_s) < float(given.write_s):
            allowed = f"{float(given.write_s):.3g} s or more, or a faster storage"
            message = "a checkpoint would begin before the last one is written"
            raise bad_input("checkpoint_interval", wanted_s, message, allowed)
        return every
    best = float(best_interval_s(given))
    if math.isinf(best):
        return best
    least = max(math.ceil((float(given.write_s) - float(given.wait_s)) / step_s), 1)
    whole = np.maximum(np.array([math.floor(best / step_s), math.ceil(best / step_s)]), least)
    return float(whole[goodput(whole * step_s, given).goodput.argmax()] * step_s)


def _energy_joules(
    result: StepEstimate, scenario: Scenario, wall_s: float, shares: Goodput
) -> float | None:
    """Steps, also those done again, at their mean power; chips that wait draw what idle clocks do."""
    if result.energy_joules is None:
        return None
    busy_s = wall_s * float(shares.restart_share * shares.checkpoint_share)
    base = float(chip_power(scenario.system.chip).base_watts) * scenario.job.gpus
    return result.energy_joules / result.step_s * busy_s + base * (wall_s - busy_s)


def _interval(
    result: StepEstimate, asked: LongRun, given: Interruptions, every: float, days: float
) -> dict[str, tuple[float, float]] | None:
    """Of days: the step's interval and the spread of failure rates, independent; None where it never ends."""
    useful = float(goodput(every, given).goodput)
    if result.interval is None or not useful > 0.0:
        return None
    found = {}
    # The factors are of nine in ten; those of a half are nearer in logarithms.
    for key, power in (("p50", NEAR), ("p90", 1.0)):
        ends = []
        for step_s, factor in zip(result.interval[key], asked.failures_spread, strict=True):
            other = replace(given, failures_per_s=given.failures_per_s * factor**power)
            left = float(goodput(every, other).goodput)
            if not left > 0.0:
                return None
            ends.append(math.hypot(step_s / result.step_s - 1.0, useful / left - 1.0))
        found[key] = (max(days * (1.0 - ends[0]), 0.0), days * (1.0 + ends[1]))
    return found
