"""Layouts of one instance, of every size up to a limit."""

from collections.abc import Iterator
from dataclasses import replace

from foretell.serving.layouts import STAGES, stage_layouts
from foretell.serving.memory import memory_of
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System


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
