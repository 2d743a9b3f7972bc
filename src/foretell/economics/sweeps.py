"""A cost asked again and again: an answer for every combination of swept flags and figures."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from foretell.economics.answer import CostAnswer
from foretell.economics.settings import combinations, parse_sweeps
from foretell.economics.work import mark_front
from foretell.errors import Infeasible
from foretell.inputs.question import as_texts

T = TypeVar("T")


def sweep_answers(
    ask: Callable[[T], CostAnswer], question: T, sweep: tuple[str, ...]
) -> dict[str, Any]:
    """An answer for every combination; what cannot be built is a row that says so."""
    flags = [f.name for f in fields(question) if f.name not in ("set", "progress")]  # type: ignore[arg-type]
    sweeps = parse_sweeps(sweep, flags)
    rows: list[dict[str, Any]] = []
    first: CostAnswer | None = None
    for values in combinations(sweeps):
        try:
            answer = ask(_changed(question, values))
            first = first or answer
            rows.append({**values, **_row(answer)})
        except Infeasible as error:
            rows.append({**values, "usd": None, "problem": "; ".join(map(str, error.problems))})
    if rows and any("tokens_per_s" in row for row in rows):
        mark_front(rows)
    return {
        "what": "" if first is None else first.what,
        "name": "" if first is None else first.name,
        "given": _fixed(question, sweeps),
        "sweep": {name: list(values) for name, values in sweeps.items()},
        "rows": rows,
    }


def _fixed(question: Any, sweeps: Mapping[str, Any]) -> dict[str, str]:
    """Flags and settings that are the same in every row."""
    flags = {f.name: getattr(question, f.name) for f in fields(question) if f.name != "set"}
    usual = {f.name: f.default for f in fields(question)}
    kept = {
        name: value
        for name, value in flags.items()
        if value != usual[name] and str(value) != str(usual[name]) and name not in sweeps
    }
    paths = dict(text.partition("=")[::2] for text in as_texts(question.set))
    return {**kept, **{path: value for path, value in paths.items() if path not in sweeps}}


def _changed(question: T, values: Mapping[str, str]) -> T:
    """The question with swept flags and paths in place."""
    flags = {name: value for name, value in values.items() if "." not in name}
    paths = tuple(f"{name}={value}" for name, value in values.items() if "." in name)
    held = as_texts(question.set)  # type: ignore[attr-defined]
    kept = tuple(text for text in held if text.partition("=")[0].strip() not in values)
    return replace(question, **flags, set=(*kept, *paths))  # type: ignore[type-var]


def _row(answer: CostAnswer) -> dict[str, Any]:
    """An answer as one row: sums, ranges, first parts, and numbers on the way."""
    plain = {
        name: value
        for name, value in answer.facts.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    parts = {child.name: child.value for child in answer.breakdown.children}
    return {
        "usd": answer.usd,
        "low_usd": answer.low_usd,
        "high_usd": answer.high_usd,
        **plain,
        "parts_usd": parts,
    }
