"""How a service answers to the numbers of its system, of its engine and of its price.

All changed systems are one batch (serving/systems.py). The engine's own times and factors are numbers too: of
a profile, every time and every factor that is not zero.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from math import log
from typing import Any

from foretell.api.serving import as_answered, closed_form, closed_forms
from foretell.api.serving_questions import question_of
from foretell.catalog.software import software
from foretell.errors import BadInput, Infeasible, Problem
from foretell.inputs.question import collect
from foretell.search.sensitivity import ALL_HARDWARE, STEP
from foretell.search.what_if import SIDES, Side, factor_of, varied_numbers
from foretell.serving.serve import ServeQuestion
from foretell.specs.plan import Plan
from foretell.specs.plan_words import GENERIC
from foretell.specs.questions.flags import fields_of, values_of
from foretell.specs.questions.serving import ServiceQuestion
from foretell.specs.questions.studies import SensitivityQuestion
from foretell.specs.scenario import Job, Scenario
from foretell.specs.service import ServiceEstimate
from foretell.studies.sensitivity.records import (
    NumberEffect,
    Sensitivities,
    WhatIf,
    check_factor,
    strength,
)

RESULTS = {
    "tpot_ms": "the time per output token",
    "ttft_ms": "the time to the first token",
    "output_tokens_per_s": "the tokens/s of all",
    "usd_per_million_output_tokens": "the cost of a million output tokens",
    "joules_per_token": "the energy of a token",
}
"""Results, and what they are called."""
ENGINE = "engine"
"""Root of the paths of an engine's numbers."""
NOT_VARIED = (
    "memory_fraction",
    "late_steps",
    "wait_steps",
    "dp_wait_steps",
    "wide_wait_steps",
    "shared_heads",
)
"""Numbers of a profile that are counts and shares of something else than time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One number of a service."""

    path: str
    """Where it is."""
    words: str
    """What it is."""
    kind: str
    """rate, time, size or joint."""
    value: float
    """What it is now."""
    unit: str
    """Its unit."""
    better: float
    """What it is multiplied with to be better."""
    turned: Callable[[float], ServeQuestion]
    """The question with it times a factor."""


def of_serving(asked: SensitivityQuestion) -> Sensitivities:
    """The question as of `serve`."""
    problems: list[Problem] = []
    factor, replan, progress = asked.factor, asked.replan, asked.progress
    collect(lambda: check_factor(factor), problems)
    known = [field.name for field in fields_of(ServiceQuestion)]
    service = {n: v for n, v in values_of(asked).items() if n in known and v is not None}
    found = collect(lambda: question_of(ServiceQuestion(**service)), problems)
    if problems or found is None:
        raise BadInput(problems)
    question, given = found
    now = closed_form(question, given)
    held = as_answered(now, question)
    knobs = knobs_of(held, factor)
    if progress is not None:
        progress(0, len(knobs))
    answers = _answers(knobs, replan)
    moved = [_moved(knob, now, own, replan) for knob, own in zip(knobs, answers, strict=True)]
    if progress is not None:
        progress(len(knobs), len(knobs))
    first = next(iter(_results(now)))  # an answer of one token has no time between tokens
    moved.sort(key=lambda m: (m.kind == "joint", -strength(m, first)))
    return _answer(now, moved, replan, factor)


def knobs_of(question: ServeQuestion, by: float) -> list[Knob]:
    """Every number of the system, and of the engine."""
    # Numbers of a system are found with a plan, whose precision names the peak that is told.
    job = Job(gpus=question.gpus, global_batch=question.gpus, seq_len=1)
    scenario = Scenario(
        model=question.model, system=question.system, job=job, software=software(GENERIC)
    )
    found = []
    for number in varied_numbers(scenario, Plan()):
        if number.path == ALL_HARDWARE:
            continue

        def turned(factor: float, scaled: Any = number.scaled) -> ServeQuestion:
            return replace(question, system=scaled(question.system, factor))

        found.append(
            Knob(
                path=number.path,
                words=number.words,
                kind=number.kind,
                value=number.value,
                unit=number.unit,
                better=factor_of(number, "better", by),
                turned=turned,
            )
        )
    return found + [_engine_knob(question, name, by) for name in _engine_fields(question)]


def _engine_fields(question: ServeQuestion) -> list[str]:
    """Times and factors of the profile that are not zero."""
    profile = question.profile
    names = [f.name for f in fields(profile) if f.name not in NOT_VARIED]
    values = {name: getattr(profile, name) for name in names}
    return [name for name, value in values.items() if isinstance(value, float) and value > 0.0]


def _engine_knob(question: ServeQuestion, name: str, by: float) -> Knob:
    profile = question.profile
    value = float(getattr(profile, name))

    def turned(factor: float) -> ServeQuestion:
        changed: dict[str, Any] = {name: value * factor}
        return replace(question, profile=replace(profile, **changed))

    timed = name.endswith(("_s", "_s_per_token"))
    unit = "s" if name.endswith("_s") else "bytes" if name.endswith("_bytes") else ""
    return Knob(
        path=f"{ENGINE}.{name}",
        words=f"engine: {name.removesuffix('_bytes').removesuffix('_s').replace('_', ' ')}",
        kind="time" if timed else "size",
        value=value,
        unit=unit,
        better=1.0 / by,
        turned=turned,
    )


Answers = dict[tuple[float, bool], ServiceEstimate | None]
"""By factor, and whether the layout is held: the answer, None where nothing fits."""


def _answers(knobs: Sequence[Knob], replan: bool) -> list[Answers]:
    """Every changed question of every knob, with the layout held and, where asked for, chosen again."""
    found: list[Answers] = [{} for _ in knobs]
    for given in (True, False) if replan else (True,):
        places = [
            (place, factor)
            for place, knob in enumerate(knobs)
            for factor in (*((1.0 - STEP, 1.0 + STEP) if given else ()), *_sides(knob).values())
        ]
        asked = [knobs[place].turned(factor) for place, factor in places]
        for (place, factor), one in zip(places, closed_forms(asked, given), strict=True):
            found[place][factor, given] = None if isinstance(one, Infeasible) else one
    return found


def _sides(knob: Knob) -> dict[Side, float]:
    """The factors of a what-if."""
    return {"better": knob.better, "worse": 1.0 / knob.better}


def _moved(knob: Knob, now: ServiceEstimate, answers: Answers, replan: bool) -> NumberEffect:
    low, high = (_results(answers[f, True]) for f in (1.0 - STEP, 1.0 + STEP))
    width = log((1.0 + STEP) / (1.0 - STEP))
    slopes = {
        name: log(high[name] / low[name]) / width if high and low else 0.0 for name in _results(now)
    }
    ifs = {side: _what_if(answers, now, _sides(knob)[side], replan) for side in SIDES}
    return NumberEffect(
        path=knob.path,
        words=knob.words,
        kind=knob.kind,
        value=knob.value,
        unit=knob.unit,
        elasticities=slopes,
        better=ifs["better"],
        worse=ifs["worse"],
    )


def _what_if(answers: Answers, now: ServiceEstimate, factor: float, replan: bool) -> WhatIf:
    """The layout held, or where it is better the best one."""
    found = answers[factor, True]
    if replan:
        again = answers[factor, False]
        faster = again is not None and (
            found is None or again.output_tokens_per_s > found.output_tokens_per_s
        )
        found = again if faster else found
    if found is None:
        return WhatIf(factor=factor, ratios=None, fits="no", plan=now.plan)
    before, after = _results(now), _results(found)
    ratios = {name: after[name] / value for name, value in before.items()}
    return WhatIf(factor=factor, ratios=ratios, fits=found.fits, plan=found.plan)


def _results(served: ServiceEstimate | None) -> dict[str, float]:
    """The results of an answer that are known and not zero."""
    if served is None:
        return {}
    found = {
        "tpot_ms": served.tpot_ms.mean,
        "ttft_ms": served.ttft_ms.mean,
        "output_tokens_per_s": served.output_tokens_per_s,
        "usd_per_million_output_tokens": served.usd_per_million_output_tokens,
        "joules_per_token": served.joules_per_token,
    }
    return {name: float(value) for name, value in found.items() if value}


def _answer(
    now: ServiceEstimate, moved: Sequence[NumberEffect], replan: bool, by: float
) -> Sensitivities:
    names = ("model", "system", "gpus", "profile", "isl", "osl", "concurrency", "rate", "fits")
    results = _results(now)
    return Sensitivities(
        about={"kind": "serving", **{name: getattr(now, name) for name in names}},
        plan=now.plan,
        plan_chosen=now.plan_chosen,
        replanned=replan,
        factor=by,
        results=results,
        words={name: RESULTS[name] for name in results},
        best_now=None,
        numbers=tuple(moved),
        assumptions=now.assumptions,
        overrides=now.overrides,
    )


__all__ = ["Knob", "Side", "knobs_of", "of_serving"]
