"""Rows under load by the simulator in the place of the closed form: `validate serving --simulate`."""

from dataclasses import replace

from foretell.calibrate.serving_cases import LEAST_CACHE, SPREAD, Case, Figures
from foretell.serving.memory import memory_of
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulated import Play, fleet_of, requests_of, with_lengths
from foretell.simulate.requests.levels import levels
from foretell.simulate.requests.run import play
from foretell.specs.deployment import Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.prices import Prices

PLAYED = ("online_concurrency", "online_serving")
"""Kinds of rows that tell their load."""
WAVES, LEAST, MOST = 10, 200, 4000
"""Requests over those in flight, as public benchmarks send them; requests at least and at most."""


def played_figures(case: Case, profile: EngineProfile) -> Figures:
    """A row's figures as its requests are played on one instance."""
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
    many = WAVES * flight if rate is None else LEAST
    how = Play(
        arrivals="closed" if rate is None else "poisson", requests=min(max(many, LEAST), MOST)
    )
    requests = requests_of(q, how)
    memory = memory_of(case.model, case.system, case.deployment, profile)
    memory = replace(memory, kv_bytes=max(memory.kv_bytes, LEAST_CACHE * memory.card_bytes))
    fleet, clock, _ = fleet_of(with_lengths(q, requests), how, memory)
    found = levels(play(requests, fleet, clock))
    ttft, tpot = found.ttft_ms["mean"], found.tpot_ms.get("mean", 0.0)
    osl = float(row.osl or 1.0)
    e2e = ttft + tpot * (osl - 1.0)
    rate_of_all = flight * 1e3 * osl / e2e
    return {
        "ttft": ttft,
        "tpot": tpot,
        "e2e": e2e,
        "throughput": copies * (rate_of_all if rate is None else found.output_tokens_per_s),
    }
