"""The rules of plans with those of their pipeline schedule."""

from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe
from foretell.sharding.rules import RULES, Cuts, Mask, Rule, broken_rules
from foretell.specs.plan import USUAL_SCHEDULES, Plan, Plans
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


ALL_RULES: tuple[Rule, ...] = (
    *RULES,
    Rule(name="schedule", holds=schedule_holds, says=schedule_says),
)


def all_broken(scenario: Scenario, plan: Plan, plans: Plans) -> list[tuple[str, str]]:
    """Names and sentences of all rules that one plan (and its batch of one) breaks."""
    return broken_rules(scenario, plan, plans, ALL_RULES)
