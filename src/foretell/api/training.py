"""Records in, records out: `foretell.estimate`, `search`, `simulate`, `explain` and the like."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.api.answers import Estimate, Search, estimate_answer, scenario_of, search_answer
from foretell.errors import BadInput, Infeasible, Problem, unknown
from foretell.inputs.question import Settings, as_texts, ask, collect, plan_of
from foretell.search.choices import over_names
from foretell.search.plan_checks import check_choices, check_plan, too_large
from foretell.search.search import search_plans
from foretell.specs.model import Model
from foretell.specs.plan import BATCH_FIELDS, Plan, named_fields
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.training.answer import answer_of
from foretell.training.long_run import Given, asked_run, conditions_of, with_run

if TYPE_CHECKING:
    # Each of these is loaded by the function that needs it: a plain estimate starts sooner.
    from foretell.search.differences import Comparison
    from foretell.search.explain import Explanation
    from foretell.search.sensitivity import Sensitivity
    from foretell.simulation.answer import Simulation
    from foretell.simulation.memory_answer import MemoryAnswer


def estimate(
    model: str | Path | Model,
    *,
    system: str | Path | System | None = None,
    gpus: int | str | None = None,
    global_batch: int | None = None,
    seq_len: int | None = None,
    target_len: int | None = None,
    plan: str | Plan | None = None,
    set: Settings = (),
    tokens: Given = None,
    failures_per_gpu_day: Given = None,
    restart_s: Given = None,
    checkpoint: str | None = None,
    checkpoint_interval: Given = None,
    checkpoint_wait_s: Given = None,
    storage_bandwidth: Given = None,
) -> Estimate:
    """One plan's training step; the best plan where none is given.

    With `tokens` ("15T", or "chinchilla" for compute-optimal) also the whole run, under the conditions
    that follow (training/long_run.py). Raises BadInput for what cannot be understood and Infeasible where the
    answer is no.
    """
    settings, problems = as_texts(set), list[Problem]()
    given = {
        "failures_per_gpu_day": failures_per_gpu_day,
        "restart_s": restart_s,
        "checkpoint": checkpoint,
        "checkpoint_interval": checkpoint_interval,
        "checkpoint_wait_s": checkpoint_wait_s,
        "storage_bandwidth": storage_bandwidth,
    }
    conditions = collect(lambda: conditions_of(tokens, given), problems)
    scenario = collect(
        lambda: ask(
            model=model,
            system=system,
            gpus=gpus,
            global_batch=global_batch,
            seq_len=seq_len,
            target_len=target_len,
            plan=plan,
            settings=settings,
        ),
        problems,
    )
    if problems or scenario is None:
        raise BadInput(problems)
    asked = None if conditions is None else asked_run(scenario, conditions)
    if plan is None:
        scenario, base = plan_of(scenario, None, settings, searched=True)
        best = best_plan(scenario, base, fixed_fields(None, settings))
        return estimate_answer(with_run(best, asked))
    scenario, chosen = plan_of(scenario, plan, settings)
    check_plan(scenario, chosen)
    result = answer_of(scenario, chosen, chosen=False)
    if result.fits == "no":
        raise Infeasible([too_large(scenario, result)], estimate_answer(result))
    return estimate_answer(with_run(result, asked))


def explain(model: str | Path | Model, **question: Any) -> "Explanation":
    """Where the time and memory of a step go and what would move them; the question as of `estimate`."""
    return estimate(model, **question).explain()


def sensitivity(result: Estimate, of: str = "step_s") -> "Sensitivity":
    """d ln(result) / d ln(each number of the system), the plan held; `of` is one of RESULTS."""
    from foretell.search.sensitivity import RESULTS
    from foretell.search.sensitivity import sensitivity as sensitivity_of_plan

    if of not in RESULTS:
        raise BadInput([unknown("of", of, RESULTS)])
    return sensitivity_of_plan(scenario_of(result), result.plan, of)


def compare_plans(
    a: str | Plan, b: str | Plan, model: str | Path | Model, **question: Any
) -> "Comparison":
    """Why one plan beats another, leaf by leaf; the question as of `estimate`.

    A plan that breaks a rule is Infeasible; one that does not fit is compared all the same.
    """
    answers = []
    for name, plan in (("A", a), ("B", b)):
        try:
            answers.append(estimate(model, plan=plan, **question))
        except Infeasible as error:
            if not isinstance(error.answer, Estimate):
                raise Infeasible(
                    replace(p, path=f"{name}: {p.path}") for p in error.problems
                ) from None
            answers.append(error.answer)
    from foretell.search.differences import compare

    return compare(*answers)


def memory(
    model: str | Path | Model,
    *,
    system: str | Path | System | None = None,
    gpus: int | str | None = None,
    global_batch: int | None = None,
    seq_len: int | None = None,
    target_len: int | None = None,
    plan: str | Plan | None = None,
    set: Settings = (),
) -> "MemoryAnswer":
    """One plan's memory over a step, whether it fits or not; the best plan where none is given."""
    from foretell.simulation.memory_answer import MemoryAnswer
    from foretell.simulation.memory_timeline import step_memory

    settings = as_texts(set)
    scenario = ask(
        model=model,
        system=system,
        gpus=gpus,
        global_batch=global_batch,
        seq_len=seq_len,
        target_len=target_len,
        plan=plan,
        settings=settings,
    )
    if plan is None:
        scenario, base = plan_of(scenario, None, settings, searched=True)
        told = best_plan(scenario, base, fixed_fields(None, settings))
        told = replace(answer_of(scenario, told.plan, chosen=True), assumptions=told.assumptions)
    else:
        scenario, chosen = plan_of(scenario, plan, settings)
        check_plan(scenario, chosen)
        told = answer_of(scenario, chosen, chosen=False)
    return MemoryAnswer(estimate=estimate_answer(told), step=step_memory(scenario, told.plan))


def search(
    model: str | Path | Model,
    *,
    system: str | Path | System | None = None,
    gpus: int | str | None = None,
    global_batch: int | None = None,
    seq_len: int | None = None,
    target_len: int | None = None,
    plan: str | None = None,
    top: int = 10,
    workers: int = 1,
    over: str | Sequence[str] = (),
    set: Settings = (),
    progress: Callable[[int, int], None] | None = None,
) -> Search:
    """Every plan, ranked; `plan` fixes what it names (precision, optimizer, dtypes).

    `over` names structural choices that are tried too, such as "schedule,cp_mode", or all of them ("all").
    """
    settings = as_texts(set)
    problems = [
        Problem(
            path=name,
            value=value,
            message="not a usable number",
            allowed=f"a whole number from 1 to {most}",
        )
        for name, value, most in (("top", top, 100_000), ("workers", workers, 1024))
        if type(value) is not int or not 1 <= value <= most
    ]
    if problems:
        raise BadInput(problems)
    scenario = ask(
        model=model,
        system=system,
        gpus=gpus,
        global_batch=global_batch,
        seq_len=seq_len,
        target_len=target_len,
        plan=plan,
        settings=settings,
    )
    scenario, base = plan_of(scenario, plan, settings, searched=True)
    check_choices(scenario, base)
    named = named_fields(plan) if plan else ()
    tried = over_names(over, (*named, *(text.partition("=")[0][5:] for text in settings)))
    fixed = fixed_fields(plan, settings)
    return search_answer(search_plans(scenario, base, top, progress, workers, fixed, tried))


def simulate(
    model: str | Path | Model,
    *,
    system: str | Path | System | None = None,
    gpus: int | str | None = None,
    global_batch: int | None = None,
    seq_len: int | None = None,
    target_len: int | None = None,
    plan: str | Plan | None = None,
    set: Settings = (),
    jitter: float = 0.0,
    stragglers: float = 0.0,
    slowdown: float = 1.3,
    repeats: int = 20,
    seed: int = 0,
    trace: str | Path | None = None,
    detail: str = "auto",
) -> "Simulation":
    """One plan's step played event by event, beside the closed form; the best plan where none is given.

    `jitter` and `stragglers` leave task times and slow chips to chance (simulation/chance.py); `trace` is
    where a Chrome trace goes. Raises as `estimate` does.
    """
    from foretell.simulation.answer import simulation_of
    from foretell.simulation.chance import Chance, chance_problems
    from foretell.simulation.trace import DETAILS

    problems = chance_problems(
        {"jitter": jitter, "stragglers": stragglers, "slowdown": slowdown},
        {"repeats": repeats, "seed": seed},
    )
    if detail not in DETAILS:
        allowed = ", ".join(DETAILS)
        problems.append(
            Problem(path="detail", value=detail, message="not a choice", allowed=allowed)
        )
    try:
        answer = estimate(
            model,
            system=system,
            gpus=gpus,
            global_batch=global_batch,
            seq_len=seq_len,
            target_len=target_len,
            plan=plan,
            set=set,
        )
    except BadInput as error:
        raise BadInput([*error.problems, *problems]) from error
    if problems or answer.scenario is None:
        raise BadInput(problems)
    chance = Chance(
        jitter=float(jitter),
        stragglers=float(stragglers),
        slowdown=float(slowdown),
        repeats=repeats,
        seed=seed,
    )
    result = simulation_of(answer.scenario, answer, chance)
    if trace is not None:
        result.to_chrome_trace(trace, detail)
    return result


def fixed_fields(plan: str | Plan | None, settings: Sequence[str]) -> tuple[str, ...]:
    """Choices that a search would try and that a plan's text or a setting fixes."""
    given = [*(named_fields(plan) if isinstance(plan, str) else ())]
    given += [text.partition("=")[0].strip().removeprefix("plan.") for text in settings]
    return tuple(name for name in dict.fromkeys(given) if name in BATCH_FIELDS)


def best_plan(scenario: Scenario, base: Plan, fixed: tuple[str, ...] = ()) -> StepEstimate:
    """The best plan of the whole space (less what is fixed), or Infeasible with the nearest miss."""
    check_choices(scenario, base)
    found = search_plans(scenario, base, top=1, fixed=fixed)
    best = found.best
    said = f"plan chosen by search: the best of {found.plans_evaluated} candidates"
    return replace(best, assumptions=(*best.assumptions, said))
