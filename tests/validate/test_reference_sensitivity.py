"""The study's sensitivities: the published numbers by its model, and ours on the same system."""

from pathlib import Path
from typing import Any

import pytest

from foretell.errors import BadInput
from foretell.lab.reference.records import CHIPS
from foretell.lab.validate import reference_sensitivity as module
from foretell.lab.validate.reference_sensitivity import (
    CHANGES,
    POWER,
    WORKLOADS,
    our_change,
    our_scenario,
    sensitivity_cells,
)
from foretell.report import reference_sensitivity as report
from foretell.report.figures.reference import memory_maps, ratios, sensitivity_lines

GPT, VIT = WORKLOADS
PUBLISHED = {
    ("gpt3_1T", 1024): {"InfiniBand": 0.997, "NVLink": 0.974, "memory capacity": 1.0,
                        "memory bandwidth": 0.994, "FLOP/s": 0.531},
    ("gpt3_1T", 4096): {"InfiniBand": 0.993, "NVLink": 0.963, "memory capacity": 1.0,
                        "memory bandwidth": 0.997, "FLOP/s": 0.566},
    ("vit_era5", 1024): {"InfiniBand": 0.882, "NVLink": 0.947, "memory capacity": 0.804,
                         "memory bandwidth": 0.993, "FLOP/s": 0.639},
}  # fmt: skip
"""Ratios of days by the published equations, each by a search of its own (the table of sensitivities in
docs/reference.md)."""


@pytest.mark.parametrize(("model", "gpus"), PUBLISHED)
def test_the_published_model_gives_the_published_ratios(model: str, gpus: int) -> None:
    workload = next(one for one in WORKLOADS if one.name == model)
    cells = [cell.to_dict() for cell in module._reference(workload, gpus)]
    found = {name: points[0][1] for name, points in ratios(cells, model, "reference").items()}
    assert found == {k: pytest.approx(v, abs=6e-4) for k, v in PUBLISHED[model, gpus].items()}


def test_our_system_has_the_studys_numbers() -> None:
    chip, scenario = CHIPS["B200"], our_scenario(GPT, 1024)
    ours = scenario.system.chip
    assert ours.matrix_flop_per_s["bf16"] == chip.matrix_flop_per_s
    assert ours.memory_bytes == chip.hbm_bytes
    assert ours.memory_bandwidth_bytes_per_s == chip.hbm_bytes_per_s
    fast, slow = scenario.system.network.tiers
    assert (fast.size, fast.bandwidth_bytes_per_s) == (8, chip.fast_bytes_per_s)
    assert slow.bandwidth_bytes_per_s == chip.slow_bytes_per_s
    assert our_scenario(VIT, 1024).job.seq_len == 64800
    wide = our_change(scenario, "InfiniBand").system.network.tiers
    assert [t.bandwidth_bytes_per_s for t in wide] == [9e11, 2e11]
    hot = our_change(scenario, POWER).system.chip
    assert (hot.tdp_watts, hot.matrix_flop_per_s["bf16"]) == (2 * ours.tdp_watts, 5e15)


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    """Both sides of the ViT's largest job, whose space is the smallest."""
    both = [*module._reference(VIT, 16384), *module._ours(VIT, 16384)]
    return [cell.to_dict() for cell in both]


def test_better_is_not_worse_on_our_side(cells: list[dict[str, Any]]) -> None:
    found = {name: points[0][1] for name, points in ratios(cells, "vit_era5", "ours").items()}
    assert set(found) == {*CHANGES, POWER}
    assert found[POWER] < found["FLOP/s"] < found["NVLink"] < 1.0
    assert found["memory capacity"] <= 1.0


def test_figures_and_files(cells: list[dict[str, Any]], tmp_path: Path) -> None:
    from plotly.graph_objects import Figure

    sizes = [
        {**c, "change": "", "memory_bytes": m}
        for c in cells
        if not c["change"]
        for m in (8e10, 192e9)
    ]
    for draw in (sensitivity_lines, memory_maps):
        Figure(draw([*cells, *sizes], "vit_era5"))
    lines = sensitivity_lines(cells, "vit_era5")["data"]
    assert len(lines) == 2 * len(CHANGES) + 1
    written = report.write_all(tmp_path, cells, maps=False)
    assert sorted(file.name for file in written) == [
        "gpt3_1t-lines.html", "gpt3_1t-lines.svg", "sensitivity.csv", "vit_era5-lines.html",
        "vit_era5-lines.svg",
    ]  # fmt: skip
    assert "ViT-ERA5, Foretell" in report.table_text(cells)


def test_what_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput) as caught:
        report.check_inputs(str(tmp_path / "file" / "inside"), "1024,100")
    assert {problem.path for problem in caught.value.problems} == {"gpus", "out"}
    assert report.check_inputs(str(tmp_path / "new"), "4096, 1024")[1] == (1024, 4096)
    assert sensitivity_cells((), grid=False) == []
