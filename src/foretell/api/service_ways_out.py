"""What would do where a service does not fit: the fewest chips, narrower weights, the next larger chip."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from foretell.errors import Infeasible
from foretell.records import later, with_values
from foretell.search.instead import TRIES, larger_chip
from foretell.serving.layouts import best_layout
from foretell.serving.memory import memory_of
from foretell.serving.question import ServeQuestion
from foretell.specs.deployment import Deployment, Format
from foretell.specs.deployment_text import parse_deployment

NARROWER: tuple[Format, ...] = ("fp8", "int4")
"""Weights that are tried on the chips given, the widest first."""


def with_ways_out(error: Infeasible, asked: ServeQuestion, domain: int) -> Infeasible:
    """The refusal with the least that would have to change, found when it is asked for."""
    words = cache(lambda: _words(error, asked, domain))

    def allowed(text: str | None) -> Callable[[], str]:
        return lambda: "; ".join(part for part in (words(), text) if part)

    return Infeasible(
        with_values(one, allowed=later(allowed(one.allowed)))
        if one.path == "plan (memory)"
        else one
        for one in error.problems
    )


def _words(error: Infeasible, asked: ServeQuestion, domain: int) -> str:
    """The ways out as a list; empty where none was found."""
    plain = replace(asked.deployment, tp=1, pp=1, dp=1, ep=1, cp=1)
    ways = []
    for gpus in _sizes(asked):
        if plan := _layout(replace(asked, gpus=gpus, deployment=plain), domain):
            ways.append(f"--gpus {gpus}, the fewest that hold it (`{plan}`)")
            break
    for form in NARROWER:
        narrow = replace(plain, weights=form, experts=form)
        if plan := _layout(replace(asked, deployment=narrow), domain):
            ways.append(f'--plan "{plan}" on these')
            break
    layout = parse_deployment(str(error.problems[0].value), asked.deployment)
    if (larger := larger_chip(asked.system.chip, _needs(asked, layout))) is not None:
        ways.append(f"--system {larger[0]}, the next larger chip that holds it")
    return ", or ".join(ways)


def _sizes(asked: ServeQuestion) -> Iterator[int]:
    """More chips than were given, in powers of two."""
    gpus = 1
    while gpus <= asked.gpus:
        gpus *= 2
    for _ in range(TRIES):
        yield gpus
        gpus *= 2


def _layout(asked: ServeQuestion, domain: int) -> str | None:
    """The best layout that fits; None where none does."""
    try:
        return best_layout(replace(asked, prefill=None), domain).plan
    except Infeasible:
        return None


def _needs(asked: ServeQuestion, layout: Deployment) -> float:
    """Bytes of a chip without any cache."""
    memory = memory_of(asked.model, asked.system, layout, asked.profile)
    return float(memory.weight_bytes + memory.step_bytes + memory.reserve_bytes)
