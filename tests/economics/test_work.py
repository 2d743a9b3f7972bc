"""Runs and tokens: sums, ranges, and what doubling, dearer power and dirtier grids do."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell import catalog
from foretell.api.cost import RunQuestion, TokenQuestion, run_cost, token_cost
from foretell.catalog.money import Sheet, sheet
from foretell.economics.answer import CostAnswer
from foretell.economics.work import PaidWork, Paying, bill_work, mark_front
from foretell.errors import BadInput, Infeasible
from foretell.specs.cost import Figure
from tests.economics.test_packages import leaves_sum

PLAN = "tp8 pp2 mbs1 zero1"
RUN = {"model": "llama-3.1-70b", "system": "hgx-h100", "gpus": 64, "plan": PLAN, "tokens": "1T"}
TREES = ("by_time", "per_million_tokens", "energy", "carbon")


@st.composite
def works(draw: st.DrawFn) -> PaidWork:
    """Some hours of some chips."""
    hours = draw(st.floats(1.0, 1e8))
    share = draw(st.floats(0.01, 0.99))
    return PaidWork(
        what="run",
        name="toy",
        system=catalog.system(draw(st.sampled_from(("hgx-h100", "dgx-b200", "tpu-v4-pod")))),
        gpus=draw(st.integers(1, 2048)),
        gpu_hours=(hours * draw(st.floats(0.5, 1.0)), hours, hours * draw(st.floats(1.0, 2.0))),
        watts_per_gpu=draw(st.one_of(st.none(), st.floats(50.0, 700.0))),
        shares={"steps": share, "restarts": 1.0 - share},
        tokens=draw(st.floats(1e3, 1e13)),
        flop=1e20,
        facts={"mfu": draw(st.floats(0.01, 0.9))},
    )


WAYS = st.sampled_from(("own", "on-demand", "spot"))


def bill(work: PaidWork, figures: Sheet | None = None, **paid: object) -> CostAnswer:
    paying = Paying(**{"way": "own", "region": "france", **paid})  # type: ignore[arg-type]
    return bill_work(work, paying, figures or sheet(), {}, [])


def changed(path: str, value: float) -> Sheet:
    return sheet().with_figure(Figure(path=path, value=value, low=value, high=value))


@settings(max_examples=15, deadline=None)
@given(works(), WAYS)
def test_every_tree_sums_and_has_its_range(work: PaidWork, way: str) -> None:
    answer = bill(work, way=way)
    assert leaves_sum(answer.breakdown) == pytest.approx(answer.usd)
    told = answer.facts
    whole = {
        "by_time": answer.usd,
        "per_million_tokens": told["usd_per_million_tokens"],
        "per_mfu_point": told["usd_per_mfu_point"],
        "energy": told["energy_mwh"],
        "carbon": told["carbon_kg"],
    }
    assert set(whole) == set(answer.trees)
    for name, value in whole.items():
        assert leaves_sum(answer.trees[name]) == pytest.approx(value, rel=1e-9)
    for name in told:
        if f"low_{name}" in told:
            assert told[f"low_{name}"] <= told[name] <= told[f"high_{name}"], name
    split = told["operational_carbon_kg"] + told["embodied_carbon_kg"]
    assert split == pytest.approx(told["carbon_kg"])
    assert told["usd_per_mfu_point"] * 100 * work.facts["mfu"] == pytest.approx(answer.usd)
    assert told["tokens_per_usd"] * told["usd_per_million_tokens"] == pytest.approx(1e6)


@settings(max_examples=10, deadline=None)
@given(works(), WAYS)
def test_twice_the_hours_are_twice_of_everything(work: PaidWork, way: str) -> None:
    low, hours, high = work.gpu_hours
    twice = replace(work, gpu_hours=(2 * low, 2 * hours, 2 * high))
    once, more = bill(work, way=way), bill(twice, way=way)
    assert more.usd == pytest.approx(2 * once.usd)
    for name in ("energy_mwh", "operational_carbon_kg", "embodied_carbon_kg"):
        assert more.facts[name] == pytest.approx(2 * once.facts[name])


@settings(max_examples=10, deadline=None)
@given(works())
def test_energy_is_what_the_meter_of_an_owned_cluster_charges(work: PaidWork) -> None:
    answer = bill(work)
    usd = answer.breakdown.find("electricity", "in use").value
    per_mwh = 1000 * sheet().figures["site.usd_per_kwh"].value
    assert usd == pytest.approx(answer.facts["energy_mwh"] * per_mwh)


@settings(max_examples=10, deadline=None)
@given(works(), st.floats(1.0, 1500.0), st.floats(1.0, 2.0))
def test_dirtier_grids_and_wasteful_buildings(work: PaidWork, grams: float, pue: float) -> None:
    clean = bill(work, changed("grids.france.grams_per_kwh", grams))
    dirty = bill(work, changed("grids.france.grams_per_kwh", 2 * grams))
    for name in ("operational_carbon_kg", "embodied_carbon_kg"):
        factor = 2 if name.startswith("op") else 1
        assert dirty.facts[name] == pytest.approx(factor * clean.facts[name])
    assert dirty.usd == clean.usd
    held = bill(work, changed("site.pue", pue)).facts["energy_mwh"]
    assert held == pytest.approx(pue * bill(work, changed("site.pue", 1.0)).facts["energy_mwh"])


@settings(max_examples=10, deadline=None)
@given(works(), st.floats(0.1, 100.0), st.floats(0.1, 0.99))
def test_reservations_pay_idle_hours_and_use_does_not(
    work: PaidWork, usd: float, use: float
) -> None:
    figures = changed("finance.utilisation", use)
    by_use = bill(work, figures, way="on-demand", price=usd)
    assert by_use.usd == pytest.approx(usd * work.gpu_hours[1])
    kept = bill(work, figures, way="reserved", price=usd)
    assert kept.usd == pytest.approx(by_use.usd / use)
    busier = bill(work, changed("finance.utilisation", 1.0))
    assert bill(work, figures).usd >= busier.usd
    assert bill(work, figures).facts["embodied_carbon_kg"] == pytest.approx(
        busier.facts["embodied_carbon_kg"] / use
    )


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12))
def test_the_front(points: list[tuple[int, int]]) -> None:
    rows = [{"usd": 1.0, "tokens_per_s": x, "usd_per_million_tokens": y} for x, y in points]
    mark_front([*rows, {"usd": None, "problem": "no"}])
    front = {p for p, row in zip(points, rows, strict=True) if row["pareto"]}
    assert front
    for x, y in points:
        above = any(a >= x and b <= y and (a, b) != (x, y) for a, b in points)
        assert ((x, y) in front) == (not above)


def test_a_run_is_its_estimate() -> None:
    answer = run_cost(RunQuestion(**RUN, price=2, region="sweden"))  # type: ignore[arg-type]
    plain = foretell.estimate(RUN["model"], **{k: v for k, v in RUN.items() if k != "model"})  # type: ignore[arg-type]
    assert plain.run is not None
    assert plain.run.interval is not None
    told = answer.facts
    assert answer.usd == pytest.approx(2 * plain.run.gpu_hours)
    assert told["gpu_hours"] == plain.run.gpu_hours
    days = plain.run.interval["p90"]
    ends = [told[end] / told["gpu_hours"] for end in ("low_gpu_hours", "high_gpu_hours")]
    assert ends == pytest.approx([day / plain.run.days for day in days])
    chips = answer.trees["energy"].find("chips").value
    assert plain.run.energy_joules is not None
    assert chips * 3.6e9 == pytest.approx(plain.run.energy_joules)
    steps = answer.breakdown.find("steps").value
    assert steps == pytest.approx(answer.usd * plain.run.goodput)
    assert told["flop_per_joule"] == pytest.approx(told["model_flop"] / told["energy_mwh"] / 3.6e9)


def test_tokens_are_what_serving_charges() -> None:
    """Input and output tokens of a rent, together, as `serve` splits them."""
    asked = {"system": "hgx-h100", "gpus": 8, "isl": 2048, "osl": 256, "concurrency": 32}
    served = foretell.serve("llama-3.1-70b", **asked, price=3.0)  # type: ignore[arg-type]
    answer = token_cost(TokenQuestion(model="llama-3.1-70b", **asked, price=3.0))  # type: ignore[arg-type]
    assert served.usd_per_million_input_tokens is not None
    out = served.usd_per_million_output_tokens
    told = answer.facts
    assert told["usd_per_million_output_tokens"] == pytest.approx(out)
    assert told["usd_per_million_input_tokens"] == pytest.approx(
        served.usd_per_million_input_tokens
    )
    assert answer.breakdown.find("answers").value == pytest.approx(out)
    read = served.usd_per_million_input_tokens * 2048 / 256
    assert answer.breakdown.find("prompts").value == pytest.approx(read)
    energy = answer.trees["energy"]
    assert (energy.unit, energy.value) == ("kWh", pytest.approx(1e3 * told["energy_mwh"]))
    joules = energy.find("chips").value * 3.6e6 / 1e6
    assert joules == pytest.approx(served.joules_per_token)


def test_a_given_rate_has_no_range_of_speed() -> None:
    asked = {"model": "llama-3.1-70b", "system": "hgx-h100", "gpus": 8}
    fixed = token_cost(TokenQuestion(**asked, rate=1.0, price=2)).facts  # type: ignore[arg-type]
    assert fixed["low_gpu_hours"] == fixed["gpu_hours"] == fixed["high_gpu_hours"]
    free = token_cost(TokenQuestion(**asked, concurrency=32, price=2)).facts  # type: ignore[arg-type]
    assert free["low_gpu_hours"] < free["gpu_hours"] < free["high_gpu_hours"]


def test_settings_of_speed_and_of_money_both_count() -> None:
    base = run_cost(RunQuestion(**RUN, rent="own"))  # type: ignore[arg-type]
    slow = run_cost(RunQuestion(**RUN, rent="own", set=("chip.clock_hz=1e9",)))  # type: ignore[arg-type]
    dear = run_cost(RunQuestion(**RUN, rent="own", set=("prices.usd_per_kwh=0.5",)))  # type: ignore[arg-type]
    assert dear.usd > base.usd
    assert dear.facts["gpu_hours"] == base.facts["gpu_hours"]
    assert set(slow.overrides) == {"chip.clock_hz"}
    assert set(dear.overrides) == {"prices.usd_per_kwh"}
    assert "site.usd_per_kwh" not in {driver.path for driver in dear.drivers}


def test_a_system_without_a_price_can_be_rented() -> None:
    with pytest.raises(BadInput, match="no price"):
        token_cost(TokenQuestion(model="llama-3.1-8b", system="tpu-v7x-pod", gpus=8))
    answer = token_cost(
        TokenQuestion(model="llama-3.1-8b", system="tpu-v7x-pod", gpus=8, price="12 USD/h")
    )
    assert [term["term"] for term in answer.facts["terms"]] == ["on-demand"]
    assert answer.facts["embodied_carbon_kg"] > 0
    whole = token_cost(TokenQuestion(model="llama-3.1-8b", system="wse3", gpus=1, price=50))
    assert np.isfinite(whole.facts["high_carbon_kg"])


@pytest.mark.parametrize(
    ("flags", "paths"),
    [
        ({"rent": "free", "region": "mars", "plan": "tp9x"}, {"rent", "region", "plan"}),
        ({"price": "-1", "years": "0"}, {"price", "finance.server_years"}),
        ({"price": "2", "rent": "own"}, {"price"}),
        ({"rent": "3-year", "system": "hgx-h100"}, {"rent"}),
        ({"tokens": "0", "set": ("prices.x.y=1",)}, {"tokens", "--set prices.x.y"}),
    ],
)
def test_bad_input(flags: dict[str, object], paths: set[str]) -> None:
    with pytest.raises(BadInput) as error:
        run_cost(RunQuestion(**{**RUN, **flags}))  # type: ignore[arg-type]
    assert {problem.path for problem in error.value.problems} == paths


def test_what_does_not_fit_has_no_price() -> None:
    with pytest.raises(Infeasible, match="needs"):
        run_cost(RunQuestion(**{**RUN, "gpus": 8, "plan": "tp8"}))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="region"):
        run_cost(RunQuestion(**{**RUN, "gpus": 8, "plan": "tp8", "region": "mars"}))  # type: ignore[arg-type]


def test_ranges_come_from_the_work_and_the_rent() -> None:
    answer = run_cost(RunQuestion(**RUN))  # type: ignore[arg-type]
    moved = {driver.path for driver in answer.drivers}
    assert moved == {"rent.usd_per_chip_hour", "work.gpu_hours"}
    offer = next(d for d in answer.drivers if d.path.startswith("rent"))
    ends = np.array([offer.usd_at_low, offer.usd_at_high]) / answer.facts["gpu_hours"]
    assert ends == pytest.approx([offer.low, offer.high])
