"""Records in, records out: `foretell.serve`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from foretell.api.service_answers import ServeAnswer, serve_answer, with_ways_out
from foretell.api.serving_questions import LARGEST, NO_LOAD, domain_of, question_of, rent_of
from foretell.errors import BadInput, Infeasible, Problem, wrong
from foretell.serving.benchmark import benchmark_figures, is_short, short_benchmark, with_tails
from foretell.serving.fit import EngineFit, engine_fits
from foretell.serving.layouts import best_layout, chosen_of, launchable
from foretell.serving.memory import memory_of
from foretell.serving.serve import ServeQuestion, serve_one, state_of
from foretell.serving.simulated_fleet import Play
from foretell.serving.simulation import serve_simulated
from foretell.serving.simulation_options import read_play
from foretell.serving.static import offline_limit, read_batch
from foretell.serving.steps import step_times
from foretell.serving.systems import serve_systems
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.questions.flags import asks, given_of, part
from foretell.specs.questions.serving import RequestOptions, ServiceQuestion, ServingQuestion
from foretell.specs.questions.sizing import SizeQuestion
from foretell.specs.service import ServiceEstimate
from foretell.specs.system import column_of, stack_systems, structure_of
from foretell.trace.graph import is_traced_file

OF_TRACES = ("steps", "passes", "rows", "once", "images_per_s")
"""Fields of a question that only traced modules have."""


@asks(ServingQuestion)
def serve(question: ServingQuestion) -> ServeAnswer:
    """One deployment under one load; the best layout where no plan is given.

    `prices` is a price list in SkyPilot's form, in the place of the catalogue's rents. `simulate` follows
    requests through the engine: True, with what is known of them in the arguments that follow; or a mapping
    of these (serving/simulation_options.py).

    A traced module (`foretell trace`) that is asked for passes (`steps`, or no word of tokens) answers a
    `SampledAnswer`; one that is asked for tokens is served as the decoder that its trace shows.

    Raises BadInput for what cannot be understood and Infeasible where the answer is no.
    """
    if is_traced_file(question.model):
        from foretell.api.traced_serving import asks_passes, serve_traced

        if asks_passes(question):
            return serve_traced(question, rent_of)  # type: ignore[return-value]
    sampling = {name: getattr(question, name) for name in OF_TRACES}
    if any(sampling.values()):
        raise BadInput([wrong(name, value, "is of a traced module", "a file of foretell trace as the model")
                        for name, value in sampling.items() if value])  # fmt: skip
    problems: list[Problem] = []
    batch = read_batch(question.tokens, question.within, problems)
    if problems:
        raise BadInput(problems)
    if batch is not None and question.rate is None and question.concurrency is None:
        question = replace(question, batching="offline")
    options = options_of(question)
    if options:
        # Options of a simulation that are fields of the question itself.
        moved = [name for name in ("prefill_plan", "prefill_gpus") if name in options]
        question = replace(question, **{name: options.pop(name) for name in moved})
    asked, given = asked_of(question)
    try:
        if question.measured:
            found = served_given(question, asked, given, options)
        elif options is not None:
            found = play_of(asked, given, options, question.progress)
        else:
            found = served(asked, given)
    except Infeasible as error:
        if question.fit:
            raise _with_fit(error, asked) from None
        raise with_ways_out(error, asked, domain_of(asked)) from None
    if question.fit:
        layout = parse_deployment(found.plan, asked.deployment)
        found = replace(found, fit=_fits(asked, layout))
    if batch is not None:
        rent = found.usd_per_chip_hour
        hourly = None if rent is None else rent * found.gpus
        found = replace(found, offline=batch.finish(found.output_tokens_per_s, hourly))
    return serve_answer(found)


def asked_of(question: ServingQuestion) -> tuple[ServeQuestion, bool]:
    """The question with how requests share steps and how a benchmark begins, and whether its layout was
    given."""
    if question.rate == inf and question.requests is not None:
        question = replace(question, rate=None, concurrency=float(question.requests))
    asked, given = question_of(part(ServiceQuestion, question))
    problems = [*benchmark_problems(question), *batching_problems(question, asked, given)]
    if problems:
        raise BadInput(problems)
    if question.batching == "offline" and asked.deployment.max_batch is None:
        layout = replace(asked.deployment, max_batch=offline_limit(asked.profile))
        asked = replace(asked, deployment=layout)
    plain = question.batching != "continuous"
    asked = replace(
        asked,
        batching=question.batching,
        requests=question.requests,
        warmup=question.warmup or 0,
        assumptions=tuple(text for text in asked.assumptions if text != NO_LOAD or not plain),
    )
    return asked, given


def benchmark_problems(question: ServingQuestion | SizeQuestion) -> list[Problem]:
    """Requests of a benchmark that are none, or all of them a warm-up."""
    warmup = question.warmup if _is_whole(question.warmup) else 0
    least = (warmup or 0) + 1
    problems = []
    for name, value, low in (
        ("requests", question.requests, least),
        ("warmup", question.warmup, 0),
    ):
        if value is not None and not (_is_whole(value) and low <= value <= LARGEST):
            allowed = f"a whole number from {low} on"
            problems.append(wrong(name, value, "not a usable number of requests", allowed))
    return problems


def _is_whole(value: object) -> bool:
    """Whether a value is a whole number; what was typed wrong is a text."""
    return isinstance(value, int) and not isinstance(value, bool)


def batching_problems(
    question: ServingQuestion, asked: ServeQuestion, given: bool
) -> list[Problem]:
    """What a static batch or an endless queue does not have."""
    if question.batching == "continuous":
        return []
    found = []
    beside = {
        "rate": asked.rate,
        "prefill_gpus": question.prefill_gpus,
        "simulate": question.simulate,
    }
    if question.batching == "offline":
        beside["concurrency"] = question.concurrency
    if not given and question.batching == "static":
        found.append(wrong("plan", None, "needs a layout", 'as in "tp4"'))
    message = f"says nothing of {question.batching} batching"
    found += [
        wrong(name, value, message, "--batching continuous")
        for name, value in beside.items()
        if value
    ]
    return found


def served(asked: ServeQuestion, given: bool) -> ServiceEstimate:
    """The closed form's answer, with what a benchmark of it prints and tails of simulated requests."""
    return with_own_tails(served_plainly(asked, given=given), asked)


def with_own_tails(found: ServiceEstimate, asked: ServeQuestion) -> ServiceEstimate:
    """The answer with percentiles of simulated requests on its own layout, where these take a moment."""
    return found if found.simulated else with_tails(found, as_answered(found, asked))


def served_plainly(asked: ServeQuestion, *, given: bool) -> ServiceEstimate:
    """The closed form's answer with what a benchmark of it prints, percentiles in closed form as well.

    A short benchmark is simulated; where its requests come faster than they are answered, so is all that is
    stated, since there is no steady state.
    """
    try:
        found = closed_form(asked, given)
    except Infeasible:
        if asked.rate is None or asked.requests is None or not given:
            raise
        how = Play(arrivals="poisson", requests=round(float(asked.requests or 1)))
        return replace(serve_simulated(asked, how), benchmark=short_benchmark(asked))
    here = as_answered(found, asked)
    if is_short(here):
        return replace(found, benchmark=short_benchmark(here))
    times = step_times(here.model, here.system, here.deployment, here.profile)
    memory = memory_of(here.model, here.system, here.deployment, here.profile)
    state, _ = state_of(here, times, memory)
    return replace(found, benchmark=benchmark_figures(here, times, memory, state))


def as_answered(found: ServiceEstimate, asked: ServeQuestion) -> ServeQuestion:
    """The question with the layouts of its answer, where these were chosen."""
    if not found.plan_chosen:
        return asked
    pool = asked.prefill
    if pool is not None and found.prefill_plan:
        pool = replace(pool, deployment=parse_deployment(found.prefill_plan, pool.deployment))
    layout = parse_deployment(found.plan, asked.deployment)
    return replace(asked, deployment=layout, prefill=pool, plan_chosen=True)


def _fits(asked: ServeQuestion, layout: Deployment) -> tuple[EngineFit, ...]:
    """What each engine fits on an instance of a layout."""
    tokens = float(np.max(np.asarray(asked.traffic.isl) + np.asarray(asked.traffic.osl)))
    return engine_fits(asked.model, asked.system, (layout, asked.profile), tokens)


def _with_fit(error: Infeasible, asked: ServeQuestion) -> Infeasible:
    """The refusal with the largest models that the chips would start."""
    layout = asked.deployment
    if layout.gpus == 1 and asked.gpus > 1:
        layout = replace(layout, tp=min(asked.gpus, domain_of(asked)))
    own = _fits(asked, layout)[0].largest_models
    told = ", ".join(f"{name} in {form}" for form, name in own.items()) or "none of the catalogue"
    more = f"the largest models that start there: {told}"
    return Infeasible(replace(p, allowed=f"{p.allowed}; {more}") for p in error.problems)


def served_given(
    question: ServingQuestion, asked: ServeQuestion, given: bool, options: dict[str, Any] | None
) -> ServiceEstimate:
    """The answer given what was measured: on the system as the measured services have it."""
    from foretell.api.measured_serving import condition_service

    known, _ = condition_service(part(ServiceQuestion, question), question.measured)
    here = replace(asked, system=known.place(asked))
    if options is not None:
        return play_of(here, given, options, question.progress)
    if not known.posterior.runs:
        return known.with_cache(served(here, given))
    return known.served(asked, given)


def options_of(question: ServingQuestion) -> dict[str, Any] | None:
    """What is known of simulated requests; None for the closed form, which takes no such options."""
    given = given_of(part(RequestOptions, question, simulate=False))
    if question.simulate is not False and question.requests is not None:
        given["requests"] = question.requests
    if question.simulate is False and given:
        message = "says how requests are simulated"
        raise BadInput(wrong(name, value, message, "--simulate") for name, value in given.items())
    if question.simulate is False:
        return None
    more = {} if question.simulate is True else question.simulate
    targets = {"ttft_ms": question.ttft, "tpot_ms": question.tpot}
    return {
        **more,
        **{name: value for name, value in targets.items() if value is not None},
        **given,
    }


def closed_form(question: ServeQuestion, given: bool) -> ServiceEstimate:
    """The deployment asked for, or the best one."""
    if given:
        return serve_one(question)
    return best_layout(question, domain_of(question))


def closed_forms(
    questions: Sequence[ServeQuestion], given: bool
) -> list[ServiceEstimate | Infeasible]:
    """The closed form of several questions; those that differ in numbers of their system, or in requests in
    flight, are one batch."""
    groups: dict[object, list[int]] = {}
    for place, one in enumerate(questions):
        groups.setdefault(_batch_key(one) or place, []).append(place)
    found: dict[int, ServiceEstimate | Infeasible] = {}
    for places in groups.values():
        asked = [questions[place] for place in places]
        answers = _batch_forms(asked, given) if len(asked) > 1 else [_one_form(asked[0], given)]
        found |= dict(zip(places, answers, strict=True))
    return [found[place] for place in range(len(questions))]


def _one_form(question: ServeQuestion, given: bool) -> ServiceEstimate | Infeasible:
    try:
        return closed_form(question, given)
    except Infeasible as error:
        return error


def _batch_forms(
    questions: Sequence[ServeQuestion], given: bool
) -> list[ServiceEstimate | Infeasible]:
    """Questions that differ in numbers of their system, or in requests in flight, alone."""
    batch = stack_systems([question.system for question in questions])
    loads = column_of([question.traffic.concurrency for question in questions])
    tried = layouts_of(questions[0], given)
    traffic = replace(questions[0].traffic, concurrency=loads)
    first = replace(questions[0], system=batch, traffic=traffic, plan_chosen=not given)
    rows = [(chunk, at) for chunk in serve_systems(first, tried) for at in range(len(chunk.best))]
    # Questions that are equal are one.
    rows = rows if len(rows) > 1 else rows * len(questions)
    found: list[ServiceEstimate | Infeasible] = []
    for question, (chunk, at) in zip(questions, rows, strict=True):
        try:
            found.append(_told(chunk.estimate(at), question, tried, given))
        except Infeasible as error:
            found.append(error)
    return found


def _told(
    found: ServiceEstimate, asked: ServeQuestion, layouts: Sequence[Deployment], given: bool
) -> ServiceEstimate:
    """An estimate of a batch with what is stated of its own question."""
    more = () if given else (chosen_of(len(layouts)),)
    own = found.assumptions[len(asked.assumptions) :]
    return replace(
        found,
        system=asked.system.id,
        assumptions=(*asked.assumptions, *own, *more),
        overrides=dict(asked.overrides),
        warnings=asked.warnings,
    )


def _batch_key(q: ServeQuestion) -> object:
    """What questions of one batch have in common; None where a question is answered by itself: systems are a
    batch at a fixed concurrency, with prompts and answers on the same instances."""
    if q.rate is not None or q.prefill is not None:
        return None
    alike = replace(q.traffic, concurrency=1.0)
    own = q.model, q.gpus, q.deployment, q.profile, alike, q.prices, q.targets_ms
    return structure_of(q.system), *own, len(q.assumptions)


def layouts_of(question: ServeQuestion, given: bool) -> list[Deployment]:
    """The layout that was given, or all that the chips allow."""
    if given:
        return [question.deployment]
    return launchable(question, domain_of(question))


def play_of(
    question: ServeQuestion,
    given: bool,
    options: Mapping[str, Any],
    progress: Callable[[int, int], None] | None,
) -> ServiceEstimate:
    """The answer with latencies of simulated requests; where no layout is given, the closed form's best."""
    how, trace = read_play(options, question)
    if trace is not None:
        timed = trace.at_s is not None
        if timed and question.rate is None and NO_LOAD not in question.assumptions:
            problem = Problem(path="concurrency", value=float(np.asarray(question.traffic.concurrency)),
                              message="given beside arrivals of a trace",
                              allowed="--rate, to which its timestamps are brought, or neither")  # fmt: skip
            raise BadInput([problem])
        said = tuple(line for line in question.assumptions if not timed or line != NO_LOAD)
        question = replace(question, assumptions=(*said, *trace.said))
    if not given:
        question = as_answered(closed_form(question, given), question)
    return serve_simulated(question, how, trace, progress)
