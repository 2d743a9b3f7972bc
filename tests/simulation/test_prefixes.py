"""Common beginnings of prompts in a replica's cache: what is there of a prompt, what stays, what leaves."""

import pytest

from foretell.serving.requests.prefixes import Prefixes
from foretell.serving.requests.records import Requests

REQUESTS = Requests(
    isl=[100, 100, 30, 100, 50],
    osl=[1] * 5,
    concurrency=1,
    prefix=[7, 7, 7, -1, 8],
    prefix_tokens=[60, 80, 60, 60, 200],
)
"""Three that begin alike, one of its own, one whose prompt is nothing but a beginning."""


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    lengths = [Prefixes().length(i, REQUESTS) for i in range(5)]
    assert lengths == [60.0, 80.0, 29.0, 0.0, 49.0]
    plain = Requests(isl=[100], osl=[1], concurrency=1)
    assert Prefixes().length(0, plain) == 0.0


def test_as_much_is_there_as_both_have() -> None:
    """Of what is kept and what is asked for, the shorter."""
    kept = Prefixes()
    assert kept.use(0, REQUESTS) == 0.0
    kept.keep(0, REQUESTS)
    assert [kept.use(i, REQUESTS) for i in (1, 2, 3, 4)] == [60.0, 29.0, 0.0, 0.0]
    assert kept.known[7].users == 3
    assert [kept.leave(i) for i in (0, 1, 2, 3)] == [60.0, 60.0, 29.0, 0.0]
    assert kept.known[7].users == 0


def test_who_has_used_a_beginning_does_not_keep_it_again() -> None:
    kept = Prefixes()
    kept.keep(0, REQUESTS)
    kept.use(1, REQUESTS)
    kept.keep(1, REQUESTS)
    assert (kept.known[7].tokens, kept.known[7].users) == (60.0, 2)
    kept.keep(3, REQUESTS)
    assert set(kept.known) == {7}
    # Computed at the same time as the first: held by the request itself.
    kept.keep(2, REQUESTS)
    assert kept.known[7].users == 2
    assert kept.leave(2) == 0.0
    assert kept.known[7].users == 2


def test_only_what_nobody_uses_is_evicted_the_oldest_first() -> None:
    many = Requests(
        isl=[100] * 6, osl=[1] * 6, concurrency=1, prefix=[0, 1, 2, 3, 0, 4],
        prefix_tokens=[10, 20, 30, 40, 10, 50],
    )  # fmt: skip
    kept = Prefixes()
    for request in range(4):
        kept.keep(request, many)
    for request in (0, 1, 2):
        kept.leave(request)
    assert kept.use(4, many) == 10.0  # the oldest becomes the newest
    assert kept.leave(4) == 10.0
    assert kept.evict(0.0) == 0.0
    assert kept.evict(15.0) == 20.0
    assert not kept.has(1, many)
    assert kept.evict(1000.0) == pytest.approx(30.0 + 10.0)
    assert set(kept.known) == {3}  # still in use
