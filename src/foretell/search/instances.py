"""Layouts of one instance, of every size up to a limit."""

from collections.abc import Iterator
from dataclasses import replace

from foretell.serving.layouts import experts_of, query_heads
from foretell.serving.memory import memory_of
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

STAGES = (1, 2, 4)
"""Pipeline stages that are tried."""


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
            for layout in stages(model, base, chips // pp, inner):
                found = replace(layout, pp=pp)
                if memory_of(model, system, found, profile).fits:
                    yield found


def stages(model: Model, base: Deployment, chips: int, inner: int) -> Iterator[Deployment]:
    """Layouts of one stage."""
    heads, experts = query_heads(model), experts_of(model)
    if chips <= inner and heads % chips == 0:
        yield replace(base, tp=chips, dp=1, ep=1, cp=1)
    if experts == 1 or chips == 1 or experts % chips:
        return
    for tp in powers(min(chips, inner)):
        if heads % tp == 0:
            yield replace(base, tp=tp, dp=chips // tp, ep=chips, cp=1)


def powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [1 << i for i in range(most.bit_length()) if 1 << i <= most]
