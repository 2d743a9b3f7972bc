"""Batches without an engine: all prompts at once, then steps until the last answer is whole."""

import numpy as np
from numpy.typing import NDArray

from foretell.records import dataclass
from foretell.serving.engine_options import step_tokens
from foretell.serving.steps import StepLoad, StepTimes
from foretell.serving.tables import UNEVEN
from foretell.specs._base import Num

Array = NDArray[np.float64]

POINTS = 5
"""Contexts at which decode steps are looked at: they are nearly straight between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBatch:
    """One batch from its prompts to its last token."""

    ttft_s: Array
    """Prompts of all sequences."""
    tpot_s: Array
    """Mean decode step."""
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
    tpot = np.mean(steps, axis=0)
    return StaticBatch(ttft_s=ttft, tpot_s=tpot, e2e_s=ttft + np.maximum(answer - 1.0, 0.0) * tpot)


def offline_tokens_per_s(times: StepTimes, fit: Num, isl: Num, osl: Num) -> Array:
    """Output tokens a second of an instance with an endless queue.

    B osl / (osl t_d(B) + B t_p), where a prompt's t_p is what it adds to a step of the
    whole batch with as many prompts as the token budget takes.
    """
    p, d = times.profile, times.deployment
    length, answer = np.asarray(isl, float), np.asarray(osl, float)
    n = np.maximum(np.asarray(fit, float), 1.0)
    context = n * (length + UNEVEN * answer)
    t_d = times.seconds(StepLoad(decoding=n, context_tokens=context))
    budget = step_tokens(p, d) * d.dp
    k = np.clip(np.maximum(budget - n, 1.0) / length, 1.0 / np.ceil(length / budget), n)
    load = StepLoad(
        decoding=n, context_tokens=context, prefill_tokens=k * length,
        prompts=np.maximum(k, 1.0), past_tokens=np.maximum(1.0 - k, 0.0) * length * 0.5,
    )  # fmt: skip
    prompt_s = np.maximum(times.seconds(load) - t_d, 0.0) / k
    if p.policy == "prefill-first":
        own = StepLoad(prefill_tokens=k * length, prompts=np.maximum(k, 1.0))
        prompt_s = times.seconds(own) / k
    # Stages have prompts of their own side by side; a decode step is a round of all of them already.
    return np.asarray(n * answer / (answer * t_d + n * prompt_s / d.pp))
