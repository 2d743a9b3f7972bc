"""What is left out of a prediction, and that leaving it out changes what it should."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from foretell.lab.validate.held_out import (
    NOTHING,
    HeldOut,
    LeftOut,
    SoftwareSeen,
    left_out_of,
    sightings_of,
    unnamed,
)
from foretell.lab.validate.training import predict_row, score_rows, source_label
from foretell.lab.validate.training_question import question_of
from foretell.lab.validate.training_rows import TrainingRow, read_rows, row_of

CELLS = {
    "id": "r1", "source": "a page", "model": "gpt", "layers": "24", "hidden": "2048", "heads": "16",
    "ffn_hidden": "8192", "vocab": "50304", "seq_len": "2048", "chip_id": "h100-sxm", "n_gpus": "8",
    "framework_id": "nanotron", "framework": "nanotron", "tp": "1", "pp": "1", "micro_batch": "1",
    "global_batch": "64", "precision_id": "bf16", "score_step_time_s": "1.0", "quality": "A",
}  # fmt: skip
FEW = 12
VTRAIN = "vTrain (MICRO 2024) measured ground truth, Megatron-DeepSpeed"
"""A source of which a value of its framework was read."""
PLAYBOOK = "HF Ultra-Scale Playbook nanotron benchmark (copy in gkarfakis19/Rapid-LLM)"


def row(**cells: str) -> TrainingRow:
    return row_of({**CELLS, **cells})


def seconds(made: TrainingRow, left_out: LeftOut = NOTHING, **more: Any) -> float:
    return predict_row(made, left_out, **more).answer.step_s


def test_a_source_takes_what_was_read_from_it_along() -> None:
    mine = row(source=VTRAIN, framework="Megatron-DeepSpeed", framework_id="megatron-deepspeed")
    assert left_out_of(mine, "source", frozenset()) == LeftOut(sources=(VTRAIN,))
    assert seconds(mine, LeftOut(sources=(VTRAIN,))) != seconds(mine)
    assert seconds(mine, LeftOut(sources=("another page",))) == seconds(mine)


def test_a_family_takes_every_source_of_its_runs_along() -> None:
    seen = sightings_of([row()])
    found = left_out_of(row(), "framework", seen)
    assert {"a page", PLAYBOOK} <= set(found.sources)
    assert found.chips == ()
    assert all(s.framework == "nanotron" for s in seen if s.source == PLAYBOOK)


def test_a_chip_takes_its_kernels_along_and_sources_of_it_alone() -> None:
    seen = frozenset(
        SoftwareSeen(source=source, framework="fsdp", chip=chip)
        for source, chip in (("here", "h100-sxm"), ("both", "h100-sxm"), ("both", "a100-sxm-80gb"))
    )
    found = left_out_of(row(), "chip", seen)
    assert found == LeftOut(sources=("here",), chips=("h100-sxm",))
    plain, without = predict_row(row()), predict_row(row(), found)
    assert plain.answer.step_s != without.answer.step_s
    gemm = {
        leaf.name: leaf for child in without.answer.breakdown.children for leaf in child.children
    }
    assert gemm["gemm"].evidence == "transferred"


def test_evidence_is_fitted_only_where_software_and_chip_were_seen_together() -> None:
    cells = {"chip_id": "a100-sxm-80gb", "framework": "Megatron-DeepSpeed", "framework_id": "",
             "flash_attn": "yes"}  # fmt: skip
    found = predict_row(row(**cells)).answer.breakdown
    elsewhere = predict_row(row(**{**cells, "framework": "nanotron"})).answer.breakdown
    assert (found.evidence, elsewhere.evidence) == ("fitted", "transferred")


def test_without_its_name_a_run_has_the_generic_software() -> None:
    asked = unnamed(question_of(row()))
    assert "framework" not in (asked.plan or "")
    assert predict_row(row(), named=False).scenario.software.family == "generic"
    shape = {"hidden": "4096", "heads": "32", "zero_stage": "3"}
    plain = row(framework="torchtitan", framework_id="torchtitan", **shape)
    wide, narrow = (predict_row(plain, named=named).answer.interval for named in (False, True))
    assert wide["p90"][1] / wide["p90"][0] > narrow["p90"][1] / narrow["p90"][0]


@pytest.mark.parametrize(
    ("held_out", "bar"), [("source", 0.08), ("framework", 0.10), ("chip", 0.12)]
)
def test_errors_and_coverage_with_something_left_out(
    data_dir: Path, held_out: HeldOut, bar: float
) -> None:
    """Of every source twelve runs at most: errors as those of all runs, coverage at least as promised."""
    files = ("measured_runs.csv.gz", "measured_runs_2.csv.gz")
    counts: Counter[str] = Counter()
    rows = []
    for one in (one for file in files for one in read_rows(data_dir / "training" / file)):
        if one.quality != "C" and counts[source_label(one)] < FEW:
            counts[source_label(one)] += 1
            rows.append(one)
    scores = score_rows(rows, held_out).to_dict()
    assert scores["leave_one_out"] == held_out
    assert scores["median_of_sources"] <= bar
    graded = scores["graded"]
    # Intervals are those of first contacts: of sources that formulas were found on they hold more.
    assert graded["inside_p90_of_sources"] > 0.85
    assert held_out == "chip" or graded["median_high_over_low"] <= 2.6
