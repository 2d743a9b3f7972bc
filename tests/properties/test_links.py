"""Faster links never make a step longer, and neither do those that start sooner."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.specs.plan import batch_of, parse_plan
from foretell.training.step import evaluate
from tests.builders import make_network, make_scenario

FASTER = (0.25, 0.5, 0.8, 1.0, 1.3, 2.0, 4.0, 16.0)
WORDS = ("tp1 zero0", "tp1 zero1", "tp1 zero3", "tp4 zero1", "tp2 zero3", "tp2 pp2 zero1")


@pytest.mark.parametrize("tier", range(len(make_network().tiers)))
@pytest.mark.parametrize("gpus", [16, 64])
@pytest.mark.parametrize("batch", [64, 1024])
def test_faster_links(tier: int, gpus: int, batch: int) -> None:
    plans = batch_of([parse_plan(f"{words} mbs1", gpus) for words in WORDS])
    steps = []
    for factor in FASTER:
        tiers = list(make_network().tiers)
        rate = factor * tiers[tier].bandwidth_bytes_per_s
        tiers[tier] = replace(tiers[tier], bandwidth_bytes_per_s=rate)
        network = replace(make_network(), tiers=tuple(tiers))
        steps.append(evaluate(make_scenario(gpus=gpus, batch=batch, network=network), plans)[0])
    assert np.all(np.diff(np.stack(steps), axis=0) <= 1e-9 * steps[0])
