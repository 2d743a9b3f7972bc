"""`foretell.compare`: systems ranked by what they do for the money, and how sure the order is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foretell import units
from foretell.bills import Payment, check_payment
from foretell.catalog.files import read_table
from foretell.errors import BadInput, Infeasible, Problem, ProblemsError, unknown
from foretell.procure.clusters import Bought, Given, affordable, cost_of, name_of
from foretell.procure.works import TPOT_MS, Done, Levels, done
from foretell.question import as_texts
from foretell.search.flags import PAID
from foretell.search.ranking import (
    CERTAIN,
    Array,
    Contender,
    Drawn,
    beats,
    doubts,
    draw,
    spread_of,
)
from foretell.search.study import read_study
from foretell.specs.study import Axis, Study
from foretell.sweep.mix import shares
from foretell.sweep.run import trial_problems

MEASURES = ("tokens", "usd")
"""What may be ranked by: tokens a second, or what one costs."""
SERVICE = ("isl", "osl", "concurrency", "rate", "engine", "spread")
"""Flags that make the work a service."""
MOST_DOUBTS = 5
"""Reasons that are told why an order is doubtful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The best cluster of one kind."""

    system: str
    """Which."""
    cluster: Bought | None
    """How many chips, and what they cost; none where it cannot be."""
    works: tuple[Done, ...]
    """What it does with each workload."""
    tokens_per_s: float | None
    """Work tokens a second of the mix, of the whole cluster."""
    usd_per_million_tokens: float | None
    """What a million of them costs."""
    interval: Mapping[str, Mapping[str, tuple[float, float]]] | None
    """p50 and p90 of both."""
    problem: str | None
    """Why it cannot be."""

    @property
    def intervals(self) -> dict[str, Mapping[str, tuple[float, float]]]:
        """The same under the name that every result has; empty where it cannot be."""
        return dict(self.interval or {})

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        bought = self.cluster
        return {
            "system": self.system,
            "gpus": None if bought is None else bought.gpus,
            "usd": None if bought is None else bought.usd,
            "years": None if bought is None else bought.years,
            "paid": None if bought is None else bought.paid,
            "tokens_per_s": self.tokens_per_s,
            "usd_per_million_tokens": self.usd_per_million_tokens,
            "interval": self.interval,
            "intervals": self.intervals,
            "workloads": {one.part.workload: one.facts for one in self.works},
            "problem": self.problem,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Systems in their order."""

    by: str
    """tokens or usd."""
    budget_usd: float | None
    """What is spent; none where chips are given."""
    kinds: tuple[Kind, ...]
    """The best first; those that cannot be last."""
    beats: tuple[tuple[float, ...], ...]
    """Of those that can, how probable it is that one (row) beats another (column), in their order."""
    certain: bool
    """Whether the first beats every other in nine cases of ten."""
    doubts: tuple[tuple[str, float], ...]
    """What makes first or second doubtful, with half-widths of the ratio of the two."""
    workloads: Mapping[str, float]
    """Shares of the mix."""
    assumptions: tuple[str, ...]
    """What all of it rests on."""

    @property
    def best(self) -> Kind:
        """The first."""
        return self.kinds[0]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        able = [kind.system for kind in self.kinds if kind.problem is None]
        return {
            "by": self.by,
            "budget_usd": self.budget_usd,
            "best": able[0] if able else None,
            "certain": self.certain,
            "systems": [kind.to_dict() for kind in self.kinds],
            "beats": {
                a: {b: p for b, p in zip(able, row, strict=True) if a != b}
                for a, row in zip(able, self.beats, strict=True)
            },
            "doubts": [{"cause": name, "half_width": by} for name, by in self.doubts],
            "workloads": dict(self.workloads),
            "conclusions": list(conclusions(self)),
            "assumptions": list(self.assumptions),
        }


def compare(
    systems: Sequence[Given],
    *,
    model: Given | None = None,
    budget: str | float | None = None,
    gpus: int | None = None,
    workload: str | Path | Mapping[str, Any] | None = None,
    by: str = "tokens",
    set: Mapping[str, object] | Sequence[str] = (),
    seed: int = 0,
    **flags: Any,
) -> Ranking:
    """The best cluster of each kind for a sum of money, or of so many chips, in its order.

    A system or the model is a name, a file, or the table that such a file has.
    `flags` are those of a training step (`global_batch`, `tokens`, ...) or of a service (`isl`, `osl`,
    `tpot`, ...), `plan`, and `rent`, `region`, `years`, `utilisation`, `price`; `workload` has a study's
    `[base]` and `[[workload]]` instead, for a mix.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    problems: list[Problem] = []
    levels = {"": _level(given, "", problems)}
    money = _budget(budget, gpus, problems)
    if by not in MEASURES:
        problems.append(unknown("by", by, MEASURES))
    systems = [one if isinstance(one, Mapping) else str(one) for one in systems]
    names = [name_of(system) for system in systems]
    if not names or len({*names}) < len(names):
        message = "names none, or one twice"
        problems.append(Problem(path="systems", value=names, message=message, allowed="each once"))
    sized = {} if gpus is None else {"gpus": gpus}
    given |= sized if model is None else {**sized, "model": model}
    if workload is None:
        service = levels[""] != Levels() or any(name in given for name in SERVICE)
        table = _one(given, "serving" if service else "training")
    else:
        table = _mix(workload, given, levels, problems)
    if settings := as_texts(set):
        table["base"]["set"] = [*table["base"].get("set", ()), *settings]
    study = _study(table, systems, problems)
    if problems or study is None:
        raise BadInput(problems)
    kinds = [_kind(study, system, money, gpus, levels) for system in systems]
    return _ranked(study, kinds, money, by, seed)


def _level(given: dict[str, Any], where: str, problems: list[Problem]) -> Levels:
    found = {}
    for name, usual in (("tpot", TPOT_MS), ("ttft", math.inf)):
        value = given.pop(name, usual)
        try:
            found[f"{name}_ms"] = float(value)
        except (TypeError, ValueError, OverflowError):
            problems.append(
                Problem(path=f"{where}{name}", value=value, message="not a number of ms")
            )
    return Levels(**found)


def _budget(budget: Any, gpus: Any, problems: list[Problem]) -> float | None:
    """The sum that is spent."""
    if (budget is None) == (gpus is None):
        message = "one of budget and gpus says how large the clusters are"
        problems.append(Problem(path="budget", value=budget, message=message))
    if budget is None:
        return None
    try:
        value = units.parse(budget, "usd", "budget")
    except BadInput as error:
        problems += error.problems
        return None
    if not 0.0 < value < 1e15:
        message = "not a usable sum"
        problems.append(
            Problem(path="budget", value=budget, message=message, allowed="such as 10M")
        )
        return None
    return value


def _one(given: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """One kind of work as a study's tables."""
    return {"study": {"kind": kind}, "base": _paid_for(given)}


def _paid_for(given: Mapping[str, Any]) -> dict[str, Any]:
    """Flags with a way to pay: chips are owned, or rented where their rent is given."""
    return {"rent": "on-demand" if "price" in given else "own", **given}


def _mix(
    file: str | Path | Mapping[str, Any],
    given: Mapping[str, Any],
    levels: dict[str, Levels],
    problems: list[Problem],
) -> dict[str, Any]:
    """A mix from a study's tables; levels of its services are put into `levels`.

    What the study says of systems, chips, fields that vary and objectives is another question's.
    """
    if not isinstance(file, Mapping):
        try:
            file = read_table(Path(file))
        except BadInput as error:
            problems += error.problems
            file = {}
    file = _tables(file, problems)
    head = {n: v for n, v in file.get("study", {}).items() if n in ("kind", "plan")}
    base = {n: v for n, v in file.get("base", {}).items() if n not in ("system", "gpus")}
    mix = [dict(one) for one in file.get("workload", [])]
    for place, one in enumerate(mix):
        one.pop("gpus", None)
        levels[str(one.get("name", place))] = _level(one, f"workload.{place}.", problems)
    whole = {"kind": "training", **head}
    return {"study": whole, "base": _paid_for({**base, **given}), "workload": mix}


def _tables(file: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    """The tables of a mix; what is none is said, and left out."""
    found: dict[str, Any] = {}
    for name in ("study", "base"):
        if name in file and isinstance(file[name], Mapping):
            found[name] = file[name]
        elif name in file:
            problems.append(Problem(path=name, value=file[name], message="not a table"))
    mix = file.get("workload", [])
    if isinstance(mix, list) and all(isinstance(one, Mapping) for one in mix):
        found["workload"] = mix
    else:
        allowed = "[[workload]]"
        problems.append(
            Problem(path="workload", value=mix, message="not a list of tables", allowed=allowed)
        )
    return found


def _study(
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
        check_payment(_payment(study))
    except BadInput as error:
        problems += error.problems
        return None
    return study


def _payment(study: Study) -> Payment:
    given = {n: study.base[n] for n in (*PAID, "price") if n in study.base}
    return Payment(**given, set=study.settings)


def _kind(
    study: Study,
    system: Given,
    budget: float | None,
    gpus: int | None,
    levels: Mapping[str, Levels],
) -> Kind:
    """The best cluster of one kind: of those that the money pays for, the one that does most."""
    tried: list[Kind] = []
    try:
        paid = _payment(study)
        if budget is None:
            clusters = [cost_of(system, int(gpus or 0), paid)]
        else:
            clusters = affordable(system, budget, paid)
    except ProblemsError as error:
        return _not(name_of(system), None, error)
    for cluster in clusters:
        try:
            tried.append(_of_cluster(study, cluster, levels))
        except ProblemsError as error:
            tried.append(_not(name_of(system), cluster, error))
    return max(tried, key=lambda kind: kind.tokens_per_s or 0.0)


def _of_cluster(study: Study, cluster: Bought, levels: Mapping[str, Levels]) -> Kind:
    """Every workload on one cluster, and the mix of them."""
    share = shares(study)
    works = tuple(
        done(
            study,
            workload,
            cluster.system,
            cluster.gpus,
            share["" if workload is None else workload.name],
            levels.get("" if workload is None else workload.name, levels[""]),
        )
        for workload in (study.workloads or (None,))
    )
    seconds = sum(one.part.share * one.part.seconds for one in works)
    return Kind(
        system=name_of(cluster.system),
        cluster=cluster,
        works=works,
        tokens_per_s=cluster.gpus / seconds,
        usd_per_million_tokens=1e6 * sum(one.part.share * one.part.usd for one in works),
        interval=None,
        problem=None,
    )


def _not(system: str, cluster: Bought | None, error: ProblemsError) -> Kind:
    told = "; ".join(str(problem) for problem in error.problems)
    return Kind(
        system=system, cluster=cluster, works=(), tokens_per_s=None, usd_per_million_tokens=None,
        interval=None, problem=told,
    )  # fmt: skip


def _ranked(
    study: Study, kinds: Sequence[Kind], budget: float | None, by: str, seed: int
) -> Ranking:
    """The kinds in their order, with intervals from cases that were drawn together."""
    able = [kind for kind in kinds if kind.problem is None]
    if not able:
        raise Infeasible(
            [Problem(path=k.system, value=None, message=k.problem or "cannot be") for k in kinds]
        )
    cases = draw([_contender(kind) for kind in able], seed)
    rates = _rates(able, cases, budget)
    found = [
        replace(
            kind,
            interval={
                "tokens_per_s": spread_of(rates[place], kind.tokens_per_s or 0.0),
                "usd_per_million_tokens": spread_of(
                    1e6 * cases.usd[place], kind.usd_per_million_tokens or 0.0
                ),
            },
        )
        for place, kind in enumerate(able)
    ]
    best_first = sorted(range(len(found)), key=lambda place: _key(found[place], by))
    won = beats((cases.usd if by == "usd" else -rates)[best_first])
    ordered = [found[place] for place in best_first]
    money = by == "usd" or budget is not None
    said = dict.fromkeys(text for kind in found for one in kind.works for text in one.assumptions)
    return Ranking(
        by=by,
        budget_usd=budget,
        kinds=(*ordered, *(kind for kind in kinds if kind.problem)),
        beats=tuple(tuple(float(p) for p in row) for row in won),
        certain=len(found) > 1 and bool((np.delete(won[0], 0) >= CERTAIN).all()),
        doubts=_why(ordered[:2], money),
        workloads=shares(study),
        assumptions=tuple(said),
    )


def _rates(kinds: Sequence[Kind], cases: Drawn, budget: float | None) -> Array:
    """Tokens a second of each cluster in each case.

    A sum pays for more chips where they are cheaper: then they go as tokens for a dollar.
    """
    rows = []
    for place, kind in enumerate(kinds):
        expected = kind.tokens_per_s or 0.0
        if budget is None:
            rows.append(_gpus(kind) / cases.seconds[place])
        else:
            usd = 1e-6 * (kind.usd_per_million_tokens or 0.0)
            rows.append(expected * usd / cases.usd[place])
    return np.array(rows)


def _why(two: Sequence[Kind], money: bool) -> tuple[tuple[str, float], ...]:
    """What makes the order of the first two doubtful."""
    if len(two) < 2:
        return ()
    return tuple(doubts(_contender(two[0]), _contender(two[1]), money=money)[:MOST_DOUBTS])


def _gpus(kind: Kind) -> float:
    assert kind.cluster is not None
    return float(kind.cluster.gpus)


def _key(kind: Kind, by: str) -> float:
    return kind.usd_per_million_tokens or 0.0 if by == "usd" else -(kind.tokens_per_s or 0.0)


def _contender(kind: Kind) -> Contender:
    return Contender(
        name=kind.system,
        architecture=kind.works[0].architecture,
        parts=tuple(one.part for one in kind.works),
    )


def conclusions(found: Ranking) -> list[str]:
    """The ranking in sentences."""
    able = [kind for kind in found.kinds if kind.problem is None]
    first = able[0]
    if len(able) < 2:
        return [f"{first.system} is the only one with an answer."]
    second, sure = able[1], found.beats[0][1]
    if found.by == "usd":
        ratio = (second.usd_per_million_tokens or 0.0) / (first.usd_per_million_tokens or 1.0)
        lead = (
            f"a token of {first.system} costs {1 - 1 / ratio:.0%} less than one of {second.system}"
        )
    else:
        ratio = (first.tokens_per_s or 0.0) / (second.tokens_per_s or 1.0)
        lead = f"{first.system} does {ratio - 1:.0%} more than {second.system}"
    said = [f"{lead}, and beats it in {sure:.0%} of cases."]
    if found.certain:
        said.append("It beats every other in nine cases of ten: that is certain enough.")
    else:
        close = [k.system for k, p in zip(able[1:], found.beats[0][1:], strict=True) if p < CERTAIN]
        said.append(f"Not certain against: {', '.join(close)}.")
    if found.doubts:
        told = ", ".join(f"{name} ({by:.0%})" for name, by in found.doubts[:3])
        said.append(f"What is not shared between the first two, and decides: {told}.")
    return said
