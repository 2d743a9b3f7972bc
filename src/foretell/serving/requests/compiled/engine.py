"""One replica on arrays: the events of `replica.Replica`, in the same order of operations.

`q` is the array of requests, `e` the record of the replica, `ends` and `ids` the heap of its answers, `t`
the tables of its clock.
"""

import math
from typing import Any

import numpy as np

from foretell.serving.requests.compiled.clock import line, prompt_step
from foretell.serving.requests.compiled.heaps import pop, push, remove
from foretell.serving.requests.compiled.jit import jit
from foretell.serving.requests.replica import WATERMARK


@jit
def arrive(q: Any, e: Any, rules: Any, request: int) -> None:
    """A request comes."""
    if rules.wait_steps and e.waiting == 0:
        e.waits_from = e.steps
    q[request].link = -1
    if e.queue < 0:
        e.queue = request
    else:
        q[e.queue_end].link = request
    e.queue_end = request
    e.waiting += 1


@jit
def spend(e: Any, seconds: float) -> None:
    """Time in steps."""
    e.now += seconds
    e.busy += seconds


@jit
def admit(q: Any, e: Any, ends: Any, ids: Any, rules: Any) -> None:
    """Requests into the batch, in order, as far as places, tokens of a step and the cache go."""
    if e.n > 0 and e.prompts == 0 and waits(e, rules):
        return
    budget = float(rules.max_tokens - (e.n if rules.mixed else 0))
    under, at = 0.0, e.prompt
    while at >= 0:
        under += min(q[at].todo, rules.rank_tokens)
        at = q[at].link
    budget -= under
    while e.n + e.prompts < rules.max_batch and e.waiting > 0 and budget > 0.0:
        todo = let_in(q, e, ends, ids, rules)
        if todo < 0.0:
            break
        budget -= min(todo, rules.rank_tokens)
    e.waits_from = e.steps


@jit
def waits(e: Any, rules: Any) -> bool:
    """Whether prompts wait for others."""
    soon = e.steps < e.waits_from + rules.wait_steps
    return bool(soon and e.waiting < rules.wait_prompts)


@jit
def let_in(q: Any, e: Any, ends: Any, ids: Any, rules: Any) -> float:
    """Give the next request its place in the cache; its prompt tokens to compute, or -1."""
    again = e.back >= 0
    request = e.back if again else e.queue
    one = q[request]
    had = one.made
    swapped = had > 0 and rules.swap
    tokens = float(one.isl + had - (1 if swapped else 0))
    need = tokens + rules.slack
    answer = one.osl - had if rules.whole else 0
    busy = e.n > 0 or e.prompts > 0
    if e.held + need + answer > rules.kv_tokens * (1.0 - WATERMARK if busy else 1.0):
        return -1.0
    if again:
        e.back = one.link
    else:
        e.queue = one.link
    e.waiting -= 1
    e.held += need + answer
    if swapped:
        spend(e, rules.swap_s_per_token * tokens)
        join(q, e, ends, ids, rules, (request, tokens, one.osl - had))
        return 0.0
    todo = max(tokens, 1.0)
    one.todo, one.past, one.link = todo, tokens - todo, -1
    if e.prompt < 0:
        e.prompt = request
    else:
        q[e.prompt_end].link = request
    e.prompt_end = request
    e.prompts += 1
    return todo


@jit
def join(q: Any, e: Any, ends: Any, ids: Any, rules: Any, who: tuple[int, float, int]) -> None:
    """A request whose prompt is in the cache decodes from the next step on."""
    request, tokens, left = who
    one = q[request]
    if left <= 0:
        free(e, rules, one, tokens, tokens)
        finish_one(q, e, request)
        return
    push(ends, ids, e.n, e.steps + math.ceil(left / rules.tokens_per_step), request)
    one.since, one.tokens = e.steps, tokens
    one.left, one.right = e.last, -1
    if e.last >= 0:
        q[e.last].right = request
    e.last = request
    e.n += 1
    e.context += tokens


@jit
def finish_one(q: Any, e: Any, request: int) -> None:
    """An answer is whole."""
    q[request].done = e.now
    q[request].link = -1
    if e.whole < 0:
        e.whole = request
    else:
        q[e.whole_end].link = request
    e.whole_end = request


@jit
def free(e: Any, rules: Any, one: Any, tokens: float, joined_with: float) -> None:
    """The cache of a request."""
    if rules.whole:
        tokens = joined_with + one.osl - one.made
    e.held -= tokens + rules.slack


@jit
def leave(q: Any, e: Any, rules: Any, request: int) -> float:
    """A sequence out of the batch (and, before, out of the heap) and the cache; tokens that it had."""
    one = q[request]
    if one.left >= 0:
        q[one.left].right = one.right
    if one.right >= 0:
        q[one.right].left = one.left
    else:
        e.last = one.left
    tokens = one.tokens + (e.steps - one.since) * rules.tokens_per_step
    e.n -= 1
    e.context = e.context - tokens if e.n > 0 else 0.0
    free(e, rules, one, tokens, one.tokens)
    return float(tokens)


@jit
def step_s(e: Any, t: Any) -> float:
    """A decode step of the batch as it is; 0 where nothing decodes."""
    if e.n == 0:
        return 0.0
    a, b, _ = line(t, e.n, e.context)
    return float(a + b * e.context)


@jit
def prefill(q: Any, e: Any, ends: Any, ids: Any, rules: Any, t: Any) -> None:
    """One step with prompt tokens."""
    n, context = (e.n, e.context) if rules.mixed else (0, 0.0)
    room = float(max(rules.max_tokens - n, 1))
    new = past = 0.0
    taken, at = 0, e.prompt
    while at >= 0:
        chunk = min(q[at].todo, room - new, rules.rank_tokens)
        if chunk <= 0.0:
            break
        new += chunk
        past += q[at].past
        taken += 1
        at = q[at].link
    span = prompt_step(t, n, context, new, past, taken)
    behind = 0.0
    if rules.stages > 1:
        beside = step_s(e, t) if n > 0 else 0.0
        behind = max(span - beside, 0.0) * (1.0 - 1.0 / rules.stages)
    spend(e, span - behind)
    if n > 0:
        advance(e, rules, 1.0)
    compute(q, e, ends, ids, rules, t, (room, behind, taken))
    finish(q, e, ends, ids, rules)
    make_room(q, e, ends, ids, rules)


@jit
def compute(
    q: Any, e: Any, ends: Any, ids: Any, rules: Any, t: Any, step: tuple[float, float, int]
) -> None:
    """Prompts are a step on; those that are whole have a token and join the batch."""
    room, behind, taken = step
    new, before, request = 0.0, -1, e.prompt
    for _ in range(taken):
        one = q[request]
        following = one.link
        chunk = min(one.todo, room - new, rules.rank_tokens)
        new += chunk
        one.todo -= chunk
        one.past += chunk
        if one.todo > 0.0:
            before, request = request, following
            continue
        # Out of the list: another rank's prompt before it may not be whole yet.
        if before < 0:
            e.prompt = following
        else:
            q[before].link = following
        if following < 0:
            e.prompt_end = before
        e.prompts -= 1
        had = one.made
        if had == 0 and math.isnan(one.first):
            late = rules.late_steps * step_s(e, t) if rules.late_steps else 0.0
            one.first = e.now + behind + late
        join(q, e, ends, ids, rules, (request, one.past, one.osl - had - 1))
        request = following


@jit
def advance(e: Any, rules: Any, k: float) -> None:
    """Every decoding sequence is k steps on."""
    grown = e.n * rules.tokens_per_step * k
    e.steps += k
    e.context += grown
    if not rules.whole:
        e.held += grown


@jit
def finish(q: Any, e: Any, ends: Any, ids: Any, rules: Any) -> None:
    """Answers that are whole leave the batch."""
    while e.n > 0 and ends[0] <= e.steps:
        request = ids[0]
        pop(ends, ids, e.n)
        leave(q, e, rules, request)
        finish_one(q, e, request)


@jit
def make_room(q: Any, e: Any, ends: Any, ids: Any, rules: Any) -> None:
    """The last to join leave while the next step would not fit; one always stays."""
    if rules.whole:
        return
    while e.n > 1 and e.held + e.n * rules.tokens_per_step > rules.kv_tokens:
        request = e.last
        one = q[request]
        remove(ends, ids, e.n, request)
        tokens = leave(q, e, rules, request)
        had = one.made
        moved = had > 0 and rules.swap
        decoded = int((e.steps - one.since) * rules.tokens_per_step)
        one.made = had + decoded + (0 if moved else 1)
        if rules.swap:
            spend(e, rules.swap_s_per_token * tokens)
        one.link = e.back
        e.back = request
        e.waiting += 1
        e.preempted += 1


@jit
def decode_steps(e: Any, ends: Any, rules: Any, t: Any, until_s: float) -> tuple[float, float]:
    """How many steps without prompts come next, and their seconds."""
    k = ends[0] - e.steps
    grown = e.n * rules.tokens_per_step
    if not rules.whole and e.held + grown * k > rules.kv_tokens:
        k = max(min(k, math.floor((rules.kv_tokens - e.held) / grown)), 1.0)
    if e.n >= rules.max_batch or e.waiting > 0:
        held = waits(e, rules)
        if not (held and rules.wait_prompts < np.inf):
            until_s = np.inf
        if held:
            k = min(k, math.ceil(e.waits_from + rules.wait_steps - e.steps))
    context = e.context
    a, b, upto = line(t, e.n, context)
    if context + grown * k > upto:
        k = min(k, max(math.ceil((upto - context) / grown), 1.0))
    if until_s < np.inf:
        k = min(k, steps_to(until_s - e.now, a + b * context, 0.5 * b * grown))
    return k, k * a + b * (k * context + grown * k * (k - 1.0) / 2.0)


@jit
def steps_to(left_s: float, each: float, bend: float) -> float:
    """Whole steps after which a time has passed, at least one."""
    if left_s <= each:
        return 1.0
    if bend <= 0.0:
        return float(math.ceil(left_s / each - 1e-9))
    straight = each - bend
    root = 2.0 * left_s / (straight + math.sqrt(straight * straight + 4.0 * bend * left_s))
    return max(float(math.ceil(root - 1e-9)), 1.0)


@jit
def decode(q: Any, e: Any, ends: Any, ids: Any, rules: Any, t: Any, until_s: float) -> None:
    """Steps without prompts, up to the next answer, arrival or full cache."""
    k, seconds = decode_steps(e, ends, rules, t, until_s)
    spend(e, seconds)
    advance(e, rules, k)
    finish(q, e, ends, ids, rules)
    make_room(q, e, ends, ids, rules)
