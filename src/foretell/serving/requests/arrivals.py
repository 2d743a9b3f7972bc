"""Requests by chance: lengths and arrivals from a seed, or lengths from a file (`--lengths SHAPE|FILE`).

A file has one answer length a line, or lines of JSON or columns of CSV with the names of traces (`osl`,
`output_tokens`, `response_length` ...; `isl`, `prompt_tokens` ... for prompts, which may be left out).
"""

import csv
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from foretell.errors import bad_input, nearest_name
from foretell.interop.user_files import user_file, user_text
from foretell.records import dataclass
from foretell.serving.requests.records import Requests
from foretell.serving.requests.sessions import conversations, turns_of
from foretell.serving.requests.traces import NAMES
from foretell.specs.arrays import Array
from foretell.specs.service import SHAPES, LengthForm, LengthShape
from foretell.units import SMALLEST, as_number

Kind = Literal["closed", "poisson", "gamma", "burst"]
KINDS: tuple[Kind, ...] = ("closed", "poisson", "gamma", "burst")
LOGNORMAL_SIGMA = 1.0
"""Spread of the logarithm of a lognormal length: answers of public chat logs have 0.9 to 1.2."""
GAMMA_CV = 2.0
"""Standard deviation of a gamma gap over its mean: bursty, as public service logs are."""
BURST_SIZE, BURST_SHARE = 32, 0.05
"""Requests that come at once in bursts, and the spread of a burst over the gap between bursts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of prompts or answers."""

    mean: float
    """Mean, or the whole length of a uniform one."""
    shape: LengthShape = "fixed"
    """fixed; uniform between `least` x mean and mean; exponential; lognormal."""
    least: float = 0.8
    """Smallest share of a uniform length."""
    samples: tuple[float, ...] = ()
    """Lengths of a file, in the place of mean and shape; dealt evenly, in an order by chance."""

    def draw(self, rng: np.random.Generator, many: int) -> list[int]:
        """So many whole lengths, each at least 1."""
        if self.samples:
            order = rng.permutation(np.arange(many) * len(self.samples) // max(many, 1))
            return [max(round(self.samples[i]), 1) for i in order]
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
    if isl.samples and osl.samples:
        # Prompt and answer of one request of a file stay together.
        prompts, answers = (one.draw(np.random.default_rng(seed), many) for one in (isl, osl))
    else:
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
    # Few draws miss their mean by some percent, and another load would be simulated than was asked about.
    return np.asarray(gaps * (many * mean / gaps.sum()))


ANSWERS = (*NAMES["osl"], "response_length", "completion_tokens", "length")
"""Names under which a file may have an answer's length."""
PROMPTS = (*NAMES["isl"], "prompt_length")
"""The same of a prompt's."""
ALLOWED = f"{', '.join(SHAPES)}, or a file with one length a line, .csv or .jsonl"
MOST_KEPT = 4096
"""Requests of a file that are kept, evenly over their answers' lengths."""


def read_lengths(given: str, field: str = "lengths") -> LengthForm:
    """The form that a shape's name or a file's name stands for; BadInput where it is neither."""
    shape = next((one for one in SHAPES if one == given), None)
    if shape is not None:
        return LengthForm(shape=shape)
    if not any(mark in given for mark in "./\\"):
        near = nearest_name(given, SHAPES)
        raise bad_input(field, given, "is neither a shape nor a file", ALLOWED, near)
    file = user_file(given, field, ALLOWED)
    if not file.is_file():
        raise bad_input(field, given, "is neither a shape nor a file", ALLOWED)
    rows = [row for row in _rows(user_text(file, field)) if row[0] > 0]
    if not rows:
        message = "has no lengths: one number a line, or columns or JSON lines with osl or response_length"
        raise bad_input(field, given, message)
    return _form(rows)


def _form(rows: list[tuple[float, float]]) -> LengthForm:
    """Answers and prompts of a file, thinned evenly where there are very many."""
    if len(rows) > MOST_KEPT:
        ordered = sorted(rows)
        picked = np.linspace(0, len(rows) - 1, MOST_KEPT).round().astype(int)
        rows = [ordered[i] for i in picked]
    prompts = tuple(prompt for _, prompt in rows)
    return LengthForm(
        answers=tuple(answer for answer, _ in rows),
        prompts=prompts if all(prompt > 0 for prompt in prompts) else (),
    )


def _rows(text: str) -> list[tuple[float, float]]:
    """Answer and prompt of every line that has one; 0 where there is none."""
    if text.lstrip().startswith("["):
        return _conversation_rows(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and "," in lines[0] and not lines[0].startswith("{"):
        with suppress(csv.Error):  # cells without end
            head = next(csv.reader(lines[:1]))
            if any(name.strip() in ANSWERS for name in head):
                table = csv.DictReader(lines)
                return [_pair({(k or "").strip(): v for k, v in row.items()}) for row in table]
    return [_line(line) for line in lines]


def _conversation_rows(text: str) -> list[tuple[float, float]]:
    """Answer and prompt of every request of a JSON list: rows, or the turns of conversations."""
    try:
        table = [row for row in json.loads(text) if isinstance(row, dict)]
    except (ValueError, RecursionError):
        return []
    if table and turns_of(table[0]) is not None:
        found = conversations(table)
        return [(float(o), float(i)) for o, i in zip(found.osl, found.isl, strict=True)]
    return [_pair(row) for row in table]


def _line(line: str) -> tuple[float, float]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return 0.0, 0.0
    return _pair(value) if isinstance(value, dict) else ((as_number(value, SMALLEST) or 0.0), 0.0)


def _pair(row: Mapping[str, Any]) -> tuple[float, float]:
    answer = next((row[name] for name in ANSWERS if name in row), None)
    prompt = next((row[name] for name in PROMPTS if name in row), None)
    return (as_number(answer, SMALLEST) or 0.0), (as_number(prompt, SMALLEST) or 0.0)
