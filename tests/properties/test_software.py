"""What is a framework's in a step: hidden collectives, copies of ZeRO 3, the loss, stages by cost."""

from dataclasses import replace

import pytest

from foretell.inputs.software import with_software
from foretell.sharding.pipeline import sizes_by_cost
from foretell.specs.plan import Plan
from foretell.specs.result import StepEstimate
from foretell.training.answer import answer_of
from tests.builders import make_chip, make_scenario


def asked(plan: Plan, gpus: int = 8, **chip: object) -> StepEstimate:
    scenario = make_scenario("dense", gpus=gpus, batch=128, chip=make_chip(**chip))
    return answer_of(with_software(scenario, plan), plan, chosen=False)


def seconds(found: StepEstimate, name: str) -> float:
    assert found.breakdown is not None
    return sum(end.value for end in found.breakdown.leaves() if end.name == name) + sum(
        child.value for child in found.breakdown.children if child.name == name and child.children
    )


def test_hidden_collectives_take_cores_but_where_links_have_engines() -> None:
    plan = Plan(dp=8, zero=3, micro_batch=8)
    gpu, tpu = asked(plan), asked(plan, architecture="tpu-like")
    assert seconds(gpu, "data_parallel") > 1.3 * seconds(tpu, "data_parallel") > 0.0


def test_zero_3_of_pytorch_copies_through_buffers() -> None:
    plan = Plan(dp=8, zero=3, micro_batch=8)
    plain, copied = asked(plan), asked(replace(plan, framework="torchtitan"))
    assert seconds(copied, "data_parallel") > seconds(plain, "data_parallel")
    never = asked(replace(plan, zero=1)), asked(replace(plan, zero=1, framework="torchtitan"))
    assert seconds(never[0], "data_parallel") == pytest.approx(seconds(never[1], "data_parallel"))


def test_a_fused_loss_among_plain_layers() -> None:
    plan = Plan(dp=8, fused=False, micro_batch=8)
    plain, fused = (asked(replace(plan, framework=name)) for name in ("pytorch-eager", "fsdp"))
    assert seconds(plain, "loss") > 3.0 * seconds(fused, "loss")
    assert seconds(plain, "norm") == pytest.approx(seconds(fused, "norm"), rel=0.02)


def test_a_loss_in_16_bits_moves_a_third() -> None:
    plan = Plan(dp=8, fused=False, micro_batch=8, framework="pytorch-eager")
    wide = asked(plan)
    narrow = asked(replace(plan, master="none", states="bf16", gradients="bf16"))
    assert seconds(narrow, "loss") == pytest.approx(seconds(wide, "loss") / 3.0, rel=0.1)


@pytest.mark.parametrize(("layers", "chunks", "head"), [(16, 4, 4.4), (32, 8, 2.4), (80, 16, 0.6)])
def test_layers_dealt_by_cost(layers: int, chunks: int, head: float) -> None:
    """All are dealt, and no stage with the head is longer than the mean by more than a layer."""
    sizes = sizes_by_cost(layers, chunks, head)
    assert sizes.sum() == layers
    mean = (layers + head) / chunks
    assert max(*sizes[:-1], sizes[-1] + head) <= max(mean + 1.0, head)
