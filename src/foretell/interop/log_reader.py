"""Logs of training programs, benchmarks, engines and chips as measurements, by the tables of log_formats.py.

A log is cut where another run begins. Of each run: the time of every step (warm-up and outliers apart), the
seconds of its parts where timers are printed, the figures of a service, power and memory, and the job and
plan as far as the log prints them. What cannot be read is reported with its line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from foretell.errors import BadInput, bad_input
from foretell.interop.log_jobs import LogJob, job_of_log
from foretell.interop.log_lines import (
    BEGINS,
    BUSY,
    DEVICES,
    LONGEST,
    PAGE,
    SERVICE,
    PrintedStep,
    RunLines,
    StepFormat,
    measured_lines,
    run_lines,
)
from foretell.interop.step_series import Progress, progress_of, steady_steps, timed_parts
from foretell.specs.measurement import DECODED, HELD, MEASURED_MEMORY, SERVED, Measurement

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\x1bc|\^\[c?|\[[0-9;]{1,20}m")
"""Colours of a terminal, also where a page lost the character that begins them."""
ALMOST = re.compile(r"(?i)step|iter|throughput|latency|tokens|samples|loss|ttft|tpot|cache|power")
"""Words of a line that could have been a measurement."""
WRAPPED = 2000
"""Lines of a text in which lines that a page wrapped are looked for."""
ALIKE = 0.05
"""Share by which the caches of one engine's ranks may differ."""
BURST = 2.0
"""Mean over median of a TTFT from which few requests make the mean."""
LOOKED_AT = 20_000
"""Lines among which the nearest is looked for."""
MARKED = 8
"""Characters of a text from which a line that has it is thought to be meant."""
STEADY_LOAD = 0.5
"""Requests of an engine's line over the most of all lines, from which the line counts."""
NOT_RATES = ("step_s", "global_batch", "seq_len", "step_tokens")
"""What a line says of its step beside rates and memory."""
WHOLE = 0.01
"""Share by which a number of chips may be off a whole number."""
FITS = (0.5, 1.15)
"""Sum of timed parts over the step, between which they are parts of it."""


def log_measurements(text: str, name: str) -> list[Measurement] | None:
    """The measurements of a log, one for each run; None where it has no line that is known."""
    lines = [ESCAPES.sub("", line) if "[" in line else line for line in text.splitlines()]
    if not lines:
        return None
    runs = [one for part in _runs(lines) if (one := _measurement(part, name)) is not None]
    if not runs and len(lines) < WRAPPED:  # a page may have wrapped them
        pairs = [f"{a.strip()} {b.strip()}" for a, b in pairwise(lines)]
        runs = [one for one in [_measurement(pairs, name)] if one is not None]
    if len(runs) > 1:
        runs = [
            replace(one, source=f"{one.source.removesuffix(')')}, run {number})")
            for number, one in enumerate(runs, start=1)
        ]
    return runs or None


def refusal(text: str, name: str) -> BadInput:
    """Why a text is no measurement, with the line that comes nearest."""
    every = enumerate(text.splitlines()[:LOOKED_AT], start=1)
    lines = [(i, line.strip()) for i, line in every if line.strip()]
    marked = [one for one in (*SERVICE, *DEVICES) if len(one.needs) > MARKED]
    exact = [
        (place, line)
        for place, line in lines
        if any(one.needs in line and not one.pattern.search(line[:LONGEST]) for one in marked)
    ]
    words = [
        one for one in lines if ALMOST.search(one[1][:LONGEST]) and re.search(r"[0-9]", one[1])
    ]
    place, line = (exact or words or lines or [(1, "")])[0]
    message = (
        "no line has a step time, a rate, a latency or a size that can be read; the nearest is line "
        f"{place}"
    )
    allowed = (
        "a log of Megatron-LM, DeepSpeed, torchtitan, nanotron, MaxText, NeMo, Hugging Face Trainer, verl, "
        "vLLM, SGLang, TensorRT-LLM or nvidia-smi, a benchmark, CSV or JSON lines, or a text such as "
        '"tp8 pp4: 15.2 s"'
    )
    return bad_input(name, line[:120], message, allowed)


def _runs(lines: Sequence[str]) -> list[Sequence[str]]:
    """Lines of each run: another one begins with a command or arguments behind lines that were measured, and
    where lines count up to another number of steps."""
    cuts, measured, total = [0], False, ""
    for place, steps in enumerate(measured_lines(lines)):
        another = bool(steps and total and steps != total)
        if another or (measured and BEGINS.search(lines[place][:LONGEST])):
            cuts, measured, total = [*cuts, place], False, ""
        measured, total = measured or steps is not None, steps or total
    return [lines[a:b] for a, b in pairwise([*cuts, len(lines)])]


def _measurement(lines: Sequence[str], name: str) -> Measurement | None:
    """One run; None where nothing of it is measured."""
    found, progress = run_lines(lines), progress_of(lines)
    if not found.any and progress is None:
        return None
    job = job_of_log(lines)
    step = _training(found, progress, job, name)
    whole = step or _service(found, job, name)
    watts, notes = _chips(found.chips)
    if whole is not None and "idle_watts" in watts:  # a table that was printed before the run
        watts, notes = {}, ()
    if whole is None:
        if not watts:
            return None
        whole = Measurement(stated=job.stated, source=f"{name} (chips)")
    said = dict.fromkeys((*whole.notes, *notes, *job.notes))
    return replace(whole, values={**whole.values, **watts}, notes=tuple(said))


def _training(
    found: RunLines, progress: Progress | None, job: LogJob, name: str
) -> Measurement | None:
    """The steps of a training program; None where the run has none."""
    program, lines = _program(found.steps, batch="global_batch" in job.asked)
    asked = dict(job.asked)
    for key in ("global_batch", "seq_len"):
        told = [one.values[key] for one in lines if key in one.values]
        if told:
            asked.setdefault(key, round(median(told)))
    times = _times(lines, asked.get("global_batch"))
    values = _rates(lines)
    notes = list[str]()
    if not times and progress is not None and not values.get("tokens_per_s_per_gpu"):
        program, times, values = (
            "Hugging Face Trainer",
            list(progress.steps_s),
            dict(progress.values),
        )
        notes += progress.notes
        if progress.global_batch:
            asked.setdefault("global_batch", progress.global_batch)
    peaks = {
        name: max([*found.figures.get(name, ()), values.pop(name, 0.0)]) for name in MEASURED_MEMORY
    }
    if not times and not values:
        return None
    series = times or [1.0 / rate for rate in _column(lines, "tokens_per_s_per_gpu")]
    steady = steady_steps(series)
    if times:
        values = {"step_s": steady.median_s}
    elif series:
        values = {"tokens_per_s_per_gpu": 1.0 / steady.median_s}
    values |= {name: peak for name, peak in peaks.items() if peak > 0.0}
    phases, more = _parts(found, values.get("step_s"))
    tokens = _tokens(lines, asked)
    return Measurement(
        plan=job.plan,
        asked=asked,
        stated={**job.stated, **tokens},
        values=values,
        phases=phases,
        noise=steady.noise if series else 0.02,
        steps_s=tuple(series),
        source=f"{name} ({program})",
        notes=(*notes, *steady.notes, *more, *_unread(found)),
    )


def _program(
    steps: Mapping[StepFormat, list[PrintedStep]], *, batch: bool
) -> tuple[str, list[PrintedStep]]:
    """The program whose lines count: those with a time before rates, rates before a clock, then the most."""

    def rank(form: StepFormat) -> tuple[int, int]:
        keys = {key for one in steps[form] for key in one.values}
        if "step_s" in keys or ("samples_per_s" in keys and batch):
            return 3, len(steps[form])
        if "tokens_per_s_per_gpu" in keys or (not form.figures and len(steps[form]) > 2):
            return 2, len(steps[form])
        return 1, len(steps[form])

    if not steps:
        return "", []
    best = max(steps, key=rank)
    return best.name, steps[best]


def _times(lines: Sequence[PrintedStep], batch: int | None) -> list[float]:
    """Seconds of every step: printed, from samples a second, or between two clocks. Ranks that print the same
    step count once, steps that are run again count again."""
    seen: dict[object, float] = {}
    again, last = 0, -1
    for one in lines:
        number = one.number if one.number is not None else one.place
        again, last = again + (number < last - 1), number
        step = one.values.get("step_s")
        rate = one.values.get("samples_per_s")
        if step is None and rate and batch:
            step = batch / rate
        if step:
            seen.setdefault((again, number), step)
    if seen:
        return list(seen.values())
    clocks = [
        (one.number, one.clock_s)
        for one in lines
        if one.number is not None and one.clock_s is not None
    ]
    gaps = [
        (late - early) / (after - before)
        for (before, early), (after, late) in pairwise(clocks)
        if after > before and late > early
    ]
    return [gap for gap in gaps if gap > 0.0]


def _tokens(lines: Sequence[PrintedStep], asked: dict[str, Any]) -> dict[str, float]:
    """Tokens of a step, of all chips or of one, where a line prints a time and a rate; `asked` gets the chips
    where it prints both."""
    pairs = {"tokens_per_s_per_gpu": "gpu_step_tokens", "tokens_per_s": "step_tokens"}
    found = {
        ours: median(one.values["step_s"] * one.values[rate] for one in both)
        for rate, ours in pairs.items()
        if (both := [one for one in lines if one.values.get("step_s") and one.values.get(rate)])
    }
    whole = _column(lines, "step_tokens")
    if whole:
        found["step_tokens"] = median(whole)
    if len(found) == 2 and "gpus" not in asked:
        chips = found["step_tokens"] / found["gpu_step_tokens"]
        if round(chips) and abs(chips / round(chips) - 1.0) < WHOLE:
            asked["gpus"] = round(chips)
    return found


def _column(lines: Sequence[PrintedStep], name: str) -> list[float]:
    """A number of every line that prints it above 0."""
    return [one.values[name] for one in lines if one.values.get(name, 0.0) > 0.0]


def _rates(lines: Sequence[PrintedStep]) -> dict[str, float]:
    """Medians of what is no time, the first line left out where there are more; the largest memory."""
    found = {}
    for name in dict.fromkeys(key for one in lines for key in one.values):
        column = _column(lines, name)
        if column and name not in NOT_RATES:
            found[name] = max(column) if name in MEASURED_MEMORY else median(column[1:] or column)
    return found


def _parts(found: RunLines, step_s: float | None) -> tuple[dict[str, float], tuple[str, ...]]:
    """Seconds of the timed parts of a step, and what is to be reported of them."""
    parts, other = timed_parts(found.timers)
    notes = (f"timers not known here: {', '.join(other[:8])}",) if other and parts else ()
    if not parts or not step_s:
        return {}, ()
    share = sum(parts.values()) / step_s
    if not FITS[0] <= share <= FITS[1]:
        return {}, (*notes, f"timers left aside: their sum is {share:.0%} of the step")
    return parts, notes


def _unread(found: RunLines) -> Iterator[str]:
    """Lines of steps that have no number."""
    if found.unread:
        place, line = found.unread[0]
        many = len(found.unread)
        yield f"{many} lines of steps have no time that can be read, the first is line {place}: {line}"


def _service(found: RunLines, job: LogJob, name: str) -> Measurement | None:
    """The figures of a benchmark or an engine; None where there is none."""
    takes = {n: one.take for one in SERVICE for n in one.names}
    ends = {"first": 0, "last": -1}
    told = {
        key: column[ends[takes[key]]] if takes.get(key) in ends else median(column)
        for key, column in found.figures.items()
    }
    values = {key: told[key] for key in (*SERVED, *HELD, DECODED) if told.get(key, 0.0) > 0.0}
    asked = {key: told[key] for key in ("isl", "osl", "concurrency", "rate") if told.get(key)}
    notes = list[str]()
    if told.get("completed"):
        for key, total in (("isl", "input_tokens"), ("osl", "output_tokens")):
            if told.get(total):
                asked.setdefault(key, told[total] / told["completed"])
    if "running" in told and not any(key in values for key in SERVED):
        values |= _engine(found.figures, asked)
    if told.get("k_bytes") and told.get("v_bytes"):
        values.setdefault("kv_bytes", told["k_bytes"] + told["v_bytes"])
    if told.get("requests") and "kv_blocks" not in told:
        values.setdefault("kv_cache_tokens", told["request_tokens"] * told["requests"])
    if told.get("kv_blocks") and "kv_cache_tokens" not in values:
        values["kv_cache_tokens"] = told["kv_blocks"] * PAGE
        notes.append(f"blocks of {PAGE} tokens assumed, the engine's default")
    if not values:
        return None
    notes += [*_bursts(told), *_engines(found.figures.get("kv_cache_tokens", ()))]
    if "concurrency" in asked:
        asked.pop("rate", None)
    kind = "serving benchmark" if any(key in values for key in SERVED) else "engine log"
    return Measurement(
        plan=job.plan,
        asked={**job.asked, **asked},
        stated=job.stated,
        values=values,
        source=f"{name} ({kind})",
        notes=tuple(notes),
    )


def _engines(sizes: Sequence[float]) -> Iterator[str]:
    """Whether a log has engines of several sizes."""
    others = [size for size in dict.fromkeys(sizes) if abs(size - sizes[0]) > ALIKE * sizes[0]]
    if others:
        some = ", ".join(f"{size:,.0f}" for size in others[:4])
        yield f"of several engines the first counts; others hold {some} tokens"


def _bursts(told: Mapping[str, float]) -> Iterator[str]:
    """Whether a mean hides that few requests wait long."""
    mean, middle = told.get("ttft_ms", 0.0), told.get("median_ttft_ms", 0.0)
    if middle > 0.0 and mean > BURST * middle:
        yield (
            f"the mean TTFT is {mean / middle:.1f} x the median ({middle:,.0f} ms): requests that start "
            "together wait for each other's prompts; warm up, or start clients apart"
        )


def _engine(figures: Mapping[str, list[float]], asked: dict[str, Any]) -> dict[str, float]:
    """Rate and step of an engine from its own lines, where it is loaded."""
    pairs = list(zip(figures["running"], figures["engine_tokens_per_s"], strict=False))
    most = max(running for running, _ in pairs)
    loaded = [(n, rate) for n, rate in pairs if rate > 0.0 and n > 0.0 and n >= STEADY_LOAD * most]
    if not loaded:
        return {}
    asked.setdefault("concurrency", round(median(n for n, _ in loaded)))
    return {
        "output_tokens_per_s": median(rate for _, rate in loaded),
        DECODED: median(n / rate for n, rate in loaded),
    }


def _chips(rows: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Power of a chip at work, or idle, and the most memory in use."""
    if not rows:
        return {}, ()
    known = [row["busy"] for row in rows if "busy" in row]
    busy = [row for row in rows if row.get("busy", 1.0) >= BUSY] if known else list(rows)
    watts = [row["watts"] for row in (busy or rows) if row.get("watts", 0.0) > 0.0]
    found: dict[str, float] = {}
    if watts:
        found["power_watts" if busy else "idle_watts"] = sum(watts) / len(watts)
    used = [row["used_bytes"] for row in rows if row.get("used_bytes", 0.0) > 0.0]
    if used and busy:
        found["memory_used_bytes"] = max(used)
    notes = (
        ()
        if busy
        else ("the chips were idle when they were watched: their power is not that of the run",)
    )
    return found, notes
