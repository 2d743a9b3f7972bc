"""The space of plans: every factorisation of the chips and every choice that goes with it.

Degrees are all divisors, not only powers of two. Choices that change nothing are left out: sequence
parallelism without tensor parallelism, ZeRO without replicas, selective recomputation where fused
attention keeps no scores, placements that put every group's members on
the same tiers as an earlier one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from foretell.network.placement import tier_counts, units
from foretell.sharding.rules import ENDS, RULES, Cuts, cuts_of, layers_of
from foretell.specs.plan import AXES, BATCH_FIELDS, Plan, Plans, batch_of
from foretell.specs.scenario import Scenario

Array = NDArray[np.float64]

ORDERS: tuple[tuple[str, ...], ...] = tuple(
    order
    for order in permutations(AXES)
    # Context parallelism has one member here: its place is fixed beside tensor parallelism.
    if order.index("cp") == order.index("tp") + 1
)
"""The six orders of tensor, data and pipeline groups; the usual one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Candidates that satisfy every rule, and how many did not."""

    plans: Plans
    """The candidates."""
    rejected: Mapping[str, int]
    """Rule -> how many candidates it turned away (a rejected factorisation counts once)."""


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def enumerate_plans(scenario: Scenario, base: Plan, fixed: Collection[str] = ()) -> Space:
    """All plans of a scenario; `base` holds the choices that are not searched, and those of `fixed`."""
    cuts = cuts_of(scenario.model)
    degrees, rejected = _degrees(scenario, base, cuts)
    columns: list[Array] = []
    filled = units(scenario.system.network, scenario.job.gpus)
    for triple, orders in zip(
        degrees, distinct_orders(degrees, filled, scenario.job.gpus), strict=True
    ):
        block, lost = _block(scenario, triple, orders, base, fixed)
        columns.append(block)
        rejected.update(lost)
    table = np.concatenate(columns, axis=1) if columns else np.empty((9, 0))
    names = ("tp", "pp", "dp", "micro_batch", "vpp", "zero", "recompute", "sp", "order")
    plans = Plans(**dict(zip(names, table, strict=True)), orders=ORDERS, base=base)
    if fixed:
        wanted = batch_of([base])
        same = [
            getattr(plans, n) == getattr(wanted, n)
            for n in BATCH_FIELDS
            if n in fixed and n != "order"
        ]
        plans = plans.take(np.flatnonzero(np.all([np.ones(len(plans), bool), *same], axis=0)))
    return Space(plans=plans, rejected=dict(rejected))


def _degrees(
    scenario: Scenario, base: Plan, cuts: Cuts
) -> tuple[list[tuple[int, int, int]], Counter[str]]:
    """Factorisations tp x pp x dp of the chips that heads, widths, layers and batch allow."""
    gpus = scenario.job.gpus
    triples = [(tp, pp, gpus // tp // pp) for tp in divisors(gpus) for pp in divisors(gpus // tp)]
    table = np.array(triples, float).T
    ones = np.ones(len(triples))
    plans = Plans(
        tp=table[0],
        pp=table[1],
        dp=table[2],
        vpp=ones,
        zero=0 * ones,
        micro_batch=ones,
        sp=0 * ones,
        recompute=0 * ones,
        order=0 * ones,
        orders=ORDERS,
        base=base,
    )
    alive = np.ones(len(triples), dtype=bool)
    rejected: Counter[str] = Counter()
    for rule in RULES:
        holds = rule.holds(scenario, cuts, plans)
        lost = int((alive & ~holds).sum())
        if lost:
            rejected[rule.name] += lost
        alive &= holds
    return [triples[i] for i in np.flatnonzero(alive)], rejected


def _block(
    scenario: Scenario,
    degrees: tuple[int, int, int],
    orders: list[int],
    base: Plan,
    fixed: Collection[str],
) -> tuple[Array, Counter[str]]:
    """All further choices of one factorisation, as columns; and what the rules took away."""
    tp, pp, dp = degrees
    job = scenario.job
    per_replica = job.global_batch // dp
    layers = layers_of(scenario.model)
    rejected: Counter[str] = Counter()
    shapes: list[tuple[int, int]] = []
    for micro_batch in divisors(per_replica):
        virtual = list(range(1, (layers + ENDS) // pp + 1)) if pp > 1 else [1]
        if (per_replica // micro_batch) % pp:
            rejected["interleaving"] += len(virtual) - 1
            virtual = [1]
        shapes += [(micro_batch, v) for v in virtual]
    zeros = (0, 1, 2, 3) if dp > 1 else (0,)
    splits = [0, 1] if tp > 1 else [0]
    if tp > 1 and (job.seq_len % tp or (job.target_len or 0) % tp):
        rejected["sequence"] += len(shapes)
        splits = [0]
    modes = (0, 2) if base.flash and "recompute" not in fixed else (0, 1, 2)
    if "order" in fixed:
        orders = [ORDERS.index(_with_cp_beside_tp(base.order))]
    shape, zero, mode, split, order = np.meshgrid(
        np.arange(len(shapes)), zeros, modes, splits, orders, indexing="ij"
    )
    pairs = np.array(shapes, float)[shape.ravel()]
    ones = np.ones(shape.size)
    rows = np.stack(
        [
            ones * tp,
            ones * pp,
            ones * dp,
            pairs[:, 0],
            pairs[:, 1],
            zero.ravel(),
            mode.ravel(),
            split.ravel(),
            order.ravel(),
        ]
    )
    return rows, rejected


def _with_cp_beside_tp(order: tuple[str, ...]) -> tuple[str, ...]:
    """The order as ORDERS spells it: a context-parallel group of one may stand anywhere."""
    rest = [name for name in order if name != "cp"]
    rest.insert(rest.index("tp") + 1, "cp")
    return tuple(rest)


def distinct_orders(
    degrees: Sequence[tuple[int, int, int]], filled: tuple[float, ...], gpus: int
) -> list[list[int]]:
    """For each (tp, pp, dp), the orders that put its groups on different tiers, the usual one first."""
    table = np.array(degrees, float).reshape(-1, 3).T
    sizes = {"tp": table[0], "pp": table[1], "dp": table[2], "cp": np.ones(table.shape[1])}
    keys = []
    for order in ORDERS:
        stride, counts = np.ones(table.shape[1]), {}
        for name in order:
            counts[name] = tier_counts(sizes[name], stride, filled, gpus)
            stride = stride * sizes[name]
        keys.append(np.concatenate([counts["tp"], counts["dp"], counts["pp"]]).T.tolist())
    found = []
    for row in range(len(degrees)):
        seen: dict[tuple[float, ...], int] = {}
        for code, key in enumerate(keys):
            seen.setdefault(tuple(key[row]), code)
        found.append(list(seen.values()))
    return found
