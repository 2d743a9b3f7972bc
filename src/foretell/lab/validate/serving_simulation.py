"""Rows under load by the simulator in the place of the closed form: `validate serving --simulate`."""

from dataclasses import replace

import numpy as np

from foretell.lab.calibrate.serving_cases import LEAST_CACHE, SPREAD, Figures, ServingCase
from foretell.records import dataclass
from foretell.serving.memory import Memory, memory_of
from foretell.serving.requests.levels import levels
from foretell.serving.requests.run import play
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulation import Play, fleet_of, requests_of, with_lengths
from foretell.specs.deployment import Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.prices import Prices

PLAYED = ("online_concurrency", "online_serving")
"""Kinds of rows that tell their load."""
WAVES, LEAST, MOST = 10, 200, 4000
"""Requests over those in flight, as public benchmarks send them; requests at least, in several runs where
it takes them, and at most."""


def played_figures(case: ServingCase, profile: EngineProfile) -> Figures:
    """A row's figures as its requests are simulated on one instance."""
    row, copies = case.row, case.replicas
    flight = max(round((row.batch or 1.0) / copies), 1)
    rate = None if row.rate is None or row.kind != "online_serving" else row.rate / copies
    traffic = Traffic(
        isl=float(row.isl or 1.0),
        osl=float(row.osl or 1.0),
        concurrency=float(flight),
        least=SPREAD,
    )
    q = ServeQuestion(
        model=case.model, system=case.system, gpus=case.deployment.gpus, deployment=case.deployment,
        profile=profile, traffic=traffic, rate=rate, prices=Prices(),
    )  # fmt: skip
    many = min(WAVES * flight, MOST) if rate is None else LEAST
    memory = memory_of(case.model, case.system, case.deployment, profile)
    memory = replace(memory, kv_bytes=max(memory.kv_bytes, LEAST_CACHE * memory.card_bytes))
    # A short benchmark is simulated several times over: its first wave weighs as much as theirs did.
    found = [_played(q, many, seed, memory) for seed in range(-(-LEAST // many))]
    ttft, tpot = (
        float(np.mean([getattr(one, name) for one in found])) for name in ("ttft", "tpot")
    )
    osl = float(row.osl or 1.0)
    e2e = ttft + tpot * (osl - 1.0)
    rates = [one.output_tokens_per_s for one in found]
    tokens_per_s = flight * 1e3 * osl / e2e if rate is None else float(np.mean(rates))
    return {"ttft": ttft, "tpot": tpot, "e2e": e2e, "throughput": copies * tokens_per_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What one play gave on the mean."""

    ttft: float
    """Time to the first token, ms."""
    tpot: float
    """Time per output token, the first excluded, ms."""
    output_tokens_per_s: float
    """Of the instance."""


def _played(q: ServeQuestion, many: int, seed: int, memory: Memory) -> Means:
    how = Play(arrivals="closed" if q.rate is None else "poisson", requests=many, seed=seed)
    requests = requests_of(q, how)
    fleet, clock, _ = fleet_of(with_lengths(q, requests), how, memory)
    found = levels(play(requests, fleet, clock))
    return Means(
        ttft=found.ttft_ms["mean"],
        tpot=found.tpot_ms.get("mean", 0.0),
        output_tokens_per_s=found.output_tokens_per_s,
    )
