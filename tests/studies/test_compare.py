"""Procurement: clusters that the money pays for, numbers of the verbs they stand on, honest orders."""

import contextlib
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

import foretell
from foretell.api.cost import Payment, RunQuestion, run_cost
from foretell.economics.ask_system import SystemQuestion, system_cost
from foretell.economics.total_cost import waterfall_steps
from foretell.errors import BadInput, Infeasible
from foretell.studies.procurement.clusters import affordable, cost_of, smooth
from tests.surfaces.command import foretell as command

PLAN = "tp2 zero1 mbs1 recompute=full"
TRAINING: dict[str, Any] = {"model": "llama-3.1-8b", "seq_len": 4096, "plan": PLAN}
SERVICE: dict[str, Any] = {"model": "llama-3.1-8b", "isl": 512, "osl": 128}
SYSTEMS = ("hgx-h100", "dgx-h200", "dgx-b200")
CATALOGUE = Path(foretell.__file__).parent / "catalog"


def test_the_money_pays_for_the_cluster() -> None:
    own = Payment(rent="own")
    for name in SYSTEMS:
        clusters = affordable(name, 10e6, own)
        for cluster in clusters:
            assert cluster.usd <= 10e6
            assert cluster.gpus % 8 == 0
            told = system_cost(SystemQuestion(system=name, gpus=cluster.gpus)).facts
            assert cluster.usd == pytest.approx(told["tco_usd"])
        largest = max(clusters, key=lambda one: one.gpus)
        assert cost_of(name, largest.gpus + 16, own).usd > 10e6
        assert affordable(name, 20e6, own)[0].gpus > largest.gpus
    with pytest.raises(foretell.Infeasible, match="one node"):
        affordable("dgx-b200", 1000.0, own)
    assert [smooth(n) for n in (1, 7, 14, 100, 1009)] == [1, 6, 12, 100, 1000]


def test_a_rent_is_paid_by_the_hour() -> None:
    rented = cost_of("hgx-h100", 8, Payment(rent="on-demand", price=2.0, years=1, utilisation=0.5))
    assert rented.usd == pytest.approx(8 * 2.0 * 8760 * 0.5)
    kept = cost_of("hgx-h100", 8, Payment(rent="reserved", price=2.0, years=1, utilisation=0.5))
    assert kept.usd == pytest.approx(8 * 2.0 * 8760)


def test_numbers_are_those_of_the_verbs() -> None:
    found = foretell.compare(SYSTEMS, gpus=64, tokens="1T", by="tokens", **TRAINING)
    assert [kind.problem for kind in found.kinds] == [None] * 3
    for kind in found.kinds:
        facts = kind.works[0].facts
        step = foretell.estimate(system=kind.system, gpus=64, tokens="1T", **TRAINING)
        bill = run_cost(
            RunQuestion(system=kind.system, gpus=64, tokens="1T", rent="own", **TRAINING)
        )
        assert facts["step_s"] == step.step_s
        assert facts["run_usd"] == pytest.approx(bill.usd)
        assert kind.usd_per_million_tokens == pytest.approx(bill.facts["usd_per_million_tokens"])
        assert step.run is not None
        assert kind.tokens_per_s == pytest.approx(step.tokens_per_s * step.run.goodput, rel=1e-4)
        low, high = kind.interval["usd_per_million_tokens"]["p90"]  # type: ignore[index]
        assert low < kind.usd_per_million_tokens < high
    speeds = [kind.tokens_per_s or 0.0 for kind in found.kinds]
    assert speeds == sorted(speeds, reverse=True)
    told = found.to_dict()
    assert told["best"] == found.best.system == "dgx-b200"
    for a, row in told["beats"].items():
        for b, p in row.items():
            assert p + told["beats"][b][a] == pytest.approx(1.0)
    assert found.certain == all(p >= 0.9 for p in told["beats"]["dgx-b200"].values())


def test_more_money_does_more_and_the_same_system_ties(tmp_path: Path) -> None:
    small = foretell.compare(("hgx-h100",), budget="2M", **TRAINING)
    large = foretell.compare(("hgx-h100",), budget="8M", **TRAINING)
    assert (large.best.tokens_per_s or 0) > 3 * (small.best.tokens_per_s or 0)
    assert not small.certain  # there is nobody to beat
    own = (CATALOGUE / "systems" / "hgx-h100.toml").read_text()
    twin = tmp_path / "twin.toml"
    twin.write_text(own.replace('"hgx-h100"', '"twin"').replace("10.2 kW", "10.21 kW"))
    same = foretell.compare(("hgx-h100", str(twin)), gpus=16, **TRAINING)
    assert 0.2 < same.beats[0][1] < 0.8
    assert not same.certain


@pytest.mark.parametrize(
    "names", [("h100-sxm", "hgx-h100"), ("hgx-h100", "H100"), ("dgx-h100", "hgx-h100")]
)
def test_one_system_under_two_names_is_told_once(names: tuple[str, str]) -> None:
    found = foretell.compare((*names, "dgx-h200"), gpus=16, **TRAINING)
    assert {kind.system for kind in found.kinds} == {names[0], "dgx-h200"}
    assert f"{names[1]} is the same system as {names[0]}: listed once" in found.assumptions


@pytest.mark.parametrize(
    "work", [{"tokens": "1T", **TRAINING}, {**SERVICE, "concurrency": 64, "plan": "tp2"}]
)
def test_a_system_without_a_price_is_told_with_what_it_does(work: dict[str, Any]) -> None:
    """Money that nobody knows is null, no number and no reason to drop a system."""
    names = ("aws-trn2-ultra", "hgx-h100")
    by_speed = foretell.compare(names, gpus=64, by="tokens", **work)
    by_usd = foretell.compare(names, gpus=64, by="usd", **work)
    for found in (by_speed, by_usd):
        one = next(kind for kind in found.kinds if kind.system == "aws-trn2-ultra")
        assert one.problem is None
        assert "no price" in (one.no_price or "")
        told = next(row for row in found.to_dict()["systems"] if row["system"] == one.system)
        money = [told[name] for name in ("usd", "usd_per_million_tokens")]
        money += [told["interval"]["usd_per_million_tokens"]]
        money += [v for facts in told["workloads"].values() for n, v in facts.items() if "usd" in n]
        assert money == [None] * len(money)
        assert told["paid"] == "no price"
        low, high = told["interval"]["tokens_per_s"]["p90"]
        assert 0.0 < low <= told["tokens_per_s"] <= high
        assert any(
            "No price is known for aws-trn2-ultra" in text
            for text in found.to_dict()["conclusions"]
        )
    # By speed it has its place; by money it stands behind those that have a price, and beats none.
    speeds = [kind.tokens_per_s or 0.0 for kind in by_speed.kinds]
    assert speeds == sorted(speeds, reverse=True)
    assert len(by_speed.beats) == 2
    assert [kind.system for kind in by_usd.kinds] == ["hgx-h100", "aws-trn2-ultra"]
    assert by_usd.to_dict()["best"] == "hgx-h100"
    assert (by_usd.beats, by_usd.certain) == (((0.5,),), False)
    with pytest.raises(Infeasible, match="no price"):
        foretell.compare(("aws-trn2-ultra",), gpus=64, by="usd", **work)
    if "tokens" in work:
        alone = foretell.estimate(system="aws-trn2-ultra", gpus=64, **work)
        assert one.works[0].facts["step_s"] == alone.step_s
        priced = foretell.compare(names, budget="20M", **work)
        assert "no price" in (priced.kinds[-1].problem or "")


def test_a_service_at_the_load_that_it_bears() -> None:
    asked = SERVICE
    slow = foretell.compare(("hgx-h100", "dgx-h200"), gpus=8, tpot=60, by="usd", **asked)
    fast = foretell.compare(("hgx-h100", "dgx-h200"), gpus=8, tpot=8, by="usd", **asked)
    for kinds, limit in ((slow.kinds, 60), (fast.kinds, 8)):
        for kind in kinds:
            assert kind.works[0].facts["tpot_ms"] <= limit
    assert (slow.best.usd_per_million_tokens or 0) <= (fast.best.usd_per_million_tokens or 0)
    usd = [kind.usd_per_million_tokens or 0.0 for kind in slow.kinds]
    assert usd == sorted(usd)
    with pytest.raises(foretell.Infeasible, match="a token takes at least"):
        foretell.compare(("hgx-h100",), gpus=8, tpot=0.01, **asked)


MIX = """
[study]
kind = "training"
[base]
model = "llama-3.1-8b"
[[workload]]
name = "train"
weight = 3
seq_len = 4096
plan = "zero1 mbs1 recompute=full"
[[workload]]
name = "chat"
kind = "serving"
weight = 1
isl = 512
osl = 128
tpot = 30
"""


def test_a_mix(tmp_path: Path) -> None:
    file = tmp_path / "mix.toml"
    file.write_text(MIX)
    told = command(
        "compare", "hgx-h100", "dgx-b200", "--workload", str(file), "--gpus", "16", "--json"
    )
    assert told.code == 0, told.err
    assert told.json["workloads"] == {"train": 0.75, "chat": 0.25}
    for one in told.json["systems"]:
        train, chat = one["workloads"]["train"], one["workloads"]["chat"]
        usd = "usd_per_million_work_tokens"
        assert one["usd_per_million_tokens"] == pytest.approx(0.75 * train[usd] + 0.25 * chat[usd])
        speed = "work_tokens_per_s_per_gpu"
        whole = 16 / (0.75 / train[speed] + 0.25 / chat[speed])
        assert one["tokens_per_s"] == pytest.approx(whole)
        assert chat["tpot_ms"] <= 30


def test_words_and_codes(tmp_path: Path) -> None:
    shown = command(
        "compare", "hgx-h100", "dgx-b200", "--model", "llama-3.1-8b", "--gpus", "8",
        "--plan", PLAN, "--rent", "on-demand", "--why",
    )  # fmt: skip
    assert shown.code == 0, shown.err
    assert "Share of draws in which the row is cheaper than the column" in shown.out
    assert "Main uncertainties in this ranking" in shown.out
    assert "on-demand" in shown.out
    bad = command(
        "compare", "hgx-h100", "dgx-b2000", "--model", "llama-3.1-8c", "--budget", "lots",
        "--by", "luck", "--tpot", "quick",
    )  # fmt: skip
    assert (bad.code, bad.out) == (2, "")
    for word in ("dgx-b2000", "llama-3.1-8c", "budget", "by:", "tpot"):
        assert word in bad.err
    both = command("compare", "hgx-h100", "--model", "llama-3.1-8b")
    assert both.code == 2
    assert "budget and gpus" in both.err
    no = command("compare", "hgx-h100", "--model", "llama-3.1-405b", "--gpus", "1", "--json")
    assert no.code == 1
    assert no.json["fits"] == "no"
    one_of_two = command(
        "compare", "hgx-h100", "dgx-b200", "--model", "llama-3.1-8b", "--budget", "600k",
        "--plan", PLAN, "--json",
    )  # fmt: skip
    assert one_of_two.code == 0, one_of_two.err
    assert [one["problem"] is None for one in one_of_two.json["systems"]] == [True, False]


def test_a_chip_of_ones_own_among_them() -> None:
    """A design stands beside what is sold, at its maker's margin; it has no rent."""
    chip = str(Path(__file__).parents[2] / "examples" / "codesign_chip.toml")
    found = foretell.compare(("dgx-b200", chip), gpus=16, **TRAINING)
    assert {kind.system for kind in found.kinds} == {"dgx-b200", chip}
    own = next(kind for kind in found.kinds if kind.system == chip)
    assert own.cluster is not None
    assert own.cluster.usd == pytest.approx(
        system_cost(SystemQuestion(system=chip, gpus=16)).facts["tco_usd"]
    )
    rented = foretell.compare(("dgx-b200", chip), gpus=16, rent="on-demand", **TRAINING)
    assert ["no such offer" in (k.no_price or "") for k in rented.kinds] == [
        kind.system == chip for kind in rented.kinds
    ]
    bad = command(
        "compare", "dgx-b200", "--model", "llama-3.1-8b", "--gpus", "8", "--price", "cheap",
        "--years", "long",
    )  # fmt: skip
    assert (bad.code, bad.out) == (2, "")
    assert "price" in bad.err


@pytest.mark.parametrize("odd", [None, 5, 10**400, "x", [], [1], {"a": 1}])
def test_a_mix_that_is_none_is_said_to_be_none(odd: Any) -> None:
    """Nothing but an answer, no, or what is wrong comes of it."""
    for table in ({"study": odd}, {"base": odd}, {"workload": odd}, {"workload": [{"tpot": odd}]}):
        mix = {"base": {"model": "gpt2"}, **table}
        with contextlib.suppress(BadInput, Infeasible):
            foretell.compare(["h100-sxm"], gpus=8, plan="zero1", workload=mix)
    with pytest.raises(BadInput, match="not a table"):
        foretell.compare(["h100-sxm"], gpus=8, workload={"base": 3})


@pytest.mark.parametrize("by", [None, "usd", "tokens"])
@pytest.mark.parametrize(
    "work",
    [
        {"budget": "10M", "tokens": "1T", **TRAINING},
        {"gpus": 64, **TRAINING},
        {"gpus": 16, "rent": "on-demand", **TRAINING},
        {"gpus": 8, "tpot": 30, "plan": "tp2", **SERVICE},
    ],
)
def test_the_verdict_never_contradicts_the_cheapest_row(
    work: dict[str, Any], by: str | None
) -> None:
    """The system called cheapest has the lowest price of the table, the one called fastest the top speed."""
    found = foretell.compare((*SYSTEMS, "aws-trn2-ultra"), by=by, **work)
    told = found.to_dict()
    rows = [row for row in told["systems"] if row["problem"] is None]
    priced = {
        row["system"]: row["usd_per_million_tokens"]
        for row in rows
        if row["usd_per_million_tokens"] is not None
    }
    speeds = {row["system"]: row["tokens_per_s"] for row in rows}
    cheapest, fastest = min(priced, key=priced.__getitem__), max(speeds, key=speeds.__getitem__)
    assert (told["cheapest"], told["fastest"]) == (cheapest, fastest)
    assert told["by"] == (by or "usd")
    assert told["best"] == rows[0]["system"] == (fastest if by == "tokens" else cheapest)
    verdict = " ".join(told["conclusions"])
    first = told["best"]
    for word, name in (("cheapest", cheapest), ("fastest", fastest)):
        named = (
            f"also the {word}" if name == first and f"{first} is {word}" not in verdict else name
        )
        assert re.search(rf"{named} is {word}|{named}:|{word.capitalize()}: {named}", verdict)
        for other in {*speeds} - {name}:
            assert not re.search(rf"{other} is {word}|{word.capitalize()}: {other}", verdict)
    usd = [row["usd_per_million_tokens"] for row in rows if row["system"] in priced]
    assert usd == sorted(usd) or by == "tokens"


def test_prices_are_blended_and_split_and_agree() -> None:
    """A request costs its prompt at the input price and its answer at the output price; blended is both."""
    found = foretell.compare(("hgx-h100",), gpus=8, tpot=30, plan="tp2", **SERVICE)
    row = found.to_dict()["systems"][0]
    isl, osl = SERVICE["isl"], SERVICE["osl"]
    split = isl * row["usd_per_million_input_tokens"] + osl * row["usd_per_million_output_tokens"]
    assert 1e6 * row["usd_per_request"] == pytest.approx(split)
    assert row["usd_per_million_tokens"] * (isl + osl) == pytest.approx(split)
    assert row["usd_per_run"] is None
    run = foretell.compare(("hgx-h100",), gpus=64, tokens="1T", **TRAINING).to_dict()["systems"][0]
    assert run["usd_per_run"] == pytest.approx(1e6 * run["usd_per_million_tokens"])
    assert run["usd_per_request"] is None


@pytest.mark.parametrize("residual", [0.0, 0.15, 0.6])
@pytest.mark.parametrize("years", [2, 5, 9])
def test_the_waterfall_adds_up_to_the_total_cost(residual: float, years: float) -> None:
    asked = SystemQuestion(
        system="dgx-h200", gpus=64, years=years, set=(f"prices.finance.server_residual={residual}",)
    )
    facts = system_cost(asked).facts
    parts = facts["total_cost"]
    assert list(parts) == [
        "hardware", "financing", "power", "space", "maintenance", "people", "resale",
    ]  # fmt: skip
    assert sum(parts.values()) == pytest.approx(facts["tco_usd"])
    assert all(usd > 0.0 for name, usd in parts.items() if name != "resale")
    assert parts["resale"] <= 0.0
    assert (parts["resale"] < 0.0) == (residual > 0.0)
    *steps, (name, start, total) = waterfall_steps(parts)
    assert (name, start) == ("total", 0.0)
    assert total == pytest.approx(facts["tco_usd"])
    for (_, begin, change), (_, after, _) in itertools.pairwise(steps):
        assert after == pytest.approx(begin + change)


def test_figures_of_money_that_nobody_gave_are_said() -> None:
    asked = {"model": "llama-3.1-8b", "gpus": 8, "seq_len": 4096}
    said = foretell.compare(["h100-sxm", "h200-sxm"], **asked).assumptions
    assert "utilisation 0.8: in use 80% of all hours" in said
    assert sum("USD/kWh" in text for text in said) == 1
    nodes = {text.split(":")[0] for text in said if "a node costs" in text}
    assert nodes == {"h100-sxm", "h200-sxm"}
    given = foretell.compare(
        ["h100-sxm"], **asked, utilisation=0.5, set=["prices.usd_per_kwh=0.1"]
    ).assumptions
    assert not any("utilisation" in text or "USD/kWh" in text for text in given)


def test_rents_are_compared_like_for_like() -> None:
    """Of one listing beside ten, the verdict says so, and what a provider that has both asks."""
    place: dict[str, Any] = {**TRAINING, "gpus": 16, "rent": "on-demand"}
    found = foretell.compare(["h100-sxm", "mi300x"], **place)
    said = next(line for line in found.to_dict()["conclusions"] if line.startswith("Rents are"))
    rows = {kind.system: kind for kind in found.kinds}
    shared = set.intersection(*({*kind.cluster.rents} for kind in rows.values() if kind.cluster))
    assert any(f"at {name}, which lists them all" in said for name in shared)
    told = {m[1]: float(m[2]) for m in re.finditer(r"([a-z0-9-]+) (\d\.\d+)(?=,| USD)", said)}
    for name, usd in told.items():
        bill = rows[name].cluster
        assert bill is not None
        ratios = [rent / (bill.usd_per_chip_hour or 1.0) for rent in bill.rents.values()]
        whole = rows[name].usd_per_million_tokens or 0.0
        assert any(usd == pytest.approx(whole * ratio, rel=6e-3) for ratio in ratios)
    # One price for all, or what is bought, needs no such sentence.
    for paid in ({"price": 2.0}, {"rent": "own"}):
        lines = foretell.compare(["h100-sxm", "mi300x"], **{**place, **paid}).to_dict()
        assert not any(line.startswith("Rents are") for line in lines["conclusions"])


def test_long_answers_report_how_far_they_are() -> None:
    told: dict[str, list[tuple[int, int]]] = {}

    def note(name: str) -> Any:
        return lambda done, total: told.setdefault(name, []).append((done, total))

    place: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": 16}
    foretell.compare(["h100-sxm", "h200-sxm"], **place, progress=note("compare"))
    foretell.estimate(**place, system="h100-sxm", progress=note("estimate"))
    # A load of its own: curves that another test asked for are there already.
    load: dict[str, Any] = {"rate": 2, "isl": 777, "osl": 77, "simulate": False}
    foretell.size("llama-3.1-8b", system="h100-sxm", **load, progress=note("size"))
    assert told["compare"] == [(0, 2), (1, 2)]
    for name in ("estimate", "size"):
        done, total = zip(*told[name], strict=True)
        assert list(done) == sorted(done), name
        assert max(done) <= min(total), name


def test_tokens_of_a_mix_are_those_of_what_is_trained() -> None:
    """They made the service another question, which nothing paid for."""
    served = {"kind": "serving", "isl": 9, "osl": 9, "weight": 2, "name": "served"}
    mix = {"base": {"model": "gpt2"}, "workload": [{"name": "trained", "global_batch": 64}, served]}
    systems = ["h100-sxm", "tpu-v5p"]
    found = foretell.compare(systems, gpus=8, tokens="1B", workload=mix).to_dict()
    facts = found["systems"][0]["workloads"]
    assert facts["trained"]["tokens"] == 1e9
    assert "tokens" not in facts["served"]
    with pytest.raises(BadInput, match="nothing is trained"):
        foretell.compare(systems, gpus=8, tokens="1B", workload={**mix, "workload": [served]})
