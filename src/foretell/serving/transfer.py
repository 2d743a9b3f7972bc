"""Caches that go from an instance for prompts to one for answers, over the modelled network."""

from foretell.serving.memory import kv_bytes
from foretell.specs.deployment import Deployment
from foretell.specs.model import Model
from foretell.specs.system import System, Tier


def tier_between(system: System, front: Deployment, back: Deployment) -> Tier:
    """Instances that together fill no more than the innermost tier are on it; else the next one out."""
    tiers = system.network.tiers
    inside = front.gpus + back.gpus <= int(tiers[0].size)
    return tiers[0] if inside or len(tiers) == 1 else tiers[1]


def transfer(
    model: Model, system: System, front: Deployment, back: Deployment
) -> tuple[float, float]:
    """Seconds that every cache takes, and seconds of each token: every chip sends its own part of it."""
    tier = tier_between(system, front, back)
    each = (float(kv_bytes(model, front, 4096.0)) - float(kv_bytes(model, front, 0.0))) / 4096.0
    state = float(kv_bytes(model, front, 0.0))
    rate = float(tier.bandwidth_bytes_per_s) * float(tier.efficiency)
    return float(tier.latency_s) + state / rate, each / rate
