"""Logs of post-training loops: seconds of the phases of every step, lengths and rates, as measured runs.

    verl           step:12 - timing_s/gen:45.2 - perf/throughput:512.3 - response_length/mean:226.8
    NeMo-RL        lines of its console (generation: 12.3s (28.5%)), or timing/train/... of a tracker
    TRL            {'step_time': 12.3, 'completions/mean_length': 200.1}
    OpenRLHF, SkyRL, slime, AReaL, prime-rl   timing/..., perf/..._time, timeperf/..., time/...

Trackers write the same keys as lines of JSON. `log_of` has the median of every number over the steps, the
first ones left out where there are more (they compile and warm up), a step without its validation and
checkpoint. `post_training_measurement` is the same as a `Measurement`: `values` has `step_s` and `PHASE_s` by
the names of `NAMES` (gen_s, old_logprob_s, update_actor_s ...), `asked` what the log tells of its job (isl,
osl, max_osl, and from tokens and rates trajectories and gpus), `steps_s` every step.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, stdev
from typing import Any

from foretell.errors import BadInput, bad_input
from foretell.interop.package_tables import packaged_table
from foretell.records import dataclass
from foretell.specs.measurement import Measurement
from foretell.units import as_number

LONGEST = 20_000
"""Characters of a line that are looked at: no step logs more numbers."""
PAIR = re.compile(
    r"(?<![\w.])([A-Za-z_][\w.]*/[\w./-]+)['\"]?\s*[:=│|]\s*(?:np\.float\d+\()?"
    r"(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)
"""A key with slashes and its number: after a colon, or in the next cell of a table."""
BULLET = re.compile(
    r"[•*-]\s*([A-Za-z][\w /().]*?)\s*:\s*(-?\d[\d,]*(?:\.\d+)?)\s*(?:s\b|sec|$|\(|tokens)"
)
"""A line of a console's list: a name and its number."""
NAMES: Mapping[str, Sequence[str]] = packaged_table(
    Path(__file__).with_name("post_training_logs.toml")
)
"""Numbers of a step -> the keys under which loops log them, the one that counts first."""
MARKS = {
    name: tuple(key for key in keys if "/" in key or "_" in key) for name, keys in NAMES.items()
}
"""Keys that no other program's log has."""
PHASES = (
    "gen", "old_logprob", "ref_logprob", "values", "reward", "adv", "update_actor", "update_critic",
    "weight_sync",
)  # fmt: skip
"""Numbers that are seconds of a phase."""
TIMED = (*PHASES, "step")
OUTLIER = 0.5
"""Distance from the median step from which a step is reported."""
MOST = 1e30
"""Largest number of a log: more is none."""
WARM_UP = 2
"""Steps that are left out where there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainingLog:
    """A log's steps."""

    steps: int
    """Steps that were read, the warm-up skipped."""
    medians: Mapping[str, float]
    """By our names; a step without its validation and checkpoint."""
    steps_s: tuple[float, ...] = ()
    """Every step of them, in order; empty where steps are not timed."""


def log_of(text: str) -> PostTrainingLog:
    """The medians of a log's text; BadInput where no phase of a step is timed in it."""
    steps = list(_steps(text.splitlines()))
    if not steps:
        message = (
            "has no timing_s/... keys: lines of verl, NeMo-RL, TRL and others, or of a tracker"
        )
        raise bad_input("log", text[:60], message)
    kept = steps[WARM_UP:] if len(steps) > WARM_UP + 1 else steps
    columns: dict[str, list[float]] = defaultdict(list)
    for step in kept:
        beside = step.get("validation", 0.0) + step.get("checkpoint", 0.0)
        for name, value in step.items():
            columns[name].append(value - beside if name == "step" else value)
    return PostTrainingLog(
        steps=len(kept),
        medians={name: median(values) for name, values in columns.items()},
        steps_s=tuple(columns.get("step", ())),
    )


def is_post_training(text: str) -> bool:
    """Whether a text may be a log of a post-training loop: it times generation or policy updates."""
    return any(
        key in text for name in ("gen", "old_logprob", "update_actor") for key in MARKS[name]
    )


def step_measurement(text: str, name: str) -> Measurement | None:
    """A log as a measured step of post-training; None where it is no such log."""
    try:
        log = log_of(text) if is_post_training(text) else None
    except BadInput:
        return None
    if log is None or not any(phase in log.medians for phase in PHASES):
        return None
    found = log.medians
    values = {"step_s": found["step"]} if "step" in found else {}
    if "tokens_per_s_per_gpu" in found:
        values["tokens_per_s_per_gpu"] = found["tokens_per_s_per_gpu"]
    if "peak_mem_gib" in found:
        values["peak_memory_bytes"] = found["peak_mem_gib"] * 2.0**30
    many, step = len(log.steps_s), found.get("step", 0.0)
    spread = 1.2533 * stdev(log.steps_s) / step / many**0.5 if many > 2 and step else 0.0
    return Measurement(
        asked=job_of(found),
        values=values,
        phases={key: found[key] for key in PHASES if found.get(key, 0.0) > 0.0},
        noise=min(spread, 0.2),
        steps_s=log.steps_s,
        source=f"{name} (post-training log)",
        notes=tuple(_notes(text, log)),
    )


def _notes(text: str, log: PostTrainingLog) -> Iterable[str]:
    """What of a log was left out or is apart."""
    left = len(list(_steps(text.splitlines()))) - log.steps
    if left > 0:
        yield f"warm-up skipped: the first {left} steps"
    known = {key for keys in NAMES.values() for key in keys}
    short = "\n".join(line[:LONGEST] for line in text.splitlines())
    keys = {key for key, _ in PAIR.findall(short) if key.startswith("timing")}
    if keys - known:
        yield f"times not known here: {', '.join(sorted(keys - known))}"
    step = log.medians.get("step", 0.0)
    far = [one for one in log.steps_s if abs(one - step) > OUTLIER * step]
    if len(log.steps_s) > 2 and far:
        yield f"{len(far)} steps are more than {OUTLIER:.0%} off the median step"


def job_of(found: Mapping[str, float]) -> dict[str, Any]:
    """What a log tells of its job: lengths, and trajectories and chips where tokens and their rate are
    logged."""
    told: dict[str, Any] = {}
    lengths = {"isl": "mean_prompt", "osl": "mean_response", "max_osl": "max_response"}
    told |= {name: found[key] for name, key in lengths.items() if found.get(key)}
    if "max_osl" in told:
        told["max_osl"] = round(told["max_osl"])
    tokens, rate, step = (found.get(name) for name in ("tokens", "tokens_per_s_per_gpu", "step"))
    if tokens and "isl" in told and "osl" in told:
        told["trajectories"] = round(tokens / (told["isl"] + told["osl"]))
    if tokens and rate and step:
        told["gpus"] = max(round(tokens / (rate * step)), 1)
    return told


def _steps(lines: Iterable[str]) -> Iterable[dict[str, float]]:
    """Numbers of every step by our names: a name that comes again begins the next step."""
    step: dict[str, float] = {}
    for line in lines:
        found = line_values(line)
        if any(name in step for name in found):
            yield from _timed(step)
            step = {}
        step |= found
    yield from _timed(step)


def _timed(step: dict[str, float]) -> Iterable[dict[str, float]]:
    """A step that has any time."""
    if any(name in step for name in TIMED):
        yield step


def line_values(line: str) -> dict[str, float]:
    """Our names and their numbers in one line; of several keys for one name the first of `NAMES`."""
    text = line.strip()[:LONGEST]
    begin = text.find("{")
    raw = (_object(text[begin:]) if begin >= 0 else {}) or dict(PAIR.findall(text))
    raw = raw or {name.strip(): value.replace(",", "") for name, value in BULLET.findall(text)}
    if not raw:  # most lines of a log
        return {}
    found = {
        name: next(
            (n for key in keys if (n := as_number(raw.get(key), -MOST, MOST)) is not None), None
        )
        for name, keys in NAMES.items()
    }
    return {name: number for name, number in found.items() if number is not None}


def _object(text: str) -> Mapping[str, Any]:
    """A line's object: JSON, or a dict as Python prints it; empty where it is neither."""
    for read in (json.loads, ast.literal_eval):
        try:
            raw = read(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(raw, dict):
            nested = raw.get("metrics", raw.get("data", raw))
            return nested if isinstance(nested, dict) else raw
    return {}
