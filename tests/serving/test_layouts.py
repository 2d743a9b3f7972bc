"""Layouts that are tried where a deployment names none."""

from dataclasses import replace

import pytest

import foretell
from foretell.catalog import model
from foretell.serving.layouts import layouts
from foretell.specs.deployment import Deployment

LOAD = {"system": "h200-sxm", "gpus": 8, "isl": 4000, "osl": 500, "concurrency": 128}


@pytest.mark.parametrize("name", ["llama-3.1-70b", "qwen3-235b-a22b"])
@pytest.mark.parametrize("gpus", [1, 2, 6, 7, 8, 32, 96])
def test_every_layout_fills_whole_instances_once(name: str, gpus: int) -> None:
    found = [*layouts(model(name), gpus, Deployment(), 8)]
    assert len(found) == len({replace(one) for one in found})
    for one in found:
        assert gpus % one.gpus == 0
        assert one.tp <= 8
        assert one.ep in (1, one.tp * one.dp)
    assert Deployment() in found


def test_stages_and_mixed_attention_are_among_them() -> None:
    mixture = {
        (d.tp, d.pp, d.dp, d.ep) for d in layouts(model("qwen3-235b-a22b"), 8, Deployment(), 8)
    }
    assert {
        (8, 1, 1, 1),
        (4, 2, 1, 1),
        (2, 4, 1, 1),
        (8, 1, 1, 8),
        (4, 1, 2, 8),
        (1, 1, 8, 8),
    } <= mixture
    dense = {(d.tp, d.pp) for d in layouts(model("llama-3.1-70b"), 32, Deployment(), 8)}
    assert (8, 4) in dense
    assert all(tp <= 8 for tp, _ in dense)


def test_where_nothing_fits_the_largest_instance_says_why() -> None:
    with pytest.raises(foretell.Infeasible, match="got 'tp8 weights=fp8-block"):
        foretell.serve("deepseek-v3", system="h100-sxm", gpus=8)
    with pytest.raises(foretell.Infeasible, match="of 7 chips no layout spans more than 1"):
        foretell.serve("llama-3.1-70b", system="h200-sxm", gpus=7)


@pytest.mark.parametrize("plan", ["tp8", "tp4", "tp4 pp2", "tp8 ep8", "tp4 dp2 ep8", "tp1 dp8 ep8"])
def test_no_layout_by_name_beats_the_best(plan: str) -> None:
    best = foretell.serve("qwen3-235b-a22b", **LOAD)
    assert best.plan_chosen
    named = foretell.serve("qwen3-235b-a22b", **LOAD, plan=plan)
    assert named.output_tokens_per_s <= best.output_tokens_per_s * 1.0001
