"""How a training step answers to the numbers of its system and of its price.

Money is hours x (base + per watt x watts), so that its elasticity is that of time and that of energy by
their shares. What the hardware itself costs is held: what is asked about is a chip with more of something,
not a dearer one.
"""

from collections.abc import Mapping, Sequence

from foretell.api.answers import Estimate
from foretell.api.cost import PaidHour, Payment, paid_hour
from foretell.api.training import estimate
from foretell.errors import BadInput, Infeasible, Problem
from foretell.inputs.question import as_texts, collect
from foretell.search.what_if import (
    SIDES,
    FixedPlan,
    Results,
    Side,
    factor_of,
    held_results,
    replan_systems,
)
from foretell.specs.questions.flags import part, values_of
from foretell.specs.questions.studies import SensitivityQuestion
from foretell.specs.questions.training import StepQuestion
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.studies.sensitivity.records import (
    NumberEffect,
    Sensitivities,
    WhatIf,
    check_factor,
    strength,
)

RESULTS = {
    "step_s": "the time of a step",
    "usd_per_million_tokens": "the cost of a million tokens",
    "energy_joules": "the energy of a step",
}
"""Results, and what they are called."""
HELD_PRICE = "What the hardware itself costs is held: a chip with more of something costs the same."


def of_training(question: SensitivityQuestion) -> Sensitivities:
    """A step as of `estimate`, with how chips are paid for as of `cost run`."""
    settings, factor = as_texts(question.set), question.factor
    money = tuple(text for text in settings if text.strip().startswith("prices."))
    speed = tuple(text for text in settings if text not in money)
    paid = {name: getattr(question, name) for name in ("rent", "price", "years", "utilisation")}
    payment = Payment(**{name: v for name, v in paid.items() if v is not None}, set=money)
    problems: list[Problem] = []
    collect(lambda: check_factor(factor), problems)
    step = values_of(part(StepQuestion, question, set=speed))
    result = collect(lambda: estimate(**step), problems)
    if problems or result is None or result.scenario is None:
        raise BadInput(problems)
    held = held_results(result.scenario, result.plan, factor)
    watts = held.now.energy_joules / held.now.step_s / result.gpus
    name = question.system if isinstance(question.system, str) else ""
    hour = _hour(payment, name, result.scenario.system, result.gpus, watts)
    again = None
    if question.replan:
        again = replan_systems(result.scenario, result.plan, held, factor, question.progress)
    return _answer(result, held, hour, again, factor, money)


def _hour(payment: Payment, name: str, system: System, gpus: int, watts: float) -> PaidHour | str:
    """What an hour of a chip costs; why that is unknown, where nobody asked for money."""
    try:
        return paid_hour(payment, name, system, gpus, watts)
    except (BadInput, Infeasible) as error:
        if payment != Payment():
            raise
        return f"Cost is unknown: {error.problems[0].message}; --price gives one."


def _answer(
    result: Estimate,
    held: FixedPlan,
    hour: PaidHour | str,
    again: tuple[Results, dict[tuple[str, Side], Results]] | None,
    by: float,
    money: Sequence[str],
) -> Sensitivities:
    scenario = result.scenario
    assert scenario is not None
    now = _numbers(held.now, hour, scenario)

    def what_if(path: str, side: Side, factor: float) -> WhatIf:
        there = held.changed[path, side]
        if again is not None:
            there = again[1].get((path, side), there)
        return _what_if(there, now, factor, hour, scenario)

    moved = []
    for number in held.numbers:
        factors = {side: factor_of(number, side, by) for side in SIDES}
        moved.append(
            NumberEffect(
                path=number.path,
                words=number.words,
                kind=number.kind,
                value=number.value,
                unit=number.unit,
                elasticities=_slopes(held, number.path, hour),
                better=what_if(number.path, "better", factors["better"]),
                worse=what_if(number.path, "worse", factors["worse"]),
            )
        )
    moved.sort(key=lambda m: (m.kind == "joint", -strength(m, "step_s")))
    about = ("model", "system", "gpus", "global_batch", "seq_len", "target_len", "fits")
    return Sensitivities(
        about={"kind": "training", **{name: getattr(result, name) for name in about}},
        plan=str(result.plan),
        plan_chosen=result.plan_chosen,
        replanned=again is not None,
        factor=by,
        results=now,
        words={name: RESULTS[name] for name in now},
        best_now=None if again is None else _what_if(again[0], now, 1.0, hour, scenario),
        numbers=(*moved, *(() if isinstance(hour, str) else _prices(hour))),
        assumptions=(*result.assumptions, *_said(hour)),
        overrides={**(result.overrides or {}), **dict(t.partition("=")[::2] for t in money)},
    )


def _said(hour: PaidHour | str) -> tuple[str, ...]:
    return (hour,) if isinstance(hour, str) else (*hour.assumptions, HELD_PRICE)


def _numbers(found: Results, hour: PaidHour | str, scenario: Scenario) -> dict[str, float]:
    """Time, money where it is known, and energy of one system."""
    if isinstance(hour, str):
        return {"step_s": found.step_s, "energy_joules": found.energy_joules}
    job = scenario.job
    hours = found.step_s * job.gpus / 3600.0
    watts = found.energy_joules / found.step_s / job.gpus
    return {
        "step_s": found.step_s,
        "usd_per_million_tokens": hour.usd(hours, watts) * 1e6 / job.tokens_per_step,
        "energy_joules": found.energy_joules,
    }


def _what_if(
    there: Results,
    now: Mapping[str, float],
    factor: float,
    hour: PaidHour | str,
    scenario: Scenario,
) -> WhatIf:
    then = _numbers(there, hour, scenario)
    ratios = {name: then[name] / now[name] for name in now}
    return WhatIf(
        factor=factor,
        ratios=None if there.fits == "no" else ratios,
        fits=there.fits,
        plan=there.plan,
    )


def _slopes(held: FixedPlan, path: str, hour: PaidHour | str) -> dict[str, float]:
    """Elasticities of all results: money is base x time and watts x time, which is energy."""
    slope = held.slopes[path]
    if isinstance(hour, str):
        return dict(slope)
    drawn = hour.usd_per_watt * hour.watts
    share = drawn / (hour.base_usd + drawn)
    usd = (1.0 - share) * slope["step_s"] + share * slope["energy_joules"]
    return {**slope, "usd_per_million_tokens": usd}


def _prices(hour: PaidHour) -> list[NumberEffect]:
    """Figures of the price: only money answers to them."""
    still = dict.fromkeys(RESULTS, 0.0)
    slopes = hour.slopes if hour.way == "own" else {"prices.rent": 1.0}
    return [
        NumberEffect(
            path=path,
            words=f"price: {path.rsplit('.', 1)[-1].replace('_', ' ')}",
            kind="price",
            value=hour.base_usd if hour.way != "own" else 1.0,
            unit="usd_per_chip_hour" if hour.way != "own" else "",
            elasticities={**still, "usd_per_million_tokens": slope},
            better=None,
            worse=None,
        )
        for path, slope in sorted(slopes.items(), key=lambda item: -abs(item[1]))
    ]
