"""Caches that go from a prefill instance to a decode instance, over the modelled network."""

from foretell.serving.memory import kv_bytes
from foretell.specs.deployment import Deployment
from foretell.specs.model import Model
from foretell.specs.system import System, Tier


def tier_between(system: System, front: Deployment, back: Deployment) -> Tier:
    """Instances that together fill no more than the innermost tier are on it; else the next one out."""
    tiers = system.network.tiers
    inside = front.gpus + back.gpus <= int(tiers[0].size)
    return tiers[0] if inside or len(tiers) == 1 else tiers[1]


def links_between(system: System, front: Deployment, back: Deployment, other: System) -> list[Tier]:
    """Links that a cache passes: those of one system, or of both where chips differ and share no node."""
    if other.chip.id == system.chip.id:
        return [tier_between(system, front, back)]
    return [one.network.tiers[min(1, len(one.network.tiers) - 1)] for one in (other, system)]


def transfer(
    model: Model, system: System, front: Deployment, back: Deployment, other: System | None = None
) -> tuple[float, float]:
    """Seconds that every cache takes, and seconds of each token: every chip sends its own part of it.

    `other` is the system of the prefill instances where it is another one: the slower link counts.
    """
    links = links_between(system, front, back, other or system)
    each = (float(kv_bytes(model, front, 4096.0)) - float(kv_bytes(model, front, 0.0))) / 4096.0
    state = float(kv_bytes(model, front, 0.0))
    rate = min(float(tier.bandwidth_bytes_per_s) * float(tier.efficiency) for tier in links)
    return max(float(tier.latency_s) for tier in links) + state / rate, each / rate
