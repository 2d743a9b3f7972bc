"""Names are forgiven, and bad input gets every problem at once."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import BadInput
from foretell.lab.reference import (
    CHIPS,
    MODELS,
    Quirks,
    evaluate,
    render,
    render_study,
    search,
    study,
    why_none,
)
from foretell.lab.reference.check import MAX_GPUS
from foretell.lab.reference.rows import COLUMNS

JOB: dict[str, Any] = {
    "model": "gpt3",
    "strategy": "1d",
    "chip": "h200",
    "fast_domain": 8,
    "gpus": 64,
}


def problems(**changes: Any) -> dict[str, Any]:
    with pytest.raises(BadInput) as caught:
        search(**{**JOB, **changes})
    return {problem.path: problem for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("field", "spelling", "shown"),
    [
        ("model", "GPT3_1T", "gpt3_1T"),
        ("model", "gpt3-1t", "gpt3_1T"),
        ("model", "ViT-ERA5", "vit_era5"),
        ("strategy", "SEQP", "2d-seqp"),
        ("strategy", "2d_seqp", "2d-seqp"),
        ("chip", "B200", "B200"),
        ("chip", "a-100", "A100"),
    ],
)
def test_spellings(field: str, spelling: str, shown: str) -> None:
    result = search(**{**JOB, "gpus": 8, "top": 1, field: spelling})
    assert getattr(result, field) == shown


def test_all_problems_at_once_with_the_nearest_name() -> None:
    found = problems(
        model="gpt4", strategy="3d", chip="b20", fast_domain=0, gpus=-4, global_batch=2.5, top="x"
    )
    names = {"model", "strategy", "chip", "fast_domain", "gpus", "global_batch", "top"}
    assert set(found) == names
    assert found["model"].nearest == "gpt3"
    assert found["chip"].nearest == "b200"
    assert found["strategy"].allowed == "1d, 2d, seqp, 2d-seqp"


@pytest.mark.parametrize("bad", [0, -1, 1.5, 64.0, math.nan, "64", None, True, 2**80])
@pytest.mark.parametrize("field", ["gpus", "fast_domain", "global_batch", "top"])
def test_counts(field: str, bad: Any) -> None:
    assert set(problems(**{field: bad})) == {field}


def test_numpy_counts_are_counts() -> None:
    assert search(**{**JOB, "gpus": np.int64(64)}) == search(**JOB)


def test_jobs_must_fill_whole_domains() -> None:
    found = problems(gpus=100)["gpus"]
    assert found.nearest == "96"
    assert found.allowed == "at most 8, or a multiple of it"


@pytest.mark.parametrize("gpus", [6, 7, 24, 96, 360])
def test_counts_that_are_no_powers_of_two(gpus: int) -> None:
    result = search(**{**JOB, "gpus": gpus, "global_batch": 4320, "strategy": "seqp"})
    assert all(row["n_gpus"] == gpus for row in result.plans)
    assert result.candidates >= len(result.plans)
    if gpus >= 96:
        assert result.plans


def test_records_are_checked_too() -> None:
    chip = replace(CHIPS["H200"], hbm_bytes=-1.0, slow_bytes_per_s=math.nan, launch_s=0.0)
    model = replace(MODELS["gpt3"], heads=0)
    assert set(problems(chip=chip, model=model)) == {
        *("chip.hbm_bytes", "chip.slow_bytes_per_s", "model.heads")
    }
    assert set(problems(quirks={"free_slow_p2p": False})) == {"quirks"}


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*JOB, "global_batch", "top"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=8),
            st.lists(st.integers(), max_size=2),
        ),
        min_size=1,
    )
)
def test_whatever_comes_is_answered_or_refused(changes: dict[str, Any]) -> None:
    job = {**JOB, **changes}
    if isinstance(job["gpus"], int) and 1 << 16 < job["gpus"] <= MAX_GPUS:
        job["gpus"] = 64  # legal, and slow
    try:
        result = search(**job)
    except BadInput as error:
        assert error.problems
        assert all(problem.path and problem.message for problem in error.problems)
    else:
        assert len(result.plans) <= job.get("top", 10)


def test_plans_to_evaluate_are_checked_together() -> None:
    job = {name: JOB[name] for name in ("model", "strategy", "chip", "fast_domain")}
    good = {"tp": 8, "nv_tp": 4, "pp": 8, "dp": 4, "mbs": 1}
    with pytest.raises(BadInput) as caught:
        evaluate([good, {**good, "pp": 2.5}, {**good, "mbs": 0, "dp": "x"}], **job)
    found = {problem.path for problem in caught.value.problems}
    assert found == {"plans.1.pp", "plans.2.mbs", "plans.2.dp"}
    with pytest.raises(BadInput) as caught:
        evaluate([good, {**good, "tp": 5, "nv_tp": 2}, {**good, "pp": 7, "mbs": 4096}], **job)
    found = {problem.path for problem in caught.value.problems}
    assert found == {"plans.1.tp", "plans.1.nv_tp", "plans.2.pp", "plans.2.mbs"}
    assert evaluate([{**good, "pp": 8.0}], **job) == evaluate([good], **job)
    assert evaluate([], **job) == []


def test_study_refuses_bad_folders_and_workers(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(BadInput) as caught:
        study(taken, workers=0, quirks=3)  # type: ignore[arg-type]
    assert {problem.path for problem in caught.value.problems} == {"out", "workers", "quirks"}
    with pytest.raises(BadInput):
        study(None)  # type: ignore[arg-type]


def test_nothing_fits_is_an_answer() -> None:
    result = search(model="vit-era5", strategy="1d", chip="a100", fast_domain=4, gpus=64)
    assert result.plans == []
    assert result.feasible == 0
    assert result.candidates > 0
    assert render(result).endswith("No plan fits.")


def test_result_and_its_text() -> None:
    result = search(**{**JOB, "top": 3})
    whole = result.to_dict()
    assert whole["candidates"] == result.candidates
    assert isinstance(whole["plans"], list)
    assert [tuple(row) for row in whole["plans"]] == [COLUMNS] * 3
    lines = render(result).splitlines()
    assert lines[0].startswith("gpt3, 1d, 64 x H200 in fast domains of 8, global batch 4096: ")
    assert len(lines) == 5
    assert lines[2].split()[1:5] == [*(f"{short}{result.plans[0][name]}" for short, name in SHORT)]


SHORT = (("tp", "tp"), ("pp", "pp"), ("dp", "dp"), ("mbs", "mbs"))


def test_study_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    # The package's `study` is the function, so the module is fetched by name.
    module = import_module("foretell.lab.reference.study")
    monkeypatch.setattr(module, "STUDY_FAST_DOMAINS", (4,))
    monkeypatch.setattr(module, "STUDY_MODELS", ("gpt3_1T",))
    result = module.study(tmp_path / "new" / "folder", workers=1, quirks=Quirks())
    assert str(tmp_path / "new" / "folder" / "best_plans.csv") in render_study(result)


OWN_MODEL = "seq_len = 8192\nembed = 8192\nheads = 64\nlayers = 80\n"
OWN_CHIP = (
    "matrix_flop_per_s = 4e15\nvector_flop_per_s = 5e14\nhbm_bytes_per_s = 13e12\nhbm_bytes = 288e9\n"
    "fast_bytes_per_s = 1.8e12\nslow_bytes_per_s = 2e11\n"
)


def test_any_model_and_any_chip(tmp_path: Path) -> None:
    """Files of the solver's own fields, and what the catalogue has, reduced to what the solver knows."""
    (tmp_path / "my.toml").write_text(OWN_MODEL)
    (tmp_path / "chip.toml").write_text(OWN_CHIP)
    asked = {"strategy": "1d", "fast_domain": 72, "gpus": 1152, "global_batch": 2304, "top": 1}
    own = search(model=str(tmp_path / "my.toml"), chip=str(tmp_path / "chip.toml"), **asked)  # type: ignore[arg-type]
    record = replace(MODELS["gpt3"], name="my", seq_len=8192, embed=8192, heads=64, layers=80)
    chip = replace(
        CHIPS["B200"], name="chip", matrix_flop_per_s=4e15, vector_flop_per_s=5e14, hbm_bytes_per_s=13e12,
        hbm_bytes=288e9, fast_bytes_per_s=1.8e12, slow_bytes_per_s=2e11,
    )  # fmt: skip
    same = search(model=record, chip=chip, **asked)  # type: ignore[arg-type]
    assert own.plans[0]["t"] == same.plans[0]["t"]
    known = search(**{**JOB, "model": "llama-3.1-70b", "chip": "dgx-h100", "seq_len": 8192})
    assert known.plans
    assert any("key and value heads" in note for note in known.notes)
    assert search(**JOB).notes == ()
    longer = search(**{**JOB, "seq_len": 4096, "top": 1})
    assert longer.plans[0]["t"] > search(**{**JOB, "top": 1}).plans[0]["t"]  # type: ignore[operator]


def test_fields_of_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(OWN_MODEL.replace("heads = 64", "hads = 64"))
    found = problems(model=str(tmp_path / "my.toml"))
    assert set(found) == {"model.hads", "model.heads"}


def test_the_rule_that_leaves_no_plan_is_told() -> None:
    asked = {"model": "gpt3-1t", "strategy": "1d", "chip": "b200", "fast_domain": 8}
    assert search(**asked, gpus=1000).candidates == 0  # type: ignore[arg-type]
    problem = why_none(**asked, gpus=1000)
    assert "global batch of 4096" in problem.message
    assert "5 x 5 x 5" in problem.message
    near = int(str(problem.nearest))
    assert search(**asked, gpus=near).candidates  # type: ignore[arg-type]
    assert near == 1024
