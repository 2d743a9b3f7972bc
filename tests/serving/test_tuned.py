"""Options of public recipes: what `--tuned` sets, and what it leaves as typed."""

import pytest

import foretell
from foretell.errors import Infeasible

LARGE = {"model": "deepseek-v3", "system": "b200-sxm", "engine": "sglang", "isl": 8192, "osl": 1024}
"""A model whose weights in 8 bits take 88 % of four chips."""


def serve(plan="tp4 weights=fp8", **given):
    """An answer for it."""
    return foretell.serve(**{**LARGE, "gpus": 4, "concurrency": 8, **given}, plan=plan)


def test_recipes_make_room_where_weights_fill_the_usual_share():
    """SGLang's usual share of a B200 is less than the weights, and its recipe on four says so."""
    found = serve(tuned=True)
    assert found.kv_bytes > 0.0
    assert "memory_fraction=0.95 max_tokens=8192" in " ".join(found.assumptions)
    with pytest.raises(Infeasible) as refused:
        serve()
    assert "memory_fraction above" in refused.value.problems[0].allowed


def test_prefill_instances_are_given_the_same_room():
    """Tuned as those that decode are; plain ones of as many chips do not start."""
    apart = {"gpus": 8, "prefill_gpus": 4, "prefill_plan": "tp4"}
    assert serve(tuned=True, **apart).prefill_gpus == 4
    with pytest.raises(Infeasible):
        serve("tp4 weights=fp8 memory_fraction=0.95", **apart)


def test_the_share_that_a_refusal_names_starts():
    """A little above it the cache holds a request."""
    with pytest.raises(Infeasible) as refused:
        serve()
    allowed = refused.value.problems[0].allowed
    least = float(allowed.partition("memory_fraction above ")[2].partition(",")[0])
    assert serve(f"tp4 weights=fp8 memory_fraction={least + 0.02}").kv_bytes > 0.0
    with pytest.raises(Infeasible):
        serve(f"tp4 weights=fp8 memory_fraction={least - 0.01}")


@pytest.mark.parametrize(
    ("plan", "gpus"), [("tp8 weights=fp8", 8), ("tp4 weights=fp8 memory_fraction=0.93", 4)]
)
def test_room_is_made_only_where_there_is_none(plan, gpus):
    """Not on eight chips, and a share that is typed stays."""
    found = serve(plan, gpus=gpus, tuned=True)
    assert "memory_fraction=0.95" not in " ".join(found.assumptions)


def test_a_card_that_is_too_small_is_refused_however_it_is_tuned():
    """Two chips do not hold the weights."""
    with pytest.raises(Infeasible) as refused:
        serve("tp2 weights=fp8", gpus=2, tuned=True)
    assert "memory_fraction" not in refused.value.problems[0].allowed
