"""Random packages, and the figures they are priced with."""

from hypothesis import strategies as st

from foretell.catalog.money import sheet
from foretell.economics.packages import price_package
from foretell.economics.tree import SheetCases
from foretell.specs.package import Die, Package

NODES = ("N28", "N16", "N7", "N5", "N4", "N3", "N2")
KINDS = ("organic", "fan-out", "interposer", "bridge", "glass", "hybrid-3d")
CENTRAL = SheetCases(sheet=sheet(), knobs={})
"""Every figure at its value, no ranges."""


@st.composite
def dies(draw: st.DrawFn, name: str = "compute") -> Die:
    """A die that can be printed, with or without spare units."""
    units = draw(st.integers(0, 40))
    return Die(
        name=name,
        node=draw(st.sampled_from(NODES)),
        area_mm2=draw(st.floats(20.0, 858.0)),
        count=float(draw(st.integers(1, 4))),
        units=units,
        units_needed=draw(st.integers(0, units)),
        units_share=draw(st.floats(0.0, 0.7)),
        repairable_share=draw(st.floats(0.0, 0.25)),
    )


@st.composite
def packages(draw: st.DrawFn) -> Package:
    """A package of one or two designs, beside each other or stacked, with or without memory."""
    first = draw(dies())
    made = (first,)
    if draw(st.booleans()):
        on = draw(st.sampled_from(("", "compute")))
        second = draw(dies("io"))
        made = (first, Die(name="io", node=second.node, area_mm2=second.area_mm2, on=on))
    stacks = draw(st.integers(0, 6))
    return Package(
        kind=draw(st.sampled_from(KINDS)),
        dies=made,
        chip_first=draw(st.sampled_from((None, True, False))),
        memory="HBM3" if stacks else "",
        memory_stacks=float(stacks),
        memory_stack_bytes=16.0 * 2**30,
        volume=draw(st.sampled_from((0.0, 1e4, 1e6))),
    )


def usd(package: Package, case: SheetCases = CENTRAL) -> float:
    """What a package costs with every figure at its value."""
    return float(price_package(package, case).tree.usd)
