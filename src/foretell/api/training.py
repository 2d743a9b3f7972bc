"""Records in, records out: `foretell.estimate`, `search`, `simulate`, `explain` and the like."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foretell.api.answers import Estimate, estimate_answer, scenario_of
from foretell.errors import BadInput, Infeasible, Problem, at_path, bad_input, unknown, wrong
from foretell.inputs.job import fill_sequences
from foretell.inputs.question import (
    as_texts,
    collect,
    is_partial,
    named_by,
    plan_of,
    scenario_for,
)
from foretell.records import with_values
from foretell.search.frameworks import own_refusals
from foretell.search.plan_checks import check_choices, check_plan, too_large
from foretell.specs.plan import BATCH_FIELDS, Plan, named_fields
from foretell.specs.questions.common import Progress
from foretell.specs.questions.flags import asks, part, values_of
from foretell.specs.questions.training import (
    MemoryQuestion,
    PlaceQuestion,
    PlansQuestion,
    SearchQuestion,
    SimulateQuestion,
    StepQuestion,
    TrainingQuestion,
)
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.trace.graph import is_traced_file
from foretell.training.answer import answer_of
from foretell.training.long_run import asked_run, conditions_of, with_run
from foretell.training.room import filled_words, make_room

if TYPE_CHECKING:
    # Each of these is loaded by the function that needs it: a plain estimate starts sooner.
    from foretell.api.conditioning import Conditioned
    from foretell.api.search_answers import Search
    from foretell.search.differences import Comparison
    from foretell.search.explain import Explanation
    from foretell.search.search import SearchResult
    from foretell.search.sensitivity import Sensitivity
    from foretell.simulation.answer import MemoryAnswer, Simulation


@asks(TrainingQuestion)
def estimate(question: TrainingQuestion) -> Estimate:
    """One plan's training step; the best plan where none is given.

    With `tokens` ("15T", or "chinchilla" for compute-optimal) also the whole run, under the conditions
    that follow (training/long_run.py). Raises BadInput for what cannot be understood and Infeasible where the
    answer is no.
    """
    if is_traced_file(question.model):
        from foretell.api.traced_models import estimate_traced

        return estimate_traced(question)
    settings, plan, problems = as_texts(question.set), question.plan, list[Problem]()
    conditions = collect(lambda: conditions_of(question), problems)
    scenario = collect(lambda: scenario_for(question), problems)
    if problems or scenario is None:
        raise BadInput(problems)
    asked = None if conditions is None else asked_run(scenario, conditions)
    known = conditioned(scenario, question)
    if is_partial(plan, settings, scenario.job.gpus):
        try:
            best = completed_plan(scenario, plan, settings, known, question.progress)
        except Infeasible:
            enough = None if question.gpus is not None else _enough_chips(scenario, plan, settings)
            if enough is None:
                raise
            best = completed_plan(enough, plan, settings, known, question.progress)
        if question.gpus is not None:
            best = _beside(question, best, plan, settings)
        return estimate_answer(with_run(best, asked))
    assert plan is not None
    scenario, chosen = plan_with_room(scenario, plan, settings)
    result = with_run(step_answer(scenario, chosen, known, chosen=False), asked)
    result = _as_asked(result, plan, settings)
    if result.fits == "no":
        raise Infeasible([too_large(scenario, result)], estimate_answer(result))
    return estimate_answer(result)


def plan_with_room(
    scenario: Scenario,
    plan: str | Plan,
    settings: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> tuple[Scenario, Plan]:
    """A plan that keeps the rules, completed by its software, which also makes room in memory where the plan
    names it and does not say how; and the scenario that says what was filled in."""
    scenario, chosen = plan_of(scenario, plan, settings, left_out=left_out)
    scenario = fill_sequences(scenario, chosen)
    check_plan(scenario, chosen)
    if isinstance(plan, Plan):
        return scenario, chosen
    return make_room(scenario, chosen, named_by(plan, settings), own_refusals)


def _as_asked(result: StepEstimate, plan: str | Plan, settings: Sequence[str]) -> StepEstimate:
    """An answer with what its framework has against the plan, first among what is assumed, and the words that
    are Foretell's and not the text's."""
    against = () if result.scenario is None else own_refusals(result.scenario, result.plan)
    said = result.assumptions
    if against:
        said = (f"{result.plan.framework} cannot run this plan: {'; '.join(against)}", *said)
    filled = () if isinstance(plan, Plan) else filled_words(result.plan, named_by(plan, settings))
    return with_values(result, refusals=against, assumptions=said, filled_in=filled)


def conditioned(scenario: Scenario, question: PlaceQuestion) -> "Conditioned | None":
    """What the measured runs of a question say; None where it has none."""
    if not question.measured:
        return None
    from foretell.api.conditioning import condition_steps, measured_steps
    from foretell.api.measured_files import read_measured

    rows = read_measured(question.measured)
    plan = getattr(question, "plan", None) or getattr(question, "a", None)
    found = condition_steps(measured_steps(scenario, plan, rows))
    said = [f"measured: {one.source}: {note}" for one in rows for note in one.notes]
    return replace(found, notes=(*found.notes, *said))


def step_answer(
    scenario: Scenario, plan: Plan, known: "Conditioned | None", *, chosen: bool
) -> StepEstimate:
    """One plan's step, as predicted or given what was measured."""
    if known is None:
        return answer_of(scenario, plan, chosen=chosen)
    return known.answer(scenario, plan, chosen=chosen)


@asks(StepQuestion)
def explain(question: StepQuestion) -> "Explanation":
    """Where the time and memory of a step go and what would move them; the question as of `estimate`."""
    _no_trace("explain", question)
    return estimate(**values_of(question)).explain()


def _no_trace(verb: str, question: PlaceQuestion) -> None:
    """Refuse a traced module where the verb looks into layers that a config describes."""
    if is_traced_file(question.model):
        message = f"{verb} has no form for a traced module"
        allowed = "estimate, search, serve and size; or the module's config.json"
        raise bad_input("model", str(question.model), message, allowed)


def sensitivity(result: Estimate, of: str = "step_s") -> "Sensitivity":
    """d ln(result) / d ln(each number of the system), the plan held; `of` is one of RESULTS."""
    from foretell.search.sensitivity import sensitivity as sensitivity_of_plan
    from foretell.training.variants import RESULTS

    if of not in RESULTS:
        raise BadInput([unknown("of", of, RESULTS)])
    return sensitivity_of_plan(scenario_of(result), result.plan, of)


@asks(PlansQuestion)
def compare_plans(question: PlansQuestion) -> "Comparison":
    """Why one plan beats another, leaf by leaf; the question as of `estimate`.

    A plan that breaks a rule is Infeasible; one that does not fit is compared all the same.
    """
    _no_trace("compare-plans", question)
    answers = []
    place = values_of(part(PlaceQuestion, question))
    for name, plan in (("A", question.a), ("B", question.b)):
        try:
            answers.append(estimate(**place, plan=plan))
        except Infeasible as error:
            if not isinstance(error.answer, Estimate):
                raise Infeasible(at_path(p, f"{name}: {p.path}") for p in error.problems) from None
            answers.append(error.answer)
    from foretell.search.differences import compare

    return compare(*answers)


@asks(MemoryQuestion)
def memory(question: MemoryQuestion) -> "MemoryAnswer":
    """One plan's memory over a step, whether it fits or not; the best plan where none is given."""
    from foretell.simulation.answer import MemoryAnswer
    from foretell.simulation.memory_timeline import step_memory

    _no_trace("memory", question)
    settings, plan = as_texts(question.set), question.plan
    scenario = scenario_for(question)
    known = conditioned(scenario, question)
    if is_partial(plan, settings, scenario.job.gpus):
        best = completed_plan(scenario, plan, settings, known)
        told = step_answer(scenario, best.plan, known, chosen=True)
        told = with_values(told, assumptions=best.assumptions)
    else:
        assert plan is not None
        scenario, chosen = plan_with_room(scenario, plan, settings)
        told = step_answer(scenario, chosen, known, chosen=False)
        told = _as_asked(told, plan, settings)
    place = scenario if told.scenario is None else told.scenario
    return MemoryAnswer(estimate=estimate_answer(told), step=step_memory(place, told.plan))


@asks(SearchQuestion)
def search(question: SearchQuestion) -> "Search":
    """Every plan, ranked; `plan` fixes what it names (precision, optimizer, dtypes).

    `over` names structural choices that are tried too, such as "schedule,cp_mode", or all of them ("all").
    """
    from foretell.api.search_answers import search_answer
    from foretell.search.choices import over_names

    if is_traced_file(question.model):
        from foretell.api.traced_search import search_traced

        return search_traced(question)
    settings, plan = as_texts(question.set), question.plan
    top, workers = question.top, question.workers
    problems = [
        wrong(name, value, "not a usable number", f"a whole number from 1 to {most}")
        for name, value, most in (("top", top, 100_000), ("workers", workers, 1024))
        if type(value) is not int or not 1 <= value <= most
    ]
    if problems:
        raise BadInput(problems)
    scenario = scenario_for(question)
    scenario, base = plan_of(scenario, plan, settings, searched=True)
    check_choices(scenario, base)
    named = named_fields(plan) if plan else ()
    tried = over_names(question.over, (*named, *(text.partition("=")[0][5:] for text in settings)))
    fixed = fixed_fields(plan, settings)
    known = conditioned(scenario, question)
    how = {"progress": question.progress, "workers": workers, "fixed": fixed, "over": tried}
    return search_answer(_plans_found(scenario, base, top, known, **how))


@asks(SimulateQuestion)
def simulate(question: SimulateQuestion) -> "Simulation":
    """One plan's step simulated event by event, beside the closed form; the best plan where none is given.

    `jitter` and `stragglers` leave task times and slow chips to chance (simulation/chance.py); `trace` is
    where a Chrome trace goes. Raises as `estimate` does.
    """
    from foretell.simulation.answer import simulation_of
    from foretell.simulation.chance import Chance, chance_problems
    from foretell.simulation.trace import DETAILS

    _no_trace("simulate", question)
    q = question
    problems = chance_problems(
        {"jitter": q.jitter, "stragglers": q.stragglers, "slowdown": q.slowdown},
        {"repeats": q.repeats, "seed": q.seed},
    )
    if q.detail not in DETAILS:
        problems.append(wrong("detail", q.detail, "not a choice", ", ".join(DETAILS)))
    try:
        answer = estimate(**values_of(part(StepQuestion, question)))
    except BadInput as error:
        raise BadInput([*error.problems, *problems]) from error
    if problems or answer.scenario is None:
        raise BadInput(problems)
    chance = Chance(
        jitter=float(q.jitter),
        stragglers=float(q.stragglers),
        slowdown=float(q.slowdown),
        repeats=q.repeats,
        seed=q.seed,
    )
    result = simulation_of(answer.scenario, answer, chance)
    if q.trace is not None:
        result.to_chrome_trace(q.trace, q.detail)
    return result


def fixed_fields(plan: str | Plan | None, settings: Sequence[str]) -> tuple[str, ...]:
    """Choices that a search would try and that a plan's text or a setting fixes."""
    given = [*(named_fields(plan) if isinstance(plan, str) else ())]
    given += [text.partition("=")[0].strip().removeprefix("plan.") for text in settings]
    return tuple(name for name in dict.fromkeys(given) if name in BATCH_FIELDS)


def _enough_chips(
    scenario: Scenario, plan: str | Plan | None, settings: Sequence[str]
) -> Scenario | None:
    """The scenario on the fewest chips that hold it, where no number was given and one node does not."""
    from foretell.search.instead import fewest_chips, on_chips

    scenario, base = plan_of(scenario, plan, settings, searched=True)
    found = fewest_chips(scenario, base)
    if found is None:
        return None
    said = (
        f"{found.gpus} chips, the fewest that hold it: no number was given, and one node does not"
    )
    kept = (text for text in scenario.assumptions if not text.endswith("no number was given"))
    return replace(on_chips(scenario, found.gpus), assumptions=(*kept, said))


def _beside(
    question: TrainingQuestion, best: StepEstimate, plan: str | Plan | None, settings: Sequence[str]
) -> StepEstimate:
    """The answer with what the next whole numbers of nodes would give, where the chips are none."""
    from foretell.search.instead import sizes_beside

    if best.scenario is None:
        return best
    job = best.scenario.job
    if job.gpus % best.scenario.system.node_chips == 0:
        return best
    scenario = scenario_for(question)
    scenario, base = plan_of(scenario, plan, settings, searched=True)
    others = " and ".join(
        f"{one.gpus} would give {one.tokens_per_s:,.0f} tokens/s ({one.plan})"
        for one in sizes_beside(scenario, base, batch_given=question.global_batch is not None)
    )
    if not others:
        return best
    said = f"{job.gpus} chips are no whole number of nodes: {others}"
    return with_values(best, assumptions=(said, *best.assumptions))


def completed_plan(
    scenario: Scenario,
    plan: str | Plan | None,
    settings: Sequence[str],
    known: "Conditioned | None" = None,
    progress: Progress | None = None,
) -> StepEstimate:
    """The best plan that has the words given, of those that the named software can run."""
    scenario, base = plan_of(scenario, plan, settings, searched=True)
    return best_plan(scenario, base, fixed_fields(plan, settings), known, progress)


def best_plan(
    scenario: Scenario,
    base: Plan,
    fixed: tuple[str, ...] = (),
    known: "Conditioned | None" = None,
    progress: Progress | None = None,
) -> StepEstimate:
    """The best plan of the whole space (less what is fixed), or Infeasible with the nearest miss; given what
    was measured, where something was."""
    check_choices(scenario, base)
    found = _plans_found(scenario, base, 1, known, progress=progress, fixed=fixed)
    many = found.plans_evaluated + found.plans_pruned
    said = f"plan chosen by search: the best of {many:,} candidates"
    return with_values(found.best, assumptions=(*found.best.assumptions, said))


def _plans_found(
    scenario: Scenario, base: Plan, top: int, known: "Conditioned | None", **how: Any
) -> "SearchResult":
    """The best plans, as predicted or given what was measured; `how` as of `search_plans`."""
    if known is None:
        from foretell.search.search import search_plans

        return search_plans(scenario, base, top, **how)
    from foretell.api.conditioning import search_given

    return search_given(known, scenario, base, top, **how)
