"""`explain` and `compare-plans` at the command line: JSON, pictures, exit codes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import foretell as package
from foretell.report.figures import files
from foretell.report.figures.breakdown import plans_figure
from tests.surfaces.command import foretell

LLAMA = ("llama-3.1-70b", "--system", "h100-sxm", "--gpus", "64")
PLAN = ("--plan", "tp8 pp2 mbs1 zero1")
EXPLAIN_KEYS = (
    "model system gpus plan plan_chosen fits step_s interval limited_by time ops memory elasticities "
    "capacity conclusions assumptions overrides"
).split()
COMPARE_KEYS = (
    "a b only_a only_b difference_s time memory interval certain faster better conclusions"
).split()
RUN_KEYS = (
    "tokens steps days gpu_hours energy_joules goodput failures failures_per_gpu_day restart_s "
    "checkpoint_bytes checkpoint_interval_s checkpoint_wait_s storage_bytes_per_s interval"
).split()


def test_explain() -> None:
    outcome = foretell("explain", *LLAMA, *PLAN, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert set(EXPLAIN_KEYS) <= set(record)
    assert sum(row["value"] for row in record["time"]) == pytest.approx(record["step_s"])
    for row in record["ops"]:
        assert set("op part phase count seconds share bound bound_elasticity".split()) <= set(row)
    plan = "tp8 pp2 mbs1 zero1"
    best = package.estimate("llama-3.1-70b", system="h100-sxm", gpus=64, plan=plan)
    assert json.loads(json.dumps(best.explain().to_dict())) == record
    text = foretell("explain", *LLAMA, *PLAN).out
    for sentence in record["conclusions"]:
        assert sentence in text


def test_compare_plans() -> None:
    words = ("tp8 pp2 mbs1 zero1", "tp8 pp2 mbs1 zero1 recompute=full")
    outcome = foretell("compare-plans", *words, *LLAMA, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    record = outcome.json
    assert set(COMPARE_KEYS) <= set(record)
    assert record["faster"] == "a"
    assert sum(row["difference"] for row in record["time"]) == pytest.approx(
        record["b"]["step_s"] - record["a"]["step_s"]
    )
    text = foretell("compare-plans", *words, *LLAMA)
    assert text.code == 0
    for sentence in record["conclusions"]:
        assert sentence in text.out


def test_two_plans_are_drawn(tmp_path: Path) -> None:
    words = ("tp8 pp2 mbs1 zero1", "tp8 pp2 mbs1 zero1 recompute=full")
    outcome = foretell(
        "compare-plans", *words, *LLAMA, "--json", "--plot", str(tmp_path / "two.html")
    )
    assert (outcome.code, outcome.err) == (0, "")
    page = (tmp_path / "two.html").read_text()
    assert "recompute=full" in page
    drawn = plans_figure(outcome.json)["data"]
    stacked = [t for t in drawn if t["type"] == "bar" and t.get("orientation") != "h"]
    by_plan = [sum(t["y"][i] for t in stacked if t["xaxis"] == "x") for i in (0, 1)]
    assert by_plan == pytest.approx([outcome.json[plan]["step_s"] for plan in "ab"])
    differences = next(t for t in drawn if t.get("orientation") == "h")
    assert differences["y"][-1] == outcome.json["time"][0]["name"].replace("_", " ")
    assert foretell("compare-plans", *words, *LLAMA, "--plot", "two.pcx").code == 2


def test_plans_that_are_alike_have_a_figure_too() -> None:
    found = package.compare_plans("tp8", "tp8", "llama-3.1-8b", system="h100-sxm", gpus=8)
    figure = plans_figure(found.to_dict())
    assert not any(trace.get("orientation") == "h" for trace in figure["data"])


def test_whole_run() -> None:
    record = foretell("estimate", *LLAMA, *PLAN, "--tokens", "2T", "--json").json
    assert set(RUN_KEYS) <= set(record["run"])
    assert record["run"]["tokens"] == 2e12
    assert foretell("estimate", *LLAMA, *PLAN, "--json").json["run"] is None
    text = foretell("estimate", *LLAMA, *PLAN, "--tokens", "2T", "--restart-s", "20min").out
    assert "The whole run" in text
    assert "GPU-hours" in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ("explain", *LLAMA, *PLAN, "--plot", "x.pdf"),
            2,
            "plot: is no kind of file that is known",
        ),
        (("explain", *LLAMA, "--plan", "tp3"), 1, "plan"),
        (("compare-plans", "tp8", *LLAMA), 2, "--b: missing"),
        (("compare-plans", "tp8 pp2", "tp3", *LLAMA), 1, "B: plan"),
        (("compare-plans", "tp8 pq2", "tp8", *LLAMA), 2, "did you mean"),
        (("compare-plans", "zero0 mbs8", "zero0 mbs4", *LLAMA), 1, ""),
        (("estimate", *LLAMA, "--checkpoint", "sync"), 2, "checkpoint: has no effect"),
        (("estimate", *LLAMA, "--tokens", "lots"), 2, "tokens: "),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int, said: str) -> None:
    outcome = foretell(*arguments)
    assert outcome.code == code
    assert said in outcome.err
    assert (outcome.out == "") == (code == 2 or bool(said))


def test_pictures(tmp_path: Path) -> None:
    file = tmp_path / "step.svg"
    assert foretell("explain", *LLAMA, *PLAN, "--plot", str(file)).code == 0
    root = ElementTree.parse(file).getroot()
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "compute.gemm" in texts
    assert "Where the time goes" in texts
    page = tmp_path / "step.html"
    assert foretell("explain", *LLAMA, *PLAN, "--plot", str(page), "--json").code == 0
    assert "Plotly.newPlot" in page.read_text()
    missing = foretell("explain", *LLAMA, *PLAN, "--plot", str(tmp_path / "no" / "x.svg"))
    assert (missing.code, missing.out) == (2, "")


def test_png_needs_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BROWSERS", ("no-such-browser",))
    outcome = foretell("explain", *LLAMA, *PLAN, "--plot", str(tmp_path / "x.png"))
    assert (outcome.code, outcome.out) == (2, "")
    assert "needs a browser" in outcome.err
