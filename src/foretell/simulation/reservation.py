"""What a caching allocator has reserved when a step is done: every task's tensors, taken and given back.

A rank that ends one micro-batch before it begins the next (a single stage, the last one of 1F1B) finds the
allocator as the micro-batch before left it. Once that is as it was a number of tasks ago, tasks that come
again leave it so again: they are passed over, so that a step of a thousand micro-batches takes no longer than
one of a few.
"""

from collections.abc import Hashable, Sequence

from foretell.schedules.base import Task
from foretell.simulation.allocator import Allocator, MemoryBlock
from foretell.simulation.memory import RankTensors, Tensor, task_changes


def reserved_bytes(tasks: Sequence[Task], tensors: RankTensors) -> float:
    """What the allocator ends with: long-lived tensors first, then the step's, tensor by tensor.

    A layer's forward pass has a temporary tensor of the size of each that it keeps, given back when the next
    one is there. A step leaves the allocator as the next one finds it, so one is enough. Of tensors that a
    pass to the inputs frees in part, the whole goes with the pass to the weights.
    """
    device = _Device(tensors)
    seen: dict[Hashable, int] = {}
    turn = 0
    while turn < len(tasks):
        device.run(tasks[turn])
        if not device.held:
            before = seen.setdefault(device.allocator.layout(), turn)
            turn += _again(tasks, before, turn) if before < turn else 0
        turn += 1
    return float(device.allocator.reserved_bytes)


def _again(tasks: Sequence[Task], before: int, now: int) -> int:
    """How many tasks follow that do over and over what those after `before`, up to `now`, did."""
    period, turn = now - before, now + 1
    while turn < len(tasks) and _alike(tasks[turn]) == _alike(tasks[turn - period]):
        turn += 1
    return (turn - now - 1) // period * period


def _alike(task: Task) -> Task:
    """The same for all micro-batches."""
    return task._replace(micro_batch=0, other_micro_batch=0)


class _Device:
    """One rank's allocator, and which tensor has which block."""

    def __init__(self, tensors: RankTensors) -> None:
        self.allocator = Allocator()
        self.held: dict[tuple[Tensor, tuple[int, int, int]], tuple[MemoryBlock, float]] = {}
        """A tensor with its chunk, micro-batch and layer -> its block, and what of it is left."""
        self._tensors = tensors
        self._passing: MemoryBlock | None = None
        for size in tensors.always.values():
            self.allocator.take(size)

    def run(self, task: Task) -> None:
        """Take and give back what a task does."""
        for change in task_changes(task, self._tensors):
            if self._passing is not None:
                self.allocator.give(self._passing)
                self._passing = None
            key = (change.tensor, change.of)
            if change.change_bytes > 0.0:
                if change.tensor.is_kept:
                    self._passing = self.allocator.take(change.change_bytes)
                block = self.allocator.take(change.change_bytes)
                self.held[key] = (block, change.change_bytes)
                continue
            block, left = self.held.pop(key)
            left += change.change_bytes
            if left > 1.0:
                self.held[key] = (block, left)
            else:
                self.allocator.give(block)
