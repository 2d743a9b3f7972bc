"""How the cost of a query grows: with plans, and not with GPUs. Prints tables; never passes or fails.

Estimates and searches on 64 to a million GPUs, then sweeps of 10^4 to 10^8 plans on one worker (plans a
second, memory, disk; after a first small one, so that loading is not counted). Every row runs in a process of
its own, whose highest memory is then that row's. Rates are of processor time, which a machine that others use
too stretches less than the clock; ratios of one run say how cost grows.

    PYTHONPATH=src:. OMP_NUM_THREADS=1 python tests/bench/bench_scale.py [--largest 1e7] [--plot FILE]

`--write docs/scale.md` puts the tables into that page, with the date and how busy the machine was.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SWEEPS = {
    # name -> lengths, GPU counts, batches, orders
    "1e4": (1, 1, 1, 1),
    "1e5": (4, 1, 1, 3),
    "1e6": (35, 1, 1, 3),
    "1e7": (44, 4, 2, 3),
    "1e8": (434, 4, 2, 3),
}
"""Sweeps by their size: how much of each field they take."""
GPUS = [2**k for k in range(6, 21, 2)]
"""64 to 1,048,576."""
NODE = 8


def study(lengths: int, counts: int, batches: int, orders: int) -> dict[str, Any]:
    """Plans as points: 9,600 for each question and order."""
    return {
        "study": {"kind": "training", "plan": "flash"},
        "base": {"model": "llama-3.1-70b", "system": "h100-sxm"},
        "vary": {
            "gpus": [1024, 2048, 4096, 8192][:counts],
            "global_batch": [2**13, 2**14][:batches],
            "seq_len": [2048 + 128 * i for i in range(lengths)],
            "plan.tp": [1, 2, 4, 8],
            "plan.pp": [1, 2, 4, 8, 16],
            "plan.vpp": [1, 2, 4],
            "plan.cp": [1, 2],
            "plan.sp": [False, True],
            "plan.micro_batch": [1, 2, 4, 8, 16],
            "plan.zero": [0, 1, 2, 3],
            "plan.recompute": ["none", "full"],
            "plan.order": ["tp,cp,dp,pp", "tp,cp,pp,dp", "dp,tp,cp,pp"][:orders],
        },
    }


def highest_bytes() -> float:
    """The most memory that this process, or one that it has ended, held."""
    used = [
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return 1024.0 * max(used)


def of_sweep(name: str) -> dict[str, Any]:
    """One sweep on one worker."""
    import foretell

    with tempfile.TemporaryDirectory() as folder:
        foretell.sweep(study(1, 1, 1, 1), out=Path(folder), workers=1)
    with tempfile.TemporaryDirectory() as folder:
        start, wall = _cpu_s(), time.perf_counter()
        found = foretell.sweep(study(*SWEEPS[name]), out=Path(folder), workers=1, yes=True)
        spent, lasted = _cpu_s() - start, time.perf_counter() - wall
        held = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
    assert found.complete
    return {
        "points": found.points,
        "cpu_s": spent,
        "wall_s": lasted,
        "highest_bytes": highest_bytes(),
        "disk_bytes": held,
    }


def of_gpus(name: str) -> dict[str, Any]:
    """One estimate of a new question, warm, and one search on so many GPUs."""
    import foretell

    gpus = int(name)
    job: dict[str, Any] = {
        "system": "h100-sxm",
        "gpus": gpus,
        "global_batch": max(4 * gpus, 1024),
        "set": {"network.cluster.size": max(gpus // NODE, 1)},
    }
    times = []
    for turn in range(30):
        new = {**job, "global_batch": job["global_batch"] + 16 * gpus * turn}
        start = time.process_time()
        foretell.estimate("llama-3.1-70b", plan="tp8 pp4 zero1 mbs1 recompute=full", **new)
        times.append(time.process_time() - start)
    foretell.search("llama-3.1-70b", top=1, **job)
    start = time.process_time()
    found = foretell.search("llama-3.1-70b", top=1, **job)
    spent = time.process_time() - start
    return {
        "gpus": gpus,
        "estimate_s": sorted(times)[len(times) // 2],
        "plans": found.plans_evaluated + found.plans_pruned,
        "evaluated": found.plans_evaluated,
        "search_s": spent,
        "highest_bytes": highest_bytes(),
    }


def parts_of_shard() -> list[list[str]]:
    """What a shard of 230,000 plans spends its time on, least of six, in ms: printed, and as rows."""
    import foretell.studies.sweep.batches as batches
    from foretell.studies.study_file import read_study
    from foretell.studies.sweep.shards import shard_bytes

    spent: dict[str, float] = {}
    timed = {"evaluate_columns": "plans evaluated", "first_broken": "rules", "plan_texts": "texts"}

    def clock(name: str, called: Any) -> Any:
        def call(*given: Any) -> Any:
            start = time.process_time()
            found = called(*given)
            spent[name] = spent.get(name, 0.0) + time.process_time() - start
            return found

        return call

    for name, words in timed.items():
        setattr(batches, name, clock(words, getattr(batches, name)))
    asked = read_study(study(*SWEEPS["1e6"]))
    least: dict[str, float] = {}
    for number in (0, 1, 2, 1, 2, 1, 2):
        spent.clear()
        start = time.process_time()
        shard_bytes(asked, number)
        spent["the whole shard"] = time.process_time() - start
        rest = 2.0 * spent["the whole shard"] - sum(spent.values())
        spent["the table and Parquet"] = rest
        least = {name: min(value, least.get(name, value)) for name, value in spent.items()}
    rows = [[name, f"{1e3 * seconds:.0f}"] for name, seconds in least.items()]
    print("\n".join(f"| {' | '.join(row)} |" for row in rows), flush=True)
    return rows


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def alone(kind: str, name: str) -> dict[str, Any]:
    """A row, measured in a process of its own."""
    words = [sys.executable, __file__, "--row", kind, name]
    ran = subprocess.run(words, check=True, capture_output=True, text=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def sweeps(largest: float) -> list[dict[str, Any]]:
    """The table of sweeps."""
    print(
        "| plans | processor s | plans/s of one core | over the row above | memory GiB | bytes a plan |"
    )
    print("|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    for name in SWEEPS:
        if float(name) > largest:
            continue
        row = alone("sweep", name)
        more = ""
        if rows:
            before = rows[-1]
            plans = row["points"] / before["points"]
            more = f"{plans:.1f} x plans, {row['cpu_s'] / before['cpu_s']:.1f} x time"
        rows.append(row)
        row["cells"] = [
            f"{row['points']:,}",
            f"{row['cpu_s']:.1f}",
            f"{row['points'] / row['cpu_s']:,.0f}",
            more,
            f"{row['highest_bytes'] / 2**30:.2f}",
            f"{row['disk_bytes'] / row['points']:.1f}",
        ]
        print(f"| {' | '.join(row['cells'])} |", flush=True)
    return rows


def queries() -> list[dict[str, Any]]:
    """The table of GPU counts."""
    print(
        "| GPUs | one estimate, ms | plans of a search | evaluated | search, s | plans/s of one core "
        "| memory GiB |"
    )
    print("|---|---|---|---|---|---|---|")
    rows = []
    for gpus in GPUS:
        row = alone("gpus", str(gpus))
        rows.append(row)
        row["cells"] = [
            f"{gpus:,}",
            f"{row['estimate_s'] * 1e3:.2f}",
            f"{row['plans']:,}",
            f"{row['evaluated']:,}",
            f"{row['search_s']:.2f}",
            f"{row['plans'] / row['search_s']:,.0f}",
            f"{row['highest_bytes'] / 2**30:.2f}",
        ]
        print(f"| {' | '.join(row['cells'])} |", flush=True)
    return rows


def picture(found: dict[str, list[dict[str, Any]]], path: str) -> None:
    """Both tables as one figure."""
    from foretell.report.figures.files import write_figure
    from foretell.report.figures.lines import lines
    from foretell.report.figures.multiples import panels

    sizes = [
        {
            "plans": row["points"],
            "rate": row["points"] / row["cpu_s"],
            "held": row["highest_bytes"] / 2**30,
        }
        for row in found["sweeps"]
    ]
    counts = [
        {"gpus": row["gpus"], "ms": row["estimate_s"] * 1e3, "rate": row["plans"] / row["search_s"]}
        for row in found["gpus"]
    ]
    parts = [
        lines(sizes, "plans", "rate", title="Sweeps", y_title="plans/s of one core"),
        lines(sizes, "plans", "held", title="Memory of a sweep", y_title="memory (GiB)"),
        lines(counts, "gpus", "rate", title="Searches", y_title="plans/s of one core"),
        lines(counts, "gpus", "ms", title="One estimate", y_title="time (ms)"),
    ]
    write_figure(panels(parts, "What a query costs, by its size and by GPUs", 2, 340), path)


def main() -> None:
    """Both tables, or one row of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=float, default=1e8, help="plans of the largest sweep")
    parser.add_argument("--json", help="a file for all rows")
    parser.add_argument("--plot", help="a figure: .html, .svg or .png")
    parser.add_argument("--write", help="a page whose tables are replaced: docs/scale.md")
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.row:
        kind, name = asked.row
        print(json.dumps((of_sweep if kind == "sweep" else of_gpus)(name)))
        return
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    found = {"gpus": queries()}
    print()
    found["sweeps"] = sweeps(asked.largest)
    if asked.json:
        Path(asked.json).write_text(json.dumps(found) + "\n")
    if asked.plot:
        picture(found, asked.plot)
    if asked.write:
        from tests.bench.pages import measured_on, write_table

        write_table(Path(asked.write), "A shard", parts_of_shard(), measured_on())
        for heading, name in (("GPUs", "gpus"), ("Plans", "sweeps")):
            cells = [row["cells"] for row in found[name]]
            write_table(Path(asked.write), heading, cells, measured_on())


if __name__ == "__main__":
    main()
