"""A whole step simulated rank by rank on streams: passes, exchanges, sends, collectives beside them, copies.

    compute    passes in the schedule's order; each waits for its input, its weights and the host
    dp-comm    data-parallel collectives, one after the other, beside the passes
    pp-comm    sends between ranks: the rank stands still for them, or they run beside its passes
    copy       copies to and from the host

A collective and a pass hold each other up while both run (rank.py). What runs beside a rank's passes
is that rank's own, so ranks meet only in the inputs that they wait for, and every task is visited once, as in
events.py. At the end of the step all ranks wait for each other (the norm of the gradients), then update.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from foretell.records import dataclass
from foretell.schedules.base import Schedule, Task
from foretell.simulation.events import ChunkTimes, Player, Timeline, check_sizes
from foretell.simulation.program import EXCHANGES, Chunk, DataCollective, Pass, Program
from foretell.simulation.programs import StepLayout, lay_out
from foretell.simulation.rank import Contention, Knot, Rank, Slice, StageSend
from foretell.specs.arrays import Array
from foretell.specs.plan import Plan
from foretell.specs.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedStep:
    """A step as it was simulated; one entry for each rank."""

    timeline: Timeline
    """Passes."""
    messages: tuple[tuple[Slice, ...], ...]
    """Data-parallel collectives."""
    sends: tuple[tuple[StageSend, ...], ...]
    """Sends to other ranks."""
    copies: tuple[tuple[Slice, ...], ...]
    """Copies to and from the host."""
    launches: tuple[tuple[Slice, ...], ...]
    """The host's launching of each pass."""
    spent: tuple[dict[str, float], ...]
    """What the step's time went to, by `SPENT`."""
    updates: tuple[Slice, ...]
    """The optimizer's update."""
    knots: tuple[dict[int, list[Knot]], ...]
    """Task of the order -> how far it was when, where it stopped for collectives."""
    step_s: float
    """Time of the step."""

    @property
    def busiest(self) -> int:
        """The rank with least waiting for others: the one that sets the pace."""
        return int(np.argmin([one["bubble"] for one in self.spent]))


READY, FIRST, GATHER = 0, 1, 2
"""Gradients are ready; weights of the last update are needed; weights of this pass are needed."""


class _Point(NamedTuple):
    """Where a task meets a collective."""

    at: float
    """Fraction of the task."""
    kind: int
    """READY, FIRST or GATHER."""
    message: DataCollective
    """The collective."""
    number: int = -1
    """Its number, where it was asked for already."""


class StepPlayer(Player):
    """Plays a program in a schedule's order."""

    def __init__(
        self, schedule: Schedule, program: Program, factors: Sequence[Array] | None
    ) -> None:
        """`factors` make each task of each rank longer, in the order of its tasks."""
        chunks = program.ranks
        times = ChunkTimes(
            forward_s=np.array([[c.forward.alone_s for c in rank] for rank in chunks]),
            input_s=np.array([[c.input.alone_s for c in rank] for rank in chunks]),
            weight_s=np.array([[c.weight.alone_s for c in rank] for rank in chunks]),
        )
        self.both = schedule.layout == "both"
        vpp = 1 if self.both else len(chunks[0])
        super().__init__(schedule, times, vpp, program.micro_batches)
        self.program, self.factors = program, factors
        self.places: list[Chunk] = [chunk for rank in chunks for chunk in rank]
        self.last = program.micro_batches // (2 if self.both else 1) - 1
        self.contention = Contention(program)
        self.ranks = [Rank() for _ in chunks]
        self.works: dict[tuple[str, int, int], Pass] = {}
        self.points: dict[tuple[object, ...], tuple[_Point, ...]] = {}
        self.took_s = 0.0
        self.sends_each = any(chunk.reduces_each for chunk in self.places)
        # Weights of the last update travel from the beginning of the step on.
        self.first_numbers = [
            [[one.ask(m) for m in chunk.gathers_first] for chunk in here]
            for one, here in zip(self.ranks, program.ranks, strict=True)
        ]

    def pass_on(self, rank: int, order: Sequence[Task], at: int) -> list[int]:
        """Note what a task has made, sent where another rank needs it; the ranks that waited for it."""
        one, made = self.ranks[rank], self.results(rank, order[at])
        for result in made:
            when = one.now
            if result.to >= 0 and result.to // self.chunks != rank and self.program.send_s > 0.0:
                when = self._send(one)
                begun, (target, chunk) = when - self.took_s, divmod(result.to, self.chunks)
                sent = StageSend(begun, when, target, result.backward, chunk, result.micro_batch)
                one.sends.append(sent)
            self.there[result.number] = when
        if one.later and (at + 1 == len(order) or self.sends_each):
            self._stand_still(one)
        if self.sends_each and one.queue and order[at].does != "F":
            # Gradients that every micro-batch sends are waited for where its backward pass ends,
            # as DeepSpeed does (it synchronises the stream of its reductions there).
            one.wait_for(one.asked - 1)
        return self.waiting(made)

    def _stand_still(self, one: Rank) -> None:
        """Send what nothing overlaps: after each pass where every micro-batch sends, else at the end."""
        for message in one.later:
            one.wait_for(one.ask(message))
        one.later.clear()

    def work(self, rank: int, task: Task) -> Pass:
        """What a task does, as one pass."""
        place = rank * self.chunks + task.chunk
        other = rank * self.chunks + task.other_chunk if task.does == "P" else -1
        key = task.does, place, other
        found = self.works.get(key)
        if found is None:
            found = self.works[key] = self._work(task.does, place, other)
        return found

    def _work(self, does: str, place: int, other: int) -> Pass:
        chunk = self.places[place]
        if does == "F":
            return chunk.forward
        if does == "B":
            return chunk.input
        if does == "W":
            return chunk.weight
        if does == "D":
            return chunk.input + chunk.weight
        behind = self.places[other]
        both = chunk.forward + behind.input + behind.weight
        tensor, context, experts = both.exchange_s
        hidden = self.program.hidden_share * min(experts, both.chip_s)
        return replace(both, exchange_s=(tensor, context, experts - hidden))

    def perform(
        self, rank: int, order: Sequence[Task], at: int, there: float
    ) -> tuple[float, float]:
        """Run one task: when it began and ended."""
        one, task, work = self.ranks[rank], order[at], self.work(rank, order[at])
        if there > one.now:
            one.spent["bubble"] += there - one.now
            one.idle(there)
        begin = one.now
        waits_s = self._launched(one, work)
        factor = 1.0 if self.factors is None else float(self.factors[rank][at])
        spent = one.spent
        spent["compute"] += work.chip_s * factor
        spent["host"] += waits_s * factor
        for name, seconds in zip(EXCHANGES, work.exchange_s, strict=True):
            spent[name] += seconds * factor
        spent["data_parallel"] += work.moved_s * factor
        alone_s = (work.alone_s - work.wait_s + waits_s) * factor
        points = self._points(rank, task)
        if points:
            self._in_pieces(one, work, alone_s, points, at)
        else:
            self._run(one, work, alone_s)
        copies_s = self._copies_s(rank, task)
        if copies_s > 0.0:
            begun = max(one.copies_free, begin)
            one.copies_free = begun + copies_s
            one.copies.append(Slice(_named(task), begun, begun + copies_s))
            if one.copies_free > one.now:
                spent["offload"] += one.copies_free - one.now
                one.idle(one.copies_free)
        return begin, one.now

    def _launched(self, one: Rank, work: Pass) -> float:
        """What the chip waits for the host, which may have launched some of the pass already."""
        most = self.program.runs_ahead_s
        begun = max(one.host_free, one.now - most) if most > 0.0 else one.now
        one.host_free = begun + work.launch_s
        if work.launch_s > 0.0:
            one.launches.append(Slice("launch", begun, one.host_free))
        ahead_s = one.now - begun
        if ahead_s <= 0.0:
            return work.wait_s - ahead_s
        return work.wait_s * max(0.0, 1.0 - ahead_s / max(work.launch_s, 1e-30))

    def _run(self, one: Rank, work: Pass, left_s: float) -> None:
        """A pass, or a share of it, beside whatever collectives are under way."""
        while one.queue and left_s > 0.0:
            head = one.queue[0]
            longer, rate = self.contention.of_pass(work, int(head[2]))
            pass_s, message_s = left_s * longer, head[1] / rate
            if message_s > pass_s:
                head[1] -= pass_s * rate
                one.spent["contention"] += pass_s - left_s
                one.now += pass_s
                return
            one.now += message_s
            one.spent["contention"] += message_s - message_s / longer
            left_s -= message_s / longer
            one.through(one.now)
        one.now += max(left_s, 0.0)

    def _points(self, rank: int, task: Task) -> "tuple[_Point, ...]":
        """Where a task meets collectives, in the order of its fractions."""
        other = task.other_micro_batch if task.does == "P" else task.micro_batch
        key = (
            rank,
            task.does,
            task.chunk,
            task.other_chunk,
            task.micro_batch == 0,
            other == self.last,
        )
        found = self.points.get(key)
        if found is None:
            found = self.points[key] = self._find_points(rank, task, other == self.last)
        return found

    def _find_points(self, rank: int, task: Task, last: bool) -> "tuple[_Point, ...]":
        found: list[_Point] = []
        does, here = task.does, self.program.ranks[rank]
        if does in "FP":
            chunk = here[task.chunk]
            if task.micro_batch == 0:
                numbers = self.first_numbers[rank][task.chunk]
                pairs = zip(chunk.gathers_first, numbers, strict=True)
                found += [_Point(m.at, FIRST, m, number) for m, number in pairs]
            found += [_Point(m.at, GATHER, m) for m in chunk.gathers_forward]
        if does != "F":
            chunk = here[task.other_chunk if does == "P" else task.chunk]
            if does != "W":
                found += [_Point(m.at, GATHER, m) for m in chunk.gathers_backward]
            if does != "B":
                reduces = chunk.reduces_each + (chunk.reduces_last if last else ())
                found += [_Point(m.at, READY, m) for m in reduces]
        return tuple(sorted(found, key=lambda point: point[:2]))

    def _in_pieces(
        self,
        one: Rank,
        work: Pass,
        alone_s: float,
        points: "tuple[_Point, ...]",
        at: int,
    ) -> None:
        """Run a task from one collective that it needs or makes ready to the next.

        What the next piece needs is asked for when this one begins; what the first one needs, when the
        task does.
        """
        gathers = [point.message for point in points if point.kind == GATHER]
        done, met = 0.0, 0
        knots: list[Knot] = []
        for fraction, kind, message, number in points:
            if fraction > done:
                begun = one.now
                self._run(one, work, alone_s * (fraction - done))
                knots += [(done, begun), (fraction, one.now)]
                done = fraction
            if kind == READY:
                # What is not overlapped waits until the results have gone on to the other ranks.
                if message.blocks:
                    one.later.append(message)
                else:
                    one.ask(message)
            elif kind == FIRST:
                one.wait_for(number)
            else:
                one.wait_for(one.ahead.popleft() if one.ahead else one.ask(message))
                met += 1
                if met < len(gathers) and gathers[met].at > fraction:
                    # Experts that are spread have a group, and so a message, of their own in every piece.
                    due = [m for m in gathers[met:] if m.at == gathers[met].at]
                    if not any(m.blocks for m in due):
                        one.ahead.extend(one.ask(m) for m in due)
        begun = one.now
        self._run(one, work, alone_s * (1.0 - done))
        one.knots[at] = [*knots, (done, begun), (1.0, one.now)]

    def _copies_s(self, rank: int, task: Task) -> float:
        """Copies beside a task."""
        here = self.program.ranks[rank]
        copies_s = here[task.chunk].copies_forward_s if task.does in "FP" else 0.0
        if task.does in "BD":
            copies_s = here[task.chunk].copies_backward_s
        if task.does == "P":
            copies_s += here[task.other_chunk].copies_backward_s
        return copies_s

    def _send(self, one: Rank) -> float:
        """Send to another rank, standing still or beside the next pass; when it is there."""
        longer, rate = self.contention.of_send(int(one.queue[0][2])) if one.queue else (1.0, 1.0)
        seconds = self.took_s = self.program.send_s * longer
        if not self.program.sends_block:
            one.sends_free = max(one.sends_free, one.now) + seconds
            if one.queue:
                one.queue[0][1] += seconds * (1.0 - rate)
            return one.sends_free
        one.spent["pipeline_parallel"] += seconds
        begun = one.now
        if one.queue:
            one.queue[0][1] += seconds * (1.0 - rate)
        one.idle(begun + seconds)
        return one.now


def play_step(
    schedule: Schedule, program: Program, factors: Sequence[Array] | None = None
) -> PlayedStep:
    """Simulate a step, from the first pass to the end of the update."""
    pp = len(program.ranks)
    vpp = 1 if schedule.layout == "both" else len(program.ranks[0])
    check_sizes(schedule, pp, vpp, program.micro_batches)
    orders = [tuple(schedule.tasks(rank, pp, vpp, program.micro_batches)) for rank in range(pp)]
    player = StepPlayer(schedule, program, factors)
    starts, ends = player.run(orders)
    for one in player.ranks:
        if one.queue:
            one.wait_for(one.asked - 1)
    together = max(one.now for one in player.ranks)
    updates = [_update(one, program, rank, together) for rank, one in enumerate(player.ranks)]
    finished = max(one.now for one in player.ranks)
    for one in player.ranks:
        one.spent["bubble"] += finished - one.now
        one.spent["fixed"] = program.fixed_s
    timeline = Timeline(
        tasks=tuple(orders),
        start_s=tuple(np.array(s) for s in starts),
        end_s=tuple(np.array(e) for e in ends),
        chunks=vpp,
    )
    return PlayedStep(
        timeline=timeline,
        messages=tuple(tuple(one.messages) for one in player.ranks),
        sends=tuple(tuple(one.sends) for one in player.ranks),
        copies=tuple(tuple(one.copies) for one in player.ranks),
        launches=tuple(tuple(one.launches) for one in player.ranks),
        spent=tuple(one.spent for one in player.ranks),
        updates=tuple(updates),
        knots=tuple(one.knots for one in player.ranks),
        step_s=finished + program.fixed_s,
    )


def _update(one: Rank, program: Program, rank: int, together: float) -> Slice:
    """Wait for all ranks, then update, with copies beside it where states live with the host."""
    one.spent["bubble"] += together - one.now
    one.now = together
    update_s = program.update_s[rank] if program.update_s else 0.0
    copies_s = program.update_copies_s[rank] if program.update_copies_s else 0.0
    one.spent["optimizer"] += update_s
    one.now += max(update_s, copies_s)
    one.spent["offload"] += max(copies_s - update_s, 0.0)
    if copies_s > 0.0:
        one.copies.append(Slice("copies update", together, together + copies_s))
    return Slice("optimizer", together, together + update_s)


def _named(task: Task) -> str:
    return f"copies {task.does}{task.micro_batch}"


def played_step(scenario: Scenario, plan: Plan) -> tuple[StepLayout, PlayedStep]:
    """A plan's step, laid out and simulated without chance."""
    laid = lay_out(scenario, plan)
    return laid, play_step(laid.schedule, laid.program)


def rank_stride(plan: Plan) -> int:
    """How many ranks apart the stages of a pipeline are numbered."""
    stride = 1
    for name in plan.order[: plan.order.index("pp")]:
        stride *= int(getattr(plan, name))
    return stride


def held_bytes(laid: StepLayout, played: PlayedStep, rank: int) -> tuple[Array, Array]:
    """Moments, and bytes that a rank of a stage holds from each on; activations follow the micro-batches."""
    memory, row = laid.rows.memory, laid.stage[rank]
    peak, kept = float(memory.total[0, row]), float(memory.activations[0, row])
    moments, held = played.timeline.held(rank)
    return moments, peak - kept + kept * held / max(float(held.max()), 1e-30)
