"""The scoreboard of serving: every row predicted or refused with a reason, and the bars it must meet."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from foretell.errors import BadInput
from foretell.lab.calibrate.serving_arguments import LOADED
from foretell.lab.calibrate.serving_cases import (
    answer_figures,
    in_their_unit,
    measured_figures,
    row_figures,
)
from foretell.lab.calibrate.serving_rows import read_rows
from foretell.lab.validate.serving import read_case, score_rows, score_serving
from foretell.serving.simulated_fleet import Play
from foretell.serving.simulation import serve_simulated
from tests.surfaces.command import foretell

BARS = {
    ("decode_step", "tpot"): 0.05,
    ("prefill", "ttft"): 0.05,
    ("static_batch_latency", "e2e"): 0.08,
    ("static_batch_latency", "tpot"): 0.08,
    ("static_batch_throughput", "throughput"): 0.08,
    ("online_concurrency", "tpot"): 0.05,
    ("online_concurrency", "ttft"): 0.12,
    ("max_throughput", "throughput"): 0.08,
}
"""Kind and metric -> most that the median absolute error may be."""


@pytest.fixture(scope="module")
def scores(data_dir):
    return score_serving(data_dir / "inference" / "measured_serving.csv.gz").to_dict()


@pytest.mark.parametrize("bar", BARS, ids=lambda bar: " ".join(bar))
def test_published_results_are_met(scores, bar):
    kind, metric = bar
    assert scores["by_kind"][kind][metric]["median_ape"] <= BARS[bar]


HELD_OUT = {"tpot": 0.08, "ttft": 0.18, "throughput": 0.08}
"""Metric -> most that the median error may be of rows whose model was left out of the fit."""


@pytest.mark.parametrize("metric", HELD_OUT)
def test_rows_of_models_left_out_are_met(scores, metric):
    found = scores["by_held_out"][metric]
    assert found["rows"] > 400
    assert found["median_ape"] <= HELD_OUT[metric]
    assert found["inside_p90"] >= 0.86  # intervals are of first contacts: these rows are known


SECOND = {"tpot": 0.08, "ttft": 0.18, "throughput": 0.08}
"""The same of the second table: several nodes, prefill and decode apart, AMD."""


def test_rows_of_the_second_table_are_met_without_their_models(data_dir):
    found = score_serving(data_dir / "inference" / "measured_serving_2.csv.gz").to_dict()
    for metric, most in SECOND.items():
        one = found["by_held_out"][metric]
        assert one["rows"] > 400
        assert one["median_ape"] <= most
        assert one["inside_p90"] >= 0.86


def test_held_out_figures_come_first(data_dir):
    path = data_dir / "inference" / "llama2_latency_a100.csv"
    out = foretell("validate", "serving", str(path)).out
    assert out.index("held out") < out.index("source")


@pytest.fixture(scope="module")
def over_dense(data_dir):
    """Errors of mixtures over those of dense models, of rows that did not draft: the table does not say who
    did."""
    with (data_dir / "inference" / "mtp_labels.csv").open() as file:
        drafted = {cells["id"] for cells in csv.DictReader(file) if cells["mtp"] != "no"}
    table = read_rows(data_dir / "inference" / "measured_serving.csv.gz")
    rows = [row for row in table if row.id not in drafted]
    found = {True: {}, False: {}}
    cases = {row.id: case for row in rows if not isinstance(case := read_case(row), str)}
    for one in score_rows(rows).predictions:
        case = cases[one.id]
        figures = found[case.mixture].setdefault(f"{case.row.kind} {one.metric}", [])
        figures.append(abs(one.predicted / one.measured - 1.0))
    both = set(found[True]) & set(found[False])
    return {name: np.median(found[True][name]) / np.median(found[False][name]) for name in both}


@pytest.mark.parametrize(
    "figure",
    [
        "online_concurrency tpot",
        pytest.param(
            "online_concurrency ttft",
            marks=pytest.mark.xfail(
                strict=True,
                reason="1.71: gpt-oss-120b on H200 by TensorRT-LLM has a median error of 11.0 % in 97 rows "
                "(dense models: 4.7 %), mostly too short on eight cards; 1.35 without it",
            ),
        ),
        "max_throughput throughput",
    ],
)
def test_mixtures_are_met_about_as_well_as_dense_models(over_dense, figure):
    assert over_dense[figure] <= 1.5


def test_every_row_is_predicted_once_a_metric_or_refused_with_a_reason(scores, data_dir):
    rows = read_rows(data_dir / "inference" / "measured_serving.csv.gz")
    told = {p["id"] for p in scores["predictions"]}
    refused = {u["id"] for u in scores["unsupported"]}
    assert not told & refused
    assert told | refused == {row.id for row in rows}
    assert all(u["reason"] and "fault" not in u["reason"] for u in scores["unsupported"])
    assert scores["scored"] + len(scores["unsupported"]) == scores["rows"] == len(rows)
    assert sum(one["rows"] for one in scores["by_source"].values()) == len(scores["predictions"])
    assert set(scores["by_source"]) <= {row.source for row in rows}
    pairs = [(p["id"], p["metric"]) for p in scores["predictions"]]
    assert len(pairs) == len(set(pairs))


def test_llama_2_latencies_are_met(data_dir):
    found = score_serving(data_dir / "inference" / "llama2_latency_a100.csv").to_dict()
    assert found["scored"] == 11
    assert found["by_kind"]["static_batch_latency"]["e2e"]["median_ape"] <= 0.08


def test_strange_rows_are_refused_not_raised(data_dir):
    row = read_rows(data_dir / "inference" / "measured_serving.csv.gz")[0]
    strange = [
        replace(row, id="a", model="no such model"),
        replace(row, id="b", gpu="no such chip"),
        replace(row, id="d", framework=""),
        replace(row, id="e", kind="something else"),
        replace(row, id="f", isl=None),
        replace(row, id="g", n_gpus=3, tp=2),
    ]
    found = score_rows(strange)
    assert found.scored == 0
    assert len(found.unsupported) == len(strange)


def test_an_engine_without_a_profile_is_taken_as_the_usual_one_and_said(data_dir):
    rows = read_rows(data_dir / "inference" / "measured_serving.csv.gz")
    row = next(row for row in rows if row.kind == "online_concurrency")
    found = score_rows([replace(row, framework="SomethingElse", version="")]).to_dict()
    assert found["scored"] == 1
    assert len(found["predictions"]) >= 2
    assert any("SomethingElse has no profile" in text for text in found["filled"])


def simulated(case):
    """A row's figures as its requests are simulated, from the first to the last."""
    q = case.question
    kind = "closed" if q.rate is None else "poisson"
    return answer_figures(
        serve_simulated(q, Play(requests=round(q.requests or 2000), arrivals=kind))
    )


def test_rows_under_load_are_simulated_as_well_as_in_closed_form(data_dir):
    """One row in seven: of fewer, a median says more of the sample than of the two forms."""
    rows = read_rows(data_dir / "inference" / "measured_serving.csv.gz")
    errors = {name: ([], []) for name in ("tpot", "ttft", "throughput")}
    for case in map(read_case, [row for row in rows if row.kind in LOADED][::7]):
        if isinstance(case, str) or isinstance(row_figures(case, case.profile), str):
            continue
        theirs = measured_figures(case.row)
        for place, ours in enumerate((simulated(case), row_figures(case, case.profile))):
            told = in_their_unit(case, ours)
            for name in errors.keys() & theirs.keys():
                errors[name][place].append(abs(told[name] / theirs[name] - 1.0))
    assert len(errors["tpot"][0]) >= 60
    for events, closed in errors.values():
        assert np.median(events) < np.median(closed) + 0.03


def test_rows_shorter_and_longer_than_the_header(tmp_path):
    path = tmp_path / "ragged.csv"
    good = "online_concurrency,llama-3.1-8b,h100_sxm,1,vLLM,0.18.0,1,8,1000,200,30,9"
    columns = "id,kind,model,gpu,n_gpus,framework,fw_version,tp,batch_or_concurrency,isl,osl"
    path.write_text(f"{columns},ttft_ms,tpot_or_itl_ms\n1,{good}\na,b\n3,{good},7,7,7\n")
    told = foretell("validate", "serving", str(path))
    assert told.code == 0
    assert told.out.startswith("2 of 3 rows scored in 4 figures")
    assert "is not in the catalogue" in told.out


def test_a_table_without_rows_says_so(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("id,kind,model,gpu\n")
    with pytest.raises(BadInput, match="has no rows"):
        score_serving(path)
