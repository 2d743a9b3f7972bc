"""Records in, records out: `foretell.estimate`, `search`, `simulate`, `explain` and the like."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.answer import answer_of
from foretell.cost.op_times import required_dtypes
from foretell.cost.precision import LOW_PRECISION
from foretell.errors import BadInput, Infeasible, Problem, unknown
from foretell.long_run import Given, asked_run, conditions_of, with_run
from foretell.network.library_catalog import library_for
from foretell.question import ask, collect, plan_of
from foretell.search.choices import over_names
from foretell.search.nearest import nearest_plan
from foretell.search.search import Search, search_plans
from foretell.sharding.rules import chips_of
from foretell.simulate.schedules.rules import all_broken
from foretell.specs.model import Model
from foretell.specs.plan import BATCH_FIELDS, USUAL_SCHEDULES, Plan, batch_of, named_fields
from foretell.specs.result import Estimate
from foretell.specs.scenario import Scenario
from foretell.specs.system import System
from foretell.units import format as show

if TYPE_CHECKING:
    # Each of these is loaded by the function that needs it: a plain estimate starts sooner.
    from foretell.differences import Comparison
    from foretell.explain import Explanation
    from foretell.memory_answer import MemoryAnswer
    from foretell.search.sensitivity import Sensitivity
    from foretell.simulation import Simulation

Settings = Mapping[str, object] | Sequence[str]


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
    that follow (long_run.py). Raises BadInput for what cannot be understood and Infeasible where the
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
        base = plan_of(scenario, None, settings)
        return with_run(best_plan(scenario, base, fixed_fields(None, settings)), asked)
    chosen = plan_of(scenario, plan, settings)
    check_plan(scenario, chosen)
    result = answer_of(scenario, chosen, chosen=False)
    if result.fits == "no":
        raise Infeasible([_too_large(scenario, result)], result)
    return with_run(result, asked)


def explain(model: str | Path | Model, **question: Any) -> "Explanation":
    """Where the time and memory of a step go and what would move them; the question as of `estimate`."""
    return explain_estimate(estimate(model, **question))


def explain_estimate(result: Estimate) -> "Explanation":
    """Explain an estimate: `best.explain()`."""
    from foretell.explain import explain as explain_plan

    return explain_plan(result, _question_of(result))


def sensitivity(result: Estimate, of: str = "step_s") -> "Sensitivity":
    """d ln(result) / d ln(each number of the system), the plan held; `of` is one of RESULTS."""
    from foretell.search.sensitivity import RESULTS
    from foretell.search.sensitivity import sensitivity as sensitivity_of_plan

    if of not in RESULTS:
        raise BadInput([unknown("of", of, RESULTS)])
    return sensitivity_of_plan(_question_of(result), result.plan, of)


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
    from foretell.differences import compare

    return compare(*answers)


def _question_of(result: Estimate) -> Scenario:
    """What an estimate was an answer to."""
    if result.scenario is None:
        message = "was not made by estimate or search: its question is not known"
        raise BadInput([Problem(path="estimate", value=None, message=message)])
    return result.scenario


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
    from foretell.memory_answer import MemoryAnswer
    from foretell.timeline import step_memory

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
        base = plan_of(scenario, None, settings)
        told = best_plan(scenario, base, fixed_fields(None, settings))
        told = replace(answer_of(scenario, told.plan, chosen=True), assumptions=told.assumptions)
    else:
        chosen = plan_of(scenario, plan, settings)
        check_plan(scenario, chosen)
        told = answer_of(scenario, chosen, chosen=False)
    return MemoryAnswer(estimate=told, step=step_memory(scenario, told.plan))


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
    base = plan_of(scenario, plan, settings)
    check_choices(scenario, base)
    named = named_fields(plan) if plan else ()
    tried = over_names(over, (*named, *(text.partition("=")[0][5:] for text in settings)))
    fixed = fixed_fields(plan, settings)
    return search_plans(scenario, base, top, progress, workers, fixed, tried)


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

    `jitter` and `stragglers` leave task times and slow chips to chance (simulate/chance.py); `trace` is
    where a Chrome trace goes. Raises as `estimate` does.
    """
    from foretell.simulate.chance import Chance, chance_problems
    from foretell.simulation import DETAILS, simulation_of

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


def best_plan(scenario: Scenario, base: Plan, fixed: tuple[str, ...] = ()) -> Estimate:
    """The best plan of the whole space (less what is fixed), or Infeasible with the nearest miss."""
    check_choices(scenario, base)
    found = search_plans(scenario, base, top=1, fixed=fixed)
    if not found.plans:
        raise Infeasible([_nothing(scenario, base, found, fixed)])
    best = found.best
    said = f"plan chosen by search: the best of {found.plans_evaluated} candidates"
    return replace(best, assumptions=(*best.assumptions, said))


def check_choices(scenario: Scenario, plan: Plan) -> None:
    """Choices that no number can mend: dtypes the chip lacks, what is not modelled yet."""
    chip = scenario.system.chip
    check_size(scenario)
    problems = _without_effect(scenario)
    problems += [
        Problem(
            path="plan.precision",
            value=plan.precision,
            message=f"{chip.id} has no {dtype} matrix units",
            allowed=", ".join(_precisions(scenario)),
        )
        for dtype in required_dtypes(plan)
        if dtype not in chip.matrix_flop_per_s
    ]
    problems += _recipe_problems(scenario, plan)
    usual = plan.schedule in USUAL_SCHEDULES
    chunks_hold = plan.vpp == (2 if plan.schedule == "zb-v" else 1)
    if (plan.schedule == "interleaved") != (plan.vpp > 1) if usual else not chunks_hold:
        problems.append(
            Problem(
                path="plan.schedule",
                value=plan.schedule,
                message=f"contradicts vpp{plan.vpp}",
                allowed="interleaved where vpp > 1, zb-v with vpp2, else the others",
            )
        )
    if problems:
        raise BadInput(problems)


def _recipe_problems(scenario: Scenario, plan: Plan) -> list[Problem]:
    """Recipes that contradict each other, or that the chip does not allow."""
    problems = []
    if plan.adapters != Plan().adapters and not plan.lora:
        problems.append(
            Problem(
                path="plan.adapters",
                value=plan.adapters,
                message="has no effect without adapters",
                allowed=f"{Plan().adapters}, or lora=N",
            )
        )
    if plan.scaling != "tensor" and plan.precision != "fp8":
        message = f"{plan.precision} has scales of its own, or none"
        problems.append(
            Problem(
                path="plan.scaling",
                value=plan.scaling,
                message=message,
                allowed="tensor, or precision=fp8",
            )
        )
    if plan.offload != "none" and not scenario.system.chip.host_bytes_per_s:
        message = f"the link of {scenario.system.chip.id} to its host is not known"
        problems.append(
            Problem(
                path="plan.offload",
                value=plan.offload,
                message=message,
                allowed="none, or --set chip.host_bytes_per_s",
            )
        )
    return problems


def check_size(scenario: Scenario) -> None:
    """Raise where the system has fewer chips than are asked for."""
    have = chips_of(scenario)
    if scenario.job.gpus > have:
        tiers = " x ".join(f"{t.name} {float(t.size):g}" for t in scenario.system.network.tiers)
        message = f"{scenario.system.id} has {have:.0f} chips ({tiers})"
        raise Infeasible(
            [
                Problem(
                    path="gpus",
                    value=scenario.job.gpus,
                    message=message,
                    allowed=f"up to {have:.0f}",
                )
            ]
        )


def _without_effect(scenario: Scenario) -> list[Problem]:
    """Settings that the fit of a collective library does not look at."""
    library = library_for(scenario.system)
    if library is None:
        return []
    return [
        Problem(
            path=f"--set {path}",
            value=value,
            message=f"has no effect: collectives follow the fit of {library.id}",
            allowed="bandwidth_bytes_per_s, latency_s, taper, in_network_reduction",
        )
        for path, value in scenario.overrides.items()
        if path.endswith(".efficiency")
    ]


def check_plan(scenario: Scenario, plan: Plan) -> None:
    """Raise where a rule is broken: which, by how much, and the nearest plan that works."""
    check_choices(scenario, plan)
    failed = all_broken(scenario, plan, batch_of([plan]))
    if failed:
        near = nearest_plan(scenario, plan)
        raise Infeasible(
            [
                Problem(
                    path=f"plan ({name})",
                    value=str(plan),
                    message=text,
                    nearest=None if near is None else str(near),
                )
                for name, text in failed
            ]
        )


def as_texts(settings: Settings) -> tuple[str, ...]:
    """Settings as `path=value` texts, also where they come as a mapping."""
    if isinstance(settings, Mapping):
        return tuple(f"{path}={value}" for path, value in settings.items())
    return tuple(settings)


def _precisions(scenario: Scenario) -> list[str]:
    have = scenario.system.chip.matrix_flop_per_s
    names = [p for p in ("bf16", "fp16") if p in have]
    return names + [p for p, d in LOW_PRECISION.items() if d in have and "bf16" in have]


def _too_large(scenario: Scenario, result: Estimate) -> Problem:
    need, have = result.peak_memory_bytes, result.memory_capacity_bytes
    near = nearest_plan(scenario, result.plan)
    return Problem(
        path="plan (memory)",
        value=str(result.plan),
        message=f"needs {show(need, 'bytes')} of {show(have, 'bytes')}, "
        f"{show(need - have, 'bytes')} too much",
        allowed=None if near else "more chips, or larger ones: no plan fits on these",
        nearest=None if near is None else str(near),
    )


def _nothing(scenario: Scenario, base: Plan, found: Search, fixed: tuple[str, ...]) -> Problem:
    if found.plans_evaluated == 0:
        reasons = ", ".join(f"{k} ({v})" for k, v in found.rejected.items())
        return Problem(
            path="plan",
            value=None,
            message=f"no plan satisfies the rules: {reasons}",
            allowed="other chips or batch",
        )
    least = smallest(scenario, base, fixed)
    have = float(scenario.system.chip.memory_bytes)
    return Problem(
        path="plan (memory)",
        value=None,
        message=f"none of {found.plans_evaluated} plans fits: the smallest, `{least[0]}`, needs "
        f"{show(least[1], 'bytes')} of {show(have, 'bytes')}",
        allowed="more chips, or chips with more memory",
    )


def smallest(scenario: Scenario, base: Plan, fixed: tuple[str, ...]) -> tuple[Plan, float]:
    """The plan that holds least, of those that have what is fixed."""
    from foretell.estimate import evaluate
    from foretell.search.space import enumerate_plans

    plans = enumerate_plans(scenario, base, fixed).plans
    _, peak = evaluate(scenario, plans)
    row = int(peak.argmin())
    return plans.plan(row), float(peak[row])
