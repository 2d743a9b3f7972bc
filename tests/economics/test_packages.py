"""Packages: parts sum, worse is never cheaper, and NRE is paid once whoever uses a design."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.catalog.money import sheet
from foretell.economics.actuary import NODES, PUBLISHED, package_columns
from foretell.economics.assembly import place_usd_per_s, stack_yield
from foretell.economics.packages import die_nre, price_package, sections, spread_over
from foretell.economics.tree import Branch, SheetCases, case_of, cost_leaf, spread
from foretell.specs._base import Num
from foretell.specs.cost import CostLeaf, Figure
from foretell.specs.package import RIGHT, CostQuirks, Die, Machine, Package, Stacking
from tests.economics.packages import CENTRAL, packages, usd


def leaves_sum(tree: Branch | CostLeaf) -> float:
    value = tree.usd if isinstance(tree, Branch) else tree.value
    if not tree.children:
        return float(np.asarray(value))
    total = sum(leaves_sum(child) for child in tree.children)
    assert total == pytest.approx(float(np.asarray(value)), rel=1e-9, abs=1e-9)
    return total


def with_value(path: str, value: float) -> SheetCases:
    """Figures with one of them another."""
    changed = sheet().with_figure(Figure(path=path, value=value, low=value, high=value))
    return SheetCases(sheet=changed, knobs={})


@given(packages())
@settings(max_examples=60)
def test_leaves_sum(package: Package) -> None:
    found = price_package(package, CENTRAL)
    assert leaves_sum(found.tree) > 0.0
    assert 0.0 < float(found.made.package_yield) <= 1.0
    assert all(float(np.asarray(part.usd)) >= -1e-9 for part in found.tree.children)


@given(packages(), st.floats(1.0, 3.0))
@settings(max_examples=60)
def test_worse_is_never_cheaper(package: Package, more: float) -> None:
    node = package.dies[0].node
    worse = {
        f"processes.{node}.defects_per_cm2": more,
        f"processes.{node}.wafer_usd": more,
        f"packages.{package.kind}.bond_yield": 1.0 / more,
        "probe.probe_usd_per_mm2": more,
        "memories.HBM3.usd_per_gib": more,
    }
    base = usd(package)
    for path, factor in worse.items():
        value = sheet().figures[path].value * factor
        assert usd(package, with_value(path, value)) >= base * (1 - 1e-12), path


@given(packages())
@settings(max_examples=40)
def test_more_of_anything_is_never_cheaper(package: Package) -> None:
    base = usd(replace(package, volume=0.0))
    first, *rest = package.dies
    more_dies = replace(package, volume=0.0, dies=(replace(first, count=first.count + 1), *rest))
    assert usd(more_dies) >= base * (1 - 1e-12)
    more_memory = replace(
        package, volume=0.0, memory="HBM3", memory_stacks=package.memory_stacks + 1
    )
    assert usd(more_memory) >= base * (1 - 1e-12)
    assert usd(package) >= base  # NRE comes on top


@given(packages())
@settings(max_examples=25)
def test_a_batch_is_what_each_row_gives(package: Package) -> None:
    case = case_of(sheet(), sections(package))
    together = np.broadcast_to(price_package(package, case).tree.usd, (1 + 2 * len(case.knobs),))
    assert together[0] == pytest.approx(usd(package), rel=1e-12)
    for place in (0, len(case.knobs) // 2, len(case.knobs) - 1):
        figure = case.sheet.figures[[*case.knobs][place]]
        for row, end in ((1 + 2 * place, figure.low), (2 + 2 * place, figure.high)):
            alone = usd(package, with_value(figure.path, end))
            assert together[row] == pytest.approx(alone, rel=1e-9)


@given(packages())
@settings(max_examples=25)
def test_ranges_hold_the_value_and_finished_trees_sum(package: Package) -> None:
    case = case_of(sheet(), sections(package))
    tree = cost_leaf(price_package(package, case).tree, case)
    leaves_sum(tree)
    for part in tree.leaves():
        assert part.low <= part.value <= part.high


def test_a_batch_of_designs_is_what_each_gives() -> None:
    """Areas, counts, stacks and volumes may be arrays: a study prices all its designs at once."""
    areas, counts = np.array([100.0, 300.0, 700.0]), np.array([4.0, 2.0, 1.0])
    stacks, volumes = np.array([0.0, 4.0, 6.0]), np.array([1e4, 1e5, 0.0])

    def package(area: Num, count: Num, stack: Num, volume: Num) -> Package:
        die = Die(name="a", node="N5", area_mm2=area, count=count, units=20, units_needed=18,
                  units_share=0.5)  # fmt: skip
        return Package(kind="interposer", dies=(die,), memory="HBM3", memory_stacks=stack,
                       memory_stack_bytes=2.0**34, volume=volume)  # fmt: skip

    together = price_package(package(areas, counts, stacks, volumes), CENTRAL).tree.usd
    rows = zip(areas, counts, stacks, volumes, strict=True)
    alone = [usd(package(*(float(x) for x in row))) for row in rows]
    assert np.asarray(together) == pytest.approx(alone, rel=1e-12)


def test_a_range_of_a_sum_adds_squares() -> None:
    figures = sheet()
    for name, swing in (("test_usd", 3.0), ("module_usd", 4.0)):
        path = f"finish.{name}"
        figures = figures.with_figure(
            Figure(path=path, value=10.0, low=10.0 - swing, high=10.0 + 2 * swing)
        )
    case = SheetCases(sheet=figures, knobs={"finish.test_usd": 0, "finish.module_usd": 1})
    both = case.number("finish.test_usd") + case.number("finish.module_usd")
    assert spread(both, case) == pytest.approx((15.0, 20.0, 30.0))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 10**6)), min_size=1, max_size=4),
)
def test_nre_is_paid_once_by_all_products_together(products: list[tuple[int, int]]) -> None:
    """A design used in several products: what they bear over all their packages is its NRE."""
    built = [count * volume for count, volume in products]
    paid = 0.0
    for (count, volume), own in zip(products, built, strict=True):
        share = float(spread_over(float(count), float(volume), float(sum(built) - own)))
        paid += share * volume
    assert paid == pytest.approx(1.0, rel=1e-9)


def test_nre_shares() -> None:
    """Half modules, three tenths integration, a fifth fixed, at 300 mm2 (Chiplet Actuary)."""
    process = NODES["7"]
    tree = die_nre(Die(name="a", node="N7", area_mm2=300.0), process, CENTRAL.entry("finish"))
    assert float(tree.usd) == pytest.approx(298e6)
    double = die_nre(Die(name="a", node="N7", area_mm2=600.0), process, CENTRAL.entry("finish"))
    assert float(double.usd) == pytest.approx(1.8 * 298e6)


def test_reuse_across_products_saves_nre() -> None:
    one = Die(name="io", node="N6", area_mm2=300.0)
    package = Package(kind="organic", dies=(one,), volume=1e5)
    alone = usd(package)
    shared = usd(replace(package, dies=(replace(one, elsewhere=9e5),)))
    known = usd(replace(package, dies=(replace(one, reused=True),)))
    plain = usd(replace(package, volume=0.0))
    assert known < shared < alone
    # Nine tenths of the dies are built elsewhere and bear nine tenths of the design.
    design = 298e6 / 1e5
    assert alone - shared == pytest.approx(0.9 * design)
    assert known - plain == pytest.approx((alone - plain) - design)


def test_stacks_of_dies() -> None:
    how = Stacking(align_yield=0.99, bond_defects_per_cm2=0.01, via_yield=0.999)
    assert stack_yield(how, 2.0, 100.0) == pytest.approx((0.99 / 1.01) ** 2 * 0.999)
    base = Die(name="io", node="N6", area_mm2=300.0)
    top = Die(name="compute", node="N5", area_mm2=100.0, count=2.0, on="io")
    package = Package(kind="interposer", dies=(top, base))
    beside = replace(package, dies=(replace(top, on=""), base))
    stacked, flat = price_package(package, CENTRAL), price_package(beside, CENTRAL)
    assert float(stacked.made.carrier_mm2) == pytest.approx(300.0 * 1.1)
    assert float(flat.made.carrier_mm2) == pytest.approx(500.0 * 1.1)
    assert {part.name for part in stacked.tree.children} > {"stacking"}


def test_chip_first_loses_dies_to_the_carrier_and_not_to_placing() -> None:
    die = Die(name="compute", node="N5", area_mm2=400.0, count=2.0)
    last = Package(kind="fan-out", dies=(die,), chip_first=False)
    first = replace(last, chip_first=True)
    perfect = with_value("packages.fan-out.carrier_defects_per_cm2", 0.0)
    assert usd(first) > usd(last)
    assert usd(first, perfect) < usd(last, perfect)


def test_large_carriers_are_stitched() -> None:
    kind = CENTRAL.entry("packages.interposer")
    dies = Die(name="compute", node="N5", area_mm2=800.0, count=2.0)
    package = Package(kind="interposer", dies=(dies,), carrier_mm2=858.0)
    one, three = package, replace(package, carrier_mm2=2574.0)
    seams = (
        price_package(three, CENTRAL).made.carrier_yield
        / price_package(one, CENTRAL).made.carrier_yield
    )
    defects = kind.carrier_defects_per_cm2 / 100.0
    by_area = ((1 + 2574 * defects / 6) / (1 + 858 * defects / 6)) ** -6.0
    assert float(seams) == pytest.approx(by_area * kind.stitch_yield**2)


@given(st.integers(1, 8), st.sampled_from(("OS", "FO", "SI")))
def test_the_bumps_mistake_only_makes_cheaper(dies: int, form: str) -> None:
    ours = package_columns(200.0, float(dies), NODES["7"], form, quirks=RIGHT)  # type: ignore[arg-type]
    theirs = package_columns(200.0, float(dies), NODES["7"], form, quirks=PUBLISHED)  # type: ignore[arg-type]
    missing = float(ours["raw_chips"] - theirs["raw_chips"])
    assert missing == pytest.approx(0.0 if form == "OS" else 2.0 * (dies - 1))


def test_the_uptime_mistake() -> None:
    machine = Machine(machine_usd=1e6, life_years=5.0, technician_usd_per_year=1e5, uptime=0.5)
    right = float(place_usd_per_s(machine))
    assert right == pytest.approx(3e5 / (365 * 24 * 3600) * 2)
    assert float(place_usd_per_s(machine, CostQuirks(uptime_multiplies=True))) == pytest.approx(
        right / 4
    )
