"""Memory of one rank over a step: when each tensor is taken and when it is given back.

A forward pass takes, layer by layer, what the layer keeps; the head takes its scores after the last layer.
The backward pass gives the scores back first, then goes through the layers from the last to the first: each
takes what is computed again and a gradient, and gives these and what it kept back when it is done; where no
buffer holds the gradients of its weights, it takes those too, and they stay. A pass to
the inputs alone (B) leaves the weights' share of what was kept for the pass to the weights (W). In a pair (P)
both passes run over the same time. The layers of a task take equal parts of its time.

Once the pipeline is full a rank does over and over what it did a few tasks before, and holds what it held
then. So of a long step a few micro-batches are simulated: the time between their halves is left out, and the
second half comes later (`delay_half`, `fill_gap`).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from foretell.records import dataclass
from foretell.schedules.base import WEIGHT_SHARE, Pipe, Schedule, Task
from foretell.simulation.events import Timeline
from foretell.specs.arrays import Array, Index

SCORES, BACKWARD, GRADIENTS = "scores", "backward pass", "gradients"
"""Categories of the head's tensors, of what a layer takes in its backward pass, and of gradients that the
backward pass makes."""
GATHERED = "gathered weights"
"""Category of weights that an update gathers."""


class Tensor(NamedTuple):
    """What is taken and given back at once: a tensor that a layer keeps, or all of a category."""

    category: str
    """What it counts as over the step."""
    name: str = ""
    """What people call a kept tensor."""
    place: int = -1
    """Its place among those that its layer keeps; -1: it is no kept tensor."""

    @property
    def is_kept(self) -> bool:
        """Whether a layer keeps it from the forward to the backward pass."""
        return self.place >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTensors:
    """One layer's tensors of one micro-batch."""

    kept: Mapping[Tensor, float]
    """Tensor -> bytes kept from the forward to the backward pass."""
    passing_bytes: float
    """What its backward pass takes besides: computed again, and a gradient."""
    made_bytes: float = 0.0
    """Gradients of its weights, where the backward pass makes them; 0 where a buffer holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTensors:
    """What one rank holds."""

    always: Mapping[str, float]
    """Category -> bytes held all along."""
    chunks: tuple[tuple[LayerTensors, ...], ...]
    """Layers of each chunk in the order they run."""
    head_bytes: tuple[float, ...]
    """Bytes of the head's tensors of one micro-batch on each chunk; 0 where it does not be there."""
    made_bytes: tuple[float, float] = (0.0, 0.0)
    """Gradients of head and table that the backward pass makes first and last."""
    updated_bytes: float = 0.0
    """Weights that an update gathers, there until the next step's passes."""
    most_kept_bytes: float = float("inf")
    """Most that kept tensors take of the chip, where the others wait in the host's memory."""


class Change(NamedTuple):
    """A tensor that a task takes (more than 0 bytes) or gives back (less)."""

    part: float
    """Share of the task's time that has gone by."""
    tensor: Tensor
    """Which."""
    of: tuple[int, int, int]
    """Chunk, micro-batch and layer that it belongs to."""
    change_bytes: float
    """Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """All that a rank's tasks take and give back, in order; arrays are (changes,)."""

    at_s: Array
    """When."""
    turn: Index
    """Number of the task."""
    tensor: Index
    """Which of `tensors`."""
    change_bytes: Array
    """Bytes."""
    tensors: tuple[Tensor, ...]
    """What is taken; kept tensors of one name and category, in whatever layer, are one (at place 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """Bytes that one rank holds over a step, by category."""

    moments_s: Array
    """When something changes; (moments,)."""
    held_bytes: Mapping[str, Array]
    """Category -> bytes from each moment on; (moments,)."""

    @property
    def allocated_bytes(self) -> Array:
        """Sum of the categories; (moments,)."""
        return np.asarray(np.sum(list(self.held_bytes.values()), axis=0))

    @property
    def peak(self) -> tuple[float, float]:
        """The most, and when it is first reached."""
        total = self.allocated_bytes
        # A sum of many changes wanders by rounding: the first moment within a millionth of the most.
        first = int(np.argmax(total >= total.max() * (1.0 - 1e-6)))
        return float(total.max()), float(self.moments_s[first])

    def at(self, moment_s: float) -> dict[str, float]:
        """Bytes of each category at a moment."""
        index = max(int(np.searchsorted(self.moments_s, moment_s, side="right")) - 1, 0)
        return {name: float(values[index]) for name, values in self.held_bytes.items()}


def changes(step: Timeline, rank: int, tensors: RankTensors) -> Changes:
    """Every tensor that is taken or given back on a rank, in order."""
    kinds: dict[Tensor, int] = {}
    known: dict[Task, tuple[Array, Index, Array]] = {}
    parts = []
    for task in step.tasks[rank]:
        # Tasks of other micro-batches are alike.
        alike = task._replace(micro_batch=0, other_micro_batch=0)
        if alike not in known:
            found = task_changes(alike, tensors)
            numbers = [
                kinds.setdefault(c.tensor._replace(place=min(c.tensor.place, 0)), len(kinds))
                for c in found
            ]
            known[alike] = (
                np.array([change.part for change in found]),
                np.array(numbers, np.intp),
                np.array([change.change_bytes for change in found]),
            )
        parts.append(known[alike])
    starts, lengths = step.start_s[rank], step.end_s[rank] - step.start_s[rank]
    turn = np.repeat(np.arange(len(parts)), [len(part) for part, _, _ in parts])
    part, tensor, change_bytes = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Changes(
        at_s=starts[turn] + part * lengths[turn],
        turn=turn,
        tensor=tensor,
        change_bytes=change_bytes,
        tensors=tuple(kinds),
    )


def task_changes(task: Task, tensors: RankTensors) -> list[Change]:
    """What one task takes and gives back, in order."""
    both = [*_forward(task, tensors)] if task.does in "FP" else []
    if task.does != "F":
        both += _backward(task, tensors)
    return sorted(both, key=lambda change: change.part) if task.does == "P" else both


def _forward(task: Task, tensors: RankTensors) -> Iterator[Change]:
    layers, head = tensors.chunks[task.chunk], tensors.head_bytes[task.chunk]
    units = max(len(layers) + (head > 0.0), 1)
    for i, layer in enumerate(layers):
        of = (task.chunk, task.micro_batch, i)
        for tensor, size in layer.kept.items():
            yield Change(i / units, tensor, of, size)
    if head:
        of = (task.chunk, task.micro_batch, len(layers))
        yield Change(len(layers) / units, Tensor(SCORES), of, head)


def _backward(task: Task, tensors: RankTensors) -> Iterator[Change]:
    chunk, many = (task.chunk, task.micro_batch)
    if task.does == "P":
        chunk, many = task.other_chunk, task.other_micro_batch
    layers, head = tensors.chunks[chunk], tensors.head_bytes[chunk]
    units = max(len(layers) + (head > 0.0), 1)
    share = {"B": 1.0 - WEIGHT_SHARE, "W": WEIGHT_SHARE}.get(task.does, 1.0)
    done = 0
    if head:
        done += 1
        if task.does != "W":
            yield Change(done / units, Tensor(SCORES), (chunk, many, len(layers)), -head)
            if tensors.made_bytes[0]:
                of = (chunk, many, len(layers))
                yield Change(done / units, Tensor(GRADIENTS), of, tensors.made_bytes[0])
    for i in reversed(range(len(layers))):
        of, passing = (chunk, many, i), layers[i].passing_bytes
        if task.does != "W" and passing:
            yield Change(done / units, Tensor(BACKWARD), of, passing)
        if layers[i].made_bytes:
            yield Change(done / units, Tensor(GRADIENTS), of, layers[i].made_bytes)
        done += 1
        if task.does != "W" and passing:
            yield Change(done / units, Tensor(BACKWARD), of, -passing)
        for tensor, size in layers[i].kept.items():
            yield Change(done / units, tensor, of, -share * size)
    if tensors.made_bytes[1] and chunk == 0:
        yield Change(1.0, Tensor(GRADIENTS), (chunk, many, -1), tensors.made_bytes[1])


def with_update(found: Changes, tensors: RankTensors, start_s: float, end_s: float) -> Changes:
    """Changes with the update's: what it gathers, and gradients that it gives back."""
    numbers = dict(zip(found.tensors, range(len(found.tensors)), strict=True))
    made = found.change_bytes[found.tensor == numbers.get(Tensor(GRADIENTS), -1)].sum()
    gathered, last = tensors.updated_bytes, (int(found.turn[-1]) if len(found.turn) else 0) + 1
    more = [(start_s, last, GATHERED, gathered), (end_s, last + 1, GATHERED, -gathered)]
    more.append((end_s, last + 1, GRADIENTS, -float(made)))
    kept = [one for one in more if one[3] != 0.0]
    for _, _, category, _ in kept:
        numbers.setdefault(Tensor(category), len(numbers))
    return Changes(
        at_s=np.append(found.at_s, [one[0] for one in kept]),
        turn=np.append(found.turn, np.array([one[1] for one in kept], np.intp)),
        tensor=np.append(
            found.tensor, np.array([numbers[Tensor(one[2])] for one in kept], np.intp)
        ),
        change_bytes=np.append(found.change_bytes, [one[3] for one in kept]),
        tensors=tuple(numbers),
    )


def memory_line(found: Changes, tensors: RankTensors, end_s: float) -> MemoryLine:
    """Bytes by category over the step.

    Changes of one task at one moment count together, gifts before takings, so that a layer's end and the
    next one's beginning do not overlap; what one task leaves is there when the next begins.
    """
    kept_as = dict.fromkeys(
        tensor.category for chunk in tensors.chunks for layer in chunk for tensor in layer.kept
    )
    names = list(dict.fromkeys([*tensors.always, *kept_as, BACKWARD, SCORES, GRADIENTS, GATHERED]))
    row = {name: i for i, name in enumerate(names)}
    # Parts of a task's time may end a rounding beyond the task.
    moments = np.maximum.accumulate(np.concatenate([[0.0], found.at_s, [end_s]]))
    table = np.zeros((len(names), len(moments)))
    for name, size in tensors.always.items():
        table[row[name], 0] += size
    category = np.array([row[tensor.category] for tensor in found.tensors], np.intp)
    table[category[found.tensor], np.arange(1, len(moments) - 1)] = found.change_bytes
    turns = np.concatenate([[-1], found.turn, [len(found.turn) + 1]])
    last = np.append((np.diff(moments) > 0.0) | (np.diff(turns) > 0), True)
    held = np.cumsum(table, axis=1)[:, last]
    kept_rows = [row[name] for name in kept_as]
    kept = held[kept_rows].sum(axis=0)
    fits = np.minimum(1.0, tensors.most_kept_bytes / np.maximum(kept, 1e-9))
    held[kept_rows] *= fits
    return MemoryLine(
        moments_s=moments[last],
        held_bytes={name: np.maximum(held[i], 0.0) for name, i in row.items() if held[i].any()},
    )


FILLS = 4
"""Times the pipeline's depth that are simulated: two to fill it, as zero-bubble and DualPipe do, and
as many to empty it."""
SHOWN = 200
"""Moments that stand for what is not simulated."""


def few_micro_batches(schedule: Schedule, pp: int, vpp: int, many: int) -> int:
    """How many of a step's micro-batches are simulated: all, where more of them are more in flight."""
    period = 2 * pp
    few = many - max(many - FILLS * pp - period, 0) // period * period
    ranks = np.arange(pp, dtype=float)[None, :]
    short, whole = (schedule.in_flight(_pipe(pp, vpp, count), ranks) for count in (few, many))
    return few if np.array_equal(short, whole) else many


def _pipe(pp: int, vpp: int, many: int) -> Pipe:
    sizes = (np.array([float(x)]) for x in (many, pp, vpp))
    return Pipe(**dict(zip(("micro_batches", "pp", "vpp"), sizes, strict=True)))


def delay_half(found: Changes, gap_s: float) -> Changes:
    """The changes with those of the second half of the tasks later by the time of what is not simulated."""
    late = found.turn >= middle(found)
    return Changes(
        at_s=found.at_s + gap_s * late,
        turn=found.turn,
        tensor=found.tensor,
        change_bytes=found.change_bytes,
        tensors=found.tensors,
    )


def middle(found: Changes) -> int:
    """The task before which the second half begins."""
    return (int(found.turn[-1]) + 1) // 2


def fill_gap(line: MemoryLine, found: Changes) -> MemoryLine:
    """The line of delayed changes with what is not simulated: all along, the most that earlier tasks held."""
    cut, begun = middle(found), 3 * middle(found) // 4
    start_s, end_s = (float(found.at_s[np.searchsorted(found.turn, turn)]) for turn in (begun, cut))
    first = int(np.searchsorted(line.moments_s, start_s))
    last = int(np.searchsorted(line.moments_s, end_s))
    fullest = first + int(np.argmax(line.allocated_bytes[first:last]))
    moments = np.linspace(line.moments_s[last - 1], end_s, SHOWN, endpoint=False)
    again = np.append(np.full(SHOWN - 1, fullest), last - 1)
    order = np.concatenate([np.arange(last), again, np.arange(last, len(line.moments_s))])
    return MemoryLine(
        moments_s=np.concatenate([line.moments_s[:last], moments, line.moments_s[last:]]),
        held_bytes={name: values[order] for name, values in line.held_bytes.items()},
    )
