"""Arrays of requests and replicas. Lists of requests are linked: each place holds the next one, -1 none."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.serving.requests.compiled.heaps import first_leaves, leaves
from foretell.serving.requests.records import Fleet, Requests

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PlainRules(NamedTuple):
    """What of `EngineRules` a plain engine needs."""

    max_batch: int
    max_tokens: int
    kv_tokens: float
    mixed: bool
    whole: bool
    swap: bool
    swap_s_per_token: float
    slack: float
    tokens_per_step: float
    latency_s: float
    latency_s_per_token: float
    late_steps: float
    wait_steps: float
    wait_prompts: float
    rank_tokens: float
    stages: int


REQUEST = np.dtype(
    [
        ("isl", np.int64),
        ("osl", np.int64),
        ("arrival", np.float64),
        ("first", np.float64),
        ("done", np.float64),
        ("where", np.int64),
        ("refused", np.int64),
        ("made", np.int64),  # tokens that it had when it last had to leave
        ("since", np.float64),  # step count when it joined the batch
        ("tokens", np.float64),  # tokens that it had in the cache then
        ("todo", np.float64),  # prompt tokens to compute
        ("past", np.float64),  # prompt tokens in the cache
        ("link", np.int64),  # the next of the queue, of who left, of the prompts or of the answers
        ("left", np.int64),  # who joined the batch before it
        ("right", np.int64),  # who joined the batch after it
    ]
)
"""A request."""
REPLICA = np.dtype(
    [
        ("now", np.float64),
        ("busy", np.float64),
        ("steps", np.float64),
        ("context", np.float64),
        ("held", np.float64),
        ("waits_from", np.float64),
        ("n", np.int64),
        ("waiting", np.int64),
        ("prompts", np.int64),
        ("preempted", np.int64),
        ("events", np.int64),
        ("queue", np.int64),  # first of the queue
        ("queue_end", np.int64),  # last of it
        ("back", np.int64),  # first of those that had to leave
        ("prompt", np.int64),  # first prompt under way
        ("prompt_end", np.int64),  # last of them
        ("whole", np.int64),  # first whole answer that its user has not yet
        ("whole_end", np.int64),  # last of them
        ("last", np.int64),  # who joined the batch last
        ("decodes", np.int64),  # whether decode steps are under way, which are yet to be done
        ("works", np.int64),  # whether an event is under way, or next
    ]
)
"""A replica; `replica.Replica` says what its numbers are."""


class Heaps(NamedTuple):
    """What comes next."""

    end_s: Floats
    """When the event of each replica ends."""
    end_tree: Ints
    """Its tree."""
    load: Floats
    """Requests at each replica."""
    load_tree: Ints
    """Its tree."""
    starts: Ints
    """Replicas whose next event begins now, a ring."""
    coming_s: Floats
    """Moments at which requests reach the engine, a heap."""
    coming: Ints
    """Their requests."""


def state_of(requests: Requests, fleet: Fleet) -> tuple[Any, Any, Floats, Ints, Heaps]:
    """Requests, replicas, the heap of each replica's answers (keys and requests), and what comes next."""
    many, replicas = len(requests), fleet.replicas
    asked = np.zeros(many, REQUEST).view(np.recarray)
    asked.isl, asked.osl = requests.isl, requests.osl
    asked.arrival = asked.first = asked.done = np.nan
    asked.where = asked.link = asked.left = asked.right = -1
    engines = np.zeros(replicas, REPLICA).view(np.recarray)
    engines.queue = engines.back = engines.prompt = engines.whole = engines.last = -1
    wide, batch = leaves(replicas), min(fleet.rules.max_batch, many) + 1
    heaps = Heaps(
        end_s=np.full(wide, np.inf),
        end_tree=first_leaves(wide),
        load=np.where(np.arange(wide) < replicas, 0.0, np.inf),
        load_tree=first_leaves(wide),
        starts=np.zeros(replicas, np.int64),
        coming_s=np.zeros(many),
        coming=np.zeros(many, np.int64),
    )
    return asked, engines, np.zeros((replicas, batch)), np.zeros((replicas, batch), np.int64), heaps


def rules_of(fleet: Fleet) -> PlainRules:
    """The rules of a replica as numbers."""
    r = fleet.rules
    return PlainRules(
        r.max_batch, r.max_tokens, float(r.kv_tokens), r.policy == "mixed", r.whole_admission,
        r.preemption == "swap", r.swap_s_per_token, r.slack_tokens, r.tokens_per_step, r.latency_s,
        r.latency_s_per_token, r.late_steps, r.wait_steps, float(r.wait_prompts),
        float(r.rank_tokens), r.stages,
    )  # fmt: skip
