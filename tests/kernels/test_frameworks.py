"""What frameworks add to the same kernels: sorted experts, biases, rotary positions, exchanges."""

from dataclasses import replace

import numpy as np
import pytest

import foretell
from foretell.catalog import chip as catalogue_chip
from foretell.catalog.models import catalogue_model
from foretell.catalog.software import software
from foretell.catalog.systems import named_system
from foretell.kernels.call_records import CallStack
from foretell.kernels.families.base import DTYPES
from foretell.kernels.plan_kernels import library_bound
from foretell.sharding.recompute import runs
from foretell.specs.model import Model
from foretell.specs.plan import Plan, parse_plan
from foretell.specs.result import Leaf, StepEstimate
from foretell.specs.scenario import Job, Scenario
from foretell.training.answer import answer_of
from foretell.workload.build import build


def answer(
    text: str, model: str | Model = "qwen3-30b-a3b", gpus: int = 8, chip: str = "h100-sxm"
) -> StepEstimate:
    """One plan of a model of the catalogue on one node, 64 sequences of 4,096."""
    plan: Plan = parse_plan(text, gpus)
    scenario = Scenario(
        model=catalogue_model(model) if isinstance(model, str) else model,
        system=named_system(chip),
        job=Job(gpus=gpus, global_batch=64, seq_len=4096),
        software=software(plan.framework),
    )
    return answer_of(scenario, plan, chosen=False)


def seconds(leaf: Leaf, name: str) -> float:
    """Sum of the leaves of a name in a tree."""
    own = leaf.value if leaf.name == name else 0.0
    return own + sum(seconds(child, name) for child in leaf.children)


def test_a_plain_all_to_all_sorts_by_plain_kernels() -> None:
    """Fused dispatch moves the least; a framework that fuses everything does not care."""
    plain = seconds(answer("ep8 mbs4 framework=megatron-core").breakdown, "routing")
    fused = seconds(answer("ep8 mbs4 framework=megatron-core dispatch=dedup").breakdown, "routing")
    assert 1.8 < plain / fused < 3.6
    twice = seconds(answer("ep8 mbs4 framework=megatron-bridge@25.09").breakdown, "routing")
    assert 1.4 * fused < twice < plain
    graphs = seconds(answer("ep8 mbs4 framework=megatron-graphs").breakdown, "routing")
    assert graphs == pytest.approx(fused, rel=1e-9)


def test_rotations_with_a_scale_run_plain_under_megatron() -> None:
    """Transformer Engine's fused kernel has no scale (YaRN's); where all is plain, it changes nothing."""
    model = catalogue_model("gpt-oss-20b")
    layers = [
        replace(layer, mixers=tuple(replace(m, scaled_rotary=False) for m in layer.mixers))
        for layer in model.stack.layers
    ]
    even = replace(model, stack=replace(model.stack, layers=tuple(layers)))
    for name, slower in (("megatron-core", 1.01), ("fsdp", 1.0)):
        told = [answer(f"mbs2 framework={name}", one).step_s for one in ("gpt-oss-20b", even)]
        assert told[0] >= slower * told[1]
        assert slower > 1.0 or told[0] == told[1]


def test_grouped_products_are_no_faster_than_plain_ones() -> None:
    """Deep products of tables' kernels ran at 0.93 of the peak; operands in narrow formats are cast."""
    for name, dtype in (("b200-sxm", "bf16"), ("h100-sxm", "bf16"), ("gb200", "mxfp8")):
        target = catalogue_chip(name)
        plan = Plan(precision=dtype)  # type: ignore[arg-type]
        sizes = {
            key: np.array([[value]])
            for key, value in (
                ("m", 5760.0), ("n", 2880.0), ("k", 32768.0), ("groups", 2.0), ("cast", 1.0),
                ("held", 0.0),
            )
        }  # fmt: skip
        work = np.zeros((1, 1))
        stack = CallStack(
            family="grouped", linear=True, rows=np.array([0]), kinds=(("", True),), sizes=sizes,
            matrix_flop=work, vector_flop=work, activation_elements=work, weight_elements=work,
            launches=work + 1.0,
        )  # fmt: skip
        least_s, cast_s = library_bound(stack, dtype, target, plan, software("megatron-core"))
        flop = 2.0 * 2.0 * 5760.0 * 2880.0 * 32768.0
        peak = target.matrix_flop_per_s[DTYPES[dtype].peak]
        assert 0.4 * peak < flop / least_s.item() < 0.85 * peak
        assert (cast_s.item() > 0.0) == (dtype == "mxfp8")


def test_the_host_bounds_small_layers_of_experts() -> None:
    """9.5 to 9.7 ms a layer and sequence, dropless in fp8 on 16 H100 (Megatron-Bridge 26.04 and 26.06);
    graphs have no floor."""
    each = {}
    for name in ("megatron-bridge@26.06", "megatron-graphs"):
        told = foretell.estimate(
            "qwen3-30b-a3b",
            gpus="16xH100",
            global_batch=1024,
            seq_len=4096,
            plan=f"ep16 zero1 mbs1 precision=fp8 framework={name}",
        )
        each[name] = told.step_s / (48 * 1024 / 16)
    assert each["megatron-bridge@26.06"] == pytest.approx(9.6e-3, rel=0.12)
    assert each["megatron-graphs"] < 0.8 * each["megatron-bridge@26.06"]


def test_biases_and_clamps_of_experts_are_passes_of_their_own() -> None:
    """What Megatron's operations take on one H200, as bytes of its memory beyond those of fused ones: 44
    forward and 55 backward for every routed element, 16 and 31 for each factor of the activation."""
    model = "gpt-oss-20b"
    told = [
        seconds(answer(f"ep8 mbs4 framework={name}", model).breakdown, "elementwise")
        for name in ("megatron-core", "megatron-graphs")
    ]
    moved = 64 / 8 * 4096 * 4 * 2880 * 24 * (44.0 + 55.0 + 2.0 * (15.6 + 30.6))
    assert told[0] - told[1] == pytest.approx(moved / (0.9 * 3.35e12), rel=0.15)


def test_clamps_run_again_with_activations() -> None:
    graph = build(catalogue_model("gpt-oss-20b"), batch=1.0, seq_len=4096.0)
    ops = {op.name: op for op in graph.kinds[0].ops}
    assert ops["moe.clamp"].elements == 2.0 * ops["moe.act"].elements
    assert runs(ops["moe.clamp"], "act", flash=True) == runs(ops["moe.act"], "act", flash=True) == 1
    served = build(catalogue_model("gpt-oss-20b"), batch=1.0, seq_len=4096.0, phase="prefill")
    assert "moe.clamp" not in {op.name for op in served.kinds[0].ops}


def test_complex_rotary_positions_are_not_compiled() -> None:
    plain, titan = (
        seconds(answer(f"zero3 {text}", "llama-3.1-8b").breakdown, "elementwise")
        for text in ("framework=fsdp-compiled", "framework=torchtitan")
    )
    assert "rotate=complex-rotary" in software("torchtitan").passes.split()
    assert 1.1 < titan / plain < 1.6


def test_maps_that_are_apart_add_their_gradients() -> None:
    """Llama: four moves of T x hidden for q, k and v, three for the halves of the gated part, all tokens; and
    at most nine more: every further map reads it, reads it again and writes its gradient."""
    model = "llama-3.1-8b"
    apart, one = (
        seconds(answer(f"tp8 sp framework={name} attention=fa2", model).breakdown, "gemm")
        for name in ("torchtitan", "fsdp-compiled")
    )
    move_s = 64 * 4096 * 4096 * 2.0 * 32 / (0.9 * 3.35e12)
    assert 7.0 * move_s < apart - one < (7.0 + 9.0) * move_s


def test_products_scaled_by_row_are_slower() -> None:
    """torchao, Llama-3-8B on 8 H100: 1,065 ms scaled by tensor, 1,210 by row."""
    tensor, row = (
        answer(
            f"zero3 recompute=full:16 attention=fa2 framework=torchtitan precision=fp8 scaling={way}",
            "llama-3.1-8b",
        ).step_s
        for way in ("tensor", "row")
    )
    assert row / tensor == pytest.approx(1.210 / 1.065, rel=0.06)


@pytest.mark.parametrize("name", ["megatron-core", "torchtitan", "jax"])
def test_dense_layers_have_none_of_it(name: str) -> None:
    """Words of experts change nothing in a dense model."""
    one = answer(f"tp2 framework={name}", "llama-3.1-8b").step_s
    assert answer(f"tp2 framework={name} dispatch=dedup", "llama-3.1-8b").step_s == one


def test_xla_sends_in_pieces_on_tpus_alone() -> None:
    """XLA decomposes gathers and scatters there by itself; elsewhere it is to be asked for."""
    for chip, hidden in (("tpu-v5p", True), ("h100-sxm", False)):
        shown, asked, waited = (
            seconds(
                answer(f"tp8 sp framework=jax {word}", "llama-3.1-8b", chip=chip).breakdown,
                "tensor_parallel",
            )
            for word in ("", "tp_overlap=on", "tp_overlap=off")
        )
        assert asked < waited
        assert shown == pytest.approx(asked if hidden else waited)


def test_deepspeed_adds_gradients_by_passes_of_its_own() -> None:
    """Its engine keeps the sums apart from Megatron's layers, whose products cannot add to them."""
    plain, fused = (
        seconds(
            answer(f"tp8 mbs1 gradients=fp32 framework={name}", "llama-3.1-8b").breakdown,
            "gradient_sums",
        )
        for name in ("megatron-deepspeed", "megatron@2021")
    )
    assert plain == pytest.approx(fused * 10.0 / 6.0)


def test_plain_norms_of_old_torchtitan_are_many_operations() -> None:
    """36 bytes forward and 84 backward an element of the input, where one kernel has 4 and 6 at least."""
    old, new = (
        seconds(answer(f"zero3 no-fused framework={name}", "llama-3.1-8b").breakdown, "norm")
        for name in ("torchtitan-2024", "torchtitan")
    )
    moved = 64 / 8 * 4096 * 4096 * 65 * (36.0 + 84.0)
    assert old == pytest.approx(moved / (0.9 * 3.35e12), rel=0.1)
    assert 3.5 < old / new < 5.0


def test_a_compiled_loss_is_plain_over_a_cut_vocabulary() -> None:
    titan, megatron = (
        [
            seconds(answer(f"{cut} framework={name}", "llama-3.1-8b").breakdown, "loss")
            for cut in ("zero3", "tp8 sp")
        ]
        for name in ("torchtitan", "megatron-core")
    )
    assert megatron[1] == pytest.approx(megatron[0], rel=0.05)
    assert titan[1] / titan[0] == pytest.approx(
        (5 * 2.8 + 3 * 4.4) / (5 * 0.65 + 3 * 0.9), rel=0.05
    )


def test_casts_that_are_made_anew_take_time_for_every_micro_batch() -> None:
    """Weights in both passes, six bytes each time; scales that are found first, two bytes more a cast."""

    def gemm_s(name: str, many: int) -> float:
        words = f"dp8 mbs{8 // many} precision=fp8 attention=fa2 framework={name}"
        return seconds(answer(words, "llama-3.1-8b").breakdown, "gemm")

    # Eight micro-batches of one sequence for one of eight: seven casts more, both ways, and smaller products.
    more = [gemm_s(name, 8) - gemm_s(name, 1) for name in ("torchtitan", "fsdp-compiled")]
    weights = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    assert more[0] - more[1] == pytest.approx(7 * 2 * 6.0 * weights / (0.85 * 3.35e12), rel=0.3)


def test_ring_attention_of_before_pytorch_2_6_leaves_the_most_pairs_to_the_last_rank() -> None:
    """Twice the mean's but for one part in cp; since then blocks of both ends are paired."""
    place = {"system": "h100-sxm", "gpus": 8, "seq_len": 262144, "global_batch": 1}
    cores = []
    for release in ("2024", "2025"):
        found = foretell.estimate(
            "llama-3.1-8b", **place, plan=f"zero3 cp8 recompute=full framework=torchtitan@{release}"
        )
        assert found.breakdown is not None
        cores.append(seconds(found.breakdown, "attention"))
    assert cores[0] == pytest.approx((2.0 - 1.0 / 8.0) * cores[1], rel=0.05)


def test_ranks_of_a_node_share_what_its_cores_stream() -> None:
    """The host's update of a model takes as long whether one rank or eight share its weights."""

    def update_s(gpus: int) -> float:
        found = foretell.estimate(
            "llama-3.1-8b",
            system="h200-sxm",
            gpus=gpus,
            seq_len=4096,
            global_batch=8,
            plan="zero3 mbs1 recompute=full offload=optimizer framework=deepspeed",
        )
        assert found.breakdown is not None
        return seconds(found.breakdown, "optimizer")

    assert update_s(8) == pytest.approx(update_s(1), rel=1e-6)
