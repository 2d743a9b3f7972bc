"""Designs as points of a study: the same fields move performance and cost."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.api.cost import (
    Payment,
    RunQuestion,
    TokenQuestion,
    estimate_bill,
    run_cost,
    token_cost,
)
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.studies.study_file import read_study
from foretell.studies.sweep.codesign import codesign, designs
from foretell.studies.sweep.frames import shard_frame
from foretell.studies.sweep.run import sweep
from tests.surfaces.command import foretell as command

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CHIP = str(EXAMPLES / "codesign_chip.toml")
PLAN = "tp8 zero1 mbs1 recompute=full"
BASE = {"model": "llama-3.1-8b", "system": CHIP, "gpus": 16, "global_batch": 32, "rent": "own"}


def rows(vary: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Every point of a study of training as a row."""
    table = {"study": {"kind": "training", "plan": PLAN}, "base": {**BASE, **more}, "vary": vary}
    return shard_frame(read_study(table), 0).to_dicts()


@pytest.mark.parametrize(
    ("path", "values", "performance"),
    [
        ("chip.design.die_area_mm2", [500, 600, 700, 800], "tokens_per_s"),
        ("chip.design.memory_stack_bytes_per_s", ["1 TB/s", "1.5 TB/s", "2 TB/s"], None),
        ("chip.design.scale_up_bytes_per_s", ["0.3 TB/s", "0.6 TB/s", "1.2 TB/s"], None),
        ("network.node.size", [8, 16, 64], None),
        ("network.cluster.bandwidth_bytes_per_s", ["200 Gbit/s", "400 Gbit/s"], None),
    ],
)
def test_a_field_moves_time_and_money(
    path: str, values: list[Any], performance: str | None
) -> None:
    """What is larger costs more; cores, which pay for it, follow from the area."""
    more: dict[str, Any] = {"gpus": 128, "global_batch": 128}
    if "die_area" not in path:
        more |= {"chip.design.cores": 120, "chip.design.die_area_mm2": 0}
    found = rows({path: values}, **more)
    assert [row["problem"] for row in found] == [None] * len(values)
    capital = [row["capital_usd"] for row in found]
    if path != "chip.design.memory_stack_bytes_per_s":  # a faster stack has no price of its own
        assert capital == sorted(capital)
        assert len(set(capital)) > 1
    speed = [row["tokens_per_s"] for row in found]
    if performance or path.startswith("chip."):
        assert speed == sorted(speed)
        assert speed[0] < speed[-1]


def test_links_of_a_design_are_its_node() -> None:
    slow, fast = rows({"chip.design.scale_up_bytes_per_s": ["0.2 TB/s", "1.2 TB/s"]})
    assert slow["step_s"] > fast["step_s"]
    given = foretell.estimate(
        "llama-3.1-8b", system=CHIP, gpus=16, global_batch=32, plan=PLAN,
        set=["chip.design.scale_up_bytes_per_s=0.2 TB/s"],
    )  # fmt: skip
    assert given.step_s == slow["step_s"]
    assert given.scenario is not None
    assert given.scenario.system.network.tiers[0].bandwidth_bytes_per_s == 0.2e12
    assert (given.overrides or {})["chip.design.scale_up_bytes_per_s"] == "0.2 TB/s"


def test_links_between_dies_bound_what_is_read_of_memory() -> None:
    rates = [0.5e12, 1e12, 2e12, 4e12, 8e12]
    seen = [
        foretell.system(CHIP).chip.memory_bandwidth_bytes_per_s
        if rate is None
        else _chip(die_to_die_bytes_per_s=rate).memory_bandwidth_bytes_per_s
        for rate in (*rates, None)
    ]
    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(
        2 * rates[0] / 0.5
    )  # half of what two dies read is not their own
    assert seen[-1] == seen[-2] == 8 * foretell.system(CHIP).chip.memory_bandwidth_bytes_per_s / 8


def _chip(**changes: float) -> Any:
    from foretell import catalog

    texts = {name: str(value) for name, value in changes.items()}
    return catalog.system(CHIP, design=texts).chip


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.02, 0.6),
    st.floats(1.0, 3.0),
    st.sampled_from([400, 600, 800]),
    st.sampled_from([1, 2, 4]),
)
def test_defects_are_never_cheaper(defects: float, more: float, area: int, dies: int) -> None:
    def usd(density: float) -> tuple[float, float]:
        changes = [f"chip.design.die_area_mm2={area}", f"chip.design.compute_dies={dies}"]
        changes += [f"chip.design.memory_stacks={2 * dies}"]
        answer = system_cost(
            SystemQuestion(
                system=CHIP,
                gpus=64,
                set=[*changes, f"prices.processes.N3.defects_per_cm2={density}"],
            )
        )
        return answer.usd, float(answer.facts["usd_per_gpu_hour"])

    before, after = usd(defects), usd(defects * more)
    assert before[0] <= after[0] * (1 + 1e-12)
    assert before[1] <= after[1] * (1 + 1e-12)


def test_a_larger_die_of_the_same_cores_is_never_cheaper() -> None:
    found = rows({"chip.design.die_area_mm2": [550, 650, 750, 850]}, **{"chip.design.cores": 96})
    usd = [row["package_usd"] for row in found]
    good = [row["good_die_share"] for row in found]
    assert usd == sorted(usd)
    assert good == sorted(good, reverse=True)


def test_dies_apart_cost_what_their_packages_cost(tmp_path: Path) -> None:
    """A package as a tier is another view of the same machine."""
    text = Path(CHIP).read_text()
    apart = tmp_path / "apart.toml"
    apart.write_text(
        text.replace("[network.node]", '[network.package]\ntopology = "package"\n[network.node]')
    )
    split, whole = foretell.system(apart), foretell.system(CHIP)
    assert [tier.name for tier in split.network.tiers] == ["package", "node", "cluster"]
    assert split.chip.cores * 2 == whole.chip.cores
    sold = [
        system_cost(SystemQuestion(system=str(file), gpus=gpus)).usd
        for file, gpus in ((CHIP, 64), (apart, 128))
    ]
    assert sold[0] == pytest.approx(sold[1])
    bills = [
        estimate_bill(
            foretell.estimate("llama-3.1-8b", system=file, gpus=gpus, global_batch=64, plan=plan),
            Payment(rent="own"),
        )
        for file, gpus, plan in ((CHIP, 16, "zero1"), (apart, 32, "tp2 zero1"))
    ]
    for bill in bills:
        assert bill.facts["gpus"] == 16
        assert bill.facts["usd_per_gpu_hour"] == pytest.approx(
            bills[0].facts["usd_per_gpu_hour"], rel=0.05
        )
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(
        apart.read_text().replace('topology = "package"', 'topology = "package"\nsize = 3')
    )
    with pytest.raises(foretell.BadInput, match=r"network\.package\.size"):
        foretell.system(wrong)


def test_bills_of_a_sweep_are_those_of_cost() -> None:
    """What a study says of money is what `cost run` and `cost token` say."""
    base = {"model": "llama-3.1-8b", "system": "hgx-h100", "gpus": 8}
    paid = {"rent": "own", "region": "france"}
    plan = "zero1 recompute=full"
    run = {"global_batch": 32, "tokens": "1T"}
    table = {
        "study": {"kind": "training", "plan": plan},
        "base": {**base, **paid, **run},
        "vary": {"seq_len": [4096]},
    }
    row = shard_frame(read_study(table), 0).row(0, named=True)
    cost = run_cost(RunQuestion(**base, **paid, **run, plan=plan, seq_len=4096))
    assert row["usd_per_million_work_tokens"] == pytest.approx(cost.facts["usd_per_million_tokens"])
    assert row["run_usd"] == pytest.approx(cost.usd)
    assert row["carbon_g_per_million_work_tokens"] == pytest.approx(
        cost.facts["carbon_g_per_million_tokens"]
    )
    priced = {**table, "study": {"kind": "cost", "what": "run", "plan": plan}}
    told = shard_frame(read_study(priced), 0).row(0, named=True)
    assert told["usd"] == pytest.approx(cost.usd)
    assert told["low_energy_mwh"] == pytest.approx(cost.facts["low_energy_mwh"])
    load = {"isl": 512, "osl": 128, "concurrency": 8}
    served = {
        "study": {"kind": "cost", "what": "token"}, "base": {**base, **paid}, "vary": {"isl": [512]},
        "workload": [{"osl": 128, "concurrency": 8}],
    }  # fmt: skip
    told = shard_frame(read_study(served), 0).row(0, named=True)
    token = token_cost(TokenQuestion(**base, **paid, **load))
    assert told["usd"] == pytest.approx(token.usd)
    assert told["carbon_kg"] == pytest.approx(token.facts["carbon_kg"])
    asked = {**served, "study": {"kind": "serving"}}
    row = shard_frame(read_study(asked), 0).row(0, named=True)
    assert row["usd_per_million_work_tokens"] == pytest.approx(token.usd * 128 / 640)
    assert row["joules_per_work_token"] == pytest.approx(
        token.facts["energy_mwh"] * 3.6e9 / 1e6 * 128 / 640
    )


def test_all_problems_at_once() -> None:
    bad = {
        "study": {"kind": "training", "what": "run"},
        "base": {"model": "llama-3.1-8b", "system": CHIP, "rent": "own", "gpu": 8},
        "vary": {"chip.design.memory_stacks": [], "global_batch": [32]},
        "workload": [{"kind": "cooking", "weight": 0}, {"kind": "serving", "seq_len": 3}],
        "objectives": {"usd": "least"},
        "limits": {"peak_watts": "many"},
    }
    with pytest.raises(foretell.BadInput) as caught:
        codesign(bad)
    said = str(caught.value)
    for path in (
        "study.what", "base.gpu", "vary.chip.design.memory_stacks", "workload.0.kind",
        "workload.0.weight", "workload.1.seq_len", "objectives.usd", "limits.peak_watts",
    ):  # fmt: skip
        assert path in said


def test_wishes_that_no_column_has() -> None:
    table = {
        "study": {"kind": "training", "plan": PLAN}, "base": BASE,
        "vary": {"chip.design.memory_stack": [4]},
        "objectives": {"usd_per_milion_work_tokens": "min"},
    }  # fmt: skip
    with pytest.raises(foretell.BadInput) as caught:
        codesign(table)
    assert "did you mean usd_per_million_work_tokens" in str(caught.value)
    assert "did you mean memory_stacks" in str(caught.value)
    with pytest.raises(foretell.BadInput, match="nothing is wanted"):
        codesign(
            {**table, "objectives": {}, "base": {n: v for n, v in BASE.items() if n != "rent"}}
        )


def test_what_cannot_be_built_is_a_point_that_cannot_be() -> None:
    found = rows({"chip.design.die_area_mm2": [700, 4000], "chip.design.memory_stacks": [8, 60]})
    assert [row["problem"] is None for row in found] == [True, False, False, False]
    assert "one exposure prints" in found[2]["problem"]


def test_a_design_of_a_catalogue_chip_is_refused() -> None:
    with pytest.raises(foretell.BadInput, match="no design"):
        foretell.estimate(
            "llama-3.1-8b", system="h100-sxm", gpus=8, set=["chip.design.memory_stacks=8"]
        )


def test_the_example(tmp_path: Path) -> None:
    """The whole verb on a small study: text, JSON, picture, folder, and no."""
    study, out, plot = EXAMPLES / "codesign_small.toml", tmp_path / "kept", tmp_path / "front.svg"
    run = command("codesign", str(study), "--out", str(out), "--plot", str(plot), "--json")
    assert run.code == 0, run.err
    told = json.loads(run.out)
    assert told["points"] == told["possible"] == 9
    front = [row for row in told["rows"] if row["front"]]
    assert len(front) == len(told["front"]) >= 2
    cost, speed = told["objectives"]
    for row in told["rows"]:
        beaten = any(
            o[cost] <= row[cost]
            and o[speed] >= row[speed]
            and (o[cost], o[speed]) != (row[cost], row[speed])
            for o in told["rows"]
        )
        assert row["front"] != beaten
    assert plot.read_text().startswith("<svg")
    again = designs(out, wanted=True)
    assert np.flatnonzero(again.chosen.front).tolist() == [row["point"] for row in front]
    text = command("sweep", "front", str(out))
    assert text.code == 0
    assert "Best for each workload alone" in text.out
    table = json.loads((out / "manifest.json").read_text())["study"]
    none = codesign({**table, "limits": {"decode.tpot_ms_p50": 0.001}}, out=tmp_path / "none")
    assert "the least is" in " ".join(none.why_not())
    assert not none.chosen.front.any()


def test_a_sweep_says_what_is_wanted(tmp_path: Path) -> None:
    table = {
        "study": {"kind": "training", "plan": PLAN}, "base": BASE,
        "vary": {"seq_len": [1024, 2048]}, "objectives": {"step_s": "min"},
        "limits": {"capital_usd": 1e9},
    }  # fmt: skip
    status = sweep(table, out=tmp_path / "s")
    assert (status.objectives, status.limits) == ({"step_s": "min"}, {"capital_usd": 1e9})
    assert "sweep front" in command("sweep", "status", str(tmp_path / "s")).out
