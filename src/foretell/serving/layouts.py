"""The layouts that a number of chips allows, and the best of them for a load."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from foretell.errors import Infeasible
from foretell.serving.launch_rules import launch_refusal
from foretell.serving.serve import ServeQuestion, serve_one
from foretell.serving.wide_experts import REDUNDANT
from foretell.specs.deployment import Deployment
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Model
from foretell.specs.service import ServiceEstimate

MOST_RANKS = 16
"""Tensor-parallel ranks tried at most."""
STAGES = (1, 2, 4)
"""Pipeline stages tried inside one domain of links; beyond it, as many as domains."""


def layouts(model: Model, gpus: int, base: Deployment, domain: int) -> Iterator[Deployment]:
    """Layouts of every instance that divides the chips: stages, each laid out as `stage_layouts` says.

    An instance beyond one domain has a stage in each, or spreads its experts over all.
    """
    inner = min(domain, MOST_RANKS)
    for ranks in _divisors(gpus):
        stages = {*STAGES, *([ranks // inner] if ranks % inner == 0 else [])}
        for pp in sorted(stages):
            if ranks % pp == 0 and pp <= len(model.stack.layers):
                for layout in stage_layouts(model, base, ranks // pp, inner):
                    if pp == 1 or layout.ep == 1:
                        yield replace(layout, pp=pp)


def stage_layouts(model: Model, base: Deployment, ranks: int, domain: int) -> Iterator[Deployment]:
    """Layouts of one stage: tensor parallel inside a domain of links; experts cut like matrices, or spread.

    Where they are spread over the ranks, attention is cut (tp) or of each rank's own sequences (dp).
    """
    heads, experts = query_heads(model), experts_of(model)
    if ranks <= domain and heads % ranks == 0:
        yield replace(base, tp=ranks, pp=1, dp=1, ep=1, cp=1)
    # Redundant copies let experts stand on ranks that do not divide them, as 256 and 32 on 72.
    if experts == 1 or ranks == 1 or (experts % ranks and (experts + REDUNDANT) % ranks):
        return
    for tp in _divisors(ranks):
        if tp <= domain and heads % tp == 0:
            yield replace(base, tp=tp, pp=1, dp=ranks // tp, ep=ranks, cp=1)


def _divisors(number: int) -> list[int]:
    """Of a whole number, from 1 up."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def query_heads(model: Model) -> int:
    """Query heads that tensor parallelism must divide; those of the first layer that has any."""
    for layer in model.stack.layers:
        for mixer in layer.mixers:
            if isinstance(mixer, Attention | LatentAttention):
                return mixer.heads
    return 2**20


def experts_of(model: Model) -> int:
    """Routed experts of the first layer that has any."""
    found = (layer.ffn.experts for layer in model.stack.layers if isinstance(layer.ffn, Experts))
    return next(found, 1)


def best_layout(question: ServeQuestion, domain: int) -> ServiceEstimate:
    """The layout with most output tokens a second; where none fits, why not the largest instance."""
    best: ServiceEstimate | None = None
    refused: list[tuple[Deployment, Infeasible]] = []
    tried = 0
    for layout in launchable(question, domain):
        tried += 1
        try:
            found = serve_one(replace(question, deployment=layout, plan_chosen=True))
        except Infeasible as error:
            refused.append((layout, error))
            continue
        if best is None or merit(found) > merit(best):
            best = found
    if best is None:
        raise refuse(refused, question.gpus)
    return replace(best, assumptions=(*best.assumptions, chosen_of(tried)))


def launchable(question: ServeQuestion, domain: int) -> list[Deployment]:
    """Layouts that the engine launches; all where it launches none."""
    every = [*layouts(question.model, question.gpus, question.deployment, domain)]
    good = [d for d in every if not launch_refusal(question.model, d, question.profile)]
    return good or every


def chosen_of(tried: int) -> str:
    """What is said of a layout that was chosen."""
    return f"layout chosen: the best of {tried} by output tokens/s"


def refuse(refused: Sequence[tuple[Deployment, Infeasible]], gpus: int) -> Infeasible:
    """Why no layout fits: why not the first of the largest, which has the fewest stages."""
    largest = max(layout.gpus for layout, _ in refused)
    why = next(error for layout, error in refused if layout.gpus == largest)
    if largest < gpus:
        spans = f"of {gpus} chips no layout spans more than {largest}"
        return Infeasible(replace(p, allowed=f"{p.allowed}; {spans}") for p in why.problems)
    return why


def merit(found: ServiceEstimate) -> tuple[float, float]:
    """More tokens a second first; under a rate that all meet, the sooner answer."""
    return merit_of(found.output_tokens_per_s, found.e2e_ms.mean)


def merit_of(output_tokens_per_s: float, e2e_ms: float) -> tuple[float, float]:
    """The same of its two numbers."""
    return round(output_tokens_per_s, 3), -e2e_ms
