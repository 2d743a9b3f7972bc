"""Lists of the catalogue have the facts of its entries."""

import pytest

from foretell import catalog
from foretell.report.catalogue import COLUMNS, listing
from tests.surfaces.command import foretell


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_row_has_its_facts(kind: str) -> None:
    rows = listing(kind)
    assert len(rows) > 20
    for row in rows:
        assert list(row) == ["kind", "id", "name", *COLUMNS[kind]]
    assert len({row["id"] for row in rows}) == len(rows)


def test_a_chip_is_listed_with_what_its_entry_says() -> None:
    for row in listing("chip"):
        chip = catalog.chip(row["id"])
        assert row["memory_bytes"] == chip.memory_bytes
        assert row["memory_bandwidth_bytes_per_s"] == chip.memory_bandwidth_bytes_per_s
        assert row["bf16_flop_per_s"] == chip.matrix_flop_per_s.get("bf16")
        assert row["fp8_flop_per_s"] == chip.matrix_flop_per_s.get("fp8")
        assert row["tdp_watts"] == chip.tdp_watts


def test_a_system_is_listed_with_its_chip_and_tiers() -> None:
    rows = {row["id"]: row for row in listing("system")}
    assert rows["hgx-h100"]["chip"] == "h100-sxm"
    assert rows["hgx-h100"]["chips_per_node"] == 8
    for id_, row in rows.items():
        tiers = catalog.system(id_).network.tiers
        assert [tier["name"] for tier in row["network"]] == [tier.name for tier in tiers]


def test_a_model_is_listed_with_its_parameters() -> None:
    for row in listing("model"):
        assert 0 < row["parameters_active"] <= row["parameters"]
    sizes = {row["id"]: row["parameters"] for row in listing("model")}
    assert sizes["llama-3.1-8b"] == 8_030_261_248


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("chips", ["h100-sxm", "80 GiB", "3.35 TB/s", "700 W"]),
        ("systems", ["hgx-h100", "h100-sxm", "node 450 GB/s", "cluster 50 GB/s"]),
        ("models", ["llama-3.1-8b", "8.03B", "kimi-k2", "1.03T"]),
    ],
)
def test_tables_say_it_with_units(kind: str, words: list[str]) -> None:
    text = foretell("catalog", kind).out
    assert [word for word in words if word not in text] == []
    assert "e+" not in text
