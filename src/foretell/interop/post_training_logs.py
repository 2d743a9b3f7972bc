"""Logs of post-training loops: `timing_s/*`, `perf/*` and lengths of verl's lines, or of JSON lines.

verl prints one line a step (`step:12 - timing_s/gen:45.2 - perf/throughput:512.3 -
response_length/mean:226.8`); trackers write the same keys as JSON. NeMo-RL and SkyRL use `timing/train/...`
and `timing/...`. The median over the steps is taken, the first two left out where there are more: they
compile and warm up.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from foretell.errors import BadInput, Problem
from foretell.interop.user_files import user_file, user_text
from foretell.records import dataclass

PAIR = re.compile(
    r"([A-Za-z_][\w./]*/[\w./-]+)\s*[:=]\s*(?:np\.float\d+\()?(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)
"""A key with slashes and its number."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "gen": (
        "timing_s/gen",
        "timing/train/generation",
        "timing/generate",
        "timing_s/generate_sequences",
    ),
    "old_logprob": (
        "timing_s/old_log_prob",
        "timing/train/policy_and_reference_logprobs",
        "timing/fwd_logprobs_values_reward",
    ),
    "ref_logprob": ("timing_s/ref", "timing_s/ref_log_prob"),
    "values": ("timing_s/values",),
    "reward": ("timing_s/reward",),
    "adv": ("timing_s/adv", "timing/compute_advantages_and_returns"),
    "update_actor": (
        "timing_s/update_actor",
        "timing/train/policy_training",
        "timing/policy_train",
    ),
    "update_critic": ("timing_s/update_critic", "timing/critic_train"),
    "weight_sync": (
        "timing_s/update_weights",
        "timing_s/reshard",
        "timing/train/weight_sync",
        "timing/sync_weights",
    ),
    "step": ("timing_s/step", "timing/train/total_step_time", "timing/step"),
    "mean_prompt": ("prompt_length/mean",),
    "mean_response": ("response_length/mean", "train/mean_gen_tokens_per_sample"),
    "max_response": ("response_length/max",),
    "clip_ratio": ("response_length/clip_ratio",),
    "tokens_per_s_per_gpu": ("perf/throughput",),
    "mfu": ("perf/mfu/actor",),
    "peak_mem_gib": ("perf/max_memory_allocated_gb",),
    "validation": ("timing_s/testing", "timing/train/validation"),
    "checkpoint": ("timing_s/save_checkpoint", "timing/train/checkpointing"),
}
"""Numbers of a step -> the keys under which loops log them."""
MOST = 1e30
"""Largest number of a log: more is none."""
WARM_UP = 2
"""Steps that are left out where there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTrainingLog:
    """Medians of a log's steps."""

    steps: int
    """Steps that were read."""
    medians: Mapping[str, float]
    """By our names; a step without its validation and checkpoint."""


def read_post_training_log(path: str | Path) -> PostTrainingLog:
    """The medians of a log; BadInput where it has no such keys."""
    file = user_file(path, "log", "a log with timing_s/... keys")
    if not file.is_file():
        message = "there is no such file"
        raise BadInput([Problem(path="log", value=str(path), message=message)])
    return log_of(user_text(file, "log"))


def log_of(text: str) -> PostTrainingLog:
    """The medians of a log's text."""
    steps = [found for line in text.splitlines() if (found := line_values(line))]
    if not steps:
        message = "has no timing_s/... keys: verl's lines, or JSON lines of a tracker"
        raise BadInput([Problem(path="log", value=text[:60], message=message)])
    kept = steps[WARM_UP:] if len(steps) > WARM_UP + 1 else steps
    columns: dict[str, list[float]] = defaultdict(list)
    for step in kept:
        for name, keys in NAMES.items():
            value = next((step[key] for key in keys if key in step), None)
            if value is not None:
                columns[name].append(value)
        beside = sum(
            step.get(key, 0.0) for name in ("validation", "checkpoint") for key in NAMES[name]
        )
        if beside and columns["step"]:
            columns["step"][-1] -= beside
    return PostTrainingLog(
        steps=len(kept),
        medians={name: median(values) for name, values in columns.items() if values},
    )


def line_values(line: str) -> dict[str, float]:
    """Keys and numbers of one line, empty where it has no timing."""
    text = line.strip()
    if text.startswith("{"):
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError):
            raw = {}
        nested = raw.get("metrics", raw.get("data", raw)) if isinstance(raw, dict) else {}
        pairs = nested.items() if isinstance(nested, dict) else ()
        found = {
            str(k): float(v)
            for k, v in pairs
            if isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= MOST
        }
    else:
        found = {key: float(value) for key, value in PAIR.findall(text)}
    return found if any(key.startswith(("timing_s/", "timing/")) for key in found) else {}
