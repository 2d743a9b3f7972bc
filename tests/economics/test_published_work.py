"""Published hours, money, energy and carbon of runs, and footprints of boards, beside ours.

Each budget is how far we are off, rounded up; what is predicted and what is only converted is said.
"""

import pytest

from foretell import catalog
from foretell.api.cost import RunQuestion, run_cost
from foretell.catalog.money import sheet
from foretell.economics.answer import CostAnswer
from foretell.economics.carbon import chip_kg, wafer_kg
from foretell.economics.packages import sections
from foretell.economics.products import package_of_chip
from foretell.economics.tree import SheetCases, case_of, spread
from foretell.economics.work import PaidWork, Paying, bill_work
from foretell.specs.cost import Figure

CENTRAL = SheetCases(sheet=sheet(), knobs={})
IMEC = {"N28": 0.91, "N16": 0.97, "N10": 1.09, "N7": 1.44, "N5": 1.54, "N3": 1.75}
"""kg/cm2 of imec.netzero, without materials."""
CARD_HOURS = {"8b": 1.46e6, "70b": 7.0e6, "405b": 30.84e6}
"""GPU-hours of the Llama 3.1 model card, at 700 W each; 420, 2,040 and 8,930 t, location based."""


def converted(
    system: str, gpus: int, hours: float, watts: float, region: str = "us", **figures: float
) -> CostAnswer:
    """Published hours and watts as work, with some figures set."""
    held = sheet()
    for path, value in figures.items():
        held = held.with_figure(
            Figure(path=path.replace("__", "."), value=value, low=value, high=value)
        )
    work = PaidWork(
        what="run", name="published", system=catalog.system(system), gpus=gpus,
        gpu_hours=(hours, hours, hours), watts_per_gpu=watts, shares={"steps": 1.0}, tokens=1e12,
        flop=1e24,
    )  # fmt: skip
    return bill_work(work, Paying(way="on-demand", price=2.0, region=region), held, {}, [])


@pytest.mark.parametrize(
    ("chip", "board_kg", "budget"), [("h100-sxm", 1312, 0.06), ("b200-sxm", 2274, 0.14)]
)
def test_boards_of_eight(chip: str, board_kg: float, budget: float) -> None:
    """NVIDIA's footprints; memory and module were read from the first, the second is foreseen."""
    package, _ = package_of_chip(catalog.chip(chip), sheet())
    used = ["embodied", *sections(package), *(f"fabs.{die.node}" for die in package.dies)]
    case = case_of(sheet(), used)
    low, kg, high = spread(chip_kg(package, case).usd, case)
    assert 8 * kg == pytest.approx(board_kg, rel=budget)
    assert 8 * low < board_kg < 8 * high


@pytest.mark.parametrize("node", IMEC)
def test_wafers_beside_imec(node: str) -> None:
    """Two public models of a node; ours is ACT's, with the grid of Taiwan."""
    fab, embodied = CENTRAL.entry(f"fabs.{node}"), CENTRAL.entry("embodied")
    cm2 = float(wafer_kg(fab, embodied, 300.0)) / 706.86
    assert cm2 - fab.material_kg_per_cm2 == pytest.approx(IMEC[node], rel=0.33)


def test_bloom_converted() -> None:
    """1,082,990 GPU-hours at 400 W are 433 MWh; at 57 g/kWh 24.7 t (Luccioni et al.).

    Embodied were 7.57 t of servers and 3.64 t of GPUs, over six years at 85 % use.
    """
    told = converted(
        "jean-zay-a100", 384, 1_082_990, 400.0, "france", grids__france__grams_per_kwh=57,
        finance__server_years=6, finance__utilisation=0.85,
    )  # fmt: skip
    assert told.trees["energy"].find("chips").value == pytest.approx(433.2, rel=1e-3)
    chips = told.trees["carbon"].find("operational", "chips").value
    assert chips / 1e3 == pytest.approx(24.7, rel=2e-3)
    servers = told.trees["carbon"].find("embodied", "servers")
    assert servers.find("hosts").value / 1e3 == pytest.approx(7.57, rel=0.02)
    assert servers.find("chips").value / 1e3 == pytest.approx(3.64, rel=0.15)


def test_the_card_of_llama_converted() -> None:
    """39.3 million GPU-hours at 700 W and a PUE of 1.08 on the grid of the United States: 11,390 t."""
    told = converted("meta-24k-roce", 16384, 39.3e6, 700.0, site__pue=1.08)
    chips = told.trees["carbon"].find("operational", "chips").value * 1.08 / 1e3
    assert chips == pytest.approx(11_390, rel=0.01)
    # Hosts, fabric and storage, which the card leaves out, come on top.
    assert 1.3 < told.facts["operational_carbon_kg"] / 1e3 / chips < 2.0


def test_deepseek_converted() -> None:
    """2.788 million hours of H800 at 2 USD."""
    assert converted("h800-sxm", 2048, 2.788e6, 500.0).usd == pytest.approx(5.576e6)


@pytest.mark.parametrize(
    ("plan", "budget"),
    [
        (
            "tp8 pp16 vpp8 dp128 zero2 mbs1 reduce=micro-batch",
            0.30,
        ),  # as Meta laid it out: too slow
        # What a search finds best; the report tells of no tensor-parallel exchanges behind products.
        ("tp8 pp16 vpp8 dp64 cp2 zero1 mbs1 order=tp,cp,pp,dp tp_overlap=off", 0.10),
    ],
)
def test_llama_405b_foreseen(plan: str, budget: float) -> None:
    """On Meta's own fabric; the card's hours include what is not pre-training.

    Its layout's interval begins at 32.6 million hours, above the card.
    """
    told = run_cost(
        RunQuestion(
            model="llama-3.1-405b",
            system="meta-24k-roce",
            gpus=16384,
            global_batch=2048,
            seq_len=8192,
            tokens="15.6T",
            plan=plan,
        )
    ).facts
    assert told["gpu_hours"] == pytest.approx(CARD_HOURS["405b"], rel=budget)


def test_bloom_foreseen() -> None:
    """384 A100 as they were laid out, without fused attention: a quarter too fast."""
    told = run_cost(
        RunQuestion(
            model="bloom",
            system="jean-zay-a100",
            gpus=384,
            global_batch=2048,
            seq_len=2048,
            tokens="366B",
            plan="tp4 pp12 dp8 mbs2 zero1 recompute=full no-flash no-sp",
            rent="own",
            region="france",
            set=("prices.grids.france.grams_per_kwh=57", "prices.site.pue=1.2"),
        )
    ).facts
    assert told["gpu_hours"] == pytest.approx(1_082_990, rel=0.25)
    # Energy without the embodied: 24.7 t of chips, 14.6 t at rest and of the rest.
    assert told["operational_carbon_kg"] / 1e3 == pytest.approx(24.7 + 14.6, rel=0.25)
