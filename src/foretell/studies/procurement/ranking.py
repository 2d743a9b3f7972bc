"""Kinds of clusters in their order: intervals and wins from cases drawn together, and the order in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from foretell.errors import Infeasible, Problem
from foretell.records import JsonRecord
from foretell.search.ranking import (
    CERTAIN,
    Array,
    Contender,
    SystemDraws,
    beats,
    doubts,
    draw,
    spread_of,
)
from foretell.specs.study import Study
from foretell.studies.procurement.clusters import ClusterBill
from foretell.studies.procurement.workloads import WorkloadResult
from foretell.studies.sweep.mix import shares

MOST_DOUBTS = 5
"""Reasons that are told why an order is doubtful."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKind:
    """The best cluster of one kind."""

    system: str
    """Which."""
    cluster: ClusterBill | None
    """How many chips, and what they cost; none where it cannot be."""
    works: tuple[WorkloadResult, ...]
    """What it does with each workload."""
    tokens_per_s: float | None
    """Work tokens a second of the mix, of the whole cluster."""
    usd_per_million_tokens: float | None
    """What a million of them costs."""
    interval: Mapping[str, Mapping[str, tuple[float, float]] | None] | None
    """p50 and p90 of both; none of money where no price is known."""
    problem: str | None
    """Why it cannot be."""
    no_price: str | None = None
    """Why nothing of money is known of it, though of the rest."""

    @property
    def intervals(self) -> dict[str, Mapping[str, tuple[float, float]]]:
        """The same under the name that every result has; empty where it cannot be."""
        return {name: ends for name, ends in (self.interval or {}).items() if ends is not None}

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
            "no_price": self.no_price,
        }


class Doubt(NamedTuple):
    """Something that makes it doubtful which of two is better."""

    cause: str
    """What."""
    half_width: float
    """Half-width of ln(first / second) by it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(JsonRecord):
    """Systems in their order."""

    by: str
    """tokens or usd."""
    budget_usd: float | None
    """What is spent; none where chips are given."""
    kinds: tuple[ClusterKind, ...]
    """The best first; by money, those without a price behind those with one; those that cannot be last."""
    beats: tuple[tuple[float, ...], ...]
    """Of those that contend, how probable it is that one (row) beats another (column), in their order."""
    certain: bool
    """Whether the first beats every other in nine cases of ten."""
    doubts: tuple[Doubt, ...]
    """What makes first or second doubtful, the largest first."""
    workloads: Mapping[str, float]
    """Shares of the mix."""
    assumptions: tuple[str, ...]
    """What all of it rests on."""

    @property
    def contenders(self) -> tuple[ClusterKind, ...]:
        """Those that the order is among: by money, those with a price."""
        return tuple(kind for kind in self.kinds if _contends(kind, self.by))

    @property
    def best(self) -> ClusterKind:
        """The first."""
        return self.kinds[0]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        able = [kind.system for kind in self.contenders]
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
            "doubts": [doubt._asdict() for doubt in self.doubts],
            "workloads": dict(self.workloads),
            "conclusions": list(conclusions(self)),
            "assumptions": list(self.assumptions),
        }


def rank_kinds(
    study: Study, kinds: Sequence[ClusterKind], budget: float | None, by: str, seed: int
) -> Ranking:
    """The kinds in their order, with intervals from cases that were drawn together."""
    able = [kind for kind in kinds if kind.problem is None]
    if not any(_contends(kind, by) for kind in able):
        why = [(kind.system, kind.problem or kind.no_price or "cannot be") for kind in kinds]
        raise Infeasible([Problem(path=path, value=None, message=text) for path, text in why])
    cases = draw([_contender(kind) for kind in able], seed)
    rates = _rates(able, cases, budget)
    found = [
        replace(
            kind,
            interval={
                "tokens_per_s": spread_of(rates[place], kind.tokens_per_s or 0.0),
                "usd_per_million_tokens": None
                if kind.usd_per_million_tokens is None
                else spread_of(1e6 * cases.usd[place], kind.usd_per_million_tokens),
            },
        )
        for place, kind in enumerate(able)
    ]
    best_first = sorted(
        (place for place, kind in enumerate(found) if _contends(kind, by)),
        key=lambda place: _key(found[place], by),
    )
    won = beats((cases.usd if by == "usd" else -rates)[best_first])
    ordered = [found[place] for place in best_first]
    unpriced = sorted(
        (kind for kind in found if not _contends(kind, by)), key=lambda kind: _key(kind, "tokens")
    )
    money = by == "usd" or budget is not None
    said = dict.fromkeys(text for kind in found for one in kind.works for text in one.assumptions)
    return Ranking(
        by=by,
        budget_usd=budget,
        kinds=(*ordered, *unpriced, *(kind for kind in kinds if kind.problem)),
        beats=tuple(tuple(float(p) for p in row) for row in won),
        certain=len(ordered) > 1 and bool((np.delete(won[0], 0) >= CERTAIN).all()),
        doubts=_why(ordered[:2], money),
        workloads=shares(study),
        assumptions=tuple(said),
    )


def _rates(kinds: Sequence[ClusterKind], cases: SystemDraws, budget: float | None) -> Array:
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


def _why(two: Sequence[ClusterKind], money: bool) -> tuple[Doubt, ...]:
    """What makes the order of the first two doubtful; of a price that is not known, nothing tells."""
    if len(two) < 2 or (money and any(kind.no_price for kind in two)):
        return ()
    found = doubts(_contender(two[0]), _contender(two[1]), money=money)
    return tuple(Doubt(cause, half_width) for cause, half_width in found[:MOST_DOUBTS])


def _gpus(kind: ClusterKind) -> float:
    assert kind.cluster is not None
    return float(kind.cluster.gpus)


def _contends(kind: ClusterKind, by: str) -> bool:
    """Whether a kind has what is ranked by."""
    return kind.problem is None and (by != "usd" or kind.no_price is None)


def _key(kind: ClusterKind, by: str) -> float:
    return kind.usd_per_million_tokens or 0.0 if by == "usd" else -(kind.tokens_per_s or 0.0)


def _contender(kind: ClusterKind) -> Contender:
    return Contender(
        name=kind.system,
        architecture=kind.works[0].architecture,
        parts=tuple(one.part for one in kind.works),
    )


def conclusions(found: Ranking) -> list[str]:
    """The ranking in sentences."""
    able = found.contenders
    first = able[0]
    unpriced = [kind.system for kind in found.kinds if kind.no_price]
    lacking = [f"No price is known of {', '.join(unpriced)}: speed alone is told."]
    lacking = lacking if unpriced else []
    if len(able) < 2:
        return [f"{first.system} is the only one with an answer.", *lacking]
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
    return said + lacking
