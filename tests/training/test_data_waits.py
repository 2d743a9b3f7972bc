"""What hidden collectives take from the pass that hides them."""

import numpy as np
import pytest

from foretell.specs.plan import parse_plan
from foretell.training.answer import answer_of
from foretell.training.exposed_messages import CORES_TAKEN, cores_taken
from tests.builders import make_chip, make_scenario

USE = np.array([0.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("architecture", "share"),
    [("hopper", CORES_TAKEN), ("cdna3", CORES_TAKEN), ("tpu-v5p", 0.0), ("trainium2", 0.0), ("wafer-3", 0.0)],
)  # fmt: skip
def test_cores_are_taken_as_far_as_links_are_used(architecture: str, share: float) -> None:
    chip = make_chip(architecture=architecture)
    np.testing.assert_array_equal(cores_taken(chip, USE), share * USE)


def test_a_cpu_hides_nothing() -> None:
    np.testing.assert_array_equal(cores_taken(make_chip(architecture="cpu-x86"), USE), np.ones(3))


@pytest.mark.parametrize("zero", ["zero1", "zero3"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_messages_of_every_stage_and_schedule_are_timed(zero: str, schedule: str) -> None:
    """Schedules that split the backward pass scatter gradients behind a part of it."""
    scenario = make_scenario("dense", gpus=8, batch=32)
    plan = parse_plan(f"tp1 pp2 {zero} mbs1 schedule={schedule}", 8)
    assert 0.0 < answer_of(scenario, plan, chosen=False).step_s < np.inf
