"""The vectorised model against the scalar one, plan by plan and search by search."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.reference import CHIPS, MODELS, STRATEGIES, Quirks, StudyModel, evaluate, search
from foretell.lab.reference.iteration import distinct
from foretell.lab.reference.space import divisors, enumerate_space, expand
from tests.lab.reference import scalar_oracle
from tests.lab.reference.worlds import World, oracle_of, row_of, worlds

DIFFERENCES = ("t_mem", "t_tp_comm", "t_dp_comm")
"""Differences of larger times: their error is that of the times, hence relative to t."""

BRANCHES = {
    *(
        f"{kind}: {case}"
        for kind in ("allgather", "reducescatter", "allreduce", "broadcast", "reduce")
        for case in ("slow", "fast", "mixed, IB", "mixed, NVLink")
    ),
    *("p2p: slow", "p2p: fast", "p2p: fast and slow"),
    *("wired NVLink", "inexact l/m", "memory-bound linear", "mu < pp", "n <= nvs", "DP exposed"),
    *("SUMMA hidden", "SUMMA exposed"),
}
"""Every branch of the equations, most of which the stored systems never take."""


def test_vectorised_equals_scalar_on_every_branch() -> None:
    seen: set[str] = set()

    @settings(max_examples=2500, derandomize=True, deadline=None)
    @given(worlds())
    def check(world: World) -> None:
        oracle = world.oracle()
        want = oracle.plan(world.plan)
        seen.update(oracle.branches)
        [got] = evaluate([row_of(world.plan, world.strategy)], **world.question())
        for name, value in want.items():
            part = name.removesuffix("_frac")
            scale = 1.0 if part != name else want["t"]
            slack = 1e-12 * scale if f"t_{part}" in DIFFERENCES or name in DIFFERENCES else 0.0
            assert got[name] == pytest.approx(value, rel=1e-12, abs=slack), name

    check()
    assert seen >= BRANCHES, sorted(BRANCHES - seen)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_parts_sum_to_the_iteration(world: World) -> None:
    [row] = evaluate([row_of(world.plan, world.strategy)], **world.question())
    parts = ("t_comp", "t_mem", "t_tp_comm", "t_dp_comm", "t_pp_comm", "t_bubble")
    numbers = {name: float(str(row[name])) for name in (*parts, "t", "throughput", "mem")}
    assert sum(numbers[name] for name in parts) == pytest.approx(numbers["t"], rel=1e-12)
    assert numbers["throughput"] * numbers["t"] == pytest.approx(world.gbs, rel=1e-14)
    held = ("wts_mem", "wts_grad_mem", "wts_optimizer_states_mem", "acts_mem")
    assert sum(float(str(row[name])) for name in held) == pytest.approx(numbers["mem"], rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(worlds(), min_size=2, max_size=6))
def test_a_batch_is_its_plans_one_by_one(many: list[World]) -> None:
    first = many[0]
    rows = [row_of(w.plan, w.strategy) for w in many if w.strategy == first.strategy]
    fitting = []
    for row in rows:
        try:
            evaluate([row], **first.question())
        except BadInput:  # another world's degrees need not divide this one's model
            continue
        fitting.append(row)
    together = evaluate(fitting, **first.question())
    alone = [evaluate([row], **first.question())[0] for row in fitting]
    assert [{**row, "rank": 1} for row in together] == alone


SMALL = {
    "gpt3": MODELS["gpt3"],
    "odd": StudyModel(
        name="odd", seq_len=1536, embed=2304, heads=36, layers=12, causal=True, samples=1.0
    ),
}


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(sorted(SMALL)),
    strategy=st.sampled_from(STRATEGIES),
    nvs=st.sampled_from([1, 2, 4, 6, 8, 12]),
    nodes=st.sampled_from([0, 1, 2, 3, 4, 9, 16]),
    gbs=st.sampled_from([1, 8, 48, 96]),
)
def test_the_space_is_the_nested_loops(
    model: str, strategy: str, nvs: int, nodes: int, gbs: int
) -> None:
    gpus = nvs * nodes or max(nvs // 2, 1)
    record = SMALL[model]
    space = enumerate_space(record, strategy, gpus, nvs, gbs)  # type: ignore[arg-type]
    found = expand(space, np.arange(len(space.gpus)))
    sizes = {"l": record.seq_len, "e": record.embed, "h": record.heads, "L": record.layers}
    names = ("m1", "m2", "pp", "dp", "b", "nb", "t1", "t2", "nv_dp", "nv_pp")
    got = sorted(zip(*(getattr(found, name).tolist() for name in names), strict=True))
    loops = scalar_oracle.candidates(sizes, strategy, gpus, nvs, gbs)
    assert got == sorted(tuple(plan[name] for name in names) for plan in loops)
    assert space.candidates(gpus) == len(loops)


@settings(max_examples=15, deadline=None)
@given(
    strategy=st.sampled_from(STRATEGIES),
    nvs=st.sampled_from([2, 4, 6]),
    nodes=st.sampled_from([1, 2, 4, 6]),
    hbm=st.sampled_from([1e9, 3e9, 1e12]),
    quirks=st.sampled_from([Quirks(), Quirks.corrected()]),
)
def test_search_is_brute_force(
    strategy: str, nvs: int, nodes: int, hbm: float, quirks: Quirks
) -> None:
    model, chip, gpus, gbs = SMALL["odd"], replace(CHIPS["H200"], hbm_bytes=hbm), nvs * nodes, 48
    oracle = oracle_of(model, chip, strategy, nvs, gbs, quirks)
    sizes = {"l": model.seq_len, "e": model.embed, "h": model.heads, "L": model.layers}
    loops = scalar_oracle.candidates(sizes, strategy, gpus, nvs, gbs)
    every = [oracle.plan(plan) for plan in loops]
    fit = sorted(plan["t"] for plan in every if plan["mem"] * 1e9 <= hbm)
    result = search(
        model=model,
        strategy=strategy,
        chip=chip,
        fast_domain=nvs,
        gpus=gpus,
        global_batch=gbs,
        top=7,
        quirks=quirks,
    )
    assert result.candidates == len(every)
    assert result.feasible == len(fit)
    assert [row["t"] for row in result.plans] == pytest.approx(fit[:7], rel=1e-12)
    assert [row["rank"] for row in result.plans] == list(range(1, len(result.plans) + 1))


def test_chunks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"model": "gpt3", "strategy": "2d", "chip": "h200", "fast_domain": 8, "gpus": 64}
    whole = search(**job)  # type: ignore[arg-type]
    # The package's `search` is the function, so the modules are fetched by name.
    monkeypatch.setattr(import_module("foretell.lab.reference.search"), "CHUNK_ROWS", 97)
    monkeypatch.setattr(import_module("foretell.lab.reference.space"), "BLOCK_CELLS", 50)
    assert search(**job) == whole  # type: ignore[arg-type]
    assert whole.feasible > 97


@given(st.integers(1, 5000))
def test_divisors(number: int) -> None:
    assert divisors(number).tolist() == scalar_oracle.divisors(number)


@given(
    st.lists(
        st.tuples(*[st.integers(0, 2**33) | st.integers(0, 2) for _ in range(4)]),
        min_size=1,
        max_size=20,
    )
)
def test_distinct_rows_whatever_their_size(rows: list[tuple[int, ...]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    first, owner = distinct(*columns)
    assert len(first) == len(set(rows))
    assert [rows[first[k]] for k in owner] == rows
