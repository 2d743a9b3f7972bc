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
from foretell.serving.load_curves import Curves, LoadCurve, curve_points, curves_of
from foretell.serving.sizing_records import Instance, Option, ServiceTargets
from foretell.serving.transfer import transfer
from foretell.specs.deployment import Deployment
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System

SHORT_LIST = 12
"""Layouts of each kind that are paired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingSearch:
    """The answer of a search."""

    options: tuple[Option, ...]
    """Ways to serve it within the levels, in the order of `place`."""
    pareto: tuple[Option, ...]
    """Of one instance each, those that none beats in tokens/s of a user and of a chip."""
    evaluated: int
    """Layouts x loads that were looked at."""
    curves: Curves
    """Latencies of every layout over its load."""


def search_layouts(
    model: Model,
    system: System,
    base: Deployment,
    profile: EngineProfile,
    wanted: ServiceTargets,
    progress: Callable[[int, int], None] | None = None,
) -> SizingSearch:
    """Every layout with the replicas that it takes, together and disaggregated."""
    curves = curves_of(model, system, base, profile, wanted, progress)
    options = [
        Option(kind="aggregated", instance=curve.at(wanted.rate / few), replicas=few)
        for curve in curves.together
        if (few := curve.replicas(wanted)) is not None
    ]
    if wanted.osl > 1.0:
        options += _disaggregated(curves, model, system, wanted)
    options.sort(key=lambda o: place(o, wanted))
    return SizingSearch(
        options=tuple(options),
        pareto=pareto([one for curve in curves.together for one in curve_points(curve)], wanted),
        evaluated=sum(
            len(curve.rates)
            for some in (curves.together, curves.fronts, curves.backs)
            for curve in some
        ),
        curves=curves,
    )


def place(option: Option, wanted: ServiceTargets) -> tuple[int, float, float]:
    """Where an option stands: fewest chips, then most headroom (in percent, as shown), then soonest."""
    headroom = option.requests_per_s / wanted.rate - 1.0
    return option.gpus, -round(headroom, 2), option.tpot_ms + option.ttft_ms


def joined_ms(
    model: Model,
    system: System,
    front: LoadCurve,
    back: LoadCurve,
    load: tuple[float, float],
) -> tuple[float, float]:
    """Milliseconds of a cache on its way, and from there to its first token; (isl, rate)."""
    isl, rate = load
    fixed_s, token_s = transfer(model, system, front.deployment, back.deployment)
    assert back.joined_s is not None
    joined = float(np.interp(rate, back.rates, back.joined_s))
    return 1e3 * (fixed_s + token_s * isl), 1e3 * joined


def _disaggregated(
    curves: Curves, model: Model, system: System, wanted: ServiceTargets
) -> list[Option]:
    """Pairs of what does prefill cheapest and what decodes cheapest within the targets."""
    found = []
    backs = _cheapest(curves.backs, wanted)
    for front, _ in _cheapest(curves.fronts, wanted):
        for back, few in backs:
            option = paired((front, back), few, model, system, wanted)
            if option is not None:
                found.append(option)
    return found


def paired(
    pair: tuple[LoadCurve, LoadCurve],
    few: int,
    model: Model,
    system: System,
    wanted: ServiceTargets,
) -> Option | None:
    """Both with as many instances as they take, the time between them included; None where none do."""
    front, back = pair
    moved, joined = joined_ms(model, system, front, back, (wanted.isl, wanted.rate / few))
    left = replace(wanted, ttft_ms=wanted.ttft_ms - moved - joined)
    many = front.replicas(left)
    if many is None:
        return None
    one = front.at(wanted.rate / many)
    return Option(
        kind="disaggregated",
        instance=back.at(wanted.rate / few),
        replicas=few,
        prefill=replace(one, ttft_ms=one.ttft_ms + moved + joined),
        prefill_replicas=many,
        transfer_ms=moved,
    )


def _cheapest(curves: Sequence[LoadCurve], wanted: ServiceTargets) -> list[tuple[LoadCurve, int]]:
    """Curves that meet the targets with the replicas that they take, those with the fewest chips first."""
    sized = [(curve, few) for curve in curves if (few := curve.replicas(wanted)) is not None]
    return sorted(sized, key=lambda pair: pair[1] * pair[0].deployment.gpus)[:SHORT_LIST]


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
