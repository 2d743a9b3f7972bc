"""Studies as a stranger may give them: tables whose models and systems are names or tables, never files.

What a study's file has is in the body: `study`, `base`, `vary`, `objectives`, `limits`, `workload`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foretell.errors import BadInput, Problem, Shortfall
from foretell.web.limits import MOST_CURVE_POINTS, MOST_POINTS, TooMuch, check_work, too_much
from foretell.web.names import check_name, path_of


def safe_study(given: Mapping[str, Any]) -> dict[str, Any]:
    """The study, its names looked up; BadInput with all that are wrong, TooMuch with what is too large."""
    return _safe(given, [*_values(given)])


def safe_fleet(given: Mapping[str, Any]) -> dict[str, Any]:
    """A fleet, its names looked up, in its tables and above them."""
    base = [(str(name), str(name), value) for name, value in given.items() if name != "model"]
    tables = [
        (f"{path}.{name}", str(name), value)
        for path, table in _listed(given, "model")
        for name, value in table.items()
    ]
    return _safe(given, [*base, *tables])


def _safe(given: Mapping[str, Any], values: Sequence[tuple[str, str, Any]]) -> dict[str, Any]:
    """The tables where nothing of them is wrong."""
    problems: list[Problem] = []
    for path, name, value in values:
        try:
            check_name(name, value)
        except BadInput as error:
            # A chip that cannot be built is a point whose answer is no.
            wrong = [p for p in error.problems if not isinstance(p, Shortfall)]
            problems += [replace(p, path=path_of(path, name, p.path)) for p in wrong]
    if problems:
        raise BadInput(problems)
    large: list[Problem] = []
    for path, name, value in values:
        try:
            check_work({name: value})
        except TooMuch as error:
            large += [replace(p, path=path) for p in error.problems]
    if large:
        raise TooMuch(large)
    return dict(given)


def _values(given: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Path, flag and value of everything that a study's tables give; of what varies, every value."""
    for path, table in _tables(given):
        for name, value in table.items():
            if path != "vary":
                yield f"{path}.{name}", str(name), value
            elif isinstance(value, Mapping):  # the ends of a range
                for end in ("low", "high"):
                    yield f"{path}.{name}", str(name), value.get(end)
            else:
                for one in value if isinstance(value, list) else [value]:
                    yield f"{path}.{name}", str(name), one


def _tables(given: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Tables with flags in them; what is no table is left to the reader of studies, which says so."""
    for name in ("base", "vary"):
        if isinstance(given.get(name), Mapping):
            yield name, given[name]
    yield from _listed(given, "workload")


def _listed(given: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Tables of a list, each with its place."""
    mix = given.get(kind)
    for place, table in enumerate(mix if isinstance(mix, list) else ()):
        if isinstance(table, Mapping):  # whose name is its own, and no chip's
            yield f"{kind}.{place}", {n: v for n, v in table.items() if n != "name"}


def check_points(count: Callable[[], int]) -> None:
    """Raise TooMuch where a study has too many points; one that cannot be read says so later."""
    try:
        many = count()
    except BadInput:
        return
    if many > MOST_POINTS:
        raise TooMuch([too_much("study.vary", many, f"at most {MOST_POINTS} points")])


def check_counts(given: Mapping[str, Any]) -> None:
    """Raise TooMuch where a scaling study has too many points, or too many chips."""
    from foretell.specs.questions.studies import ScalingQuestion
    from foretell.studies.scaling.run import gpu_counts, strategy_texts

    try:
        counts = gpu_counts(given.get("gpus", ScalingQuestion.gpus))
        plans = strategy_texts(given.get("strategies", ScalingQuestion.strategies))
    except BadInput:  # said with everything else
        return
    check_work({"gpus": max(counts)})
    many = len(given.get("models") or ()) * len(counts) * len(plans)
    if many > MOST_CURVE_POINTS:
        most = f"at most {MOST_CURVE_POINTS} points: models x numbers of GPUs x strategies"
        raise TooMuch([too_much("models", many, most)])
