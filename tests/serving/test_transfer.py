"""Caches sent from a prefill instance to a decode instance: bytes over the tier between them."""

import pytest

from foretell.serving.disaggregation import tier_between, transfer
from foretell.serving.memory import kv_bytes
from foretell.specs.deployment import Deployment
from tests.builders import make_model, make_scenario

SYSTEM = make_scenario("dense", 64).system
"""Nodes of 8 chips."""
NEAR = (Deployment(tp=4), Deployment(tp=4))
FAR = (Deployment(tp=8), Deployment(tp=2))


def test_instances_that_fill_a_node_are_in_it() -> None:
    assert tier_between(SYSTEM, *NEAR).name == "node"
    assert tier_between(SYSTEM, *FAR).name == "cluster"
    assert tier_between(SYSTEM, Deployment(tp=4), Deployment(tp=8)).name == "cluster"


@pytest.mark.parametrize("name", ["dense", "moe", "hybrid"])
@pytest.mark.parametrize("ends", [NEAR, FAR])
@pytest.mark.parametrize("tokens", [1.0, 1000.0])
def test_a_cache_takes_its_latency_and_its_bytes(
    name: str, ends: tuple[Deployment, Deployment], tokens: float
) -> None:
    """A recurrent state is part of what is sent, whatever the number of tokens."""
    model = make_model(name)
    tier = tier_between(SYSTEM, *ends)
    fixed_s, token_s = transfer(model, SYSTEM, *ends)
    rate = float(tier.bandwidth_bytes_per_s) * float(tier.efficiency)
    sent = float(kv_bytes(model, ends[0], tokens))
    assert fixed_s + token_s * tokens == pytest.approx(
        float(tier.latency_s) + sent / rate, rel=1e-12
    )


def test_only_recurrences_have_a_state_to_send() -> None:
    latency_s = float(tier_between(SYSTEM, *FAR).latency_s)
    assert transfer(make_model("dense"), SYSTEM, *FAR)[0] == latency_s
    assert transfer(make_model("hybrid"), SYSTEM, *FAR)[0] > 1.1 * latency_s
