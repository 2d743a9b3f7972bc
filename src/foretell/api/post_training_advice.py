"""What makes a post-training step fit that does not: the nearest changes, each tried."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from foretell.errors import ProblemsError
from foretell.specs.post_training import PostTrainingEstimate
from foretell.specs.questions.post_training import PostTrainingQuestion

BUDGETS = (8192, 4096, 2048)
"""Tokens of a micro-batch that are tried."""
FRACTIONS = (0.5, 0.4, 0.3)
"""Shares of the memory for the engine that are tried where generation does not fit."""
TIMES = (2, 4, 8)
"""Multiples of the chips that are tried."""
RANK = 32
"""Rank of the adapters that are tried."""
Answer = Callable[[PostTrainingQuestion], PostTrainingEstimate]


def ways_to_fit(
    question: PostTrainingQuestion, found: PostTrainingEstimate, answer: Answer
) -> tuple[str, ...]:
    """Changes of the question that fit, the least of each kind, as flags; `answer` answers a question."""
    ways = []
    done: set[str] = set()
    for kind, flags, change in _changes(question, found):
        if kind in done:
            continue
        try:
            tried = answer(replace(question, log=None, trace=None, **change))
        except ProblemsError:
            continue
        if tried.fits != "no":
            done.add(kind)
            ways.append(f"{flags} fits ({tried.step_s:,.0f} s a step)")
    return tuple(ways)


def _changes(
    question: PostTrainingQuestion, found: PostTrainingEstimate
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Kind, flags and fields of what may help, the least change of a kind first."""
    over = {one.phase for one in found.memory if one.fits == "no"}
    words = question.plan if isinstance(question.plan, str) else ""
    if "generate" in over and question.rollout_plan is None:
        for share in FRACTIONS:
            text = f"memory_fraction={share:g}"
            yield "engine", f'--rollout-plan "{text}"', {"rollout_plan": text}
    if over & {"logprob", "update_actor"}:
        for budget in BUDGETS:
            if budget < (question.micro_tokens or 2 * BUDGETS[0]) and " mbs" not in f" {words}":
                yield "tokens", f"--micro-tokens {budget}", {"micro_tokens": budget}
        if "lora=" not in words and (question.plan is None or words):
            text = f"{words} lora={RANK}".strip()
            yield "adapters", f'--plan "{text}"', {"plan": text}
        if "lora=" in words and "weights=" not in words:
            text = f"{words} weights=nf4"
            yield "base", f'--plan "{text}"', {"plan": text}
    free = re.sub(r"\bdp\d+\s*", "", words).strip()
    for name in ("gpus", "trainer_gpus"):
        given = str(getattr(question, name) or "")
        count = re.match(r"(\d+)(.*)", given)
        if count is None or (name == "trainer_gpus" and over == {"generate"}):
            continue
        for times in TIMES:
            text = f"{int(count[1]) * times}{count[2]}"
            value: int | str = text if count[2] else int(text)
            change: dict[str, Any] = {name: value}
            flags = f"--{name.replace('_', '-')} {text}"
            if free != words:
                change["plan"] = free
                flags += f' --plan "{free}"'
            yield "chips", flags, change
