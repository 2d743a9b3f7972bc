"""Designs: known chips described by their units, what fits where, and what cannot be built."""

import copy
import itertools
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell import catalog
from foretell.catalog.design_model import die_areas, sustained_share, watts
from foretell.catalog.designs import build, built_from_table, complete_design, look_up
from foretell.catalog.files import read_table
from foretell.catalog.technology import FILE, technology, technology_from_table
from foretell.catalog.values import FACT_KEYS, field_plan
from foretell.errors import BadInput, Problem
from foretell.specs._base import Status
from foretell.specs.check import problems_of
from foretell.specs.design import BuiltChip, ChipDesign
from tests.catalog.known_designs import GRAPHICS, KNOWN
from tests.catalog.tables import facts

PEAK_ERROR = 0.02
AREA_ERROR = {"fitted": 0.10, "held apart": 0.15}
CORES_ERROR = {"fitted": 0.12, "held apart": 0.25}
SUSTAINED_ERROR = 0.25
PUBLISHED_AREA = [name for name in KNOWN if name not in ("b200-sxm", "tpu-v5p")]
# MI355X is left out: its best product was measured with early software, 47 % below what we say.
MEASURED = ("a100-sxm-80gb", "h100-sxm", "b200-sxm", "mi300x")


def _built(table: dict[str, Any], **more: Any) -> BuiltChip:
    problems: list[Problem] = []
    built = built_from_table({**table, **more}, "design", problems)
    assert built is not None, "\n".join(map(str, problems))
    return built


def _problems(**fields: Any) -> dict[str, str]:
    problems: list[Problem] = []
    assert built_from_table(fields, "design", problems) is None
    return {problem.path: problem.message for problem in problems}


def _without(table: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: held for key, held in table.items() if key not in names}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_chip_has_its_catalogue_peaks(name: str) -> None:
    mine, theirs = _built(KNOWN[name], id=name).chip, catalog.chip(name)
    peaks = mine.matrix_flop_per_s
    assert peaks == pytest.approx({d: theirs.matrix_flop_per_s[d] for d in peaks}, rel=PEAK_ERROR)
    assert mine.memory_bytes == pytest.approx(theirs.memory_bytes, rel=0.01)
    assert mine.memory_bandwidth_bytes_per_s == pytest.approx(
        theirs.memory_bandwidth_bytes_per_s, rel=0.01
    )
    if name != "b200-sxm":  # printed as 62 to 90 TFLOP/s
        assert mine.vector_flop_per_s == pytest.approx(theirs.vector_flop_per_s, rel=PEAK_ERROR)
    for same in ("cores", "tdp_watts", "compute_dies", "scale_up_bytes_per_s"):
        assert getattr(mine, same) == getattr(theirs, same), same
    assert problems_of(mine, "chip") == []


@pytest.mark.parametrize("name", [*PUBLISHED_AREA, *GRAPHICS])
def test_area_and_units_say_each_other(name: str) -> None:
    known = {**KNOWN, **GRAPHICS}[name]
    kind = "held apart" if name in GRAPHICS else "fitted"
    built = _built(known)
    assert built.die_mm2["total"] == pytest.approx(known["die_area_mm2"], rel=AREA_ERROR[kind])
    of_units = _built(_without(known, "die_area_mm2"), tdp_watts=known["tdp_watts"])
    assert of_units.design.die_area_mm2 == pytest.approx(
        known["die_area_mm2"], rel=AREA_ERROR[kind]
    )
    of_area = _built(_without(known, "cores", "cores_built"))
    assert of_area.design.cores_built == pytest.approx(known["cores_built"], rel=CORES_ERROR[kind])


@pytest.mark.parametrize("name", MEASURED)
def test_the_power_limit_sustains_about_what_was_measured(name: str) -> None:
    built, theirs = _built(KNOWN[name]), catalog.chip(name)
    sustained = built.sustained_share * built.chip.matrix_flop_per_s["bf16"]
    assert sustained == pytest.approx(theirs.measured_matmul_flop_per_s, rel=SUSTAINED_ERROR)


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm", "b200-sxm"])
def test_idle_watts_are_about_those_measured(name: str) -> None:
    idle = catalog.chip(name).idle_watts
    assert _built(KNOWN[name]).chip.idle_watts == pytest.approx(idle, rel=0.16)


def test_every_value_of_the_technology_has_a_source_and_a_status() -> None:
    table = read_table(FILE)
    used = set()
    for where, fact in facts({key: held for key, held in table.items() if key != "sources"}):
        assert set(fact) <= FACT_KEYS, where
        assert fact["status"] in get_args(Status), where
        assert (fact["source"] == "recalled") <= (fact["status"] in ("recalled", "inferred")), where
        low, high = fact.get("low"), fact.get("high")
        assert (low is None) == (high is None), where
        used.add(fact["source"])
    assert used == set(table["sources"])


def test_newer_nodes_are_denser_and_spend_less() -> None:
    nodes = list(technology().nodes.values())
    for older, newer in itertools.pairwise(nodes):
        assert newer.logic_density >= older.logic_density
        assert newer.joules_per_flop <= older.joules_per_flop
        assert newer.sram_cell_mm2 <= older.sram_cell_mm2
    assert all(node.clock_hz < node.clock_hz_high for node in nodes)


def test_a_technology_with_a_hole_says_where() -> None:
    table = copy.deepcopy(read_table(FILE))
    del table["nodes"]["N3"]["clock_hz"]
    table["links"]["pcie5"]["joules"] = 1
    with pytest.raises(BadInput) as caught:
        technology_from_table(table)
    assert {p.path for p in caught.value.problems} == {"nodes.N3.clock_hz", "links.pcie5.joules"}


sizes = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["N7", "N5", "N4", "N3", "N2"]),
        "die_area_mm2": st.floats(300, 858),
        "compute_dies": st.sampled_from([1.0, 2.0, 4.0]),
        "memory_type": st.sampled_from(["HBM2e", "HBM3", "HBM3e", "HBM4"]),
        "clock_hz": st.floats(1e9, 2e9),
    }
)


@given(sizes)
def test_what_fits_is_within_the_die_and_the_leaves_sum(fields: dict[str, Any]) -> None:
    stacks = 2 * fields["compute_dies"]
    built = build(ChipDesign(**fields, memory_stacks=stacks, tdp_watts=1e5))
    areas, power, chip = built.die_mm2, built.watts, built.chip
    assert areas["total"] <= fields["die_area_mm2"] * (1 + 1e-9)
    assert areas["total"] == pytest.approx(sum(v for k, v in areas.items() if k != "total"))
    assert power["total"] == pytest.approx(sum(v for k, v in power.items() if k != "total"))
    assert min(*areas.values(), *power.values()) >= 0
    assert built.sustained_share == 1
    assert built.design.cores % fields["compute_dies"] == 0
    units = built.design.cores * built.design.matrix_units_per_core * fields["clock_hz"]
    for dtype, held in built.design.matrix_flop_per_clock.items():
        assert chip.matrix_flop_per_s[dtype] == pytest.approx(units * held)
    assert problems_of(chip, "chip") == []
    assert problems_of(built.design, "design") == []


@given(sizes, st.floats(1.05, 3))
def test_more_of_anything_takes_more(fields: dict[str, Any], factor: float) -> None:
    fields = _without(fields, "die_area_mm2")
    parts = look_up(ChipDesign(**fields), technology(), "design", [])
    assert parts is not None
    base, _ = complete_design(ChipDesign(**fields, cores=64.0), parts)
    area, power = die_areas(base, parts)["total"], watts(base, parts)
    for name in ("cores_built", "l2_bytes", "memory_stacks", "scale_up_bytes_per_s"):
        more = type(base)(
            **{n: getattr(base, n) for n in base.__slots__} | {name: factor * getattr(base, name)}
        )
        assert die_areas(more, parts)["total"] > area, name
    faster = type(base)(
        **{n: getattr(base, n) for n in base.__slots__} | {"clock_hz": factor * base.clock_hz}
    )
    assert watts(faster, parts)["arithmetic"] > power["arithmetic"]
    assert sustained_share(faster, watts(faster, parts)) <= sustained_share(base, power)


def test_a_batch_of_designs_is_the_same_as_one_by_one() -> None:
    areas, clocks = np.array([400.0, 600.0, 858.0]), np.array([1.2e9, 0.0, 2e9])
    parts = look_up(ChipDesign(node="N3"), technology(), "design", [])
    assert parts is not None
    batch, _ = complete_design(ChipDesign(node="N3", die_area_mm2=areas, clock_hz=clocks), parts)
    for row, (area, clock) in enumerate(zip(areas, clocks, strict=True)):
        one, _ = complete_design(
            ChipDesign(node="N3", die_area_mm2=float(area), clock_hz=float(clock)), parts
        )
        assert np.asarray(batch.cores)[row] == one.cores
        assert np.asarray(batch.tdp_watts)[row] == one.tdp_watts
        for name, value in {**die_areas(batch, parts), **watts(batch, parts)}.items():
            alone = {**die_areas(one, parts), **watts(one, parts)}[name]
            assert np.broadcast_to(np.asarray(value), 3)[row] == alone, name


NUMBERS = [name for name, field in field_plan(ChipDesign).items() if field.kind == "number"]
anything = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 1e-30, 1e30]), st.floats(0, 1e12))


@given(st.dictionaries(st.sampled_from(NUMBERS), anything, max_size=6))
def test_any_numbers_make_a_chip_or_are_refused(fields: dict[str, float]) -> None:
    problems: list[Problem] = []
    built = built_from_table({"node": "N4", **fields}, "design", problems)
    assert (built is None) == bool(problems)
    if built is not None:
        assert problems_of(built.chip, "chip") == []


def test_shares_of_the_die_say_cores_and_cache() -> None:
    shares = {"compute_share": 0.5, "sram_share": 0.1, "io_share": 0.2}
    built = _built({"node": "N3", "die_area_mm2": 800, "memory_stacks": 4, **shares})
    assert built.die_mm2["cores"] == pytest.approx(400, rel=0.02)
    assert built.die_mm2["l2"] == pytest.approx(80, rel=1e-9)


def test_everything_wrong_is_said_at_once() -> None:
    found = _problems(node="N33", memory_type="HBM9", scale_up_link="string", cores=1)
    assert list(found) == ["design.node", "design.memory_type", "design.scale_up_link"]
    found = _problems(
        node="N3",
        die_area_mm2=900,
        compute_dies=2,
        cores=1001,
        memory_stacks=40,
        clock_hz="6 GHz",
        tdp_watts=300,
        sram_share=0.1,
        l2_bytes="1 GiB",
        io_cache_bytes=1,
    )
    assert set(found) == {
        "design.die_area_mm2",
        "design.cores",
        "design.memory_stacks",
        "design.clock_hz",
        "design.tdp_watts",
        "design.sram_share",
        "design.io_cache_bytes",
    }


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"node": "N3"}, "design"),
        ({"die_area_mm2": 800}, "design.node"),
        ({"node": "N3", "die_area_mm2": 859}, "design.die_area_mm2"),
        ({"node": "N3", "die_area_mm2": 90}, "design.cores"),
        ({"node": "N3", "cores": 100, "cores_built": 90}, "design.cores_built"),
        ({"node": "N3", "cores": 10.5}, "design.cores"),
        ({"node": "N3", "cores": 101, "compute_dies": 2}, "design.cores"),
        ({"node": "N3", "die_area_mm2": 400, "cores": 300}, "design.die_area_mm2"),
        ({"node": "N3", "die_area_mm2": 800, "tdp_watts": 200}, "design.tdp_watts"),
        ({"node": "N3", "die_area_mm2": 800, "compute_share": 0.8, "sram_share": 0.3}, "design"),
        ({"node": "N3", "cores": 64, "sram_share": 0.3}, "design.die_area_mm2"),
        ({"node": "N3", "die_area_mm2": 800, "coers": 3}, "design.coers"),
        ({"node": "N3", "cores": 8, "matrix_flop_per_clock": {"fp5": 1}}, "design.matrix_flop_per_clock.fp5"),
        ({"node": "N3", "die_area_mm2": "800 W"}, "design.die_area_mm2"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_says_where(fields: dict[str, Any], path: str) -> None:
    assert path in _problems(**fields)


DESIGN = """\
id = "mine"
{head}
architecture = "blackwell"
node = "N3"
die_area_mm2 = 750
memory_type = "HBM4"
memory_stacks = 4
"""
NETWORK = """
[network.node]
size = 64
bandwidth_bytes_per_s = "450 GB/s"
latency_s = "2 us"
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_may_have_its_design_in_the_chip_or_alone(tmp_path: Path) -> None:
    alone = catalog.system(_file(tmp_path, DESIGN.format(head="[design]")))
    inside = catalog.system(_file(tmp_path, DESIGN.format(head="[chip.design]") + NETWORK))
    beside = catalog.system(_file(tmp_path, DESIGN.format(head="[design]") + NETWORK))
    assert (alone.chip, beside.network) == (beside.chip, inside.network)
    assert (alone.chip.id, inside.chip.id, inside.id) == ("mine", "own-chip", "mine")
    assert alone.chip.architecture == "blackwell"
    assert alone.chip.matrix_flop_per_s == inside.chip.matrix_flop_per_s
    assert [tier.size for tier in alone.network.tiers] == [8, 512]
    assert alone.network.tiers[0].bandwidth_bytes_per_s == alone.chip.scale_up_bytes_per_s
    assert any("typical of N3" in said and "clock_hz 2 GHz" in said for said in alone.assumptions)
    assert any("No network is given" in said for said in alone.assumptions)
    assert not any("No network is given" in said for said in inside.assumptions)


def test_fields_beside_the_design_have_their_way() -> None:
    design = {"node": "N3", "die_area_mm2": 750, "memory_stacks": 4}
    chip = {"design": design, "idle_watts": 33, "matrix_flop_per_s": {"fp64": "1 TFLOP/s"}}
    made = catalog.system_from_table({"chip": chip}).chip
    plain = catalog.system_from_table({"chip": {"design": design}}).chip
    assert made.idle_watts == 33
    assert made.matrix_flop_per_s == {**plain.matrix_flop_per_s, "fp64": 1e12}


def test_problems_of_a_files_design_have_their_path() -> None:
    with pytest.raises(BadInput) as caught:
        catalog.system_from_table({"chip": {"design": {"node": "N9"}, "base": "h100-sxm"}})
    assert {p.path for p in caught.value.problems} == {"chip.base", "chip.design.node"}
    with pytest.raises(BadInput) as caught:
        catalog.system_from_table({"chip": {"design": 3}})
    assert [p.path for p in caught.value.problems] == ["chip.design"]


def test_a_design_is_shown_with_its_areas_and_watts(tmp_path: Path) -> None:
    shown = catalog.show(str(_file(tmp_path, DESIGN.format(head="[design]"))))
    assert (shown["kind"], shown["id"]) == ("chip", "mine")
    values = {path: fact["value"] for path, fact in shown["values"].items()}
    assert values["area.total_mm2"] <= 750
    assert values["power.total_watts"] > values["power.arithmetic_watts"] > 0
    assert values["matrix_flop_per_s.bf16"] > 1e15
    assert shown["assumptions"]
