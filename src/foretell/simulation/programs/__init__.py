"""From the estimate's numbers to a program of events: what each rank of a pipeline does in one step.

Every second comes from where the closed form takes it (training/layer_costs.py, training/exchanges.py,
training/data_parallel.py, training/step.py); here it is only dealt to chunks, passes and streams. One rank
of each stage stands for all that are alike.
"""

from collections.abc import Sequence

import numpy as np

from foretell.kernels.fusion import launch_cost
from foretell.network.collectives import occupancy, outermost
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Schedule
from foretell.simulation.program import EXCHANGES, Pass, Program
from foretell.simulation.programs.dealing import Contents, Dealing, dealing_of, part_passes
from foretell.simulation.programs.messages import copies_of, with_copies, with_messages
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.exposed_messages import cores_taken, exposure_of
from foretell.training.ledger import Ledger
from foretell.training.micro_batch import TAKEN_CORES
from foretell.training.rank_links import system_as_filled
from foretell.training.shapes import launch_kind
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Tables, tables_of

QUEUE_LAUNCHES = 1024.0
"""Launches that the host may be ahead of the chip: the depth of CUDA's queue (recalled, not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLayout:
    """A step ready to be simulated, with what its picture needs."""

    scenario: Scenario
    """What was asked."""
    plan: Plan
    """The plan."""
    schedule: Schedule
    """Its schedule."""
    program: Program
    """What is simulated."""
    contents: Contents
    """Parts on every chunk."""
    forward: tuple[Pass, ...]
    """Forward pass of each part."""
    backward: tuple[Pass, ...]
    """Its backward pass, recomputation included."""
    weight: tuple[Pass, ...]
    """Of it, the products for the gradients of weights where the schedule runs them apart."""
    stage: tuple[int, ...]
    """Row of each rank in the closed form's table of distinct stages."""
    tables: Tables
    """The closed form's tables."""
    rows: Ledger
    """The closed form's step."""
    kept_bytes: tuple[float, ...]
    """Activations that each rank keeps for one micro-batch."""


def lay_out(scenario: Scenario, plan: Plan) -> StepLayout:
    """The program of one plan's step."""
    plans = batch_of([plan])
    tables = tables_of(scenario, plans)
    rows = evaluate_rows(scenario, plans, tables)
    stages = stages_of_plans(plans, tables)
    schedule = schedule_named(plan.schedule)
    contents, stage = dealing_of(scenario, plan, tables, rows)
    forward, backward, weight = part_passes(plans, tables, rows)
    chip, software = scenario.system.chip, scenario.software
    dealt = Dealing(
        plans=plans,
        tables=tables,
        rows=rows,
        stages=stages,
        schedule=schedule,
        contents=contents,
        stage=stage,
    )
    ranks = dealt.chunks(forward, backward, weight)
    ranks = with_messages(scenario, dealt, ranks, (forward, backward))
    copies = copies_of(scenario, plan, stages, tables)
    ranks, update_copies_s = with_copies(ranks, copies, chip, dealt)
    host = launch_cost(tables.host, launch_kind(plan, software), fused=plan.fused)
    uses = _uses(scenario, tables)
    reductions = float(exposure_of(plan, software, plan.zero).reductions)
    program = Program(
        ranks=ranks,
        micro_batches=int(rows.micro_batches[0]),
        send_s=float(rows.send_s[0, 0]) / (2.0 * plan.vpp),
        sends_block=not schedule_named(plan.schedule).sends_beside,
        runs_ahead_s=QUEUE_LAUNCHES * (host.operation_s + host.kernel_s) * runs_ahead(plan),
        hidden_share=hidden_share(plan, chip),
        update_s=tuple(float(rows.seconds.optimizer[0, s]) for s in stage),
        update_copies_s=update_copies_s,
        fixed_s=float(np.ravel(rows.fixed_s)[0]),
        # What is never hidden is sent apart (simulation/programs/messages.py).
        apart_share=reductions if reductions < 1.0 else 0.0,
        held_cores=held_cores(chip, uses["group_use"]),
        **uses,
    )
    return StepLayout(
        scenario=scenario,
        plan=plan,
        schedule=schedule,
        program=program,
        contents=contents,
        forward=forward,
        backward=backward,
        weight=weight,
        stage=stage,
        tables=tables,
        rows=rows,
        kept_bytes=tuple(float(stages.kept_bytes[0, s]) for s in stage),
    )


def runs_ahead(plan: Plan) -> bool:
    """Whether the host launches ahead of the chip from pass to pass.

    Not where it waits for sends, nor where it reads back how many tokens each expert gets.
    """
    if plan.ep > 1 and plan.capacity == 0.0:
        return False
    return plan.pp == 1 or not schedule_named(plan.schedule).host_waits


def held_cores(chip: Chip, uses: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Share of the cores that a collective of each group holds beside a pass (training/data_waits.py)."""
    return tuple(float(cores_taken(chip, np.asarray(use[0], float))) for use in uses)


def hidden_share(plan: Plan, chip: Chip) -> float:
    """What a forward beside a backward pass hides of the experts' exchanges: training/micro_batch.py."""
    if schedule_named(plan.schedule).layout != "both" or plan.ep_overlap == "on":
        return 0.0
    cores = float(np.mean(chip.cores))
    return 1.0 - (min(TAKEN_CORES / cores, 1.0) if cores else 0.0)


def _uses(scenario: Scenario, tables: Tables) -> dict[str, tuple]:  # type: ignore[type-arg]
    """Shares of the time that the links of each tier are in use, by exchange, group and send."""
    network, spot = system_as_filled(scenario).network, int(tables.spot[0])
    tiers = len(network.tiers)

    def at(tier: int) -> tuple[float, ...]:
        return tuple(float(t == tier) for t in range(tiers))

    def of_group(counts: Array) -> tuple[float, ...]:
        return tuple(float(x) for x in occupancy(counts, network)[:, spot])

    group = int(tables.group[0])
    exchanges = tuple(
        at(int(tables.exchanges.by_name[name].tier[group]))
        if name in tables.exchanges.by_name
        else at(-1)
        for name in EXCHANGES
    )
    counts = tables.links.counts
    groups = [of_group(counts["dp"] * counts["cp"])]
    groups += [of_group(counts["edp"])] if tables.parts.experts else []
    return {
        "exchange_use": exchanges,
        "group_use": tuple(groups),
        "send_use": at(int(outermost(counts["pp"])[spot])),
    }
