"""Records in, records out: `foretell.size`, how many chips a service needs and how they are laid out.

Closed form first (serving/sizing.py); then the cheapest layouts are simulated (serving/sizing_simulation.py)
with the fewest replicas that meet the targets at the percentile asked for, until no other can be cheaper.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from foretell.api.prefill import degrees_of, prefill_place
from foretell.api.serving import benchmark_problems
from foretell.api.serving_questions import NO_LOAD, question_of, rent_of
from foretell.api.sizing_answer import Choice, Sizing
from foretell.api.sizing_choices import (
    SLACK,
    SizingCase,
    alternatives,
    cheaper_refused,
    ordered_choices,
)
from foretell.errors import BadInput, Infeasible, Problem, bad_input, wrong
from foretell.inputs.question import collect, settings_of
from foretell.serving.benchmark import benchmark_figures
from foretell.serving.disaggregation import PrefillPool
from foretell.serving.memory import memory_of
from foretell.serving.requests.arrivals import read_lengths
from foretell.serving.requests.prefixes import reusable_share
from foretell.serving.serve import ServeQuestion, state_of
from foretell.serving.simulated_fleet import requests_of
from foretell.serving.simulation_options import read_play
from foretell.serving.sizing import SizingSearch, search_layouts
from foretell.serving.sizing_records import Option, PrefillPlace, ServiceTargets, SizingPoint
from foretell.serving.sizing_simulation import Demand, sized_question
from foretell.serving.static import read_batch
from foretell.serving.steps import step_times
from foretell.specs.questions.flags import asks, given_of, part
from foretell.specs.questions.serving import RequestSource, ServiceQuestion
from foretell.specs.questions.sizing import SizeQuestion
from foretell.specs.service import BenchmarkFigures

ANY_MS = 1e12
"""Latency that any service keeps."""
LOADS = "--rate, --arrivals with a trace, or --tokens with --within"
"""What a service is sized for."""
DRAWN_S, LEAST_DRAWN, MOST_DRAWN = 600.0, 2000, 20_000
"""Seconds of requests that are drawn for sessions and the like, and how many they are."""
PERCENTILES = ("mean", "p50", "p90", "p95", "p99")


@asks(SizeQuestion)
def size(asked: SizeQuestion) -> Sizing:
    """How many chips serve `rate` requests per second within the latency targets (ms), and in which layout.

    `gpus` is the most that one instance may have. With `tokens` to be written `within` a time, in the place
    of a rate, latencies do not count: an offline batch. Raises Infeasible where no layout meets the targets.
    """
    if asked.tokens is not None or asked.within is not None:
        return size_batch(asked)
    case = sizing_case(asked)
    found = sizing_of(case, simulate=asked.simulate, top=asked.top)
    return replace(found, benchmark=_benchmark(asked, case, found.best.option))


def size_batch(asked: SizeQuestion) -> Sizing:
    """How many chips write so many tokens within a time: any latency will do, and no reserve is kept."""
    problems: list[Problem] = []
    batch = read_batch(asked.tokens, asked.within, problems)
    if asked.within is None:
        problems.append(wrong("within", None, "missing", "both --tokens and --within"))
    if asked.rate is not None:
        problems.append(wrong("rate", asked.rate, "given beside a batch of tokens", LOADS))
    if problems or batch is None or batch.within_s is None:
        raise BadInput(problems)
    rate = batch.tokens / float(asked.osl) / batch.within_s
    plain = replace(
        asked, rate=rate, ttft=ANY_MS, tpot=ANY_MS, headroom=0.0,
        percentile="mean", simulate=False,
    )  # fmt: skip
    found = sizing_of(sizing_case(plain), simulate=False, top=asked.top)
    return replace(found, batch=batch)


def _benchmark(asked: SizeQuestion, case: SizingCase, best: Option) -> BenchmarkFigures | None:
    """What a benchmark of the best option prints, as many requests at a time as the rate has in flight."""
    q, wanted, pool = case.question, case.wanted, None
    if best.prefill is not None:
        place = case.place if best.prefill_placed else None
        pool = PrefillPool(
            system=q.system if place is None else place.system,
            profile=q.profile if place is None else place.profile,
            deployment=best.prefill.deployment,
            gpus=best.prefill_gpus,
            given=True,
        )
    layout = best.instance.deployment
    flight = max(round(1e-3 * wanted.rate * best.e2e_ms(wanted.osl)), 1)
    here = replace(
        q, deployment=layout, gpus=layout.gpus * best.replicas, prefill=pool, rate=None,
        requests=None if case.demand else asked.requests, warmup=asked.warmup or 0,
        traffic=replace(q.traffic, concurrency=float(flight)),
    )  # fmt: skip
    times = step_times(q.model, q.system, layout, q.profile)
    memory = memory_of(q.model, q.system, layout, q.profile)
    return benchmark_figures(here, times, memory, state_of(here, times, memory)[0])


def sizing_case(asked: SizeQuestion) -> SizingCase:
    """The question with every layout in closed form; all problems at once, Infeasible where none will do."""
    problems = [*_problems(asked), *benchmark_problems(asked)]
    options = given_of(part(RequestSource, asked))
    timed = "." in (asked.arrivals or "")
    if asked.rate is None and not timed:
        problems.append(wrong("rate", None, "missing", LOADS))
        raise BadInput(problems)
    if options and not asked.simulate:
        message, allowed = (
            "says which requests are simulated, and none are",
            "--rate or a trace alone",
        )
        problems += [wrong(name, value, message, allowed) for name, value in options.items()]
    most = 64 if asked.gpus is None else asked.gpus
    own = {"gpus": most, "prefill_gpus": None, "prefill_plan": None}
    try:
        question, _ = question_of(part(ServiceQuestion, asked, **own))
    except BadInput as error:
        raise BadInput([*error.problems, *problems]) from None
    where = collect(lambda: prefill_place(asked, question), problems)
    if problems:
        raise BadInput(problems)
    form = None if asked.lengths is None else read_lengths(asked.lengths)
    demand = _demand(asked, question, options) if options else None
    wanted = ServiceTargets(
        rate=float(asked.rate or 0.0), isl=float(np.asarray(question.traffic.isl)),
        osl=float(np.asarray(question.traffic.osl)),
        ttft_ms=float(asked.ttft), tpot_ms=float(asked.tpot), headroom=float(asked.headroom),
        most_gpus=question.gpus, cached=float(asked.prefix_hit), degrees=degrees_of(asked.plan or ""),
        lengths=form,
    )  # fmt: skip
    if form is not None and form.answers:
        wanted = replace(wanted, osl=form.answer_mean)
        wanted = replace(wanted, isl=form.prompt_mean) if form.prompts else wanted
    if demand is not None:
        wanted = _of_demand(wanted, demand)
        said = [line for line in question.assumptions if line != NO_LOAD]
        said += _said_of_demand(wanted, demand)
        question = replace(question, assumptions=tuple(said))
    q = _given_measured(asked, question, most) if asked.measured else question
    where, source = _with_rent(where, asked, q)
    slack = SLACK[asked.percentile]
    found = search_layouts(
        q.model, q.system, q.deployment, q.profile, (wanted, slack), where, asked.progress
    )
    if not (found.candidates if asked.simulate else found.options):
        raise Infeasible([_nothing(found, wanted)])
    return SizingCase(
        question=sized_question(q, wanted),
        wanted=wanted,
        percentile=asked.percentile,
        place=where,
        found=found,
        price_source=source,
        demand=demand,
    )


def _demand(asked: SizeQuestion, q: ServeQuestion, options: dict[str, Any]) -> Demand:
    """The requests of a trace or of sessions, those of ten minutes where no number of them is given."""
    if asked.lengths is not None:
        options["lengths"] = asked.lengths
    drawn = math.ceil((asked.rate or 0.0) * DRAWN_S)
    many = asked.requests or min(max(drawn, LEAST_DRAWN), MOST_DRAWN)
    if asked.requests is not None:
        options["requests"] = asked.requests
    how, trace = read_play(options, q)
    if trace is None:
        return Demand(requests=requests_of(q, replace(how, requests=many)), how=how)
    if trace.at_s is None or not trace.at_s[-1]:
        message, allowed = "has no arrivals to size for", "--lengths FILE with --rate"
        raise bad_input("arrivals", asked.arrivals, message, allowed)
    return Demand(requests=trace, how=how)


def _of_demand(wanted: ServiceTargets, demand: Demand) -> ServiceTargets:
    """The targets at the mean lengths and rate of the requests, with what a cache would have of them."""
    requests = demand.requests
    return replace(
        wanted,
        rate=wanted.rate or len(requests) / float((requests.at_s or [1.0])[-1]),
        isl=float(np.mean(requests.isl)),
        osl=float(np.mean(requests.osl)),
        cached=max(wanted.cached, reusable_share(requests)),
        lengths=None,
    )


def _said_of_demand(wanted: ServiceTargets, demand: Demand) -> tuple[str, ...]:
    """What the requests are, and what of their prompts a cache would have."""
    many = f"sized by simulating {len(demand.requests):,} requests at {wanted.rate:.4g} requests/s"
    kept = f"a cache without limit would have {wanted.cached:.0%} of the prompts' tokens"
    return (*demand.requests.said, f"{many}, {demand.how.routing}; {kept}")


def sizing_of(case: SizingCase, *, simulate: bool, top: int) -> Sizing:
    """The answer: the cheapest layouts simulated, all by money."""
    q, wanted, found = case.question, case.wanted, case.found
    choices = ordered_choices(case, (found.options, found.candidates), simulate)
    if not choices:
        raise Infeasible([_nothing(found, wanted, case.percentile)])
    others = ordered_choices(case, (found.others, found.other_candidates), simulate)
    return Sizing(
        model=q.model.id,
        system=q.system.id,
        profile=q.profile.id,
        wanted=wanted,
        percentile=case.percentile,
        choices=tuple(_top(choices, top)),
        pareto=tuple(SizingPoint(option=one, osl=wanted.osl) for one in found.pareto),
        evaluated=found.evaluated,
        price_source=case.price_source,
        assumptions=(*q.assumptions, *_said(case)),
        question=q,
        cannot_launch=cheaper_refused(case, choices[0], simulate=simulate),
        alternatives=tuple(alternatives(case, choices[0], simulate=simulate)),
        elsewhere=others[0] if others else None,
    )


def _with_rent(
    where: PrefillPlace | None, asked: SizeQuestion, q: ServeQuestion
) -> tuple[PrefillPlace | None, str]:
    """Where prefill is, with what its chips cost; and where both rents come from."""
    rent = float(q.prices.usd_per_chip_hour)
    if where is None or not where.chip:
        placed = None if where is None else replace(where, usd_per_chip_hour=rent)
        return placed, q.prices.source
    listed, settings = asked.prices, settings_of(part(ServiceQuestion, asked))
    other = rent_of(where.chip, asked.price, settings, listed)
    own = float(other.usd_per_chip_hour)
    worth = own / rent if own and rent else 1.0
    source = f"{q.prices.source}; {where.chip}: {other.source}"
    return replace(where, usd_per_chip_hour=own, worth=worth), source


def _said(case: SizingCase) -> list[str]:
    """What is assumed of prefill instances on other chips."""
    where = case.place
    if where is None:
        return []
    on = f"on {where.chip} ({where.profile.id})" if where.chip else "on the same chips"
    return [f"prefill apart {on}, in instances of at most {where.most_gpus}, as asked"]


def _given_measured(asked: SizeQuestion, question: ServeQuestion, most: int | str) -> ServeQuestion:
    """The question on its system as the measured services have it."""
    from foretell.api.measured_serving import condition_service

    load = {
        "concurrency": None,
        "rate": asked.rate,
        "prefill_gpus": None,
        "prefill_plan": None,
    }
    known, _ = condition_service(part(ServiceQuestion, asked, gpus=most, **load), asked.measured)
    first = known.questions[0]
    return replace(question, system=question.system.with_corrections(known.corrections(first)))


def _problems(asked: SizeQuestion) -> list[Problem]:
    problems = []
    for name, value, low, high in (
        ("ttft", asked.ttft, 1e-3, 1e12),
        ("tpot", asked.tpot, 1e-3, 1e12),
        ("headroom", asked.headroom, 0.0, 100.0),
        ("prefix_hit", asked.prefix_hit, 0.0, 1.0),
        ("top", asked.top, 1, 1000),
    ):
        given: object = value
        plain = isinstance(given, int | float) and not isinstance(given, bool)
        if not plain or not low <= value <= high:
            problems.append(
                wrong(name, given, "not a usable number", f"a number from {low:g} to {high:g}")
            )  # fmt: skip
    if asked.percentile not in PERCENTILES:
        problems.append(
            wrong("percentile", asked.percentile, "unknown", ", ".join(PERCENTILES))
        )  # fmt: skip
    return problems


def _nothing(found: SizingSearch, wanted: ServiceTargets, percentile: str = "") -> Problem:
    """What the quickest layouts reach where none is quick enough."""
    quickest = min((o.instance.tpot_ms for o in found.pareto), default=None)
    soonest = min((o.instance.ttft_ms for o in found.pareto), default=None)
    told = (
        "no layout fits in memory"
        if quickest is None or soonest is None
        else f"the quickest layouts reach a TPOT of {quickest:.3g} ms and a TTFT of {soonest:.4g} ms"
    )
    if found.blocked:
        told += f"; not launched: {found.blocked[0].name()} ({found.blocked[0].refusal})"
    at = f" at {percentile}" if percentile else ""
    return wrong(
        "tpot, ttft",
        f"{wanted.tpot_ms:g} ms, {wanted.ttft_ms:g} ms",
        f"no layout of at most {wanted.most_gpus} GPUs meets both{at}: {told}",
        "a longer time, a narrower format, larger instances (--gpus) or a faster chip",
    )


def _top(choices: list[Choice], many: int) -> list[Choice]:
    """The first of some choices; the cheapest of a kind that is not among them takes the last place."""
    shown = choices[:many]
    kinds = {choice.option.kind for choice in shown}
    other = next((choice for choice in choices if choice.option.kind not in kinds), None)
    return shown if other is None or many < 2 else [*shown[:-1], other]
