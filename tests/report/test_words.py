"""Words of answers on screen: what a number is of, in the units that people read."""

from pathlib import Path
from typing import Any

import foretell
from foretell.report.figures.breakdown import time_bars
from foretell.report.figures.look import title_of
from foretell.report.presentation.service_cards import placement_text
from foretell.report.presentation.study_cards import value_text
from tests.surfaces.command import foretell as command

ROOT = Path(__file__).resolve().parents[2]


def test_a_group_stands_on_chips_of_nodes() -> None:
    assert placement_text({"node": 8.0, "cluster": 4.0}) == "8 chips a node, 4 nodes"
    assert placement_text({"node": 8.0}) == "8 chips a node"
    told = placement_text({"node": 1.0, "rack": 9.0, "cluster": 2.0})
    assert told == "1 chip a node, 9 nodes a rack, 2 racks"


def test_bytes_of_a_front_are_no_billions() -> None:
    assert value_text("peak_memory_bytes", 80 * 2.0**30) == "80 GiB"
    assert value_text("energy_joules", 2.165e6) == "2165 kJ"
    assert value_text("step_s", 6.6) == "6.60"


def test_axes_of_work_say_tokens() -> None:
    assert title_of("usd_per_million_work_tokens") == "USD per million tokens"
    assert title_of("work_tokens_per_s_per_gpu") == "tokens/s per GPU"


def test_a_value_stands_at_the_end_of_its_bar_and_not_of_its_interval() -> None:
    place: dict[str, Any] = {"system": "h100-sxm", "gpus": 8, "global_batch": 64, "plan": "zero3"}
    answer = foretell.estimate("llama-3.1-8b", **place).to_dict()
    whole, words = time_bars([answer])["data"][-2:]
    assert words["text"] == [f"{whole['y'][0]:.4g}"]
    assert words["y"] == whole["y"]
    assert whole["error_y"]["array"][0] > 0.0
    assert "right" in words["textposition"]


def test_every_picture_is_named_on_standard_error(tmp_path: Path) -> None:
    step = ("--system", "h100-sxm", "--gpus", "8", "--global-batch", "64", "--plan", "zero3")
    asked = {
        "estimate": ("llama-3.1-8b", *step),
        "memory": ("llama-3.1-8b", *step),
        "scaling": ("gpt3-350m", "--system", "h100-sxm", "--gpus", "8,16", "--strategies", "zero1"),
    }
    for verb, words in asked.items():
        file = tmp_path / f"{verb}.svg"
        done = command(verb, *words, "--plot", str(file))
        assert file.is_file()
        assert f"written: {file}" in done.err
        assert "written" not in done.out


def test_a_diagnosis_says_each_thing_once() -> None:
    log = str(ROOT / "examples" / "megatron_run.log")
    done = command("diagnose", log, "--model", "llama-3.1-8b", "--system", "h100-sxm")
    assert done.out.count("warm-up skipped") == 1
    assert done.out.count("outliers skipped") == 1


def test_what_is_left_of_a_service_is_told_as_its_capacity() -> None:
    words = ("--system", "h100-sxm", "--rate", "2", "--isl", "500", "--osl", "100", "--gpus", "1")
    done = command("size", "llama-3.1-8b", *words)
    targets, _, load = done.out.splitlines()[1:4]
    assert "TTFT" in targets
    assert "headroom" not in targets
    assert "requests/s" in load
    assert load.endswith("% above the rate: there a queue begins to grow")
