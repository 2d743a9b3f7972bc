"""A row typed into a shell is the row as it is scored: every kind, every option that a row tells."""

import shlex
from dataclasses import replace
from functools import lru_cache
from math import inf

import pytest

from foretell.lab.calibrate.serving_arguments import KINDS, LOADED, arguments_of, command
from foretell.lab.calibrate.serving_cases import (
    answer_figures,
    case_of,
    predict_case,
    predicted_all,
)
from foretell.lab.calibrate.serving_rows import WorkerCells, read_rows
from foretell.lab.validate.serving import read_case, score_rows
from foretell.records import dataclass
from tests.lab.calibrate.test_serving_fit import BLANK
from tests.surfaces.command import foretell

TABLES = ("measured_serving.csv.gz", "measured_serving_2.csv.gz", "measured_serving_3.csv.gz")
SAME = 1e-6
"""What a typed command and the score may differ by."""
ROWS = (
    replace(BLANK, model="llama-3.1-70b", gpu="B200", precision="fp8", framework="trtllm", version="1.0"),
    replace(BLANK, model="deepseek-ai/DeepSeek-R1", gpu="B200", precision="fp4", framework="sglang",
            version="0.5.9", tp=4, n_gpus=4, isl=1024.0, osl=1024.0, batch=64.0),
    replace(BLANK, model="openai/gpt-oss-120b", gpu="MI355X", precision="fp4", framework="atom",
            version="7.1.1", speculative="no"),
    replace(BLANK, model="deepseek-ai/DeepSeek-R1", gpu="H200 SXM", precision="fp8", framework="sglang",
            version="0.5.9", tp=8, n_gpus=8, speculative="mtp"),
    replace(BLANK, model="deepseek-ai/DeepSeek-R1", gpu="GB200", precision="fp4", framework="dynamo-trt",
            version="0.8.1.post2", n_gpus=12, disaggregated=True, run="1", isl=1024.0, osl=1024.0, batch=64.0,
            prefill=WorkerCells(gpus=4, workers=1, tp=4, ep=4, dp=0),
            decode=WorkerCells(gpus=8, workers=1, tp=8, ep=8, dp=0)),
    replace(BLANK, notes="gpu_memory_utilization=0.8; DERIVED", prefix_hit=0.5),
    replace(BLANK, kind="online_serving", batch=None, rate=2.5),
    replace(BLANK, kind="online_serving", batch=None, rate=300.0, notes="200 requests"),
    replace(BLANK, kind="online_serving", batch=None, rate=inf, notes="200 requests"),
    replace(BLANK, gpu="H100 SXM (power-capped 50%)"),
    *(replace(BLANK, kind=kind, osl=64.0) for kind in KINDS if kind not in LOADED),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """An answer of the command line as the score reads one."""

    ttft_ms: "Typed | None" = None
    tpot_ms: "Typed | None" = None
    e2e_ms: "Typed | None" = None
    benchmark: "Typed | None" = None
    mean: float = 0.0
    p50: float = 0.0
    output_tokens_per_s: float = 0.0
    requests_per_s: float = 0.0
    isl: float = 0.0
    gpus: int = 0
    joules_per_token: float = 0.0


def typed(found):
    """The JSON of a command as a record."""
    known = {name: found[name] for name in Typed.__dataclass_fields__ if name in found}
    return Typed(**{k: typed(v) if isinstance(v, dict) else v for k, v in known.items()})


def same_as_typed(row):
    """Hold every figure of a row to those of its command."""
    line = shlex.split(command(case_of(row).arguments, row.id), comments=True)
    told = foretell(*line[1:], "--json")
    assert told.code in (0, 1), told.err  # 1 where requests come faster than they are answered
    ours, theirs = predict_case(case_of(row)), answer_figures(typed(told.json))
    for name, value in ours.items():
        assert theirs[name] == pytest.approx(value, rel=SAME), (row.id, name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.kind} {row.gpu} {row.framework}")
def test_a_typed_command_is_what_a_row_is_scored_by(row):
    same_as_typed(row)


@lru_cache
def sample(folder):
    """Three rows of every engine and kind in the open tables."""
    found = {}
    for table in TABLES:
        for row in read_rows(folder / "inference" / table):
            key = (row.framework, row.kind, row.disaggregated)
            if len(found.setdefault(key, [])) < 3 and not isinstance(read_case(row), str):
                found[key].append(row)
    return tuple(row for rows in found.values() for row in rows[-1:])


def test_rows_of_the_open_tables_typed_are_their_scores(data_dir):
    rows = sample(data_dir)
    refused = {one for one, _ in score_rows(rows).unsupported}
    asked = [row for row in rows if row.id not in refused]
    assert len(asked) > 20
    for row in asked:
        same_as_typed(row)


def test_figures_of_many_rows_at_once_are_those_of_each():
    cases = [
        case_of(replace(row, batch=row.batch and row.batch * n)) for row in ROWS for n in (1, 2)
    ]
    together = predicted_all(cases, lambda case: case.profile)
    for case, found in zip(cases, together, strict=True):
        alone = predict_case(case)
        for name, value in found.items():
            if name != "input_throughput" or case.question.prefill is None:
                assert value == pytest.approx(alone[name], rel=1e-6), (case.row.kind, name)


def test_ranks_of_attention_are_inside_the_tp_of_sglang():
    row = replace(
        BLANK, model="deepseek-ai/DeepSeek-R1", framework="sglang", tp=8, dp=4, n_gpus=None
    )
    asked, _ = arguments_of(replace(row, ep=8))
    assert (asked["gpus"], asked["plan"].split()[:3]) == (8, ["tp2", "dp4", "ep8"])
    case = case_of(replace(row, ep=8))
    assert (case.question.gpus, case.deployment.gpus, case.question.replicas) == (8, 8, 1)


def test_prompts_found_in_the_prefix_cache_are_a_column(tmp_path):
    path = tmp_path / "rows.csv"
    columns = "id,kind,model,gpu,framework,tp,batch_or_concurrency,isl,osl,prefix_hit"
    path.write_text(
        f"{columns}\n1,online_concurrency,llama-3.1-8b,H100 SXM,vllm,1,8,4000,100,0.75\n"
    )
    (row,) = read_rows(path)
    hit, none = (predict_case(case_of(replace(row, prefix_hit=share))) for share in (0.75, None))
    assert hit["ttft"] < 0.6 * none["ttft"]


def test_rows_of_the_public_benchmark_are_typed_as_tuned():
    """What its scripts set is what `--tuned` sets, in the score and in a fit alike."""
    row = replace(
        BLANK, model="llama-3.1-70b", gpu="B200", framework="trtllm", version="1.0", isl=1024.0,
        osl=1024.0, source="ai-dynamo/aiconfigurator silicon_sample.csv (InferenceX dump)",
    )  # fmt: skip
    case = case_of(row)
    assert " --tuned " in command(case.arguments, row.id)
    assert (case.deployment.wait_steps, case.deployment.max_tokens) == (20.0, 16384)
    elsewhere = replace(row, source="elsewhere")
    plain = case_of(elsewhere)
    assert "--tuned" not in command(plain.arguments, row.id)
    assert plain.deployment.wait_steps is None


@pytest.mark.parametrize(("version", "layout"), [("0.17.0", "tp4 ep4"), ("0.19.0", "tp1 dp4 ep4")])
def test_ranks_that_a_script_does_not_pass_on_are_not_read(version, layout):
    """The public benchmark's scripts of vLLM start attention of each rank's own from 0.19 on."""
    row = replace(
        BLANK, model="moonshotai/Kimi-K2.5", gpu="B200", precision="fp4", framework="vllm", tp=4, dp=4,
        ep=4, n_gpus=4, version=version, source="ai-dynamo/aiconfigurator silicon_sample.csv",
    )  # fmt: skip
    assert str(arguments_of(row)[0]["plan"]).startswith(layout)
    elsewhere = replace(row, source="elsewhere")
    assert str(arguments_of(elsewhere)[0]["plan"]).startswith("tp1 dp4 ep4")


def test_commands_are_printed(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,kind,model,gpu,n_gpus,precision,framework,tp,batch_or_concurrency,isl,osl,tpot_or_itl_ms\n"
        "one,online_concurrency,llama-3.1-8b,H100 SXM,1,bf16,vllm,1,8,1000,100,9.0\n"
        "two,online_trace,llama-3.1-8b,H100 SXM,1,bf16,vllm,1,8,1000,,9.0\n"
    )
    first, second = foretell("validate", "serving", str(path), "--commands").out.splitlines()
    words = shlex.split(first, comments=True)
    assert words[:3] == ["foretell", "serve", "llama-3.1-8b"]
    assert foretell(*words[1:], "--json").json["tpot_ms"]["mean"] > 0.0
    assert second.startswith("# two: ")
