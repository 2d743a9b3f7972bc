"""Rules for blank cells: offline maxima run as the tools that made them do."""

from dataclasses import replace

import pytest

from foretell.lab.calibrate.serving_arguments import precision_named
from foretell.lab.calibrate.serving_cases import case_of, predict_case
from tests.lab.calibrate.test_serving_fit import BLANK

OFFLINE = replace(
    BLANK, kind="max_throughput", batch=None, framework="TensorRT-LLM", version="1.0",
    model="Qwen/Qwen3-235B-A22B", precision="fp8", tp=8, n_gpus=8, dp=None, ep=8,
)  # fmt: skip


def test_mixtures_in_tables_of_offline_maxima_have_attention_data_parallel():
    case = case_of(OFFLINE)
    assert (case.deployment.tp, case.deployment.dp, case.deployment.ep) == (1, 8, 8)
    assert any("attention data parallel" in text for text in case.said)
    told = case_of(replace(OFFLINE, dp=1))
    assert (told.deployment.tp, told.deployment.dp) == (8, 1)
    dense = case_of(replace(OFFLINE, model="llama-3.1-70b", ep=None))
    assert (dense.deployment.tp, dense.deployment.dp) == (8, 1)
    loaded = case_of(replace(OFFLINE, kind="online_concurrency", batch=8.0))
    assert (loaded.deployment.tp, loaded.deployment.dp) == (8, 1)
    old = case_of(replace(OFFLINE, version="0.17"))
    assert (old.deployment.tp, old.deployment.dp) == (8, 1)


def test_no_attention_data_parallel_is_filled_where_it_would_not_start():
    row = replace(OFFLINE, model="meta-llama/Llama-4-Maverick-17B-128E", gpu="H100 SXM", ep=None)
    assert case_of(row).deployment.dp == 1
    assert case_of(replace(row, gpu="H200 SXM")).deployment.dp == 8


def test_a_checkpoint_of_4_bits_is_served_as_published_where_8_are_said():
    case = case_of(replace(OFFLINE, model="gpt-oss-20b", tp=1, n_gpus=1, ep=None))
    assert (case.deployment.experts, case.deployment.kv) == ("mxfp4", "fp8")


def test_lengths_and_requests_are_those_that_notes_say():
    load = replace(OFFLINE, kind="online_concurrency", batch=8.0, dp=1, isl=500.0, osl=200.0)
    plain, spread, counted, public = (
        case_of(row).arguments
        for row in (
            load,
            replace(load, notes="10 requests; uniform 0..that: isl and osl are the means"),
            replace(load, notes="burst of 50 prompts"),
            replace(load, run="1"),
        )
    )
    assert (plain["isl"], plain.get("spread"), plain["requests"]) == (500.0, None, 80)
    assert (spread["isl"], spread["osl"], spread["requests"]) == (1000.0, 400.0, 10)
    assert spread["spread"] < 0.05
    assert counted["requests"] == 50
    assert (public["isl"], public["spread"], public["requests"]) == (500.0, 0.8, 80)


def with_limit(case, most):
    """A row with so many sequences at once."""
    q = case.question
    return replace(case, question=replace(q, deployment=replace(q.deployment, max_batch=most)))


def test_a_limit_that_is_told_or_lower_gives_less_at_most():
    case = case_of(OFFLINE)
    free = predict_case(case)["throughput"]
    few = with_limit(case, 64)
    assert predict_case(few)["throughput"] < free


@pytest.mark.parametrize(
    ("version", "gpu", "limit"),
    [("0.6", "H100 SXM", 256), ("0.11", "H100 SXM", 1024), ("", "H100 SXM", 1024),
     ("0.11", "A100 SXM 80GB", 256), ("0.11", "L40S", 256)],
)  # fmt: skip
def test_vllm_has_its_default_limits_offline(version, gpu, limit):
    row = replace(
        OFFLINE, framework="vllm", version=version, gpu=gpu, model="llama-3.2-1b", precision="bf16",
        tp=1, n_gpus=1, ep=1, isl=16.0, osl=128.0,
    )  # fmt: skip
    case = case_of(row)
    same = with_limit(case, limit)
    assert predict_case(case)["throughput"] == pytest.approx(
        predict_case(same)["throughput"], rel=0.02
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("int4-awq", "int4"), ("INT4 AWQ", "int4"), ("w4afp8", "int4"), ("W4A16", "int4"), ("gptq", "int4"),
     ("fp8_block", "fp8"), ("FP8", "fp8"), ("mxfp8", "fp8"), ("int8_wo", "int8"), ("w8a8", "int8"),
     ("bfloat16", "bf16"), ("half", "fp16"), ("nvfp4", "nvfp4"), ("fp4", "fp4"), ("mxfp4", "mxfp4"),
     ("", ""), ("precise", "")],
)  # fmt: skip
def test_precisions_by_any_of_their_names(text, wanted):
    assert precision_named(text) == wanted


def test_a_precision_that_is_not_known_is_said():
    case = case_of(replace(BLANK, precision="exact"))
    assert any("not known" in text for text in case.said)
    assert case.deployment.weights == "bf16"
