"""Encoders of images and audio in training: their work, their states, and where they stand."""

from typing import Any

import pytest

import foretell
from foretell.api.answers import Estimate
from foretell.catalog.models import catalogue_model
from foretell.errors import BadInput
from foretell.workload.parameters import count

ASKED: dict[str, Any] = {"gpus": "8xH100", "seq_len": 4096, "global_batch": 64}
IMAGES = "2x1024x1024"
PLAN = "zero3 mbs1 recompute=none"


def step(model: str = "qwen2.5-vl-7b", plan: str = PLAN, **given: Any) -> Estimate:
    return foretell.estimate(model, plan=plan, **{**ASKED, **given})


def flops(found: Estimate) -> float:
    return found.step_s * found.tflops_per_gpu


def test_a_frozen_tower_runs_forward_alone() -> None:
    text, frozen = step(), step(images=IMAGES, towers="frozen")
    trained = step(images=IMAGES)
    assert text.step_s < frozen.step_s < trained.step_s
    forward = flops(frozen) - flops(text)
    assert flops(trained) - flops(text) == pytest.approx(3.0 * forward, rel=1e-6)
    # Layers of 32 x 10,952 patches: twice their weights, and the attention of windows and whole images.
    weights = catalogue_model("qwen2.5-vl-7b").towers[0].parameters
    least = 2.0 * 0.9 * weights * 2 * 37 * 37 * 4 * 64 / 8 / 1e12
    assert least < forward < 2.0 * least


def test_a_frozen_tower_has_weights_and_no_states() -> None:
    plan = "tp2 zero1 mbs1 recompute=full"
    text, frozen = step(plan=plan), step(plan=plan, images=IMAGES, towers="frozen")
    trained = step(plan=plan, images=IMAGES)
    weights = catalogue_model("qwen2.5-vl-7b").towers[0].parameters

    def held(found: Estimate, name: str) -> float:
        return sum(leaf.value for leaf in found.memory.children if leaf.name == name)

    # Tensor ranks share its layers, and each has the whole projector.
    assert 1.0 < (held(frozen, "weights") - held(text, "weights")) / weights < 1.1
    assert held(frozen, "states") == pytest.approx(held(text, "states"))
    assert held(trained, "states") > held(text, "states") + 1.4 * weights


def test_recomputation_takes_a_trained_towers_tensors() -> None:
    kept = step(images=IMAGES).allocated_bytes - step().allocated_bytes
    again = {"plan": PLAN.replace("none", "full")}
    fewer = step(images=IMAGES, **again).allocated_bytes - step(**again).allocated_bytes
    assert fewer < 0.6 * kept


def test_a_tower_stands_on_the_first_stage() -> None:
    plan = "tp2 pp4 zero1 mbs1"
    text, seen = step(plan=plan), step(plan=plan, images=IMAGES)
    grown = [
        b.value - a.value for a, b in zip(text.memory_by_stage, seen.memory_by_stage, strict=True)
    ]
    assert grown[0] > 2**30
    assert all(abs(more) < 2**20 for more in grown[1:])
    # The first stage sets the pace.
    assert seen.step_s > 1.5 * text.step_s


def test_context_ranks_share_out_images_and_experts_stand_beside() -> None:
    model = "qwen3-vl-30b-a3b"
    one = step(model, "ep8 zero3 mbs1 recompute=full", images=IMAGES, towers="frozen")
    assert one.step_s > step(model, "ep8 zero3 mbs1 recompute=full").step_s
    ring = {"plan": "cp2 zero3 mbs1"}
    assert step(images=IMAGES, **ring).step_s > step(**ring).step_s


def test_a_played_step_has_the_tower() -> None:
    plan = "tp2 pp2 zero1 mbs1"
    found = foretell.simulate("qwen2.5-vl-7b", plan=plan, images=IMAGES, **ASKED)
    assert found.step_s == pytest.approx(step(plan=plan, images=IMAGES).step_s, rel=0.05)


def test_adapters_leave_a_frozen_tower_alone() -> None:
    plan = "zero3 lora=16 mbs1"
    frozen, both = step(plan=plan, images=IMAGES, towers="frozen"), step(plan=plan, images=IMAGES)
    assert step(plan=plan).step_s < frozen.step_s < both.step_s


def test_sound_is_heard() -> None:
    found = step("qwen2-audio-7b", audio=30.0, seq_len=2048)
    assert any("30 s of audio: 750 of the 2048" in said for said in found.assumptions)


def test_weights_are_counted_once() -> None:
    import dataclasses

    from foretell.workload.towers import read_loads

    model = catalogue_model("qwen2.5-vl-7b")
    loads = tuple(load for _, load in read_loads(model, IMAGES, None))
    assert count(dataclasses.replace(model, reads=loads)) == count(model)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"images": "20x1024x1024"}, "more than a sequence has"),
        ({"images": "1024"}, "no size of images"),
        ({"towers": "frozen"}, "neither images nor audio"),
        ({"images": IMAGES, "towers": "thawed"}, "trained, frozen"),
        ({"audio": 30.0}, "no audio encoder"),
    ],
)
def test_what_cannot_be_asked_says_so(given: dict[str, Any], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        step(**given)
