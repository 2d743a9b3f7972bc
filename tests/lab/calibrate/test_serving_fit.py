"""Fits of engine profiles: what was put in comes out again; files round trip."""

import tomllib
from dataclasses import replace

import pytest

from foretell.catalog.engines import profile_from, profiles, usual
from foretell.errors import BadInput
from foretell.lab.calibrate.serving_cases import case_of, in_their_unit, predict_case
from foretell.lab.calibrate.serving_fit import errors_of, fit_profile, profiles_text
from foretell.lab.calibrate.serving_rows import ServingRow, read_rows

BLANK = ServingRow(
    id="r", kind="online_concurrency", model="llama-3.1-8b", gpu="H200 SXM", n_gpus=1,
    precision="bf16", kv_precision="", framework="vllm", version="0.18.0", tp=1, pp=1, dp=1, ep=1,
    batch=8.0, rate=None, isl=1024.0, osl=1024.0, tokens_per_s=None, tokens_per_s_per_gpu=None,
    ttft_ms=None, tpot_ms=None, e2e_ms=None, notes="", source="made up",
)  # fmt: skip


def made_up(profile):
    """Rows that a profile would have given."""
    rows = []
    for batch in (1.0, 4.0, 16.0, 64.0):
        for isl in (512.0, 4096.0):
            row = replace(BLANK, id=f"{batch}-{isl}", batch=batch, isl=isl)
            told = predict_case(case_of(row), profile)
            rows.append(replace(row, ttft_ms=told["ttft"], tpot_ms=told["tpot"]))
    return rows


def test_a_fit_finds_the_overheads_that_made_the_rows():
    start = replace(usual(profiles()["vllm-0.18-hopper"]), launch_s=0.0)
    truth = replace(start, host_step_s=1.5e-3, latency_s=30e-3, prefill_factor=1.3)
    cases = [case_of(row) for row in made_up(truth)]
    names = ("host_step_s", "latency_s", "prefill_factor")
    found = fit_profile(start, cases, names, pull=0.01)
    for name in names:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), rel=0.05)
    assert errors_of(cases, found).median("tpot") < 0.005


def test_profiles_are_written_as_they_are_read():
    known = profiles()
    again = tomllib.loads(profiles_text(known))["profile"]
    assert {entry["id"]: profile_from(entry) for entry in again} == dict(known)


def test_throughput_is_of_one_chip_where_a_row_has_no_other():
    row = replace(BLANK, tp=2, n_gpus=4)
    case = case_of(row)
    assert case.question.replicas == 2
    whole = {"throughput": 100.0}
    assert in_their_unit(case, whole)["throughput"] == 25.0
    total = replace(case, row=replace(row, tokens_per_s=90.0))
    assert in_their_unit(total, whole)["throughput"] == 100.0


def test_a_file_that_is_no_table_is_bad_input(tmp_path):
    path = tmp_path / "no.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BadInput):
        read_rows(path)
    with pytest.raises(BadInput):
        read_rows(tmp_path / "absent.csv")
