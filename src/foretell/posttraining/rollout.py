"""Generation: every trajectory of a step through the rollout engine, by the request simulator.

All requests are there at once and none comes after them: the batch is full while more wait than fit, and then
drains; the longest answer decides when the phase ends. Replicas have equal shares of whole groups, so that
one is simulated: it gets every R-th length of all answers, the longest of all among them. A group shares its
prompt, which is computed once. Tool calls hold a trajectory up and not the engine: what they add is what the
last trajectory waits for beyond the last token.
"""

import math
from dataclasses import replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from foretell.errors import Infeasible, wrong
from foretell.posttraining.workload import TrajectoryWorkload
from foretell.records import dataclass
from foretell.serving.memory import Memory, memory_of
from foretell.serving.requests.records import Requests
from foretell.serving.requests.run import play
from foretell.serving.serve import ServeQuestion
from foretell.serving.simulated_fleet import Play, fleet_of
from foretell.specs.arrays import Array
from foretell.specs.cost import Prices
from foretell.specs.deployment import Deployment, Traffic
from foretell.specs.engine import EngineProfile
from foretell.specs.model import Model
from foretell.specs.system import System
from foretell.units import format as show

TAIL = 0.05
"""Share of the answers that are still written when the tail of a generation begins."""
LOGPROBS = 1.05
"""Time of decode steps that return log-probabilities over those that do not: 5 to 10 % in SkyRL's issue
857."""
MOST_SIMULATED = 1024
"""Requests of one replica that are simulated one by one; more are thinned, and their time is scaled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTimes:
    """One generation phase."""

    seconds: float
    """From the first prompt to the last token."""
    environment_s: float
    """What tool calls add behind it."""
    tail_s: float
    """Of the seconds, those in which fewer than one in twenty answers are still written."""
    tail_requests: int
    """How many answers that is, of all replicas."""
    busy_share: float
    """Share of the time in which the mean replica has anything to do."""
    steady_s: float
    """What the trajectories would take in an endless queue, where no tail shows."""
    latency_s: float
    """Seconds of the mean answer from its first prompt token to its last."""
    memory: Memory
    """What one chip of the engine holds."""


def rollout_times(
    model: Model,
    system: System,
    gpus: int,
    deployment: Deployment,
    profile: EngineProfile,
    work: TrajectoryWorkload,
    in_turn: bool = False,
) -> RolloutTimes:
    """The generation of one step; Infeasible where the engine does not fit. `in_turn`: each batch of the
    engine to its last answer before the next begins."""
    replicas = max(gpus // deployment.gpus, 1)
    # Whole rounds until enough groups are left; out of an endless queue, as many more.
    more = 1.0 / (1.0 - work.filtered)
    rounds = float(math.ceil(more - 1e-9))
    batch = deployment.max_batch or work.trajectories
    if in_turn and replicas * batch < work.trajectories:
        batches = math.ceil(work.trajectories / (replicas * batch))
        more, rounds, replicas = more * batches, rounds * batches, 1
        work = replace(work, prompts=max(batch // work.samples, 1))
    once = _times(model, system, replicas, deployment, profile, work)
    if rounds == 1.0:
        return once
    return replace(
        once,
        seconds=rounds * once.seconds,
        environment_s=rounds * once.environment_s,
        tail_s=rounds * once.tail_s,
        steady_s=more * once.steady_s,
    )


@lru_cache(maxsize=256)
def _times(
    model: Model,
    system: System,
    replicas: int,
    deployment: Deployment,
    profile: EngineProfile,
    work: TrajectoryWorkload,
) -> RolloutTimes:
    memory = memory_of(model, system, deployment, profile)
    longest = work.prompt_tokens + float(
        work.answers.quantiles(np.array([1.0 - 0.5 / work.trajectories]))[0]
    )
    check_room(memory, deployment)
    requests, thinned = requests_of(work, replicas)
    question = ServeQuestion(
        model=model,
        system=system,
        gpus=deployment.gpus,
        deployment=deployment,
        profile=profile,
        traffic=Traffic(
            isl=work.prompt_tokens, osl=work.answers.mean, concurrency=float(len(requests))
        ),
        rate=None,
        prices=Prices(source=""),
    )
    how = Play(arrivals="trace", prefixes=1 if work.samples > 1 else 0)
    fleet, clock, _ = fleet_of(question, how, memory)
    # Groups share their prompts; one prompt alone shares nothing.
    rules = replace(fleet.rules, prefix_caching=work.samples > 1)
    played = play(requests, replace(fleet, rules=rules), clock)
    done = np.sort(played.done_s[np.isfinite(played.done_s)])
    if not len(done):
        message = f"the cache of {rules.kv_tokens:.0f} tokens is less than one trajectory of {longest:.0f}"
        raise Infeasible([wrong("rollout_plan", None, message)])
    end_s, full_s = float(done[-1]), float(done[max(math.ceil((1.0 - TAIL) * len(done)) - 1, 0)])
    # What was left out of a thinned queue would have run while the batch was full.
    extra_s = (thinned - 1.0) * full_s
    end_s, full_s = LOGPROBS * (end_s + extra_s), LOGPROBS * (full_s + extra_s)
    stay_s = float(np.nanmean(played.done_s - played.first_s)) * LOGPROBS
    return RolloutTimes(
        seconds=end_s,
        environment_s=environment_s(work, played.done_s * LOGPROBS + extra_s, end_s),
        tail_s=end_s - full_s,
        tail_requests=max(round(TAIL * work.trajectories), 1),
        busy_share=min((full_s + 0.5 * (end_s - full_s)) / max(end_s, 1e-9), 1.0),
        steady_s=steady_seconds(full_s, len(done), rules.max_batch, stay_s),
        latency_s=stay_s,
        memory=memory,
    )


def steady_seconds(full_s: float, many: int, batch: int, stay_s: float) -> float:
    """Seconds of the same answers at the rate of a queue that never drains.

    A queue of many batches runs at the rate of its full part. One that fits the batch whole decodes beside
    fewer and fewer: in an endless queue its places would be filled again, as the mean answer leaves.
    """
    waves = max(many / max(min(batch, many), 1), 1.0)
    return min(full_s, waves * stay_s) if waves <= 1.5 else full_s


def check_room(memory: Memory, deployment: Deployment) -> None:
    """Raise where weights leave nothing for a cache."""
    if memory.fits:
        return
    need = memory.weight_bytes + memory.step_bytes + memory.reserve_bytes
    tp, held = f"tp{deployment.tp}", show(memory.card_bytes, "bytes")
    message = (
        f"weights and steps need {show(need, 'bytes')} of {held} a chip at {tp}: "
        "nothing is left for the cache"
    )
    allowed = "a larger tp, weights=fp8, or a larger memory_fraction"
    raise Infeasible([wrong("rollout_plan", tp, message, allowed)])


def requests_of(work: TrajectoryWorkload, replicas: int) -> tuple[Requests, float]:
    """The requests of the fullest replica, and how many each of them stands for."""
    share = work.trajectories / replicas
    fuller = (
        1.0 + work.variation * math.sqrt(2.0 * math.log(replicas) / share) if replicas > 1 else 1.0
    )
    wanted = max(round(share * fuller), 1)
    many = min(wanted, MOST_SIMULATED)
    lengths = work.answers.of_many(many)
    lengths[-1] = work.answers.quantiles(np.array([1.0 - 0.5 / work.trajectories]))[0]
    order = np.random.default_rng(0).permutation(many)
    answers = np.maximum(np.rint(lengths[order]), 1.0)
    prompt = max(round(work.prompt_tokens), 1)
    groups = (np.arange(many) // max(work.samples, 1)).tolist()
    return (
        Requests(
            isl=[prompt] * many,
            osl=[int(n) for n in answers],
            at_s=[0.0] * many,
            prefix=groups if work.samples > 1 else None,
            prefix_tokens=[prompt - 1] * many if work.samples > 1 else None,
        ),
        wanted / many,
    )


def environment_s(work: TrajectoryWorkload, done_s: Array, end_s: float) -> float:
    """What tool calls add behind the last token: the last trajectory's own calls held it up."""
    calls = max(work.turns - 1, 0) or (1 if work.tool_median_s and work.turns == 1 else 0)
    if not calls or work.tool_median_s <= 0.0:
        return 0.0
    sigma = math.log(max(work.tool_p99_s, work.tool_median_s) / work.tool_median_s) / 2.3263
    mean = work.tool_median_s * math.exp(0.5 * sigma**2)
    variance = calls * mean**2 * (math.exp(sigma**2) - 1.0)
    normal = NormalDist()
    finished = np.sort(done_s[np.isfinite(done_s)])
    shares = (np.arange(len(finished)) + 0.5) / len(finished)
    waits = calls * mean + math.sqrt(variance) * np.array(
        [normal.inv_cdf(float(u)) for u in shares]
    )
    mixed = np.random.default_rng(1).permutation(len(finished))
    return float(max(np.max(finished + np.maximum(waits[mixed], 0.0)) - end_s, 0.0))
