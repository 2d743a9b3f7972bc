"""What makes two training runs alike, and what makes one doubtful: features and traits for the posterior."""

import math

from foretell.kernels.precision import linear_format
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario

REPEATED = {"none": 0.0, "selective": 0.5, "full": 1.0}
"""How much of the layers is computed again; half of them where modules are named."""
FEATURES = (
    "chips", "length", "micro_batch", "width", "tp", "pp", "cp", "ep", "zero3", "recompute", "lora",
    "model", "chip", "format",
)  # fmt: skip
"""Numbers in powers of two, switches, and names."""
SIZES, WIDTH, DEGREES, SWITCHES = FEATURES[:3], FEATURES[3:4], FEATURES[4:8], FEATURES[8:11]
NAMES = FEATURES[11:]
TRAITS = ("narrow", "lora")
"""What makes a run doubtful."""


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
        "model": scenario.model.id,
        "chip": scenario.system.chip.id,
        "format": f"{plan.precision} {plan.weights}",
    }


def traits_of(plan: Plan) -> dict[str, float]:
    """The traits of a training step."""
    return {"narrow": float(linear_format(plan) is not None), "lora": float(bool(plan.lora))}
