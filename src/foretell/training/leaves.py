"""One plan's step in its finest leaves: its passes by op family, host and exchange, and what comes beside.

Every leaf is a sum over stages of so many runs of each part, so that the same function gives the seconds of
the slowest stage (weight 1 there, 0 elsewhere) and those of one rank of every stage together (weights as many
as there are alike). The first sum to the step, the second times base watts, with what operations spend on
top, to its energy.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from foretell.records import dataclass
from foretell.sharding.recompute import full_share
from foretell.specs.arrays import Array, Index
from foretell.specs.plan import Plans
from foretell.specs.plan_forms import recompute_layers
from foretell.training.layer_costs import beside_host
from foretell.training.ledger import Ledger
from foretell.training.memory import LISTED
from foretell.training.part_costs import Parts
from foretell.training.pass_times import late_launches, pass_times
from foretell.training.tables import Tables

Phase = Literal["forward", "backward", "recompute"]
"""A pass in which operations run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRuns:
    """How often each part runs in a step; (stages, parts), or (parts,) of some stages together."""

    once: Array
    """Forward and backward."""
    repeated: Array
    """Layers that are computed again whole."""
    listed: Array
    """Layers of which the modules that a plan names are computed again."""

    def of(self, on: Array) -> "PartRuns":
        """Of the stages that have a weight in `on`, (stages,)."""
        return PartRuns(once=on @ self.once, repeated=on @ self.repeated, listed=on @ self.listed)


def part_runs(plans: Plans, tables: Tables, ledger: Ledger) -> PartRuns:
    """Runs on each stage of the only plan of a batch of one."""
    is_layer = np.arange(len(tables.parts.names)) < tables.parts.kinds
    counts, mu = ledger.counts[ledger.pair[0]], float(ledger.micro_batches[0])
    once = counts * mu
    layers = np.where(is_layer, once, 0.0)
    shares = repeated_shares(plans, np.where(is_layer, counts, 0.0).sum(axis=1))
    listed = float(float(plans.recompute[0]) == LISTED)
    return PartRuns(once=once, repeated=layers * shares[:, None], listed=layers * listed)


def repeated_shares(plans: Plans, layers: Array) -> Array:
    """Share of so many layers of each stage that is computed again whole."""
    mode, blocks = float(plans.recompute[0]), float(recompute_layers(plans.base.recompute))
    if mode == LISTED:
        return np.asarray(full_share(layers, blocks) + np.zeros_like(layers))
    return np.full(len(layers), float(mode == 2.0))


def at_slowest(ledger: Ledger) -> Array:
    """Weight 1 on the slowest stage of the only plan."""
    return np.asarray(np.arange(ledger.multiplicity.shape[1]) == ledger.slowest[0], float)


class Families:
    """Seconds and joules by op family."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.joules: dict[str, float] = defaultdict(float)

    def add(self, family: str, seconds: float, joules: float) -> None:
        """One more share of a family."""
        self.seconds[family] += seconds
        self.joules[family] += joules


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCounts:
    """How often the slowest stage runs the operations of each part in one kind of pass of a step."""

    phase: Phase
    """Which pass."""
    counts: Array
    """Runs of each part in a step."""
    only: Array | None = None
    """Share of each operation that it runs; None: all of every one."""

    def ops(self, parts: Parts) -> Iterator[tuple[int, float, int]]:
        """Row in the table of times, runs in a step and part of each operation that it runs."""
        row = sum(len(ops) for ops in parts.ops) if self.phase == "backward" else 0
        for part, (count, ops) in enumerate(zip(self.counts.tolist(), parts.ops, strict=True)):
            for _ in ops:
                share = 1.0 if self.only is None else float(self.only[row])
                if count * share > 0.0:
                    yield row, count * share, part
                row += 1


def runs_of(plans: Plans, tables: Tables, ledger: Ledger) -> list[PassCounts]:
    """Every pass of the slowest stage; what selective recomputation repeats is not in it (core_s)."""
    return pass_runs(tables, part_runs(plans, tables, ledger).of(at_slowest(ledger)))


def pass_runs(tables: Tables, many: PartRuns) -> list[PassCounts]:
    """Every pass of some stages."""
    found = [
        PassCounts(phase="forward", counts=many.once),
        PassCounts(phase="backward", counts=many.once),
    ]
    if many.repeated.any():
        found.append(
            PassCounts(phase="recompute", counts=many.repeated, only=tables.parts.rerun_ops)
        )
    if many.listed.any() and len(tables.parts.again_ops):
        found.append(PassCounts(phase="recompute", counts=many.listed, only=tables.parts.again_ops))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCosts:
    """What the operations of every part cost at the clock held; arrays are (2, operations), forward first."""

    lengths: list[int]
    """Operations of each part."""
    families: list[str]
    """Families that occur."""
    bin: Index
    """Of each operation, twice the place of its family, and one more where memory bounds it."""
    seconds: Array
    """Time."""
    joules: Array
    """Energy beyond base watts."""

    def add(self, run: PassCounts, sums: tuple[Families, Families]) -> None:
        """Add every operation of a pass, times its count, to its family: arithmetic or memory."""
        half = int(run.phase == "backward")
        counts = np.repeat(run.counts, self.lengths)
        if run.only is not None:
            counts = counts * run.only
        bins, many = self.bin[half], 2 * len(self.families)
        seconds = np.bincount(bins, counts * self.seconds[half], many).tolist()
        joules = np.bincount(bins, counts * self.joules[half], many).tolist()
        for i, spent_s in enumerate(seconds):
            if spent_s > 0.0:
                sums[i % 2].add(self.families[i // 2], spent_s, joules[i])


def op_costs(tables: Tables, ledger: Ledger) -> OpCosts:
    """Times and energies of the only plan's operations."""
    parts, at = tables.parts, int(tables.shape[0])
    times, slower = parts.times, tables.pace / float(ledger.clock[0]) - 1.0
    of = [op.family for ops in parts.ops for op in ops]
    place = {family: i for i, family in enumerate(dict.fromkeys(of))}
    spent = times.core_joules[:, at] * float(ledger.core_fall[0]) + times.memory_joules[:, at]
    return OpCosts(
        lengths=[len(ops) for ops in parts.ops],
        families=list(place),
        bin=2 * np.array([place[family] for family in of])
        + times.memory_bound[:, at].reshape(2, -1),
        seconds=(times.seconds[:, at] + slower * times.clocked_s[:, at]).reshape(2, -1),
        joules=spent.reshape(2, -1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWaits:
    """What one run of each part waits for the host; (parts,)."""

    forward: Array
    """Forward pass."""
    backward: Array
    """Backward pass."""
    rerun: Array
    """Forward pass of a part that is computed again whole."""
    again: Array | None
    """Modules run again; None where the plan names none."""

    def of(self, many: PartRuns) -> float:
        """All runs in a step."""
        waited = many.once * (self.forward + self.backward) + many.repeated * self.rerun
        if self.again is not None:
            waited = waited + many.listed * self.again
        return float(waited.sum())


def host_waits(plans: Plans, tables: Tables, ledger: Ledger) -> HostWaits:
    """What the parts of the only plan wait for the host."""
    parts, slower = tables.parts, tables.pace / float(ledger.clock[0]) - 1.0
    late_us = late_launches(plans, tables)
    spent = pass_times(tables, tables.shape[:1], tables.group[:1], late_us, plans.pp[:1])

    def waits(chip_s: Array, host_s: Array) -> Array:
        return np.asarray((beside_host(chip_s, host_s) - chip_s)[0])

    forward_s, backward_s = spent.chip_s(slower)
    return HostWaits(
        forward=waits(forward_s, spent.host_s.forward_s),
        backward=waits(backward_s, spent.host_s.backward_s),
        rerun=waits(spent.rerun(slower)[0], spent.host_s.forward_s),
        again=None
        if parts.again is None
        else waits(spent.again_chip_s(slower), parts.again.host_s[spent.shape]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLeaves:
    """Seconds of some stages together in a step, and what their operations spend."""

    compute: Families
    """Operations that arithmetic bounds, by family."""
    memory_bound: Families
    """Operations that the memory bounds."""
    recompute: Families
    """Operations that run again."""
    seconds: Mapping[str, float]
    """Every other leaf, in the order of the tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnePlan:
    """The only plan of a batch of one, ready to be taken apart."""

    plans: Plans
    """The plan."""
    tables: Tables
    """Its tables."""
    ledger: Ledger
    """Its ledger."""
    costs: OpCosts
    """Its operations."""
    host: HostWaits
    """What its parts wait for the host."""
    runs: PartRuns
    """How often each stage runs each part."""

    def leaves(self, on: Array, bubble_s: float) -> StepLeaves:
        """Leaves of the stages that have a weight in `on`, which wait so long for others."""
        plans, tables, ledger = self.plans, self.tables, self.ledger
        spent, mu, stages = ledger.seconds, float(ledger.micro_batches[0]), float(on.sum())
        compute, memory, again = Families(), Families(), Families()
        many = self.runs.of(on)
        for run in pass_runs(tables, many):
            self.costs.add(run, (again, again) if run.phase == "recompute" else (compute, memory))
        if float(plans.recompute[0]) == 1.0:
            cores_s = many.once * tables.parts.core_s[int(tables.shape[0])]
            again.add("attention", float(cores_s.sum()), 0.0)
        exchanged = exchange_seconds(tables, many)
        sends_s = stages * mu * float(ledger.send_s[0, 0])
        if spent.hidden is not None:
            sends_s = less_hidden(exchanged, sends_s, -float(on @ spent.hidden[0]))
        found = {
            **exchanged,
            "pipeline_parallel": sends_s,
            "data_parallel": float(on @ spent.data_parallel[0]),
            "bubble": bubble_s,
            "host": self.host.of(many),
            "fixed": stages * float(np.ravel(ledger.fixed_s)[0]),
            "gradient_sums": mu * float(on @ ledger.sums_s[0]),
            "optimizer": float(on @ spent.optimizer[0]),
        }
        if spent.offload is not None:
            found["offload"] = float(on @ spent.offload[0])
        return StepLeaves(compute=compute, memory_bound=memory, recompute=again, seconds=found)


def one_plan(plans: Plans, tables: Tables, ledger: Ledger) -> OnePlan:
    """A batch of one."""
    costs, host = op_costs(tables, ledger), host_waits(plans, tables, ledger)
    runs = part_runs(plans, tables, ledger)
    return OnePlan(plans=plans, tables=tables, ledger=ledger, costs=costs, host=host, runs=runs)


def exchange_seconds(tables: Tables, many: PartRuns) -> dict[str, float]:
    """Seconds of each kind of exchange: of passes, and of what runs again."""
    parts, group, found = tables.parts, int(tables.group[0]), {}
    for name, e in tables.exchanges.by_name.items():
        modules = parts.waits_again[name] * many.listed if parts.waits_again else 0.0
        forwards = many.once + many.repeated + modules
        found[name] = float((forwards * e.forward_s[group] + many.once * e.backward_s[group]).sum())
    return found


def less_hidden(exchanged: dict[str, float], sends_s: float, hidden_s: float) -> float:
    """Take what pairs hide from dispatches and sends, from each its part; the sends that are left. What shows
    besides where passes are alone (below zero) is of the dispatches."""
    dispatched = exchanged.get("expert_parallel", 0.0)
    if hidden_s < 0.0:
        exchanged["expert_parallel"] = dispatched - hidden_s
        return sends_s
    left = 1.0 - hidden_s / max(dispatched + sends_s, 1e-30)
    if "expert_parallel" in exchanged:
        exchanged["expert_parallel"] = dispatched * left
    return sends_s * left
