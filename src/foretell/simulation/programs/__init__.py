"""From the estimate's numbers to a program of events: what each rank of a pipeline does in one step.

Every second comes from where the closed form takes it (training/layer_costs.py, training/exchanges.py,
training/data_parallel.py, training/step.py); here it is only dealt to chunks, passes and streams. One rank
of each stage stands for all that are alike.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretell.kernels.fusion import launch_cost
from foretell.network.collectives import occupancy, outermost
from foretell.records import dataclass
from foretell.schedules import schedule_named
from foretell.schedules.base import Schedule
from foretell.sharding.offload import LINK_SHARE, Copies, StateBytes, host_copies
from foretell.simulation.program import (
    EXCHANGES,
    Chunk,
    DataCollective,
    Pass,
    Program,
    cut_gradients,
    held_back,
    weight_pieces,
)
from foretell.simulation.programs.dealing import Chunks, Contents, Dealing, dealing_of, part_passes
from foretell.specs.arrays import Array
from foretell.specs.chip import Chip
from foretell.specs.plan import Plan, batch_of
from foretell.specs.scenario import Scenario
from foretell.training.data_parallel import (
    GroupWeights,
    Messages,
    copy_seconds,
    data_messages,
    kinds_alike,
    shares_of,
)
from foretell.training.exposed_messages import cores_taken, exposure_of
from foretell.training.ledger import Ledger
from foretell.training.micro_batch import TAKEN_CORES, mirror_seconds
from foretell.training.rank_links import system_as_filled
from foretell.training.shapes import launch_kind, sum_of
from foretell.training.stages import stages_of_plans
from foretell.training.step import evaluate_rows
from foretell.training.tables import Stages, Tables, tables_of


def with_messages(
    scenario: Scenario,
    dealt: Dealing,
    ranks: Chunks,
    passes: tuple[Sequence[Pass], Sequence[Pass]],
) -> Chunks:
    """Data-parallel collectives of every chunk, by its share of the rank's weights."""
    plans, tables = dealt.plans, dealt.tables
    shares = shares_of(plans, tables, dealt.stages, dealt.rows.micro_batches)
    alike = kinds_alike(plans, tables)
    found = [(s, data_messages(plans, tables, s, alike)) for s in shares]
    if dealt.schedule.layout == "both" and dealt.plans.pp[0] > 1:
        ranks = _mirrored(scenario, dealt, ranks, shares)
    if all(float(s.ranks[0]) <= 1.0 for s in shares):
        return ranks
    if scenario.software.gather_copies:
        ranks = _moved(scenario, dealt, ranks, shares)
    return tuple(
        tuple(
            _chunk_messages(dealt, chunk, found, passes, (rank, number))
            for number, chunk in enumerate(here)
        )
        for rank, here in enumerate(ranks)
    )


def _mirrored(
    scenario: Scenario, dealt: Dealing, ranks: Chunks, shares: tuple[GroupWeights, ...]
) -> Chunks:
    """The sum of the gradients of both copies of the weights, each chunk its half."""
    seconds = mirror_seconds(scenario, dealt.plans, dealt.tables, shares)

    def one(rank: int) -> DataCollective:
        half_s = 0.5 * float(seconds[0, dealt.stage[rank]])
        return DataCollective(name="add up both copies", seconds=half_s, at=1.0)

    return tuple(
        tuple(replace(chunk, reduces_last=(one(rank),)) for chunk in here)
        for rank, here in enumerate(ranks)
    )


def _moved(
    scenario: Scenario, dealt: Dealing, ranks: Chunks, shares: tuple[GroupWeights, ...]
) -> Chunks:
    """Copies between weights and messages: a third of them forward, as many messages as there are."""
    seconds = sum_of([copy_seconds(scenario, dealt.plans, share) for share in shares])
    many = float(dealt.rows.micro_batches[0]) * dealt.copies

    def chunk_of(chunk: Chunk, rank: int) -> Chunk:
        each_s = float(seconds[0, dealt.stage[rank]]) / many
        return replace(
            chunk,
            forward=replace(chunk.forward, moved_s=each_s / 3.0),
            input=replace(chunk.input, moved_s=2.0 * each_s / 3.0),
        )

    return tuple(tuple(chunk_of(chunk, rank) for chunk in here) for rank, here in enumerate(ranks))


def _chunk_messages(
    dealt: Dealing,
    chunk: Chunk,
    found: list[tuple[GroupWeights, Messages]],
    passes: tuple[Sequence[Pass], Sequence[Pass]],
    place: tuple[int, int],
) -> Chunk:
    """One chunk with its messages: gradients in pieces as layers end, weights before they begin."""
    forward, backward = passes
    rank, number = place
    row, parts = dealt.stage[rank], dealt.contents[rank][number]
    weights = dealt.tables.parts.parameters[0]
    whole = float(sum(weights[p] for here in dealt.contents[rank] for p in here))
    share = float(sum(weights[p] for p in parts)) / max(whole, 1e-30)
    traffic, software = found[0][0].traffic, dealt.tables.software
    # What is hidden in part holds the pass up while it runs (`apart_share`); this is what is never hidden.
    shares = exposure_of(dealt.plans.base, software, float(dealt.plans.zero[0]))
    shown = float(shares.reductions >= 1.0)
    shown_gather = float(shares.gathers >= 1.0)
    shown_again = float(shares.gathers_again >= 1.0)
    there_ends, back_ends = dealt.ends(parts, forward), dealt.ends(parts[::-1], backward)
    reduces: list[DataCollective] = []
    gathers: list[DataCollective] = []
    again: list[DataCollective] = []
    for group, (_, m) in enumerate(found):
        pieces = float(m.pieces[0, row])
        many = pieces * share
        reduce_s = float(m.reduce_s[0, row] - m.again_s[0, row])
        reduces += cut_gradients(
            "reduce gradients", pieces * share * reduce_s, back_ends, many, group
        )
        gather_s, again_s = float(m.gather_s[0, row]), float(m.again_s[0, row])
        gather = cut_gradients("gather weights", pieces * share * gather_s, there_ends, many, group)
        gathers += weight_pieces(gather)
        again += weight_pieces(
            cut_gradients("gather again", pieces * share * again_s, back_ends, many, group)
        )
    gathers_each = float(traffic.gathers_forward[0]) > 1.0 or float(dealt.plans.zero[0]) >= 3
    reduces_each = float((traffic.all_reduces + traffic.scatters)[0]) > 1.0
    due = held_back(reduces, shown, 1.0)
    there = held_back(gathers, shown_gather, 0.0) if float(traffic.gathers_forward[0]) > 0 else ()
    back = held_back(again, shown_again, 0.0) if float(traffic.gathers_backward[0]) > 0 else ()
    return replace(
        chunk,
        gathers_first=() if gathers_each else there,
        gathers_forward=there if gathers_each else (),
        gathers_backward=back,
        reduces_each=due if reduces_each else (),
        reduces_last=chunk.reduces_last if reduces_each else due + chunk.reduces_last,
    )


def copies_of(scenario: Scenario, plan: Plan, stages: Stages, tables: Tables) -> Copies | None:
    """Copies to and from the host; None where nothing lives there."""
    if plan.offload == "none":
        return None
    # What is copied is all of it, as a rank would hold it if it stayed.
    here = batch_of([replace(plan, offload="none")])
    memory = evaluate_rows(scenario, here, tables).memory
    held = StateBytes(
        weight_bytes=memory.weights, state_bytes=memory.states, kept_bytes=stages.kept_bytes
    )
    return host_copies(plan.offload, held, plan.reshard)


def with_copies(
    ranks: Chunks, copies: Copies | None, chip: Chip, dealt: Dealing
) -> tuple[Chunks, tuple[float, ...]]:
    """Copies beside passes and the update, each chunk its part."""
    if copies is None:
        return ranks, ()
    bytes_per_s = LINK_SHARE * float(chip.host_bytes_per_s)

    def seconds(size: Array, rank: int, parts: float) -> float:
        return float(size[0, dealt.stage[rank]]) / bytes_per_s / parts

    found = tuple(
        tuple(
            replace(
                chunk,
                copies_forward_s=seconds(copies.forward_bytes, rank, dealt.copies),
                copies_backward_s=seconds(copies.backward_bytes, rank, dealt.copies),
            )
            for chunk in here
        )
        for rank, here in enumerate(ranks)
    )
    return found, tuple(seconds(copies.update_bytes, r, 1.0) for r in range(len(ranks)))


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
    """Whether the host launches ahead from pass to pass, waiting for no sends and no experts' loads."""
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
