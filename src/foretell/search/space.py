"""The space of plans: every factorisation of the chips and every choice that goes with it.

Degrees are all divisors, not only powers of two. Choices that change nothing are left out: sequence
parallelism without tensor parallelism, ZeRO without replicas, selective recomputation where fused
attention keeps no scores, placements that put every group's members on the same tiers as an earlier one.

Context parallelism is tried in powers of two that leave each rank a few thousand tokens of a sequence, and
expert parallelism in the divisors of the experts, each expert whole (etp 1); other degrees where they are
asked for.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from math import gcd

import numpy as np

from foretell.network.placement import tier_counts, units
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Pipe
from foretell.schedules.rules import ALL_RULES
from foretell.sharding.rules import ENDS, Cuts, cuts_of, layers_of
from foretell.specs.arrays import Array, Index
from foretell.specs.plan import (
    BATCH_FIELDS,
    RECOMPUTE,
    USUAL_SCHEDULES,
    Plan,
    Plans,
    batch_of,
    join_plans,
    recompute_code,
)
from foretell.specs.plan_words import AXES
from foretell.specs.scenario import Scenario

ORDERS: tuple[tuple[str, ...], ...] = tuple(
    order
    for order in permutations(AXES)
    # Context parallelism stands beside tensor parallelism: keys travel once or more in every layer.
    if order.index("cp") == order.index("tp") + 1
)
"""The six orders of tensor, data and pipeline groups; the usual one first."""

LEAST_TOKENS = 4096
"""Tokens of a sequence that context parallelism leaves a rank, at the least."""
MOST_RANKS = 64
"""Largest context-parallel group that is tried unasked."""
COLUMNS = (
    "tp", "cp", "pp", "dp", "ep", "etp", "micro_batch", "vpp", "zero", "recompute", "sp", "order",
)  # fmt: skip
Degrees = tuple[int, int, int, int]
"""tp, cp, pp, dp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Candidates that satisfy every rule, and how many did not."""

    plans: Plans
    """The candidates."""
    rejected: Mapping[str, int]
    """Rule -> how many candidates it skipped (a rejected factorisation counts once)."""
    stages: Array
    """ZeRO stages that each candidate stands for, itself the first of them."""
    place: Index
    """Number of each candidate among all plans of all stages."""
    stride: Index
    """From there to the number of its next stage."""

    @property
    def count(self) -> int:
        """Plans of all stages."""
        return int(self.stages.sum())

    @property
    def zeros(self) -> Array:
        """Every ZeRO stage that occurs."""
        most = self.stages.max(initial=1.0)
        return np.arange(most) if most > 1.0 else self.plans.zero


def take_candidates(space: Space, rows: Index) -> Space:
    """Some of the candidates."""
    return replace(
        space,
        plans=space.plans.take(rows),
        stages=space.stages[rows],
        place=space.place[rows],
        stride=space.stride[rows],
    )


def all_stages(space: Space, rows: Index) -> tuple[Plans, Index, Index]:
    """Some candidates with all ZeRO stages that they stand for; whose each is, and its number among all."""
    many = space.stages[rows].astype(np.intp)
    of_rows = np.repeat(rows, many)
    stage = np.arange(len(of_rows)) - np.repeat(np.cumsum(many) - many, many)
    plans = space.plans.take(of_rows)
    if len(of_rows) > len(rows):
        plans = replace(plans, zero=plans.zero + stage)
    return plans, of_rows, space.place[of_rows] + stage * space.stride[of_rows]


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def enumerate_plans(
    scenario: Scenario, base: Plan, fixed: Collection[str] = (), *, staged: bool = False
) -> Space:
    """All plans with the choices of `base` that are fixed or not searched; `staged`: one ZeRO stage each."""
    staged = staged and "zero" not in fixed
    if base.tp_mode != "summa":
        return _enumerate(scenario, base, fixed, base.tp2 if "tp2" in fixed else 0, staged)
    sides = [base.tp2] if "tp2" in fixed else divisors(scenario.job.gpus)
    spaces = [_enumerate(scenario, base, fixed, side, staged) for side in sides]
    rejected: Counter[str] = Counter()
    before = np.cumsum([0, *(space.count for space in spaces)])
    for space in spaces:
        rejected.update(space.rejected)
    return Space(
        plans=join_plans([space.plans for space in spaces]),
        rejected=dict(rejected),
        stages=np.concatenate([space.stages for space in spaces]),
        place=np.concatenate([s.place + many for s, many in zip(spaces, before, strict=False)]),
        stride=np.concatenate([space.stride for space in spaces]),
    )


def space_key(base: Plan) -> tuple[object, ...]:
    """What of the choices that are not searched decides which plans there are."""
    heads = base.cp_mode == "ulysses"
    return base.tp_mode, base.panels, base.tp_overlap == "on", heads, base.schedule, base.shard


def _enumerate(
    scenario: Scenario, base: Plan, fixed: Collection[str], tp2: int, staged: bool
) -> Space:
    """All plans whose tensor-parallel ranks have one length of their grid's second side; 0: no grid."""
    cuts = cuts_of(scenario.model)
    degrees, rejected = _degrees(scenario, base, cuts, fixed, tp2)
    columns: list[Array] = []
    numbers: list[tuple[Index, Index, Index]] = []
    before = 0
    filled = units(scenario.system.network, scenario.job.gpus)
    every = all_orders(base)
    for four, orders in zip(
        degrees, distinct_orders(degrees, filled, scenario.job.gpus), strict=True
    ):
        placed = [every.index(spell_order(base.order, base))] if "order" in fixed else orders
        experts = expert_degrees(cuts, four, base, fixed)
        block, lost, each = _block(scenario, four, (experts, placed), base, fixed, staged)
        columns.append(block)
        rejected.update(lost)
        stages = len(ALL_STAGES) if staged and replicas_of(four) > 1 else 1
        numbers.append(_numbers(block.shape[1], each, stages, before))
        before += block.shape[1] * stages
    table = np.concatenate(columns, axis=1) if columns else np.empty((len(COLUMNS), 0))
    second = np.full(table.shape[1], float(tp2))
    plans = Plans(**dict(zip(COLUMNS, table, strict=True)), tp2=second, orders=every, base=base)
    ways = [np.concatenate(column) for column in zip(*numbers, strict=True)]
    each_stages, place, stride = ways or [np.empty(0, dtype=np.intp)] * 3
    if fixed:
        wanted = batch_of([base])
        names = [n for n in BATCH_FIELDS if n in fixed and n != "order"]
        same = [getattr(plans, n) == getattr(wanted, n) for n in names]
        rows = np.flatnonzero(np.all([np.ones(len(plans), bool), *same], axis=0))
        plans, each_stages = plans.take(rows), each_stages[rows]
        place, stride = place[rows], stride[rows]
    return Space(
        plans=plans,
        rejected=dict(rejected),
        stages=each_stages.astype(float),
        place=place,
        stride=stride,
    )


ALL_STAGES = (0, 1, 2, 3)
"""ZeRO stages of replicas that can share."""


def replicas_of(degrees: Degrees) -> int:
    """Ranks that hold the same weights."""
    return degrees[1] * degrees[3]


def _numbers(many: int, each: int, stages: int, before: int) -> tuple[Index, Index, Index]:
    """Stages of each candidate of a block, its number where stages are `each` candidates apart, and that."""
    own = np.arange(many)
    place = before + own + own // max(each, 1) * each * (stages - 1)
    return np.full(many, stages), place, np.full(many, each)


def context_degrees(scenario: Scenario, base: Plan, fixed: Collection[str]) -> list[int]:
    """Context-parallel degrees to try: powers of two that leave each rank LEAST_TOKENS, and the base's."""
    if "cp" in fixed or base.tp_mode == "summa":
        return [base.cp]
    most = min(scenario.job.seq_len // LEAST_TOKENS, MOST_RANKS)
    powers = [2**i for i in range(1, MOST_RANKS.bit_length()) if 2**i <= most]
    return sorted({1, base.cp, *powers})


def expert_degrees(
    cuts: Cuts, degrees: Degrees, base: Plan, fixed: Collection[str]
) -> list[tuple[int, int]]:
    """(ep, etp) to try: divisors of the experts that the ranks allow, whole experts; and the base's."""
    if not cuts.experts:
        return [(1, 1)]
    tp, cp, _, dp = degrees
    spread = [base.ep] if "ep" in fixed else [1, base.ep, *divisors(gcd(*cuts.experts))]
    inside = [base.etp] if "etp" in fixed else [1, base.etp]
    pairs = {(ep, etp if ep > 1 else 1) for ep in spread for etp in inside}
    whole = [p for p in pairs if tp * cp * dp % (p[0] * p[1]) == 0]
    # Replicas of spread experts share in whole groups too.
    replicas = {p: tp * cp * dp // (p[0] * p[1]) for p in whole}
    return sorted(
        p for p in whole if p[0] == 1 or replicas[p] % min(base.shard or 1, replicas[p]) == 0
    )


def _degrees(
    scenario: Scenario, base: Plan, cuts: Cuts, fixed: Collection[str], tp2: int
) -> tuple[list[Degrees], Counter[str]]:
    """Factorisations tp x cp x pp x dp that heads, widths (but of experts), layers and batch allow."""
    gpus = scenario.job.gpus
    found = [
        (tp, cp, pp, gpus // tp // cp // pp)
        for tp in divisors(gpus)
        for cp in context_degrees(scenario, base, fixed)
        if (gpus // tp) % cp == 0
        for pp in divisors(gpus // tp // cp)
    ]
    table = np.array(found, float).reshape(-1, 4).T
    ones = np.ones(len(found))
    plans = Plans(
        **dict(zip(("tp", "cp", "pp", "dp"), table, strict=True)),
        tp2=tp2 * ones,
        ep=ones,
        etp=ones,
        vpp=chunks_of(base) * ones,
        zero=0 * ones,
        micro_batch=ones,
        # Where it is free, sequence parallelism is looked at with the sides.
        sp=float(needs_split(base)) * ones,
        recompute=0 * ones,
        order=0 * ones,
        orders=ORDERS,
        base=base,
    )
    alive = np.ones(len(found), dtype=bool)
    rejected: Counter[str] = Counter()
    inner = replace(cuts, expert_widths=())
    for rule in ALL_RULES:
        holds = rule.holds(scenario, inner, plans)
        lost = int((alive & ~holds).sum())
        if lost:
            rejected[rule.name] += lost
        alive &= holds
    return [found[i] for i in np.flatnonzero(alive)], rejected


def _block(
    scenario: Scenario,
    degrees: Degrees,
    also: tuple[list[tuple[int, int]], list[int]],
    base: Plan,
    fixed: Collection[str],
    staged: bool,
) -> tuple[Array, Counter[str], int]:
    """All further choices of one factorisation, what rules took away, and choices below a ZeRO stage."""
    shapes, rejected = _shapes(scenario, degrees, base)
    sides, lost = _sides(scenario, degrees, also[0], base)
    rejected.update({name: count * len(shapes) for name, count in lost.items()})
    zeros: tuple[int, ...] = ALL_STAGES if replicas_of(degrees) > 1 and not staged else (0,)
    if "zero" in fixed:
        # A plan may name a stage although it has no replicas to share with.
        zeros = (base.zero,)
    modes: tuple[int, ...] = (0, 2) if base.flash and "recompute" not in fixed else (0, 1, 2)
    if "recompute" in fixed and base.recompute not in RECOMPUTE:
        modes = (recompute_code(base.recompute),)
    lengths = len(shapes), len(zeros), len(modes), len(sides), len(also[1])
    rows = np.empty((len(COLUMNS), *lengths))
    # Every choice with every other: a value stands along its own axis, the same for all of the others'.
    columns = (
        *((degree, 0) for degree in degrees),
        *((column, 3) for column in np.array(sides, float).reshape(-1, 3).T[:2]),
        *((column, 0) for column in np.array(shapes, float).reshape(-1, 2).T),
        (zeros, 1),
        (modes, 2),
        (np.array(sides, float).reshape(-1, 3).T[2], 3),
        (also[1], 4),
    )
    for row, (values, axis) in zip(rows, columns, strict=True):
        row[...] = np.reshape(values, [-1 if i == axis else 1 for i in range(5)])
    return rows.reshape(len(COLUMNS), -1), rejected, len(modes) * len(sides) * len(also[1])


def needs_split(base: Plan) -> bool:
    """Whether tensor parallelism must come with sequence parallelism: grids, and overlapped exchanges."""
    return base.tp_mode == "summa" or base.tp_overlap == "on"


def chunks_of(base: Plan) -> int:
    """Chunks on a rank by which a schedule's rules are looked at first."""
    return 2 if base.schedule == "zb-v" else 1


def _shapes(
    scenario: Scenario, degrees: Degrees, base: Plan
) -> tuple[list[tuple[int, int]], Counter[str]]:
    """(micro-batch, virtual stages) of one factorisation."""
    _, _, pp, dp = degrees
    per_replica = scenario.job.global_batch // dp
    layers = layers_of(scenario.model)
    rejected: Counter[str] = Counter()
    shapes: list[tuple[int, int]] = []
    for micro_batch in divisors(per_replica):
        if base.schedule not in USUAL_SCHEDULES:
            size, count = np.ones(1), float(per_replica // micro_batch)
            vpp = chunks_of(base)
            pipe = Pipe(micro_batches=count * size, pp=pp * size, vpp=vpp * size)
            allowed = bool(schedule_named(base.schedule).allows(pipe)[0])
            shapes += [(micro_batch, vpp)] if allowed else []
            rejected["schedule"] += not allowed
            continue
        virtual = list(range(1, (layers + ENDS) // pp + 1)) if pp > 1 else [1]
        if (per_replica // micro_batch) % pp:
            rejected["interleaving"] += len(virtual) - 1
            virtual = [1]
        shapes += [(micro_batch, v) for v in virtual]
    return shapes, rejected


def _sides(
    scenario: Scenario, degrees: Degrees, experts: list[tuple[int, int]], base: Plan
) -> tuple[list[tuple[int, int, int]], Counter[str]]:
    """(ep, etp, sp) of one factorisation: spread experts need sequence parallelism beside tp."""
    tp, cp, _, _ = degrees
    job, widths = scenario.job, cuts_of(scenario.model).expert_widths
    rejected: Counter[str] = Counter()
    if base.tp_mode == "summa":
        return [(*one, int(tp > 1)) for one in experts], rejected
    splits = [0] if tp == 1 else [1] if needs_split(base) else [0, 1]
    if tp > 1 and (job.seq_len % (tp * cp) or (job.target_len or 0) % (tp * cp)):
        rejected["sequence"] += 1
        splits = [0] if not needs_split(base) else []
    sides = []
    for ep, etp in experts:
        inside = etp if ep > 1 else tp
        if any(width % inside for width in widths):
            rejected["width"] += 1
            continue
        sides += [(ep, etp, sp) for sp in splits if ep == 1 or tp == 1 or sp]
    return sides, rejected


def all_orders(base: Plan) -> tuple[tuple[str, ...], ...]:
    """The orders that are searched, and the base's own where it is another."""
    own = spell_order(base.order, base)
    return ORDERS if own in ORDERS else (*ORDERS, own)


def spell_order(order: tuple[str, ...], base: Plan) -> tuple[str, ...]:
    """The order as ORDERS spells it: a context-parallel group of one may be anywhere."""
    if base.cp > 1:
        return order
    rest = [name for name in order if name != "cp"]
    rest.insert(rest.index("tp") + 1, "cp")
    return tuple(rest)


def distinct_orders(
    degrees: Sequence[Degrees], filled: tuple[float, ...], gpus: int
) -> list[list[int]]:
    """For each factorisation, the orders that put its groups on different tiers, the usual one first."""
    table = np.array(degrees, float).reshape(-1, 4).T
    sizes = dict(zip(("tp", "cp", "pp", "dp"), table, strict=True))
    keys = []
    for order in ORDERS:
        stride, counts = np.ones(table.shape[1]), {}
        for name in order:
            counts[name] = tier_counts(sizes[name], stride, filled, gpus)
            stride = stride * sizes[name]
        keys.append(np.concatenate([counts[n] for n in ("tp", "cp", "dp", "pp")]).T.tolist())
    found = []
    for row in range(len(degrees)):
        seen: dict[tuple[float, ...], int] = {}
        for code, key in enumerate(keys):
            seen.setdefault(tuple(key[row]), code)
        found.append(list(seen.values()))
    return found
