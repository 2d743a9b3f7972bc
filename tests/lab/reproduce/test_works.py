"""Every work can be reproduced: figures, tables and findings, by the published model and by ours."""

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as XML

import numpy as np
import pytest

from foretell.errors import BadInput
from foretell.lab import reference
from foretell.lab.reference.records import CHIPS
from foretell.lab.reproduce.imec_2025 import inference_rows
from foretell.lab.reproduce.nersc_2024 import NerscStudy
from foretell.lab.reproduce.nersc_layers import PARTS, fixed_rows, layer_rows, measured_rows
from foretell.lab.reproduce.nersc_maps import BANDWIDTH, CAPACITY, published_map
from foretell.lab.reproduce.nersc_ours import OurTask, days_of, our_map, search_row
from foretell.lab.reproduce.records import WORKS, reproduce, work_named
from foretell.lab.reproduce.scaling_2024 import CLOSE_POINTS, found_of_selene, retention_rows
from foretell.report.reproduce.files import drawn_figure, page_text
from foretell.studies.scaling.study import compare_published
from tests.surfaces.command import foretell

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "reference_search"
PAGES = Path(__file__).resolve().parents[3] / "docs" / "reproduce"
VERDICTS = {"survives", "does not survive", "not decided", "not comparable"}


@pytest.fixture(scope="module")
def nersc() -> NerscStudy:
    return NerscStudy(1)


def test_stored_arrays_are_met(nersc: NerscStudy) -> None:
    """All columns of all stored plans, to 1e-9, and every candidate count."""
    if not DATA.is_dir():
        pytest.skip("shared/data/reference_search is not here")
    tables = nersc.plans().tables
    keys = ("strategy", "model", "system", "nvs", "n_gpus", "rank")
    ours = {tuple(str(row[k]) for k in keys): row for row in tables["plans"]}
    with gzip.open(DATA / "best_plans.csv.gz", "rt") as file:
        stored = list(csv.DictReader(file))
    worst = 0.0
    for row in stored:
        mine = ours[tuple(row[k] for k in keys)]
        for name, cell in row.items():
            if name in keys or not cell:
                continue
            value, wanted = float(mine[name]), float(cell)
            worst = max(
                worst, abs(value - wanted) / max(abs(wanted), 1e-300) if wanted else abs(value)
            )
    assert len(stored) == 1198
    assert worst < 1e-9
    counts = {(r["model"], str(r["nvs"]), str(r["n_gpus"])): r for r in tables["candidate_counts"]}
    with (DATA / "candidate_counts.csv").open() as file:
        for row in csv.DictReader(file):
            mine = counts[row["model"], row["nvs"], row["n_gpus"]]
            for name in ("cand_1d", "cand_2d", "cand_seqp"):
                assert int(mine[name]) == int(float(row[name]))


def test_a_published_map_is_the_search_of_every_cell() -> None:
    x = replace(CAPACITY, values=(100e9, 192e9))
    y = replace(BANDWIDTH, values=(1e12, 8e12))
    cells = list(published_map("vit_era5", 1024, x, y))
    assert len(cells) == 4
    for cell in cells:
        chip = replace(
            CHIPS["B200"],
            hbm_bytes=1e9 * cell["capacity_gb"],
            hbm_bytes_per_s=1e12 * cell["bandwidth_tb_per_s"],
        )
        found = [
            reference.search(
                model="vit_era5", strategy=s, chip=chip, fast_domain=8, gpus=1024, top=1
            ).plans
            for s in ("1d", "2d", "2d-seqp")
        ]
        best = min(float(rows[0]["t"]) for rows in found if rows)  # type: ignore[arg-type]
        assert cell["days"] == pytest.approx(days_of("vit_era5", best), rel=1e-12)


def test_our_map_is_a_whole_search_where_it_is_the_b200() -> None:
    x = replace(CAPACITY, values=(120e9, 192e9))
    y = replace(BANDWIDTH, values=(4e12, 8e12))
    cells = list(our_map("gpt3_1T", 16384, x, y))
    whole = search_row(OurTask(model="gpt3_1T", chip="B200", domain=8, gpus=16384))
    assert cells[-1]["days"] == pytest.approx(whole["days"], rel=1e-12)
    days = np.array([cell["days"] for cell in cells]).reshape(2, 2)
    assert (np.diff(days, axis=0) <= 1e-9).all()  # faster memory is no slower
    assert (np.diff(days, axis=1) <= 1e-9).all()  # nor is more of it


def test_a_layer_of_ops_is_the_layer() -> None:
    rows = layer_rows()
    assert {row["op"] for row in rows} >= {"fc1", "flash", "ln1", "vproj"}
    for case in {(r["model"], r["strategy"]) for r in rows}:
        assert sum((r["model"], r["strategy"]) == case for r in rows) == 14
    for row in fixed_rows()[:2]:
        assert sum(float(row.get(part) or 0.0) for part in PARTS) == pytest.approx(
            row["days"], rel=1e-6
        )


def test_real_runs_are_closer_to_ours() -> None:
    for row in measured_rows():
        assert abs(row["ours_s"] / row["measured_s"] - 1) < 0.1
        assert row["published_s"] < row["measured_s"]
        assert row["ours_low_s"] <= row["measured_s"] <= row["ours_high_s"]


def test_retention_is_close_to_what_was_measured() -> None:
    kept = retention_rows(compare_published())
    assert [round(100 * row["measured"]) for row in kept] == [47, 88, 61]
    assert all(abs(row["predicted"] - row["measured"]) <= CLOSE_POINTS for row in kept)


def test_what_slows_selene_is_named() -> None:
    """States on the host are what 25B loses on one node; gathers by module what all lose on many."""
    finding, rows = found_of_selene()
    assert finding.ladder is not None
    (*known, rest) = finding.ladder.rungs[1:]
    assert all(rung.factor > 1.05 for rung in known)
    assert rest.factor < 2.0
    of = {(row["case"], row["mechanism"]): row["factor"] for row in rows}
    host, gathers = "states and weights in the host's memory", "weights gathered module by module"
    assert of["GenSLM 25B, ZeRO-3, Selene, 8 GPUs", host] > 4.0
    assert of["GenSLM 25B, ZeRO-3, Selene, 1024 GPUs", host] < 1.05
    assert of["GenSLM 2.5B, ZeRO-3, Selene, 1024 GPUs", gathers] > 1.5
    assert of["GenSLM 2.5B, ZeRO-2, Selene, 512 GPUs", gathers] == 1.0


def test_intervals_hold_four_fifths_of_what_sources_leave_open() -> None:
    rows = [r for r in compare_published() if r.quantity == "samples/s"]
    assert len(rows) == 43
    assert sum(bool(row.inside_open) for row in rows) >= 0.8 * len(rows)
    for row in rows:
        assert row.p90 is not None
        assert row.open_p90 is not None
        assert row.open_p90[0] <= row.p90[0] <= row.p90[1] <= row.open_p90[1]


@pytest.mark.parametrize("name", WORKS)
def test_the_command_writes_every_kind_of_file(name: str, tmp_path: Path) -> None:
    work = work_named(name)
    found = foretell("reproduce", name, "--figure", work.example, "--out", str(tmp_path), "--json")
    assert found.code == 0, found.err
    answer = json.loads(found.out)
    assert answer["figures"] == [work.example]
    assert {one["verdict"] for one in answer["findings"]} <= VERDICTS
    XML.parse(tmp_path / f"{work.example}.svg")
    page = (tmp_path / f"{work.example}.html").read_text()
    assert "Plotly.newPlot" in page
    with (tmp_path / f"{work.example}.csv").open() as file:
        assert list(csv.DictReader(file))
    text = (tmp_path / f"{name}.md").read_text()
    for one in answer["findings"]:
        assert one["statement"][1:] in text
    assert set(answer["files"]) == {str(path) for path in tmp_path.iterdir()}


@pytest.mark.parametrize("name", WORKS)
def test_every_work_has_its_page(name: str) -> None:
    """Every figure has a section, every picture is there, and the quick figure's numbers are the page's."""
    work = work_named(name)
    text = (PAGES / f"{name}.md").read_text()
    for figure in work.figures:
        assert f"\n## {figure}\n" in text
    pictures = [
        line.rpartition("(")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")
    ]
    assert pictures
    assert all((PAGES / picture).is_file() for picture in pictures)
    [quick] = reproduce(name, figure=work.example)
    drawn = drawn_figure(name, quick)
    assert drawn is not None
    section = page_text(work, [quick], {quick.name: f"{name}/{quick.name}.svg"})
    body = section.partition(f"\n## {quick.name}\n")[2].partition("\n## ")[0].strip()
    assert body in text
    rows = [line for line in section.splitlines() if line.startswith(f"| {quick.name} | ")]
    assert rows
    assert all(row in text for row in rows)


@pytest.mark.full
@pytest.mark.parametrize("name", WORKS)
def test_a_page_is_as_it_is_generated(name: str) -> None:
    """`python -m tests.docs.reproduce` writes them."""
    found = reproduce(name)
    pictures = {f.name: f"{name}/{f.name}.svg" for f in found if drawn_figure(name, f) is not None}
    assert (PAGES / f"{name}.md").read_text() == page_text(work_named(name), found, pictures)


def test_bad_input_is_named() -> None:
    with pytest.raises(BadInput, match="is not a work"):
        reproduce("nersc-2023")
    with pytest.raises(BadInput) as caught:
        reproduce("nersc-2024", figure=("dys", "nothing"), workers=0)
    assert [problem.path for problem in caught.value.problems] == ["figure", "figure", "workers"]
    assert caught.value.problems[0].nearest == "days"
    assert foretell("reproduce", "nersc-2024").code == 2


def test_latencies_of_both_chips_are_of_the_engine_that_was_measured() -> None:
    """The engine's profile is fitted on the A100's rows alone: the H100's are predicted."""
    rows = [r for r in inference_rows() if r["chip"] == "H100"]
    off = [abs(r["ours_s"] / r["measured_s"] - 1.0) for r in rows]
    assert len(rows) == 11
    assert np.mean(off) < 0.10
    assert max(off) < 0.20
    assert all(r["ours_low_s"] <= r["measured_s"] <= r["ours_high_s"] for r in rows)
