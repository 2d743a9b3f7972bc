"""What served numbers rest on: kinds of layouts, evidence, widths from models left out; engines by date."""

from dataclasses import replace

import pytest

import foretell
from foretell.catalog import model, system
from foretell.catalog.engines import profile, profiles
from foretell.catalog.error_models import QuestionFacts
from foretell.lab.calibrate.serving_fit import left_out_overheads
from foretell.serving.evidence import evidence_for, interval_of, layout_of
from foretell.specs.deployment import Deployment

H200, GB200 = system("h200-sxm"), system("gb200")


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Deployment(tp=8), "tensor"),
        (Deployment(tp=8, ep=8), "experts"),
        (Deployment(dp=8, ep=8), "attention-dp"),
        (Deployment(dp=16, ep=16), "wide"),
        (Deployment(tp=8, pp=2), "stages"),
    ],
)
def test_kinds_of_layouts(layout, said):
    assert layout_of(layout, H200) == said


def test_a_rack_is_one_domain():
    assert layout_of(Deployment(dp=16, ep=16), GB200) == "attention-dp"


SEEN = QuestionFacts(
    software="vllm", chip="h200-sxm", generation="hopper", model="mixture", layout="tensor"
)


def test_fitted_takes_engine_kind_and_generation():
    assert evidence_for(SEEN, H200) == "fitted"
    assert evidence_for(replace(SEEN, software="another"), H200) == "transferred"
    assert evidence_for(replace(SEEN, model="encoder"), H200) == "transferred"
    assert evidence_for(replace(SEEN, generation="rubin"), system("tpu-v4")) == "datasheet"


@pytest.mark.parametrize("metric", ["ttft", "tpot", "throughput", "e2e"])
def test_intervals_hold_the_figure_and_each_other(metric):
    for facts in (SEEN, replace(SEEN, software="another", layout="wide apart")):
        found = interval_of(10.0, facts, metric)
        inner, outer = found["p50"], found["p90"]
        assert outer[0] <= inner[0] <= 10.0 <= inner[1] <= outer[1]


@pytest.mark.parametrize("metric", ["ttft", "tpot", "throughput", "e2e"])
def test_what_is_new_is_less_sure(metric):
    seen, new = (
        interval_of(1.0, facts, metric)["p90"]
        for facts in (SEEN, replace(SEEN, software="another", layout="another"))
    )
    assert new[1] / new[0] > seen[1] / seen[0]


def test_left_out_overheads_are_of_known_models_and_profiles():
    known = left_out_overheads()
    assert {name for _, name in known} <= set(profiles())
    assert ("gpt-oss-120b", "trtllm-1-hopper") in known
    for (name, _), values in known.items():
        assert model(name).id == name
        assert all(value >= 0.0 for value in values.values())


def test_engines_by_version_and_date():
    a100, h100 = system("a100-sxm-80gb").chip, system("h100-sxm").chip
    assert profile("nemo@2023", a100).id == "nemo-2023"
    assert profile("2023-08", a100).id == profile("2023", h100).id == "nemo-2023"
    assert profile("vllm@0.11", system("b200-sxm").chip).id == "vllm-0.11-blackwell"
    assert profile("vllm@2023", a100).id == "vllm-2023"


@pytest.mark.parametrize("chip", ["a100-sxm-80gb", "h100-sxm"])
def test_the_22_cells_of_llama_2_are_answered(chip):
    cells = [(size, tp) for size in ("7b", "13b", "70b") for tp in (1, 2, 4, 8)]
    for size, tp in cells[:8] + cells[9:]:
        found = foretell.serve(
            f"llama-2-{size}", system=chip, gpus=tp, plan=f"tp{tp}", isl=200, osl=200, concurrency=1,
            engine="nemo@2023",
        )  # fmt: skip
        assert 0.3e3 < found.e2e_ms.mean < 12e3
        assert found.evidence == "transferred"  # NeMo's server is in no table of services


def test_chips_without_tables_are_the_least_sure() -> None:
    """On chips that nothing was measured on no service is surer than on those of most tables."""

    def spread(chip: str, model: str) -> float:
        found = foretell.serve(model, system=chip, gpus=8, isl=1024, osl=256, concurrency=16)
        low, high = found.to_dict()["interval"]["tpot_ms"]["p90"]
        return high / low

    for chip in ("mi250x-gcd", "rtx5090", "trainium2"):
        assert spread(chip, "llama-3.1-8b") > spread("h200-sxm", "llama-3.1-8b")
        assert spread(chip, "qwen3-30b-a3b") > 2.0
    # Of a generation that was measured, with stacked memory too.
    assert spread("h20-sxm", "qwen3-30b-a3b") < spread("trainium2", "qwen3-30b-a3b")


def test_the_usual_engine_is_one_that_runs_on_the_chip() -> None:
    asked = {"model": "llama-3.1-8b", "concurrency": 1}
    assert foretell.serve(**asked, system="apple-m4-max").profile.startswith("llamacpp")
    assert foretell.serve(**asked, system="h100-sxm").profile.startswith("vllm")
