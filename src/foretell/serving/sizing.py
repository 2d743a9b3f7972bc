"""How many chips a service needs: layouts x replicas, together or disaggregated, in closed form.

An instance that meets L requests a second answers them with TTFT(L) and TPOT(L) (serving/steady.py), both of
which grow with L up to the most that it can answer, X. A rate R then takes

    replicas = the fewest with  R / replicas x (1 + headroom) <= X,  TTFT(R / replicas) <= its target,
               TPOT(R / replicas) <= its target

Nothing of a candidate depends on the targets but whether it meets them: a tighter target never needs fewer
chips, and latencies of an answer, asked for as targets, give that answer again or a cheaper one.

Disaggregated: prefill and decode have instances of their own, x of one layout and y of another, each found
the same way; the cache goes over the network between them (serving/disaggregation.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from foretell.records import dataclass
from foretell.serving.disaggregation import transfer
from foretell.serving.launch_rules import launch_refusal
from foretell.serving.layouts import powers
from foretell.serving.load_curves import (
    Curves,
    LoadCurve,
    curve_points,
    curves_of,
    together_curve,
)
from foretell.serving.memory import memory_of
from foretell.serving.sizing_records import Instance, Option, PrefillPlace, ServiceTargets
from foretell.serving.steps import step_times
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

SHORT_LIST = 16
"""Layouts of each kind that are paired."""
Systems = tuple[System, PrefillPlace | None]
"""Where decode is, and where prefill must be; None: on chips of the same system."""
BLOCKED_LIST = 4
"""Layouts of each kind that are paired where the engine does not launch them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingSearch:
    """The answer of a search."""

    options: tuple[Option, ...]
    """Ways to serve it within the targets, in the order of `place`; with prefill where it must be."""
    others: tuple[Option, ...]
    """Ways with prefill on other instances than it must be on; none where nothing was stated of it."""
    candidates: tuple[Option, ...]
    """Layouts with fewer replicas than they take, to be simulated, in the order of their rent."""
    other_candidates: tuple[Option, ...]
    """The same of the others."""
    pareto: tuple[Option, ...]
    """Of one instance each, those that none beats in tokens/s of a user and of a chip."""
    evaluated: int
    """Layouts x loads that were looked at."""
    curves: Curves
    """Latencies of every layout over its load."""
    blocked: tuple[Option, ...] = ()
    """Candidates that the engine does not launch, the cheapest first."""


def search_layouts(
    model: Model,
    system: System,
    base: Deployment,
    profile: EngineProfile,
    targets: tuple[ServiceTargets, float],
    where: PrefillPlace | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SizingSearch:
    """Every layout with the replicas that it takes, together and disaggregated.

    `targets`: what is asked, and how many times as long means may be where a percentile simulated still meets
    it. `where`: prefill instances must be there; what does without them is among the others.
    """
    wanted, slack = targets
    curves = curves_of(model, system, base, profile, wanted, where, progress)
    options = _aggregated(curves, wanted)
    candidates = _aggregated(curves, wanted, slack)
    if wanted.osl > 1.0:
        options += _disaggregated(curves, model, (system, None), wanted)
        candidates += _pairs(curves, None, wanted, slack)
    others: list[Option] = []
    other_candidates: list[Option] = []
    if where is not None:
        others, options = options, _disaggregated(curves, model, (system, where), wanted)
        other_candidates, candidates = candidates, _pairs(curves, where, wanted, slack)
    for some in (options, others, candidates, other_candidates):
        some.sort(key=lambda o: place(o, wanted))
    return SizingSearch(
        options=tuple(options),
        others=tuple(others),
        candidates=tuple(candidates),
        other_candidates=tuple(other_candidates),
        pareto=pareto(
            [one for c in curves.together if not c.refusal for one in curve_points(c)], wanted
        ),
        evaluated=sum(
            len(curve.rates)
            for some in (curves.together, curves.fronts, curves.backs, curves.placed)
            for curve in some
        ),
        curves=curves,
        blocked=_blocked(curves, where, wanted, slack),
    )


def _blocked(
    curves: Curves, where: PrefillPlace | None, wanted: ServiceTargets, slack: float
) -> tuple[Option, ...]:
    """Candidates that the engine does not launch, the cheapest first."""
    every = _aggregated(curves, wanted, slack, launched=False) if where is None else []
    if wanted.osl > 1.0:
        every += _pairs(curves, where, wanted, slack, launched=False)
    refused = [option for option in every if option.refusal]
    return tuple(sorted(refused, key=lambda o: place(o, wanted)))


def plain_options(
    model: Model,
    system: System,
    base: Deployment,
    profile: EngineProfile,
    wanted: ServiceTargets,
    slack: float,
) -> list[tuple[LoadCurve, int]]:
    """Plain instances of one node that the engine launches: heads and matrices cut (tp), nothing else.

    Each with the fewest replicas that it may take, the cheapest first.
    """
    node = system.node_chips
    found = []
    for tp in powers(min(node, wanted.most_gpus)):
        layout = replace(base, tp=tp, pp=1, dp=1, ep=1, cp=1)
        if launch_refusal(model, layout, profile):
            continue
        if not memory_of(model, system, layout, profile).fits:
            continue
        curve = together_curve(step_times(model, system, layout, profile), wanted)
        few = None if curve is None else curve.replicas(wanted, slack)
        if curve is not None and few is not None:
            found.append((curve, few))
    return sorted(found, key=lambda pair: pair[1] * pair[0].deployment.gpus)


def place(option: Option, wanted: ServiceTargets) -> tuple[float, float, float]:
    """Rank of an option: least rent, then most headroom that is sure (in percent), then soonest."""
    sure = option.sure_per_s / wanted.rate
    return option.worth, -round(sure, 2), option.tpot_ms + option.ttft_ms


def joined_ms(
    model: Model,
    systems: Systems,
    front: LoadCurve,
    back: LoadCurve,
    load: tuple[float, float],
) -> tuple[float, float]:
    """Milliseconds of a cache on its way, and from there to its first token; (isl, rate)."""
    isl, rate = load
    system, where = systems
    other = system if where is None else where.system
    fixed_s, token_s = transfer(model, system, front.deployment, back.deployment, other)
    assert back.joined_s is not None
    joined = float(np.interp(rate, back.rates, back.joined_s))
    return 1e3 * (fixed_s + token_s * isl), 1e3 * joined


def _aggregated(
    curves: Curves, wanted: ServiceTargets, slack: float = 1.0, *, launched: bool = True
) -> list[Option]:
    """Layouts with prefill and decode together, each with the replicas that it takes.

    `launched`: only those that the engine launches.
    """
    return [
        Option(
            kind="aggregated",
            instance=curve.at(wanted.rate / few),
            replicas=few,
            refusal=curve.refusal,
        )
        for curve in curves.together
        if not (launched and curve.refusal)
        if (few := curve.replicas(wanted, slack)) is not None
    ]


def _pairs(
    curves: Curves,
    where: PrefillPlace | None,
    wanted: ServiceTargets,
    slack: float,
    *,
    launched: bool = True,
) -> list[Option]:
    """Pairs of layouts, each with fewer replicas than it takes: the cache between them takes no time here."""
    placed = curves.fronts if where is None else curves.placed
    fronts = _cheapest(placed, wanted, slack, launched=launched)
    return [
        replace(
            _pair((back.at(wanted.rate / few), few), (front.at(wanted.rate / many), many), where),
            refusal=front.refusal or back.refusal,
        )
        for front, many in fronts
        for back, few in _cheapest(curves.backs, wanted, slack, launched=launched)
    ]


def _disaggregated(
    curves: Curves, model: Model, systems: Systems, wanted: ServiceTargets
) -> list[Option]:
    """Pairs of what does prefill cheapest and what decodes cheapest within the targets."""
    found = []
    backs = _cheapest(curves.backs, wanted)
    fronts = curves.fronts if systems[1] is None else curves.placed
    for front, _ in _cheapest(fronts, wanted):
        for back, few in backs:
            option = paired((front, back), few, model, systems, wanted)
            if option is not None:
                found.append(option)
    return found


def paired(
    pair: tuple[LoadCurve, LoadCurve],
    few: int,
    model: Model,
    systems: Systems,
    wanted: ServiceTargets,
) -> Option | None:
    """Both with as many instances as they take, the time between them included; None where none do."""
    front, back = pair
    moved, joined = joined_ms(model, systems, front, back, (wanted.isl, wanted.rate / few))
    left = replace(wanted, ttft_ms=wanted.ttft_ms - moved - joined)
    many = front.replicas(left)
    if many is None:
        return None
    one = front.at(wanted.rate / many)
    prefill = replace(one, ttft_ms=one.ttft_ms + moved + joined)
    found = _pair((back.at(wanted.rate / few), few), (prefill, many), systems[1])
    return replace(found, transfer_ms=moved)


def _pair(
    decode: tuple[Instance, int], prefill: tuple[Instance, int], where: PrefillPlace | None
) -> Option:
    """So many decode and prefill instances, the latter where they must be."""
    return Option(
        kind="disaggregated",
        instance=decode[0],
        replicas=decode[1],
        prefill=prefill[0],
        prefill_replicas=prefill[1],
        prefill_placed=where is not None,
        prefill_chip="" if where is None else where.chip,
        prefill_worth=1.0 if where is None else where.worth,
    )


def _cheapest(
    curves: Sequence[LoadCurve],
    wanted: ServiceTargets,
    slack: float = 1.0,
    *,
    launched: bool = True,
) -> list[tuple[LoadCurve, int]]:
    """Curves that meet the targets with the replicas that they take, those with the fewest chips first."""
    sized = [
        (curve, few)
        for curve in curves
        if not (launched and curve.refusal)
        if (few := curve.replicas(wanted, slack)) is not None
    ]
    most = SHORT_LIST if launched else BLOCKED_LIST
    return sorted(sized, key=lambda pair: pair[1] * pair[0].deployment.gpus)[:most]


def pareto(instances: Sequence[Instance], wanted: ServiceTargets) -> tuple[Option, ...]:
    """Instances that none beats in tokens/s of a user and of a chip at once, fastest for users first."""
    ordered = sorted(instances, key=lambda i: (i.tpot_ms, -i.requests_per_s / i.deployment.gpus))
    best, found = -1.0, []
    for one in ordered:
        worth = one.requests_per_s * wanted.osl / one.deployment.gpus
        if worth > best:
            best = worth
            found.append(Option(kind="aggregated", instance=one, replicas=1))
    return tuple(found)
