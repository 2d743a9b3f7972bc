"""How requests are to be simulated, read from names and texts; every problem at once."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from foretell.errors import BadInput, Problem, bad_input, nearest_name, wrong
from foretell.inputs.question import collect
from foretell.serving.requests.arrivals import KINDS, read_lengths
from foretell.serving.requests.prefixes import read_tiers
from foretell.serving.requests.records import Requests
from foretell.serving.requests.routing import read_autoscale
from foretell.serving.requests.sessions import read_sessions
from foretell.serving.requests.traces import read_trace
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulated_fleet import Play
from foretell.units import parse

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
    "queue_limit": (1, 10_000_000),
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
NAMES = (*TEXTS, *CHOICES, *COUNTS, *LEVELS, "arrivals", "fail_at", "urgent")


def read_play(options: Mapping[str, Any], q: ServeQuestion) -> tuple[Play, Requests | None]:
    """The way of simulating, and the requests of a trace where one is named."""
    problems: list[Problem] = [
        wrong(name, value, "unknown option", ", ".join(NAMES), nearest_name(name, NAMES))
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
    if "fail_at" in options:
        found = collect(lambda: parse(str(options["fail_at"]), "s", "fail_at"), problems)
        values["fails_s"] = found if found is not None else math.inf
        if q.replicas < 2 or not values["fails_s"] >= 0.0:
            allowed = "a time, and two replicas or more that decode"
            message = "leaves no other instance, or is no time"
            problems.append(wrong("fail_at", options["fail_at"], message, allowed))
    if "urgent" in options:
        values["urgent"] = found = _level("urgent", options["urgent"], problems)
        if not found < 1.0:
            problems.append(wrong("urgent", found, "is no share", "above 0 and below 1"))
    values["arrivals"] = _arrivals(options, q, problems)
    if values.get("sessions") is not None and q.rate is None:
        problems.append(
            wrong("sessions", options["sessions"], "begin at a rate of requests", "--rate")
        )
    if ("prefixes" in options) != ("prefix_tokens" in options):
        problems.append(
            wrong("prefixes", options.get("prefixes"), "--prefixes and --prefix-tokens belong "
                     "together", "both or none")
        )  # fmt: skip
    problems += _other_kind(options, values["arrivals"] not in KINDS, q)
    if problems:
        raise BadInput(problems)
    trace = None
    if values["arrivals"] not in KINDS:
        trace = read_trace(values["arrivals"], values.get("trace_unit"), values.get("block_tokens"))
        if trace.at_s is None and q.rate is not None:
            raise bad_input("arrivals", values["arrivals"], "the trace has no arrivals: "
                                     "it is simulated in a closed loop", "--concurrency")  # fmt: skip
        values["arrivals"] = "trace"
        trace = _fitted(trace, q, values.get("requests"))
    known = {f.name for f in fields(Play)}
    return Play(**{name: value for name, value in values.items() if name in known}), trace


TRACED = ("lengths", "prefixes", "prefix_tokens", "sessions", "urgent")
"""Options of requests by chance, which a trace says itself."""


def _other_kind(options: Mapping[str, Any], traced: bool, q: ServeQuestion) -> list[Problem]:
    """Options that say nothing of the kind of requests that is simulated."""
    names = TRACED if traced else ("trace_unit", "block_tokens")
    message = "is what the trace says" if traced else "is of a trace"
    allowed = "nothing beside the trace" if traced else "--arrivals FILE"
    found = [wrong(name, options[name], message, allowed) for name in names if name in options]
    if traced and q.traffic.cached > 0.0:
        found.append(wrong("prefix_hit", q.traffic.cached, message, allowed))
    asked_again = traced or "sessions" in options
    if "kv_tiers" in options and not asked_again:
        message = "keep what is asked again, and here every prompt is new"
        allowed = "--sessions, or a trace with hash ids or conversations"
        found.append(wrong("kv_tiers", options["kv_tiers"], message, allowed))
    if options.get("routing") == "sticky" and not asked_again:
        message, allowed = "keeps sessions together, and there are none", "--sessions, or a trace"
        found.append(wrong("routing", "sticky", message, allowed))
    return found


def _fitted(trace: Requests, q: ServeQuestion, most: int | None) -> Requests:
    """A trace cut to as many requests as asked for, and brought to the rate or the concurrency asked for."""
    if most is not None and most < len(trace):
        cut = {name: getattr(trace, name) for name in PER_REQUEST}
        part = {name: value[:most] for name, value in cut.items() if value is not None}
        trace = replace(trace, **part, said=(*trace.said, f"the first {most} of its requests"))
    if trace.at_s is None:
        return replace(trace, concurrency=max(round(float(q.traffic.concurrency)), 1))
    if q.rate is None or len(trace) < 2 or not trace.at_s[-1]:
        return trace
    own = len(trace) / float(trace.at_s[-1])
    said = (
        f"timestamps times {own / q.rate:.4g}, for {q.rate:g} requests/s in the place of {own:.4g}"
    )
    return replace(trace, at_s=[at * own / q.rate for at in trace.at_s], said=(*trace.said, said))


PER_REQUEST = (
    "isl", "osl", "at_s", "prefix", "prefix_tokens", "priority", "blocks", "session", "after", "pause_s",
    "kept",
)  # fmt: skip
"""Fields of requests that are lists of them."""


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
        problems.append(wrong("arrivals", kind, "unknown", allowed, nearest_name(kind, KINDS)))
    elif (kind == "closed") != (q.rate is None):
        wanted = "--concurrency" if kind == "closed" else "--rate"
        problems.append(wrong("arrivals", kind, "does not go with the load given", wanted))
    return kind


def _word(name: str, value: object, words: Sequence[str], problems: list[Problem]) -> object:
    if value not in words:
        problems.append(
            wrong(name, value, "unknown", ", ".join(words), nearest_name(str(value), words))
        )
    return value


def _count(name: str, value: object, limits: tuple[int, int], problems: list[Problem]) -> int:
    low, high = limits
    try:
        found = int(str(value))
    except ValueError:
        found = low - 1
    if not low <= found <= high:
        problems.append(wrong(name, value, "not a usable number", f"{low} to {high}"))
        return low
    return found


def _level(name: str, value: object, problems: list[Problem]) -> float:
    try:
        found = float(str(value))
    except ValueError:
        found = 0.0
    if not 0.0 < found < 1e12:
        problems.append(wrong(name, value, "not a time", "milliseconds above 0"))
    return found
