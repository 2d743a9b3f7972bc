"""`foretell.compare`: systems ranked by what they do for the money, and how sure the order is.

question.py   the work, the levels and the money, from flags and files
clusters.py   how many chips a sum pays for, and other fabrics between them
workloads.py  what a cluster does with the work
ranking.py    the order, how sure it is, and why
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from foretell.errors import BadInput, Problem, ProblemsError, unknown, wrong
from foretell.inputs.question import as_texts
from foretell.specs.measurement import Measurement
from foretell.specs.questions.compare import CompareQuestion
from foretell.specs.questions.flags import asks, values_of
from foretell.specs.study import Study
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
from foretell.studies.procurement.question import (
    budget_of,
    level_of,
    mix_of,
    one_work,
    payment_of,
    study_of,
)
from foretell.studies.procurement.ranking import ClusterKind, Ranking, rank_kinds
from foretell.studies.procurement.workloads import (
    LatencyTargets,
    notes_of,
    rows_of,
    run_workload,
    without_money,
)
from foretell.studies.sweep.mix import shares

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
