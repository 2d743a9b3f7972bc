"""What a simulation of requests is given and what it gives back."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from foretell.specs.arrays import Array

Policy = Literal["mixed", "prefill-first"]
"""mixed: prompts join the decode step; prefill-first: they have a step of their own."""
Preemption = Literal["recompute", "swap"]
"""What becomes of the cache of a sequence that must leave: computed again, or moved to the host and back."""
Routing = Literal["round-robin", "least-loaded", "prefix-aware", "sticky"]
"""How requests are dealt to replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscaleRule:
    """When replicas are started and stopped."""

    least: int = 1
    """Replicas that always run."""
    most: int = 0
    """Replicas at most; 0: as many as the chips allow."""
    start_s: float = 120.0
    """From the decision to the first request: a node, the image, the weights, graphs."""
    period_s: float = 60.0
    """Seconds over which arrivals are counted, and after which the number is looked at again."""
    target: float = 0.7
    """Share of what a replica can answer that it is meant to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPool:
    """What became of replicas that were started and stopped."""

    replica_seconds: float
    """Replica-seconds paid for."""
    running: tuple[tuple[float, int], ...]
    """(when, replicas that run or start)."""


class Clock(Protocol):
    """Seconds of steps, for one load at a time."""

    def line(self, decoding: int, context_tokens: float) -> tuple[float, float, float]:
        """Decode steps of so many sequences: a, b and the context up to which a step takes a + b context."""
        ...

    def mixed(
        self, decoding: int, context_tokens: float, new: float, past: float, prompts: int
    ) -> float:
        """Seconds of a step with prompt tokens, beside decoding sequences or alone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What is asked, in the order of arrival; lists of equal length."""

    isl: Sequence[int]
    """Prompt tokens of each."""
    osl: Sequence[int]
    """Answer tokens of each, at least one."""
    at_s: Sequence[float] | None = None
    """Arrival of each, rising; None: a closed loop, in which an answer brings the next request."""
    concurrency: int = 0
    """Requests in flight of a closed loop."""
    prefix: Sequence[int] | None = None
    """Which common beginning each has: equal numbers share it; -1: none."""
    prefix_tokens: Sequence[int] | None = None
    """Tokens of it."""
    priority: Sequence[int] | None = None
    """Class of each: smaller goes first."""
    blocks: Sequence[tuple[int, ...]] | None = None
    """Ids of the blocks of each prompt, from its beginning: equal leading ids are a common beginning."""
    block_tokens: int = 0
    """Tokens of a block."""
    session: Sequence[int] | None = None
    """Session of each: requests of one have equal numbers."""
    after: Sequence[int] | None = None
    """The request whose answer each waits for, before it comes; -1: none."""
    pause_s: Sequence[float] | None = None
    """Seconds from that answer to the request: a tool runs, a user reads."""
    kept: Sequence[tuple[int, ...]] | None = None
    """Ids of the blocks of each prompt with its answer, which stay in the cache for the next turn."""
    said: tuple[str, ...] = ()
    """What was assumed where they were read from a file, a sentence each."""

    def __len__(self) -> int:
        return len(self.isl)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTier:
    """Memory beside the chips' that keeps blocks of caches."""

    name: str
    """host, ssd, remote, ..."""
    tokens: float
    """Tokens that it holds for one replica."""
    s_per_token: float
    """Seconds of bringing one back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """How an engine deals with requests."""

    max_batch: int
    """Sequences at once."""
    max_tokens: int
    """Tokens of a step."""
    kv_tokens: float
    """Tokens that the cache holds."""
    policy: Policy = "mixed"
    """How prompts and decoding share steps."""
    whole_admission: bool = False
    """Whether a request is let in only where its whole answer fits too."""
    preemption: Preemption = "recompute"
    """What becomes of a sequence for which the cache is too small."""
    swap_s_per_token: float = 0.0
    """Moving one token of the cache to the host, or back."""
    prefix_caching: bool = False
    """Whether common beginnings are computed once."""
    tiers: tuple[KvTier, ...] = ()
    """Where blocks go that the cache has no room for, the nearest first."""
    slack_tokens: float = 8.0
    """Tokens of the cache that a sequence wastes: half of its last page."""
    tokens_per_step: float = 1.0
    """Tokens of a sequence that a decode step gives: more than one where drafts are accepted."""
    latency_s: float = 0.0
    """What a request and its answer meet outside the engine: HTTP, tokeniser; all of it before."""
    latency_s_per_token: float = 0.0
    """The same for each prompt token."""
    late_steps: float = 0.0
    """Decode steps after its own that a first token waits for."""
    wait_steps: float = 0.0
    """Decode steps that new prompts wait to come together, while others decode."""
    wait_prompts: float = math.inf
    """Prompts that end that wait before."""
    rank_tokens: float = math.inf
    """Tokens of one prompt in a step: what one of the ranks that share the step takes."""
    stages: int = 1
    """Pipeline stages: a step with prompts keeps each busy for its share of it alone."""
    decode_only: bool = False
    """Whether prompts come with their cache already computed elsewhere."""
    prefill_only: bool = False
    """Whether a request leaves with its first token, its cache going elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Replicas of an engine, or of two that share the work."""

    rules: EngineRules
    """Of each replica; of those that decode, where others prefill."""
    replicas: int = 1
    """How many."""
    routing: Routing = "round-robin"
    """How requests are dealt to them."""
    prefill: EngineRules | None = None
    """Rules of replicas that do prompts alone; None: prompts and answers have the same replicas."""
    prefill_replicas: int = 0
    """How many of these."""
    transfer_s: float = 0.0
    """Moving a cache from one to the other: what every one takes."""
    transfer_s_per_token: float = 0.0
    """The same for each token in it."""
    autoscale: AutoscaleRule | None = None
    """When replicas are started and stopped; None: all run all the time."""
    able_per_s: float = 0.0
    """Requests a second that one replica can answer, by which they are."""
    prefill_able_per_s: float = 0.0
    """Prompts a second that one which does prompts alone can read."""
    queue_limit: int = 0
    """Requests that may wait at a replica: one that finds as many is refused; 0: any number."""
    fails_s: float = math.inf
    """When the last of the replicas fails; what it has begun, others begin anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutcomes:
    """What became of every request; arrays in the order of the requests, nan where one was not answered."""

    arrival_s: Array
    """When it came."""
    first_s: Array
    """When its first token reached the user."""
    done_s: Array
    """When its last token did."""
    isl: Array
    """Prompt tokens."""
    osl: Array
    """Answer tokens."""
    replica: NDArray[np.intp]
    """Where it was answered."""
    refused: NDArray[np.bool_]
    """Longer than a cache: never let in."""
    preempted: int
    """How often a sequence had to leave."""
    prefix_hits: float
    """Prompt tokens that a prefix cache saved."""
    tier_hits: dict[str, float]
    """Of these, tokens that came from other tiers of memory."""
    end_s: float
    """When the last one was answered."""
    busy_s: Array
    """Of each replica, time in steps."""
    series: "Series"
    """What the replicas held over time."""
    scaled: ScaledPool | None = None
    """Replicas that answer, or decode, where they are started and stopped."""
    prefill_scaled: ScaledPool | None = None
    """Those that do prompts alone, likewise."""


@dataclass(slots=True)
class Series:
    """Samples over time, of all replicas: when, where, and how much."""

    at_s: list[float] = field(default_factory=list)
    """Moments."""
    replica: list[int] = field(default_factory=list)
    """Replicas."""
    decoding: list[int] = field(default_factory=list)
    """Sequences in the batch."""
    waiting: list[int] = field(default_factory=list)
    """Requests in the queue."""
    held_tokens: list[float] = field(default_factory=list)
    """Tokens in the cache."""

    def sort(self) -> None:
        """Order the samples by their moments."""
        order = np.argsort(np.array(self.at_s), kind="stable").tolist()
        self.at_s = [self.at_s[i] for i in order]
        self.replica = [self.replica[i] for i in order]
        self.decoding = [self.decoding[i] for i in order]
        self.waiting = [self.waiting[i] for i in order]
        self.held_tokens = [self.held_tokens[i] for i in order]
