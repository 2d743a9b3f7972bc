"""The model of log error, fitted to first contacts: `python -m foretell.lab.validate.error_fit`.

    error_fit training TABLE...       and likewise serving, post-training

TABLE has rows of the ledger's first contacts (lab/first_contact), and others. A first contact has the error
of the prediction that was made before anyone looked, for ever, and counts in full. Rows of sources that
formulas were found on are predicted without their source; since formulas still know them they count little,
and their spread is a lower bound (LOOSE and the factor `known`). A source has at most MOST rows.

Spreads, tails and the weights of what is new are found together by penalised likelihood; the report is of
sources left out of the fit one after the other. Writes the kind's tables of catalog/error_models.toml and
catalog/sightings.toml.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell.catalog import error_models
from foretell.catalog.error_models import ErrorModel, QuestionFacts
from foretell.catalog.files import read_table, toml_value
from foretell.lab.validate.contacts import ContactRow, contacts_of
from foretell.lab.validate.error_held_out import (
    by_figure,
    figure_widths,
    hold_out,
    report,
    scaled,
    width_of,
)
from foretell.lab.validate.error_kinds import KINDS, ErrorKind
from foretell.lab.validate.error_likelihood import (
    OWN_KINDS,
    TAILS,
    Array,
    fit,
    model_of,
    sources_of,
)
from foretell.uncertainty import novelty


def model_table(model: ErrorModel) -> dict[str, Any]:
    """A model as its file has it."""

    def short(value: float) -> float:
        return float(f"{value:.3g}")

    return {
        "mean": short(model.mean),
        "skew": short(model.skew),
        "common": short(model.common),
        "alike": short(model.alike),
        "own": short(model.own),
        "mechanisms": {name: short(value) for name, value in model.mechanisms.items()},
        "novelty": {name: short(value) for name, value in model.novelty.items()},
    }


def write_model(kind: ErrorKind, theta: Array, without: Mapping[str, Array]) -> None:
    """The kind's table of the catalogue's file, and of each source what the others give."""
    path = error_models.FILE
    tables = dict(read_table(path)) if path.exists() else {}
    own = model_table(model_of(kind, theta))
    fixed = {
        "own_kinds": [list(one) for one in OWN_KINDS],
        "tails": list(TAILS),
        "after": kind.after,
        "distance": {name: float(f"{value:.3g}") for name, value in kind.distance.items()},
    }
    apart = {name: model_table(model_of(kind, told)) for name, told in sorted(without.items())}
    tables[kind.name] = {**own, **fixed, "without": apart}
    lines = [
        "# The model of log error by kind of question; catalog/error_models.py says what each number is.",
        "# Written by lab/validate/error_fit.py from first contacts, which tables outside the repository",
        "# are of; `memory` is supposed (docs/measured-runs.md).",
    ]
    for name, table in sorted(tables.items()):
        rest = {key: value for key, value in table.items() if key != "without"}
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {inline(value)}" for key, value in rest.items()]
        if table.get("without"):
            lines += ["", f"[{name}.without]"]
            lines += [f"{toml_value(s)} = {inline(told)}" for s, told in table["without"].items()]
    path.write_text("\n".join(lines) + "\n")


def inline(value: Any) -> str:
    """A value on one line of TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {inline(told)}" for key, told in value.items()) + "}"
    return toml_value(value)


def write_sightings(kind: ErrorKind, rows: Sequence[ContactRow]) -> None:
    """What the rows show, as the catalogue's file has it."""
    path = error_models.SIGHTINGS_FILE
    tables = dict(read_table(path)) if path.exists() else {}
    names = sorted({row.source for row in rows})
    found: dict[tuple[Any, ...], list[QuestionFacts]] = defaultdict(list)
    for row in rows:
        f = row.facts
        world = row.world if row.world != row.source else ""
        key = (
            names.index(row.source), world, f.software, f.chip, f.generation, f.model,
            f.precision, f.layout, f.fabric,
        )  # fmt: skip
        found[key].append(f)
    seen = [
        [*key, max(f.size for f in some), min(f.length for f in some), max(f.length for f in some)]
        for key, some in sorted(found.items())
    ]
    tables[kind.name] = {"sources": names, "seen": seen}
    lines = [
        "# What measured runs show; catalog/error_models.py says what for. By lab/validate/error_fit.py.",
        "#",
        "# source, world where it is another, software, chip, generation, model, precision, layout, fabric,",
        "# largest size, shortest and longest length",
    ]
    for name, table in sorted(tables.items()):
        lines += ["", f"[{name}]", "sources = ["]
        lines += [f"  {toml_value(source)}," for source in table["sources"]]
        lines += ["]", "seen = ["]
        lines += [f"  {toml_value([_whole(cell) for cell in row])}," for row in table["seen"]]
        lines += ["]"]
    path.write_text("\n".join(lines) + "\n")
    error_models.sightings.cache_clear()
    error_models.sightings_without.cache_clear()
    novelty.forget()


def _whole(cell: Any) -> Any:
    return int(cell) if isinstance(cell, float) and cell == int(cell) else cell


def main(arguments: Sequence[str]) -> None:
    """Fit a kind, print its report and write its tables."""
    kind, *tables = arguments
    rows = contacts_of(kind, [Path(table) for table in tables])
    write_sightings(KINDS[kind], rows)
    sources = sources_of(KINDS[kind], rows)
    theta = fit(KINDS[kind], list(sources.values()))
    held, without = hold_out(KINDS[kind], sources, theta)
    if KINDS[kind].again:
        width = width_of(held)
        theta = scaled(KINDS[kind], theta, width)
        without = {name: scaled(KINDS[kind], told, width) for name, told in without.items()}
        held = [replace(one, low=one.low * width, high=one.high * width) for one in held]
        held = [one for one in held if not one.row.first]
        sys.stdout.write(f"width: {width}\n")
    elif KINDS[kind].centred:
        factors = figure_widths(held)
        theta = by_figure(KINDS[kind], theta, factors)
        without = {name: by_figure(KINDS[kind], told, factors) for name, told in without.items()}
        own = [
            factors[one.row.figure[0]] if one.row.figure[0] in KINDS[kind].novelty else 1.0
            for one in held
        ]
        held = [
            replace(one, low=one.low * f, high=one.high * f)
            for one, f in zip(held, own, strict=True)
        ]
        sys.stdout.write(f"widths: {factors}\n")
    write_model(KINDS[kind], theta, without)
    for name, value in {**model_table(model_of(KINDS[kind], theta)), **report(held)}.items():
        sys.stdout.write(f"{name}: {value}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
