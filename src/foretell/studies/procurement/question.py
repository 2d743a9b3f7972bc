"""What a comparison is asked: the work as a study over systems, the levels of services, the money."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell import units
from foretell.api.cost import Payment, check_payment
from foretell.catalog.files import read_table
from foretell.errors import BadInput, Problem, wrong
from foretell.interop.user_files import user_file
from foretell.specs.study import Axis, Study
from foretell.studies.axes import PAID, RUN
from foretell.studies.procurement.clusters import Given, name_of
from foretell.studies.procurement.workloads import TPOT_MS, LatencyTargets
from foretell.studies.study_file import read_study
from foretell.studies.sweep.run import trial_problems


def level_of(given: dict[str, Any], where: str, problems: list[Problem]) -> LatencyTargets:
    found = {}
    for name, usual in (("tpot", TPOT_MS), ("ttft", math.inf)):
        value = given.pop(name, usual)
        try:
            found[f"{name}_ms"] = float(value)
        except (TypeError, ValueError, OverflowError):
            problems.append(wrong(f"{where}{name}", value, "not a number of ms"))
    return LatencyTargets(**found)


def budget_of(budget: Any, gpus: Any, problems: list[Problem]) -> float | None:
    """The sum that is spent."""
    if (budget is None) == (gpus is None):
        message = "one of budget and gpus says how large the clusters are"
        allowed = "--budget 10M or --gpus 64"
        problems.append(wrong("budget", budget, message, allowed))
    if budget is None:
        return None
    try:
        value = units.parse(budget, "usd", "budget")
    except BadInput as error:
        problems += error.problems
        return None
    if not 0.0 < value < 1e15:
        message = "not a usable sum"
        problems.append(wrong("budget", budget, message, "such as 10M"))
        return None
    return value


def one_work(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One kind of work as a study's tables."""
    return {"study": {"kind": kind}, "base": _paid_for(given)}


def _paid_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """Flags with a way to pay: chips are owned, or rented where their rent is given."""
    return {"rent": "on-demand" if "price" in given else "own", **given}


def mix_of(
    file: str | Path | Mapping[str, Any],
    given: Mapping[str, Any],
    levels: dict[str, LatencyTargets],
    problems: list[Problem],
) -> dict[str, Any]:
    """A mix from a study's tables; levels of its services are put into `levels`.

    What the study says of systems, chips, fields that vary and objectives is another question's.
    """
    if not isinstance(file, Mapping):
        try:
            file = read_table(user_file(file, "workload", "a table"))
        except BadInput as error:
            problems += error.problems
            file = {}
    file = _tables(file, problems)
    head = {n: v for n, v in file.get("study", {}).items() if n in ("kind", "plan")}
    base = {n: v for n, v in file.get("base", {}).items() if n not in ("system", "gpus")}
    mix = [dict(one) for one in file.get("workload", [])]
    for place, one in enumerate(mix):
        one.pop("gpus", None)
        levels[str(one.get("name", place))] = level_of(one, f"workload.{place}.", problems)
    whole = {"kind": "training", **head}
    if mix:
        given = _runs_apart(mix, whole["kind"], given, problems)
    return {"study": whole, "base": _paid_for({**base, **given}), "workload": mix}


def _runs_apart(
    mix: Sequence[dict[str, Any]], kind: str, given: Mapping[str, Any], problems: list[Problem]
) -> dict[str, Any]:
    """What is given without the flags of a whole run, which go to what is trained of a mix."""
    runs = {name: value for name, value in given.items() if name in RUN}
    trained = [one for one in mix if one.get("kind", kind) == "training"]
    for one in trained:
        one |= {**runs, **one}
    if not trained:
        problems += [wrong(name, value, "nothing is trained") for name, value in runs.items()]
    return {name: value for name, value in given.items() if name not in runs}


def _tables(file: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """The tables of a mix; what is none is stated, and left out."""
    found: dict[str, Any] = {}
    for name in ("study", "base"):
        if name in file and isinstance(file[name], Mapping):
            found[name] = file[name]
        elif name in file:
            problems.append(wrong(name, file[name], "not a table"))
    mix = file.get("workload", [])
    if isinstance(mix, list) and all(isinstance(one, Mapping) for one in mix):
        found["workload"] = mix
    else:
        allowed = "[[workload]]"
        problems.append(wrong("workload", mix, "not a list of tables", allowed))
    return found


def study_of(
    table: dict[str, Any], systems: Sequence[Given], problems: list[Problem]
) -> Study | None:
    """The work on each of the systems, which are tables where they are described and not named."""
    held = {name: part for name, part in table.items() if part}
    try:
        names = [name_of(system) for system in systems]
        study = read_study({**held, "vary": {"system": names or ["none"]}})
        if not systems:  # which was said
            return None
        study = replace(study, axes=(Axis(path="system", values=tuple(systems)),))
        problems += trial_problems(study)
        check_payment(payment_of(study))
    except BadInput as error:
        problems += error.problems
        return None
    return study


def payment_of(study: Study) -> Payment:
    given = {n: study.base[n] for n in (*PAID, "price") if n in study.base}
    return Payment(**given, set=study.settings)
