"""Answers as experiment trackers take them: a flat dict of numbers and a nested dict of what was asked.

Keys of numbers are joined by slashes (`perf/mfu`, `memory/peak_bytes`), as W&B, MLflow and TensorBoard group
them; nothing here depends on any of these. A line of JSON holds both: `{"config": ..., "metrics": ...}`.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from foretell.interop.package_tables import packaged_table
from foretell.specs.plan import Plan
from foretell.specs.result import OUTPUTS

Metrics = dict[str, float]
"""Numbers by their slash-separated keys."""
ESTIMATE: Mapping[str, str] = {name: output.metric for name, output in OUTPUTS.items()}
"""Numbers of an estimate and their keys."""
_TABLE = packaged_table(Path(__file__).with_name("trackers.toml"))
SERVED: Mapping[str, str] = _TABLE["served"]
"""Numbers of a service and their keys; a latency has one for each percentile."""
CHOICE: Mapping[str, str] = _TABLE["choice"]
"""Numbers of one way to serve a rate, and their keys."""


def estimate_metrics(told: Mapping[str, Any]) -> Metrics:
    """The numbers of an estimate's JSON: rates, memory, energy, shares of the step, interval, run."""
    found = _named(told, ESTIMATE)
    for name, tree in (("time", told.get("breakdown")), ("memory", told.get("memory"))):
        found |= _leaves(tree, name)
    for name, ends in (told.get("interval") or {}).items():
        found |= {
            f"interval/step_s_{name}_{end}": v for end, v in zip(("low", "high"), ends, strict=True)
        }
    found |= _intervals(told, "intervals")
    for name, value in (told.get("run") or {}).items():
        found |= _number(f"run/{name}", value)
    found |= _intervals(told.get("run") or {}, "intervals/run")
    return found


def served_metrics(told: Mapping[str, Any]) -> Metrics:
    """The numbers of a service's JSON."""
    found = _named(told, SERVED)
    for latency, ranges in (told.get("interval") or {}).items():
        for name, ends in ranges.items():
            for end, value in zip(("low", "high"), ends, strict=True):
                found |= _number(f"interval/{latency}_{name}_{end}", value)
    return found | _intervals(told, "intervals")


def choice_metrics(told: Mapping[str, Any]) -> Metrics:
    """The numbers of one way to serve a rate."""
    return _named(told, CHOICE) | _intervals(told, "intervals")


def plan_config(plan: Plan) -> dict[str, Any]:
    """A plan as a table, its text included."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    values["order"] = ",".join(plan.order)
    return {"text": str(plan), **values}


def estimate_config(told: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """What an estimate was asked and what kind of answer it is, nested."""
    return {**_asked(told, "estimate", "job"), "plan": plan_config(plan)}


def served_config(told: Mapping[str, Any]) -> dict[str, Any]:
    """What a service was asked, nested."""
    return _asked(told, "service", "load")


def _asked(told: Mapping[str, Any], kind: str, group: str) -> dict[str, Any]:
    """Values of an answer as they are, and under `group` those of its job or load (trackers.toml)."""
    names: Mapping[str, str] = _TABLE["config"][kind]
    return {
        "tool": "foretell",
        **{name: told.get(name) for name in names["plain"].split()},
        group: {name: told.get(name) for name in names[group].split()},
        "overrides": dict(told.get("overrides") or {}),
        "assumptions": list(told.get("assumptions") or ()),
    }


def json_lines(records: Iterable[tuple[Mapping[str, Any], Metrics]]) -> str:
    """A line for each (config, metrics); numbers that JSON lacks do not occur."""
    lines = [
        json.dumps({"config": config, "metrics": metrics}, allow_nan=False, default=str)
        for config, metrics in records
    ]
    return "".join(f"{line}\n" for line in lines)


def _named(told: Mapping[str, Any], keys: Mapping[str, str]) -> Metrics:
    """Numbers under their keys; tables of numbers one level deeper."""
    found: Metrics = {}
    for name, key in keys.items():
        value = told.get(name)
        if isinstance(value, Mapping):
            for inner, number in value.items():
                found |= _number(f"{key}/{inner}", number)
        else:
            found |= _number(key, value)
    return found


def _intervals(told: Mapping[str, Any], prefix: str) -> Metrics:
    """Ends of every interval of an answer: intervals/mfu_p90_low."""
    found: Metrics = {}
    for name, levels in (told.get("intervals") or {}).items():
        for level, ends in levels.items():
            for end, value in zip(("low", "high"), ends, strict=True):
                found |= _number(f"{prefix}/{name}_{level}_{end}", value)
    return found


def _leaves(tree: Any, prefix: str) -> Metrics:
    """Shares of a tree by the path of their names; a name that comes again is added to."""
    found: Metrics = {}
    if not isinstance(tree, Mapping):
        return found
    for child in tree.get("children") or ():
        key = f"{prefix}/{str(child['name']).replace('/', '-').replace(' ', '_')}"
        unit = "_s" if child.get("unit") == "s" else "_bytes"
        inner = _leaves(child, key)
        if not inner:
            key = key + unit
            inner = {key: float(child["value"])}
        for name, value in inner.items():
            found[name] = found.get(name, 0.0) + value
    return found


def _number(key: str, value: Any) -> Metrics:
    """A finite number under its key; a truth as 0 or 1; nothing else."""
    if isinstance(value, int | float) and math.isfinite(value):
        return {key: float(value)}
    return {}
