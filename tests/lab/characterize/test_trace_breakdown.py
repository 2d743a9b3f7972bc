"""Breakdowns: hand-made traces to the nanosecond, and what holds for any trace."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.characterize.traces.breakdown import PARTS, StepBreakdown, breakdowns
from foretell.lab.characterize.traces.names import (
    bus_factor,
    collective_kind,
    element_bytes,
    host_family,
    kernel_family,
    message_bytes,
)
from foretell.lab.characterize.traces.read import read_file
from foretell.lab.characterize.traces.run import characterize_trace
from tests.lab.characterize.kineto import (
    ADAM,
    ADD,
    GEMM,
    Event,
    collective,
    copied,
    kernel,
    launch,
    note,
    op,
    trace,
    written,
)

quiet = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


def steps_of(path: Path) -> tuple[StepBreakdown, ...]:
    return breakdowns(read_file(path).ranks[0])


def one_step() -> list[Event]:
    """A step of 100 us: a product forward and two backward, a sum, an update, one all-reduce half hidden.

    0      10        30    40        60  65     80  90  95 100
    |copy..|.gemm....|     |.gemm....|add| sent...| upd|fill|
                               |.....sent.........|
    """
    return [
        note("ProfilerStep#5", 0.0, 100.0, on_gpu=True),
        note("ProfilerStep#5", -40.0, 90.0),
        copied(0.0, 10.0),
        op("aten::mm", -30.0, 12.0, number=11, dims=[[512, 128], [128, 384]]),
        launch(-25.0, 5.0, 1),
        kernel(GEMM, 10.0, 20.0, key=1),
        op("autograd::engine::evaluate_function: MmBackward0", 0.0, 45.0, thread=2),
        op("aten::mm", 1.0, 20.0, thread=2, number=12, dims=[[128, 512], [512, 384]]),
        launch(2.0, 10.0, 2, thread=2),
        kernel(GEMM, 40.0, 20.0, key=2),
        launch(30.0, 10.0, 3, thread=2),
        kernel(ADD, 60.0, 5.0, key=3),
        collective("allreduce", 50.0, 30.0, elements=1_000_000, members=4),
        note("Optimizer.step#AdamW.step", 46.0, 4.0),
        launch(47.0, 2.0, 4),
        kernel(ADAM, 80.0, 10.0, key=4),
        copied(90.0, 5.0, fill=True),
        launch(96.0, 2.0, 5, name="cudaDeviceSynchronize"),
    ]  # fmt: skip


def test_a_step_by_hand(tmp_path: Path) -> None:
    (step,) = steps_of(written(tmp_path / "t.json", trace(one_step(), world=4)))
    us = {name: getattr(step, name) * 1e6 for name in ("step_s", *PARTS)}
    assert step.step == "5"
    assert us == pytest.approx(
        {
            "step_s": 100.0,
            "compute_alone_s": 20.0 + 10.0 + 10.0,
            "overlapped_s": 15.0,
            "exposed_communication_s": 15.0,
            "copy_s": 15.0,
            "host_s": 10.0,  # between the products the second thread launches
            "idle_s": 5.0,  # at the end the host waits
        }
    )
    compute = {(f.family, f.phase): (f.seconds * 1e6, f.count) for f in step.compute}
    assert compute == {
        ("gemm", "forward"): (pytest.approx(20.0), 1),
        ("gemm", "backward"): (pytest.approx(20.0), 1),
        ("elementwise", "backward"): (pytest.approx(5.0), 1),
        ("optimizer", "optimizer"): (pytest.approx(10.0), 1),
    }
    assert {(o.op, o.phase) for o in step.ops} == {
        ("512x384x128", "forward"), ("512x384x128", "backward"),
    }  # fmt: skip
    (sent,) = step.collectives
    assert (sent.collective, sent.members, sent.count) == ("all-reduce", 4, 1)
    assert (sent.exposed_s, sent.hidden_s) == pytest.approx((15e-6, 15e-6))
    assert sent.size_bytes == 2_000_000
    assert sent.algorithm_bytes_per_s == pytest.approx(2e6 / 30e-6)
    assert sent.bus_bytes_per_s == pytest.approx(1.5 * 2e6 / 30e-6)


def test_ranges(tmp_path: Path) -> None:
    """Annotations of one's own: what ran while they were open."""
    events = [
        *one_step(),
        note("attention", 20.0, 45.0, on_gpu=True),
        note("attention", 95.0, 50.0, on_gpu=True),
    ]
    (step,) = steps_of(written(tmp_path / "t.json", trace(events)))
    (one,) = step.ranges
    assert one.name == "attention"
    told = (one.seconds, one.compute_s, one.communication_s)
    assert told == pytest.approx((50e-6, 35e-6, 15e-6))


def test_order_of_events_does_not_matter(tmp_path: Path) -> None:
    events = one_step()
    known = steps_of(written(tmp_path / "t.json", trace(events)))
    for seed in range(5):
        random.Random(seed).shuffle(events)
        assert steps_of(written(tmp_path / "u.json.gz", trace(events))) == known


SPAN = st.tuples(st.integers(0, 900_000), st.integers(0, 120_000)).map(
    lambda s: (s[0] / 1e3, s[1] / 1e3)
)
KINDS = ("gemm", "add", "sent", "copy", "host", "launch")


def event_of(kind: str, span: tuple[float, float], number: int) -> Event:
    start, length = span
    if kind == "sent":
        return collective("_allgather_base", start, length, elements=100, out=800, members=8)
    if kind == "copy":
        return copied(start, length)
    if kind == "host":
        return op("aten::to", start, length, number=number)
    if kind == "launch":
        return launch(start, length, number)
    names = {"gemm": GEMM, "add": ADD}
    return kernel(names[kind], start, length, key=number, stream=7 + number % 3)


@quiet
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), SPAN), min_size=1, max_size=30),
    st.lists(st.integers(1, 999), unique=True, max_size=4),
)
def test_everything_adds_up(tmp_path: Path, drawn: list[Any], cuts: list[int]) -> None:
    events = [event_of(kind, span, i) for i, (kind, span) in enumerate(drawn)]
    events.append(kernel(GEMM, 0.0, 0.001))
    edges = [0, *sorted(cuts), 1000]
    events += [
        note(f"ProfilerStep#{i}", float(low), float(high - low), on_gpu=True)
        for i, (low, high) in enumerate(itertools.pairwise(edges))
    ]
    told = steps_of(written(tmp_path / "t.json", trace(events)))
    assert sum(s.step_s for s in told) == pytest.approx(1e-3, rel=1e-12)
    for s in told:
        assert sum(getattr(s, part) for part in PARTS) == pytest.approx(s.step_s, rel=1e-9)
        assert min(getattr(s, part) for part in PARTS) >= 0.0
        assert sum(f.seconds for f in s.compute) == pytest.approx(s.compute_s, rel=1e-9, abs=1e-15)
        sent = [
            sum(getattr(c, n) for c in s.collectives) for n in ("seconds", "exposed_s", "hidden_s")
        ]
        expected = (s.communication_s, s.exposed_communication_s, s.overlapped_s)
        assert sent == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert all(f.busy_s >= f.seconds - 1e-15 for f in s.compute)
    # Cutting a step in two changes no sum.
    whole = steps_of(
        written(
            tmp_path / "t.json",
            trace([*events[: len(drawn) + 1], note("ProfilerStep#0", 0.0, 1000.0, on_gpu=True)]),
        )
    )
    for part in PARTS:
        assert sum(getattr(s, part) for s in told) == pytest.approx(
            getattr(whole[0], part), rel=1e-9, abs=1e-15
        )
    brute(drawn, whole[0])


def brute(drawn: list[Any], step: StepBreakdown) -> None:
    """The same by marking every nanosecond of a thousandth of the trace's resolution."""
    import numpy as np

    line = {kind: np.zeros(1_000_000, bool) for kind in KINDS}
    line["gemm"][:1] = True
    for kind, (start, length) in drawn:
        low = round(start * 1e3)
        line[kind][low : low + round(length * 1e3)] = True
    compute, sent, copies = line["gemm"] | line["add"], line["sent"], line["copy"]
    host = line["host"] | line["launch"]
    expected = (
        compute & ~sent,
        compute & sent,
        sent & ~compute,
        copies & ~sent & ~compute,
        host & ~copies & ~sent & ~compute,
        ~(host | copies | sent | compute),
    )
    for part, marks in zip(PARTS, expected, strict=True):
        assert getattr(step, part) * 1e9 == pytest.approx(int(marks.sum()), abs=1e-3)


def test_steps_without_marks_on_the_accelerator(tmp_path: Path) -> None:
    """The host's steps are moved to where the work that they launched ran."""
    events = [
        note("ProfilerStep#1", 0.0, 50.0), launch(10.0, 2.0, 1), kernel(GEMM, 100.0, 40.0, key=1),
        note("ProfilerStep#2", 50.0, 50.0), launch(60.0, 2.0, 2), kernel(GEMM, 150.0, 30.0, key=2),
    ]  # fmt: skip
    first, second = steps_of(written(tmp_path / "t.json", trace(events)))
    assert (first.step, second.step) == ("1", "2")
    assert (first.step_s, second.step_s) == pytest.approx((50e-6, 30e-6))
    assert (first.compute_s, second.compute_s) == pytest.approx((40e-6, 30e-6))


def test_a_trace_without_steps_is_one(tmp_path: Path) -> None:
    (step,) = steps_of(
        written(tmp_path / "t.json", trace([kernel(GEMM, 5.0, 10.0), kernel(ADD, 20.0, 5.0)]))
    )
    assert step.step == "whole"
    assert step.step_s == pytest.approx(20e-6)
    assert {f.phase for f in step.compute} == {""}


def test_categories_of_old_releases(tmp_path: Path) -> None:
    old = {
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
        "gpu_memset": "Memset",
        "cpu_op": "Operator",
        "cuda_runtime": "Runtime",
    }
    events = [{**event, "cat": old.get(event["cat"], event["cat"])} for event in one_step()]
    known = steps_of(written(tmp_path / "t.json", trace(one_step())))
    assert steps_of(written(tmp_path / "u.json", trace(events))) == known


def test_graphs_hide_the_pass(tmp_path: Path) -> None:
    events = [launch(0.0, 2.0, 1, name="cudaGraphLaunch"), kernel(GEMM, 5.0, 10.0, key=1)]
    (step,) = steps_of(written(tmp_path / "t.json", trace(events)))
    assert [f.phase for f in step.compute] == [""]


def test_ranks_beside_each_other(tmp_path: Path) -> None:
    files = []
    for rank, (work, wait) in enumerate([(40.0, 60.0), (80.0, 20.0)]):
        events = [
            note("ProfilerStep#3", 0.0, 110.0, on_gpu=True),
            kernel(GEMM, 0.0, work),
            collective("allreduce", work, wait, elements=10, members=2),
        ]
        files.append(written(tmp_path / f"r{rank}.json", trace(events, rank=rank, world=2)))
    found = characterize_trace(files[::-1])
    assert [t.rank for t in found.traces] == [0, 1]
    (row,) = found.imbalance
    assert (row.busiest, found.busiest) == (1, 1)
    assert row.imbalance == pytest.approx(80 / 60 - 1)
    assert row.waits_s == pytest.approx({0: 40e-6, 1: 0.0})
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_rank_of_a_file(tmp_path: Path) -> None:
    """From the trace, else from its name, else from its place."""
    events = [kernel(GEMM, 0.0, 1.0)]
    told = written(tmp_path / "rank9.json", trace(events, rank=2))
    named = written(tmp_path / "trace_rank-7.json", trace(events, rank=None))
    plain = written(tmp_path / "a.json", trace(events, rank=None))
    assert [t.rank for t in characterize_trace([plain, told, named]).traces] == [0, 2, 7]
    with pytest.raises(BadInput, match="rank 2 is in"):
        characterize_trace([told, told])


def test_kernels_by_name() -> None:
    known = {
        GEMM: "gemm",
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn": "gemm",
        "nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_TNT": "gemm",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": "gemm",
        "triton_tem_fused_addmm_5": "gemm",
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32": "gemm",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(...)": "gemm",
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4> >(...)": "attention",
        "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128> >(...)": "attention",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::Params)": "attention",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7": "attention",
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(...)": "norm",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel<c10::BFloat16>(...)": "norm",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_3": "norm",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>(...)": "loss",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>(...)": "loss",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16>(...)": "embedding",
        "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float>(...)": "embedding",
        ADAM: "optimizer",
        ADD: "elementwise",
        "triton_poi_fused_mul_silu_7": "elementwise",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(...)": "elementwise",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<...>": "copy",
        "Memcpy DtoD (Device -> Device)": "copy",
        "Memset (Device)": "memset",
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*)": "communication",
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)": "communication",
        "void cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)": "communication",
        "void cub::DeviceRadixSortOnesweepKernel<...>": "routing",
        "_selective_scan_fwd_kernel": "scan",
        "my_own_kernel": "other",
    }
    assert {name: kernel_family(name) for name in known} == known


def test_operations_of_a_host_by_name() -> None:
    known = {
        "aten::mm": "gemm", "aten::addmm": "gemm", "aten::bmm": "gemm", "aten::linear": None,
        "aten::_scaled_dot_product_flash_attention_for_cpu": "attention", "aten::native_layer_norm": "norm",
        "aten::_softmax": "loss", "aten::nll_loss_forward": "loss", "aten::embedding": "embedding",
        "aten::gelu": "elementwise", "aten::copy_": "copy", "aten::fill_": "memset", "aten::view": None,
        "aten::empty_strided": None, "autograd::engine::evaluate_function: MmBackward0": None,
        "aten::topk": "routing", "c10d::allreduce_": None,
    }  # fmt: skip
    assert {name: host_family(name) for name in known} == known


def test_collectives_by_name() -> None:
    known = {
        "allreduce": "all-reduce", "_allgather_base": "all-gather", "_reduce_scatter_base": "reduce-scatter",
        "all_to_allv": "all-to-all", "broadcast": "broadcast", "send": "send-recv", "recv": "send-recv",
        "ncclDevKernel_SendRecv(...)": "send-recv", "gloo:all_reduce": "all-reduce", "barrier": "barrier",
        "allgather_into_tensor_coalesced": "all-gather", "reduce": "reduce",
    }  # fmt: skip
    assert {name: collective_kind(name) for name in known} == known


@given(
    st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]),
    st.integers(1, 4096),
)
def test_bus_factors(kind: str, members: int) -> None:
    factor = bus_factor(kind, members)
    assert 0.0 <= factor <= 2.0
    assert factor == (
        1.0 if kind == "broadcast" else (2 if kind == "all-reduce" else 1) * (members - 1) / members
    )


def test_bytes_of_a_message() -> None:
    gather = {"In msg nelems": 100, "Out msg nelems": 800, "dtype": "BFloat16"}
    assert message_bytes("all-gather", gather, 8) == 1600
    scatter = {"In msg nelems": 800, "Out msg nelems": 100, "dtype": "Float"}
    assert message_bytes("reduce-scatter", scatter, 8) == 3200
    gloo = {"Input Dims": [[10, 20]], "Input type": ["float"]}
    assert message_bytes("all-reduce", gloo, 2) == 800
    assert message_bytes("all-gather", gloo, 2) == 1600
    for unknown in (
        {},
        {"dtype": "Odd", "In msg nelems": 3},
        {"Input Dims": [[[1]]], "Input type": ["float"]},
    ):
        assert message_bytes("all-reduce", unknown, 2) == -1
    assert element_bytes("Float8_e4m3fn") == 1


def test_events_without_times_are_said(tmp_path: Path) -> None:
    odd = [
        {**kernel(GEMM, 0.0, 1.0), "ts": "soon"},
        {**kernel(GEMM, 0.0, 1.0), "dur": float("1e300")},
    ]
    late = {**kernel(GEMM, 4.0, 1.0), "dur": -1}
    found = characterize_trace(
        written(tmp_path / "t.json", trace([kernel(GEMM, 0.0, 9.0), *odd, late]))
    )
    assert found.notes == ("t.json: 2 events without usable times skipped",)
    assert found.steps[0].compute_s == pytest.approx(9e-6)
