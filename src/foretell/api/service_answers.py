"""What `serve` answers: the numbers of a service, or what would do where it does not fit (see answers.py)."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache
from typing import Any

from foretell.errors import Infeasible
from foretell.records import Answer, later, values_as_held, with_values
from foretell.search.instead import TRIES, larger_chip
from foretell.serving.layouts import best_layout
from foretell.serving.memory import memory_of
from foretell.serving.question import ServeQuestion
from foretell.specs.deployment import Deployment, Format
from foretell.specs.deployment_text import parse_deployment
from foretell.specs.service import Interval, Percentiles, ServiceEstimate
from foretell.uncertainty.intervals import of_served


class ServeAnswer(ServiceEstimate, Answer):
    """One deployment under one load."""

    __slots__ = ()
    verb = "serve"

    @property
    def intervals(self) -> dict[str, Interval]:
        """p50 and p90 of every predicted number, of the mean of a latency (uncertainty/intervals.py)."""
        return of_served(self)

    def to_flat(self) -> dict[str, float]:
        """Numbers under slash-separated keys such as latency/ttft_ms/p90, for experiment trackers."""
        from foretell.interop.trackers import served_metrics

        return served_metrics(self.to_dict())

    def to_config(self) -> dict[str, Any]:
        """What was asked, as the nested table that trackers keep as a run's config."""
        from foretell.interop.trackers import served_config

        return served_config(self.to_dict())

    def to_json_line(self) -> str:
        """Config and metrics as one line of JSON."""
        from foretell.interop.trackers import json_lines

        return json_lines([(self.to_config(), self.to_flat())])

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape."""
        told = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in told.items():
            if isinstance(value, Percentiles):
                told[name] = value.to_dict()
        told["benchmark"] = None if self.benchmark is None else self.benchmark.to_dict()
        told["fit"] = None if self.fit is None else [one.to_dict() for one in self.fit]
        told["intervals"] = self.intervals
        told["assumptions"] = list(self.assumptions)
        told["warnings"] = list(self.warnings)
        if self.posterior_factors is None:
            del told["prior"], told["posterior_factors"]
        return told


def serve_answer(found: ServiceEstimate) -> ServeAnswer:
    """The answer with a service's numbers."""
    return ServeAnswer(**values_as_held(found))


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
