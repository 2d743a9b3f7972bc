"""`foretell.compare`: systems ranked by what they do for the money, and how sure the order is.

What is asked (the work as a study over systems, latency targets of services, the money) is read here.

clusters.py   how many chips a sum pays for, and other fabrics between them
workloads.py  what a cluster does with the work
ranking.py    the order, how sure it is, and why
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretell import units
from foretell.api.cost import Payment, check_payment
from foretell.catalog.files import read_table
from foretell.errors import BadInput, Problem, ProblemsError, unknown, wrong
from foretell.inputs.question import as_texts
from foretell.interop.user_files import user_file
from foretell.specs.measurement import Measurement
from foretell.specs.questions.compare import CompareQuestion
from foretell.specs.questions.flags import asks, values_of
from foretell.specs.study import Axis, Study
from foretell.studies.axes import PAID, RUN
from foretell.studies.procurement.clusters import (
    NO_PRICE,
    ClusterBill,
    Given,
    affordable,
    cost_of,
    lacks_price,
    name_of,
    on_topologies,
    same_system,
)
from foretell.studies.procurement.ranking import ClusterKind, Ranking, rank_kinds
from foretell.studies.procurement.workloads import (
    TPOT_MS,
    LatencyTargets,
    notes_of,
    rows_of,
    run_workload,
    without_money,
)
from foretell.studies.study_file import read_study
from foretell.studies.sweep.mix import shares
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
        problems.append(wrong("budget", budget, message, "--budget 10M or --gpus 64"))
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
        problems.append(wrong("workload", mix, "not a list of tables", "[[workload]]"))
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


MEASURES = ("tokens", "usd")
"""What systems may be ranked by: tokens per second, or the cost of a token."""
SERVICE = ("isl", "osl", "concurrency", "engine")
"""Flags that make the work a service."""
APART = (
    "systems", "model", "budget", "gpus", "workload", "by", "set", "seed", "measured", "progress",
    "topologies", "equal",
)  # fmt: skip
"""Fields of the question that are no flags of its work."""


@asks(CompareQuestion)
def compare(question: CompareQuestion) -> Ranking:
    """The best cluster of each kind for a sum of money, or of so many chips, in its order.

    A system or the model is a name, a file, or the table that such a file has. The work is a training step
    (`global_batch`, `tokens`, ...) or a service (`isl`, `osl`, `tpot`, ...); `workload` has a study's
    `[base]` and `[[workload]]` instead, for a mix.
    """
    model, gpus, workload, by = question.model, question.gpus, question.workload, question.by
    given = {n: v for n, v in values_of(question).items() if n not in APART and v is not None}
    problems: list[Problem] = []
    levels = {"": level_of(given, "", problems)}
    money = budget_of(question.budget, gpus, problems)
    if by is not None and by not in MEASURES:
        problems.append(unknown("by", by, MEASURES))
    systems: Sequence[Given] = [
        one if isinstance(one, Mapping) else str(one) for one in question.systems
    ]
    if question.topologies:
        systems = on_topologies(systems, question.topologies, question.equal, gpus)
    names = [name_of(system) for system in systems]
    if not names or len({*names}) < len(names):
        problems.append(wrong("systems", names, "names none, or one twice", "each once"))
    sized = {} if gpus is None else {"gpus": gpus}
    given |= sized if model is None else {**sized, "model": model}
    if workload is None:
        service = levels[""] != LatencyTargets() or any(name in given for name in SERVICE)
        table = one_work(given, "serving" if service else "training")
    else:
        table = mix_of(workload, given, levels, problems)
    if settings := as_texts(question.set):
        table["base"]["set"] = [*table["base"].get("set", ()), *settings]
    measured = rows_of(question.measured, systems, gpus, problems)
    if workload is None and model is None:
        allowed = "--model with an id, a config.json or a TOML file"
        problems.append(wrong("model", None, "missing", allowed))
        raise BadInput(problems)
    study = study_of(table, systems, problems)
    if problems or study is None:
        raise BadInput(problems)
    once, said = _once(systems)
    kinds = []
    for place, system in enumerate(once):
        if question.progress is not None:
            question.progress(place, len(once))
        kinds.append(_kind(study, system, money, gpus, levels, measured))
    found = rank_kinds(study, kinds, money, by, question.seed)
    return replace(found, assumptions=(*said, *notes_of(measured), *found.assumptions))


def _once(systems: Sequence[Given]) -> tuple[list[Given], list[str]]:
    """The systems, each once whatever it is called, and which names were left out."""
    once: list[Given] = []
    said = []
    for system in systems:
        known = next((one for one in once if same_system(one, system)), None)
        if known is None:
            once.append(system)
        else:
            said.append(f"{name_of(system)} is the same system as {name_of(known)}: listed once")
    return once, said


def _kind(
    study: Study,
    system: Given,
    budget: float | None,
    gpus: int | None,
    levels: Mapping[str, LatencyTargets],
    measured: Sequence[Measurement] = (),
) -> ClusterKind:
    """The best cluster of one kind: of those that the money pays for, the one that does most."""
    tried: list[ClusterKind] = []
    try:
        paid = payment_of(study)
        if budget is None:
            clusters = [cost_of(system, int(gpus or 0), paid)]
        else:
            clusters = affordable(system, budget, paid)
    except ProblemsError as error:
        if budget is None and lacks_price(error):
            return _unpriced(study, system, int(gpus or 0), levels, error, measured)
        return _not(name_of(system), None, error)
    for cluster in clusters:
        try:
            tried.append(_of_cluster(study, cluster, levels, measured))
        except ProblemsError as error:
            tried.append(_not(name_of(system), cluster, error))
    return max(tried, key=lambda kind: kind.tokens_per_s or 0.0)


def _of_cluster(
    study: Study,
    cluster: ClusterBill,
    levels: Mapping[str, LatencyTargets],
    measured: Sequence[Measurement],
) -> ClusterKind:
    """Every workload on one cluster, and the mix of them."""
    share = shares(study)
    works = tuple(
        run_workload(
            study,
            workload,
            cluster.system,
            cluster.gpus,
            share["" if workload is None else workload.name],
            levels.get("" if workload is None else workload.name, levels[""]),
            measured,
        )
        for workload in (study.workloads or (None,))
    )
    seconds = sum(one.part.share * one.part.seconds for one in works)
    return ClusterKind(
        system=name_of(cluster.system),
        cluster=cluster,
        works=works,
        tokens_per_s=cluster.gpus / seconds,
        usd_per_million_tokens=1e6 * sum(one.part.share * one.part.usd for one in works),
        interval=None,
        problem=None,
    )


def _unpriced(
    study: Study,
    system: Given,
    gpus: int,
    levels: Mapping[str, LatencyTargets],
    error: ProblemsError,
    measured: Sequence[Measurement],
) -> ClusterKind:
    """What a cluster does of which no price is known: a rent is in, and nothing of it is stated."""
    cluster = ClusterBill(system=system, gpus=gpus, usd=None, years=None, paid=NO_PRICE)
    stand_in = replace(study, base={**study.base, "rent": "on-demand", "price": 1.0})
    try:
        kind = _of_cluster(stand_in, cluster, levels, measured)
    except ProblemsError as other:
        return _not(name_of(system), cluster, other)
    works = tuple(without_money(one) for one in kind.works)
    return replace(kind, works=works, usd_per_million_tokens=None, no_price=_words(error))


def _words(error: ProblemsError) -> str:
    return "; ".join(str(problem) for problem in error.problems)


def _not(system: str, cluster: ClusterBill | None, error: ProblemsError) -> ClusterKind:
    return ClusterKind(
        system=system, cluster=cluster, works=(), tokens_per_s=None, usd_per_million_tokens=None,
        interval=None, problem=_words(error),
    )  # fmt: skip
