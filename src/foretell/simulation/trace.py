"""A simulated step as a Chrome trace that ui.perfetto.dev opens.

pid is a rank (one of each pipeline stage: the others of its stage do the same at the same time), tid a stream
of it. `X` events are what ran, in microseconds; `C` counters are the memory that the rank holds and the watts
that it draws; `s` and `f` are the two ends of a send between stages; `M` names ranks and streams.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import bad_input
from foretell.interop.user_files import whole_file
from foretell.schedules.base import Task
from foretell.simulation.programs import StepLayout
from foretell.simulation.rank import Slice
from foretell.simulation.streams import PlayedStep, held_bytes, rank_stride
from foretell.simulation.trace_leaves import (
    COMPUTE,
    COPY,
    DATA,
    HOST,
    SENDS,
    STREAMS,
    WORDS,
    Leaves,
    place_items,
)

Event = dict[str, Any]

DETAILS = ("tasks", "layers", "ops", "auto")
"""What a trace shows, the farthest first; auto: the nearest of a fair size."""
LINES = 4096
"""Events that are written at once."""
EVENTS = 60_000
"""Slices above which `auto` looks from farther away."""
MOST_TASKS = 500_000
"""Passes that a trace may have."""
COUNTS = 4_000
"""Values of a counter that are kept for each rank."""


def write_trace(
    laid: StepLayout, played: PlayedStep, path: str | Path, detail: str = "auto"
) -> Path:
    """Write a simulated step; gzipped where the name ends in .gz."""
    path = Path(path)
    events = trace_events(laid, played, detail)
    try:
        with whole_file(path) as beside, beside.open("wb") as raw:
            # Equal steps make equal files: neither name nor time goes into the header.
            packed = gzip.GzipFile("", "wb", 5, raw, mtime=0) if path.suffix == ".gz" else raw
            with packed as file:
                for text in _texts(laid, events, played.step_s):
                    file.write(text.encode())
    except OSError as error:
        raise bad_input("trace", str(path), error.strerror or str(error)) from error
    return path


def _texts(laid: StepLayout, events: Iterator[Event], step_s: float) -> Iterator[str]:
    """The file in pieces: one event a line."""
    scenario, job = laid.scenario, laid.scenario.job
    about = {
        "model": scenario.model.id,
        "system": scenario.system.id,
        "gpus": job.gpus,
        "global_batch": job.global_batch,
        "seq_len": job.seq_len,
        "target_len": job.target_len,
        "plan": str(laid.plan),
        "step_s": step_s,
    }
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n'
    encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
    first = True
    while lines := [encode(event) for event in islice(events, LINES)]:
        yield ("" if first else ",\n") + ",\n".join(lines)
        first = False
    yield "\n]}\n"


def trace_events(laid: StepLayout, played: PlayedStep, detail: str = "auto") -> Iterator[Event]:
    """Every event of the trace."""
    if detail not in DETAILS:
        raise bad_input("detail", detail, "not a choice", ", ".join(DETAILS))
    tasks = sum(map(len, played.timeline.tasks))
    if tasks > MOST_TASKS:
        allowed = (
            f"at most {MOST_TASKS:,} passes: fewer micro-batches (--global-batch, a larger mbs)"
        )
        raise bad_input("trace", f"{tasks:,} passes", "is more than a viewer opens", allowed)
    leaves = Leaves(laid, _fair(laid, played) if detail == "auto" else detail)
    picture = _Picture(laid=laid, played=played, leaves=leaves)
    for rank in range(len(played.spent)):
        yield from picture.names(rank)
    for rank in range(len(played.spent)):
        yield from picture.slices(rank)
        yield from picture.counters(rank)
    yield from picture.flows()


def _fair(laid: StepLayout, played: PlayedStep) -> str:
    """The nearest detail that has no more than a fair number of slices."""
    for detail in ("ops", "layers"):
        leaves = Leaves(laid, detail)
        many = 0
        for rank, tasks in enumerate(played.timeline.tasks):
            of = {(t.does, t.chunk, t.other_chunk): t for t in tasks}
            sizes = {key: len(leaves.of(rank, task)) for key, task in of.items()}
            many += sum(sizes[t.does, t.chunk, t.other_chunk] for t in tasks)
        if many <= EVENTS:
            return detail
    return "tasks"


def _us(seconds: float) -> float:
    """Microseconds, to the nanosecond."""
    return round(seconds * 1e6, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    """What the events are made from."""

    laid: StepLayout
    played: PlayedStep
    leaves: Leaves

    def pid(self, rank: int) -> int:
        """The number of the rank that stands for a stage."""
        return rank * rank_stride(self.laid.plan)

    def names(self, rank: int) -> Iterator[Event]:
        """What the rank and its streams are called."""
        plan, pid = self.laid.plan, self.pid(rank)
        alike = plan.tp * plan.cp * plan.dp
        name = f"rank {pid}: stage {rank} of {plan.pp}, one of {alike} alike"
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": rank}}
        for tid, stream in enumerate(STREAMS):
            told = {"ph": "M", "pid": pid, "tid": tid}
            yield {**told, "name": "thread_name", "args": {"name": stream}}
            yield {**told, "name": "thread_sort_index", "args": {"sort_index": tid}}

    def slices(self, rank: int) -> Iterator[Event]:
        """Everything that ran on the rank's streams."""
        played, pid = self.played, self.pid(rank)
        line = played.timeline
        for at, task in enumerate(line.tasks[rank]):
            args = _args(task)
            knots = played.knots[rank].get(at, [])
            start_s, end_s = float(line.start_s[rank][at]), float(line.end_s[rank][at])
            for item, begin, end in place_items(self.leaves.of(rank, task), start_s, end_s, knots):
                more = {**args, "family": item.family} if item.family else args
                yield from _slice(pid, item.stream, Slice(item.name, begin, end), more)
        yield from _slice(pid, COMPUTE, played.updates[rank], {})
        for sent in played.sends[rank]:
            what = "gradient" if sent.backward else "activation"
            name = f"send {what} {sent.micro_batch} to rank {self.pid(sent.to_rank)}"
            yield from _slice(pid, SENDS, Slice(name, sent.start_s, sent.end_s), {})
        for tid, made in ((DATA, played.messages), (COPY, played.copies), (HOST, played.launches)):
            for one in made[rank]:
                yield from _slice(pid, tid, one, {})
        fixed_s = self.laid.program.fixed_s
        if fixed_s > 0.0:
            last = Slice("data loading, logging, norm", played.step_s - fixed_s, played.step_s)
            yield from _slice(pid, HOST, last, {})

    def flows(self) -> Iterator[Event]:
        """Arrows from each send to the pass that it lets begin."""
        begins = [self._begins(rank) for rank in range(len(self.played.spent))]
        number = 0
        for rank, sends in enumerate(self.played.sends):
            for sent in sends:
                to = begins[sent.to_rank].get((sent.backward, sent.chunk, sent.micro_batch))
                if to is None:
                    continue
                number += 1
                name = "gradient" if sent.backward else "activation"
                both = {"cat": "send", "name": name, "id": number}
                yield {
                    "ph": "s",
                    **both,
                    "pid": self.pid(rank),
                    "tid": SENDS,
                    "ts": _us(sent.start_s),
                }
                yield {
                    "ph": "f",
                    "bp": "e",
                    **both,
                    "pid": self.pid(sent.to_rank),
                    "tid": COMPUTE,
                    "ts": _us(to),
                }

    def _begins(self, rank: int) -> dict[tuple[bool, int, int], float]:
        """When the pass that needs a result began to run: backward, chunk, micro-batch -> seconds."""
        line, found = self.played.timeline, {}
        for at, task in enumerate(line.tasks[rank]):
            if task.does == "W":
                continue
            knots = self.played.knots[rank].get(at)
            when = knots[0][1] if knots else float(line.start_s[rank][at])
            found[task.does in "BD", task.chunk, task.micro_batch] = when
            if task.does == "P":
                found[True, task.other_chunk, task.other_micro_batch] = when
        return found

    def counters(self, rank: int) -> Iterator[Event]:
        """Memory and watts over the step."""
        pid = self.pid(rank)
        when, held = held_bytes(self.laid, self.played, rank)
        for i in _thinned(len(when)):
            args = {"GiB": round(float(held[i]) / 2**30, 4)}
            yield {"ph": "C", "name": "memory", "pid": pid, "ts": _us(float(when[i])), "args": args}
        for moment, watts in self._watts(rank):
            args = {"W": round(watts, 1)}
            yield {"ph": "C", "name": "power", "pid": pid, "ts": _us(moment), "args": args}

    def _watts(self, rank: int) -> Iterator[tuple[float, float]]:
        """Watts of the rank from each moment on: base, and what its passes spend while they run."""
        base = float(self.laid.tables.power.base_watts)
        line, joules = self.played.timeline, {}
        tasks = line.tasks[rank]
        found: list[tuple[float, float]] = [(0.0, base)]
        for at, task in enumerate(tasks):
            start_s, end_s = float(line.start_s[rank][at]), float(line.end_s[rank][at])
            if end_s <= start_s:
                continue
            key = task.does, task.chunk, task.other_chunk
            if key not in joules:
                joules[key] = self._joules(rank, task)
            if found[-1][0] < start_s - 1e-9 and found[-1][1] != base:
                found.append((start_s, base))
            if found[-1][0] == start_s:
                found.pop()
            found.append((start_s, base + joules[key] / (end_s - start_s)))
            found.append((end_s, base))
        for i in _thinned(len(found)):
            yield found[i]

    def _joules(self, rank: int, task: Task) -> float:
        """What the passes of a task spend beside the base watts."""
        parts, laid = self.laid.tables.parts, self.laid
        fall, here = float(laid.rows.core_fall[0]), laid.contents[rank]
        ahead = parts.forward.core_joules[0] * fall + parts.forward.memory_joules[0]
        back = parts.backward.core_joules[0] * fall + parts.backward.memory_joules[0]
        total = 0.0
        if task.does in "FP":
            total += float(sum(ahead[p] for p in here[task.chunk]))
        if task.does != "F":
            chunk = here[task.other_chunk if task.does == "P" else task.chunk]
            whole_s = sum(laid.backward[p].chip_s for p in chunk)
            split_s = {"W": sum(laid.weight[p].chip_s for p in chunk)}.get(task.does, whole_s)
            if task.does == "B":
                split_s = whole_s - sum(laid.weight[p].chip_s for p in chunk)
            again = laid.plan.recompute == "full"
            spent = sum(back[p] + (ahead[p] if again and p < parts.kinds else 0.0) for p in chunk)
            total += float(spent) * split_s / max(whole_s, 1e-30)
        return total


def _thinned(many: int) -> list[int]:
    """At most COUNTS of so many places, the first and the last among them."""
    places = np.unique(np.linspace(0, many - 1, min(many, COUNTS)).astype(int))
    return [int(place) for place in places]


def _args(task: Task) -> Event:
    args: Event = {
        "pass": WORDS[task.does],
        "micro-batch": task.micro_batch,
        "chunk": task.chunk,
    }
    if task.does == "P":
        args |= {
            "backward micro-batch": task.other_micro_batch,
            "backward chunk": task.other_chunk,
        }
    return args


def _slice(pid: int, tid: int, one: Slice, args: Event) -> Iterator[Event]:
    """A complete event; what is shorter than a nanosecond is left out."""
    start = _us(one.start_s)
    duration = round(_us(one.end_s) - start, 3)
    if duration > 0.0:
        event: Event = {"ph": "X", "name": one.name, "pid": pid, "tid": tid, "ts": start}
        event |= {"dur": duration, "cat": STREAMS[tid]}
        yield {**event, "args": args} if args else event
