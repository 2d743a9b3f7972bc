"""Systems: from their tables, and from a chip in its vendor's reference node and fabric."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from foretell import units
from foretell.catalog.chips import NAMES, catalogue_chip, chip_from_value
from foretell.catalog.dies import HOP_S, PACKAGE, system_of_dies
from foretell.catalog.files import Table, catalogue_table, read_table
from foretell.catalog.names import exists, find, normalise, spellings
from foretell.catalog.values import check_missing, read_fields
from foretell.errors import BadInput, Problem, bad_input, wrong
from foretell.interop.user_files import is_there, user_file
from foretell.specs.chip import Chip
from foretell.specs.corrections import Corrections
from foretell.specs.design import ChipDesign
from foretell.specs.system import Network, System, Tier

SYSTEM_KEYS = ("aliases", "shared_aliases", "alias_notes", "notes", "sources")
"""What a system's file holds besides the record's fields."""
_ALONE = "400 Gbit/s"
"""Bandwidth inside a node of chips whose links nothing tells: a network card each."""
_USUAL = "nodes of eight on a switch at the chip's scale-up rate, 512 nodes at 400 Gbit/s a chip"
_TIER_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@lru_cache(maxsize=64)
def named_system(name: str) -> System:
    """The system that a machine's or a chip's name means, with what the name left open stated."""
    match = find(name)
    if match.kind == "system":
        table = catalogue_table("system", match.id)
        system = system_from_table(table)
    else:
        table = catalogue_table("chip", match.id)
        system = _reference_system(catalogue_chip(match.id), table["reference_system"])
    note = alias_note(table, name)
    return system if note is None else replace(system, assumptions=(note, *system.assumptions))


def own_file(name: str) -> Path | None:
    """The path that a text is, a name that ends in .toml or a file that is there; else None."""
    if name.lower().endswith(".toml"):
        return user_file(name, "system")
    return Path(name) if not exists(name) and is_there(name, folder=False) else None


def system_from_file(path: Path, changes: Mapping[str, str] = MappingProxyType({})) -> System:
    """A system from a user's file; its id and name are the file's where it gives none.

    `changes` are fields of its chip's design, by name, in the place of the file's.
    """
    table = read_table(path)
    if changes:
        table = change_design(table, changes)
    return system_from_table(table, default_id=path.stem or "own-system")


def change_design(table: Mapping[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    """A file's table with some fields of its design replaced by texts; BadInput where it has none."""
    table = dict(chip_file_as_system(table))
    chip = table.get("chip")
    if not isinstance(chip, dict) or not isinstance(chip.get("design"), dict):
        raise BadInput(no_design(changes))
    design: dict[str, Any] = dict(chip["design"])
    for name, text in changes.items():
        field, _, dtype = name.partition(".")
        value: Any = int(text) if field == "release_year" and text.isdecimal() else text
        held = design.get(field)
        design[field] = value
        if dtype:
            design[field] = {**(held if isinstance(held, dict) else {}), dtype: value}
    return {**table, "chip": {**chip, "design": design}}


def no_design(changes: Iterable[str]) -> list[Problem]:
    """Problems of settings of a design that there is not."""
    message, allowed = "its chip is no design", "a system's file with [chip.design]"
    return [wrong(f"--set chip.design.{name}", None, message, allowed) for name in changes]


def system_from_table(table: Mapping[str, Any], default_id: str = "own-system") -> System:
    """A system from a table of the catalogue's form; BadInput with every problem."""
    if "corrections" in table:
        return _as_measured(table, default_id)
    if "base" in table and "network" in table and "chip" not in table:
        return _on_other_links(table)
    problems: list[Problem] = []
    said: list[str] = []
    chip = None
    table = chip_file_as_system(table)
    if "chip" in table:
        chip = chip_from_value(table["chip"], "chip", problems, said)
    else:
        problems.append(wrong("chip", None, "is missing"))
    if "network" not in table and is_design(table.get("chip")):
        table = {**table, "network": _usual_network(chip)}
        said.append(f"No network is given; taken: {_USUAL}.")
    elif is_design(table.get("chip")):
        table = _own_links(table, chip, said)
    elif "network" not in table and "chip" in table:
        if chip is None or problems:
            raise BadInput(problems)
        return _without_network(table, chip)
    apart = _take_package(table) if is_design(table.get("chip")) else None
    system = _assemble(dict(table if apart is None else apart[0]), chip, default_id, problems)
    if is_design(table.get("chip")):
        system = replace(system, design=_design(table["chip"]))
    if apart is not None:
        system = _of_dies(system, apart[1], problems)
    return replace(system, assumptions=(*said, *system.assumptions)) if said else system


def _on_other_links(table: Mapping[str, Any]) -> System:
    """A system of the catalogue (`base`) with fields of its tiers, or of its ports, replaced."""
    system = named_system(str(table["base"]))
    problems: list[Problem] = []
    ports = read_fields(System, dict(table), "system", problems, ("base", "network"))
    tiers = {tier.name: tier for tier in system.network.tiers}
    for name, part in dict(table["network"]).items():
        path = f"network.{name}"
        if name in tiers and isinstance(part, dict):
            tiers[name] = replace(tiers[name], **read_fields(Tier, part, path, problems))
        else:
            message = f"is no table of a tier of {system.id}"
            problems.append(wrong(path, name, message, ", ".join(tiers)))
    if problems:
        raise BadInput(problems)
    return replace(system, network=Network(tiers=tuple(tiers.values())), **ports)


def _as_measured(table: Mapping[str, Any], default_id: str) -> System:
    """A system with what measured runs on it took: on one of the catalogue (`base`), or described beside."""
    problems: list[Problem] = []
    told = table["corrections"]
    rest = {k: v for k, v in table.items() if k not in ("corrections", "measured_step")}
    spread = _measured_spread(table.get("measured_step", {}), problems)
    if not isinstance(told, dict):
        message, allowed = "is not a table", "factors by mechanism, such as gemm = 1.05"
        raise bad_input("corrections", told, message, allowed)
    factors = read_fields(Corrections, told, "corrections", problems)
    if "base" in rest and "chip" not in rest:
        names = {key: rest[key] for key in ("id", "name") if isinstance(rest.get(key), str)}
        unknown = [key for key in rest if key not in ("base", *names)]
        problems += [wrong(key, None, "is given beside base", "base, id, name") for key in unknown]
        base = named_system(str(rest["base"]))
        system = replace(base, **{"name": f"{base.name}, as measured", **names})
    else:
        system = system_from_table(rest, default_id)
    if problems:
        raise BadInput(problems)
    said = "its mechanisms take what measured runs took ([corrections] of its file)"
    system = replace(system.with_corrections(Corrections(**factors)), step_spread=spread)
    return replace(system, assumptions=(said, *system.assumptions))


def _measured_spread(told: Any, problems: list[Problem]) -> tuple[float, ...]:
    """How far a step like those measured may be: quantiles of ln(measured / predicted)."""
    values = told.get("quantiles", []) if isinstance(told, dict) else None
    usable = isinstance(values, list) and len(values) in (0, 4)
    if not usable or any(
        not isinstance(v, int | float) or not -5.0 < v < 5.0 for v in values or ()
    ):
        allowed = "quantiles = [-0.08, -0.03, 0.03, 0.09]: at 5, 25, 75 and 95 %"
        problems.append(wrong("measured_step", told, "is no spread of a step", allowed))
        return ()
    return tuple(float(value) for value in values or ())


def _is_package(tier: object) -> bool:
    return isinstance(tier, dict) and tier.get("topology") == PACKAGE


def _take_package(table: Mapping[str, Any]) -> tuple[dict[str, Any], Table] | None:
    """The table without its innermost tier, and that tier, where it joins the dies of a package."""
    tiers = table.get("network")
    first = next(iter(tiers.items()), None) if isinstance(tiers, dict) else None
    if first is None or not _is_package(first[1]):
        return None
    rest = {name: tier for name, tier in table["network"].items() if name != first[0]}
    return {**table, "network": rest}, first[1]


def _of_dies(system: System, tier: Table, problems: list[Problem]) -> System:
    """A system whose dies are chips of their own, as a tier of topology package says."""
    from foretell.catalog.designs import build

    assert system.design is not None
    whole = build(system.design).design
    given = read_fields(Tier, tier, "network.package", problems)
    dies = round(float(whole.compute_dies))
    if given.get("size", dies) != dies or dies < 2:
        message = "a tier of topology package joins the compute dies of the design"
        allowed = f"{dies}, or absent" if dies > 1 else "compute_dies above 1"
        problems.append(
            wrong("network.package.size", given.get("size"), message, allowed)
        )  # fmt: skip
    if problems:
        raise BadInput(problems)
    rate = given.get("bandwidth_bytes_per_s", float(whole.die_to_die_bytes_per_s))
    made = system_of_dies(system, dies, rate)
    first = replace(made.network.tiers[0], latency_s=given.get("latency_s", HOP_S))
    network = Network(tiers=(first, *made.network.tiers[1:]))
    return replace(made, id=system.id, network=network)


def _design(chip: Table) -> ChipDesign | None:
    """The design of a file's chip, as given; what it is called may be beside it."""
    from foretell.catalog.designs import design_from_table

    named = {key: chip[key] for key in NAMES if key in chip}
    return design_from_table({**named, **chip["design"]}, "chip.design", [])


def _own_links(table: Mapping[str, Any], chip: Chip | None, said: list[str]) -> Mapping[str, Any]:
    """The table with the rate of a design's own links where its innermost tier gives none."""
    tiers = table["network"]
    named = list(tiers.items()) if isinstance(tiers, dict) else []
    if named and _is_package(named[0][1]):
        named = named[1:]
    if not named or not isinstance(named[0][1], dict):
        return table
    name, tier = named[0]
    # Where the chip cannot be built, that is what is said.
    rate = 1.0 if chip is None else float(chip.scale_up_bytes_per_s)
    if "bandwidth_bytes_per_s" in tier or not rate:
        return table
    said.append(f"The {name} is joined by the chip's own links, at their rate.")
    filled = {**tier, "bandwidth_bytes_per_s": rate}
    return {**table, "network": {**tiers, name: filled}}


def chip_file_as_system(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A file with a `[design]`, with a chip and `[[surface]]`, or with a chip's fields alone, as one that
    has them in its `[chip]`."""
    if not {"chip", "network", "design"} & set(table) and {"base", "architecture"} & set(table):
        named = {key: table[key] for key in ("id", "name") if key in table}
        return {**named, "chip": table}
    if "surface" in table and "chip" in table:
        rest = {key: raw for key, raw in table.items() if key != "surface"}
        chip = table["chip"] if isinstance(table["chip"], dict) else {"base": table["chip"]}
        return {**rest, "chip": {**chip, "surface": table["surface"]}}
    if "design" not in table or "chip" in table:
        return table
    named = {key: table[key] for key in NAMES if key in table}
    rest = {
        key: raw for key, raw in table.items() if key not in ("design", "vendor", "architecture")
    }
    return {**rest, "chip": {**named, "design": table["design"]}}


def is_design(chip: object) -> bool:
    """Whether a file's chip is a table with a design."""
    return isinstance(chip, dict) and "design" in chip


def _without_network(table: Mapping[str, Any], chip: Chip) -> System:
    """A chip that names no network: in the reference system of the chip it is based on, or on the usual
    network."""
    own = table["chip"]
    base = own.get("base") if isinstance(own, dict) else own
    if base is not None:
        reference = named_system(str(base))
        names = {key: table[key] for key in ("id", "name") if isinstance(table.get(key), str)}
        taken = f"No network is given; taken: that of {reference.id}."
        told = () if "surface" in own else (taken,)
        return replace(reference, chip=chip, assumptions=(*told, *reference.assumptions), **names)
    links = float(chip.scale_up_bytes_per_s) > 0.0
    usual = _USUAL if links else _USUAL.replace("the chip's scale-up rate", _ALONE)
    system = _assemble({**table, "network": _usual_network(chip, links)}, chip, chip.id, [])
    said = f"No network is given; taken: {usual}."
    return replace(system, assumptions=(said, *system.assumptions))


def _usual_network(chip: Chip | None, links: bool = True) -> Table:
    """Where a design that names no network is put."""
    rate = 1.0 if chip is None else float(chip.scale_up_bytes_per_s)
    node = {
        "size": 8,
        "bandwidth_bytes_per_s": rate if links else _ALONE,
        "latency_s": "2.5 us",
    }
    cluster = {
        "size": 512,
        "bandwidth_bytes_per_s": "400 Gbit/s",
        "latency_s": "5 us",
        "topology": "fat-tree",
    }
    return {"node": node, "cluster": cluster}


def alias_note(table: Table, name: str) -> str | None:
    """What the file says of a name that leaves something open, as a sentence."""
    for alias, note in table.get("alias_notes", {}).items():
        if normalise(alias) in spellings(name):
            return f"{name}: {note}."
    return None


def describe(network: Network) -> str:
    """The tiers in a few words: how many, how fast, how joined."""
    parts = []
    below = "chips"
    for tier in network.tiers:
        speed = units.format(float(tier.bandwidth_bytes_per_s), "bytes_per_s")
        parts.append(
            f"{tier.size:,.0f} {below} per {tier.name} at {speed} each way ({tier.topology})"
        )
        below = f"{tier.name}s"
    return ", ".join(parts)


def _assemble(table: Table, chip: Chip | None, default_id: str, problems: list[Problem]) -> System:
    """The system of a chip and a table's other fields."""
    plain = {key: raw for key, raw in table.items() if key not in ("chip", "network")}
    given = read_fields(System, plain, "system", problems, SYSTEM_KEYS)
    if "design" in plain:
        message = "is beside a chip: it belongs in the table of the chip"
        problems.append(wrong("design", None, message, "[chip.design]"))
    network = _network(table.get("network"), problems)
    given.setdefault("id", default_id)
    given.setdefault("name", given["id"])
    if problems or chip is None or network is None:
        raise BadInput(problems)
    return System(chip=chip, network=network, **given)


def _network(raw: object, problems: list[Problem]) -> Network | None:
    """Tiers in the order in which the file has them."""
    if not isinstance(raw, dict) or not raw:
        message = "is missing" if raw is None else "is not a table of tiers"
        allowed = "tables such as [network.node], the innermost tier first"
        problems.append(wrong("network", raw, message, allowed))
        return None
    tiers = [_tier(name, table, problems) for name, table in raw.items()]
    return Network(tiers=tuple(tier for tier in tiers if tier is not None))


def _tier(name: str, table: object, problems: list[Problem]) -> Tier | None:
    path = f"network.{name}"
    before = len(problems)
    if not _TIER_NAME.fullmatch(name):
        problems.append(wrong(path, name, "is not a tier's name", "letters a-z, digits, - and _"))
    if not isinstance(table, dict):
        problems.append(wrong(path, table, "is not a table"))
        return None
    given = read_fields(Tier, table, path, problems)
    if "name" in table:
        problems.append(wrong(f"{path}.name", table["name"], "a tier's name is that of its table"))
    given["name"] = name
    check_missing(Tier, given, path, problems)
    size, shape = given.get("size", 1.0), given.get("shape", ())
    if size < 1 or size != int(size):
        problems.append(wrong(f"{path}.size", size, "is not a whole number from 1"))
    elif shape and math.prod(shape) != size:
        message = f"does not multiply to the size, {size:g}"
        problems.append(wrong(f"{path}.shape", list(shape), message))
    return None if len(problems) > before else Tier(**given)


def _reference_system(chip: Chip, reference: Table) -> System:
    """A chip in the system, or on the network, that its file names as its reference."""
    if "system" not in reference:
        system = _assemble({**reference, "id": chip.id}, chip, chip.id, [])
        where = system.name
    else:
        base = named_system(reference["system"])
        where = f"{base.id} ({base.name})"
        system = replace(base, id=chip.id, name=f"{chip.name} in {base.name}", chip=chip)
        if base.chip.id != chip.id:  # the node's watts and price are those of another chip
            system = replace(system, node_watts=0.0, node_price_usd=0.0)
    said = f"{chip.id} is a chip; taken in its reference system, {where}: "
    said += describe(system.network) + "."
    return replace(system, assumptions=(said, *system.assumptions))
