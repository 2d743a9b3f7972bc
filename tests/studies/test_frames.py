"""A row of a sweep is the answer of the verb that it stands for."""

from typing import Any

import numpy as np
import pytest
from polars.testing import assert_frame_equal

import foretell
from foretell.economics.ask import PackageQuestion, package_cost
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.studies.study_file import read_study
from foretell.studies.sweep.columns import all_columns, batch_axes
from foretell.studies.sweep.frames import shard_frame

BASE = {"model": "llama-3.1-8b", "system": "h100-sxm", "global_batch": 64}


def frame(**tables: Any) -> Any:
    """The first shard of a study."""
    return shard_frame(read_study(tables), 0)


def test_plans_of_a_batch_are_estimates() -> None:
    vary = {"plan.tp": [1, 2, 4], "gpus": [8, 16], "plan.zero": [1, 3], "plan.recompute": ["full"]}
    table = frame(study={"kind": "training", "plan": "pp2"}, base=BASE, vary=vary)
    assert len(table) == 12
    seen = 0
    for row in table.iter_rows(named=True):
        assert row["problem"] is None
        plan = f"pp2 tp{row['plan.tp']} zero{row['plan.zero']} recompute=full"
        try:
            alone = foretell.estimate(**BASE, gpus=row["gpus"], plan=plan)
        except foretell.Infeasible as error:
            alone = error.answer
        seen += alone.fits == "yes"
        assert row["plan"] == str(alone.plan)
        assert row["fits"] == alone.fits
        for name in ("step_s", "mfu", "hfu", "peak_memory_bytes", "energy_joules", "tokens_per_s"):
            assert row[name] == pytest.approx(getattr(alone, name), rel=1e-12)
    assert seen > 0


@pytest.mark.parametrize("mode", ["product", "sample"])
def test_systems_of_a_batch_are_estimates(mode: str) -> None:
    """Many points over numbers of a system: the same numbers as point by point, which few points are."""
    ends = {
        "chip.memory_bandwidth_bytes_per_s": (1e12, 8e12),
        "chip.memory_bytes": (2e10, 1.5e11),
        "chip.matrix_flop_per_s.bf16": (3e14, 3e15),
        "network.node.bandwidth_bytes_per_s": (1e11, 1e12),
    }
    steps = {"steps": 5} if mode == "product" else {}
    vary = {path: {"low": low, "high": high, **steps} for path, (low, high) in ends.items()}
    study = {"kind": "training", "plan": "tp2 zero1", "mode": mode}
    study |= {"samples": 400, "seed": 2} if mode == "sample" else {}
    base = {**BASE, "gpus": 8}
    whole = {"study": study, "base": base, "vary": {**vary, "seq_len": [1024, 2048]}}
    assert batch_axes(read_study(whole)) == (0, 1, 2, 3)
    many = frame(**whole)
    assert {*many["fits"].unique()} >= {"yes", "no"}
    assert "limited_by" not in many.columns
    for place in range(0, len(many), 131):
        row = many.row(place, named=True)
        one = {"study": {"kind": "training", "plan": "tp2 zero1"}, "base": base}
        own = {name: [row[name]] for name in (*vary, "seq_len")}
        alone = frame(**one, vary=own).row(0, named=True)
        assert row["fits"] == alone["fits"]
        assert row["plan"] == alone["plan"]
        for name in ("step_s", "hfu", "peak_memory_bytes", "memory_capacity_bytes",
                     "energy_joules", "usd_per_million_tokens"):  # fmt: skip
            assert row[name] == pytest.approx(alone[name], rel=1e-12)


def test_systems_that_cannot_be_are_told() -> None:
    vary = {"chip.memory_bytes": {"low": 1e10, "high": 8e10, "steps": 300}}
    study = {"kind": "training", "plan": "tp3 zero1"}
    table = frame(study=study, base={**BASE, "gpus": 8}, vary=vary)
    assert len(table) == 300
    assert table["problem"].is_not_null().all()
    assert table["step_s"].is_null().all()


def test_a_batch_and_single_plans_agree() -> None:
    """The same points asked as plan texts, which are not batched."""
    texts = [f"tp{tp} zero{zero}" for tp in (1, 2) for zero in (0, 3)]
    base = {**BASE, "gpus": 8, "prices.usd_per_chip_hour": 3}
    many = frame(
        study={"kind": "training", "plan": "sp"},
        base=base,
        vary={"plan.tp": [1, 2], "plan.zero": [0, 3]},
    )
    single = frame(
        study={"kind": "training"}, base=base, vary={"plan": [f"{text} sp" for text in texts]}
    )
    shared = ["fits", "step_s", "hfu", "usd_per_million_tokens", "energy_joules", "seq_len"]
    assert_frame_equal(many.select(shared), single.select(shared), rel_tol=1e-12)
    assert many["usd_per_million_tokens"][0] == pytest.approx(
        3 * 8 / 3600 / many["tokens_per_s"][0] * 1e6
    )


def test_broken_rules_and_bad_points_are_rows() -> None:
    table = frame(
        study={"kind": "training", "plan": "zero1"},
        base={"model": "llama-3.1-8b", "global_batch": 64, "gpus": 8, "chip.idle_watts": 10},
        vary={"plan.tp": [1, 16], "system": ["h100-sxm", "dgx-1v"], "plan.precision": ["fp8"]},
    )
    assert table["system"].to_list() == ["h100-sxm", "h100-sxm", "dgx-1v", "dgx-1v"]
    assert "no fp8 matrix units" in table["problem"][2]
    assert table["problem"].is_null().to_list()[0]
    assert "plan (gpus)" in table["problem"].to_list()
    assert table.filter(table["problem"].is_not_null())["step_s"].is_null().all()
    assert set(table["fits"]) <= {"yes", "no", "too_close"}


def test_the_best_plan_of_a_point() -> None:
    table = frame(study={"kind": "training"}, base=BASE, vary={"gpus": [8], "plan.tp": [1, 4]})
    for row in table.iter_rows(named=True):
        alone = foretell.search(**BASE, gpus=8, set=[f"plan.tp={row['plan.tp']}"], top=1)
        assert row["plan"] == str(alone.best.plan)
        assert row["step_s"] == alone.best.step_s
        assert row["plans_evaluated"] == alone.plans_evaluated
        assert row["plans_pruned"] == alone.plans_pruned
        assert row["step_s_p90_low"] <= row["step_s"] <= row["step_s_p90_high"]


def test_a_whole_run() -> None:
    table = frame(
        study={"kind": "training", "plan": "tp2"},
        base={**BASE, "gpus": 8, "tokens": "1T"},
        vary={"plan.zero": [1, 3]},
    )
    alone = foretell.estimate(**BASE, gpus=8, plan="tp2 zero3", tokens="1T")
    assert alone.run is not None
    assert table["run_days"][1] == alone.run.days


def test_serving_and_sizing() -> None:
    asked = {"model": "llama-3.1-8b", "system": "h100-sxm", "gpus": 2, "isl": 500, "osl": 100}
    table = frame(
        study={"kind": "serving"}, base=asked, vary={"plan.tp": [1, 2], "concurrency": [8]}
    )
    alone = foretell.serve(**asked, concurrency=8, plan="tp2")
    assert table["ttft_ms_p99"][1] == alone.ttft_ms.to_dict()["p99"]
    assert table["output_tokens_per_s"][1] == alone.output_tokens_per_s
    del asked["gpus"]
    base = {**asked, "rate": 20, "ttft": 1000, "simulate": False}
    sized = frame(study={"kind": "serving"}, base=base, vary={"tpot": [20, 1e-3]})
    assert sized["gpus"][0] == foretell.size(**base, tpot=20).best.option.gpus
    assert sized["problem"].is_null().to_list() == [True, False]


def test_costs() -> None:
    silicon = frame(
        study={"kind": "cost"}, base={"node": "N5"}, vary={"area": [400, 800], "dies": [2]}
    )
    assert silicon["usd"][1] == package_cost(PackageQuestion(node="N5", area=800, dies=2)).usd
    system = frame(study={"kind": "cost"}, base={"system": "dgx-h100"}, vary={"gpus": [8, 64]})
    alone = system_cost(SystemQuestion(system="dgx-h100", gpus=64))
    assert system["usd_per_gpu_hour"][1] == alone.facts["usd_per_gpu_hour"]


def test_a_mix_of_workloads() -> None:
    mix = [{"name": "short", "seq_len": 2048, "weight": 3}, {"name": "long", "seq_len": 8192}]
    table = frame(
        study={"kind": "training", "plan": "tp2 zero1"},
        base=BASE,
        vary={"gpus": [8, 16]},
        workload=mix,
        limits={"step_s": 1e-9},
    )
    assert table["point"].to_list() == [0, 0, 1, 1]
    assert table["workload"].to_list() == ["short", "long"] * 2
    assert table["weight"].to_list() == [3.0, 1.0] * 2
    assert table["seq_len"].to_list() == [2048, 8192] * 2
    assert not table["within_limits"].any()


def test_shards_have_the_columns_of_the_study() -> None:
    tables = {
        "study": {"kind": "training", "mode": "sample", "samples": 40, "plan": "zero1"},
        "base": {**BASE, "gpus": 16},
        "vary": {
            "plan.tp": [1, 2, 16],
            "chip.memory_bandwidth_bytes_per_s": {"low": 2e12, "high": 4e12},
            "seq_len": {"low": 1000, "high": 4000},
        },
    }
    study = read_study(tables)
    table = shard_frame(study, 0)
    assert table.columns == list(all_columns(study))
    assert len(batch_axes(study)) == 1
    assert table["point"].to_list() == list(range(40))
    assert table["seq_len"].is_between(1000, 4000).all()
    row = table.filter(table["problem"].is_null()).row(0, named=True)
    setting = [f"chip.memory_bandwidth_bytes_per_s={row['chip.memory_bandwidth_bytes_per_s']!r}"]
    try:
        step_s = foretell.estimate(
            **BASE, gpus=16, seq_len=row["seq_len"], plan=row["plan"], set=setting
        ).step_s
    except foretell.Infeasible as error:
        step_s = error.answer.step_s
    assert np.isclose(row["step_s"], step_s, rtol=1e-12)
