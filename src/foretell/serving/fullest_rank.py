"""A load as the fullest rank of a stage has it: even shares, and whole sequences and prompts."""

import numpy as np

from foretell.records import dataclass
from foretell.specs._base import Num
from foretell.specs.arrays import Array
from foretell.specs.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What one step of an instance does; numbers or arrays that broadcast."""

    decoding: Num = 0.0
    """Sequences that get one more token."""
    context_tokens: Num = 0.0
    """Tokens in the caches of all of these together."""
    prefill_tokens: Num = 0.0
    """Prompt tokens of this step, over all prompts in it."""
    past_tokens: Num = 0.0
    """Tokens of the same prompts that earlier steps (or a prefix cache) left in the cache."""
    prompts: Num = 0.0
    """Prompts that these tokens are of, chunks included; at least 1 where there are such tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullestRank:
    """A load as the fullest rank of one stage has it."""

    sequences: Array
    """Decoding sequences."""
    context: Array
    """Mean tokens in the cache of one."""
    prompts: Array
    """Prompts."""
    new: Array
    """Tokens of one of them on this rank."""
    past: Array
    """Its tokens that are in the cache already."""
    tokens: Array
    """Tokens that pass the layers."""
    stage: Array
    """The same over all ranks that share the experts."""
    rows: Array
    """Sequences that get a token."""
    read: Array
    """Tokens that an encoder reads."""


def spread(load: StepLoad, d: Deployment, *, encoder: bool) -> FullestRank:
    """What of a load falls on the fullest rank: even shares, and whole sequences and prompts."""
    # Stages share the sequences among them, but one sequence passes every stage whole.
    n = least_one(load.decoding, float(d.pp))
    new = np.asarray(load.prefill_tokens, float)
    prompts = np.where(new > 0.0, np.maximum(load.prompts, 1.0), 0.0)
    each = new / np.maximum(prompts, 1.0)
    ranks = float(d.dp * d.cp)
    own = least_one(prompts, d.dp)
    drawn = n * (1.0 + d.draft_tokens)
    on_rank, own_new = least_one(drawn, ranks), own * each / d.cp
    return FullestRank(
        sequences=least_one(n, ranks),
        context=np.asarray(load.context_tokens) / np.maximum(load.decoding, 1e-9),
        prompts=own,
        new=each / d.cp,
        past=np.asarray(load.past_tokens) / np.maximum(prompts, 1.0),
        # A decoder behind an encoder begins with one token of its own.
        tokens=on_rank + (own if encoder else own_new),
        stage=drawn + (prompts if encoder else new),
        rows=on_rank + own,
        read=own_new if encoder else np.zeros_like(own_new),
    )


def chance_of_any(value: Array, points: Array) -> Array:
    """0 of nothing, 1 from the first point on; between, the chance that there is one."""
    return np.asarray(np.clip(np.asarray(value, float) / points[0], 0.0, 1.0))


def least_one(total: Num, ranks: float) -> Array:
    """What the fullest of some ranks has: an even share, and one where there is any."""
    total = np.asarray(total, float)
    return np.asarray(np.maximum(total / ranks, np.minimum(total, 1.0)))
