"""Serving plans as words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.specs.deployment import FORMATS, Deployment
from foretell.specs.deployment_text import (
    deployment_problems,
    deployment_text,
    parse_deployment,
)

DEGREE = st.sampled_from([1, 2, 4, 8])
DEPLOYMENTS = st.builds(
    Deployment,
    tp=DEGREE, pp=DEGREE, dp=DEGREE, ep=DEGREE, cp=DEGREE,
    weights=st.sampled_from(FORMATS), experts=st.sampled_from(FORMATS), kv=st.sampled_from(FORMATS),
    graph=st.booleans(), max_batch=st.none() | st.integers(1, 4096),
    max_tokens=st.none() | st.integers(1, 10**6),
    memory_fraction=st.none() | st.sampled_from([0.5, 0.82, 0.9]),
    draft_tokens=st.integers(0, 4), stream_interval=st.integers(1, 20),
)  # fmt: skip


@given(DEPLOYMENTS)
def test_what_is_printed_parses_back(deployment):
    assert parse_deployment(deployment_text(deployment)) == deployment


def test_weights_are_the_experts_too_unless_these_are_named():
    assert parse_deployment("weights=fp8").experts == "fp8"
    assert parse_deployment("weights=bf16 experts=mxfp4").experts == "mxfp4"


@pytest.mark.parametrize(
    ("text", "near"),
    [("tq8", "tp8"), ("weigths=fp8", "weights"), ("kv=fp9", "fp8"), ("tp0", None), ("tp=4", "tp4")],
)
def test_a_wrong_word_is_told_with_the_nearest(text, near):
    with pytest.raises(BadInput) as caught:
        parse_deployment(f"tp2 {text}" if not text.startswith("tp") else text)
    (problem,) = caught.value.problems
    assert problem.value == text
    assert near is None or problem.nearest == near


def test_all_problems_come_at_once():
    with pytest.raises(BadInput) as caught:
        parse_deployment("tp2 tp4 kv=x nonsense max_batch=many")
    assert len(caught.value.problems) == 4


def test_degrees_must_agree_with_each_other_and_the_chips():
    assert not deployment_problems(Deployment(tp=4, ep=2), 8)
    assert [p.path for p in deployment_problems(Deployment(tp=3), 8)] == ["plan.tp"]
    assert [p.path for p in deployment_problems(Deployment(tp=4, ep=8), 8)] == ["plan.ep"]
    assert [p.path for p in deployment_problems(Deployment(memory_fraction=1.5), 8)] == [
        "plan.memory_fraction"
    ]
    assert deployment_problems(Deployment(draft_tokens=1, accepted=2.0), 8)
