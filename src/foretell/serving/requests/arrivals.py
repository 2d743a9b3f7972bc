"""Requests by chance: lengths and arrivals from a seed, or from a file of those that were."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foretell.errors import BadInput, Problem
from foretell.interop.user_files import user_file
from foretell.records import dataclass
from foretell.serving.requests.records import Requests

Array = NDArray[np.float64]
Kind = Literal["closed", "poisson", "gamma", "burst"]
KINDS: tuple[Kind, ...] = ("closed", "poisson", "gamma", "burst")
Shape = Literal["fixed", "uniform", "exponential", "lognormal"]
SHAPES: tuple[Shape, ...] = ("fixed", "uniform", "exponential", "lognormal")
LOGNORMAL_SIGMA = 1.0
"""Spread of the logarithm of a lognormal length: answers of public chat logs have 0.9 to 1.2."""
GAMMA_CV = 2.0
"""Standard deviation of a gamma gap over its mean: bursty, as public service logs are."""
BURST_SIZE, BURST_SHARE = 32, 0.05
"""Requests that come at once in bursts, and the spread of a burst over the gap between bursts."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "at_s": ("at_s", "arrival_s", "arrived_at", "timestamp", "TIMESTAMP", "time"),
    "isl": (
        "isl",
        "prompt_tokens",
        "num_prefill_tokens",
        "ContextTokens",
        "input_tokens",
        "input_length",
    ),
    "osl": ("osl", "output_tokens", "num_decode_tokens", "GeneratedTokens", "output_length"),
    "prefix": ("prefix", "prefix_id", "session"),
    "prefix_tokens": ("prefix_tokens",),
    "priority": ("priority", "class"),
}
"""Columns of a trace -> the names under which public traces have them."""


MOST, LATEST = 1e9, 1e19
"""Largest length or number of a row, and largest moment: some logs count nanoseconds."""
LARGEST_BYTES = 1 << 30
"""A larger file is no list of requests that could be played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of prompts or answers."""

    mean: float
    """Mean, or the whole length of a uniform one."""
    shape: Shape = "fixed"
    """fixed; uniform between `least` x mean and mean; exponential; lognormal."""
    least: float = 0.8
    """Smallest share of a uniform length."""

    def draw(self, rng: np.random.Generator, many: int) -> list[int]:
        """So many whole lengths, each at least 1."""
        found = np.full(many, self.mean)
        match self.shape:
            case "uniform":
                found = rng.uniform(self.least * self.mean, self.mean, many)
            case "exponential":
                found = rng.exponential(self.mean, many)
            case "lognormal":
                middle = np.log(self.mean) - 0.5 * LOGNORMAL_SIGMA**2
                found = rng.lognormal(middle, LOGNORMAL_SIGMA, many)
        return [int(n) for n in np.maximum(np.rint(found), 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """How requests come."""

    kind: Kind = "closed"
    """closed: an answer brings the next; poisson: independent; gamma: bursty; burst: many at once."""
    concurrency: int = 1
    """Requests in flight of a closed loop."""
    rate: float = 1.0
    """Requests a second of the others."""


def draw_requests(arrivals: Arrivals, isl: Lengths, osl: Lengths, many: int, seed: int) -> Requests:
    """So many requests; the same for the same seed."""
    rng = np.random.default_rng(seed)
    prompts, answers = isl.draw(rng, many), osl.draw(rng, many)
    if arrivals.kind == "closed":
        return Requests(isl=prompts, osl=answers, concurrency=arrivals.concurrency)
    gaps = _gaps(arrivals, rng, many)
    return Requests(isl=prompts, osl=answers, at_s=np.cumsum(gaps).tolist())


def _gaps(arrivals: Arrivals, rng: np.random.Generator, many: int) -> Array:
    """Seconds from one request to the next, 1 / rate on the mean."""
    mean = 1.0 / arrivals.rate
    if arrivals.kind == "burst":
        inside = BURST_SHARE * mean
        gaps = np.full(many, inside)
        gaps[::BURST_SIZE] = BURST_SIZE * mean - (BURST_SIZE - 1) * inside
        gaps[0] = 0.0
        return gaps
    shape = 1.0 / GAMMA_CV**2 if arrivals.kind == "gamma" else 1.0
    gaps = rng.gamma(shape, mean / shape, many)
    # Few draws miss their mean by some percent, and another load would be played than was asked about.
    return np.asarray(gaps * (many * mean / gaps.sum()))


def read_trace(path: str | Path) -> Requests:
    """Requests of a CSV or JSONL file, its columns under our names or those of public traces."""
    file = user_file(path, "arrivals", ", ".join(KINDS))
    if not file.is_file():
        raise BadInput(
            [_problem("arrivals", str(path), "there is no such file", "a CSV or JSONL file")]
        )
    text = _text(file)
    rows = _json_rows(text) if file.suffix in (".jsonl", ".json") else _csv_rows(text)
    if not rows:
        raise BadInput([_problem("arrivals", str(path), "it has no requests", "at least one row")])
    names = {key: _column(rows[0], key) for key in NAMES}
    missing = [key for key in ("isl", "osl") if names[key] is None]
    if missing:
        raise BadInput(
            [
                _problem(key, sorted(map(str, rows[0])), "no such column", " or ".join(NAMES[key]))
                for key in missing
            ]
        )
    return _requests(rows, names, str(path))


def _requests(
    rows: Sequence[Mapping[str, Any]], names: Mapping[str, str | None], path: str
) -> Requests:
    problems: list[Problem] = []
    found: dict[str, list[float]] = {key: [] for key, name in names.items() if name is not None}
    for number, row in enumerate(rows, start=1):
        for key, column in found.items():
            value = _number(row.get(names[key] or ""), key)
            least = 1.0 if key in ("isl", "osl") else -1.0 if key == "prefix" else 0.0
            most = LATEST if key == "at_s" else MOST
            if value is None or not least <= value <= most:
                problems.append(
                    _problem(
                        f"{path}:{number}.{key}", row.get(names[key] or ""),
                        "not a number that it can be", f"{least:g} to {most:g}",
                    )
                )  # fmt: skip
                value = 1.0
            column.append(value)
    if problems:
        raise BadInput(problems[:20])
    at = found.get("at_s")
    order = np.argsort(at, kind="stable") if at is not None else np.arange(len(rows))
    first = min(at) if at is not None else 0.0

    def whole(key: str) -> list[int] | None:
        return [int(found[key][i]) for i in order] if key in found else None

    return Requests(
        isl=whole("isl") or [],
        osl=whole("osl") or [],
        at_s=None if at is None else [at[i] - first for i in order],
        prefix=whole("prefix") if "prefix_tokens" in found else None,
        prefix_tokens=whole("prefix_tokens") if "prefix" in found else None,
        priority=whole("priority"),
    )


def _number(value: object, key: str) -> float | None:
    """A number; a moment may be a date with a time."""
    try:
        found = float(str(value))
    except ValueError:
        if key != "at_s":
            return None
        try:
            found = float(np.datetime64(str(value).strip(), "us").astype(np.int64)) * 1e-6
        except ValueError:
            return None
    return found if np.isfinite(found) else None


def _column(row: Mapping[str, Any], key: str) -> str | None:
    return next((name for name in NAMES[key] if name in row), None)


def _text(file: Path) -> str:
    """The content of a file; BadInput where it is too large or no text."""
    try:
        if file.stat().st_size > LARGEST_BYTES:
            message = f"is larger than {LARGEST_BYTES} bytes"
            raise BadInput([_problem("arrivals", str(file), message, "fewer requests")])
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput([_problem("arrivals", str(file), "is not text in UTF-8", "text")]) from None
    except OSError as error:
        said = f"cannot be read: {error.strerror or error}"
        raise BadInput([_problem("arrivals", str(file), said, "a CSV or JSONL file")]) from None


def _csv_rows(text: str) -> list[dict[str, Any]]:
    try:
        return list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise BadInput([_problem("arrivals", None, f"is not CSV: {error}", "a table")]) from None


def _json_rows(text: str) -> list[dict[str, Any]]:
    rows, problems = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (
            ValueError,
            RecursionError,
        ) as error:  # numbers of thousands of digits, deep nesting
            problems.append(_problem(f"line {number}", line[:60], str(error), "one object a line"))
            continue
        if isinstance(row, dict):
            rows.append(row)
        else:
            problems.append(
                _problem(f"line {number}", line[:60], "not an object", "one object a line")
            )
    if problems:
        raise BadInput(problems[:20])
    return rows


def _problem(path: str, value: object, message: str, allowed: str) -> Problem:
    return Problem(path=path, value=value, message=message, allowed=allowed)
