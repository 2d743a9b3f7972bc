"""Where the time of each step of each rank goes; every moment is counted once.

    step = compute alone + compute beside communication + exposed communication
         + copies alone + host + idle

compute       a kernel runs
exposed       a collective or send is under way and no kernel runs
copies        neither, and memory is copied or filled
host          nothing runs, and the host is at work: the accelerator waits for launches
idle          nothing runs, and the host does nothing that was recorded

A moment with several kernels belongs to the one that began first, so that families add up to compute, and
likewise collectives to communication. All sums are of whole nanoseconds.
"""

from dataclasses import dataclass

import numpy as np

from foretell.lab.characterize.traces.names import bus_factor
from foretell.lab.characterize.traces.rank_trace import (
    PHASES,
    CommEvents,
    ExclusiveSpans,
    KernelEvents,
    RankTrace,
    Spans,
    Times,
    TracedStep,
    covered_ns,
    difference,
    exclusive_spans,
    intersection,
    overlap_ns,
    union,
    union_of,
)
from foretell.records import as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTime:
    """Kernels of one family in one pass of a step, or one operation's."""

    family: str
    """Which."""
    phase: str
    """forward, backward, optimizer; empty where the trace does not say."""
    op: str
    """The operation, or the three sides of a product; empty for a whole family."""
    seconds: float
    """Moments that are theirs."""
    busy_s: float
    """Their lengths added up, overlapping or not."""
    count: int
    """How many began in the step."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """Collectives of one kind in a step."""

    collective: str
    """Which, with the name of its group where it has one."""
    members: int | None
    """Ranks of the group."""
    count: int
    """How many began in the step."""
    seconds: float
    """Moments that are theirs."""
    exposed_s: float
    """Of these, with no kernel running."""
    hidden_s: float
    """Of these, behind kernels."""
    busy_s: float
    """Their lengths added up."""
    size_bytes: float | None
    """Their full buffers added up, as nccl-tests counts them."""
    algorithm_bytes_per_s: float | None
    """Bytes over lengths."""
    bus_bytes_per_s: float | None
    """The same times what every link must carry: comparable with a link's rate."""

    to_dict = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTime:
    """What ran while an annotation of one's own was open."""

    name: str
    """Its text."""
    seconds: float
    """How long it was open."""
    compute_s: float
    """Kernels in it."""
    communication_s: float
    """Collectives and sends in it, hidden or not."""

    to_dict = as_json()


PARTS = ("compute_alone_s", "overlapped_s", "exposed_communication_s", "copy_s", "host_s", "idle_s")
"""What a step is the sum of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBreakdown:
    """One step of one rank."""

    rank: int
    """Which rank."""
    step: str
    """Which step."""
    step_s: float
    """How long it took."""
    compute_alone_s: float
    """Kernels, nothing being sent."""
    overlapped_s: float
    """Kernels, something being sent."""
    exposed_communication_s: float
    """Something being sent, no kernels."""
    copy_s: float
    """Memory copied or filled, nothing else."""
    host_s: float
    """Nothing but the host at work."""
    idle_s: float
    """Nothing at all."""
    compute: tuple[FamilyTime, ...]
    """Families and passes, largest first."""
    ops: tuple[FamilyTime, ...]
    """Operations that are known by name or shape, largest first."""
    copies: tuple[FamilyTime, ...]
    """Copies and fills, hidden ones too."""
    collectives: tuple[CollectiveTime, ...]
    """Kinds, largest first."""
    ranges: tuple[RangeTime, ...]
    """Annotations of one's own, longest first; they may contain each other."""

    @property
    def compute_s(self) -> float:
        """Some kernel runs."""
        return self.compute_alone_s + self.overlapped_s

    @property
    def communication_s(self) -> float:
        """Something is being sent."""
        return self.overlapped_s + self.exposed_communication_s

    to_dict = as_json(
        "rank",
        "step",
        "step_s",
        *PARTS,
        "compute_s",
        "communication_s",
        "compute",
        "ops",
        "copies",
        "collectives",
        "ranges",
    )


def breakdowns(trace: RankTrace) -> tuple[StepBreakdown, ...]:
    """Every step of a rank."""
    work = union(trace.work.starts, trace.work.ends)
    sent = union(trace.sent.starts, trace.sent.ends)
    copied = union(trace.copies.starts, trace.copies.ends)
    busy = union_of(work, sent)
    alone = difference(copied, busy)
    sets = {
        "compute": work,
        "overlapped": intersection(work, sent),
        "sent": sent,
        "copies": alone,
        "host": difference(trace.host, union_of(busy, copied)),
    }
    ranges = {
        name: (spans, intersection(spans, work), intersection(spans, sent))
        for name, spans in trace.ranges.items()
    }
    kept = tuple(exclusive_spans(x.starts, x.ends) for x in (trace.work, trace.copies, trace.sent))
    return tuple(_step(trace, step, sets, ranges, kept) for step in trace.steps)


def _step(
    trace: RankTrace,
    step: TracedStep,
    sets: dict[str, Spans],
    ranges: dict[str, tuple[Spans, Spans, Spans]],
    kept: tuple[ExclusiveSpans, ...],
) -> StepBreakdown:
    """One step, from sets of the whole trace."""
    edges = np.array([step.start_ns, step.end_ns])
    inside = {name: int(np.diff(covered_ns(spans, edges))[0]) for name, spans in sets.items()}
    whole = step.end_ns - step.start_ns
    exposed = inside["sent"] - inside["overlapped"]
    idle = whole - inside["compute"] - exposed - inside["copies"] - inside["host"]
    return StepBreakdown(
        rank=trace.rank,
        step=step.name,
        step_s=whole * 1e-9,
        compute_alone_s=(inside["compute"] - inside["overlapped"]) * 1e-9,
        overlapped_s=inside["overlapped"] * 1e-9,
        exposed_communication_s=exposed * 1e-9,
        copy_s=inside["copies"] * 1e-9,
        host_s=inside["host"] * 1e-9,
        idle_s=idle * 1e-9,
        compute=_grouped(trace.work, kept[0], step),
        ops=_grouped(trace.work, kept[0], step, by_op=True),
        copies=_grouped(trace.copies, kept[1], step),
        collectives=_by_kind(trace.sent, kept[2], step, sets["compute"]),
        ranges=_by_range(ranges, edges),
    )


def _by_range(ranges: dict[str, tuple[Spans, Spans, Spans]], edges: Times) -> tuple[RangeTime, ...]:
    """Annotations that were open in a step."""
    found = []
    for name, sets in ranges.items():
        whole, work, sent = (int(np.diff(covered_ns(spans, edges))[0]) * 1e-9 for spans in sets)
        if whole > 0.0:
            found.append(RangeTime(name=name, seconds=whole, compute_s=work, communication_s=sent))
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.name)))


def _clipped_ns(starts: Times, ends: Times, step: TracedStep) -> Times:
    """How much of each span lies in a step."""
    low, high = (np.clip(times, step.start_ns, step.end_ns) for times in (starts, ends))
    return np.asarray(high - low)


def _grouped(
    work: KernelEvents, kept: ExclusiveSpans, step: TracedStep, *, by_op: bool = False
) -> tuple[FamilyTime, ...]:
    """Work by family and pass, or that of known operations by these."""
    place, begins, finishes = kept.cut(step.start_ns, step.end_ns)
    if by_op:
        known = work.op[place] >= 0
        place, begins, finishes = place[known], begins[known], finishes[known]
    if not len(place):
        return ()
    starts, family, many = work.starts[place], work.family[place], len(work.families)
    key = work.phase[place] * many + family
    key = work.op[place] * (len(PHASES) * many) + key if by_op else key
    distinct, of = np.unique(key, return_inverse=True)
    long = _clipped_ns(starts, work.ends[place], step)
    began = work.first[place] & (starts >= step.start_ns) & (starts < step.end_ns)
    columns = (finishes - begins, long, began)
    sums = [np.bincount(of, weights=column, minlength=len(distinct)) for column in columns]
    found = []
    for number, code in enumerate(distinct.tolist()):
        rest, which = divmod(code, many)
        name, phase = divmod(rest, len(PHASES))
        if sums[1][number] > 0 or sums[2][number] > 0:
            found.append(
                FamilyTime(
                    family=work.families[which],
                    phase=PHASES[phase],
                    op=work.ops[name] if by_op else "",
                    seconds=float(sums[0][number]) * 1e-9,
                    busy_s=float(sums[1][number]) * 1e-9,
                    count=int(sums[2][number]),
                )
            )
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.family, one.phase, one.op)))


def _by_kind(
    sent: CommEvents, kept: ExclusiveSpans, step: TracedStep, work: Spans
) -> tuple[CollectiveTime, ...]:
    """Collectives by kind, with what of each is exposed, and the bandwidth that it reached."""
    place, begins, finishes = kept.cut(step.start_ns, step.end_ns)
    own, hidden = finishes - begins, overlap_ns(work, begins, finishes)
    starts, ends, sizes = sent.starts[place], sent.ends[place], sent.size_bytes[place]
    kinds, groups = sent.kind[place], sent.members[place]
    long = _clipped_ns(starts, ends, step)
    began = (starts >= step.start_ns) & (starts < step.end_ns)
    found = []
    for kind, name in enumerate(sent.kinds):
        for members in np.unique(groups[kinds == kind]).tolist():
            chosen = (kinds == kind) & (groups == members)
            if not ((long > 0) | began)[chosen].any():
                continue
            whole = chosen & began & (sizes >= 0)
            took = int((ends - starts)[whole].sum())
            moved = float(sizes[whole].sum()) if whole.any() else None
            rate = moved / (took * 1e-9) if moved is not None and took else None
            factor = bus_factor(name.partition(" (")[0], members) if members else None
            found.append(
                CollectiveTime(
                    collective=name,
                    members=members or None,
                    count=int(began[chosen].sum()),
                    seconds=int(own[chosen].sum()) * 1e-9,
                    exposed_s=int((own - hidden)[chosen].sum()) * 1e-9,
                    hidden_s=int(hidden[chosen].sum()) * 1e-9,
                    busy_s=int(long[chosen].sum()) * 1e-9,
                    size_bytes=moved,
                    algorithm_bytes_per_s=rate,
                    bus_bytes_per_s=None if rate is None or factor is None else rate * factor,
                )
            )
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.collective, one.members or 0)))
