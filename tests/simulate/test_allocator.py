"""The caching allocator: what it may never do, and the sizes that it is known by."""

from hypothesis import given
from hypothesis import strategies as st

from foretell.simulation.allocator import LARGE_SEGMENT, ROUND, SMALL_SEGMENT, Allocator

MIB = 2**20
SIZES = st.one_of(st.integers(1, 4 * MIB), st.integers(1, 200 * MIB))


@given(st.lists(st.tuples(SIZES, st.integers(0, 5)), max_size=60))
def test_reserved_holds_what_is_allocated(steps: list[tuple[int, int]]) -> None:
    """Tensors that are taken and given back in any order."""
    allocator, held, reserved = Allocator(), [], 0
    wanted: dict[int, int] = {}
    for size, gives in steps:
        block = allocator.take(size)
        held.append(block)
        wanted[block.place] = size
        assert allocator.allocated_bytes >= sum(wanted.values())
        for _ in range(min(gives, len(held))):
            back = held.pop(gives * 7 % len(held))
            del wanted[back.place]
            allocator.give(back)
        assert allocator.allocated_bytes <= allocator.reserved_bytes
        assert allocator.reserved_bytes >= reserved
        reserved = allocator.reserved_bytes
    for block in held:
        allocator.give(block)
    assert allocator.allocated_bytes == 0


@given(st.lists(SIZES, min_size=1, max_size=30))
def test_what_was_given_back_is_used_again(sizes: list[int]) -> None:
    """The same tensors in the same order need nothing more."""
    allocator = Allocator()
    for block in [allocator.take(size) for size in sizes]:
        allocator.give(block)
    once = allocator.reserved_bytes
    for _ in sizes:
        allocator.give(allocator.take(max(sizes)))
    assert allocator.reserved_bytes == once


def test_segments() -> None:
    assert _reserved(1) == SMALL_SEGMENT
    assert _reserved(MIB) == SMALL_SEGMENT
    assert _reserved(MIB + 1) == LARGE_SEGMENT
    assert _reserved(10 * MIB) == 10 * MIB
    assert _reserved(11 * MIB - 5) == 12 * MIB
    # A second tensor fits in what the first segment has left.
    assert _reserved(MIB // 2, MIB // 2, MIB) == SMALL_SEGMENT
    assert _reserved(9 * MIB, 9 * MIB) == LARGE_SEGMENT
    assert _reserved(9 * MIB, 12 * MIB) == LARGE_SEGMENT + 12 * MIB


def test_sizes_are_rounded() -> None:
    allocator = Allocator()
    allocator.take(1)
    allocator.take(ROUND + 1)
    assert allocator.allocated_bytes == 3 * ROUND


def test_neighbours_join() -> None:
    """Two halves given back make room for the whole; with one still taken they do not."""
    for keeps, more in ((False, 0), (True, 40 * MIB)):
        allocator = Allocator()
        whole = allocator.take(40 * MIB)
        allocator.give(whole)
        halves = [allocator.take(20 * MIB), allocator.take(20 * MIB)]
        for half in halves[keeps:]:
            allocator.give(half)
        allocator.take(40 * MIB)
        assert allocator.reserved_bytes == 40 * MIB + more


def _reserved(*sizes: int) -> int:
    allocator = Allocator()
    for size in sizes:
        allocator.take(size)
    return allocator.reserved_bytes
