"""A plan's step as events, and what can be read of it: ranks, and the bytes that each holds over the step."""

from foretell.simulation.programs import StepLayout, lay_out
from foretell.simulation.streams import PlayedStep, play_step
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario


def played_step(scenario: Scenario, plan: Plan) -> tuple[StepLayout, PlayedStep]:
    """A plan's step, laid out and simulated without chance."""
    laid = lay_out(scenario, plan)
    return laid, play_step(laid.schedule, laid.program)


def rank_stride(plan: Plan) -> int:
    """How many ranks apart the stages of a pipeline are numbered."""
    stride = 1
    for name in plan.order[: plan.order.index("pp")]:
        stride *= int(getattr(plan, name))
    return stride


def held_bytes(laid: StepLayout, played: PlayedStep, rank: int) -> tuple[Array, Array]:
    """Moments, and bytes that a rank of a stage holds from each on.

    Activations follow the micro-batches in flight; all else is held from beginning to end.
    """
    memory, row = laid.rows.memory, laid.stage[rank]
    peak, kept = float(memory.total[0, row]), float(memory.activations[0, row])
    moments, held = played.timeline.held(rank)
    return moments, peak - kept + kept * held / max(float(held.max()), 1e-30)
