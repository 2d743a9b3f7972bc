"""How requests are to be simulated, read from names and texts; every problem at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from foretell.errors import BadInput, Problem, nearest_name
from foretell.serving.requests.arrivals import KINDS
from foretell.serving.requests.autoscaler import read_autoscale
from foretell.serving.requests.lengths import read_lengths
from foretell.serving.requests.records import Requests
from foretell.serving.requests.sessions import read_sessions
from foretell.serving.requests.tiers import read_tiers
from foretell.serving.requests.traces import read_trace
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulation import Play

CHOICES: Mapping[str, Sequence[str]] = {
    "routing": ("round-robin", "least-loaded", "prefix-aware", "sticky"),
    "trace_unit": ("s", "ms", "us", "ns"),
    "preemption": ("recompute", "swap"),
}
"""Options that are one of some words."""
COUNTS: Mapping[str, tuple[int, int]] = {
    "requests": (1, 10_000_000),
    "seed": (0, 2**32 - 1),
    "prefixes": (1, 10_000_000),
    "prefix_tokens": (1, 10_000_000),
    "block_tokens": (1, 1_000_000),
}
"""Options that are whole numbers, and between what."""
LEVELS = ("ttft_ms", "tpot_ms")
"""Options that are milliseconds."""
TEXTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "sessions": ("sessions", read_sessions),
    "kv_tiers": ("tiers", read_tiers),
    "autoscale": ("autoscale", read_autoscale),
    "lengths": ("lengths", read_lengths),
}
"""Options that are words of their own -> the field that they fill, and who reads them."""
NAMES = (*TEXTS, *CHOICES, *COUNTS, *LEVELS, "arrivals")


def read_play(options: Mapping[str, Any], q: ServeQuestion) -> tuple[Play, Requests | None]:
    """The way of simulating, and the requests of a trace where one is named."""
    problems: list[Problem] = [
        _problem(name, value, "unknown option", ", ".join(NAMES), nearest_name(name, NAMES))
        for name, value in options.items()
        if name not in NAMES
    ]
    values: dict[str, Any] = {}
    for name, words in CHOICES.items():
        if name in options:
            values[name] = _word(name, options[name], words, problems)
    for name, limits in COUNTS.items():
        if name in options:
            values[name] = _count(name, options[name], limits, problems)
    for name in LEVELS:
        if name in options:
            values[name] = _level(name, options[name], problems)
    for name, (field, read) in TEXTS.items():
        if name in options:
            try:
                values[field] = read(str(options[name]))
            except BadInput as error:
                problems += error.problems
    values["arrivals"] = _arrivals(options, q, problems)
    if values.get("sessions") is not None and q.rate is None:
        problems.append(
            _problem("sessions", options["sessions"], "begin at a rate of requests", "--rate")
        )
    if ("prefixes" in options) != ("prefix_tokens" in options):
        problems.append(
            _problem("prefixes", options.get("prefixes"), "--prefixes and --prefix-tokens belong "
                     "together", "both or none")
        )  # fmt: skip
    if problems:
        raise BadInput(problems)
    trace = None
    if values["arrivals"] not in KINDS:
        trace = read_trace(values["arrivals"], values.get("trace_unit"), values.get("block_tokens"))
        if trace.at_s is None and q.rate is not None:
            raise BadInput([_problem("arrivals", values["arrivals"], "the trace has no arrivals: "
                                     "it is simulated in a closed loop", "--concurrency")])  # fmt: skip
        values["arrivals"] = "trace"
        if trace.at_s is None:
            trace = replace(trace, concurrency=max(round(float(q.traffic.concurrency)), 1))
    known = {f.name for f in fields(Play)}
    return Play(**{name: value for name, value in values.items() if name in known}), trace


def _arrivals(options: Mapping[str, Any], q: ServeQuestion, problems: list[Problem]) -> str:
    """How requests come: poisson where a rate is given, else a closed loop."""
    given = options.get("arrivals")
    if given is None:
        return "closed" if q.rate is None else "poisson"
    kind = str(given)
    if kind.endswith((".csv", ".jsonl", ".json")):
        return kind
    if kind not in KINDS:
        allowed = f"{', '.join(KINDS)}, or a .csv or .jsonl file"
        problems.append(_problem("arrivals", kind, "unknown", allowed, nearest_name(kind, KINDS)))
    elif (kind == "closed") != (q.rate is None):
        wanted = "--concurrency" if kind == "closed" else "--rate"
        problems.append(_problem("arrivals", kind, "does not go with the load given", wanted))
    return kind


def _word(name: str, value: object, words: Sequence[str], problems: list[Problem]) -> object:
    if value not in words:
        problems.append(
            _problem(name, value, "unknown", ", ".join(words), nearest_name(str(value), words))
        )
    return value


def _count(name: str, value: object, limits: tuple[int, int], problems: list[Problem]) -> int:
    low, high = limits
    try:
        found = int(str(value))
    except ValueError:
        found = low - 1
    if not low <= found <= high:
        problems.append(_problem(name, value, "not a usable number", f"{low} to {high}"))
        return low
    return found


def _level(name: str, value: object, problems: list[Problem]) -> float:
    try:
        found = float(str(value))
    except ValueError:
        found = 0.0
    if not 0.0 < found < 1e12:
        problems.append(_problem(name, value, "not a time", "milliseconds above 0"))
    return found


def _problem(
    path: str, value: object, message: str, allowed: str, nearest: str | None = None
) -> Problem:
    return Problem(path=path, value=value, message=message, allowed=allowed, nearest=nearest)
