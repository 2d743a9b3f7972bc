"""How fast it is: plans per second, one estimate, import, cold start. Prints; never passes or fails.

Bars: 500,000 complete plan evaluations per second on one core; one estimate under 2 ms warm, its
elasticities under 100 ms;
`import foretell` at most 1.5 x `import numpy`; `foretell estimate` cold in under a second.
"""

import statistics
import subprocess
import sys
import time

import foretell
from foretell.inputs.question import ask, plan_of
from foretell.search.search import search_plans
from foretell.search.space import enumerate_plans
from foretell.training.step import evaluate

CASES = [
    ("llama-3.1-70b", "h100-sxm", 512, 1024, 8192),
    ("llama-3.1-405b", "h100-sxm", 4096, 2048, 8192),
    ("deepseek-v3", "h200-sxm", 2048, 4096, 4096),
    ("llama-3.1-8b", "perlmutter", 96, 768, 4096),
]


def plans_per_second() -> None:
    """Whole searches (enumeration, evaluation, ranking) and evaluation alone, in process time."""
    for model, system, gpus, batch, seq_len in CASES:
        scenario = ask(model=model, system=system, gpus=gpus, global_batch=batch, seq_len=seq_len)
        scenario, base = plan_of(scenario, None)
        search_plans(scenario, base, top=10)
        whole, alone, count = [], [], 0
        for _ in range(3):
            start = time.process_time()
            count = search_plans(scenario, base, top=10).plans_evaluated
            whole.append(count / (time.process_time() - start))
            plans = enumerate_plans(scenario, base).plans
            start = time.process_time()
            evaluate(scenario, plans)
            alone.append(count / (time.process_time() - start))
        print(
            f"{model} on {gpus} {system}: {count:,} plans, {max(whole):,.0f} plans/s searched, "
            f"{max(alone):,.0f} plans/s evaluated"
        )


def one_estimate() -> None:
    """Milliseconds of one estimate through the Python API, warm."""
    for model, system, gpus, plan in (
        ("llama-3.1-70b", "h100-sxm", 512, "tp8 pp4 zero1 mbs1"),
        ("deepseek-v3", "h200-sxm", 256, "tp8 pp8 zero1 mbs1 recompute=full"),
    ):
        times, slopes, whys = [], [], []
        for _ in range(60):
            start = time.process_time()
            best = foretell.estimate(model, system=system, gpus=gpus, plan=plan, seq_len=4096)
            times.append(time.process_time() - start)
        for _ in range(12):
            start = time.process_time()
            foretell.sensitivity(best)
            slopes.append(time.process_time() - start)
            best.explain()
            whys.append(time.process_time() - start - slopes[-1])
        print(f"one estimate of {model}: {1e3 * statistics.median(times[10:]):.2f} ms (median)")
        print(
            f"its elasticities: {1e3 * statistics.median(slopes[2:]):.1f} ms, "
            f"explained: {1e3 * statistics.median(whys[2:]):.1f} ms"
        )


def imports() -> None:
    """import foretell against import numpy, and a cold command, as whole processes."""

    def seconds(*command: str) -> float:
        times = []
        for _ in range(9):
            start = time.perf_counter()
            subprocess.run([sys.executable, *command], check=True, capture_output=True)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    bare = seconds("-c", "pass")
    numpy = seconds("-c", "import numpy") - bare
    ours = seconds("-c", "import foretell") - bare
    print(f"import foretell / import numpy: {ours / numpy:.2f}")
    cold = seconds(
        "-m", "foretell", "estimate", "llama-3.1-70b", "--system", "h100-sxm", "--gpus", "64",
        "--plan", "tp8 pp2 zero1",
    )  # fmt: skip
    print(f"foretell estimate, cold: {cold:.2f} s")


if __name__ == "__main__":
    plans_per_second()
    one_estimate()
    imports()
