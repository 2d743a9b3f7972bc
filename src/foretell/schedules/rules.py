"""The rules of plans with those of their pipeline schedule."""

import numpy as np

from foretell.schedules import schedule_named, schedules
from foretell.schedules.base import Pipe
from foretell.sharding.rules import RULES, Cuts, Rule, broken_rules, layers_of
from foretell.specs.arrays import Mask
from foretell.specs.plan import USUAL_SCHEDULES, Plan, Plans
from foretell.specs.plan_forms import layout_sizes
from foretell.specs.scenario import Scenario


def pipe_of(scenario: Scenario, plans: Plans) -> Pipe:
    """Sizes of the plans' pipelines."""
    micro_batches = scenario.job.global_batch / (plans.dp * plans.micro_batch)
    return Pipe(micro_batches=micro_batches, pp=plans.pp, vpp=plans.vpp)


def schedule_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    """What a schedule asks of the pipeline; 1F1B has the rule of interleaving."""
    if plans.base.schedule in USUAL_SCHEDULES:
        return plans.pp > 0
    return schedule_named(plans.base.schedule).allows(pipe_of(scenario, plans))


def schedule_says(scenario: Scenario, cuts: Cuts, plan: Plan) -> str:
    """All that it asks for, and the sizes that there are."""
    asked = "; ".join(rule.says for rule in schedule_named(plan.schedule).rules)
    micro_batches = scenario.job.global_batch / (plan.dp * plan.micro_batch)
    return (
        f"{plan.schedule} needs {asked}: pp{plan.pp} vpp{plan.vpp}, {micro_batches:g} micro-batches"
    )


def is_looped(schedule: str) -> bool:
    """Whether chunk j of a schedule is on stage j mod pp, so that a plan may deal its layers by `layout=`."""
    return schedule_named(schedule).layout == "loop"


def layout_holds(scenario: Scenario, cuts: Cuts, plans: Plans) -> Mask:
    """A layout that is named has a number for every chunk, and all layers; its chunks run in a loop."""
    sizes = layout_sizes(plans.base.layout)
    if not sizes:
        return plans.pp > 0
    whole = sum(sizes) == layers_of(scenario.model) and is_looped(plans.base.schedule)
    return np.asarray((plans.pp * plans.vpp == len(sizes)) & whole)


def layout_says(scenario: Scenario, cuts: Cuts, plan: Plan) -> str:
    """How many chunks and layers there are, and how many it deals."""
    sizes, layers = layout_sizes(plan.layout), layers_of(scenario.model)
    if not is_looped(plan.schedule):
        known = ", ".join(one.name for one in schedules() if one.layout == "loop")
        return f"layout= needs a schedule of {known}, not {plan.schedule}"
    return (
        f"layout={plan.layout} deals {sum(sizes)} layers to {len(sizes)} chunks, "
        f"not {layers} to pp x vpp = {plan.pp * plan.vpp}"
    )


ALL_RULES: tuple[Rule, ...] = (
    *RULES,
    Rule("layout", layout_holds, layout_says),
    Rule("schedule", schedule_holds, schedule_says),
)


def all_broken(scenario: Scenario, plan: Plan, plans: Plans) -> list[tuple[str, str]]:
    """Names and sentences of all rules that one plan (and its batch of one) breaks."""
    return broken_rules(scenario, plan, plans, ALL_RULES)
