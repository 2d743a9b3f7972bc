"""Models, systems, chips and studies as a stranger may name them: an id, an alias or an object, never a file.

What is wrong with a name is stated here, under the path of its field. That no file is opened does not hang on
it: questions are answered inside `names_only`, where every reader of a user's files refuses.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from foretell.catalog import model as catalog_model
from foretell.catalog import system as catalog_system
from foretell.catalog import system_from_table
from foretell.catalog.names import exists
from foretell.errors import BadInput, Problem, Shortfall, bad_input, unknown
from foretell.interop.user_files import NAMES, refusal
from foretell.serving.requests.arrivals import KINDS
from foretell.specs.questions import every_field
from foretell.web.limits import MOST_CURVE_POINTS, MOST_POINTS, TooMuch, check_work, too_much

_COUNTED = re.compile(r"\s*[0-9]+\s*[xX\u00d7]\s*(\S.*)", re.DOTALL)
"""`512xH100`: a number of chips that names the system too."""
_PATHS = (".json", ".toml", ".csv", ".jsonl")
UNKNOWN = "(not known)"
"""A name that nothing has."""
FILES = {
    field.called
    for field in every_field()
    if field.flag.names_file == "always" and not field.flag.inline
}
"""Flags that name a file and nothing else: no question has them, nor what is in one."""
NAMES_A_FILE = "names a file; files are not read here"
NAMED = tuple(
    dict.fromkeys(
        field.called
        for field in every_field()
        if field.flag.names_file == "maybe" and field.flag.kind != "names"
    )
)
"""Flags that the command line may take a path in."""
LISTED = {
    field.called: field.flag.lists.removesuffix("s")
    for field in every_field()
    if field.flag.kind == "names" and field.on("web")
}
"""Flags that have several of them."""


def safe(given: Mapping[str, Any]) -> dict[str, Any]:
    """The flags with every name and inline object looked at; BadInput with all that are wrong."""
    problems = name_problems(_named(given))
    for text in given.get("sweep") or ():
        problems += _swept(text)
    if problems:
        raise BadInput(problems)
    return dict(given)


def name_problems(named: Iterable[tuple[str, str, Any]]) -> list[Problem]:
    """What is wrong with names: path, flag and value of each are given."""
    problems: list[Problem] = []
    for path, name, value in named:
        try:
            check_name(name, value)
        except BadInput as error:
            problems += [replace(p, path=path_of(path, name, p.path)) for p in error.problems]
    return problems


def without_wrong(given: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The flags with UNKNOWN in the place of every wrong model and system, other wrong names left out; and
    which flags had one."""
    flags, gone = dict(given), set()
    for path, name, value in _named(given):
        try:
            check_name(name, value)
        except BadInput:
            flag, _, place = path.partition(".")
            gone.add(flag)
            if place:
                flags[flag] = [*flags[flag]]
                flags[flag][int(place)] = UNKNOWN
            elif name in ("model", "system"):
                flags[flag] = UNKNOWN
            else:
                del flags[flag]
    if any(_swept(text) for text in given.get("sweep") or ()):
        del flags["sweep"]
    return flags, gone


def _named(given: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Path, flag and value of every name that is given."""
    for name in NAMED:
        if given.get(name) is not None:
            yield name, name, given[name]
    for many, name in LISTED.items():
        for place, value in enumerate(given.get(many) or ()):
            yield f"{many}.{place}", name, value


def path_of(path: str, name: str, within: str) -> str:
    """Where a problem of a flag's value is; of a flag that is alone, without its name."""
    if within in ("", name):
        return path
    return within if path == name else f"{path}.{within}"


def check_name(name: str, value: Any) -> None:
    """Raise BadInput where a flag has no name of the catalogue, nor an object that describes one."""
    match name:
        case _ if name in FILES:
            raise bad_input(name, value, NAMES_A_FILE)
        case "model":
            _check_model(value)
        case "system":
            _check_system(value)
        case "name":
            _check_name(name, value, ("chip",))
        case "gpus":
            named = _COUNTED.fullmatch(value) if isinstance(value, str) else None
            if named:
                _check_name("gpus", named[1].strip(), ("system", "chip"))
        case "arrivals" if value not in KINDS:
            raise BadInput([unknown(name, value, KINDS)])


def _check_model(value: Any) -> None:
    """A model is a name or an object; what is wrong with an object is stated where it is read."""
    if isinstance(value, Mapping):
        return
    if not isinstance(value, str) or _looks_like_path(value):
        raise _refused("model", value)
    catalog_model(value, files=False)


def _check_system(value: Any) -> None:
    """A system is a name or an object, which is made here once: its problems come with those of the rest."""
    if isinstance(value, Mapping):
        system_from_table(value)
    else:
        _check_name("system", value, ("system", "chip"))


def _check_name(path: str, value: Any, kinds: tuple[str, ...]) -> None:
    """The text must be a name of the catalogue."""
    if not isinstance(value, str) or _looks_like_path(value):
        raise _refused(path, value)
    if not value and path == "name":  # a chip of no name is described by its flags
        return
    if not exists(value, kinds):
        if kinds == ("chip",):
            raise _refused(path, value)
        catalog_system(value, files=False)  # says what is wrong, and what is near


def _swept(text: str) -> list[Problem]:
    """Problems of a sweep that goes over names."""
    field, _, values = text.partition("=")
    name = field.strip().removeprefix("--").replace("-", "_")
    problems: list[Problem] = []
    for value in values.split(","):
        try:
            check_name(name, value.strip())
        except BadInput as error:
            problems += [replace(p, path=f"sweep.{name}") for p in error.problems]
    return problems


def _looks_like_path(name: str) -> bool:
    return name.lower().endswith(_PATHS) or name.startswith((".", "/", "~")) or "\\" in name


def _refused(path: str, value: object) -> BadInput:
    return refusal(path, value, f"{NAMES}, or an object" if path in ("model", "system") else NAMES)


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
    # A chip that cannot be built is a point whose answer is no.
    problems = [p for p in name_problems(values) if not isinstance(p, Shortfall)]
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
