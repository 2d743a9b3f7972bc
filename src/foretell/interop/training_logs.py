"""Logs of training programs: the time of every step, with what else its lines print.

Megatron-LM and Megatron-Core, torchtitan, DeepSpeed, nanotron, MaxText, Hugging Face Trainer. A log becomes a
`Measurement`: the median of its steady steps, warm-up and outliers told apart and said, the plan and job as
far as the log prints them. What is not understood is not guessed.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from foretell.errors import BadInput
from foretell.interop.tools import read_arguments
from foretell.interop.whole_numbers import whole_number
from foretell.records import dataclass
from foretell.specs.measurement import MEASURED_MEMORY, Measurement

GIB, GB = 2.0**30, 1e9
OUTLIER = 5.0
"""Steps so many robust deviations above the median are told apart."""
LEAST_SPREAD = 0.002
"""No log is steadier than this share of its step."""
WARM = 1.1
"""A leading step longer than the median by this factor belongs to the warm-up."""
FEW = 3
"""Rates of a log from which warm-up and outliers are told apart."""
MOST_WARM = 0.3
"""At most this share of a log is warm-up."""


class LogLine(NamedTuple):
    """What one line of a log says of one step; None where it does not."""

    step_s: float | None = None
    values: dict[str, float] = {}
    samples_per_s: float | None = None
    global_batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """One program's lines."""

    name: str
    """The program."""
    line: Callable[[str], LogLine | None]
    """What a line says; None where it is not a line of a step."""


def _scaled(text: str) -> float:
    """A number such as 1,234.5 or 1.52K."""
    text = text.replace(",", "")
    factor = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}.get(text[-1:].upper(), 1.0)
    return float(text[:-1] if factor != 1.0 else text) * factor


NUMBER = r"([0-9][0-9,]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?(?:[KMBGT](?![A-Za-z]))?)"


def _fields(line: str, names: Mapping[str, str]) -> dict[str, float]:
    """Numbers of a line that stand behind some words."""
    found = {}
    for words, name in names.items():
        match = re.search(words + r"\s*[:=]?\s*" + NUMBER, line)
        if match and math.isfinite(value := _scaled(match[1])):
            found[name] = value
    return found


def _megatron(line: str) -> LogLine | None:
    told = _fields(
        line,
        {
            r"elapsed time per iteration \(ms\)": "ms",
            r"throughput per GPU \(TFLOP/s/GPU\)": "tflops_per_gpu",
            r"TFLOPs": "tflops_per_gpu",
            r"global batch size": "batch",
        },
    )
    if "ms" in told:
        values = {k: v for k, v in told.items() if k == "tflops_per_gpu"}
        batch = int(told["batch"]) if "batch" in told else None
        return LogLine(step_s=told["ms"] * 1e-3, values=values, global_batch=batch)
    found = {
        f"{name}_bytes": _scaled(memory[1]) * 2.0**20
        for name in ("reserved", "allocated")
        if (memory := re.search(rf"memory \(MB\).*max {name}:\s*" + NUMBER, line))
    }
    return LogLine(values=found) if found else None


def _torchtitan(line: str) -> LogLine | None:
    if not re.search(r"step:\s*[0-9]+\s+.*(tps|wps):", line):
        return None
    told = _fields(
        line, {"tps": "tokens_per_s_per_gpu", "wps": "tokens_per_s_per_gpu",
               "tflops": "tflops_per_gpu", "mfu": "mfu", "memory": "gib"},
    )  # fmt: skip
    if "gib" in told:
        told["reserved_bytes"] = told.pop("gib") * GIB
    if "mfu" in told:
        told["mfu"] *= 0.01
    return LogLine(values=told)


def _deepspeed(line: str) -> LogLine | None:
    rate = re.search(r"CurrSamplesPerSec\s*=\s*" + NUMBER, line)
    if rate is None:
        return None
    memory = re.search(r"MaxMemAllocated\s*=\s*" + NUMBER + r"\s*GB", line)
    values = {"allocated_bytes": _scaled(memory[1]) * GIB} if memory else {}
    return LogLine(samples_per_s=_scaled(rate[1]), values=values)


def _nanotron(line: str) -> LogLine | None:
    told = _fields(
        line,
        {
            "elapsed_time_per_iteration_ms": "ms",
            "tokens_per_sec_per_gpu": "tokens_per_s_per_gpu",
            "model_tflops_per_gpu": "tflops_per_gpu",
            "global_batch_size": "batch",
        },
    )
    if "ms" not in told:
        return None
    rates = ("tokens_per_s_per_gpu", "tflops_per_gpu")
    values: dict[str, float] = {name: told[name] for name in rates if name in told}
    # Its "global_batch_size" counts tokens.
    return LogLine(step_s=told["ms"] * 1e-3, values=values)


def _maxtext(line: str) -> LogLine | None:
    told = _fields(
        line, {"seconds": "s", "TFLOP/s/device": "tflops_per_gpu", "Tokens/s/device": "rate"}
    )
    if not re.search(r"completed step: [0-9]+", line) or "s" not in told:
        return None
    values = {"tflops_per_gpu": told["tflops_per_gpu"]} if "tflops_per_gpu" in told else {}
    if "rate" in told:
        values["tokens_per_s_per_gpu"] = told["rate"]
    return LogLine(step_s=told["s"], values=values)


def _trainer(line: str) -> LogLine | None:
    each = re.search(r"\|\s*[0-9]+/[0-9]+ \[.*?([0-9.]+)(s/it|it/s)", line)
    if each:
        number = float(each[1])
        return LogLine(step_s=number if each[2] == "s/it" else 1.0 / max(number, 1e-12))
    text = line.strip()
    if not (text.startswith("{") and "train_steps_per_second" in text):
        return None
    try:
        told = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    rate = float(told.get("train_steps_per_second", 0.0))
    return LogLine(step_s=1.0 / rate) if rate > 0.0 else None


FORMATS = (
    LogFormat(name="nanotron", line=_nanotron),
    LogFormat(name="Megatron-LM", line=_megatron),
    LogFormat(name="torchtitan", line=_torchtitan),
    LogFormat(name="DeepSpeed", line=_deepspeed),
    LogFormat(name="MaxText", line=_maxtext),
    LogFormat(name="Hugging Face Trainer", line=_trainer),
)
"""Programs whose logs are read; the one with the most lines of steps counts."""


def log_measurement(text: str, name: str) -> Measurement | None:
    """The measurement of a log; None where no program's lines are in it."""
    lines = text.splitlines()
    read = {known.name: [one for line in lines if (one := known.line(line))] for known in FORMATS}
    program = max(read, key=lambda key: len(read[key]))
    found = read[program]
    if not found:
        return None
    asked, plan, notes = _arguments(lines)
    batch = next((one.global_batch for one in found if one.global_batch), None)
    if batch is not None:
        asked.setdefault("global_batch", batch)
    times = [one.step_s for one in found if one.step_s]
    rates = [one.samples_per_s for one in found if one.samples_per_s]
    if not times and rates and "global_batch" in asked:
        times = [asked["global_batch"] / rate for rate in rates]
    steady = steady_steps(times)
    values = _medians([one.values for one in found])
    if times:
        values = {k: v for k, v in values.items() if k in MEASURED_MEMORY}
        values["step_s"] = steady.median_s
        notes = (*notes, *steady.notes)
    elif (rates := _rates([one.values for one in found])) and len(rates) >= FEW:
        # Seconds of a token on one GPU, which go with the step's.
        times = [1.0 / rate for rate in rates]
        steady = steady_steps(times)
        held = {k: v for k, v in values.items() if k in MEASURED_MEMORY}
        values = {**held, "tokens_per_s_per_gpu": 1.0 / steady.median_s}
        notes = (*notes, *steady.notes)
    elif not values:
        notes = (*notes, "samples per second without a global batch: give global_batch=N")
    noise = steady.noise if times else 0.02
    return Measurement(
        plan=plan,
        asked=asked,
        values=values,
        noise=noise,
        steps_s=tuple(times),
        source=f"{name} ({program})",
        notes=notes,
    )


def _medians(told: list[dict[str, float]]) -> dict[str, float]:
    """The largest memory, and medians of rates after the first tenth."""
    found = {}
    for name in dict.fromkeys(key for one in told for key in one):
        column = [one[name] for one in told if name in one]
        skip = len(column) // 10
        found[name] = max(column) if name in MEASURED_MEMORY else float(np.median(column[skip:]))
    return found


def _rates(told: list[dict[str, float]]) -> list[float]:
    """Tokens a second of one GPU, of every step that prints them."""
    rates = [one["tokens_per_s_per_gpu"] for one in told if "tokens_per_s_per_gpu" in one]
    return [rate for rate in rates if rate > 0.0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadySteps:
    """The steps of a log without its warm-up and outliers."""

    median_s: float
    """Median of the steady steps."""
    noise: float
    """Relative standard deviation of that median."""
    warm: int
    """Steps of the warm-up."""
    slow: tuple[int, ...]
    """Outliers, by their place in the log."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, as sentences."""
        said = []
        if self.warm:
            said.append(f"warm-up skipped: the first {self.warm} steps")
        if self.slow:
            said.append(f"outliers skipped: {len(self.slow)} steps far above the median")
        return tuple(said)


def steady_steps(times: list[float]) -> SteadySteps:
    """Warm-up and outliers of a series of step times, and the median of the rest."""
    if not times:
        return SteadySteps(median_s=0.0, noise=0.0, warm=0, slow=())
    series = np.array(times)
    middle = float(np.median(series[len(series) // 3 :]))
    warm, most = 0, int(MOST_WARM * len(series))
    while warm < most and series[warm] > WARM * middle:
        warm += 1
    rest = series[warm:]
    median = float(np.median(rest))
    spread = max(1.4826 * float(np.median(np.abs(rest - median))), LEAST_SPREAD * median)
    out = np.abs(rest - median) > OUTLIER * spread
    kept = rest[~out] if (~out).any() else rest
    noise = 1.253 * float(kept.std()) / (median * np.sqrt(len(kept)))
    return SteadySteps(
        median_s=float(np.median(kept)),
        noise=noise if len(kept) > 1 else 0.02,
        warm=warm,
        slow=tuple((np.flatnonzero(out) + warm).tolist()),
    )


ARGUMENT = re.compile(r"^\s*(?:\S+:\s*)?([a-z][a-z0-9_]+) \.{3,} (.+?)\s*$")
"""A line of the arguments that Megatron-LM prints."""


def _arguments(lines: list[str]) -> tuple[dict[str, Any], str, tuple[str, ...]]:
    """Job and plan of the arguments that a log prints; nothing where it prints none."""
    told = {m[1]: m[2] for line in lines if " ..." in line and (m := ARGUMENT.match(line))}
    if "tensor_model_parallel_size" not in told:
        return {}, "", ()
    words = []
    for name, value in told.items():
        if name in ("world_size", "rank", "local_rank") or value in ("None", "False", "[]", ""):
            continue
        flag = f"--{name.replace('_', '-')}"
        words.append(flag if value == "True" else f"{flag} {value}")
    try:
        launch = read_arguments("pretrain_gpt.py " + " ".join(words), None, "megatron")
    except BadInput as error:
        return {}, "", tuple(f"arguments not read: {p.message}" for p in error.problems)
    asked = {"global_batch": launch.global_batch, "seq_len": launch.seq_len}
    asked["gpus"] = whole_number(told.get("world_size", ""))
    return {k: v for k, v in asked.items() if v}, launch.plan, ()
