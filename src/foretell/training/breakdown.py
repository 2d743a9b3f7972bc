"""The ledger of one plan as trees: time along the slowest stage with the whole job's joules, memory of each
stage."""

from dataclasses import replace

from foretell.kernels.memory import StageMemory
from foretell.records import dataclass
from foretell.sharding.pipeline import stage_names
from foretell.specs.plan import Plans, batch_of
from foretell.specs.result import Evidence, Leaf
from foretell.specs.scenario import Scenario
from foretell.training.leaves import (
    Families,
    OnePlan,
    at_slowest,
    one_plan,
)
from foretell.training.ledger import Ledger
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, tables_of
from foretell.training.totals import ranks_of, sum_joules, update_joules
from foretell.uncertainty.evidence import (
    HOST,
    Grounds,
    Spread,
    grounds_of,
    leaf,
    node,
    whole,
)

KERNELS = ("compute", "memory_bound", "recompute")
"""Branches of a step whose leaves are op families."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """The answer of one plan, taken apart."""

    time: Leaf
    """Seconds of the step, and joules of all chips."""
    memory: Leaf
    """Bytes on the fullest stage."""
    stages: tuple[Leaf, ...]
    """Bytes on every distinct stage."""


def trees(plans: Plans, tables: Tables, ledger: Ledger, scenario: Scenario) -> Trees:
    """Trees of the only plan of a batch of one."""
    # Distinct stages stand first.
    named = zip(_stage_names(ledger), _held(ledger.memory), strict=False)
    stages = {s: _memory_leaf(name, held) for s, (name, held) in enumerate(named)}
    return Trees(
        time=time_tree(plans, tables, ledger, scenario, energy=True),
        memory=replace(stages[int(ledger.fullest[0])], name="peak"),
        stages=tuple(stages.values()),
    )


def time_tree(
    plans: Plans, tables: Tables, ledger: Ledger, scenario: Scenario, *, energy: bool = False
) -> Leaf:
    """Seconds along the slowest stage by op family, exchange and wait; where asked, joules of the job."""
    one = one_plan(plans, tables, ledger)
    bubble_s = float(ledger.bubble_s[0])
    leaves = one.leaves(at_slowest(ledger), bubble_s)
    joules = job_joules(one) if energy else {}
    grounds = grounds_of(tables.parts.times.grounds, scenario.system, scenario.job.gpus)
    kernels = [_node(name, getattr(leaves, name), grounds, joules.get(name)) for name in KERNELS]
    known, spent = leaf_grounds(grounds), joules.get("step", {})
    others = [
        _bubble(kernels[:2], seconds, spent.get(name))
        if name == "bubble"
        else leaf(name, seconds, known.get(name, grounds.collectives), spent.get(name))
        for name, seconds in leaves.seconds.items()
    ]
    step = node("step", [*kernels, *others], float(ledger.step_s[0]))
    others_s = doubted_steps(scenario, plans)
    return whole(step, scenario, plans.plan(0), bubble_s=bubble_s, others_s=others_s)


def doubted_steps(scenario: Scenario, plans: Plans) -> list[float]:
    """Step times with what runs do that do not follow a recipe of their software."""
    plan, found = plans.plan(0), []
    for name, value in scenario.doubts.items():
        if getattr(plan, name) != value:
            other = batch_of([replace(plan, **{name: value})])  # type: ignore[arg-type]
            ledger = evaluate_rows(scenario, other, tables_of(scenario, other))
            found.append(float(ledger.step_s[0]))
    return found


def leaf_grounds(grounds: Grounds) -> dict[str, tuple[Evidence, Spread]]:
    """What leaves rest on; those that are not here, on collectives."""
    return {
        "host": ("transferred", HOST),
        "fixed": ("transferred", HOST),
        "gradient_sums": grounds.of("elementwise"),
        "optimizer": grounds.of("elementwise"),
        "offload": ("datasheet", HOST),
    }


def job_joules(one: OnePlan) -> dict[str, dict[str, float]]:
    """Joules of all chips with base watts: branch -> op family -> joules; under `step` other leaves."""
    ledger, plans = one.ledger, one.plans
    on = ledger.multiplicity[0]
    job = one.leaves(on, float(on @ ledger.waits_s[0]))
    ranks, base = float(ranks_of(plans)[0]), float(one.tables.power.base_watts)
    active = {
        "gradient_sums": float(sum_joules(one.tables, ledger)[0]),
        "optimizer": float(update_joules(one.tables, ledger)[0]),
    }
    found = {
        "step": {
            name: ranks * (base * seconds + active.get(name, 0.0))
            for name, seconds in job.seconds.items()
        }
    }
    for branch in KERNELS:
        sums: Families = getattr(job, branch)
        found[branch] = {
            family: ranks * (base * seconds + sums.joules[family])
            for family, seconds in sums.seconds.items()
        }
    return found


def _bubble(busy: list[Leaf], seconds: float, joules: float | None) -> Leaf:
    """Waiting for other stages: as certain as the work that they wait for."""
    work = node("bubble", busy)
    share = seconds / max(work.value, 1e-30)
    ends = work.interval or {}
    return Leaf(
        name="bubble",
        value=seconds,
        unit=work.unit,
        evidence=work.evidence,
        joules=joules,
        interval={key: (low * share, high * share) for key, (low, high) in ends.items()},
    )


def _node(name: str, families: Families, grounds: Grounds, joules: dict[str, float] | None) -> Leaf:
    """Families, largest first; those of other stages alone spend joules and no time of the slowest."""
    spent = joules or {}
    order = sorted(families.seconds.items(), key=lambda item: -item[1])
    order += [(family, 0.0) for family in spent if family not in families.seconds]
    children = [
        leaf(family, value, grounds.of(family), spent.get(family)) for family, value in order
    ]
    return node(name, children)


def largest_share(tree: Leaf) -> str:
    """The largest end of a tree, with its parent's name where it has one."""
    best = max(
        ((leaf.value, name) for child in tree.children for leaf, name in _named(child)),
        default=(0.0, ""),
    )
    return best[1]


def _named(node: Leaf) -> list[tuple[Leaf, str]]:
    if not node.children:
        return [(node, node.name)]
    return [(leaf, f"{node.name}.{leaf.name}") for leaf in node.children]


def _stage_names(ledger: Ledger) -> list[str]:
    many = ledger.multiplicity[0]
    return stage_names(ledger.position[0][many > 0].tolist(), many[many > 0].tolist())


HELD = ("weights", "gradients", "states", "activations", "buffers")
LOST = ("allocator", "framework")


def _held(memory: StageMemory) -> list[dict[str, float]]:
    """What each stage of the only plan holds, in bytes by name."""
    names = (*HELD, *LOST, "lost", "total")
    columns = [getattr(memory, name)[0].tolist() for name in names]
    return [dict(zip(names, stage, strict=True)) for stage in zip(*columns, strict=True)]


def _memory_leaf(name: str, held: dict[str, float]) -> Leaf:
    def leaf_of(what: str, children: tuple[Leaf, ...] = ()) -> Leaf:
        return Leaf(name=what, value=held[what], unit="bytes", children=children)

    lost = leaf_of("lost", tuple(leaf_of(what) for what in LOST))
    children = (*(leaf_of(what) for what in HELD), lost)
    return Leaf(name=name, value=held["total"], unit="bytes", children=children)
