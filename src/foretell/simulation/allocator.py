"""A caching allocator, simulated: what it reserves of the device for the tensors that come and go.

As PyTorch's CUDA allocator does by default (c10/cuda/CUDACachingAllocator.cpp):

    sizes       are rounded up to 512 bytes
    pools       up to 1 MiB a tensor comes from a pool of 2 MiB segments, else from the other pool
    segments    20 MiB for tensors below 10 MiB, else the size rounded up to 2 MiB
    fit         the smallest free block that is large enough, of equals the first in memory, split where what
                is left is worth it: 512 bytes of a small block, more than 1 MiB of a large one
    free        a block joins its free neighbours in the segment; segments stay reserved

Only when the device has no more is what lies free given back: a run that nears the limit fragments less than
this says, and slows down.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

ROUND, SMALL = 512, 2**20
"""Sizes are multiples of this; tensors up to SMALL have a pool of their own."""
SMALL_SEGMENT, LARGE_SEGMENT, LARGE, ROUND_LARGE = 2 * 2**20, 20 * 2**20, 10 * 2**20, 2 * 2**20
"""Segments of the small pool; of tensors below LARGE; what others are rounded up to."""


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """A piece of a segment."""

    size: int
    """Bytes."""
    place: int
    """Where it begins, segments counted one after the other."""
    small: bool
    """Whether it is of the small pool."""
    taken: bool = True
    """Whether a tensor has it."""
    before: "MemoryBlock | None" = None
    """The piece before it in the segment."""
    behind: "MemoryBlock | None" = None
    """The piece behind it."""

    @property
    def key(self) -> tuple[int, int]:
        """Order of free blocks: smallest first."""
        return self.size, self.place


@dataclass(slots=True)
class Allocator:
    """The state of one device's allocator."""

    allocated_bytes: int = 0
    """What tensors take, rounded."""
    reserved_bytes: int = 0
    """What segments take."""
    _free: dict[bool, list[tuple[int, int]]] = field(default_factory=lambda: {True: [], False: []})
    _blocks: dict[int, MemoryBlock] = field(default_factory=dict)

    def take(self, size: float) -> MemoryBlock:
        """Memory for a tensor."""
        wanted = max(-(-int(size) // ROUND) * ROUND, ROUND)
        small = wanted <= SMALL
        free = self._free[small]
        at = bisect_left(free, (wanted, -1))
        if at < len(free):
            block = self._blocks[free.pop(at)[1]]
        else:
            block = self._new(_segment(wanted), self.reserved_bytes, small)
            self.reserved_bytes += block.size
        block.taken = True
        rest = block.size - wanted
        if rest >= ROUND if small else rest > SMALL:
            self._split(block, wanted)
        self.allocated_bytes += block.size
        return block

    def give(self, block: MemoryBlock) -> None:
        """A tensor's memory back; free neighbours become one block."""
        self.allocated_bytes -= block.size
        block.taken = False
        for near in (block.before, block.behind):
            if near is not None and not near.taken:
                free = self._free[near.small]
                free.pop(bisect_left(free, near.key))
                self._join(block, near)
        insort(self._free[block.small], block.key)

    def layout(self) -> tuple[tuple[int, int, bool, bool], ...]:
        """Every block by its place: its size, whether it is taken, and whether a segment begins with it.

        What later tensors are given depends on this alone.
        """
        blocks = sorted(self._blocks.items())
        return tuple((at, b.size, b.taken, b.before is None) for at, b in blocks)

    def _new(self, size: int, place: int, small: bool) -> MemoryBlock:
        block = MemoryBlock(size=size, place=place, small=small)
        self._blocks[place] = block
        return block

    def _split(self, block: MemoryBlock, wanted: int) -> None:
        rest = self._new(block.size - wanted, block.place + wanted, block.small)
        rest.taken, rest.before, rest.behind = False, block, block.behind
        if rest.behind is not None:
            rest.behind.before = rest
        block.size, block.behind = wanted, rest
        insort(self._free[rest.small], rest.key)

    def _join(self, block: MemoryBlock, near: MemoryBlock) -> None:
        block.size += near.size
        if near is block.before:
            self._blocks[near.place] = self._blocks.pop(block.place)
            block.place = near.place
            block.before = near.before
            if near.before is not None:
                near.before.behind = block
        else:
            del self._blocks[near.place]
            block.behind = near.behind
            if near.behind is not None:
                near.behind.before = block


def _segment(wanted: int) -> int:
    """Size of a new segment for a tensor."""
    if wanted <= SMALL:
        return SMALL_SEGMENT
    if wanted < LARGE:
        return LARGE_SEGMENT
    return -(-wanted // ROUND_LARGE) * ROUND_LARGE
