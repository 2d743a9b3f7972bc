"""`--plot` of every verb that has a figure: the same flag, the same endings."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from foretell.report.figures import files
from tests.surfaces.command import foretell

STEP = ("llama-3.1-8b", "--gpus", "8xh100-sxm", "--global-batch", "64", "--plan", "tp2 pp2 zero1")
SERVICE = (
    "llama-3.1-8b",
    "--gpus",
    "1xh100-sxm",
    "--concurrency",
    "8",
    "--isl",
    "500",
    "--osl",
    "100",
)
PLOTS = {
    "estimate": ("estimate", *STEP, "--plot"),
    "search": ("search", *STEP[:5], "--top", "5", "--plot"),
    "explain": ("explain", *STEP, "--plot"),
    "simulate": ("simulate", *STEP, "--plot"),
    "serve": ("serve", *SERVICE, "--plot"),
    "size": ("size", "llama-3.1-8b", "--system", "h100-sxm", "--rate", "1", "--no-simulate", "--plot"),
    "cost": ("cost", "package", "h100-sxm", "--plot"),
}  # fmt: skip


@pytest.mark.parametrize("verb", PLOTS)
def test_every_verb_writes_its_figure(verb: str, tmp_path: Path) -> None:
    from plotly.graph_objects import Figure

    file = tmp_path / "a.json"
    told = foretell(*PLOTS[verb], str(file), "--json")
    assert told.code == 0
    assert told.json
    figure = json.loads(file.read_text())
    Figure(figure)
    assert figure["data"]


@pytest.mark.parametrize("verb", PLOTS)
def test_without_a_browser_it_is_said_before_anything_is_asked(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "browser", lambda: None)
    told = foretell(*PLOTS[verb], str(tmp_path / "a.png"))
    assert (told.code, told.out) == (2, "")
    assert "needs a browser" in told.err
    assert foretell(*PLOTS[verb], str(tmp_path / "a.svg")).code == 0
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert len(list(root.iter("{http://www.w3.org/2000/svg}text"))) > 5


def test_pages_are_interactive(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    assert foretell(*PLOTS["estimate"], str(page)).code == 0
    assert "Plotly.newPlot" in page.read_text()
    out = tmp_path / "m.html"
    assert foretell("memory", *STEP, "--out", str(out)).code == 0
    assert "Plotly.newPlot" in out.read_text()


STUDY = """
[study]
kind = "training"
plan = "zero1"
[base]
model = "llama-3.1-8b"
system = "h100-sxm"
gpus = 8
global_batch = 64
[vary]
"plan.tp" = [1, 2, 4]
seq_len = [2048, 4096]
[objectives]
step_s = "min"
"""


def test_a_sweep_as_a_figure(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    results, out = str(tmp_path / "results"), tmp_path / "a.json"
    assert foretell("sweep", str(tmp_path / "study.toml"), "--out", results).code == 0
    told = foretell("sweep", "plot", results, "--out", str(out), "--json")
    assert told.code == 0
    assert (told.json["x"], told.json["y"], told.json["value"]) == ("plan.tp", "seq_len", "step_s")
    assert json.loads(out.read_text())["data"][0]["type"] == "heatmap"
    assert foretell("sweep", "plot", results, "--out", str(out), "--x", "seq_len").code == 0
    lines = json.loads(out.read_text())["data"]
    assert lines[-1]["x"] == [2048, 4096]
    assert lines[-1]["name"] == "tp 4"
    wrong = foretell("sweep", "plot", results, "--out", str(out), "--y", "stepp_s")
    assert wrong.code == 2
    assert "did you mean step_s" in wrong.err
