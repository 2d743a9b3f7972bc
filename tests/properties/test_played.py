"""Schedules in the estimate against a play of their tasks with the same times: ends, uneven stages, MTP."""

from dataclasses import replace

import numpy as np
import pytest

from foretell.network.collectives import ring_step_s
from foretell.specs.model import TokenPrediction
from foretell.specs.plan import batch_of, parse_plan
from foretell.specs.scenario import Scenario
from foretell.training.answer import answer_of
from foretell.training.step import evaluate_rows
from foretell.training.tables import tables_of
from tests.builders import MOE, make_model, make_scenario
from tests.properties.played import played_and_closed

WORST = {
    "schedule=1f1b": 0.015,
    "vpp2 schedule=interleaved": 0.03,
    "schedule=gpipe": 1e-9,
    "schedule=zb-h1": 0.015,
    "vpp2 schedule=zb-v": 0.035,
    "schedule=dualpipe": 0.025,
}
"""Largest difference of the closed form from the events, by schedule."""
BEFORE_A_BLOCK = {**WORST, "schedule=1f1b": 0.017}
"""The same where layers make way for a prediction block: a first stage of eight layers and a last of four and
the block. The events hide part of the last stage's first micro-batch behind the next forward of the first."""


def scenario_of(name: str, vocab: int, gpus: int = 8, batch: int = 64) -> Scenario:
    """One of the stacks; `mtp` is the mixture with a block that predicts a further token."""
    model = make_model("moe" if name == "mtp" else name, vocab=vocab)
    if name == "mtp":
        model = replace(model, prediction=TokenPrediction(layers=(MOE,)))
    return replace(make_scenario("dense", gpus, batch), model=model)


@pytest.mark.parametrize("words", list(WORST))
@pytest.mark.parametrize("vocab", [8000, 128000])
@pytest.mark.parametrize("name", ["dense", "uneven", "moe", "mtp"])
def test_the_closed_form_is_the_played_step(name: str, vocab: int, words: str) -> None:
    """A small and a large head, stages that do not divide, a prediction block on the last stage."""
    for pp, recompute in ((4, "none"), (4, "full"), (2, "none")):
        text = f"pp{pp} dp{8 // pp} mbs1 zero1 recompute={recompute} {words}"
        played, closed = played_and_closed(scenario_of(name, vocab), parse_plan(text, 8))
        worst = BEFORE_A_BLOCK if name == "mtp" else WORST
        assert closed == pytest.approx(played, rel=worst[words])


def test_pairs_hide_dispatches_and_sends() -> None:
    """What DualPipe hides is no more than there is, and the leaves still sum up."""
    scenario = scenario_of("moe", 32000, 32, 128)
    shown = {}
    for words in ("schedule=1f1b", "schedule=dualpipe"):
        plan = parse_plan(f"pp4 dp8 ep8 mbs1 zero1 {words}", 32)
        answer = answer_of(scenario, plan, chosen=False)
        assert answer.breakdown is not None
        assert sum(x.value for x in answer.breakdown.leaves()) == pytest.approx(
            answer.step_s, rel=1e-12
        )
        leaves = {leaf.name: leaf.value for leaf in answer.breakdown.children}
        assert all(value >= 0.0 for value in leaves.values())
        shown[words] = leaves["expert_parallel"] + leaves["pipeline_parallel"]
    assert 0.0 < shown["schedule=dualpipe"] < 0.7 * shown["schedule=1f1b"]


def test_two_copies_add_up_their_gradients() -> None:
    """Once a step, over the ranks of a pipeline: at least the bytes over the slowest link."""
    scenario = scenario_of("dense", 32000, 8, 64)
    waits = {}
    for words in ("schedule=1f1b", "schedule=dualpipe"):
        plans = batch_of([parse_plan(f"pp8 dp1 mbs1 zero0 {words}", 8)])
        tables = tables_of(scenario, plans)
        rows = evaluate_rows(scenario, plans, tables)
        waits[words] = float(rows.seconds.data_parallel[0, int(rows.slowest[0])])
    assert waits["schedule=1f1b"] == 0.0
    weights = 8000 * 1024.0
    counts = np.array([[8.0], [1.0]])
    least = ring_step_s(np.array([[weights * 4.0]]), counts, scenario.system.network)[0, 0]
    assert waits["schedule=dualpipe"] > least
