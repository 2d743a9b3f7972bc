"""What a task of a simulated step looks like from near: its layers or operations, one after the other.

A task's time is shared out in proportion to what its parts take alone; where it stopped for a collective
(knots), so do they.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from foretell.schedules.base import Task
from foretell.simulation.program import EXCHANGES, Pass
from foretell.simulation.programs import StepLayout
from foretell.simulation.rank import Knot
from foretell.workload.ops import Op

STREAMS = ("compute", "tp-comm", "cp-comm", "ep-comm", "pp-comm", "dp-comm", "copy", "host")
"""Threads of a rank; a thread's number is its place here."""
COMPUTE, TENSOR, CONTEXT, EXPERT, SENDS, DATA, COPY, HOST = range(8)
EXCHANGE_STREAMS = (TENSOR, CONTEXT, EXPERT)
"""Thread of each exchange, in the order of `Pass.exchange_s`."""
WORDS = {
    "F": "forward",
    "B": "backward to inputs",
    "W": "backward to weights",
    "D": "backward",
    "P": "forward beside backward",
}
"""What a task does."""


MORE = ("copies of weights", "sums of gradients, layers computed again")
"""What a forward and a backward pass have beyond their parts."""


TOUCH = 1e-12
"""Fractions of a task that are no further apart are the same."""


class Item(NamedTuple):
    """A share of a task."""

    stream: int
    """Its thread."""
    name: str
    """What it is."""
    seconds: float
    """What it takes alone."""
    family: str = ""
    """Its kernels, where it is one operation."""


class Leaves:
    """Shares of every task that there is, at one detail; each kind of task is taken apart once."""

    def __init__(self, laid: StepLayout, detail: str) -> None:
        """Operations and their seconds by part."""
        self.laid, self.detail = laid, detail
        self.names = laid.tables.parts.names
        self._known: dict[tuple[object, ...], tuple[Item, ...]] = {}

    def of(self, rank: int, task: Task) -> tuple[Item, ...]:
        """Shares of one task of a rank, in order."""
        key = task.does, task.chunk, task.other_chunk, rank
        found = self._known.get(key)
        if found is None:
            if task.does == "P":
                both = self._of("F", rank, task.chunk) + self._of("D", rank, task.other_chunk)
                found = tuple(both)
            else:
                found = tuple(self._of(task.does, rank, task.chunk))
            self._known[key] = found
        return found

    def _of(self, does: str, rank: int, number: int) -> list[Item]:
        """One pass over one chunk; what it has beyond its parts (sums of gradients and such) comes last."""
        chunk, known = self.laid.program.ranks[rank][number], {"F": "forward", "B": "input"}
        whole = getattr(chunk, known.get(does, "weight"))
        whole = chunk.input + chunk.weight if does == "D" else whole
        found = self._parts(does, self.laid.contents[rank][number])
        more_s = whole.alone_s - sum(item.seconds for item in found)
        if more_s > 1e-9 * whole.alone_s:
            found.append(Item(COMPUTE, MORE[does != "F"], more_s))
        return found

    def _parts(self, does: str, chunk: tuple[int, ...]) -> list[Item]:
        parts = chunk if does == "F" else chunk[::-1]
        passes = [self._pass(does, part) for part in parts]
        if not passes:
            return []
        if self.detail == "tasks":
            total = sum(passes[1:], passes[0])
            return _items(WORDS[does], total, [])
        found: list[Item] = []
        for i, (part, one) in enumerate(zip(parts, passes, strict=True)):
            ops = self._ops(does, part) if self.detail == "ops" else []
            found += _items(f"{self.names[part]} ({i + 1} of {len(parts)})", one, ops)
        return found

    def _pass(self, does: str, part: int) -> Pass:
        laid = self.laid
        if does == "F":
            return laid.forward[part]
        whole, products = laid.backward[part], laid.weight[part]
        if does == "W":
            return products
        if does == "D" or not laid.schedule.splits_backward:
            return whole
        return replace(whole, chip_s=whole.chip_s - products.chip_s)

    def _ops(self, does: str, part: int) -> list[tuple[Op, float]]:
        """Operations of a part in one pass, with their times on the slowest chip, in short bursts."""
        tables = self.laid.tables
        parts = tables.parts
        first = sum(len(ops) for ops in parts.ops[:part])
        many = sum(len(ops) for ops in parts.ops)
        ops = parts.ops[part]
        rows = np.arange(first, first + len(ops)) + (0 if does == "F" else many)
        times = parts.times
        paced = times.seconds[rows, 0] + (tables.pace - 1.0) * times.clocked_s[rows, 0]
        seconds = paced.tolist()
        pairs = [(op, s) for op, s in zip(ops, seconds, strict=True) if s > 0.0]
        return pairs if does == "F" else pairs[::-1]


def _items(name: str, one: Pass, ops: Sequence[tuple[Op, float]]) -> list[Item]:
    """A pass as kernels with its exchanges behind them, or operation by operation."""
    kernels_s = one.chip_s + one.wait_s + one.moved_s
    waits = [
        Item(stream, EXCHANGES[kind].replace("_", " "), one.exchange_s[kind])
        for kind, stream in enumerate(EXCHANGE_STREAMS)
        if one.exchange_s[kind] > 0.0
    ]
    total = sum(seconds for _, seconds in ops)
    if total <= 0.0:
        return [Item(COMPUTE, name, kernels_s), *waits]
    found = [Item(COMPUTE, op.name, kernels_s * seconds / total, op.family) for op, seconds in ops]
    families = [op.family for op, _ in ops]
    for wait in waits:
        found = _woven(found, families, wait)
    return found


def _woven(found: list[Item], families: Sequence[str], wait: Item) -> list[Item]:
    """Exchanges where they happen: around experts, before attention, behind the products of both halves."""
    own = [i for i, item in enumerate(found) if item.stream == COMPUTE]
    near = {
        EXPERT: [i for i, f in enumerate(families) if f == "grouped-gemm"],
        CONTEXT: [i for i, f in enumerate(families) if f in ("attention", "scan")],
        TENSOR: [i for i, f in enumerate(families) if f in ("gemm", "grouped-gemm")],
    }[wait.stream]
    if not near:
        return [*found, wait]
    ends = {near[0], near[-1]} if wait.stream == EXPERT else {near[len(near) // 2], near[-1]}
    if wait.stream == CONTEXT:
        ends = {near[0]}
    woven: list[Item] = []
    half = wait._replace(seconds=wait.seconds / len(ends))
    position = {place: number for number, place in enumerate(own)}
    for i, item in enumerate(found):
        woven.append(item)
        if position.get(i) in ends:
            woven.append(half)
    return woven


def place_items(
    items: Sequence[Item], start_s: float, end_s: float, knots: Sequence[Knot]
) -> list[tuple[Item, float, float]]:
    """Every item with its beginning and end; in several pieces where the task stopped inside it."""
    total = sum(item.seconds for item in items)
    if total <= 0.0:
        return []
    pieces = [*zip(knots[::2], knots[1::2], strict=True)] or [((0.0, start_s), (1.0, end_s))]
    found, done, at = [], 0.0, 0
    for item in items:
        begin, done = done, done + item.seconds
        low, high = begin / total, min(done / total, 1.0)
        while at < len(pieces) and pieces[at][1][0] <= low + TOUCH:
            at += 1
        for (a, when_a), (b, when_b) in pieces[at:]:
            if a >= high - TOUCH:
                break
            rate = (when_b - when_a) / (b - a)
            first, last = max(low, a) - a, min(high, b) - a
            found.append((item, when_a + first * rate, when_a + last * rate))
    return found
