"""All replicas on arrays: the loop of `run`, with a tree of the moments when their events end."""

from typing import Any

import numpy as np

from foretell.serving.requests.compiled.engine import (
    admit,
    arrive,
    decode,
    decode_steps,
    prefill,
)
from foretell.serving.requests.compiled.heaps import pop, push, tree_set
from foretell.serving.requests.compiled.jit import jit

SAMPLE = 16
"""As `replica.SAMPLE`."""


@jit
def send(q: Any, h: Any, rules: Any, request: int, at: float, size: int) -> None:
    """A user sends a request; it reaches the engine a little later."""
    q[request].arrival = at
    reaches = at + rules.latency_s + rules.latency_s_per_token * q[request].isl
    push(h.coming_s, h.coming, size, reaches, request)


@jit
def begin(q: Any, e: Any, ends: Any, ids: Any, rules: Any, t: Any) -> float:
    """A step with prompts, or the plan of decode steps; when it ends."""
    e.decodes = 0
    if e.prompts > 0:
        prefill(q, e, ends, ids, rules, t)
    elif e.n > 0:
        e.decodes = 1
        _, seconds = decode_steps(e, ends, rules, t, np.inf)
        return float(e.now + seconds)
    return float(e.now)


@jit
def note(e: Any, notes: Any, count: int, r: int) -> Any:
    """A sample of a replica; the array of samples, twice as long where it was full."""
    if count == len(notes):
        longer = np.zeros((2 * count, 5))
        longer[:count] = notes
        notes = longer
    notes[count, 0], notes[count, 1], notes[count, 2] = e.now, r, e.n
    notes[count, 3], notes[count, 4] = e.waiting, e.held
    return notes


@jit
def take(q: Any, e: Any, h: Any, rules: Any, flow: tuple[int, int, bool]) -> tuple[int, int]:
    """Whole answers reach their users; in a closed loop each brings the next request."""
    size, following, closed = flow
    request = e.whole
    while request >= 0:
        q[request].done = max(q[request].done, q[request].first)
        if closed and following < len(q):
            send(q, h, rules, following, q[request].done, size)
            size += 1
            following += 1
        request = q[request].link
    e.whole = -1
    return size, following


@jit
def loop(
    q: Any, engines: Any, all_ends: Any, all_ids: Any, h: Any, rules: Any, t: Any, size: int,
    how: tuple[bool, bool],
) -> tuple[Any, int]:  # fmt: skip
    """Every request from its arrival to its last token; samples, and how many."""
    closed, by_load = how
    replicas, following, turn = len(engines), size, 0
    notes, count = np.zeros((1024, 5)), 0
    first, waiting, now = 0, 0, 0.0  # the ring of replicas whose event begins now
    while True:
        comes = h.coming_s[0] if size > 0 else np.inf
        r = h.end_tree[1]
        ends_s, begins = h.end_s[r], False
        if waiting > 0 and comes > now and ends_s > now:
            r = h.starts[first]
            first, waiting = (first + 1) % replicas, waiting - 1
            e, ends, ids = engines[r], all_ends[r], all_ids[r]
            if e.waiting > 0:
                admit(q, e, ends, ids, rules)
            e.events += 1
            if e.events % SAMPLE == 0:
                notes = note(e, notes, count, r)
                count += 1
            tree_set(h.end_tree, h.end_s, r, begin(q, e, ends, ids, rules, t))
        elif ends_s <= comes:
            now = ends_s
            if now == np.inf:
                return notes, count
            e = engines[r]
            if e.decodes:
                decode(q, e, all_ends[r], all_ids[r], rules, t, np.inf)
                e.decodes = 0
            tree_set(h.end_tree, h.end_s, r, np.inf)
            size, following = take(q, e, h, rules, (size, following, closed))
            begins = e.n + e.prompts + e.waiting > 0
            e.works = 1 if begins else 0
        else:
            now, request = comes, h.coming[0]
            pop(h.coming_s, h.coming, size)
            size -= 1
            if q[request].isl + rules.slack + q[request].osl > rules.kv_tokens:
                q[request].refused = 1
                if closed and following < len(q):
                    send(q, h, rules, following, now, size)
                    size, following = size + 1, following + 1
                continue
            r = h.load_tree[1] if by_load else turn % replicas
            turn += 1
            e = engines[r]
            if e.decodes:
                decode(q, e, all_ends[r], all_ids[r], rules, t, now)
                e.decodes = 0
                tree_set(h.end_tree, h.end_s, r, e.now)
            elif not e.works:
                e.now = max(e.now, now)
                e.works, begins = 1, True
            q[request].where = r
            arrive(q, e, rules, request)
        if by_load:
            e = engines[r]
            tree_set(h.load_tree, h.load, r, float(e.waiting + e.prompts + e.n))
        if begins:
            h.starts[(first + waiting) % replicas] = r
            waiting += 1
