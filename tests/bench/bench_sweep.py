"""How fast sweeps and Pareto fronts are, against their bars. Prints; never passes or fails.

Bars: ten million plans on two cores in under 30 s; two Dask workers at least 1.8 times as fast as one,
begun for the sweep (one worker is then this process) and of a cluster that is there already;
the front of a million points in two columns in under a second, in three or four in under ten. Both
forms of a sweep are measured: plans as points, each a row of its own, and the best plan of each point.

    PYTHONPATH=src:. OMP_NUM_THREADS=1 python tests/bench/bench_sweep.py [--only sweeps,dask,pareto]
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import foretell
from foretell.search.pareto import pareto_front
from foretell.studies.sweep.export import results

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
MOST_S, LEAST_RATIO = 30.0, 1.8
"""Ten million plans on two cores, and two workers against one."""
FRONT_S = {2: 1.0, 3: 10.0, 4: 10.0}
"""Seconds of a front of a million points, by its columns."""
POINTS_OF_A_FRONT = 1_000_000
PARTS = ("sweeps", "dask", "pareto")


def cpu_s() -> float:
    """Seconds of processor time of this process and of those that it has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(study: dict[str, Any], workers: int, executor: str) -> tuple[float, float, int]:
    """Wall and processor seconds, and how many plans were evaluated."""
    with tempfile.TemporaryDirectory() as folder:
        start, before = time.perf_counter(), cpu_s()
        found = foretell.sweep(
            study, out=Path(folder), workers=workers, executor=executor, yes=True
        )
        spent = time.perf_counter() - start, cpu_s() - before
        assert found.complete
        table = results(folder)
        if "plans_evaluated" in table.collect_schema().names():
            counts = table.select("plans_evaluated", "plans_pruned").sum().collect()
            return *spent, sum(counts.row(0))
        return *spent, found.points


def timed_on_cluster(study: dict[str, Any], workers: int) -> tuple[float, float, int]:
    """The same on a Dask cluster that is there already; of processor, what its workers used as well."""
    from distributed import LocalCluster

    before = cpu_s()
    options: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": None}
    with LocalCluster(
        **options, dashboard_address=None, env={"POLARS_MAX_THREADS": "1"}
    ) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        timed({**study, "vary": study["vary"] | {"gpus": [1024], "seq_len": [2048]}}, 1, address)
        lasted_s, _, plans = timed(study, workers, address)
    return lasted_s, cpu_s() - before, plans


def judged(value: float, bar: float, *, least: bool, unit: str) -> str:
    """Met or missed, with the bar."""
    met = value >= bar if least else value <= bar
    return f"bar {'at least' if least else 'at most'} {bar:g}{unit}: {'met' if met else 'MISSED'}"


def sweeps(name: str, study: dict[str, Any], executor: str) -> None:
    """One form of a sweep on one worker and on two."""
    if executor == "dask cluster":
        one_s, one_cpu_s, plans = timed_on_cluster(study, 1)
        two_s, two_cpu_s, _ = timed_on_cluster(study, 2)
    else:
        one_s, one_cpu_s, plans = timed(study, 1, executor)
        two_s, two_cpu_s, _ = timed(study, 2, executor)
    # On a machine that others use too, processor time says what a quiet one would take.
    print(
        f"{name}, {executor}: {plans:,} plans, one worker {one_s:.1f} s ({one_cpu_s:.1f} s of processor), "
        f"two {two_s:.1f} s ({two_cpu_s:.1f} s)"
    )
    ratio = one_s / two_s
    print(
        f"  two workers {ratio:.2f} times as fast; {judged(ratio, LEAST_RATIO, least=True, unit=' x')}"
    )
    print(
        f"  on two cores {two_s:.1f} s; {judged(two_s, MOST_S, least=False, unit=' s')} "
        f"(by processor time, halved: {two_cpu_s / 2.0:.1f} s)",
        flush=True,
    )


def fronts() -> None:
    """A million points: even in the cube, and on a shell, where most of them are on the front."""
    chance = np.random.default_rng(1)
    for columns, bar in FRONT_S.items():
        even = chance.random((columns, POINTS_OF_A_FRONT))
        shell = np.abs(chance.normal(size=(columns, POINTS_OF_A_FRONT)))
        shell = 1.0 - shell / np.linalg.norm(shell, axis=0) * (1.0 - 1e-3 * even[0])
        for name, table in (("even", even), ("shell", shell)):
            start, before = time.perf_counter(), cpu_s()
            front = pareto_front(list(table))
            lasted, spent = time.perf_counter() - start, cpu_s() - before
            print(
                f"front of {POINTS_OF_A_FRONT:,} points, {columns} columns, {name}: {lasted:.2f} s "
                f"({spent:.2f} s of processor), {int(front.sum()):,} on it; "
                f"{judged(lasted, bar, least=False, unit=' s')}",
                flush=True,
            )


def main() -> None:
    """Every bar, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parts = parser.parse_args().only.split(",")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    if "pareto" in parts:
        fronts()
    if "sweeps" in parts:
        sweeps("plans as points", POINTS, "process")
        sweeps("best plan of each point", SEARCHES, "process")
    if "dask" in parts:
        sweeps("plans as points", POINTS, "dask cluster")
        sweeps("plans as points", POINTS, "dask")


if __name__ == "__main__":
    main()
