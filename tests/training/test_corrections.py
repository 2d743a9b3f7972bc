"""Factors on the mechanisms of a step: a batch of them is what each is alone, and a tree still sums up."""

from dataclasses import replace

import numpy as np
import pytest

import foretell
from foretell.api.answers import Estimate
from foretell.errors import Infeasible
from foretell.specs.corrections import TRAINING, TRAINING_MEMORY, Corrections
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.variants import evaluate_corrections
from foretell.uncertainty.evidence import shares_of

NAMES = (*TRAINING, *TRAINING_MEMORY)
STEPS = [
    ("llama-3.1-70b", 512, "tp8 pp4 zero1 mbs1", 1024, 8192),
    ("mixtral-8x7b", 64, "tp2 pp2 ep8 zero1 mbs1 cp2", 256, 4096),
    ("llama-3.1-8b", 16, "zero3 mbs1 recompute=full framework=torchtitan", 64, 4096),
]


def estimate_of(model: str, gpus: int, plan: str, batch: int, length: int) -> Estimate:
    try:
        return foretell.estimate(
            model, system="h100-sxm", gpus=gpus, plan=plan, global_batch=batch, seq_len=length
        )
    except Infeasible as error:
        assert isinstance(error.answer, Estimate)
        return error.answer


@pytest.mark.parametrize("asked", STEPS)
def test_a_batch_of_corrections_is_each_of_them_alone(
    asked: tuple[str, int, str, int, int],
) -> None:
    told = estimate_of(*asked)
    scenario = told.scenario
    assert isinstance(scenario, Scenario)
    factors = np.exp(np.random.default_rng(0).normal(0.0, 0.3, (3, len(NAMES))))
    factors[0] = 1.0
    rows = evaluate_corrections(scenario, told.plan, factors, NAMES)
    assert rows.step_s[0] == pytest.approx(told.step_s, rel=1e-12)
    for row, one in enumerate(factors):
        known = Corrections(**dict(zip(NAMES, one.tolist(), strict=True)))
        there = replace(scenario, system=scenario.system.with_corrections(known))
        alone = answer_of(there, told.plan, chosen=False)
        assert alone.step_s == pytest.approx(rows.step_s[row], rel=1e-12)
        assert alone.peak_memory_bytes == pytest.approx(rows.peak_bytes[row], rel=1e-12)
        assert alone.breakdown is not None
        leaves = sum(leaf.value for leaf in alone.breakdown.leaves())
        assert leaves == pytest.approx(alone.step_s, rel=1e-9)


@pytest.mark.parametrize("asked", STEPS)
def test_a_slower_mechanism_never_shortens_a_step(asked: tuple[str, int, str, int, int]) -> None:
    told = estimate_of(*asked)
    assert told.scenario is not None
    factors = np.vstack([np.ones(len(TRAINING)), 1.0 + 0.05 * np.eye(len(TRAINING))])
    step_s = evaluate_corrections(told.scenario, told.plan, factors, TRAINING).step_s
    assert (step_s >= step_s[0] * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("asked", STEPS)
def test_shares_are_of_the_whole_step(asked: tuple[str, int, str, int, int]) -> None:
    told = estimate_of(*asked)
    assert told.breakdown is not None
    shares = shares_of(told.breakdown)
    assert (shares >= 0.0).all()
    assert shares.sum() == pytest.approx(1.0)


def test_corrections_multiply_and_the_host_is_in_its_speed() -> None:
    system = foretell.estimate("llama-3.1-8b", gpus="8xH100").scenario.system  # type: ignore[union-attr]
    twice = system.with_corrections(Corrections(gemm=1.1, host=2.0))
    again = twice.with_corrections(Corrections(gemm=1.1))
    assert again.corrections.gemm == pytest.approx(1.21)
    assert again.chip.host_speed == pytest.approx(system.chip.host_speed / 2.0)
    assert again.corrections.changed.keys() == {"gemm", "host"}
