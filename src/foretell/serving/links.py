"""Groups of a deployment's ranks on the network, and what passing activations between stages takes."""

from functools import lru_cache

import numpy as np

from foretell.network.collectives import Group, send_s
from foretell.network.library import prepare
from foretell.network.library_catalog import library_for
from foretell.network.library_records import Kind, Library
from foretell.network.placement import over_systems, tier_counts, units
from foretell.network.stack import stack_of
from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import Network, System, system_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Groups of a deployment's ranks on the network."""

    tensor: Group
    """The tp ranks of a copy of the attention."""
    stage: Group
    """All ranks that share the experts."""
    pipe_counts: Array
    """Where the stages are; (tiers, 1)."""
    network: Network
    """The network."""


Degrees = tuple[int, int, int, int]
"""Tensor-parallel ranks, ranks of a stage, stages, and chips of an instance."""


def links_of(system: System, deployment: Deployment, profile: EngineProfile) -> Links:
    """Place the groups: tensor parallel innermost, then the rest of the stage, then stages."""
    library = library_for(system, software="trtllm" if profile.custom_all_reduce else "")
    d = deployment
    degrees = d.tp, d.stage, d.pp, d.gpus
    if any(over_systems(tier) for tier in system.network.tiers):
        return _placed_links(library, system.network, degrees, system_count(system))
    return _known_links(library, system.network, degrees)


@lru_cache(maxsize=1024)
def _known_links(library: Library | None, network: Network, degrees: Degrees) -> Links:
    """On one network: the same few placements recur from system to system of a study."""
    return _placed_links(library, network, degrees, 1)


def _placed_links(
    library: Library | None, network: Network, degrees: Degrees, networks: int
) -> Links:
    """The groups on one network, or on each of several."""
    tp, stage, pp, gpus = degrees
    filled = units(network, gpus)

    def counts(size: int, stride: int) -> Array:
        one = tier_counts(np.array([float(size)]), np.array([float(stride)]), filled, gpus)
        return np.repeat(one, networks, axis=1)

    kinds: tuple[Kind, ...] = ("all-reduce", "all-gather", "reduce-scatter")

    def group(size: int) -> Group:
        where = counts(size, 1)
        if library is None:
            return stack_of(where, network, kinds)
        return prepare(library, network, where, kinds)

    return Links(
        tensor=group(tp),
        stage=group(stage),
        pipe_counts=counts(pp, stage),
        network=network,
    )


def pipe_s(tokens: float, model: Model, links: Links) -> Num:
    """Seconds of passing the tokens' activations to the next stage; of several networks, of each."""
    size = 2.0 * tokens * model.stack.hidden
    found = send_s(size, links.pipe_counts, links.network)
    return found if len(found) > 1 else float(found[0])
