"""`foretell memory`: its JSON, its files, its exit codes."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from foretell.report.presentation.numbers import value_text, words_of
from tests.surfaces.command import foretell

FITS = ("llama-3.1-8b", "--system", "h100-sxm", "--gpus", "8", "--global-batch", "16")
PLAN = ("--plan", "tp2 pp2 zero1 mbs1")
KEYS = (
    "model system gpus plan plan_chosen schedule fits refusals step_s allocated_bytes reserved_bytes "
    "peak_memory_bytes memory_capacity_bytes "
    "intervals fit_probability fullest_stage stages assumptions out"
).split()
STAGE_KEYS = (
    "stage alike allocated_bytes peak_at_s closed_form_bytes reserved_bytes "
    "framework_bytes total_bytes at_peak kept_at_peak moments_s held_bytes"
).split()


def test_json() -> None:
    outcome = foretell("memory", *FITS, *PLAN, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    told = outcome.json
    assert list(told) == KEYS
    for stage in told["stages"]:
        assert list(stage) == STAGE_KEYS
        assert stage["allocated_bytes"] <= stage["reserved_bytes"] <= stage["total_bytes"]
        assert stage["total_bytes"] <= told["peak_memory_bytes"] * (1 + 1e-12)
        total = [sum(values) for values in zip(*stage["held_bytes"].values(), strict=True)]
        assert max(total) == pytest.approx(stage["allocated_bytes"])
        assert sum(stage["at_peak"].values()) == pytest.approx(stage["allocated_bytes"], rel=1e-6)
        assert len(stage["moments_s"]) <= 1100
    fullest = [s for s in told["stages"] if s["stage"] == told["fullest_stage"]]
    assert fullest[0]["total_bytes"] == pytest.approx(told["peak_memory_bytes"])


@pytest.mark.parametrize(
    "asked",
    [
        (*FITS, *PLAN),
        ("mixtral-8x7b", "--system", "a100", "--gpus", "64", "--plan", "tp2 pp2 ep8 zero1"),
    ],
    ids=["dense", "experts"],
)
def test_the_step_is_the_estimates(asked: tuple[str, ...]) -> None:
    told, estimate = (foretell(verb, *asked, "--json").json for verb in ("memory", "estimate"))
    assert told["step_s"] == pytest.approx(estimate["step_s"], rel=1e-12)
    assert all(s["moments_s"][-1] == pytest.approx(told["step_s"]) for s in told["stages"])


def test_a_page_has_the_figure(tmp_path: Path) -> None:
    target = tmp_path / "step.html"
    assert foretell("memory", *FITS, *PLAN, "--out", str(target)).code == 0
    text = target.read_text()
    assert "Plotly" in text
    assert all(f'"name": "{part}"' in text for part in ("weights", "attention", "scores"))


@pytest.mark.parametrize("kind", ["svg", "json"])
def test_files(kind: str, tmp_path: Path) -> None:
    """A picture is well formed and has a panel for each stage; a JSON file is what --json prints."""
    target = tmp_path / f"step.{kind}"
    outcome = foretell("memory", *FITS, *PLAN, "--out", str(target))
    assert outcome.code == 0
    assert outcome.err == f"written: {target}\n"
    text = target.read_text()
    if kind == "json":
        assert list(json.loads(text)) == KEYS[:-1]
        return
    start = text.index("<svg")
    root = ElementTree.fromstring(text[start : text.index("</svg>") + 6])
    words = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert sum(text.startswith("Stage ") for text in words) == 2
    assert {"weights", "states", "attention", "scores"} <= set(words)
    assert any("with allocator and framework" in text for text in words)
    assert len(text) < 500_000


def test_a_plan_that_does_not_fit_is_shown_all_the_same() -> None:
    outcome = foretell("memory", "llama-3.1-70b", *FITS[1:], "--plan", "tp8 zero0", "--json")
    assert outcome.code == 1
    assert outcome.json["fits"] == "no"
    assert outcome.json["peak_memory_bytes"] > outcome.json["memory_capacity_bytes"]
    assert "does not fit" in foretell("memory", "llama-3.1-70b", *FITS[1:], "--plan", "tp8").out


@pytest.mark.parametrize("name", ["step.pdf", "nowhere/step.svg", "step"])
def test_files_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    outcome = foretell("memory", *FITS, *PLAN, "--out", str(tmp_path / name))
    assert (outcome.code, outcome.out) == (2, "")
    assert "out:" in outcome.err


def test_a_plan_is_chosen_where_none_is_given() -> None:
    outcome = foretell("memory", *FITS, "--json")
    assert outcome.code == 0
    assert outcome.json["plan_chosen"]


@pytest.mark.parametrize("verb", ["estimate", "search", "simulate", "memory", "explain"])
def test_two_numbers_of_memory_on_every_verb(verb: str) -> None:
    """Tensors, what is reserved and what the process holds, each inside its own interval."""
    plan = () if verb == "search" else ("--plan", "tp2 zero1 mbs1 framework=megatron-core")
    place = ("llama-3.1-8b", "--system", "h100-sxm", "--gpus", "8", "--global-batch", "16")
    told = foretell(verb, *place, *plan, "--json").json
    told = told["plans"][0] if verb == "search" else told
    names = ("allocated_bytes", "reserved_bytes", "peak_memory_bytes")
    tensors, reserved, peak = (told[name] for name in names)
    assert 0.0 < tensors < reserved < peak
    widths = []
    for name in names:
        (low, high), (low50, high50) = (told["intervals"][name][key] for key in ("p90", "p50"))
        assert low < low50 <= told[name] <= high50 < high
        widths.append(high / low)
    assert widths[0] < widths[1]
    if verb in ("estimate", "memory"):
        text = foretell(verb, *place, *plan).out
        for name, value in zip(names, (tensors, reserved, peak), strict=True):
            assert re.search(rf"^{words_of(name)} +{value_text(name, value)} ", text, re.MULTILINE)


def test_what_a_framework_cannot_run_is_said_first() -> None:
    words = ("--plan", "tp2 zero3 mbs1 framework=nanotron")
    place = ("llama-3.1-8b", "--system", "h100-sxm", "--gpus", "8", "--global-batch", "16")
    for verb in ("estimate", "memory"):
        told = foretell(verb, *place, *words, "--json").json
        assert told["refusals"] == ["ZeRO 0 or 1"]
        assert told["assumptions"][0] == "nanotron cannot run this plan: ZeRO 0 or 1"
        text = foretell(verb, *place, *words).out
        assert text.startswith("nanotron cannot run this plan: ZeRO 0 or 1\n")
