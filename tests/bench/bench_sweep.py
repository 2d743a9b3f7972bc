"""How fast sweeps are: ten million plans on one worker and on two. Prints; never passes or fails.

Bars: ten million plans on two cores in under 30 s; two workers at least 1.8 times as fast as one. Both
forms of a sweep are measured: plans as points, each a row of its own, and the best plan of each point.
"""

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import foretell
from foretell.sweep.export import results

POINTS: dict[str, Any] = {
    "study": {"kind": "training", "plan": "flash"},
    "base": {"model": "llama-3.1-70b", "system": "h100-sxm"},
    "vary": {
        "gpus": [1024, 2048, 4096, 8192],
        "global_batch": [2**13, 2**14],
        "seq_len": [1024 * i for i in range(2, 46)],
        "plan.tp": [1, 2, 4, 8],
        "plan.pp": [1, 2, 4, 8, 16],
        "plan.vpp": [1, 2, 4],
        "plan.cp": [1, 2],
        "plan.sp": [False, True],
        "plan.micro_batch": [1, 2, 4, 8, 16],
        "plan.zero": [0, 1, 2, 3],
        "plan.recompute": ["none", "full"],
        "plan.order": ["tp,cp,dp,pp", "tp,cp,pp,dp", "dp,tp,cp,pp"],
    },
}
"""Plans as points: 352 questions of 28,800 plans each."""
SEARCHES: dict[str, Any] = {
    "study": {"kind": "training", "plan": "best"},
    "base": {"model": "llama-3.1-70b", "system": "h100-sxm", "global_batch": 1024},
    "vary": {
        "gpus": [512],
        "seq_len": [2048, 4096],
        "chip.memory_bandwidth_bytes_per_s": {"low": 2e12, "high": 8e12, "steps": 32},
    },
}
"""The best plan of 64 questions of some 165,000 plans each."""


def cpu_s() -> float:
    """Seconds of processor time of this process and of those that it has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(study: dict[str, Any], workers: int) -> tuple[float, float, int]:
    """Wall and processor seconds, and how many plans were evaluated."""
    with tempfile.TemporaryDirectory() as folder:
        start, before = time.perf_counter(), cpu_s()
        found = foretell.sweep(study, out=Path(folder), workers=workers, yes=True)
        spent = time.perf_counter() - start, cpu_s() - before
        assert found.complete
        table = results(folder)
        if "plans_evaluated" in table.collect_schema().names():
            return *spent, int(table.select("plans_evaluated").sum().collect().item())
        return *spent, found.points


def main() -> None:
    """Both forms, on one worker and on two."""
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, study in (("plans as points", POINTS), ("best plan of each point", SEARCHES)):
        one_s, one_cpu_s, plans = timed(study, 1)
        two_s, two_cpu_s, _ = timed(study, 2)
        # On a machine that others use too, processor time says what a quiet one would take.
        print(
            f"{name}: {plans:,} plans, one worker {one_s:.1f} s ({one_cpu_s:.1f} s of processor), "
            f"two {two_s:.1f} s ({two_cpu_s:.1f} s): {one_s / two_s:.2f} times as fast"
        )


if __name__ == "__main__":
    main()
