"""Services in print: every row is predicted, near what is printed, and none by a profile of its own."""

import csv
from dataclasses import replace
from statistics import median

import pytest

from foretell.catalog.engines import profiles
from foretell.lab.validate.published import (
    PublishedService,
    by_table,
    services,
    services_text,
    short_text,
)

BARS = {
    "vLLM 0.10 on MI300X, fp8, batches": 0.15,
    "optimum-habana on Gaudi 3, fp8": 0.15,
    "optimum-habana on Gaudi 2, fp8": 0.15,
    "LMDeploy TurboMind 0.1 on A100": 0.12,
    "MLC LLM on A10G, A100 and RTX 4090 over PCIe": 0.10,
    "TensorRT-LLM 0.19 and 0.20 on B200, nvfp4": 0.16,
}
"""Median errors that the tables with enough rows keep below."""


def test_every_row_names_its_source_and_is_predicted() -> None:
    assert len(services()) >= 150
    assert len({one.source for one in services()}) >= 10
    for one in services():
        assert len(one.source) > 20
        assert one.printed > 0.0 < one.ours


def test_chips_of_four_makers_are_there() -> None:
    chips = {one.row.gpu for one in services()}
    assert {"MI300X", "MI355X", "Gaudi 2", "Gaudi 3", "Trainium1", "RTX 4090", "A10G"} <= chips


@pytest.mark.parametrize("title", BARS)
def test_medians_stay_below_their_bars(title: str) -> None:
    errors = [abs(one.error) for one in by_table(services())[title]]
    assert median(errors) < BARS[title]


def test_no_profile_was_fitted_to_them() -> None:
    repositories = ("ROCm/vllm", "lmdeploy", "llm-perf-bench", "aws-neuron", "MLPerf")
    for profile in profiles().values():
        assert not any(name in profile.source for name in repositories)


@pytest.mark.parametrize(
    ("metric", "ours", "error"), [("tpot", 12.0, 0.2), ("throughput", 8.0, 0.25)]
)
def test_slower_is_positive_for_times_and_rates(metric: str, ours: float, error: float) -> None:
    one = replace(services()[0], metric=metric, printed=10.0, ours=ours)
    assert one.error == pytest.approx(error)


def test_texts_have_every_table_once() -> None:
    short, rows = short_text(services()), services_text(services())
    for title in by_table(services()):
        assert short.count(f"| {title} |") == 1
    read = list(csv.DictReader(rows.splitlines()))
    assert [row["table"] for row in read] == [one.table for one in services()]


def test_an_endless_queue_has_no_batch() -> None:
    queued: list[PublishedService] = [one for one in services() if one.row.kind == "max_throughput"]
    assert queued
    assert all(one.row.batch is None for one in queued)
    assert ",queue," in services_text(queued)
