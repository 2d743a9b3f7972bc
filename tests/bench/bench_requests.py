"""Requests per second of the serving simulator, and seconds of a sizing. Prints; never passes or fails.

`python tests/bench/bench_requests.py`: a chat workload (lognormal lengths, 1,000 tokens in and 250 out on the
mean) with 64 in flight on one core, by process time.
"""

import time

from foretell.api.serving import serve
from foretell.api.size import size
from foretell.catalog.engines import profile
from foretell.inputs.question import ask
from foretell.serving.clock import SampledClock
from foretell.serving.requests.arrivals import Arrivals, Lengths, draw_requests
from foretell.serving.requests.records import EngineRules, Fleet
from foretell.serving.requests.run import play
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment

MANY = 50_000


def main() -> None:
    """One table."""
    scenario = ask(model="llama-3.1-70b", system="h100-sxm", gpus=8)
    engine = profile("vllm", scenario.system.chip)
    times = step_times(scenario.model, scenario.system, Deployment(tp=8), engine)
    clock = SampledClock(times, 256)
    requests = draw_requests(
        Arrivals(concurrency=64),
        Lengths(mean=1000.0, shape="lognormal"),
        Lengths(mean=250.0, shape="lognormal"),
        MANY,
        seed=0,
    )
    fleet = Fleet(rules=EngineRules(max_batch=256, max_tokens=8192, kv_tokens=1e6))
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        play(requests, fleet, clock)
        best = min(best, time.process_time() - start)
    print(f"simulator: {MANY / best:,.0f} requests/s of one core, chat, 64 in flight")
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
