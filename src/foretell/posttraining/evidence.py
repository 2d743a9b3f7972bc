"""Where the figures of a post-training step may lie: by first contacts with steps like it."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from foretell.catalog.error_models import QuestionFacts, error_model
from foretell.posttraining.step import StepSetup
from foretell.specs.corrections import POST_TRAINING
from foretell.specs.model import Model
from foretell.specs.system import System
from foretell.uncertainty.novelty import kind_of_model, novelty_of
from foretell.uncertainty.posterior import MeasuredRun, prior_interval
from foretell.uncertainty.words import reason_of

KIND = "post-training"
GROUPS: Mapping[str, str] = {
    "generate": "generation",
    "environment": "generation",
    "gen": "generation",
    "old_logprob": "forward",
    "ref_logprob": "forward",
    "values": "forward",
    "update_actor": "update",
    "update_critic": "update",
    "finetune": "update",
    "memory": "update",
    "weight_sync": "synchronisation",
    "sync": "synchronisation",
    "reshard": "synchronisation",
    "wake": "synchronisation",
    "sleep": "synchronisation",
    "reward": "loop",
    "adv": "loop",
    "host": "loop",
}
"""Phase, or other figure -> the group that it goes with."""
WHOLE: Mapping[str, float] = {"generation": 0.5, "forward": 0.15, "update": 0.35}
"""Usual shares of a whole step of reinforcement learning."""


def loop_facts(
    *, software: str, system: System, model: Model, gpus: float, length: float
) -> QuestionFacts:
    """What is known of a post-training step before it is run."""
    return QuestionFacts(
        software=software,
        chip=system.chip.id,
        generation=system.chip.architecture,
        model=kind_of_model(model),
        size=max(gpus, 1.0),
        length=max(length, 1.0),
    )


def setup_facts(setup: StepSetup) -> QuestionFacts:
    """What is known of a step that is asked for."""
    scenario = setup.scenario
    return loop_facts(
        software=setup.loop.id,
        system=scenario.system,
        model=scenario.model,
        gpus=setup.gpus,
        length=setup.work.answers.mean,
    )


def loop_novelty(facts: QuestionFacts, figure: str) -> Mapping[str, float]:
    """What is new about one figure of a step, and which figure it is."""
    return {**novelty_of(KIND, facts), GROUPS.get(figure, "step"): 1.0, figure: 1.0}


def row_features(facts: QuestionFacts, model: str) -> Mapping[str, float | str]:
    """What makes two figures of a table of one model alike."""
    numbers = {"chips": math.log2(facts.size), "answer": math.log2(facts.length)}
    return {**numbers, "trajectories": 0.0, "model": model, "chip": facts.chip}


def usual_slopes(figure: str) -> NDArray[np.float64]:
    """Usual slopes of a figure to the groups of phases."""
    group = GROUPS.get(figure)
    shares = WHOLE if group is None else {group: 1.0}
    return np.array([shares.get(name, 0.0) for name in POST_TRAINING])


def figure_ends(
    facts: QuestionFacts, figure: str, left_out: str = ""
) -> Mapping[str, tuple[float, float]]:
    """Ends of the intervals of a figure in logarithm, around 0."""
    run = MeasuredRun(slopes=usual_slopes(figure), novelty=loop_novelty(facts, figure))
    return prior_interval(error_model(KIND, left_out), POST_TRAINING, run)


def figure_reason(facts: QuestionFacts, figure: str) -> str:
    """Why the interval of a figure is as wide as it is."""
    low, high = (math.exp(end) for end in figure_ends(facts, figure)["p90"])
    return reason_of(error_model(KIND), facts, loop_novelty(facts, figure), low, high)
