"""Kinds of clusters in their order: intervals and wins from cases drawn together, and the order in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from foretell.errors import Infeasible, wrong
from foretell.records import Answer, JsonRecord
from foretell.search.ranking import CERTAIN, Contender, SystemDraws, beats, doubts, draw, spread_of
from foretell.specs.arrays import Array
from foretell.specs.study import Study
from foretell.studies.procurement.clusters import NO_PRICE, ClusterBill
from foretell.studies.procurement.workloads import WorkloadResult
from foretell.studies.sweep.mix import shares

MOST_DOUBTS = 5
"""Main uncertainties that are listed."""
PRICES_OF_WORK = (
    "usd_per_run", "usd_per_request", "usd_per_million_input_tokens",
    "usd_per_million_output_tokens",
)  # fmt: skip
"""Prices besides the blended one of a million tokens: of a run, of a request, and split by direction."""


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

    def one_fact(self, name: str) -> Any:
        """A fact that one workload alone has; None where several or none have it."""
        found = [one.facts[name] for one in self.works if one.facts.get(name) is not None]
        return found[0] if len(found) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """The cluster as JSON."""
        bought = self.cluster
        return {
            "system": self.system,
            "gpus": None if bought is None else bought.gpus,
            "usd": None if bought is None else bought.usd,
            "years": None if bought is None else bought.years,
            "paid": None if bought is None else bought.paid,
            "tokens_per_s": self.tokens_per_s,
            "usd_per_million_tokens": self.usd_per_million_tokens,
            **{name: self.one_fact(name) for name in PRICES_OF_WORK},
            "total_cost": None if bought is None or bought.usd is None else dict(bought.parts),
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
class Ranking(JsonRecord, Answer):
    """Systems in their order."""

    verb = "compare"

    by: str
    """tokens or usd."""
    budget_usd: float | None
    """What is spent; none where chips are given."""
    kinds: tuple[ClusterKind, ...]
    """The best first; by money, those without a price behind those with one; those that cannot be last."""
    beats: tuple[tuple[float, ...], ...]
    """Of those that contend, how probable it is that one (row) beats another (column), in their order."""
    certain: bool
    """Whether the first ranks before every other in at least 90 % of draws."""
    doubts: tuple[Doubt, ...]
    """Main uncertainties between the first two, the largest first."""
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

    @property
    def cheapest(self) -> ClusterKind | None:
        """The system with the lowest cost per million tokens; None where no price is known."""
        priced = [kind for kind in self.kinds if _contends(kind, "usd")]
        return min(priced, key=lambda kind: _key(kind, "usd"), default=None)

    @property
    def fastest(self) -> ClusterKind | None:
        """The system with the most tokens/s."""
        able = [kind for kind in self.kinds if kind.problem is None]
        return min(able, key=lambda kind: _key(kind, "tokens"), default=None)

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        able = [kind.system for kind in self.contenders]
        return {
            "by": self.by,
            "budget_usd": self.budget_usd,
            "best": able[0] if able else None,
            "cheapest": None if self.cheapest is None else self.cheapest.system,
            "fastest": None if self.fastest is None else self.fastest.system,
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
    study: Study, kinds: Sequence[ClusterKind], budget: float | None, by: str | None, seed: int
) -> Ranking:
    """The kinds in their order, with intervals from cases that were drawn together.

    Without `by` the order is by money, or by speed where no price is known at all.
    """
    able = [kind for kind in kinds if kind.problem is None]
    by = by or ("usd" if any(_contends(kind, "usd") for kind in able) else "tokens")
    if not any(_contends(kind, by) for kind in able):
        why = [(kind.system, kind.problem or kind.no_price or "cannot be") for kind in kinds]
        raise Infeasible([wrong(path, None, text) for path, text in why])
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
    bills = [kind.cluster for kind in found if kind.cluster is not None]
    said |= dict.fromkeys(text for bill in bills for text in bill.assumptions)
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
    """The verdict in sentences: the first by what was ranked and how certain it is, and the other measure."""
    able = found.contenders
    said = [_lead(found)]
    if (other := _other_measure(found)) is not None:
        said.append(other)
    said += _against_others(found)
    said += rent_notes(able)
    if unpriced := [kind.system for kind in found.kinds if kind.no_price]:
        names = ", ".join(unpriced)
        said.append(f"No price is known for {names}: listed with speed only, and the reason.")
    return said


def rent_notes(able: Sequence[ClusterKind]) -> list[str]:
    """What to know of rents that are not alike: different terms, or listings of different providers.

    The median over many providers is of dearer ones than a single cheap listing: at a provider that lists
    every system they are compared like for like.
    """
    rented = [(k, k.cluster) for k in able if k.cluster is not None and k.cluster.rents]
    if len(rented) < 2:
        return []
    said = []
    if len({bill.paid for _, bill in rented}) > 1:
        terms = ", ".join(f"{kind.system} {bill.paid}" for kind, bill in rented)
        said.append(f"Rented on different terms: {terms}. Name one term with --rent.")
    if len({frozenset(bill.rents) for _, bill in rented}) == 1:
        return said
    counts = ", ".join(f"{kind.system} {len(bill.rents)}" for kind, bill in rented)
    shared = set.intersection(*({*bill.rents} for _, bill in rented))
    if not shared:
        rest = "no provider lists them all, so the order may be the providers'"
    else:
        at = min(shared, key=lambda name: sum(bill.rents[name] for _, bill in rented))
        alike = {k.system: b.rents[at] / (b.usd_per_chip_hour or 1.0) for k, b in rented}
        usd = {k.system: (k.usd_per_million_tokens or 0.0) * alike[k.system] for k, _ in rented}
        prices = ", ".join(
            f"{name} {significant(usd[name])}" for name in sorted(usd, key=usd.__getitem__)
        )
        rest = f"at {at}, which lists them all: {prices} USD per million tokens"
    said.append(f"Rents are medians over different providers (listings: {counts}); {rest}.")
    return said


def _lead(found: Ranking) -> str:
    """Who is first, by how much before the second, and how certain that is."""
    first, *others = found.contenders
    money = found.by == "usd"
    words = _price_words(first) if money else _speed_words(first)
    if not others:
        return f"{first.system} is the only system with an answer: {words}."
    second = others[0]
    if money:
        lead = f"{first.system} is cheapest{_way(first)}"
        by = 1.0 - (first.usd_per_million_tokens or 0.0) / (second.usd_per_million_tokens or 1.0)
        how = f"{by:.0%} less than {second.system}"
    else:
        lead = f"{first.system} is fastest"
        by = (first.tokens_per_s or 0.0) / (second.tokens_per_s or 1.0) - 1.0
        how = f"{by:.0%} more than {second.system}"
    sure, word = "certain" if found.certain else "not certain", "cheaper" if money else "faster"
    share = f"{sure}: {word} in {found.beats[0][1]:.0%} of draws"
    return f"{lead}: {words}, {how} ({share})."


def _against_others(found: Ranking) -> list[str]:
    """In how many draws the first is ahead of those behind the second."""
    word = "cheaper" if found.by == "usd" else "faster"
    others = zip(found.contenders[2:], found.beats[0][2:], strict=True)
    often = ", ".join(f"than {kind.system} in {share:.0%}" for kind, share in others)
    return [f"It is {word} {often} of draws."] if often else []


def _way(kind: ClusterKind) -> str:
    """How a cluster is paid, in words."""
    if kind.cluster is None or kind.cluster.paid == NO_PRICE:
        return ""
    return ", bought and run" if kind.cluster.paid == "own" else f", rented {kind.cluster.paid}"


def _other_measure(found: Ranking) -> str | None:
    """The fastest where money ranks, the cheapest where speed does; None where nothing is to compare."""
    money = found.by == "usd"
    other = found.fastest if money else found.cheapest
    if other is None or sum(kind.problem is None for kind in found.kinds) < 2:
        return None
    words = _speed_words(other) if money else _price_words(other)
    name = "fastest" if money else "cheapest"
    if other.system == found.contenders[0].system:
        return f"It is also the {name}: {words}."
    return f"{name.capitalize()}: {other.system}, {words}."


def _price_words(kind: ClusterKind) -> str:
    """The blended price, and that of a run or a request where there is one."""
    service = kind.one_fact("usd_per_request")
    said = f"{significant(kind.usd_per_million_tokens or 0.0)} USD per million tokens"
    if service is not None:
        return f"{said} (prompt and answer blended), {significant(service)} USD per request"
    run = kind.one_fact("usd_per_run")
    return said if run is None else f"{said}, {significant(run)} USD per run"


def _speed_words(kind: ClusterKind) -> str:
    gpus = "" if kind.cluster is None else f" on {kind.cluster.gpus:,} GPUs"
    return f"{kind.tokens_per_s or 0.0:,.0f} tokens/s{gpus}"


def significant(value: float) -> str:
    """A number to three significant digits, large ones with commas."""
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:#.3g}"
