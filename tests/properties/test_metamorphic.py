"""Random questions as a user asks them, and what must hold between their answers."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import foretell
from foretell.api.answers import Estimate
from foretell.errors import Infeasible
from tests.properties.questions import random_questions

FEW, MANY = 25, 4000
"""Questions in the quick form and in the full one."""
CLOSE = 1e-9
"""How far an answer may be on the wrong side, relatively."""
SEARCHED = 40
"""Of so many questions one is searched too: a search takes as long as a hundred estimates."""


def answer(asked: Mapping[str, Any], set: list[str] | None = None) -> Estimate:
    """The estimate, also where it does not fit."""
    try:
        return foretell.estimate(**asked, set=set or [])
    except Infeasible as error:
        assert isinstance(error.answer, Estimate), error
        return error.answer


def refused(asked: Mapping[str, Any]) -> bool:
    """Whether a rule refuses the plan, with the words that its framework sets."""
    if "framework=" not in asked["plan"]:
        return False
    try:
        foretell.estimate(**asked)
    except Infeasible as error:
        return error.answer is None
    return False


def questions(seed: int, count: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Keywords of `foretell.estimate`, and the chip; only those that what the framework adds leaves valid."""
    for scenario, plan in random_questions(seed, 2 * count):
        if count <= 0:
            return
        asked = {
            "model": scenario.model.id, "system": scenario.system.id, "gpus": scenario.job.gpus,
            "global_batch": scenario.job.global_batch, "seq_len": scenario.job.seq_len, "plan": str(plan),
        }  # fmt: skip
        if not refused(asked):
            count -= 1
            yield asked, scenario.system.chip


def quicker(chip: Any, kind: str, factor: float) -> list[str]:
    """Overrides that make one part of a chip so much quicker, or larger."""
    match kind:
        case "bandwidth":
            value = chip.memory_bandwidth_bytes_per_s * factor
            return [f"chip.memory_bandwidth_bytes_per_s={value!r}"]
        case "memory":
            return [f"chip.memory_bytes={chip.memory_bytes * factor!r}"]
        case _:
            rates = {f"matrix_flop_per_s.{n}": v for n, v in chip.matrix_flop_per_s.items()}
            rates["vector_flop_per_s"] = chip.vector_flop_per_s
            return [f"chip.{name}={rate * factor!r}" for name, rate in rates.items()]


def check(seed: int, count: int) -> list[str]:
    """What does not hold, in words."""
    wrong: list[str] = []
    rng = np.random.default_rng(seed)
    for number, (asked, chip) in enumerate(questions(seed, count)):
        plain = answer(asked)
        wrong += [f"{asked}: {what}" for what in of_one(asked, plain)]
        kind = ("bandwidth", "memory", "flops")[number % 3]
        factor = float(rng.choice((1.01, 1.3, 2.0)))
        more = answer(asked, quicker(chip, kind, factor))
        if more.step_s > plain.step_s * (1.0 + CLOSE):
            wrong.append(f"{asked}: {factor} x {kind}: {plain.step_s} s to {more.step_s} s")
        if more.peak_memory_bytes > plain.peak_memory_bytes * (1.0 + CLOSE):
            wrong.append(f"{asked}: {factor} x {kind} takes more memory")
        if kind == "memory" and plain.fits == "yes" and more.fits != "yes":
            wrong.append(f"{asked}: fits, and not in {factor} x the memory")
        if number % SEARCHED == 0:
            wrong += [f"{asked}: {what}" for what in of_search(asked)]
    return wrong


def of_one(asked: Mapping[str, Any], plain: Estimate) -> Iterator[str]:
    """What one answer must keep: its sums, the order of its intervals, and itself when asked again."""
    found = plain.to_dict()
    if answer(asked).to_dict() != found:
        yield "another answer the second time"
    for name, total in (("breakdown", plain.step_s), ("memory", plain.peak_memory_bytes)):
        tree = found[name]
        if abs(tree["value"] - total) > CLOSE * total:
            yield f"{name} is {tree['value']}, and the answer {total}"
        yield from uneven(tree)
    (low50, high50), (low90, high90) = found["interval"]["p50"], found["interval"]["p90"]
    if not 0.0 < low90 <= low50 <= high50 <= high90:
        yield f"intervals out of order: {found['interval']}"
    if not low90 * (1.0 - CLOSE) <= plain.step_s <= high90 * (1.0 + CLOSE):
        yield f"{plain.step_s} s is outside of {low90} to {high90}"


def uneven(tree: Mapping[str, Any]) -> Iterator[str]:
    """Nodes whose children do not sum to them."""
    children = tree.get("children") or []
    if children:
        total = sum(child["value"] for child in children)
        if abs(total - tree["value"]) > CLOSE * max(abs(tree["value"]), 1e-12):
            yield f"{tree['name']} is {tree['value']}, its parts {total}"
    for child in children:
        yield from uneven(child)


def of_search(asked: Mapping[str, Any]) -> Iterator[str]:
    """Plans of a search have the step that an estimate of them has."""
    try:
        found = foretell.search(**{k: v for k, v in asked.items() if k != "plan"}, top=3)
    except Infeasible:
        return
    for plan in found.plans:
        alone = answer({**asked, "plan": str(plan.plan)})
        if abs(alone.step_s - plan.step_s) > CLOSE * plan.step_s:
            yield f"{plan.plan}: {plan.step_s} s in a search, {alone.step_s} s alone"


def test_a_few_questions() -> None:
    assert not check(5, FEW)


@pytest.mark.full
def test_many_questions() -> None:
    wrong = check(11, MANY)
    assert not wrong, "\n".join(wrong[:20]) + f"\n{len(wrong)} in all"
