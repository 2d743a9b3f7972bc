"""Plans that cannot be: what is wrong with one, by how much, and the nearest that works."""

from collections.abc import Callable
from functools import cache

from foretell.errors import BadInput, Infeasible, Problem, wrong
from foretell.kernels.plan_kernels import required_dtypes
from foretell.kernels.precision import LOW_PRECISION
from foretell.network.tier_checks import network_problems
from foretell.records import later
from foretell.schedules.rules import all_broken
from foretell.sharding.rules import chips_of, layers_of
from foretell.specs.plan import BLANK, QUANTISED, USUAL_SCHEDULES, WIDE_PRECISIONS, Plan, batch_of
from foretell.specs.result import StepEstimate
from foretell.specs.scenario import Scenario
from foretell.units import format as show


def check_choices(scenario: Scenario, plan: Plan) -> None:
    """Choices that no number can mend: dtypes the chip lacks, what is not modelled yet."""
    chip = scenario.system.chip
    check_size(scenario)
    problems = network_problems(scenario.system, scenario.overrides)
    problems += [
        wrong(
            "plan.precision",
            plan.precision,
            f"{chip.id} has no {dtype} matrix units",
            ", ".join(_precisions(scenario)),
        )
        for dtype in required_dtypes(plan)
        if dtype not in chip.matrix_flop_per_s
    ]
    problems += _recipe_problems(scenario, plan)
    usual = plan.schedule in USUAL_SCHEDULES
    chunks_hold = plan.vpp == (2 if plan.schedule == "zb-v" else 1)
    if (plan.schedule == "interleaved") != (plan.vpp > 1) if usual else not chunks_hold:
        problems.append(
            wrong(
                "plan.schedule",
                plan.schedule,
                f"contradicts vpp{plan.vpp}",
                "interleaved where vpp > 1, zb-v with vpp2, else the others",
            )
        )
    if problems:
        raise BadInput(problems)


def _recipe_problems(scenario: Scenario, plan: Plan) -> list[Problem]:
    """Recipes that contradict each other, or that the chip does not allow."""
    problems = []
    if plan.adapters != BLANK.adapters and not plan.lora:
        problems.append(
            wrong(
                "plan.adapters",
                plan.adapters,
                "has no effect without adapters",
                f"{BLANK.adapters}, or lora=N",
            )
        )
    without = {"weights": plan.weights in QUANTISED, "method": plan.method != "lora"}
    problems += [
        wrong(
            f"plan.{name}",
            getattr(plan, name),
            "is of frozen weights beside adapters",
            "lora=N beside it",
        )
        for name, given in without.items()
        if given and not plan.lora
    ]
    if plan.scaling != "tensor" and plan.precision != "fp8":
        message = f"{plan.precision} has scales of its own, or none"
        problems.append(wrong("plan.scaling", plan.scaling, message, "tensor, or precision=fp8"))
    problems += _wide_problems(scenario, plan)
    if plan.offload != "none" and not scenario.system.chip.host_bytes_per_s:
        message = f"the link of {scenario.system.chip.id} to its host is not known"
        problems.append(
            wrong("plan.offload", plan.offload, message, "none, or --set chip.host_bytes_per_s")
        )
    return problems


def _wide_problems(scenario: Scenario, plan: Plan) -> list[Problem]:
    """Layers in 16 bits that no layer differs from, or more of them than there are."""
    layers, narrow = layers_of(scenario.model), plan.precision in LOW_PRECISION
    if not plan.wide_layers or (narrow and plan.wide_layers <= layers):
        return []
    message = f"every layer has precision={plan.precision}"
    allowed = f"0, or a precision of {', '.join(LOW_PRECISION)}"
    if narrow:
        message, allowed = f"the model has {layers} layers", f"0 to {layers}"
    return [wrong("plan.wide_layers", plan.wide_layers, message, allowed)]


def check_size(scenario: Scenario) -> None:
    """Raise where the system has fewer chips than are asked for."""
    have = chips_of(scenario)
    if scenario.job.gpus > have:
        tiers = " x ".join(f"{t.name} {float(t.size):g}" for t in scenario.system.network.tiers)
        message = f"{scenario.system.id} has {have:.0f} chips ({tiers})"
        raise Infeasible([wrong("gpus", scenario.job.gpus, message, f"up to {have:.0f}")])


def check_plan(scenario: Scenario, plan: Plan) -> None:
    """Raise where a rule is broken: which, by how much, and the nearest plan that works."""
    check_choices(scenario, plan)
    failed = all_broken(scenario, plan, batch_of([plan]))
    if failed:
        near = _nearest_later(scenario, plan)
        raise Infeasible(
            [wrong(f"plan ({name})", str(plan), text, nearest=later(near)) for name, text in failed]
        )


def _precisions(scenario: Scenario) -> list[str]:
    """Precisions that the chip has units for."""
    have = scenario.system.chip.matrix_flop_per_s
    names = [p for p in ("bf16", "fp16", *WIDE_PRECISIONS) if p in have]
    return names + [p for p, d in LOW_PRECISION.items() if d in have and "bf16" in have]


def too_large(scenario: Scenario, result: StepEstimate) -> Problem:
    """A plan that needs more memory than the chip has."""
    need, have = result.peak_memory_bytes, result.memory_capacity_bytes
    tensors = show(result.allocated_bytes, "bytes")
    return wrong(
        "plan (memory)",
        str(result.plan),
        f"needs {show(need, 'bytes')} of {show(have, 'bytes')}, "
        f"{show(need - have, 'bytes')} too much; its tensors alone take {tensors}",
        later(cache(lambda: _instead(scenario, result))),
        later(_nearest_later(scenario, result.plan)),
    )


def _nearest_later(scenario: Scenario, plan: Plan) -> Callable[[], str | None]:
    """Finds the text of the nearest plan that works, once: it takes as long as dozens of estimates."""

    @cache
    def found() -> str | None:
        from foretell.search.instead import nearest_plan  # a plan that works never needs it

        near = nearest_plan(scenario, plan)
        return None if near is None else str(near)

    return found


def _instead(scenario: Scenario, result: StepEstimate) -> str:
    """Ways out of a plan that does not fit: other numbers of chips, another chip, a lighter recipe."""
    from foretell.search.instead import instead_words
    from foretell.search.search import lighter_words

    words = instead_words(scenario, result.plan, result.peak_memory_bytes)
    return f"{words}{lighter_words(result.plan)}"
