"""A plan reduced to what operations and their kernels depend on, and how its kernels are started."""

from foretell.catalog.hosts import host_of
from foretell.catalog.optimizers import optimizer_of
from foretell.schedules import schedule_named
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario
from foretell.specs.software import Software
from foretell.training.shapes import (
    named_modules,
)

CUT = (
    "flash fused precision weights autocast scaling wide_layers lora adapters loss method cp_mode cp_cut "
    "documents tp_mode panels capacity routing imbalance"
).split()
"""What operations are cut and kept by, beside what runs again."""


def recipe_of(plan: Plan) -> Plan:
    """A plan reduced to what kernels run by."""
    same = {
        name: getattr(plan, name) for name in (*CUT, "attention", "master", "dispatch", "graphs")
    }
    return Plan(
        **same,
        # Kernels do not depend on these unless matrices are treated apart or modules run again.
        optimizer="adam" if optimizer_of(plan.optimizer).uniform else plan.optimizer,
        recompute=plan.recompute if named_modules(plan.recompute) else "none",
        schedule=plan.schedule if schedule_named(plan.schedule).splits_backward else "1f1b",
    )


def operations_recipe(recipe: Plan) -> Plan:
    """A recipe reduced to what operations are cut and kept by."""
    return Plan(**{name: getattr(recipe, name) for name in (*CUT, "recompute")})


def launch_kind(plan: Plan, software: Software) -> str:
    """How the kernels of a plan are started: as its software does, or as captured graphs where it says so."""
    if plan.graphs == "on":
        return "program"
    return "eager" if plan.graphs == "off" and software.launch == "program" else software.launch


def fixed_seconds(scenario: Scenario) -> float:
    """What a step takes beside its work: the host's own, and operations that its software launches."""
    host, many = host_of(scenario.system), scenario.software.step_operations
    return host.step_s + many * (host.operation_s + host.kernel_s)
