"""Figures of loops of requests beside their times: medians of first tokens, joules of a token."""

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from foretell.serving.disaggregation import PrefillPool
from foretell.serving.memory import Memory
from foretell.serving.percentiles import first_token_s
from foretell.serving.steady import SteadyState, request_joules
from foretell.serving.steps import StepLoad, StepTimes, step_times
from foretell.specs.deployment import Traffic

Array = NDArray[np.float64]


def joules_per_token(
    times: StepTimes, memory: Memory, load: tuple[Traffic, SteadyState], pool: PrefillPool | None
) -> Array:
    """Joules of all chips for each output token of a loop, prompts included."""
    traffic, loop = load
    answer = 0.5 * (1.0 + traffic.least) * np.asarray(traffic.osl)
    inside = traffic if pool is None else replace(traffic, concurrency=np.maximum(loop.batch, 1.0))
    prompt, written = request_joules(times, memory, inside, loop)
    if pool is not None:
        front = step_times(times.model, pool.system, pool.deployment, times.profile)
        isl = 0.5 * (1.0 + traffic.least) * np.asarray(traffic.isl)
        prompts = StepLoad(prefill_tokens=loop.prompts * isl, prompts=loop.prompts)
        prompt = front.joules(prompts) / loop.prompts
    return np.asarray((prompt + written) / answer)


def median_first_s(loop: SteadyState, started: float) -> Array:
    """Median times to the first token of several loops."""
    many = np.size(loop.ttft_s)
    each = {f.name: np.broadcast_to(getattr(loop, f.name), (many,)) for f in fields(loop)}
    return np.array(
        [
            np.median(first_token_s(SteadyState(**{k: v[i] for k, v in each.items()}), started))
            for i in range(many)
        ]
    )
