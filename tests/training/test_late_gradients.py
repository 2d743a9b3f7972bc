"""Gradients made by the backward pass on its way: the fullest of four moments, looked at one by one."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.catalog.software import software
from foretell.kernels.memory import StageMemory
from foretell.specs.plan import parse_plan
from foretell.training.late_gradients import fullest_moment, makes_late
from foretell.training.tables import LateWeights

SIZES = st.floats(0.0, 100.0)


@given(
    weights=st.tuples(SIZES, SIZES, SIZES),
    more=SIZES,
    layers=st.integers(1, 60),
    kept=SIZES,
    always=SIZES,
    passing=st.tuples(SIZES, SIZES),
    bytes_each=st.sampled_from([2.0, 4.0]),
)
def test_the_fullest_moment_is_the_largest_of_four(
    weights: tuple[float, float, float],
    more: float,
    layers: int,
    kept: float,
    always: float,
    passing: tuple[float, float],
    bytes_each: float,
) -> None:
    head, layer, table = weights
    scores, again = passing
    whole = bytes_each * (head + layer + table + more)
    moments = {
        "scores": (0.0, kept, always + scores),
        "last layer": (bytes_each * (head + layer), kept, always + again),
        "first layer": (whole - bytes_each * table, kept / layers, always + again),
        "update": (whole, 0.0, always),
    }
    values = dict.fromkeys((field.name for field in fields(StageMemory)), np.zeros((1, 1)))
    values["gradients"] = np.full((1, 1), whole)
    values["activations"] = np.full((1, 1), kept)
    values["buffers"] = np.full((1, 1), always + max(scores, again))
    late = LateWeights(
        head=np.full((1, 1), head),
        layer=np.full((1, 1), layer),
        table=np.full((1, 1), table),
        layers=np.full((1, 1), float(layers)),
    )
    found = fullest_moment(
        StageMemory(**values),  # type: ignore[arg-type]
        late,
        (np.full((1, 1), scores), np.full((1, 1), again)),
        bytes_each,
    )
    held = [float(x[0, 0]) for x in (found.gradients, found.activations, found.buffers)]
    largest = max(sum(moment) for moment in moments.values())
    assert sum(held) == pytest.approx(largest, rel=1e-12, abs=1e-9)
    # All three are of one moment.
    assert any(held == pytest.approx(moment, rel=1e-12, abs=1e-9) for moment in moments.values())


@pytest.mark.parametrize(
    ("words", "late"),
    [
        ("gradients=bf16", True),
        ("gradients=fp32", False),
        ("gradients=bf16 lora=8", False),
        ("gradients=bf16 recompute=full:3", False),
        ("gradients=bf16 recompute=full", True),
        ("gradients=bf16 offload=optimizer", False),
        ("gradients=bf16 pp2 schedule=zb-h1", False),
        ("gradients=bf16 pp2 schedule=dualpipe", False),
        ("gradients=bf16 pp2 schedule=gpipe", True),
    ],
)
def test_who_makes_gradients_late(words: str, late: bool) -> None:
    """Plain PyTorch, unless something needs the gradients in another dtype, order or place."""
    for framework, expected in (("pytorch-eager", late), ("megatron-core", False)):
        plan = parse_plan(f"framework={framework} weights=bf16 {words}")
        assert makes_late(plan, software(framework)) == expected
