"""Measured runs from text: inline words, rows of CSV or JSON lines, and our own lines of JSON.

    tp8 pp4 zero1 mbs1: 15.2 s, 61 GiB          plan : what was measured
    c64 tp4: ttft 310 ms, tpot 18 ms            a service, 64 requests at a time

A column or key is one of ours (`step_s`, `plan`, `gpus` ...), or the name that tables of published runs have
for it. What is not known is reported and never guessed.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Problem, wrong
from foretell.interop.package_tables import packaged_table
from foretell.specs.measurement import (
    ASKED,
    POST_TRAINED,
    SERVED,
    TRAINED,
    TRAINED_PHASES,
    Measurement,
)
from foretell.units import SMALLEST, as_number

VALUE = re.compile(
    r"(?:(?P<name>[A-Za-z_]+)\s*[=:]?\s*)?(?P<number>[0-9][0-9_,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?)\s*"
    r"(?P<unit>[A-Za-z%/µ.]*(?:/[A-Za-z]+)*)(?:\s+(?P<after>MFU|mfu|TTFT|ttft|TPOT|tpot))?"
)
"""One measured number with its unit, the name before or behind it."""
_TABLE = packaged_table(Path(__file__).with_name("measurements.toml"))
UNITS: Mapping[str, tuple[str, float]] = {
    unit: (name, factor)
    for name, units in _TABLE["units"].items()
    for unit, factor in units.items()
}
"""Unit -> what it measures where no name says so, and its factor."""
LATENCY: Mapping[str, float] = _TABLE["latency"]
"""Unit of a latency in ms."""
COLUMNS: Mapping[str, str] = _TABLE["columns"]
"""Column of published tables -> ours."""
WORDS: Mapping[str, str] = _TABLE["words"]
"""Columns that are words of a plan: with their number, as a switch, or with a value."""
PHASES = (*TRAINED_PHASES, *POST_TRAINED)
"""Parts of a step that may be timed: a column `NAME_s`, or a word and its seconds."""
LARGEST, LONGEST = 10_000, 1_000
"""Rows of a file, and characters of one measured number with its unit."""


def inline_measurement(text: str, path: str = "measured") -> Measurement:
    """A measurement as a user types it: words of the plan and job, a colon, what was measured."""
    words, colon, told = text.rpartition(": ")
    if not colon:
        words, colon, told = text.rpartition(":")
    asked, plan = read_words(words)
    problems = list[Problem]()
    values = dict(
        _value(part, path, problems) for part in re.split(r",\s+|;", told) if part.strip()
    )
    phases = {name: values.pop(name) for name in PHASES if name in values}
    if not values and not phases and not problems:
        message = "has no measured number"
        problems.append(_problem(path, text, message))
    if problems:
        raise BadInput(problems)
    return Measurement(plan=plan, asked=asked, values=values, phases=phases, source=text)


def read_words(text: str) -> tuple[dict[str, Any], str]:
    """What words before a colon tell of the job, by the names of ASKED, and those of the plan."""
    asked: dict[str, Any] = {}
    plan = []
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals and name in ASKED:
            asked[name] = _typed(name, value)
        elif match := re.fullmatch(r"c([0-9]+)", word):
            asked["concurrency"] = int(match[1])
        else:
            plan.append(word)
    return asked, " ".join(plan)


def _value(text: str, path: str, problems: list[Problem]) -> tuple[str, float]:
    """Name and value of one measured number."""
    match = VALUE.fullmatch(text.strip()) if len(text) <= LONGEST else None
    number = float(match["number"].replace(",", "").replace("_", "")) if match else math.inf
    if match is None or not math.isfinite(number):
        problems.append(_problem(path, text.strip(), "is no measured number"))
        return "", 0.0
    unit, name = match["unit"].lower(), (match["name"] or match["after"] or "").lower()
    if name in ("ttft", "tpot", "itl", "e2e", "ttft_ms", "tpot_ms", "e2e_ms") and unit in LATENCY:
        stem = {"itl": "tpot"}.get(name.removesuffix("_ms"), name.removesuffix("_ms"))
        return f"{stem}_ms", number * LATENCY[unit]
    if name == "mfu":
        return "mfu", number * (0.01 if unit == "%" or number > 1.0 else 1.0)
    if name in PHASES and unit in LATENCY:
        return name, number * LATENCY[unit or "s"] * 1e-3
    if unit in UNITS:
        told, factor = UNITS[unit]
        return told, number * factor
    if name in (*TRAINED, *SERVED) and not unit:
        return name, number
    problems.append(_problem(path, text.strip(), "has a unit or name that is not known"))
    return "", 0.0


def _problem(path: str, value: str, message: str) -> Problem:
    allowed = '"tp8 pp4 zero1 mbs1: 15.2 s, 61 GiB", a CSV or JSONL file, or a log'
    return wrong(path, value, message, allowed)


def _typed(name: str, value: Any) -> Any:
    """A word's value: whole numbers of counts, else as it is."""
    if name in ("model", "system", "engine", "rollout_plan"):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    if not math.isfinite(number):
        return value
    return int(number) if number == int(number) else number


def csv_measurements(text: str, name: str) -> list[Measurement]:
    """Rows of a table."""
    try:
        rows = list(csv.DictReader(io.StringIO(text), restval="", restkey="cells without a head"))
    except csv.Error as error:
        raise BadInput([_problem(name, "", f"is not CSV: {error}")]) from None
    return table_measurements(rows, name, first=2)


def json_measurements(text: str, name: str) -> list[Measurement]:
    """Lines of JSON: rows, or config and metrics as `--jsonl` and trackers write them; or one list."""
    if text.lstrip().startswith("["):
        try:
            return table_measurements(json.loads(text), name)
        except (ValueError, RecursionError) as error:
            raise BadInput([_problem(name, "", f"is not JSON: {error}")]) from None
    rows, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                problems.append(_problem(f"{name}:{number}", line[:60], f"is not JSON: {error}"))
    if problems:
        raise BadInput(problems)
    return table_measurements(rows, name)


def table_measurements(rows: Iterable[Any], name: str, first: int = 1) -> list[Measurement]:
    """Measurements from rows by name; a row without a measured number is reported."""
    found, problems = [], []
    for number, row in enumerate(rows, start=first):
        where = f"{name}:{number}"
        if not isinstance(row, Mapping):
            problems.append(_problem(where, str(row)[:60], "is no row"))
            continue
        if isinstance(row.get("config"), Mapping) and isinstance(row.get("metrics"), Mapping):
            row = _tracker_row(row["config"], row["metrics"])
        one = row_measurement(row, where)
        if not one.values and not one.phases:
            problems.append(_problem(where, "", "has no measured number"))
        found.append(one)
    if problems or len(found) > LARGEST:
        raise BadInput(problems or [_problem(name, "", f"has more than {LARGEST} rows")])
    return found


def _tracker_row(config: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Config and metrics of a line for trackers as one row."""
    plan, job = config.get("plan"), config.get("job") or config.get("load") or {}
    row = {key.rpartition("/")[2]: value for key, value in metrics.items()}
    row |= {key: value for key, value in job.items() if value is not None}
    row |= {key: config[key] for key in ("model", "system") if config.get(key)}
    row["plan"] = plan.get("text", "") if isinstance(plan, Mapping) else plan or ""
    return {key: value for key, value in row.items() if key in (*TRAINED, *SERVED, *ASKED, "plan")}


def row_measurement(row: Mapping[str, Any], where: str) -> Measurement:
    """One row; blank cells are unknown values, and unknown columns are named."""
    told = {COLUMNS.get(key, key): value for key, value in row.items() if value not in ("", None)}
    values: dict[str, float] = {}
    phases: dict[str, float] = {}
    asked: dict[str, Any] = {}
    words, unknown = [str(told.pop("plan", ""))], list[str]()
    for key, value in told.items():
        if key in (*TRAINED, *SERVED):
            number = as_number(value, SMALLEST)
            values |= {} if number is None else {key: number}
        elif key.removesuffix("_s") in PHASES and key.endswith("_s"):
            number = as_number(value, SMALLEST)
            phases |= {} if number is None else {key.removesuffix("_s"): number}
        elif key == "peak_mem_gb" and as_number(value, SMALLEST):
            values["peak_memory_bytes"] = float(value) * 2.0**30
        elif key in ASKED:
            asked[key] = _typed(key, value)
        elif key in WORDS:
            off = str(value).strip().lower() in ("no", "false", "0")
            words.append(
                WORDS[key].format(number=_typed(key, value), no="no-" if off else "", value=value)
            )
        elif key != "noise":
            unknown.append(key)
    if values.get("mfu", 0.0) > 1.0:
        values["mfu"] *= 0.01
    notes = (f"columns not known here: {', '.join(unknown)}",) if unknown else ()
    return Measurement(
        plan=" ".join(word for word in words if word),
        asked=asked,
        values=values,
        phases=phases,
        noise=as_number(told.get("noise"), SMALLEST) or 0.0,
        source=where,
        notes=notes,
    )
