"""A typed command has the deployment, the engine and the time per token that a row is scored by."""

import shlex
from dataclasses import replace

import pytest

from foretell.api.serving import question_of
from foretell.lab.calibrate.serving_cases import WAVES, WAVES_APART, case_of, predict_case
from foretell.lab.calibrate.serving_launched import as_launched
from foretell.lab.calibrate.serving_rows import WorkerCells, read_rows
from foretell.lab.validate.serving import read_case
from foretell.lab.validate.serving_commands import flags_of, unasked
from foretell.serving.serve import serve_one
from foretell.specs.questions.serving import ServiceQuestion
from tests.calibrate.test_serving_fit import BLANK
from tests.surfaces.command import foretell

NUMBERS = ("isl", "osl", "concurrency", "rate", "spread")
TABLES = ("measured_serving.csv.gz", "measured_serving_2.csv.gz")
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
)  # fmt: skip


def asked(case):
    """The question of a row's command."""
    words = flags_of(case)
    given = dict(zip(words[1::2], words[2::2], strict=True))
    values = {name.removeprefix("--").replace("-", "_"): text for name, text in given.items()}
    values |= {name: float(values[name]) for name in NUMBERS if name in values}
    return question_of(ServiceQuestion(words[0], **values))[0]


def same(case):
    """Whether a typed command has a row's deployment and engine."""
    q = asked(case)
    own = case.deployment, case.profile
    if case.prefill is not None:
        assert q.prefill is not None
        own += case.prefill.deployment, case.prefill.profile, case.prefill.gpus
        return own == (
            q.deployment, q.profile, q.prefill.deployment, q.prefill.profile, q.prefill.gpus,
        )  # fmt: skip
    return own == (q.deployment, q.profile)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.gpu} {row.framework}")
def test_a_typed_command_is_what_a_row_is_scored_by(row):
    case = case_of(row)
    assert same(case)
    # A benchmark's run has few waves, a user's service none that is the first.
    waves = WAVES if case.prefill is None else WAVES_APART
    q = asked(case)
    found = serve_one(replace(q, traffic=replace(q.traffic, waves=waves)))
    assert found.tpot_ms.mean == pytest.approx(predict_case(case)["tpot"], rel=1e-6)


@pytest.mark.parametrize("table", TABLES)
def test_every_row_under_load_is_filled_as_a_users_blanks_are(data_dir, table):
    seen = set()
    for row in read_rows(data_dir / "inference" / table):
        case = read_case(row)
        if isinstance(case, str) or unasked(case):
            continue
        key = (
            case.model.id,
            case.system.id,
            case.deployment,
            case.profile.id,
            row.framework,
            row.version,
        )
        if key not in seen:
            seen.add(key)
            assert same(case), row.id
    assert len(seen) > 20


def test_what_scripts_set_is_for_fits_alone():
    row = replace(
        BLANK, model="llama-3.1-70b", gpu="B200", framework="trtllm", version="1.0", isl=1024.0,
        osl=1024.0, source="InferenceX",
    )  # fmt: skip
    case = case_of(row)
    assert case.deployment.wait_steps is None
    assert case.deployment.max_tokens is None
    assert as_launched(case).deployment.wait_steps == 20.0
    assert as_launched(case_of(replace(row, source="elsewhere"))) == case_of(
        replace(row, source="elsewhere")
    )


def test_commands_are_printed(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "id,kind,model,gpu,n_gpus,precision,framework,tp,batch_or_concurrency,isl,osl,tpot_or_itl_ms\n"
        "one,online_concurrency,llama-3.1-8b,H100 SXM,1,bf16,vllm,1,8,1000,100,9.0\n"
        "two,decode_step,llama-3.1-8b,H100 SXM,1,bf16,vllm,1,8,1000,,9.0\n"
    )
    first, second = foretell("validate", "serving", str(path), "--commands").out.splitlines()
    words = shlex.split(first, comments=True)
    assert words[:3] == ["foretell", "serve", "llama-3.1-8b"]
    assert foretell(*words[1:], "--json").json["tpot_ms"]["mean"] > 0.0
    assert second.startswith("# two: ")
