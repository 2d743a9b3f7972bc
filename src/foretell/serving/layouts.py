"""The layouts that a number of chips allows, those of one instance of every size, and the best for a load."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from foretell.errors import Infeasible
from foretell.serving.evidence import sure_share
from foretell.serving.launch_rules import InstanceRole, launch_refusal
from foretell.serving.memory import memory_of
from foretell.serving.serve import ServeQuestion, serve_one
from foretell.serving.wide_experts import REDUNDANT
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.ffn import Experts
from foretell.specs.mixers import Attention, LatentAttention
from foretell.specs.model import Model
from foretell.specs.service import ServiceEstimate
from foretell.specs.system import System

Merit = tuple[float, float]
"""What layouts are ordered by, the best last."""
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


def instances(
    model: Model, system: System, base: Deployment, profile: EngineProfile, most_gpus: int
) -> Iterator[Deployment]:
    """Every layout of at most so many chips whose weights leave room for a cache; formats as in `base`.

    Degrees are powers of two. Tensor parallelism stays on the innermost tier of the network and divides the
    heads; experts are cut like matrices, or spread over the chips of the stage with attention cut (tp) or
    by sequences (dp).
    """
    inner = int(system.network.tiers[0].size)
    for chips in powers(min(most_gpus, 1 << 10)):
        for pp in STAGES:
            if chips % pp or pp > len(model.stack.layers):
                continue
            for layout in stage_layouts(model, base, chips // pp, inner):
                found = replace(layout, pp=pp)
                if memory_of(model, system, found, profile).fits:
                    yield found


def powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [1 << i for i in range(most.bit_length()) if 1 << i <= most]


def best_layout(question: ServeQuestion, domain: int) -> ServiceEstimate:
    """The layout with most output tokens a second; where none fits, why not the largest instance."""
    found: list[tuple[Merit, ServiceEstimate]] = []
    refused: list[tuple[Deployment, Infeasible]] = []
    tried = launchable(question, domain)
    for layout in tried:
        asked = replace(question, deployment=layout, plan_chosen=True)
        pool = question.prefill
        if pool is not None and not pool.given:
            asked = replace(asked, prefill=replace(pool, deployment=alike(layout, pool.gpus)))
        try:
            one = serve_one(asked)
        except Infeasible as error:
            refused.append((layout, error))
            continue
        load = one.output_tokens_per_s, one.e2e_ms.mean
        sure = sure_share(asked.model, asked.system, layout, asked.profile, apart=pool is not None)
        found.append((merit(*load, sure, rated=asked.rate is not None), one))
    if not found:
        raise refuse(refused, question.gpus)
    best = max(found, key=lambda pair: pair[0])[1]
    return replace(best, assumptions=(*best.assumptions, chosen_of(len(tried))))


def alike(layout: Deployment, gpus: int) -> Deployment:
    """A prefill instance over so many chips, laid out as those that decode, or over all of them in their
    manner: experts spread where they are, else cut."""
    if gpus % layout.gpus == 0:
        return layout
    experts = gpus if layout.ep > 1 else 1
    if layout.dp > 1:
        return replace(layout, tp=1, pp=1, cp=1, dp=gpus, ep=experts)
    return replace(layout, tp=gpus, pp=1, cp=1, dp=1, ep=experts)


def launchable(question: ServeQuestion, domain: int) -> list[Deployment]:
    """Layouts that the engine launches; all where it launches none."""
    role: InstanceRole = "both" if question.prefill is None else "decode"
    every = [*layouts(question.model, question.gpus, question.deployment, domain)]
    good = [d for d in every if not launch_refusal(question.model, d, question.profile, role)]
    return good or every


def chosen_of(tried: int) -> str:
    """What is stated of a layout that was chosen."""
    return f"layout chosen: the best of {tried} by output tokens/s, at the low end of its 90 % interval"


def refuse(refused: Sequence[tuple[Deployment, Infeasible]], gpus: int) -> Infeasible:
    """Why no layout fits: why not the first of the largest, which has the fewest stages."""
    largest = max(layout.gpus for layout, _ in refused)
    why = next(error for layout, error in refused if layout.gpus == largest)
    if largest < gpus:
        spans = f"of {gpus} chips no layout spans more than {largest}"
        return Infeasible(replace(p, allowed=f"{p.allowed}; {spans}") for p in why.problems)
    return why


def merit(output_tokens_per_s: float, e2e_ms: float, sure: float, *, rated: bool) -> Merit:
    """More tokens a second first; under a rate that all meet, the sooner answer.

    Both as what is `sure` of them: layouts that nobody has measured must be better by what they may be off.
    """
    return round(output_tokens_per_s * (1.0 if rated else sure), 3), -e2e_ms / sure
