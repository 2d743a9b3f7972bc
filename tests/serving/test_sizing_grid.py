"""Sizing never contradicts itself: 200 questions over a random grid, in closed form and simulated."""

import math
import random
from itertools import product
from typing import Any

import pytest

import foretell
from foretell.api.sizing_answer import Sizing
from foretell.errors import Infeasible
from foretell.serving import sizing_simulation

SERVICES: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "system": "h100-sxm", "rate": 12.0, "isl": 1000, "osl": 200, "gpus": 4},
    {"model": "qwen3-32b", "system": "h200-sxm", "rate": 40.0, "isl": 4000, "osl": 500, "gpus": 8,
     "engine": "sglang"},
    {"model": "llama-3.1-70b", "system": "b200-sxm", "rate": 3.0, "isl": 300, "osl": 1000, "gpus": 8,
     "engine": "trtllm", "headroom": 0.0},
    {"model": "qwen3-30b-a3b", "system": "mi300x", "rate": 200.0, "isl": 500, "osl": 60, "gpus": 4,
     "prefix_hit": 0.5},
]  # fmt: skip
TTFT, TPOT = (
    (250.0, 500.0, 1000.0, 2000.0, 5000.0),
    (8.0, 12.0, 16.0, 20.0, 25.0, 30.0, 40.0, 60.0, 80.0, 120.0),
)


def ask(service: dict[str, Any], ttft: float, tpot: float, **more: Any) -> Sizing | None:
    """The answer; None where no layout meets the targets."""
    try:
        return foretell.size(**service, ttft=ttft, tpot=tpot, top=50, **more)
    except Infeasible:
        return None


def rent(found: Sizing | None) -> float:
    """Chips of the best option; infinite where there is none."""
    return float("inf") if found is None else float(found.best.option.gpus)


@pytest.mark.parametrize("place", range(len(SERVICES)))
def test_tighter_targets_never_need_fewer_chips(place: int) -> None:
    """Fifty pairs of targets of each service: chips never fall as either target gets shorter."""
    service = SERVICES[place]
    found = {pair: ask(service, *pair, simulate=False) for pair in product(TTFT, TPOT)}
    assert any(one is not None for one in found.values())
    for (ttft, tpot), one in found.items():
        for looser in product(TTFT, TPOT):
            if looser[0] >= ttft and looser[1] >= tpot:
                assert rent(found[looser]) <= rent(one), (ttft, tpot, looser)


@pytest.mark.parametrize("place", range(len(SERVICES)))
def test_options_are_ordered_by_money_and_meet_what_they_say(place: int) -> None:
    service, rng = SERVICES[place], random.Random(place)
    for _ in range(3):
        found = ask(service, rng.choice(TTFT[1:]), rng.choice(TPOT[3:]), simulate=False)
        if found is None:
            continue
        order = [(not one.meets, one.usd_per_hour or one.option.gpus) for one in found.choices]
        assert order[:-1] == sorted(order[:-1])
        for one in found.choices:
            assert one.meets == (
                one.ttft_ms <= found.wanted.ttft_ms and one.tpot_ms <= found.wanted.tpot_ms
            )
            assert one.option.requests_per_s >= service["rate"] * (1 + found.wanted.headroom) * (
                1 - 1e-9
            )


@pytest.mark.parametrize(("place", "percentile"), [(0, "p99"), (1, "p50"), (2, "mean"), (3, "p50")])
def test_a_simulated_answer_is_found_when_asked_for(place: int, percentile: str) -> None:
    """Its latencies, as targets, give it again or a cheaper one; tighter targets never a cheaper one."""
    service = {**SERVICES[place], "gpus": 4, "percentile": percentile}
    loose = ask(service, 2000.0, 60.0)
    assert loose is not None
    best = loose.best
    again = ask(service, best.ttft_ms, best.tpot_ms)
    assert again is not None
    assert again.best.meets
    assert again.best.option.gpus == best.option.gpus
    assert rent(ask(service, 2000.0, 0.9 * best.tpot_ms)) >= rent(loose)


def test_the_two_examples() -> None:
    """Seventy billion weights at 50 requests a second: 28 ms never take more than what 24 ms do."""
    asked: dict[str, Any] = {
        "model": "llama-3.1-70b",
        "system": "h100-sxm",
        "rate": 50.0,
        "isl": 4000,
        "osl": 500,
    }
    sizes = {tpot: rent(ask(asked, 2000.0, tpot)) for tpot in (30.0, 28.0, 24.2)}
    assert sizes[30.0] <= sizes[28.0] <= sizes[24.2]


@pytest.mark.parametrize("seed", range(200))
def test_the_fewest_replicas_are_those_of_trying_every_number(seed, monkeypatch):
    """Latencies that fall with every replica more, some of them never to the target."""
    draw = random.Random(seed)
    need, power = draw.choice((1, 2, 5, 13, 40, 150, 1e9)), draw.uniform(0.3, 4.0)
    floor, least = draw.uniform(0.0, 1.2), draw.randint(1, 12)
    most = draw.choice((math.inf, least, least + 3, 7 * least))
    asked: list[int] = []

    def side_ms(q, layout, what, replicas):
        asked.append(replicas)
        late = (
            math.inf
            if replicas < 0.6 * need
            else floor + (1.0 - floor) * (need / replicas) ** power
        )
        return late if floor < 1.0 else 1.01, 0.0

    monkeypatch.setattr(sizing_simulation, "side_ms", side_ms)
    counts = sizing_simulation.ReplicaCounts(least=least, most=most, guess=draw.randint(1, 60))
    found = sizing_simulation.fewest(None, None, None, counts, (1.0, math.inf))
    tries = len(asked)
    upto = 3 * counts.light if most == math.inf else int(most)
    every = (n for n in range(least, upto + 1) if side_ms(None, None, None, n)[0] <= 1.0 + 1e-9)
    true = next(every, None)
    if found is None:
        assert true is None or (most == math.inf and true > counts.light)
    else:
        assert found[0] == true
    assert tries < 30
