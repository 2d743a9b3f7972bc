"""Requests per second of the serving simulator, and seconds of a sizing. Prints; never passes or fails.

`python tests/bench/bench_requests.py`: a chat workload (lognormal lengths, 1,000 tokens in and 250 out on the
mean) with 64 requests in flight per replica on one core, by process time: one replica, 64 and 1,024.
`--write docs/scale.md` puts the table into that page.
"""

import argparse
import time
from pathlib import Path

from foretell.api.serving import serve
from foretell.api.size import size
from foretell.catalog.engines import profile
from foretell.inputs.question import ask
from foretell.serving.clock import SampledClock
from foretell.serving.requests.arrivals import Arrivals, Lengths, draw_requests
from foretell.serving.requests.records import EngineRules, Fleet, Routing
from foretell.serving.requests.run import play
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment
from tests.bench.pages import measured_on, write_table

MANY = 50_000
"""Requests of one replica."""
FLIGHT, RATE = 64, 5.0
"""Requests in flight, or requests a second, of each replica."""
ROWS: tuple[tuple[int, str, Routing], ...] = (
    (1, "closed", "round-robin"),
    (1, "poisson", "round-robin"),
    (64, "closed", "round-robin"),
    (64, "closed", "least-loaded"),
    (64, "poisson", "round-robin"),
    (64, "poisson", "least-loaded"),
    (1024, "closed", "round-robin"),
    (1024, "closed", "least-loaded"),
    (1024, "poisson", "round-robin"),
    (1024, "poisson", "least-loaded"),
)


def rate(row: tuple[int, str, Routing], clock: SampledClock, tries: int) -> float:
    """Requests a second of one core, the best of some tries."""
    replicas, kind, routing = row
    many = MANY if replicas == 1 else max(MANY, 100 * replicas)
    requests = draw_requests(
        Arrivals(kind=kind, concurrency=FLIGHT * replicas, rate=RATE * replicas),  # type: ignore[arg-type]
        Lengths(mean=1000.0, shape="lognormal"),
        Lengths(mean=250.0, shape="lognormal"),
        many,
        seed=0,
    )
    rules = EngineRules(max_batch=256, max_tokens=8192, kv_tokens=1e6)
    fleet = Fleet(rules=rules, replicas=replicas, routing=routing)
    best = float("inf")
    for _ in range(tries):
        start = time.process_time()
        play(requests, fleet, clock)
        best = min(best, time.process_time() - start)
    return many / best


def simulator() -> list[list[str]]:
    """One table, printed."""
    scenario = ask(model="llama-3.1-70b", system="h100-sxm", gpus=8)
    engine = profile("vllm", scenario.system.chip)
    times = step_times(scenario.model, scenario.system, Deployment(tp=8), engine)
    clock = SampledClock(times, 256)
    print("| replicas | arrivals | routing | requests/s |")
    print("|---|---|---|---|")
    table = []
    for row in ROWS:
        found = rate(row, clock, 3 if row[0] == 1 else 1)
        table.append([f"{row[0]:,}", row[1], row[2], f"{found:,.0f}"])
        print(f"| {' | '.join(table[-1])} |", flush=True)
    return table


def main() -> None:
    """All."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", help="a page whose table is replaced: docs/scale.md")
    asked = parser.parse_args()
    table = simulator()
    if asked.write:
        write_table(Path(asked.write), "Requests", table, measured_on())
    load = {"system": "h100-sxm", "gpus": 8, "isl": 4000, "osl": 500, "plan": "tp8 weights=fp8"}
    serve("llama-3.1-70b", **load, concurrency=64)
    start = time.process_time()
    for _ in range(10):
        serve("llama-3.1-70b", **load, concurrency=64)
    print(f"serve, closed form, warm: {1e2 * (time.process_time() - start):.1f} ms")
    for model, system in (("llama-3.1-70b", "h100-sxm"), ("deepseek-v3", "h200-sxm")):
        start = time.process_time()
        found = size(model, system=system, rate=50, isl=4000, osl=500, ttft=2000, tpot=50, gpus=32)
        spent = time.process_time() - start
        print(f"size {model} on {system}, to 32 GPUs: {spent:.2f} s, {found.evaluated:,} points")


if __name__ == "__main__":
    main()
