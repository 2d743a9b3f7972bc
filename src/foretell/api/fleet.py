"""Records in, records out: `foretell.fleet`, several models on one fleet of chips.

Every model is sized by itself (api/size.py), on chips of its own. Then models are tried together on the same
chips (serving/colocation.py): the group that saves most is made, again and again, as long as one saves any.
Groups are simulated at the percentile asked for before they count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from foretell.api.fleet_answer import FleetAnswer, FleetModel, FleetPool
from foretell.api.size import sizing_case, sizing_of
from foretell.api.sizing_choices import SizingCase
from foretell.catalog.files import read_table
from foretell.errors import BadInput, Infeasible, Problem, bad_input, nearest_name, wrong
from foretell.inputs.job import whole_problems
from foretell.interop.user_files import user_file
from foretell.records import dataclass
from foretell.serving.colocation import Tenant, shared_layouts, turns, with_share
from foretell.serving.sizing_simulation import simulated_ms
from foretell.specs.deployment import Deployment
from foretell.specs.deployment_text import deployment_text
from foretell.specs.questions.flags import asks, fields_of, given_of
from foretell.specs.questions.serving import RequestSource
from foretell.specs.questions.sizing import FleetQuestion, SizeQuestion

MOST_MODELS = 32
"""Models of one fleet."""
MOST_TENANTS = 4
"""Models on the same chips."""
TRIES = 8
"""Numbers of replicas that are simulated for one group at most."""
OWN = ("fleet", "available", "share", "simulate")
"""Fields of the question that are the fleet's, and no model's."""
NOT_THERE = {"top", "measured", "simulate", "progress", "requests", "warmup"} | {
    field.name for field in fields_of(RequestSource)
}
"""Fields of `size` that a model of a fleet does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPool:
    """Models on the same chips, with the fewest replicas that meet all targets."""

    members: tuple[int, ...]
    """Places of the models in the fleet."""
    layouts: tuple[Deployment, ...]
    """Layout of each model's engine, with its share of the memory."""
    replicas: int
    """Instances, each with an engine of every model."""
    stretch: tuple[float, ...]
    """Of each model, how many times as long its steps take beside the others."""
    ttft_ms: tuple[float, ...]
    """Time to the first token of each, at the percentile where it is simulated."""
    tpot_ms: tuple[float, ...]
    """Time per output token of each, likewise."""

    @property
    def gpus(self) -> int:
        """Chips of all instances."""
        return self.layouts[0].gpus * self.replicas


@asks(FleetQuestion)
def fleet(asked: FleetQuestion) -> FleetAnswer:
    """How many chips several models take together: each on its own, and where sharing chips saves some.

    The fleet is a file, or its table: a list `model` of tables with the fields of `size`. Raises BadInput
    with all that is wrong, Infeasible where a model's targets cannot be met.
    """
    entries = read_fleet(asked)
    cases = _cases(entries)
    sizings = [sizing_of(case, simulate=asked.simulate, top=1) for case in cases]
    own = [FleetModel.of(name, sizing) for (name, _), sizing in zip(entries, sizings, strict=True)]
    groups = _groups(cases, own, asked) if asked.share else []
    taken = {place for group in groups for place in group.members}
    pools = [_shared_pool(group, cases, own) for group in groups]
    pools += [_own_pool(model) for place, model in enumerate(own) if place not in taken]
    models = [_placed(model, place, pools, groups) for place, model in enumerate(own)]
    said = dict.fromkeys(
        line
        for case in cases
        for line in (*case.question.assumptions, f"rent: {case.price_source}")
    )
    return FleetAnswer(
        models=tuple(models),
        pools=tuple(pools),
        percentile=cases[0].percentile,
        available=asked.available,
        assumptions=(*said, *_said(groups)),
    )


def read_fleet(asked: FleetQuestion) -> list[tuple[str, SizeQuestion]]:
    """Name and question of every model; BadInput with all problems of all tables."""
    given = asked.fleet
    if not isinstance(given, Mapping):
        given = read_table(user_file(Path(given), "fleet", "a table"))
    tables: Any = given.get("model")
    if (
        not isinstance(tables, list)
        or not tables
        or not all(isinstance(t, Mapping) for t in tables)
    ):
        message = "has no models" if not tables else "is no list of tables"
        raise bad_input(
            "model", None, message, "[[model]] tables, each with model, rate and the flags of size"
        )
    base = {name: value for name, value in given.items() if name != "model"}
    flags = {n: v for n, v in given_of(asked).items() if n not in OWN}
    problems = _unknown("", base) + whole_problems("available", asked.available)
    found, names = [], []
    for place, table in enumerate(tables[:MOST_MODELS]):
        problems += _unknown(f"model.{place}.", table) + _missing(place, table, {**base, **flags})
        names.append(str(table.get("name", table.get("model"))))
        own = {n: v for n, v in table.items() if n in ENTRY}
        shared = {n: v for n, v in base.items() if n in ENTRY}
        found.append({**shared, **flags, **own})
    if len(tables) > MOST_MODELS:
        problems.append(
            wrong("model", len(tables), "too many models", f"at most {MOST_MODELS}")
        )  # fmt: skip
    if problems:
        raise BadInput(problems)
    return list(zip(_different(names), [SizeQuestion(**one) for one in found], strict=True))


ENTRY = frozenset(field.name for field in fields_of(SizeQuestion) if field.name not in NOT_THERE)
"""Keys of a model's table that are flags of `size`."""


def _unknown(path: str, table: Mapping[str, Any]) -> list[Problem]:
    """Keys that are no flag of `size`."""
    known = sorted(ENTRY | ({"name"} if path else set()))
    return [
        wrong(f"{path}{name}", value, "no such key", ", ".join(known), nearest_name(str(name), known))
        for name, value in table.items()
        if name not in known
    ]  # fmt: skip


def _missing(place: int, table: Mapping[str, Any], base: Mapping[str, Any]) -> list[Problem]:
    """What a model needs and has not, and numbers that are none."""
    found = [
        wrong(f"model.{place}.{name}", None, "missing", allowed)
        for name, allowed in (
            ("model", "an id of the catalogue, or a file"),
            ("rate", "requests/s"),
        )
        if name not in table and name not in base
    ]
    rate = table.get("rate", base.get("rate", 1.0))
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0.0:
        found.append(
            wrong(f"model.{place}.rate", rate, "not a usable number", "requests a second above 0")
        )  # fmt: skip
    return found


def _different(names: Sequence[str]) -> list[str]:
    """Names with a number after those that come again."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _cases(entries: Sequence[tuple[str, SizeQuestion]]) -> list[SizingCase]:
    """Every model in closed form; problems of all of them at once, and refusals of all of them."""
    cases: list[SizingCase] = []
    problems: list[Problem] = []
    refused: list[Problem] = []
    for place, (name, question) in enumerate(entries):
        try:
            cases.append(sizing_case(question))
        except Infeasible as error:
            refused += [replace(p, path=f"{name}: {p.path}") for p in error.problems]
        except BadInput as error:
            problems += [replace(p, path=f"model.{place}.{p.path}") for p in error.problems]
    if problems:
        raise BadInput(problems)
    if refused:
        raise Infeasible(refused)
    return cases


def _groups(
    cases: Sequence[SizingCase], own: Sequence[FleetModel], asked: FleetQuestion
) -> list[SharedPool]:
    """Groups of models that share chips: the merge that saves most, again and again."""
    alone = {place: float(model.gpus) for place, model in enumerate(own)}
    tried: dict[tuple[int, ...], SharedPool | None] = {}
    groups: dict[tuple[int, ...], SharedPool | None] = {(p,): None for p in alone}
    while True:
        saved: list[tuple[float, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []
        for one in groups:
            for other in groups:
                both = tuple(sorted((*one, *other)))
                if one >= other or len(both) > MOST_TENANTS or not _alike(cases, both):
                    continue
                cost = sum(_chips(groups[g], alone, g) for g in (one, other))
                if both not in tried:
                    tried[both] = shared_pool(cases, both, int(cost) - 1, simulate=asked.simulate)
                found = tried[both]
                if found is not None and found.gpus < cost:
                    saved.append((cost - found.gpus, both, one, other))
        if not saved:
            return [group for group in groups.values() if group is not None]
        _, both, one, other = max(saved)
        groups = {g: pool for g, pool in groups.items() if g not in (one, other)}
        groups[both] = tried[both]


def _chips(pool: SharedPool | None, alone: Mapping[int, float], members: Sequence[int]) -> float:
    """Chips of a group, or of a model on its own."""
    return float(pool.gpus) if pool is not None else sum(alone[place] for place in members)


def _alike(cases: Sequence[SizingCase], members: Sequence[int]) -> bool:
    """Whether models are on the same chips, by engines that divide memory alike, prefill not apart."""
    some = [cases[place] for place in members]
    systems = {case.question.system.id for case in some}
    rules = {case.question.profile.memory_rule for case in some}
    return len(systems) == 1 and len(rules) == 1 and all(case.place is None for case in some)


def shared_pool(
    cases: Sequence[SizingCase], members: tuple[int, ...], most: int, *, simulate: bool
) -> SharedPool | None:
    """Models on the same chips with the fewest of these; None where more than `most` would be needed."""
    sizes = {
        place: {c.deployment.gpus for c in cases[place].found.curves.together} for place in members
    }
    best: SharedPool | None = None
    for chips in sorted(set.intersection(*sizes.values())):
        if chips > most:
            break
        tenants = _tenants([cases[place] for place in members], chips)
        if tenants is None:
            continue
        limit = (best.gpus - 1 if best else most) // chips
        found = _fewest(tenants, members, limit, cases[members[0]].percentile, simulate=simulate)
        best = found if found is not None else best
    return best


def _tenants(cases: Sequence[SizingCase], chips: int) -> list[Tenant] | None:
    """Each model in its best layout of so many chips, with its share of the memory; None: they do not fit."""
    tenants = []
    for case in cases:
        curves = [c for c in case.found.curves.together if c.deployment.gpus == chips]
        sizes = [(few, c) for c in curves if (few := c.replicas(case.wanted)) is not None]
        if not sizes:
            return None
        curve = min(sizes, key=lambda pair: (pair[0], -pair[1].limit_per_s))[1]
        tenants.append(Tenant(question=case.question, wanted=case.wanted, curve=curve))
    layouts = shared_layouts(tenants)
    if layouts is None:
        return None
    found = [with_share(one, layout) for one, layout in zip(tenants, layouts, strict=True)]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _fewest(
    tenants: Sequence[Tenant],
    members: tuple[int, ...],
    most: int,
    percentile: str,
    *,
    simulate: bool,
) -> SharedPool | None:
    """The fewest instances of at most so many that meet all targets, in closed form and then simulated."""
    tried = ((n, turns(tenants, n, percentile)) for n in range(1, most + 1))
    able = ((n, found) for n, found in tried if found.meets(tenants))
    for replicas, found in islice(able, TRIES if simulate else 1):
        times = list(zip(found.ttft_ms, found.tpot_ms, strict=True))
        if simulate:
            times = [
                _simulated(one, replicas, stretch, percentile)
                for one, stretch in zip(tenants, found.stretch, strict=True)
            ]
        good = all(
            first <= one.wanted.ttft_ms and later <= one.wanted.tpot_ms
            for one, (first, later) in zip(tenants, times, strict=True)
        )
        if good:
            return SharedPool(
                members=members,
                layouts=tuple(one.curve.deployment for one in tenants),
                replicas=replicas,
                stretch=found.stretch,
                ttft_ms=tuple(first for first, _ in times),
                tpot_ms=tuple(later for _, later in times),
            )
    return None


def _simulated(one: Tenant, replicas: int, stretch: float, percentile: str) -> tuple[float, float]:
    """Simulated latencies of an engine whose steps take `stretch` times as long."""
    rate = stretch * one.wanted.rate / replicas
    first, later = simulated_ms(one.question, one.curve.deployment, rate, "both", percentile)
    return stretch * first, stretch * later


def _shared_pool(
    group: SharedPool, cases: Sequence[SizingCase], own: Sequence[FleetModel]
) -> FleetPool:
    """A group as part of the answer."""
    rent = float(cases[group.members[0]].question.prices.usd_per_chip_hour) * group.gpus or None
    return FleetPool(
        models=tuple(own[place].name for place in group.members),
        shared=True,
        gpus=group.gpus,
        replicas=group.replicas,
        plans=tuple(map(deployment_text, group.layouts)),
        name=f"{group.replicas} x {group.layouts[0].gpus} chips shared",
        usd_per_hour=rent,
    )


def _own_pool(model: FleetModel) -> FleetPool:
    """A model's own chips as part of the answer."""
    best = model.sizing.best
    told = best.to_dict()
    plans = [told["prefill_plan"], told["plan"]]
    return FleetPool(
        models=(model.name,),
        shared=False,
        gpus=best.option.gpus,
        replicas=best.option.replicas,
        plans=tuple(plan for plan in plans if plan is not None),
        name=best.option.name(),
        usd_per_hour=best.usd_per_hour,
    )


def _placed(
    model: FleetModel, place: int, pools: Sequence[FleetPool], groups: Sequence[SharedPool]
) -> FleetModel:
    """A model with the latencies of the pool that it is in."""
    at = next(i for i, pool in enumerate(pools) if model.name in pool.models)
    group = next((g for g in groups if place in g.members), None)
    if group is None:
        return replace(model, pool=at)
    here = group.members.index(place)
    return replace(
        model, pool=at, ttft_ms=group.ttft_ms[here], tpot_ms=group.tpot_ms[here],
        stretch=group.stretch[here],
    )  # fmt: skip


def _said(groups: Sequence[SharedPool]) -> list[str]:
    """What is assumed of models that share chips."""
    if not groups:
        return []
    return [
        "models on the same chips are engines of their own that take turns (time slices of the driver)",
        "stretch: how many times as long steps take beside engines that are busy at the percentile",
        "memory_fraction in the plans is each engine's share; start them one after the other",
    ]
