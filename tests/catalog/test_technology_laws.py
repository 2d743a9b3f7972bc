"""Nodes are in the order of their age, whatever chips were built on them; units are apart from nodes."""

from itertools import pairwise

import pytest

import foretell
from foretell.catalog.designs import built_from_table
from foretell.catalog.technology import technology

RISING = ("logic_density", "clock_hz", "clock_hz_high", "watts_per_mm2")
FALLING = ("sram_cell_mm2", "joules_per_flop")


def built(**design: object) -> object:
    problems: list[object] = []
    found = built_from_table({"id": "own", **design}, "chip.design", problems)
    assert not problems, problems
    return found


@pytest.mark.parametrize("name", [*RISING, *FALLING])
def test_a_newer_node_is_never_worse(name: str) -> None:
    values = [float(getattr(node, name)) for node in technology().nodes.values()]
    order = values if name in RISING else values[::-1]
    assert all(a <= b for a, b in pairwise(order)), values


def test_the_same_design_gains_with_every_node() -> None:
    peaks = []
    for node in technology().nodes:
        chip = built(node=node, die_area_mm2=600.0, microarchitecture="hopper").chip
        peaks.append(float(chip.matrix_flop_per_s["bf16"]))
    assert all(a <= b for a, b in pairwise(peaks)), peaks


def test_units_are_of_a_generation_and_not_of_a_node() -> None:
    old, new = (
        built(node="N5", cores=100.0, microarchitecture=name).chip
        for name in ("cdna2", "blackwell")
    )
    assert float(new.matrix_flop_per_s["bf16"]) == 8 * float(old.matrix_flop_per_s["bf16"])
    assert built(node="N6", cores=100.0).design.matrix_flop_per_clock == (
        technology().microarchitectures["ampere"].matrix_flop_per_clock
    )


def test_a_limit_above_the_need_of_a_design_changes_nothing() -> None:
    table = {"chip": {"design": {"node": "N4", "cores": 132}}}
    job = {"gpus": 8, "global_batch": 16, "seq_len": 4096, "plan": "tp8 mbs1 recompute=full"}
    answers = []
    for watts in (4000.0, 40000.0):
        design = {**table["chip"]["design"], "tdp_watts": watts}
        system = {"id": "own", "chip": {"design": design}}
        answers.append(foretell.estimate("llama-3.1-8b", system=system, **job))
    assert answers[0].step_s == answers[1].step_s
    assert answers[0].energy_joules == answers[1].energy_joules
