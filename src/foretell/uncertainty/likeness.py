"""What makes two training runs alike: features for the posterior."""

import math

from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario

REPEATED = {"none": 0.0, "selective": 0.5, "full": 1.0}
"""How much of the layers is computed again; half of them where modules are named."""


def features_of(scenario: Scenario, plan: Plan) -> dict[str, float | str]:
    """The features of a training step."""
    job = scenario.job
    return {
        "chips": math.log2(job.gpus),
        "length": math.log2(job.seq_len),
        "micro_batch": math.log2(max(plan.micro_batch, 1)),
        "width": math.log2(scenario.model.stack.hidden),
        "tp": math.log2(plan.tp),
        "pp": math.log2(plan.pp),
        "cp": math.log2(plan.cp),
        "ep": math.log2(plan.ep),
        "zero3": float(plan.zero >= 3),
        "recompute": REPEATED.get(plan.recompute, 0.5),
        "lora": float(bool(plan.lora)),
        "software": scenario.software.family,
        "model": scenario.model.id,
        "chip": scenario.system.chip.id,
        "format": f"{plan.precision} {plan.weights}",
    }
