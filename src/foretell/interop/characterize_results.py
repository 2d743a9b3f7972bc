"""Results of `foretell characterize run` as measured runs: its `--json`, or a file of its `points/`."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from foretell.interop.step_series import steady_steps
from foretell.specs.measurement import Measurement


def characterize_measurements(told: Mapping[str, Any], name: str) -> list[Measurement] | None:
    """Measured steps of a result; None where it is none."""
    if isinstance(told.get("ranks"), Sequence) and isinstance(told.get("point"), Mapping):
        return [_point(told, name)]
    rows = told.get("points", told.get("rows"))
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return None
    done = [
        row for row in rows if isinstance(row, Mapping) and isinstance(row.get("measured"), Mapping)
    ]
    if not done:
        return None
    left = len(rows) - len(done)
    notes = (f"points without a measured step: {left}",) if left else ()
    return [_summary(row, name, notes) for row in done]


def _summary(row: Mapping[str, Any], name: str, notes: tuple[str, ...]) -> Measurement:
    """A row of `--json`: its median step, and how far its steps were apart."""
    measured = row["measured"]
    values = {"step_s": float(measured["step_s"])}
    if measured.get("max_allocated_bytes"):
        values["allocated_bytes"] = float(measured["max_allocated_bytes"])
    spread = float(measured.get("spread") or 0.0) / 4.0
    return Measurement(
        plan=str(row.get("plan", "")),
        asked=_job(row),
        values=values,
        noise=spread / max(int(measured.get("steps") or 1), 1) ** 0.5,
        source=f"{name} ({row.get('key', 'characterize')})",
        notes=notes,
    )


def _point(told: Mapping[str, Any], name: str) -> Measurement:
    """A file of one point: every step of its slowest rank."""
    series = [[sum(step["shares_s"].values()) for step in rank["steps"]] for rank in told["ranks"]]
    times = max(series, key=median)
    steady = steady_steps(times)
    peaks = [rank.get("held_bytes", {}).get("max_allocated") for rank in told["ranks"]]
    values = {"step_s": steady.median_s}
    if peaks and all(peaks):
        values["allocated_bytes"] = float(max(peaks))
    return Measurement(
        plan=str(told["point"].get("plan", "")),
        asked=_job(told["point"]),
        values=values,
        noise=steady.noise,
        steps_s=tuple(times),
        source=f"{name} (characterize)",
        notes=steady.notes,
    )


def _job(told: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: told[key] for key in ("model", "global_batch", "seq_len") if told.get(key)}
    if told.get("processes"):
        found["gpus"] = int(told["processes"])
    return found
