"""Batches that no new request joins, queues that never end, and tokens that are to be written by a time.

static   all prompts at once, then steps until the last answer is whole
offline  as many sequences as fit, each whole answer followed by the next request
"""

from functools import partial
from typing import Any

import numpy as np

from foretell.errors import Problem, wrong
from foretell.inputs.question import collect
from foretell.records import dataclass
from foretell.serving.engine_options import batch_limit, step_tokens
from foretell.serving.fullest_rank import StepLoad
from foretell.serving.memory import Memory, sequences_that_fit
from foretell.serving.steady import SteadyState
from foretell.serving.steps import StepTimes
from foretell.serving.tables import UNEVEN
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import Traffic
from foretell.specs.engine import EngineProfile
from foretell.units import parse

TUNED_BATCH = 4096
"""Most sequences at once that TensorRT-LLM's own benchmark sets where the cache holds as many
(tensorrt_llm/bench/build/tuning.py: finetune_setting)."""
POINTS = 5
"""Contexts at which decode steps are looked at: they are nearly straight between."""


MOST = 1e18
"""Tokens and seconds above this are a typing error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineBatch:
    """Tokens that must be written, by a time or whenever they are done."""

    tokens: float
    """Output tokens."""
    within_s: float | None = None
    """Seconds until they must be; None: no deadline."""

    def finish(self, tokens_per_s: float, usd_per_hour: float | None) -> dict[str, Any]:
        """When it is done at a rate of tokens, whether that is in time, and what it costs."""
        done_s = self.tokens / tokens_per_s
        return {
            "tokens": self.tokens,
            "within_s": self.within_s,
            "done_s": done_s,
            "in_time": self.within_s is None or done_s <= self.within_s,
            "usd": None if usd_per_hour is None else usd_per_hour * done_s / 3600.0,
        }


def read_batch(
    tokens: str | float | None, within: str | float | None, problems: list[Problem]
) -> OfflineBatch | None:
    """The batch of `--tokens 1B --within 12h`; None where none is asked for, or its numbers are none."""
    if tokens is None and within is None:
        return None
    if tokens is None:
        problems.append(wrong("tokens", None, "missing", "the batch's output tokens, as in 1B"))
    found = [
        None if given is None else collect(partial(parse, given, unit, name), problems)
        for name, given, unit in (("tokens", tokens, ""), ("within", within, "s"))
    ]
    for name, given, value in (("tokens", tokens, found[0]), ("within", within, found[1])):
        if value is not None and not 0.0 < value < MOST:
            allowed = "more than 0, as in 1B or 12h"
            problems.append(wrong(name, given, "not a usable number", allowed))
    return None if found[0] is None else OfflineBatch(tokens=found[0], within_s=found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBatch:
    """One batch from its prompts to its last token."""

    ttft_s: Array
    """Prompts of all sequences."""
    tpot_s: Array
    """Mean decode step over the tokens that it gives a sequence."""
    e2e_s: Array
    """All of it."""


def static_batch(times: StepTimes, batch: Num, isl: Num, osl: Num) -> StaticBatch:
    """A batch of equal sequences."""
    n, length = np.asarray(batch, float), np.asarray(isl, float)
    answer = np.asarray(osl, float)
    ttft = times.seconds(StepLoad(prefill_tokens=n * length, prompts=n))
    shares = (np.arange(POINTS) + 0.5) / POINTS
    steps = [
        times.seconds(StepLoad(decoding=n, context_tokens=n * (length + share * answer)))
        for share in shares
    ]
    tpot = np.mean(steps, axis=0) / (1.0 + times.deployment.accepted)
    return StaticBatch(ttft_s=ttft, tpot_s=tpot, e2e_s=ttft + np.maximum(answer - 1.0, 0.0) * tpot)


def offline_tokens_per_s(times: StepTimes, fit: Num, isl: Num, osl: Num) -> Array:
    """Output tokens a second of an instance with an endless queue.

    B osl / ((osl - 1) t_d(B) + B t_p), where a prompt's t_p is what it adds to a step of the
    whole batch with as many prompts as the token budget takes.
    """
    p, d = times.profile, times.deployment
    length, answer = np.asarray(isl, float), np.asarray(osl, float)
    n = np.maximum(np.asarray(fit, float), 1.0)
    # With answers of one token nothing is left to decode.
    decodes = np.asarray(answer > 1.0)
    beside, context = n * decodes, n * decodes * (length + UNEVEN * answer)
    t_d = times.seconds(StepLoad(decoding=beside, context_tokens=context)) * decodes
    # Every rank with attention of its own has prompts of its own, or a chunk of one.
    budget, ranks = step_tokens(p, d), float(d.dp)
    left = np.maximum(budget - beside / ranks, 1.0)
    each = np.clip(left / length, 1.0 / np.ceil(length / budget), np.maximum(n / ranks, 1.0))
    k, prompts = each * np.minimum(ranks, n), np.maximum(each, 1.0) * np.minimum(ranks, n)
    load = StepLoad(
        decoding=beside, context_tokens=context, prefill_tokens=k * length, prompts=prompts,
        past_tokens=np.maximum(1.0 - each, 0.0) * length * 0.5 * prompts,
    )  # fmt: skip
    prompt_s = np.maximum(times.seconds(load) - t_d, 0.0) / k
    if p.policy == "prefill-first":
        own = StepLoad(prefill_tokens=k * length, prompts=prompts)
        prompt_s = times.seconds(own) / k
    # Stages have prompts of their own side by side; a decode step is a round of all of them already.
    tokens_s = (answer - 1.0) * t_d / (1.0 + d.accepted)
    return np.asarray(n * answer / (tokens_s + n * prompt_s / d.pp))


def offline_limit(engine: EngineProfile) -> int | None:
    """Sequences at once that an engine's own tool sets for an endless queue; None: as it serves."""
    tuned = engine.engine == "trtllm" and engine.since >= "1"
    return TUNED_BATCH if tuned else None


def static_state(times: StepTimes, traffic: Traffic) -> SteadyState:
    """One static batch of the whole concurrency after the other, as the state of an instance."""
    mean = 0.5 * (1.0 + traffic.least)
    n, answer = (
        np.asarray(traffic.concurrency, float),
        np.maximum(mean * np.asarray(traffic.osl), 1.0),
    )
    batch = static_batch(times, n, mean * np.asarray(traffic.isl), answer)
    return batch_state(n, batch, batch.ttft_s, n)


def offline_state(times: StepTimes, memory: Memory, traffic: Traffic) -> SteadyState:
    """An endless queue, as the state of an instance; TTFT is from when the engine takes a request up."""
    mean, d, p = 0.5 * (1.0 + traffic.least), times.deployment, times.profile
    isl, answer = mean * np.asarray(traffic.isl), np.maximum(mean * np.asarray(traffic.osl), 1.0)
    room = np.floor(sequences_that_fit(memory, times.model, d, p, isl + answer))
    n = np.maximum(np.minimum(room, batch_limit(d, p, room / d.dp) * d.dp), 1.0)
    tokens_per_s = offline_tokens_per_s(times, n, isl, answer)
    e2e, prompt_s = n * answer / tokens_per_s, times.seconds(StepLoad(prefill_tokens=isl))
    first = np.minimum(prompt_s, e2e)
    tpot = np.where(answer > 1.0, (e2e - first) / np.maximum(answer - 1.0, 1.0), 0.0)
    return batch_state(n, StaticBatch(ttft_s=first, tpot_s=tpot, e2e_s=e2e), n * first, np.ones(()))


def batch_state(n: Array, batch: StaticBatch, prompts_s: Array, k: Array) -> SteadyState:
    """The state of an instance with n sequences that begin and end as a batch's do.

    `prompts_s` is the time that their prompts take, k of them in a step.
    """
    zero = np.zeros_like(batch.e2e_s * n)
    return SteadyState(
        batch=n + zero,
        fit_batch=n + zero,
        share=1.0 + zero,
        # No request finds a step of others under way.
        decode_s=zero,
        token_s=batch.tpot_s + zero,
        stall_s=np.minimum(prompts_s, batch.e2e_s) / n + zero,
        prefill_s=batch.ttft_s + zero,
        prompts=k + zero,
        busy=np.minimum(prompts_s / batch.e2e_s, 1.0) + zero,
        met=zero,
        tpot_s=batch.tpot_s + zero,
        ttft_steady_s=batch.ttft_s + zero,
        ttft_start_s=batch.ttft_s + zero,
        ttft_s=batch.ttft_s + zero,
        queued_s=zero,
        requests_per_s=n / batch.e2e_s + zero,
    )
