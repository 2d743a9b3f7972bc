"""The technology file: process nodes, memories, links and rules of thumb for designs of chips."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

from foretell.catalog.files import ROOT, Table, read_table
from foretell.catalog.names import normalise
from foretell.catalog.values import check_missing, read_fields
from foretell.errors import BadInput, Problem, nearest_name, wrong
from foretell.specs.design import (
    LinkKind,
    MemoryKind,
    Microarchitecture,
    Node,
    Rules,
    Technology,
)

FILE = ROOT / "technology.toml"
"""Every number with its source."""

T = TypeVar("T")


@lru_cache(maxsize=1)
def technology() -> Technology:
    """The catalogue's technology."""
    return technology_from_table(read_table(FILE))


def technology_from_table(table: Table) -> Technology:
    """A technology from a table of the catalogue's form; BadInput with every problem."""
    problems: list[Problem] = []
    nodes = _all(Node, table, "nodes", problems)
    units = _all(Microarchitecture, table, "microarchitectures", problems)
    memories = _all(MemoryKind, table, "memories", problems)
    links = _all(LinkKind, table, "links", problems)
    rules = read_fields(Rules, table.get("rules", {}), "rules", problems)
    check_missing(Rules, rules, "rules", problems)
    if problems:
        raise BadInput(problems)
    return Technology(
        nodes=nodes,
        microarchitectures=units,
        memories=memories,
        links=links,
        rules=Rules(**rules),
    )


def find_named(kinds: Mapping[str, T], name: str, path: str, problems: list[Problem]) -> T | None:
    """The entry of a name or alias, case, punctuation and the maker forgiven; else a problem."""
    plain = normalise(name).removeprefix("tsmc")
    for kind, held in kinds.items():
        if plain in {normalise(word) for word in (kind, *getattr(held, "aliases", ()))}:
            return held
    problems.append(wrong(path, name, "is not known", ", ".join(kinds), nearest_name(name, kinds)))
    return None


def _all(record: type[T], table: Table, key: str, problems: list[Problem]) -> dict[str, T]:
    """Every table of one kind, by name."""
    made: dict[str, T] = {}
    for name, held in table.get(key, {}).items():
        path, before = f"{key}.{name}", len(problems)
        given: dict[str, Any] = {**read_fields(record, held, path, problems), "name": name}
        check_missing(record, given, path, problems)
        if len(problems) == before:
            made[name] = record(**given)
    return made
