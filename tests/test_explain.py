"""An explanation adds up to its estimate, and names the bound that a share really answers to."""

import pytest

import foretell
from foretell.api.answers import Estimate
from foretell.search.explain import BOUNDS, bound_words

PLANS = [
    ("llama-3.1-70b", "h100-sxm", 512, "tp8 pp4 zero1 mbs1"),
    ("llama-3.1-8b", "h100-sxm", 64, "tp2 zero3 mbs1 recompute=full"),
    ("llama-3.1-8b", "h100-sxm", 64, "tp4 pp2 zero1 mbs1 recompute=full:3"),
    ("llama-3.1-8b", "a100-sxm-80gb", 64, "tp4 pp2 mbs1 recompute=selective no-flash"),
    ("llama-3.1-8b", "h100-sxm", 64, "tp4 mbs1 recompute=attention+norm"),
    ("deepseek-v3", "h100-sxm", 2048, "pp16 ep64 zero1 mbs1"),
]


def estimate(model: str, system: str, gpus: int, plan: str) -> Estimate:
    try:
        return foretell.estimate(model, system=system, gpus=gpus, plan=plan)
    except foretell.Infeasible as error:
        assert isinstance(error.answer, Estimate)
        return error.answer


@pytest.mark.parametrize("asked", PLANS, ids=lambda p: f"{p[0]} {p[3]}")
def test_shares_add_up(asked: tuple[str, str, int, str]) -> None:
    result = estimate(*asked)
    found = result.explain()
    assert sum(s.value for s in found.time) == pytest.approx(result.step_s, rel=1e-9)
    assert sum(s.share for s in found.time) == pytest.approx(1.0, rel=1e-9)
    assert sum(s.value for s in found.memory) == pytest.approx(result.peak_memory_bytes, rel=1e-9)
    # Operations are what the nodes of kernels are made of.
    nodes = {c.name: c.value for c in result.breakdown.children}  # type: ignore[union-attr]
    kernels = nodes["compute"] + nodes["memory_bound"] + nodes["recompute"]
    assert sum(o.seconds for o in found.ops) == pytest.approx(kernels, rel=1e-9)
    repeated = sum(o.seconds for o in found.ops if o.phase == "recompute")
    assert repeated == pytest.approx(nodes["recompute"], rel=1e-9)
    for rows in ([s.value for s in found.time], [o.seconds for o in found.ops]):
        assert rows == sorted(rows, reverse=True)


def test_bounds_are_what_moves_a_share() -> None:
    found = estimate(*PLANS[0]).explain()
    bounds = {s.name: s.bound for s in found.time}
    assert bounds["compute.gemm"] == "matrix rate"
    assert bounds["memory_bound.norm"] == "memory bandwidth"
    assert bounds["optimizer"] == "memory bandwidth"
    assert bounds["tensor_parallel"] == "node link"
    assert bounds["data_parallel"] == "cluster link"
    assert bounds["fixed"] == "launch and other fixed times"
    ops = {(o.op, o.phase): o for o in found.ops}
    assert ops["ffn.up", "backward"].bound == "matrix rate"
    assert ops["ffn.act", "forward"].bound == "memory bandwidth"
    # 20 layers on the slowest of 4 stages, 64 micro-batches.
    assert ops["ffn.up", "forward"].count == 20 * 64
    # What shows of a message that is partly hidden may change by more than its link does; kernels cannot.
    assert all(-1.001 < o.bound_elasticity < 1.001 for o in found.ops)


def test_a_tiny_step_waits_for_launches() -> None:
    asked = {"system": "h100-sxm", "gpus": 8, "global_batch": 8, "seq_len": 128}
    tiny = foretell.estimate("gpt2", plan="tp4 dp2 mbs1 no-sp", **asked).explain()
    bounds = {s.name: s.bound for s in tiny.time}
    assert bounds["host"] == "host"
    slow = next(o for o in tiny.ops if o.op == "embedding.tokens" and o.phase == "forward")
    assert slow.bound == "launch and other fixed times"


def test_more_memory_is_asked_about_where_the_plan_is_ours() -> None:
    given = estimate(*PLANS[0]).explain()
    assert given.capacity is None
    best = foretell.estimate("llama-3.1-8b", system="h100-sxm", gpus=64)
    chosen = best.explain()
    assert chosen.capacity is not None
    more = foretell.estimate(
        "llama-3.1-8b",
        system="h100-sxm",
        gpus=64,
        set={"chip.memory_bytes": 2 * best.memory_capacity_bytes},
    )
    assert chosen.capacity.plan == str(more.plan)
    assert chosen.capacity.step_ratio == pytest.approx(more.step_s / best.step_s, rel=1e-12)


def test_sentences() -> None:
    found = estimate(*PLANS[0]).explain()
    top = found.time[0]
    said = f"{top.share:.0%} of the step is compute.gemm, which follows the matrix rate."
    assert found.conclusions[0] == said
    assert said in str(found)
    for e in found.sensitivity.numbers:
        if e.number.path == "network.node.bandwidth_bytes_per_s":
            said = f"The step is {1.0 - e.what_if:.1%} shorter with twice the {e.number.words}."
            assert said in found.conclusions
    assert bound_words("network.rack.latency_s") == "rack latency"
    assert set(BOUNDS) <= {e.number.path for e in found.sensitivity.numbers} | {
        "chip.host_bytes_per_s"
    }
