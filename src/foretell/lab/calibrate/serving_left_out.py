"""Profiles fitted without one model.

    python -m foretell.lab.calibrate.serving_left_out [--labels FILE] TABLE...

fits all profiles and writes the catalogue's files of profiles and of profiles without one model. `--labels`
names a table of ids with a column `mtp`: rows that drafted, or may have, and do not say so.

Rows under load of a model are predicted by overheads fitted to all other models under all engines, begun at
what is usual; those of static batches and offline maxima by the same profile fitted to its other models. A
profile whose rows are of one model alone has nothing to be fitted to, and is left as it is: such rows are not
counted.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from foretell.catalog.engines import FILE as ENGINES
from foretell.catalog.engines import usual
from foretell.catalog.files import ROOT, toml_value
from foretell.catalog.files import read_table as read_toml
from foretell.lab.calibrate.serving_arguments import LOADED
from foretell.lab.calibrate.serving_cases import ServingCase
from foretell.lab.calibrate.serving_fit import (
    FIRM,
    FITTED,
    LOOP,
    OTHER,
    OWN,
    cases_of,
    fit_all,
    fit_profile,
    fits_profile,
    is_own,
    profiles_text,
)
from foretell.lab.calibrate.serving_rows import ServingRow, read_rows, read_table
from foretell.specs.engine import EngineProfile

Overheads = Mapping[tuple[str, str], Mapping[str, float]]
"""(model, profile) -> what was moved."""
LEFT_OUT = ROOT / "engines_left_out.toml"
"""Overheads of profiles fitted without one model."""


@lru_cache(maxsize=1)
def left_out_overheads() -> Overheads:
    """(model, profile) -> overheads of that profile, fitted without the model."""
    return {
        (entry["model"], entry["profile"]): entry["overheads"]
        for entry in read_toml(LEFT_OUT).get("left_out", ())
    }


def thin(cases: Sequence[ServingCase]) -> list[ServingCase]:
    """One row of each point: runs of the same point tell the same."""
    found: dict[object, ServingCase] = {}
    for case in cases:
        row = case.row
        told = (row.kind, row.batch, row.isl, row.osl, row.ttft_median_ms is None)
        key = (case.group, case.profile.id, case.deployment, case.question.gpus, *told)
        found.setdefault(key, case)
    return list(found.values())


def without_model(case: ServingCase, cases: Sequence[ServingCase]) -> EngineProfile | None:
    """A row's profile fitted without its model; None where nothing is left to fit it to."""
    name, rest = case.profile.id, [c for c in cases if c.model.id != case.model.id]
    if case.row.kind not in LOADED:
        mine = [c for c in rest if c.profile.id == name and c.row.kind not in LOADED]
        return fit_profile(case.profile, mine, FITTED[name]) if mine else None
    rest = [c for c in rest if c.row.kind in LOADED]
    if not rest:
        return None
    many = Counter(c.group for c in rest)
    engine = case.profile.engine
    weights = [
        (OWN if c.profile.engine == engine else OTHER) / np.sqrt(many[c.group]) for c in rest
    ]
    return fit_profile(usual(case.profile), rest, LOOP, FIRM, np.array(weights))


def fit_left_out(cases: Sequence[ServingCase]) -> dict[tuple[str, str], dict[str, float]]:
    """Overheads of every model's profiles without it."""
    usable = [c for c in cases if fits_profile(c) and c.profile.id in FITTED]
    usable = thin(usable)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for case in usable:
        key = (case.model.id, case.profile.id)
        if key in found:
            continue
        profile = without_model(case, usable)
        # What a fit to other models does not move is as usual.
        names = FITTED[case.profile.id]
        found[key] = {} if profile is None else {n: float(getattr(profile, n)) for n in names}
    return {key: values for key, values in found.items() if values}


def left_out_profile_of(
    overheads: Overheads | None = None,
) -> Callable[[ServingCase], EngineProfile]:
    """A row's profile without its model, as the catalogue (or `overheads`) has it; else its own."""
    known = left_out_overheads() if overheads is None else overheads

    def found(case: ServingCase) -> EngineProfile:
        values: Mapping[str, Any] | None = known.get((case.model.id, case.profile.id))
        return replace(case.profile, **values) if values and is_own(case) else case.profile

    return found


FITTED_SOURCES = (
    "ai-dynamo/aiconfigurator", "NVIDIA/TensorRT-LLM", "Mutinifni/splitwise-sim", "single H200",
)  # fmt: skip
"""Sources that the catalogue's profiles were fitted to, as tables begin to name them."""


def without_source() -> Callable[[ServingCase], EngineProfile]:
    """A row's profile without its source: without its model where the catalogue was fitted to that source,
    and the catalogue's own elsewhere, which owes nothing to it."""
    apart = left_out_profile_of()
    return lambda case: apart(case) if case.row.source.startswith(FITTED_SOURCES) else case.profile


def is_held_out(case: ServingCase, overheads: Overheads | None = None) -> bool:
    """Whether a row's prediction owes nothing to its own model: left out, or never part of a fit.

    A profile that was fitted, and has no fit without any of its models, has seen the one that it has rows of.
    """
    known = left_out_overheads() if overheads is None else overheads
    seen = any(profile == case.profile.id for _, profile in known)
    return seen or not is_own(case) or case.profile.fit.rows == 0


def overheads_text(found: Overheads) -> str:
    """Left-out overheads as the catalogue's file has them."""
    lines = [
        "# Overheads of engine profiles fitted without one model: what held-out figures are predicted by.",
        "# Written by foretell.lab.calibrate.serving_left_out.",
    ]
    for (model, profile), values in sorted(found.items()):
        lines += ["", "[[left_out]]", f"model = {toml_value(model)}"]
        lines += [f"profile = {toml_value(profile)}", "[left_out.overheads]"]
        lines += [f"{name} = {toml_value(float(f'{v:.4g}'))}" for name, v in values.items()]
    return "\n".join(lines) + "\n"


def unlabelled(rows: Sequence[ServingRow], labels: Path | None) -> list[ServingRow]:
    """Rows less those that a table of labels says drafted tokens without saying so."""
    if labels is None:
        return list(rows)
    drafted = {cells["id"] for cells in read_table(labels) if cells.get("mtp") != "no"}
    return [row for row in rows if row.id not in drafted]


def write(tables: Sequence[Path], labels: Path | None = None) -> None:
    """Fit, and write both files."""
    rows = unlabelled([row for table in tables for row in read_rows(table)], labels)
    launched = cases_of(rows)
    overheads = fit_left_out(launched)
    LEFT_OUT.write_text(overheads_text(overheads))
    ENGINES.write_text(profiles_text(fit_all(thin(launched), left_out_profile_of(overheads))))


if __name__ == "__main__":
    names = sys.argv[1:]
    given = Path(names[names.index("--labels") + 1]) if "--labels" in names else None
    files = [Path(name) for name in names if name != "--labels" and Path(name) != given]
    write(files, given)
