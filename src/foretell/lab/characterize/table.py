"""Measured beside predicted: a summary of each point, and one row for each rank and step as Parquet."""

import statistics
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretell.interop.user_files import whole_file
from foretell.lab.characterize.config import JobPoint
from foretell.lab.characterize.launch import POINTS

if TYPE_CHECKING:
    from foretell.lab.characterize.run import PointRow

SHARES = ("forward", "backward", "optimizer", "data", "tensor", "pipeline", "other")
"""What a step is made of: passes and update without their waits, the waits by parallelism, the rest."""
HELD = ("weights", "gradients", "states", "activations")
FILE = "results.parquet"


def shares_of(labels: Mapping[str, float]) -> dict[str, float]:
    """Seconds of a step by share: waits for messages go under the parallelism that sends them."""
    found = dict.fromkeys(SHARES, 0.0)
    for label, seconds in labels.items():
        found[label.partition(".")[0]] += seconds
    return found


def measured_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """The median step of a finished point on its slowest rank."""
    ranks = table["ranks"]
    steps = [[sum(s["shares_s"].values()) for s in rank["steps"]] for rank in ranks]
    medians = [statistics.median(each) for each in steps]
    slow = max(range(len(ranks)), key=lambda i: medians[i])
    rows = ranks[slow]["steps"]
    shares = [shares_of(row["shares_s"]) for row in rows]
    step_s = medians[slow]
    tokens = JobPoint.of_dict(table["point"]).tokens
    peak = [rank["held_bytes"].get("max_allocated") for rank in ranks]
    return {
        "step_s": step_s,
        "shares_s": {name: statistics.median(s[name] for s in shares) for name in SHARES},
        "spread": (max(steps[slow]) - min(steps[slow])) / step_s,
        "steps": len(rows),
        "tokens_per_s": tokens / step_s,
        "held_bytes": [rank["held_bytes"] for rank in ranks],
        "max_allocated_bytes": max(peak) if all(p is not None for p in peak) else None,
    }


def summary(row: "PointRow") -> dict[str, Any]:
    """One point as JSON."""
    measured = None if row.measured is None else measured_of(row.measured)
    guess = None if row.predicted is None else row.predicted.to_dict()
    error = None
    if measured is not None and row.predicted is not None:
        error = row.predicted.step_s / measured["step_s"] - 1.0
    return {
        **_place(row),
        "status": row.status,
        "why": row.why or None,
        "predicted": guess,
        "measured": measured,
        "step_error": error,
    }


def _place(row: "PointRow") -> dict[str, Any]:
    """Which point it is."""
    point = row.point
    return {
        "key": row.key,
        "model": point.model,
        "plan": str(point.plan),
        **{n: getattr(point, n) for n in ("processes", "nodes", "global_batch", "seq_len")},
    }


def step_rows(row: "PointRow") -> list[dict[str, Any]]:
    """One row for each rank and step of a finished point."""
    table = row.measured
    assert table is not None
    point, guess = row.point, row.predicted
    fixed = {
        **{name: cell for name, cell in _place(row).items() if name != "seq_len"},
        "micro_batch": point.plan.micro_batch,
        "micro_batches": point.micro_batches,
        "seq_len": point.seq_len,
        **{n: getattr(point.plan, n) for n in ("dp", "tp", "pp", "zero", "recompute")},
    }
    found = []
    for rank in table["ranks"]:
        stage = None if guess is None else guess.stages[rank["place"]["stage"]]
        held = {f"{n}_bytes": rank["held_bytes"].get(n) for n in (*HELD, "head")}
        held |= {f"{n}_bytes": rank["held_bytes"].get(n) for n in ("max_allocated", "max_reserved")}
        said = {f"predicted_{n}_bytes": stage.held_bytes[n] if stage else None for n in HELD}
        said |= {f"predicted_{n}_s": guess.shares_s.get(n) if guess else None for n in SHARES}
        said["predicted_step_s"] = guess.step_s if guess else None
        for number, step in enumerate(rank["steps"]):
            shares = shares_of(step["shares_s"])
            step_s = sum(shares.values())
            found.append(
                {
                    **fixed,
                    "rank": rank["place"]["rank"],
                    "stage": rank["place"]["stage"],
                    "step": number,
                    "step_s": step_s,
                    "tokens_per_s": point.tokens / step_s,
                    **{f"{name}_s": seconds for name, seconds in shares.items()},
                    **held,
                    "loss": rank["losses"][number] if rank["losses"] else None,
                    **said,
                    "collectives": step["collectives"],
                    **_environment(table["environment"]),
                }
            )
    return found


def _environment(told: Mapping[str, Any]) -> dict[str, Any]:
    """The environment in columns."""
    host, libraries, card = told["host"], told["libraries"], told["card"]
    return {
        **{name: told[name] for name in ("date", "device", "chip")},
        "driver": str(card.get("driver", "")) or None,
        "backend": told["backend"] or None,
        **{name: libraries.get(name) for name in ("torch", "cuda", "nccl")},
        **{name: host.get(name) for name in ("python", "kernel", "cpu", "cores", "threads")},
        "foretell": told["foretell"],
    }


def write_parquet(folder: Path, rows: Sequence["PointRow"]) -> tuple[str, str]:
    """The table of all finished points, written whole; its name, or why there is none."""
    done = [row for row in rows if row.measured is not None]
    if not done:
        return "", ""
    if find_spec("polars") is None:
        return "", f"polars is not installed: the points stay as JSON in {folder / POINTS}"
    import polars

    frame = polars.DataFrame([r for row in done for r in step_rows(row)], infer_schema_length=None)
    path = folder / FILE
    with whole_file(path) as beside:
        frame.write_parquet(beside)
    return str(path), ""
