"""Figures of money: every number of silicon, packages, site and carbon.toml, with its range and source.

`sheet()` holds them flat by path (`processes.N5.wafer_usd`), so that any can be set by hand and each
one's range can be carried through a formula; `kind_of` says which record a section's entries make.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from foretell.catalog.files import ROOT, Table, read_table
from foretell.catalog.names import normalise
from foretell.catalog.prices import operating
from foretell.catalog.values import Fact, field_plan, read_facts
from foretell.errors import BadInput, Problem, bad_input, nearest_name
from foretell.records import dataclass
from foretell.specs.cost import (
    ElectricityGrid,
    EmbodiedFactors,
    Fab,
    FabricParts,
    Figure,
    Finance,
    ServerParts,
    Site,
)
from foretell.specs.package import (
    Finish,
    Machine,
    PackageKind,
    Probe,
    Process,
    Stacking,
    StackPrice,
    Wafer,
)

FILES = ("silicon.toml", "packages.toml", "site.toml", "carbon.toml")
"""What the sheet is read from."""
NAMED: Mapping[str, type] = MappingProxyType(
    {
        "processes": Process,
        "memories": StackPrice,
        "packages": PackageKind,
        "stackings": Stacking,
        "grids": ElectricityGrid,
        "fabs": Fab,
    }
)
"""Sections with an entry for each name."""
SINGLE: Mapping[str, type] = MappingProxyType(
    {
        "wafer": Wafer,
        "probe": Probe,
        "machine": Machine,
        "finish": Finish,
        "server": ServerParts,
        "fabric": FabricParts,
        "site": Site,
        "finance": Finance,
        "embodied": EmbodiedFactors,
    }
)
"""Sections that are one record."""
OPERATING = ("usd_per_kwh", "pue")
"""Figures of the site that prices/operating.toml has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """All figures by path, and the texts and switches beside them."""

    figures: Mapping[str, Figure]
    """Numbers."""
    plain: Mapping[str, Any]
    """Texts, switches and lists, by the same paths."""

    def names(self, section: str) -> tuple[str, ...]:
        """Entries of a section."""
        paths = [*self.figures, *self.plain]
        found = (path.split(".", 2)[1] for path in paths if path.startswith(f"{section}."))
        return tuple(dict.fromkeys(found))

    def resolve(self, section: str, name: str, path: str) -> str:
        """The entry that a name or alias means; BadInput with the nearest otherwise."""
        known = self.names(section)
        plain = normalise(name).removeprefix("tsmc")
        for entry in known:
            aliases = self.plain.get(f"{section}.{entry}.aliases", ())
            if plain in {normalise(word).removeprefix("tsmc") for word in (entry, *aliases)}:
                return entry
        raise bad_input(path, name, "is not known", ", ".join(known), nearest_name(name, known))

    def fields(self, section: str) -> tuple[str, ...]:
        """Every path below a section, or below one entry of it."""
        below = f"{section}."
        return tuple(path for path in self.figures if path.startswith(below))

    def with_figure(self, figure: Figure) -> "Sheet":
        """The sheet with one figure more, or another in its place."""
        return replace(self, figures={**self.figures, figure.path: figure})


@lru_cache(maxsize=1)
def sheet() -> Sheet:
    """The catalogue's figures."""
    tables = [read_table(ROOT / name) for name in FILES]
    rates = operating()
    site = {
        "site": {key: rates[key] for key in OPERATING},
        "sources": rates["sources"],
    }
    return sheet_from_tables([*tables, site])


def sheet_from_tables(tables: list[Table]) -> Sheet:
    """Figures of tables of the catalogue's form; BadInput with every problem."""
    problems: list[Problem] = []
    figures: dict[str, Figure] = {}
    plain: dict[str, Any] = {}
    for table in tables:
        sources = table.get("sources", {})
        for section, held in table.items():
            entries = {section: held} if section in SINGLE else _named(section, held)
            for path, entry in entries.items():
                facts = read_facts(kind_of(path), entry, path, problems)
                for key, fact in facts.items():
                    if isinstance(fact, Fact):
                        _put(f"{path}.{key}", fact, sources, figures, plain)
    if problems:
        raise BadInput(problems)
    return Sheet(figures=MappingProxyType(figures), plain=MappingProxyType(plain))


def kind_of(path: str) -> type:
    """The record whose fields a section's, or an entry's, figures are."""
    section = path.split(".", 1)[0]
    return SINGLE[section] if section in SINGLE else NAMED[section]


def _named(section: str, held: Table) -> dict[str, Table]:
    return {f"{section}.{name}": entry for name, entry in held.items()} if section in NAMED else {}


def _put(
    path: str,
    fact: Fact,
    sources: Mapping[str, str],
    figures: dict[str, Figure],
    plain: dict[str, Any],
) -> None:
    """One fact among the figures, or among the rest."""
    section = path.rsplit(".", 1)
    if field_plan(kind_of(section[0]))[section[1]].kind != "number":
        plain[path] = fact.value
        return
    figures[path] = Figure(
        path=path,
        value=float(fact.value),
        low=float(fact.value if fact.low is None else fact.low),
        high=float(fact.value if fact.high is None else fact.high),
        source=sources.get(fact.source or "", ""),
        status=fact.status or "",
        date=fact.date or "",
        note=fact.note or "",
    )
