"""The chips against the rows of the published table that they were written from."""

from pathlib import Path
from typing import Any

import pytest

from foretell import catalog
from tests.catalog.tables import CHIP_IDS, plain, rows

MIB = 2.0**20
GIB = 2.0**30
PEAKS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8")
# Column -> (field, size of the column's unit in the field's). Caches are binary.
COLUMNS = {
    "vector_fp64_tflops": ("vector_fp64_flop_per_s", 1e12),
    "vector_fp32_tflops": ("vector_flop_per_s", 1e12),
    "hbm_gbps": ("memory_bandwidth_bytes_per_s", 1e9),
    "l2_mb": ("l2_bytes", MIB),
    "sram_per_sm_kb": ("sram_bytes_per_core", 1024.0),
    "sm_or_core_count": ("cores", 1.0),
    "boost_clock_ghz": ("clock_hz", 1e9),
    "scale_up_gbytes_per_s_per_direction": ("scale_up_bytes_per_s", 1e9),
    "tdp_w": ("tdp_watts", 1.0),
    "die_area_mm2": ("die_area_mm2", 1.0),
    "compute_dies": ("compute_dies", 1.0),
    "transistors_b": ("transistors", 1e9),
    "hbm_stacks": ("memory_stacks", 1.0),
    "max_measured_bf16_matmul_tflops": ("measured_matmul_flop_per_s", 1e12),
    "release_year": ("release_year", 1.0),
    **{f: (f"matrix_flop_per_s.{f}", 1e12) for f in PEAKS},
}
TEXTS = {
    "hbm_type": "memory_type",
    "process_node": "process_node",
    "package_type": "package",
    "form_factor": "form_factor",
    "scale_up_link": "scale_up_link",
}
# Cells that say more than a number: (row, column) -> the value taken, in the column's unit.
READ = {
    ("h800-sxm-80gb", "fp64"): 1,
    ("h800-sxm-80gb", "vector_fp64_tflops"): 1,
    ("h100-nvl-94gb", "tdp_w"): 400,
    ("h100-sxm-96gb-meta", "tdp_w"): 500,
    ("gh200-96gb", "tdp_w"): 900,
    ("rubin", "tdp_w"): 1800,
    ("rubin", "release_year"): 2026,
    ("a10g", "tdp_w"): 300,
    ("mi250x-card", "tdp_w"): 500,
    ("mi250x-gcd", "tdp_w"): 250,
    ("mi250x-gcd", "scale_up_gbytes_per_s_per_direction"): 350,
    ("mi300x", "die_area_mm2"): 115,
    ("mi325x", "die_area_mm2"): 115,
    ("mi355x", "die_area_mm2"): 110,
    ("mi300x", "l2_mb"): 32,
    ("mi325x", "l2_mb"): 32,
    ("mi355x", "l2_mb"): 32,
    ("gaudi2", "sm_or_core_count"): 24,
    ("gaudi2", "l2_mb"): 48,
    ("gaudi2", "scale_up_gbytes_per_s_per_direction"): 262.5,
    ("gaudi3", "sm_or_core_count"): 64,
    ("gaudi3", "scale_up_gbytes_per_s_per_direction"): 525,
    ("tpu-v3", "sm_or_core_count"): 2,
    ("tpu-v3", "scale_up_gbytes_per_s_per_direction"): 4 * 82,
    ("tpu-v4", "sm_or_core_count"): 2,
    ("tpu-v4", "scale_up_gbytes_per_s_per_direction"): 300,
    ("tpu-v4", "l2_mb"): 128,
    ("tpu-v4", "tdp_w"): 192,
    ("tpu-v5e", "sm_or_core_count"): 1,
    ("tpu-v5e", "l2_mb"): 128,
    ("tpu-v5e", "tdp_w"): 300,
    ("tpu-v5p", "sm_or_core_count"): 2,
    ("tpu-v5p", "tdp_w"): 540,
    ("tpu-v6e", "sm_or_core_count"): 1,
    ("tpu-v6e", "scale_up_gbytes_per_s_per_direction"): 400,
    ("tpu-v6e", "tdp_w"): 380,
    ("tpu-v7x", "sm_or_core_count"): 2,
    ("tpu-v7x", "tdp_w"): 960,
    ("trainium1", "sm_or_core_count"): 2,
    ("trainium2", "sm_or_core_count"): 8,
    ("trainium2", "scale_up_gbytes_per_s_per_direction"): 512,
    ("trainium2", "tdp_w"): 500,
    ("max1550-card", "die_area_mm2"): 640,
    ("max1550-card", "compute_dies"): 2,
    ("max1550-card", "sm_or_core_count"): 128,
    ("max1550-card", "max_measured_bf16_matmul_tflops"): 415,
    ("max1550-tile", "sm_or_core_count"): 64,
    ("max1550-tile", "scale_up_gbytes_per_s_per_direction"): 185 + 5 * 19,
    ("wse3", "tdp_w"): 23000,
    ("grace", "l2_mb"): 117,
    ("xeon-8480", "l2_mb"): 105,
}


@pytest.fixture(scope="module")
def table(data_dir: Path) -> list[dict[str, str]]:
    return rows(data_dir / "hardware" / "chips.csv")


def _values(row: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = catalog.show(CHIP_IDS.get(row["id"], row["id"]))["values"]
    return values


def test_every_row_is_a_chip(table: list[dict[str, str]]) -> None:
    assert len(table) == 43
    for row in table:
        chip = catalog.chip(row["id"])
        assert chip.id == CHIP_IDS.get(row["id"], row["id"])
        assert chip.vendor == row["vendor"]


def test_numbers_are_those_of_the_table(table: list[dict[str, str]]) -> None:
    read = set()
    for row in table:
        values = _values(row)
        for column, (field, size) in COLUMNS.items():
            if not row[column]:
                continue
            number = plain(row[column])
            if number is None:
                read.add((row["id"], column))
                number = READ[row["id"], column]
            assert values[field]["value"] == pytest.approx(number * size, rel=1e-12), (
                row["id"],
                column,
            )
    assert read == set(READ), "a reading of a cell that is a plain number or not there"


def test_texts_are_those_of_the_table(table: list[dict[str, str]]) -> None:
    for row in table:
        for column, field in TEXTS.items():
            if row[column]:
                assert _values(row)[field]["value"] == row[column], (row["id"], column)


def test_memory_is_what_software_sees(table: list[dict[str, str]]) -> None:
    for row in table:
        fact = _values(row)["memory_bytes"]
        if row["usable_memory_mib"]:
            assert fact["value"] == float(row["usable_memory_mib"]) * MIB
            assert fact["status"] == "measured"
        elif row["hbm_gb"]:
            unit = GIB if row["hbm_unit"].startswith("GiB") else 1e9
            assert fact["value"] == float(row["hbm_gb"]) * unit
            assert (unit == GIB) == (fact["status"] == "inferred")


def test_cells_that_no_text_supports_say_so(table: list[dict[str, str]]) -> None:
    named = {**{column: field for column, (field, _) in COLUMNS.items()}, **TEXTS}
    for row in table:
        values = _values(row)
        for column in filter(None, row["memory_cells"].split(";")):
            if column in named:
                assert values[named[column]]["status"] == "recalled", (row["id"], column)
        for column in filter(None, row["inferred_cells"].split(";")):
            if column in named:
                assert values[named[column]]["status"] == "inferred", (row["id"], column)
        if row["status"] == "memory":
            supported = {"cores", "clock_hz", "matrix_flop_per_s.bf16", "vector_flop_per_s"}
            rest = {values[field]["status"] for field in set(values) - supported}
            assert rest == {"recalled"}


def test_idle_watts_and_prices_keep_their_ends(table: list[dict[str, str]]) -> None:
    for row in table:
        values, chip = _values(row), catalog.chip(row["id"])
        ends = row["idle_w"].split(" ")[0].split("-")
        if row["idle_w"]:
            idle = values["idle_watts"]
            assert idle.get("low", idle["value"]) == float(ends[0])
            assert idle.get("high", idle["value"]) == float(ends[-1])
            assert idle["value"] == (float(ends[0]) + float(ends[-1])) / 2
        assert bool(row["price_usd_range"]) == (chip.price_usd_high > 0)
        if not row["price_usd_range"].startswith("~") and row["price_usd_range"]:
            assert chip.price_usd_low == float(row["price_usd_range"].split("-")[0].split(" ")[0])


def test_host_links_follow_the_generation(table: list[dict[str, str]]) -> None:
    gigabytes = {"3": 15.75, "4": 31.5, "5": 63.0, "6": 121.0}
    other = {"gh200-96gb", "gb200", "gb300", "mi250x-gcd"}  # NVLink-C2C and Infinity Fabric
    for row in table:
        if row["pcie_gen"] and row["id"] not in other:
            host = catalog.chip(row["id"]).host_bytes_per_s
            assert host == pytest.approx(gigabytes[row["pcie_gen"]] * 1e9), row["id"]


def test_traps() -> None:
    """Sparse or dense, GB or GiB, one direction or two, card or die: one known number each."""
    h100, mi250x = catalog.chip("h100-sxm"), catalog.chip("mi250x-gcd")
    assert h100.matrix_flop_per_s["bf16"] == 989.4e12  # 1979 is sparse
    assert catalog.chip("b300-sxm").matrix_flop_per_s["fp4"] == 14e15  # not half of 18
    assert h100.scale_up_bytes_per_s == 450e9  # 900 is both ways
    assert h100.memory_bytes / GIB == pytest.approx(79.65, abs=0.01)
    assert catalog.chip("tpu-v5p").scale_up_bytes_per_s == 600e9
    assert mi250x.memory_bytes == 64 * GIB
    assert 2 * mi250x.matrix_flop_per_s["bf16"] == 383e12
    assert catalog.chip("gh200-96gb").memory_bytes < 96 * GIB
