"""Measured runs as they are given: files, pasted text, inline words and rows -> Measurements.

A gate of two sides (`check_plausible`) is in front of what learns from them: a number far from its
prediction is not believed to be of it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.inputs.question import collect
from foretell.interop.log_lines import is_device_head
from foretell.interop.log_reader import log_measurements, refusal
from foretell.interop.measurements import (
    csv_measurements,
    inline_measurement,
    json_measurements,
    read_words,
    row_measurement,
)
from foretell.interop.post_training_logs import step_measurement
from foretell.interop.run_results import (
    benchmark_measurement,
    characterize_measurements,
    trace_measurement,
)
from foretell.interop.user_files import is_there, user_file
from foretell.specs.measurement import Measurement

LARGEST_BYTES = 1 << 26
"""A longer log is refused."""
MANY = 20
"""Lines that are none, without any that is, from which a text is no list of measurements."""
ENDINGS = (".csv", ".jsonl", ".json", ".log", ".txt", ".out")
"""Names that can only be files."""

MeasuredGiven = str | Path | Mapping[str, Any] | Measurement
"""One entry of `measured`."""


def read_measured(given: MeasuredGiven | Sequence[MeasuredGiven]) -> list[Measurement]:
    """Every measured run of what was given; BadInput with every problem."""
    many = [given] if isinstance(given, str | Path | Mapping | Measurement) else list(given)
    found: list[Measurement] = []
    problems: list[Problem] = []
    for place, one in enumerate(many):
        try:
            found += _read(one, f"measured.{place}" if len(many) > 1 else "measured")
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    return found


def _read(one: MeasuredGiven, path: str) -> list[Measurement]:
    if isinstance(one, Measurement):
        return [one]
    if isinstance(one, Mapping):
        if isinstance(one.get("text"), str):
            return text_measurements(one["text"], path)
        found = benchmark_measurement(one, path) or row_measurement(one, path)
        if not found.values and not found.phases:
            raise bad_input(path, None, "has no measured number")
        return [found]
    name = str(one)
    if isinstance(one, Path) or (
        len(name) < 1000 and "\n" not in name and is_there(name, folder=False)
    ):
        return text_measurements(_content(Path(name)), name)
    words, colon, file = name.rpartition(": ")
    if colon and len(name) < 1000 and "\n" not in name and is_there(file.strip(), folder=False):
        return with_words(words, _read(Path(file.strip()), path))
    if "\n" not in name and name.strip().lower().endswith(ENDINGS) and " " not in file.strip():
        user_file(name, path)
        raise bad_input(path, name, "there is no such file")
    return text_measurements(name, path)


def with_words(words: str, found: Sequence[Measurement]) -> list[Measurement]:
    """Measurements of a file with what the words before its name tell: "zero3 mbs1: run.log"."""
    asked, plan = read_words(words)
    return [replace(one, plan=plan or one.plan, asked={**one.asked, **asked}) for one in found]


def _content(path: Path) -> str:
    from foretell.catalog.files import read_bytes

    user_file(str(path), "measured")
    try:
        return read_bytes(path).decode("utf-8-sig", errors="replace")
    except (OSError, EOFError) as error:
        raise bad_input("measured", str(path), f"cannot be read: {error}") from None


def text_measurements(text: str, name: str) -> list[Measurement]:
    """Measurements of a text: JSON, CSV, a log, or inline words, one measurement a line."""
    loop = step_measurement(text, name)
    if loop is not None:
        return [loop]
    start = text.lstrip()[:1]
    if start == "{" and (whole := _whole_json(text)) is not None:
        found = benchmark_measurement(whole, name) or trace_measurement(whole, name)
        if found is None and (points := characterize_measurements(whole, name)) is not None:
            return points
        return [found] if found is not None else _json_rows(json.dumps(whole), name)
    first = text.strip().partition("\n")[0]
    # A log may begin with [rank0]:, a date in brackets, or a dict as Python prints it.
    listed = start == "[" and re.match(r"\[\s*[{\]]", text.lstrip()) is not None
    if listed or (start == "{" and not first.startswith("{'")):
        lines = [json.loads(line) for line in text.splitlines() if _is_json(line)]
        tests = [benchmark_measurement(line, name) for line in lines if isinstance(line, dict)]
        if tests and all(tests):
            return [one for one in tests if one is not None]
        return _json_rows(text, name)
    following = text.strip().partition("\n")[2].lstrip().partition("\n")[0]
    table = "," in first and not re.search(r"[:{}=]", first) and "," in following
    if table and not is_device_head(first):
        return csv_measurements(text, name)
    return log_measurements(text, name) or _typed_lines(text, name)


def _json_rows(text: str, name: str) -> list[Measurement]:
    """Rows of JSON, or where they have no measured number the log that such lines are."""
    try:
        return json_measurements(text, name)
    except BadInput:
        found = log_measurements(text, name)
        if found is None:
            raise
        return found


def _typed_lines(text: str, name: str) -> list[Measurement]:
    """Measurements as a user types them, one a line; where most are none, what comes nearest is reported."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found, problems = list[Measurement](), list[Problem]()
    for line in lines:
        if len(problems) > MANY and not found:
            break
        if not line.startswith("#"):
            one = collect(lambda line=line: inline_measurement(line, name), problems)  # type: ignore[misc]
            found += [] if one is None else [one]
    if len(problems) > len(found) and len(lines) > 1:
        raise refusal(text, name)
    if problems:
        raise BadInput(problems)
    return found


def _whole_json(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return bool(line.strip())


FAR_STEP, FAR_SERVICE = 100.0, 300.0
"""How many times more or less than predicted is believed: of a training step, and of a service, whose first
tokens may wait in a queue."""


def check_plausible(
    source: str, figures: Mapping[str, tuple[float, float]], far: float = FAR_STEP
) -> None:
    """BadInput with every figure (measured, predicted) that is too far from its prediction to be of it."""
    problems = []
    for name, (measured, predicted) in figures.items():
        if predicted <= 0.0 or predicted / far <= measured <= predicted * far:
            continue
        message = (
            f"{measured:.4g} is not believed where {predicted:.4g} is predicted; likely it is in "
            "another unit, or of another batch, sequence length, model or number of GPUs"
        )
        allowed = f"{predicted / far:.3g} to {predicted * far:.3g}"
        problems.append(wrong(name, source, message, allowed))
    if problems:
        raise BadInput(problems)
