"""Famous runs by short words: what is typed, and that no real plan is refused."""

from pathlib import Path

import pytest

from foretell.errors import BadInput
from foretell.lab.validate.famous import COLUMNS, arguments_of, command_of, score_famous

ROWS = {
    "llama": "llama-3.1-405b,8192,h100-sxm,8192,2048,,bf16,,tp8 pp16 dp64,step_time,12.504,s",
    "long": "llama-3.1-405b,16384,h100-sxm,131072,128,,bf16,,tp8 cp16 pp16 dp8,step_time,15.278,s",
    "bloom": "bloom-176b,384,a100-sxm-80gb,2048,2048,366B,bf16,Megatron-DeepSpeed,tp4 pp12 dp8 mbs2,"
    "energy,433,MWh",
    "v3": "deepseek-v3,2048,h800-sxm,4096,15360,,fp8,HAI-LLM (DualPipe),pp16 ep64 dp128,step_time,19.907,s",
    "open": "llama-2-70b,,a100-sxm-80gb,4096,1024,2T,bf16,,,gpu_hours,1720320,h",
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("famous") / "famous.csv"
    lines = [f"{name},a run,{cells}" for name, cells in ROWS.items()]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


def test_no_real_plan_is_refused(table: Path) -> None:
    found = score_famous(table)
    assert found.refused == 0
    assert all(run.predicted and run.interval for run in found.runs)
    by_id = {run.id: run for run in found.runs}
    # The printed plan says nothing of the optimizer: its states are shared among the replicas.
    assert "zero1" in by_id["llama"].plan
    assert by_id["v3"].error == pytest.approx(0.0, abs=0.15)


def test_a_command_says_what_the_report_says_and_no_more() -> None:
    row = dict(zip(COLUMNS, ["v3", "a run", *ROWS["v3"].split(",")], strict=True))
    assert command_of(arguments_of(row)) == (
        "foretell estimate deepseek-v3 --system h800-sxm --gpus 2048 --global-batch 15360 --seq-len 4096 "
        "--precision fp8 --framework hai-llm --plan 'pp16 ep64 dp128'"
    )


def test_a_table_without_its_columns_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("id,model\na,b\n")
    with pytest.raises(BadInput, match="has no column run"):
        score_famous(path)
