"""ZeRO over lists of slices, and tensor parallelism over nodes, as a framework's record has them."""

import pytest

import foretell
from foretell.catalog.software import software

NANOTRON = "HF Ultra-Scale Playbook nanotron benchmark (copy in gkarfakis19/Rapid-LLM)"


def step_s(plan: str, gpus: int, **changes: str) -> float:
    found = foretell.estimate(
        "nanotron-1.34b",
        system="aws-p5",
        gpus=gpus,
        global_batch=256,
        seq_len=4096,
        plan=f"{plan} framework=nanotron",
        set=changes,
    )
    return found.step_s


@pytest.mark.parametrize("gpus", [64, 128])
def test_slices_are_copied_for_every_parameter_and_rank(gpus: int) -> None:
    more = step_s("zero1", gpus) - step_s("zero1", gpus, **{"software.slice_copy_s": "0"})
    launches = 2 * gpus * 6 * 16
    assert more == pytest.approx(launches * software("nanotron").slice_copy_s, rel=0.05)
    assert step_s("zero0", gpus) == step_s("zero0", gpus, **{"software.slice_copy_s": "0"})


@pytest.mark.parametrize(("tp", "measured_s"), [(8, 0.00463), (16, 0.00798), (32, 0.01812)])
def test_a_layer_cut_over_nodes_takes_what_was_measured(tp: int, measured_s: float) -> None:
    """One micro-batch of one sequence on tp chips of p5: 4.6, 8 and 18 ms a layer."""
    layer_s = step_s(f"tp{tp} mbs1", tp) / 256 / 16
    assert layer_s == pytest.approx(measured_s, rel=0.2)


def test_without_its_runs_a_copy_is_a_launch_and_nodes_are_alike() -> None:
    alone, own = software("nanotron", (NANOTRON,)), software("nanotron")
    assert alone.slice_copy_s == pytest.approx(own.slice_copy_s, rel=0.3)
    assert alone.tensor_node_s == 0.0 < own.tensor_node_s
